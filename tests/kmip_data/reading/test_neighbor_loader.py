"""Batches of sampled neighbours have the form and the guarantees of PyTorch Geometric's."""

from __future__ import annotations

import importlib.util
import inspect

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import NeighborLoader as Theirs
from torch_geometric.utils import k_hop_subgraph

from kmip_data import NeighborLoader
from kmip_data.errors import UsageError
from kmip_data.graphs.neighbor_sampling import Neighborhoods

NODES, EDGES = 200, 1_500


@pytest.fixture(scope="module")
def data() -> Data:
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(0, NODES, (2, EDGES), generator=generator)
    return Data(
        x=torch.arange(NODES)[:, None],
        edge_index=edges[:, edges[1] > 4],  # five nodes have no incoming edges
        edge_attr=torch.arange(int((edges[1] > 4).sum())),
        train_mask=torch.arange(NODES) % 3 == 0,
    )


def drawn(data: Data, seed=0, **options) -> list[Data]:
    options = {"num_neighbors": [4, 2], "batch_size": 16, "seed": seed, **options}
    return list(NeighborLoader(data, **options))


@pytest.mark.parametrize("kind", ["directional", "bidirectional", "induced"])
@pytest.mark.parametrize("replace", [False, True])
def test_a_batch_is_a_sampled_part_of_the_graph(data, kind, replace):
    batches = drawn(data, input_nodes=data.train_mask, subgraph_type=kind, replace=replace)
    seeds = torch.cat([batch.n_id[: batch.batch_size] for batch in batches])
    assert torch.equal(seeds, data.train_mask.nonzero()[:, 0])
    for batch in batches:
        assert torch.equal(batch.x[:, 0], batch.n_id)
        assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id]) or (
            kind == "bidirectional"  # reversed edges have the number of the one drawn
        )
        assert torch.equal(batch.edge_attr, batch.e_id)
        assert batch.n_id.unique().numel() == batch.num_nodes
        pairs = set(map(tuple, batch.edge_index.T.tolist()))
        if kind == "directional":
            degree = torch.bincount(batch.edge_index[1], minlength=batch.num_nodes)
            assert degree[:16].max() <= 4
            assert degree[16:].max() <= 2
            assert sum(batch.num_sampled_nodes) == batch.num_nodes
            assert sum(batch.num_sampled_edges) == batch.num_edges
            assert replace or batch.e_id.unique().numel() == batch.num_edges
        elif kind == "bidirectional":
            assert pairs == {(j, i) for i, j in pairs}
        else:
            inside = torch.isin(data.edge_index, batch.n_id).all(0)
            assert torch.equal(batch.e_id.sort().values, inside.nonzero()[:, 0])


def mixed(state: int) -> int:
    """The finaliser of splitmix64, in integers without a size."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        state = (state ^ (state >> shift)) * factor % 2**64
    return state


def slow_choice(edges: list[int], fanout: int, key: int, position: int) -> list[int]:
    """Draw at most ``fanout`` of a node's edges by Floyd's algorithm."""
    if fanout < 0 or len(edges) <= fanout:
        return edges
    state = mixed((key + position * 0x9E3779B97F4A7C15) % 2**64)
    chosen = []
    for last in range(len(edges) - fanout, len(edges)):
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        number = mixed(state) >> 32
        edge = edges[number * (last + 1) >> 32]
        chosen.append(edges[last] if edge in chosen else edge)
    return chosen


@pytest.mark.parametrize("fanouts", [[4, 2], [-1, 1], [40]])
@pytest.mark.parametrize("ordered", [False, True])
def test_draws_equal_a_slow_loop(fanouts, ordered):
    """The same random numbers, node by node; one has more edges than are drawn."""
    edges = np.random.default_rng(0).integers(0, 90, (2, 600)).astype(np.uint32)
    edges[1, :64] = 7
    if ordered:
        edges = edges[:, np.argsort(edges[1], kind="stable")]
    frontier = [7, 3, 60]
    graph = Neighborhoods(edges, 90)
    sampled = graph.sample_around(np.array(frontier), fanouts, np.random.default_rng(1))
    random, met, taken = np.random.default_rng(1), list(frontier), []
    for fanout in fanouts:
        key = int(random.integers(2**64, dtype=np.uint64))
        new = []
        for position, node in enumerate(frontier):
            incoming = np.flatnonzero(edges[1] == node).tolist()
            new += slow_choice(incoming, fanout, key, position)
        taken += new
        sources = edges[0, new].tolist()
        frontier = [node for node in dict.fromkeys(sources) if node not in met]
        met += frontier
    assert (sampled.nodes.tolist(), sampled.edges.tolist()) == (met, taken)
    assert np.array_equal(sampled.nodes[[sampled.source, sampled.target]], edges[:, sampled.edges])
    if min(fanouts) >= 0:
        nodes, bound = graph.upper_bounds(3, fanouts)
        assert len(met) <= nodes <= 90
        assert len(taken) <= bound <= 600


@pytest.mark.parametrize("fanout", [5, 35])
def test_every_pair_of_edges_is_drawn_as_often(fanout):
    """4,000 draws of a node of 40 edges: single edges and pairs, within five standard deviations."""
    edges = np.stack([np.arange(1, 41), np.zeros(40, int)])
    graph, random = Neighborhoods(edges, 41), np.random.default_rng(0)
    together = np.zeros((40, 40))
    for _ in range(4_000):
        drawn = np.zeros(40)
        drawn[graph.sample_around(np.array([0]), [fanout], random).edges] = 1
        together += np.outer(drawn, drawn)
    pair = fanout * (fanout - 1) / (40 * 39)
    for counts, p in ((np.diag(together), fanout / 40), (together[np.triu_indices(40, 1)], pair)):
        assert np.abs(counts - 4_000 * p).max() < 5 * (4_000 * p * (1 - p)) ** 0.5


def test_replace_draws_every_fanout_and_repeats(data):
    first = drawn(data, num_neighbors=[30], replace=True)[0]
    degree = torch.bincount(first.edge_index[1], minlength=first.num_nodes)[:16]
    assert set(degree.tolist()) == {0, 30}  # nodes without incoming edges draw none
    assert first.e_id.unique().numel() < first.num_edges


def test_unlimited_fanouts_give_the_k_hop_subgraph(data):
    for batch in drawn(data, num_neighbors=[-1, -1], batch_size=7):
        nodes, _, _, _ = k_hop_subgraph(batch.n_id[:7][: batch.batch_size], 1, data.edge_index)
        two, _, _, mask = k_hop_subgraph(nodes, 1, data.edge_index)
        assert torch.equal(batch.n_id.sort().values, two)
        wanted = (mask & torch.isin(data.edge_index[1], nodes)).nonzero()[:, 0]
        assert torch.equal(batch.e_id.sort().values, wanted)


def test_draws_follow_seed_and_epoch_not_workers(data):
    def ids(batches):
        return torch.cat([batch.e_id for batch in batches])

    options = {"shuffle": True, "num_neighbors": [3, 3]}
    one = ids(drawn(data, **options))
    assert torch.equal(ids(drawn(data, num_workers=2, **options)), one)
    assert not torch.equal(ids(drawn(data, seed=1, **options)), one)
    loader = NeighborLoader(data, [3, 3], batch_size=16, seed=0)
    assert not torch.equal(ids(loader), ids(loader))
    global_draws = [torch.manual_seed(s) and ids(drawn(data, seed=None)) for s in (5, 5, 6)]
    assert torch.equal(*global_draws[:2])
    assert not torch.equal(*global_draws[1:])
    persistent = NeighborLoader(
        data, [3], batch_size=50, num_workers=1, persistent_workers=True, seed=0
    )
    loader = NeighborLoader(data, [3], batch_size=50, seed=0)
    for _ in range(2):
        assert torch.equal(ids(persistent), ids(loader))


def test_repeated_seeds_have_separate_edges(data):
    batch = next(iter(NeighborLoader(data, [2], torch.tensor([9, 9, 30]), batch_size=3, seed=0)))
    assert torch.bincount(batch.edge_index[1]).tolist() == [2, 2, 2]


def test_arguments_follow_pyg_or_are_refused_by_name(data):
    theirs = set(inspect.signature(Theirs).parameters)
    refused = {
        "disjoint",
        "time_attr",
        "input_time",
        "weight_attr",
        "neighbor_sampler",
        "temporal_strategy",
    }
    assert theirs - refused <= set(inspect.signature(NeighborLoader).parameters) | {"kwargs"}
    with pytest.raises(TypeError):
        NeighborLoader(data, [2], input_node=None)
    for name in refused:
        with pytest.raises(UsageError, match=name):
            NeighborLoader(data, [2], **{name: "last"})
        NeighborLoader(data, [2], **{name: inspect.signature(Theirs).parameters[name].default})
    wrong = (
        {"num_neighbors": [2, -2]},
        {"num_neighbors": {}},
        {"subgraph_type": "some"},
        {"data": HeteroData()},
        {"data": Data(edge_index=torch.tensor([[0], [9]]), num_nodes=2)},
        {"data": Data(edge_index=torch.zeros(3, 2).long(), num_nodes=2)},
        {"input_nodes": torch.tensor([-2])},
        {"input_nodes": torch.tensor([True])},
        {"seed": "a"},
        {"seed": 2**64},
    )
    for options in wrong:
        with pytest.raises(UsageError):
            NeighborLoader(**{"data": data, "num_neighbors": [2], **options})
    transformed = drawn(data, transform=lambda batch: batch.num_nodes)
    assert all(isinstance(number, int) for number in transformed)
    assert (
        drawn(data, directed=False)[0].num_edges
        == drawn(data, subgraph_type="induced")[0].num_edges
    )


@pytest.mark.skipif(importlib.util.find_spec("pyg_lib") is None, reason="pyg-lib is not installed")
def test_unlimited_fanouts_equal_pyg(data):
    options = {"num_neighbors": [-1, -1], "batch_size": 16}
    for mine, other in zip(NeighborLoader(data, **options), Theirs(data, **options), strict=True):
        assert set(mine.keys()) == set(other.keys())
        for name in ("n_id", "e_id"):
            assert torch.equal(mine[name].sort().values, other[name].sort().values)
