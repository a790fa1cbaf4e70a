"""Links inside graphs: targets, loss and ranks against loops and OGB's evaluator; a run that learns them."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from support.training_data import tiny_config
from torch_geometric.data import Batch, Data

from kmip_data.builds.home import Home
from kmip_data.datasets.small_graphs import PCQMContact
from kmip_data.models.layers.batch import read_batch
from kmip_data.models.network import LinkHead
from kmip_data.models.training import metrics
from kmip_data.models.training.data.graphs import open_data
from kmip_data.models.training.metrics import HITS, RANKINGS, SplitMetrics, link_ranks
from kmip_data.models.training.tasks import (
    APART,
    LINK,
    LOSSES,
    NO_PAIR,
    Task,
    link_cross_entropy,
    link_targets,
)

BITS = 24


def touching(rng: np.random.Generator, nodes: int, share: float = 0.2) -> np.ndarray:
    matrix = np.triu(rng.random((nodes, nodes)) < share, 1)
    return matrix | matrix.T


def packed(matrix: np.ndarray) -> np.ndarray:
    wide = np.zeros((len(matrix), BITS), bool)
    wide[:, : len(matrix)] = matrix
    return np.packbits(wide, axis=1, bitorder="little")


def some_graphs(seed: int, sizes=(5, 1, 9, 7), share: float = 0.2) -> tuple[Batch, list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    matrices = [touching(rng, n, share) for n in sizes]
    items = [
        Data(
            x=torch.randn(len(m), 3),
            edge_index=torch.zeros(2, 0, dtype=torch.int64),
            contact=torch.from_numpy(packed(m)),
        )
        for m in matrices
    ]
    return Batch.from_data_list(items), matrices


def scores_like(target: torch.Tensor, seed: int, *, ties: bool) -> torch.Tensor:
    drawn = torch.randn(target.shape, generator=torch.Generator().manual_seed(seed))
    return drawn.round(decimals=0 if ties else 6)


def test_targets_are_the_bits_of_each_graph() -> None:
    batch, matrices = some_graphs(0)
    found = link_targets(batch)
    alone = copy.copy(batch)
    del alone.ptr
    assert torch.equal(link_targets(alone), found)
    assert found.shape == (4, 9, 9)
    for graph, matrix in enumerate(matrices):
        n = len(matrix)
        expected = torch.full((9, 9), NO_PAIR, dtype=torch.int8)
        expected[:n, :n] = torch.from_numpy(matrix.astype(np.int8))
        assert torch.equal(found[graph], expected)


def test_the_head_scores_each_pair_of_a_graph() -> None:
    torch.manual_seed(0)
    batch, _ = some_graphs(0)
    head = LinkHead(3, 1, layers=2, l2norm=True)
    graphs = read_batch(batch)
    found = head(batch.x, graphs)
    (hidden,) = head.hidden
    ends = head.out(torch.nn.functional.normalize(hidden(batch.x).relu(), dim=1))
    for graph in range(4):
        a, b = batch.ptr[graph], batch.ptr[graph + 1]
        for i in range(a, b):
            for j in range(a, b):
                torch.testing.assert_close(found[graph, i - a, j - a], ends[i] @ ends[j])
    assert (found[1, 1:] == 0).all()
    with torch.autocast("cpu", torch.bfloat16):
        assert head(batch.x, graphs).dtype == torch.float32


def cross_entropy_of_draws(scores, target, rng) -> float:
    """Upstream's loss: for each link two nodes that its first node has no link to, itself allowed."""
    total = []
    for graph, i, j in (target == LINK).nonzero().tolist():
        total.append(math.log1p(math.exp(-scores[graph, i, j])))
        apart = (target[graph, i] == APART).nonzero()[:, 0].tolist()
        total += [math.log1p(math.exp(scores[graph, i, c])) for c in rng.choice(apart, 2)] if apart else []
    return float(np.mean(total))


def test_the_loss_is_the_mean_over_upstreams_draws() -> None:
    target = link_targets(some_graphs(1, share=0.5)[0])
    scores = scores_like(target, 1, ties=False)
    rng = np.random.default_rng(0)
    draws = [cross_entropy_of_draws(scores, target, rng) for _ in range(300)]
    deviation = np.std(draws) / math.sqrt(len(draws))
    assert float(link_cross_entropy(scores, target)) == pytest.approx(np.mean(draws), abs=4 * deviation)
    assert deviation < 0.02


def slow_ranks(scores, target) -> list[float]:
    """Three rankings and three hits by OGB's evaluator, link by link, averaged over each graph's links."""
    from ogb.linkproppred import Evaluator

    evaluator = Evaluator("ogbl-citation2")
    sums = np.zeros(7)
    for graph in range(len(target)):
        own = (target[graph] == LINK).nonzero().tolist()
        rows = []
        for i, j in own:
            nodes = [c for c in range(target.shape[1]) if target[graph, i, c] != NO_PAIR]
            links = [c for c in nodes if target[graph, i, c] == LINK]
            rankings = (
                [c for c in nodes if c != j],
                [c for c in nodes if c not in links],
                [c for c in nodes if c not in links and c != i],
            )
            values, hits = [], {}
            for candidates in rankings:
                found = evaluator._eval_mrr(
                    scores[graph, i, j][None], scores[graph, i, candidates][None], "torch"
                )
                values.append(float(found["mrr_list"]))
                hits = hits or found
            rows.append([*values, *(float(hits[f"hits@{most}_list"]) for most in HITS)])
        if rows:
            sums[:6] += np.mean(rows, axis=0)
            sums[6] += 1
    return list(sums)


@pytest.mark.parametrize("ties", [True, False])
def test_ranks_are_ogbs_in_each_graph(ties: bool) -> None:
    for seed in range(3):
        target = link_targets(some_graphs(seed)[0])
        scores = scores_like(target, seed, ties=ties)
        np.testing.assert_allclose(link_ranks(scores, target), slow_ranks(scores, target), rtol=1e-6)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.9])
def test_a_gpu_that_ranks_all_pairs_counts_the_same(share, monkeypatch) -> None:
    target = link_targets(some_graphs(3, share=share)[0])
    scores = scores_like(target, 3, ties=True)
    scores[0, 1, 2], scores[2, :, 3], scores[2, :, 5] = math.nan, -math.inf, math.inf
    alone = link_ranks(scores, target)
    monkeypatch.setattr(metrics, "links_alone", metrics.all_pairs)
    torch.testing.assert_close(link_ranks(scores, target), alone, rtol=0, atol=0, equal_nan=True)


def test_metrics_are_means_over_graphs_however_they_are_batched() -> None:
    loss = LOSSES["link_cross_entropy"]
    found = []
    for cut in (1, 2, 4):
        metrics = SplitMetrics(Task("link", "links", 1))
        for start in range(0, 4, cut):
            target = link_targets(some_graphs(5)[0])[start : start + cut]
            scores = scores_like(torch.zeros(4, 9, 9), 5, ties=False)[start : start + cut]
            metrics.update(scores, target, loss(scores, target))
        found.append(metrics.compute())
    assert set(found[0]) == {"loss", *RANKINGS, *(f"hits{most}" for most in HITS)}
    for other in found[1:]:
        assert other == pytest.approx(found[0], rel=1e-5)
    sums = slow_ranks(scores_like(torch.zeros(4, 9, 9), 5, ties=False), link_targets(some_graphs(5)[0]))
    assert found[0]["mrr_extended"] == pytest.approx(sums[2] / sums[6], rel=1e-6)
    assert found[0]["hits3"] == pytest.approx(sums[4] / sums[6], rel=1e-6)


def test_scores_that_are_no_numbers_are_never_good() -> None:
    target = link_targets(some_graphs(0)[0])
    assert link_ranks(torch.full(target.shape, math.nan), target)[:6].isnan().all()
    metrics = SplitMetrics(Task("link", "links", 1))
    metrics.update(torch.zeros(1, 2, 2), torch.zeros(1, 2, 2, dtype=torch.int8), torch.tensor(0.0))
    assert math.isnan(metrics.compute()["mrr"])  # no graph has a link


def test_targets_are_the_pairs_that_the_class_gives(tmp_path) -> None:
    dataset = PCQMContact(home=tmp_path, sample=True, limit=20, split=None, jobs=1, quiet=True)
    config = tiny_config(type("Build", (), {"path": dataset.build.path}), model={"node_encoder": "atom"})
    data = open_data(config, home=Home(tmp_path))
    ((_, batches),) = data.passes(["train"])
    (batch,) = [next(iter(batches))]
    found = link_targets(batch)
    whole = {tuple(item.x.flatten().tolist()): item for item in dataset}
    for graph, item in enumerate(batch.to_data_list()):
        pairs = whole[tuple(item.x.flatten().tolist())].edge_label_index
        assert torch.equal((found[graph] == LINK).nonzero().t(), pairs)
