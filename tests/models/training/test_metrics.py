"""Metrics against scikit-learn; links inside graphs against loops and OGB."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
import torchmetrics
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    balanced_accuracy_score,
    f1_score,
    jaccard_score,
    matthews_corrcoef,
    mean_absolute_error,
    mean_squared_error,
    precision_recall_fscore_support,
    r2_score,
    roc_auc_score,
    root_mean_squared_error,
)
from support.builds.learnable import tiny_config
from support.metrics import usual_metrics
from support.raises import raises
from support.runs.processes import run_on_processes
from torch_geometric.data import Batch, Data

from kmip_data.builds.home import Home
from kmip_data.datasets.molecules import PCQMContact
from kmip_data.models.training import accumulators
from kmip_data.models.training.accumulators import PartMetrics, all_gather, sum_link_metrics
from kmip_data.models.training.data.open_data import open_data
from kmip_data.models.training.losses import LOSSES, link_cross_entropy
from kmip_data.models.training.metric_text import class_table
from kmip_data.models.training.metrics import HIT_RANKS, LINK_TITLES, METRICS
from kmip_data.models.training.tasks import LINK, NO_LINK, NO_PAIR, Task, link_targets


def fill(metrics, logits, target, loss, batch):
    for start in range(0, len(target), batch):
        rows = slice(start, start + batch)
        metrics.update(logits[rows], target[rows], loss[rows].mean())


@pytest.mark.parametrize(("seed", "batch"), [(0, 7), (3, 64), (5, 1000), (7, 64)])
def test_metrics_equal_scikit_learn_on_the_full_split(seed, batch):
    rng = np.random.default_rng(seed)
    classes = 13
    # Some classes are never labels, some never predictions, some neither.
    labels = rng.choice(classes, size=1 + seed, replace=False)
    guesses = rng.choice(classes, size=2 + seed // 2, replace=False)
    target = rng.choice(labels, size=500)
    predicted = rng.choice(guesses, size=500)
    logits = torch.randn(500, classes, generator=torch.Generator().manual_seed(seed))
    logits[torch.arange(500), torch.from_numpy(predicted)] = 10.0
    loss = torch.from_numpy(rng.random(500))

    metrics = PartMetrics(Task("node", "classification", classes))
    fill(metrics, logits, torch.from_numpy(target), loss, batch)
    values = metrics.compute()

    assert values["accuracy"] == pytest.approx(accuracy_score(target, predicted), abs=1e-12)
    assert values["f1"] == pytest.approx(
        f1_score(target, predicted, average="macro", zero_division=0), abs=1e-12
    )
    assert values["miou"] == pytest.approx(
        jaccard_score(target, predicted, average="macro"), abs=1e-12
    )
    assert values["mcc"] == pytest.approx(matthews_corrcoef(target, predicted), abs=1e-12)
    assert values["balanced_accuracy"] == pytest.approx(
        np.mean([(predicted == label)[target == label].mean() for label in np.unique(target)]),
        abs=1e-12,
    )
    # Σ loss·rows / Σ rows is the mean over rows however they were batched.
    assert values["loss"] == pytest.approx(float(loss.mean()), rel=1e-9)


def test_accuracy_sbm_is_the_mean_share_of_each_class():
    """Equals GraphGPS's loop over classes, and is computed on request only."""
    rng = np.random.default_rng(0)
    classes = 6
    task = Task("node", "classification", classes)
    for labels in (range(6), [0, 1, 3], [2]):
        target = rng.choice(labels, 300)
        predicted = rng.choice(5, 300)
        shares = []
        for label in sorted({*target, *predicted}):
            rows = predicted[target == label]
            shares.append((rows == label).mean() if len(rows) else 0.0)
        if len(labels) == classes:
            balanced = balanced_accuracy_score(target, predicted)
            assert np.mean(shares) == balanced

        logits = torch.eye(classes)[torch.from_numpy(predicted)]
        chosen = PartMetrics(task, "accuracy_sbm")
        usual = PartMetrics(task)
        for metrics in (chosen, usual):
            fill(metrics, logits, torch.from_numpy(target), torch.zeros(300), 64)
        values = chosen.compute()
        assert values.pop("accuracy_sbm") == pytest.approx(np.mean(shares), abs=1e-12)
        if len(labels) == classes:
            assert values["balanced_accuracy"] == pytest.approx(balanced, abs=1e-12)
        assert values == usual.compute()


@pytest.mark.parametrize("seed", range(4))
def test_scores_of_classes_equal_scikit_learn(seed):
    """Where a score is undefined, it is none, and scikit-learn's is 0."""
    rng = np.random.default_rng(seed)
    target, predicted = rng.integers(0, 2 + seed, (2, 40))
    target[0] = -1  # unknown
    metrics = PartMetrics(Task("node", "classification", 6))
    fill(metrics, torch.eye(6)[predicted], torch.from_numpy(target), torch.zeros(40), 7)
    scores = metrics.class_scores()
    oracle = precision_recall_fscore_support(
        target[1:], predicted[1:], labels=range(6), zero_division=np.nan
    )
    for column, expected in zip(("precision", "recall", "f1", "count"), oracle, strict=True):
        values = [getattr(score, column) for score in scores]
        assert [math.nan if value is None else value for value in values] == pytest.approx(
            expected.tolist(), nan_ok=True
        )
    shown = class_table(scores, "abcdef").splitlines()
    assert [line.split()[0] for line in shown] == ["test", *"abcdef"]
    assert class_table(scores * 4, ()) == class_table([], ()) == ""


@pytest.mark.parametrize(("labels", "answers"), [([0, 1, 2], [1]), ([1], [0, 1]), ([1], [1])])
def test_a_single_class_has_no_correlation(labels, answers):
    metrics = PartMetrics(Task("graph", "classification", 3))
    target, predicted = np.resize(labels, 12), np.resize(answers, 12)
    fill(metrics, torch.eye(3)[predicted], torch.from_numpy(target), torch.zeros(12), 5)
    assert metrics.compute()["mcc"] == matthews_corrcoef(target, predicted) == 0


@pytest.mark.parametrize("target_type", ["classification", "multilabel", "regression"])
def test_loaded_counts_continue_to_the_same_metrics(target_type):
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(40, 3, generator=draw)
    classes = torch.randint(0, 3, (40,), generator=draw)
    values = torch.randint(0, 2, (40, 3), generator=draw).float()
    target, loss = (
        classes if target_type == "classification" else values,
        torch.rand(40, generator=draw),
    )
    first, then, whole = (PartMetrics(Task("graph", target_type, 3)) for _ in range(3))
    fill(first, logits[:21], target[:21], loss[:21], 7)
    then.load(first.state())
    fill(then, logits[21:], target[21:], loss[21:], 7)
    fill(whole, logits, target, loss, 7)
    assert then.compute() == whole.compute()


def test_long_splits_are_counted_exactly():
    metrics = PartMetrics(Task("node", "classification", 2))
    metrics.update(torch.tensor([[0.0, 1.0]]), torch.tensor([0]), torch.tensor(0.1))
    for _ in range(3):  # float32 sums would be off in the third digit
        metrics.accumulator.sums[0, 0] += 20_000_000
        metrics.loss.update(torch.tensor(0.1), torch.tensor(20_000_000))
    values = metrics.compute()
    assert values["accuracy"] == 60_000_000 / 60_000_001
    assert values["loss"] == pytest.approx(float(torch.tensor(0.1)), rel=1e-12)


def labels_and_scores(seed, rows=300, labels=6):
    rng = np.random.default_rng(seed)
    scores = rng.standard_normal((rows, labels)).round(
        1 if seed % 2 else 6
    )  # with and without ties
    target = (rng.random((rows, labels)) < rng.random(labels)).astype(np.float64)
    target[rng.random((rows, labels)) < 0.1] = np.nan
    target[:2, :] = [[0.0], [1.0]]  # both occur
    return scores, target


@pytest.mark.parametrize(("seed", "batch"), [(0, 7), (1, 300), (2, 300), (3, 7)])
def test_label_metrics_equal_scikit_learn(seed, batch):
    scores, target = labels_and_scores(seed)
    metrics = PartMetrics(Task("graph", "multilabel", 6), "roc_auc")
    fill_rows(metrics, scores, target, batch)
    values = metrics.compute()
    for name, function in (("ap", average_precision_score), ("roc_auc", roc_auc_score)):
        each = [
            function(target[known, label], scores[known, label])
            for label in range(6)
            for known in [~np.isnan(target[:, label])]
        ]
        assert values[name] == pytest.approx(np.mean(each), rel=1e-9)


def test_labels_without_a_positive_row_are_left_out():
    target = torch.tensor([[0.0, 1.0, 1.0], [0.0, 0.0, 1.0]])
    scores = torch.tensor([[1.0, 0.0, 0.0], [2.0, 1.0, 5.0]])
    metrics = PartMetrics(Task("graph", "multilabel", 3), "roc_auc")
    metrics.update(scores, target, torch.tensor(0.0))
    # Nowhere positive; ranked last of two; everywhere.
    values = metrics.compute()
    assert values["ap"] == (0.5 + 1.0) / 2
    assert values["roc_auc"] == 0.0
    metrics.update(scores[:, :1], target[:, :1], torch.tensor(0.0))
    values = metrics.compute()
    assert all(math.isnan(values[name]) for name in ("ap", "roc_auc"))


def test_errors_weigh_rows_equally_and_undo_logarithms():
    """A small last batch counts as much as others; metrics of logarithms are of 10^y."""
    rng = np.random.default_rng(4)
    target, predicted = (torch.from_numpy(rng.normal(size=(23, 1))) for _ in range(2))
    plain, powers = (
        PartMetrics(Task("node", "regression", 1, log10=log10)) for log10 in (False, True)
    )
    for metrics in (plain, powers):
        fill_rows(metrics, predicted.numpy(), target.numpy(), 10)
        metrics.update(
            predicted[:3], torch.full((3, 1), torch.nan), torch.tensor(0.0)
        )  # nothing known
    each = [
        (predicted - target)[rows].abs().mean()
        for rows in (slice(10), slice(10, 20), slice(20, 23))
    ]
    values = plain.compute()
    assert values["mae_batches"] == pytest.approx(float(sum(each)) / 3)
    assert values["mae_batches"] != pytest.approx(values["mae"])
    assert powers.compute()["mae"] == pytest.approx(
        float((10**predicted - 10**target).abs().mean())
    )


def test_regression_metrics_equal_scikit_learn():
    rng = np.random.default_rng(0)
    predicted, target = rng.standard_normal((2, 200, 11)).astype(np.float32).astype(np.float64)
    metrics = PartMetrics(Task("graph", "regression", 11), "log10_mse")
    fill_rows(metrics, predicted, target, 32)
    values = metrics.compute()
    squared = mean_squared_error(target, predicted)
    assert values["log10_mse"] == pytest.approx(math.log10(squared), rel=1e-7)
    assert values["mae"] == pytest.approx(mean_absolute_error(target, predicted), rel=1e-7)
    assert values["rmse"] == pytest.approx(root_mean_squared_error(target, predicted), rel=1e-7)
    assert values["r2"] == pytest.approx(r2_score(target, predicted), rel=1e-7)
    target[:, 3] = np.nan
    target[:50, 5] = np.nan
    target[:, 7] = 2.5  # constant: it has no R²
    predicted[:, 8] = target[:, 8] = -1.0
    fill_rows(metrics, predicted, target, 64)
    values = metrics.compute()
    for name, oracle, left_out in (
        ("mae", mean_absolute_error, {3}),
        ("rmse", root_mean_squared_error, {3}),
        ("r2", r2_score, {3, 7, 8}),
    ):
        each = [oracle(target[k, t], predicted[k, t]) for t in range(11)
                if t not in left_out for k in [~np.isnan(target[:, t])]]  # fmt: skip
        assert values[name] == pytest.approx(np.mean(each), rel=1e-7)
    metrics.update(torch.full((2, 11), math.nan), torch.zeros(2, 11), torch.tensor(0.0))
    values = metrics.compute()
    assert math.isnan(values["mae"])  # never a good one
    assert math.isnan(values["r2"])


def test_r2_far_from_zero_equals_scikit_learn():
    rng = np.random.default_rng(1)
    target = np.float32(5e6 + 2 * rng.standard_normal((20_000, 1)))
    predicted = np.float32(target + rng.standard_normal((20_000, 1)))
    metrics = PartMetrics(Task("graph", "regression", 1))
    fill_rows(metrics, predicted, target, 128)
    oracle = r2_score(target.astype(float), predicted.astype(float))
    assert metrics.compute()["r2"] == pytest.approx(oracle, rel=1e-9)
    constant = np.full((7, 1), np.float32(0.1))
    for rows in (1, 7):  # of one value and of constant targets it is undefined
        fill_rows(metrics, constant[:rows] + 1, constant[:rows], 3)
        assert math.isnan(metrics.compute()["r2"])


def test_two_classes_in_half_precision_keep_the_difference_of_their_scores():
    rng = np.random.default_rng(2)
    scores = torch.from_numpy(rng.standard_normal((2_000, 2)) * [0.01, 1] + [0, 30]).half()
    classes = torch.from_numpy(rng.integers(2, size=2_000))
    metrics = PartMetrics(Task("graph", "classification", 2), "roc_auc")
    metrics.update(scores, classes, torch.tensor(0.0))
    odds = scores[:, 1].double() - scores[:, 0].double()
    assert metrics.compute()["roc_auc"] == pytest.approx(roc_auc_score(classes, odds), abs=1e-12)


def test_the_loss_is_the_mean_over_known_targets():
    scores, target = labels_and_scores(1)
    loss = LOSSES["binary_cross_entropy"]
    metrics = PartMetrics(Task("graph", "multilabel", 6), "roc_auc")
    fill_rows(metrics, scores, target, 40, loss)
    whole = float(loss(torch.from_numpy(scores), torch.from_numpy(target)))
    assert metrics.compute()["loss"] == pytest.approx(whole, rel=1e-5)


def fill_rows(metrics, scores, target, batch, loss=None):
    for start in range(0, len(target), batch):
        rows = [torch.from_numpy(array[start : start + batch]) for array in (scores, target)]
        metrics.update(*rows, torch.tensor(0.0) if loss is None else loss(*rows))


BITS = 24


def touching(rng: np.random.Generator, nodes: int, share: float = 0.2) -> np.ndarray:
    matrix = np.triu(rng.random((nodes, nodes)) < share, 1)
    return matrix | matrix.T


def packed(matrix: np.ndarray) -> np.ndarray:
    wide = np.zeros((len(matrix), BITS), bool)
    wide[:, : len(matrix)] = matrix
    return np.packbits(wide, axis=1, bitorder="little")


def some_graphs(
    seed: int, sizes=(5, 1, 9, 7), share: float = 0.2
) -> tuple[Batch, list[np.ndarray]]:
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
    targets = link_targets(batch)
    alone = copy.copy(batch)
    del alone.ptr
    assert torch.equal(link_targets(alone), targets)
    assert targets.shape == (4, 9, 9)
    for graph, matrix in enumerate(matrices):
        n = len(matrix)
        expected = torch.full((9, 9), NO_PAIR, dtype=torch.int8)
        expected[:n, :n] = torch.from_numpy(matrix.astype(np.int8))
        assert torch.equal(targets[graph], expected)


def cross_entropy_of_draws(scores, target, rng) -> float:
    """Upstream's loss: for each link two nodes that its first node has no link to, itself allowed."""
    total = []
    for graph, i, j in (target == LINK).nonzero().tolist():
        total.append(math.log1p(math.exp(-scores[graph, i, j])))
        apart = (target[graph, i] == NO_LINK).nonzero()[:, 0].tolist()
        total += (
            [math.log1p(math.exp(scores[graph, i, c])) for c in rng.choice(apart, 2)]
            if apart
            else []
        )
    return float(np.mean(total))


def test_the_loss_is_the_mean_over_upstreams_draws() -> None:
    target = link_targets(some_graphs(1, share=0.5)[0])
    scores = scores_like(target, 1, ties=False)
    rng = np.random.default_rng(0)
    draws = [cross_entropy_of_draws(scores, target, rng) for _ in range(300)]
    deviation = np.std(draws) / math.sqrt(len(draws))
    assert float(link_cross_entropy(scores, target)) == pytest.approx(
        np.mean(draws), abs=4 * deviation
    )
    assert deviation < 0.02


def slow_ranks(scores, target) -> list[float]:
    """Three rankings and three hits by OGB's evaluator, link by link, averaged over each graph's links."""
    from ogb.linkproppred import Evaluator

    evaluator = Evaluator("ogbl-citation2")
    sums = np.zeros(7)
    for graph in range(len(target)):
        true_links = (target[graph] == LINK).nonzero().tolist()
        rows = []
        for i, j in true_links:
            nodes = [c for c in range(target.shape[1]) if target[graph, i, c] != NO_PAIR]
            links = [c for c in nodes if target[graph, i, c] == LINK]
            rankings = (
                [c for c in nodes if c != j],
                [c for c in nodes if c not in links],
                [c for c in nodes if c not in links and c != i],
            )
            values, hits = [], {}
            for candidates in rankings:
                result = evaluator._eval_mrr(
                    scores[graph, i, j][None], scores[graph, i, candidates][None], "torch"
                )
                values.append(float(result["mrr_list"]))
                hits = hits or result
            rows.append([*values, *(float(hits[f"hits@{most}_list"]) for most in HIT_RANKS)])
        if rows:
            sums[:6] += np.mean(rows, axis=0)
            sums[6] += 1
    return list(sums)


@pytest.mark.parametrize("ties", [True, False])
def test_ranks_in_each_graph_equal_ogb(ties: bool) -> None:
    for seed in range(3):
        target = link_targets(some_graphs(seed)[0])
        scores = scores_like(target, seed, ties=ties)
        np.testing.assert_allclose(
            sum_link_metrics(scores, target), slow_ranks(scores, target), rtol=1e-6
        )


@pytest.mark.parametrize("share", [0.0, 0.2, 0.9])
def test_a_gpu_that_ranks_all_pairs_counts_the_same(share, monkeypatch) -> None:
    target = link_targets(some_graphs(3, share=share)[0])
    scores = scores_like(target, 3, ties=True)
    scores[0, 1, 2], scores[2, :, 3], scores[2, :, 5] = math.nan, -math.inf, math.inf
    alone = sum_link_metrics(scores, target)
    monkeypatch.setattr(accumulators, "link_indices", accumulators.all_pair_indices)
    torch.testing.assert_close(
        sum_link_metrics(scores, target), alone, rtol=0, atol=0, equal_nan=True
    )


def test_metrics_are_means_over_graphs_however_they_are_batched() -> None:
    loss = LOSSES["link_cross_entropy"]
    values = []
    for cut in (1, 2, 4):
        metrics = PartMetrics(Task("link", "links", 1))
        for start in range(0, 4, cut):
            target = link_targets(some_graphs(5)[0])[start : start + cut]
            scores = scores_like(torch.zeros(4, 9, 9), 5, ties=False)[start : start + cut]
            metrics.update(scores, target, loss(scores, target))
        values.append(metrics.compute())
    assert set(values[0]) == {"loss", *LINK_TITLES}
    for other in values[1:]:
        assert other == pytest.approx(values[0], rel=1e-5)
    sums = slow_ranks(
        scores_like(torch.zeros(4, 9, 9), 5, ties=False), link_targets(some_graphs(5)[0])
    )
    assert values[0]["mrr_extended"] == pytest.approx(sums[2] / sums[6], rel=1e-6)
    assert values[0]["hits3"] == pytest.approx(sums[4] / sums[6], rel=1e-6)


def test_nan_scores_and_missing_links_give_nan_metrics() -> None:
    target = link_targets(some_graphs(0)[0])
    assert sum_link_metrics(torch.full(target.shape, math.nan), target)[:6].isnan().all()
    metrics = PartMetrics(Task("link", "links", 1))
    metrics.update(torch.zeros(1, 2, 2), torch.zeros(1, 2, 2, dtype=torch.int8), torch.tensor(0.0))
    assert math.isnan(metrics.compute()["mrr"])  # no graph has a link


def test_targets_are_the_pairs_that_the_class_gives(tmp_path) -> None:
    dataset = PCQMContact(root=tmp_path, sample=True, limit=20, split=None, jobs=1, quiet=True)
    config = tiny_config(
        type("Build", (), {"path": dataset.build.path}), model={"node_encoder": "atom"}
    )
    data = open_data(config, home=Home(tmp_path))
    ((_, batches),) = data.evaluation_passes(["train"])
    (batch,) = [next(iter(batches))]
    targets = link_targets(batch)
    whole = {tuple(item.x.flatten().tolist()): item for item in dataset}
    for graph, item in enumerate(batch.to_data_list()):
        pairs = whole[tuple(item.x.flatten().tolist())].edge_label_index
        assert torch.equal((targets[graph] == LINK).nonzero().t(), pairs)


def test_merged_counts_of_processes_equal_one_process() -> None:
    """Processes with unequal numbers of rows, or none, all get the result of one process."""
    generator = torch.Generator().manual_seed(2)
    scores = torch.randn(7, 3, generator=generator)
    target = (torch.rand(7, 3, generator=generator) < 0.5).float()
    classes = torch.randint(3, (7,), generator=generator)
    alone = {}
    target_types = (
        ("multilabel", target),
        ("classification", classes),
        ("regression", target + 1e6),
    )
    for target_type, truth in target_types:
        metrics = PartMetrics(Task("graph", target_type, 3))
        metrics.update(scores, truth, torch.tensor(2.0))
        alone[target_type] = metrics.compute()
        alone[target_type].pop("mae_batches", None)
        # The sums of a checkpoint of three processes, continued on one.
        states = []
        for rows in (slice(0, 5), slice(5, 7), slice(0, 0)):
            if len(truth[rows]):
                metrics.update(scores[rows], truth[rows], torch.tensor(2.0))
            states.append(metrics.state())
            metrics.reset()
        metrics.load(metrics.merge(states))
        merged = metrics.compute()
        merged.pop("mae_batches", None)
        assert merged == pytest.approx(alone[target_type], rel=1e-9)

    def run_rank(rank: int) -> None:
        torch.distributed.init_process_group("gloo", rank=rank, world_size=3)
        for target_type, truth in target_types:
            metrics = PartMetrics(Task("graph", target_type, 3))
            rows = (slice(0, 5), slice(5, 7), slice(0, 0))[rank]
            if rank < 2:
                metrics.update(scores[rows], truth[rows], torch.tensor(2.0))
            # Twice: the counts of this process are its own again after an exchange.
            for _ in range(2):
                exchanged = torch.cat(all_gather(torch.arange(rank)))
                assert exchanged.tolist() == [0, 0, 1]
            together = metrics.compute()
            together.pop("mae_batches", None)  # counts a batch once for each process
            assert together == pytest.approx(alone[target_type], rel=1e-9)
        torch.distributed.destroy_process_group()

    run_on_processes(3, run_rank)


def test_an_accumulator_of_a_plugin_merges_if_it_can() -> None:
    """Metrics of torchmetrics merge; a module without ``merge_state`` does not."""
    metrics = PartMetrics(Task("graph", "classification", 3))
    rows = torch.eye(3), torch.tensor([0, 1, 1])
    metrics.metric_accumulator = torchmetrics.classification.MulticlassAccuracy(3, average="micro")
    states = []
    for row in range(3):
        metrics.update(rows[0][row : row + 1], rows[1][row : row + 1], torch.tensor(1.0))
        states.append(metrics.state())
        metrics.reset()
    metrics.load(metrics.merge(states))
    assert metrics.metric_accumulator.compute() == pytest.approx(2 / 3)

    metrics.metric_accumulator = torch.nn.Module()
    metrics.metric_accumulator.metric_state = {}
    with raises(AttributeError, naming="merge_state"):
        metrics.merge([metrics.state()] * 2)


def test_counts_follow_their_batches_and_keep_their_type() -> None:
    metrics = PartMetrics(Task("graph", "multilabel", 2)).half()
    metrics.update(torch.randn(3, 2), torch.ones(3, 2), torch.tensor(1.0))
    assert metrics.loss.sums.dtype == torch.float64
    metrics.load(metrics.state(), torch.device("meta"))
    batch = (tensor.to("meta") for tensor in (torch.randn(3, 2), torch.ones(3, 2), torch.ones(())))
    metrics.update(*batch)
    assert {rows.device.type for rows in [*metrics.accumulator.scores, metrics.loss.sums]} == {
        "meta"
    }
    assert not metrics.state_dict()


def test_each_kind_of_task_has_its_listed_metrics() -> None:
    """These lists are literal; other tests derive theirs from the tables."""
    target_types = ("classification", "multilabel", "regression", "links")
    reported = [
        {"accuracy", "f1", "balanced_accuracy", "mcc", "miou"},
        {"ap"},
        {"mae", "rmse", "mae_batches", "r2"},
        {"mrr", "mrr_filtered", "mrr_extended", "hits1", "hits3", "hits10"},
    ]
    assert list(map(usual_metrics, target_types)) == reported
    assert usual_metrics("classification", "graph") == reported[0] - {"miou"}
    chosen = {
        name: metric.target_type for name, metric in METRICS.items() if metric.only_on_request
    }
    assert chosen == {
        "accuracy_sbm": "classification",
        "roc_auc": "multilabel",
        "log10_mse": "regression",
    }
    assert [name for name, metric in METRICS.items() if metric.supports_two_classes] == [
        "ap",
        "roc_auc",
    ]


def test_metrics_of_numbers_are_not_printed_in_percent():
    """A metric that is printed in percent is a share of something."""
    assert not any(
        metric.percent for metric in METRICS.values() if metric.target_type == "regression"
    )
