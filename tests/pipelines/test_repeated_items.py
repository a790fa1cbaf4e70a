"""Counts of equal items against a dictionary of their bytes."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

import kmip_data
from kmip_data.format.reader import Shard
from kmip_data.format.split_files import NO_PART, PART_CODES
from kmip_data.pipelines.engine.repeated_items import ItemDigests, count_repeats, digest_items


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2), st.sampled_from([0, 1, 2, NO_PART])))
)
def test_counts_equal_a_search_of_all_pairs(rows):
    items, targets, codes = np.array(rows, np.uint64).reshape(-1, 3).T
    counts = count_repeats(ItemDigests(items, targets), codes.astype(np.uint8))
    used = [row for row in rows if row[2] != NO_PART]
    test = [item for item, _, code in used if code == PART_CODES["test"]]
    train = [item for item, _, code in used if code == PART_CODES["train"]]
    assert counts == {
        "test": len(test),
        "test_in_train": sum(item in train for item in test),
        "items": len(used),
        "other_target": sum(
            any(item == other and target != others for other, others, _ in used)
            for item, target, _ in used
        ),
    }


def digests_of(graphs, folder, *, of_nodes=False):
    """Return the digests of a saved list of graphs."""
    split = {"train": [0], "val": [1], "test": [2]}
    build = kmip_data.save(graphs, folder, split=split)
    shards = [Shard(build.path / entry.file, entry=entry) for entry in build.card.shards]
    return digest_items(shards, build.card.schema_, of_nodes=of_nodes)


def test_graphs_have_equal_digests_if_their_arrays_are_equal(tmp_path):
    """Columns differ in form; two of three values make many equal graphs, and nearly equal ones."""
    rng = np.random.default_rng(0)
    graphs = []
    for number in range(200):
        nodes, edges = rng.integers(1, 3, 2)
        graph = Data(
            x=torch.from_numpy(rng.integers(0, 2, (nodes, 2)).astype(np.float32)),
            edge_index=torch.from_numpy(rng.integers(0, nodes, (2, edges))),
            edge_attr=torch.from_numpy(rng.integers(0, 2, (edges, 1)).astype(np.float32)),
            y=torch.tensor([number % 2]),
            kind=int(rng.integers(0, 2)),
        )
        graphs.append(graph)
    digests = digests_of(graphs, tmp_path / "b")
    by_bytes = defaultdict(set)
    for graph, digest in zip(graphs, digests.items.tolist(), strict=True):
        arrays = (graph.x, graph.edge_index, graph.edge_attr)
        by_bytes[graph.kind, *(str(array.tolist()) for array in arrays)].add(digest)
    assert all(len(same) == 1 for same in by_bytes.values())
    assert 50 < len(by_bytes) == len(set(digests.items.tolist())) < 200
    assert len(set(digests.targets.tolist())) == 2


def test_nodes_are_equal_with_the_same_features_and_neighbours(tmp_path):
    rng = np.random.default_rng(1)
    nodes = 300
    x = rng.integers(0, 2, (nodes, 1)).astype(np.float32)
    edges = rng.integers(0, nodes, (2, 150))
    graph = Data(
        x=torch.from_numpy(x),
        edge_index=torch.from_numpy(edges),
        y=torch.from_numpy(rng.integers(0, 2, nodes)),
    )
    digests = digests_of([graph], tmp_path / "b", of_nodes=True)
    keys = []
    for node in range(nodes):
        sources = sorted(edges[0, edges[1] == node].tolist())
        keys.append((x[node, 0], *sources, "to", *sorted(edges[1, edges[0] == node].tolist())))
    assert len({*keys}) == len({*zip(keys, digests.items.tolist(), strict=True)})
    assert 100 < len({*keys}) == len({*digests.items.tolist()}) < nodes
