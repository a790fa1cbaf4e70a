"""Batches of an epoch: whatever the rule, a partition of the graphs over batches and ranks."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kmip_data.reading.batch_rule import BatchRule, cut_by_nodes


def slow_cut(order, nodes, limit):
    """One graph after the other: a new batch where the next one does not fit."""
    batches = []
    for graph in order:
        if batches and sum(nodes[i] for i in batches[-1]) + nodes[graph] <= limit:
            batches[-1].append(graph)
        else:
            batches.append([graph])
    return batches


sizes = st.lists(st.integers(0, 30), max_size=60).map(lambda values: np.array(values, np.int64))
rules = st.builds(
    BatchRule,
    batch_size=st.integers(1, 9),
    shuffle=st.booleans(),
    seed=st.integers(0, 3),
    max_nodes=st.none() | st.integers(1, 80),
    bucket=st.none() | st.integers(1, 20),
    drop_last=st.booleans(),
    even=st.booleans(),
)


@given(sizes, rules, st.integers(0, 3), st.integers(1, 4))
@settings(max_examples=200, deadline=None)
def test_ranks_partition_the_graphs(nodes, rule, epoch, world_size):
    ranks = [rule.batches(nodes, epoch, rank, world_size) for rank in range(world_size)]
    again = [rule.batches(nodes, epoch, rank, world_size) for rank in range(world_size)]
    assert [[b.tolist() for b in r] for r in ranks] == [[b.tolist() for b in r] for r in again]
    graphs = [int(graph) for batches in ranks for batch in batches for graph in batch]
    counts = [len(batches) for batches in ranks]
    assert set(graphs) <= set(range(len(nodes)))
    if not rule.even:
        assert len(set(graphs)) == len(graphs)
    if not rule.drop_last:
        assert set(graphs) == set(range(len(nodes)))
    if rule.even or rule.drop_last:
        assert len(set(counts)) == 1
    assert max(counts) - min(counts) <= 1
    for batches in ranks:
        for batch in batches:
            if rule.max_nodes is None:
                assert 1 <= len(batch) <= rule.batch_size
                assert len(batch) == rule.batch_size or not rule.drop_last
            else:
                assert nodes[batch].sum() <= rule.max_nodes or len(batch) == 1


@given(sizes, st.integers(1, 60), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_cut_by_nodes_is_greedy(nodes, limit, random):
    order = np.array(random.sample(range(len(nodes)), len(nodes)), np.int64)
    assert [batch.tolist() for batch in cut_by_nodes(order, nodes, limit)] == slow_cut(
        order, nodes, limit
    )


def test_one_rank_keeps_the_order_and_epochs_and_seeds_differ():
    nodes = np.ones(10, np.int64)
    batches = BatchRule(batch_size=4).batches(nodes, epoch=5)
    assert [batch.tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    rules = [BatchRule(batch_size=10, shuffle=True, seed=seed) for seed in range(3)]
    orders = {tuple(rule.batches(nodes, epoch)[0].tolist()) for rule in rules for epoch in range(3)}
    assert len(orders) == 9


def test_buckets_hold_graphs_of_similar_size():
    nodes = np.random.default_rng(0).integers(1, 1000, 400)
    spread = {}
    for bucket in (None, 100):
        rule = BatchRule(batch_size=10, shuffle=True, bucket=bucket)
        batches = rule.batches(nodes, 0)
        spread[bucket] = np.mean([np.ptp(nodes[batch]) for batch in batches])
        firsts = [nodes[batch].mean() for batch in batches]
        assert firsts != sorted(firsts)  # the batches themselves are in random order
    assert spread[100] < spread[None] / 5


def test_divided_batches_equal_batches_of_one_process():
    for graphs, world_size in [(23, 2), (23, 3), (21, 4), (2, 3)]:
        rule = BatchRule(batch_size=5, shuffle=True, seed=1, even=True, divide=True)
        nodes = np.ones(graphs, np.int64)
        whole = rule.batches(nodes, 3)
        ranks = [rule.batches(nodes, 3, rank, world_size) for rank in range(world_size)]
        for batch, *shares in zip(whole, *ranks, strict=True):
            assert {*batch.tolist()} == {graph for share in shares for graph in share.tolist()}
            assert [*map(len, shares)] == [
                max(1, len(batch[rank::world_size])) for rank in range(world_size)
            ]
