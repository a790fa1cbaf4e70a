"""Reference answers against slow obvious formulas: normal equations, loops, a dense linear system."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data

from kmip_data.models.training.references.features import (
    MAX_CATEGORIES,
    ColumnValues,
    PartFeatures,
    row_features,
)
from kmip_data.models.training.references.fitted import (
    fit_and_apply,
    fitted_answer,
    linear_methods,
    tree_methods,
)
from kmip_data.models.training.references.propagation import propagate
from kmip_data.models.training.references.reference import (
    Reference,
    best_reference,
    mean_references,
)
from kmip_data.models.training.tasks import Task

METHOD = linear_methods()[2]
STRENGTH = 0.01


def task_of(target_type, outputs=1):
    return Task("node", target_type, outputs)


def rows_and_others(rows=30, columns=4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, columns)), rng.normal(size=(7, columns)), rng


def test_a_regression_solves_the_normal_equations_of_the_known_targets() -> None:
    rows, others, rng = rows_and_others()
    targets = rng.normal(size=(30, 2))
    targets[rng.random((30, 2)) < 0.2] = np.nan
    (outputs,) = fit_and_apply(
        task_of("regression", 2), METHOD, rows, torch.from_numpy(targets), [others]
    )
    for column in range(2):
        known = ~np.isnan(targets[:, column])
        x, y = rows[known], targets[known, column]
        center = x - x.mean(0)
        gram = center.T @ center + STRENGTH * len(x) * np.eye(4)
        weights = np.linalg.solve(gram, center.T @ (y - y.mean()))
        np.testing.assert_allclose(
            outputs[:, column], (others - x.mean(0)) @ weights + y.mean(), rtol=1e-9
        )


@pytest.mark.parametrize("classes", [2, 3])
def test_a_classification_is_where_the_slope_of_its_loss_is_zero(classes) -> None:
    """At the minimum the weights follow from the errors, and so the scores do."""
    rows, _, rng = rows_and_others(60)
    targets = (rows[:, 0] + rng.normal(size=60) > 0).astype(int)
    if classes == 3:
        targets[rows[:, 1] > 1] = 2
    task = task_of("classification", classes + 1)  # train lacks the last class
    (scores,) = fit_and_apply(task, METHOD, rows, torch.from_numpy(targets), [rows])
    assert (scores[:, -1] < -1e9).all()
    scores = scores[:, :-1]
    errors = torch.eye(classes)[targets].double() - scores.softmax(1)
    assert errors.sum(0).abs().max() < 0.1, "the intercept has no penalty"
    weights = rows.T @ errors.numpy() / (STRENGTH * 60)
    if classes == 2:  # one column of weights, for the second class
        weights[:, 0] = 0
    predicted = torch.from_numpy(rows @ weights)
    difference = (scores - scores[:, :1]) - (predicted - predicted[:, :1])
    assert difference.std(0).max() < 0.02


def test_labels_of_one_value_do_not_stop_the_others() -> None:
    rows, others, rng = rows_and_others()
    labels = np.stack([rows[:, 0] > 0, np.ones(30), rng.random(30) > 0.5], 1).astype(float)
    labels[:5, 2] = np.nan
    task = task_of("multilabel", 3)
    (scores,) = fit_and_apply(task, METHOD, rows, torch.from_numpy(labels), [others])
    assert np.corrcoef(scores[:, 0], others[:, 0])[0, 1] > 0.9
    assert not scores[:, 1].any()


@pytest.mark.whole_run
def test_trees_fit_what_no_line_does() -> None:
    rows, _, _ = rows_and_others(400, 2)
    signs = torch.from_numpy((rows[:, 0] * rows[:, 1] > 0).astype(np.int64))
    half = slice(0, 200), slice(200, 400)
    train, test = (PartFeatures(rows[part], rows[part], signs[part]) for part in half)
    parts = {"train": train, "val": test, "test": test}
    task = task_of("classification", 3)  # train lacks the last class
    trees = fitted_answer(task, "accuracy", parts, "features", tree_methods())
    lines = fitted_answer(task, "accuracy", parts, "features", linear_methods())
    assert trees.test > 0.9 > 0.7 > lines.test


@pytest.mark.whole_run
def test_val_chooses_the_strength_and_large_trains_are_drawn(monkeypatch) -> None:
    rows, others, rng = rows_and_others(200, 30)
    y = rows[:, :1] + rng.normal(size=(200, 1))
    test = PartFeatures(others, others, torch.from_numpy(others[:, :1]))
    parts = {"train": PartFeatures(rows, rows, torch.from_numpy(y)), "val": test, "test": test}
    methods = linear_methods()
    answer = fitted_answer(task_of("regression"), "mae", parts, "features", methods)
    assert answer.note in {"strength 1", "strength 0.1"}
    assert answer.val == answer.test < np.abs(others[:, 0]).mean()
    monkeypatch.setattr("kmip_data.models.training.references.fitted.MAX_NUMBERS", 1500)
    drawn = fitted_answer(task_of("regression"), "mae", parts, "features", methods)
    assert drawn.note.endswith(", fitted on 50 drawn of 200 train nodes")
    assert drawn == fitted_answer(task_of("regression"), "mae", parts, "features", methods)
    parts["train"] = PartFeatures(rows, rows, torch.ones(200, dtype=torch.int64))
    one_class = task_of("classification", 2)
    assert fitted_answer(one_class, "accuracy", parts, "features", methods) is None


def test_rows_have_means_over_one_and_two_hops_and_pooled_features() -> None:
    rng = np.random.default_rng(0)
    graphs = []
    for nodes in (5, 1, 7):
        edges = torch.from_numpy(rng.integers(0, nodes, (2, 2 * nodes)))
        graphs.append(Data(x=torch.rand(nodes, 2), edge_index=edges, e=torch.rand(2 * nodes, 1)))
    batch = Batch.from_data_list(graphs)
    x, edge_attr = batch.x.double().numpy(), batch.e.double().numpy()
    source, target = batch.edge_index.numpy()

    def mean_of(values, node):
        incoming = values[source[target == node]]
        return incoming.mean(0) if len(incoming) else np.zeros(values.shape[1])

    nodes = range(len(x))
    one = np.array([mean_of(x, node) for node in nodes])
    two = np.array([mean_of(one, node) for node in nodes])
    degree = np.array([[(target == node).sum()] for node in nodes])
    edges = [edge_attr[target == node].mean(0) if degree[node] else np.zeros(1) for node in nodes]
    own, neighbors = row_features(batch, x, edge_attr, of_graphs=False, both_ways=False)
    np.testing.assert_array_equal(own, x)
    _, both = row_features(batch, x, edge_attr, of_graphs=False, both_ways=True)
    batch.edge_index = batch.edge_index.flip(0)
    _, outgoing = row_features(batch, x, edge_attr, of_graphs=False, both_ways=False)
    np.testing.assert_array_equal(both, np.hstack([neighbors, outgoing]))
    batch.edge_index = batch.edge_index.flip(0)
    np.testing.assert_allclose(neighbors, np.hstack([one, two, edges, degree]))

    own, neighbors = row_features(batch, x, edge_attr, of_graphs=True, both_ways=False)
    for number, graph in enumerate(graphs):
        of_graph = (batch.batch == number).numpy()
        sizes = [graph.num_nodes, graph.num_edges]
        features = graph.x.double()
        expected = np.concatenate([features.mean(0), features.sum(0), sizes, graph.e.mean(0)])
        np.testing.assert_allclose(own[number], expected, rtol=1e-6)
        pooled = np.hstack([one, two])[of_graph].mean(0)
        np.testing.assert_allclose(neighbors[number], pooled, rtol=1e-6)


def test_integers_become_indicators_of_the_train_values() -> None:
    column = ColumnValues(2)
    column.add(torch.tensor([[3, 0], [5, 0]]))
    column.add(torch.tensor([[5, 1]]))
    values = column.transform(torch.tensor([[5, 0], [4, 1]]))
    assert values.tolist() == [[0, 1, 1, 0], [0, 0, 0, 1]]
    many = ColumnValues(1)
    many.add(torch.arange(MAX_CATEGORIES + 1)[:, None])
    assert many.transform(torch.tensor([[MAX_CATEGORIES // 2]])).tolist() == [[0]]
    numbers = ColumnValues(2)
    numbers.add(torch.tensor([[1.0, 7.0], [3.0, torch.nan]]))
    shown = numbers.transform(torch.tensor([[3.0, 9.0], [torch.inf, torch.nan]]))
    assert shown.tolist() == [[1, 2], [0, 0]]


def test_propagation_ends_at_the_solution_of_its_linear_system() -> None:
    rng = np.random.default_rng(0)
    edges = np.array([[0, 1, 2, 3, 1, 0], [1, 2, 3, 4, 0, 4]])  # 0–1 in both directions, 5 alone
    labels = np.array([0, -1, 1, -1, -1, -1])
    adjacency = np.zeros((6, 6))
    adjacency[edges[0], edges[1]] = adjacency[edges[1], edges[0]] = 1
    degree = np.maximum(adjacency.sum(1), 1)
    smooth = adjacency / np.sqrt(np.outer(degree, degree))
    one_hot = np.stack([labels == 0, labels == 1, labels == 2], 1).astype(float)
    expected = np.linalg.solve(np.eye(6) - 0.8 * smooth, 0.2 * one_hot)
    order = rng.permutation(edges.shape[1])
    scores = propagate(labels, edges[:, order], 3, 0.8, steps=300)
    np.testing.assert_allclose(scores[:5], expected[:5], atol=1e-9)
    np.testing.assert_allclose(scores[5], [1 / 6, 1 / 6, 0])


def test_the_best_reference_is_chosen_by_val() -> None:
    constant = Reference(test=0.1)
    references = {"constant": constant, "linear": Reference(val=0.5, test=0.4)}
    assert best_reference({"constant": constant}, "mae") == "constant"
    assert best_reference(references, "mae") == "linear"
    references["linear-neighbors"] = Reference(val=0.4, test=0.9)
    assert best_reference(references, "mae") == "linear-neighbors"
    assert best_reference(references, "accuracy") == "linear"
    folds = [references, {"constant": constant, "linear": Reference(val=0.7, test=0.2)}]
    assert [*mean_references(folds)] == ["constant", "linear"]
    assert mean_references(folds)["linear"].test == pytest.approx(0.3)
