"""Tree-NeighborsMatch: equal to the output of the authors' generator, and each tree by its definition."""

from __future__ import annotations

import hashlib

import networkx as nx
import numpy as np
import pytest
import torch
from support.cli import expect_refusal, expect_success

from kmip_data import TreeNeighborsMatch
from kmip_data.pipelines.datasets.tree_neighbors_match import BinaryTree, Questions

#: Numbers of train and val trees, and SHA-256 of int64 rows (key of the root, target, values of the
#: leaves) of the authors' train and test trees; their code at bfe83b4 with scikit-learn 1.9.1.
AUTHORS = {
    2: (76, 20, "45211c763294f40e6d5dfdfba7a7cf40a494d8b0609bed7525806c9e00b8d483"),
    3: (6_400, 1_600, "ef6430d72d8a624ec4bd05e1a79b301bc049f0cb39023c4b2008a9342adce891"),
    4: (12_800, 3_200, "82bbad9eb3f67cdba155d170b7654e12c539ae064f846b5ba756e21b6a60a9ac"),
    5: (25_600, 6_400, "e8b3e5dc06741eacc687e7688bb856e7e76a8b5b516c5140e503d8a08fd7180c"),
}
#: Edges of the authors' trees of depth 2.
AUTHORS_EDGES = [
    [1, 4, 2, 3, 5, 6, 0, 1, 2, 3, 4, 5, 6],
    [0, 0, 1, 1, 4, 4, 0, 1, 2, 3, 4, 5, 6],
]


@pytest.mark.parametrize("depth", AUTHORS)
def test_questions_equal_the_authors(depth: int) -> None:
    train, val, digest = AUTHORS[depth]
    questions = Questions.of_depth(depth)
    values = questions.values[questions.permutation]
    target = np.take_along_axis(values, questions.leaf[:, None], axis=1)
    rows = np.hstack([questions.leaf[:, None] + 1, target, values]).astype(np.int64)
    assert (questions.train, len(rows) - questions.train) == (train, val)
    assert hashlib.sha256(rows.tobytes()).hexdigest() == digest


@pytest.mark.parametrize("depth", [2, 5, 8])
def test_a_tree_is_complete_and_its_edges_lead_to_the_root(depth: int) -> None:
    tree = BinaryTree.of_depth(depth)
    nodes = 2 ** (depth + 1) - 1
    # Loops come last, one for each node.
    assert tree.edge_index[:, -nodes:].tolist() == [[*range(nodes)]] * 2
    graph = nx.DiGraph(tree.edge_index[:, :-nodes].T[:, ::-1].tolist())
    assert nx.is_arborescence(graph)
    assert [*nx.dfs_preorder_nodes(graph, 0)] == [*range(nodes)]
    distance = nx.shortest_path_length(graph, 0)
    assert [node for node in range(nodes) if distance[node] == depth] == tree.leaves.tolist()
    assert {graph.out_degree(node) for node in graph} == {0, 2}


def test_items_are_trees_with_a_question(tmp_path) -> None:
    parts = {
        part: TreeNeighborsMatch(root=tmp_path, depth=2, split=part) for part in ("train", "val")
    }
    for part, count in zip(parts.values(), AUTHORS[2], strict=False):
        assert len(part) == count
        for tree in part:
            assert tree.edge_index.tolist() == AUTHORS_EDGES
            assert tree.x.dtype == torch.int64
            leaves = tree.x[[2, 3, 5, 6]]
            assert leaves[:, 0].tolist() == [1, 2, 3, 4]
            assert tree.y == leaves[tree.x[0, 0] - 1, 1]
            assert not tree.x[[1, 4]].any()
            assert not tree.x[0, 1]
    # The first train tree of the authors.
    first = parts["train"][0]
    assert first.x.tolist() == [[2, 0], [0, 0], [1, 2], [2, 4], [0, 0], [3, 1], [4, 3]]


def test_a_build_is_trained_by_the_part_that_the_authors_report(tmp_path) -> None:
    """The walk of its page; the best epoch is the best on train, which val does not change."""
    home = ("--home", tmp_path, "--quiet")
    expect_success("build", "tree-neighbors-match", "--set", "depth=2", "--jobs", 1, *home)
    command = ("train", "tree-neighbors-match", "--model", "gcn", "--variant", "depth2", "--json")
    every = ("--set", "training.eval_every=1", "--epochs", 12, "--device", "cpu")
    trained = expect_success(*command, *every, *home).json
    rows = np.genfromtxt(f"{trained['run']}/metrics.csv", delimiter=",", names=True)
    assert trained["best_epoch"] == rows["train_accuracy"].argmax()
    assert trained["best_epoch"] != rows["val_accuracy"].argmax()
    assert set(trained["metrics"]) == {"train", "val"}


def test_other_depths_are_refused(tmp_path) -> None:
    refused = expect_refusal(
        "build", "tree-neighbors-match", "--set", "depth=9", "--home", tmp_path
    )
    assert "depth" in refused
