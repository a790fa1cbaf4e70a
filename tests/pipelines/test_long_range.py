"""Long-range: topologies and targets against networkx, one pair after another.

A seed gives equal bytes.
"""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch

from kmip_data import LongRange
from kmip_data.builds.home import Home
from kmip_data.errors import UsageError
from kmip_data.manifest import load_manifest
from kmip_data.pipelines.build import build_dataset
from kmip_data.pipelines.datasets import long_range
from kmip_data.pipelines.datasets.long_range import (
    KEY_BITS,
    NUM_VALUES,
    LongRangeParams,
    make_record,
)
from kmip_data.pipelines.raw.find_or_download import fetch_dataset

TASKS = ("retrieval", "sssp", "ecc", "diam", "max-retrieval")


@pytest.mark.parametrize("task", TASKS)
def test_targets_equal_networkx(task, monkeypatch):
    """Distances of networkx; the partner is the one other node whose key has the same bits."""
    monkeypatch.setattr(long_range, "SOURCES_PER_BLOCK", 7)
    params = LongRangeParams(task=task, nodes=30, seed=3)
    for row in range(12):
        record = make_record(row, params)
        graph = nx.Graph(record.edge_index.T.tolist())
        assert len(graph) == (0 if task == "max-retrieval" else record.num_nodes)
        assert 14 <= record.num_nodes <= 30
        assert {(u, v) for u, v in record.edge_index.T.tolist()} == {
            pair for u, v in graph.edges for pair in ((u, v), (v, u))
        }
        apart = dict(nx.all_pairs_shortest_path_length(graph))
        x = record.columns["node/x"]
        if task == "retrieval":
            keys = [tuple(bits) for bits in x[:, :KEY_BITS].tolist()]
            assert set(np.unique(x[:, :KEY_BITS])) == {-1, 1}
            for node, key in enumerate(keys):
                (other,) = (n for n, k in enumerate(keys) if k == key and n != node)
                held = x[other, KEY_BITS:]
                assert held.sum() == 1
                assert held[record.columns["node/y"][node]] == 1
                assert record.columns["node/distance"][node] == apart[node][other]
        elif task == "max-retrieval":
            assert x[x[:, 0].argmax(), 1:].nonzero() == record.columns["graph/y"]
        elif task == "sssp":
            (source,) = np.flatnonzero(x[:, 0])
            assert record.columns["node/y"][:, 0].tolist() == [
                apart[source][n] for n in range(len(x))
            ]
        elif task == "ecc":
            largest = nx.eccentricity(graph)
            assert record.columns["node/y"][:, 0].tolist() == [largest[n] for n in range(len(x))]
        else:
            assert record.columns["graph/y"].tolist() == [nx.diameter(graph)]


def test_long_range_parts_are_balanced_and_reproducible(tmp_path):
    """Topologies are balanced in each part; equal parameters give equal bytes, another seed does not."""
    parts = {
        part: LongRange(root=tmp_path, graphs=120, nodes=16, split=part)
        for part in ("train", "val", "test")
    }
    assert [len(part) for part in parts.values()] == [96, 12, 12]
    data = parts["test"][0]
    assert data.x.shape == (data.num_nodes, KEY_BITS + NUM_VALUES)
    assert data.x.dtype == torch.float32
    assert data.y.max() < NUM_VALUES
    assert (data.distance > 0).all()
    again = build_dataset(
        "long-range", parameters={"graphs": 120, "nodes": 16}, home=Home.locate(tmp_path / "b")
    )
    assert [shard.sha256 for shard in again.card.shards] == [
        s.sha256 for s in parts["test"].card.shards
    ]
    other = LongRange(root=tmp_path, graphs=120, nodes=16, seed=1, split="test")
    assert other[0].x.shape != data.x.shape or not torch.equal(other[0].x, data.x)
    # A build of ten graphs has the first ten of the whole.
    whole, some = (
        LongRange(root=tmp_path, graphs=120, nodes=16, split=None, limit=n) for n in (None, 10)
    )
    assert len(some) == 10
    assert all(torch.equal(item.x, whole[i].x) for i, item in enumerate(some))
    with pytest.raises(UsageError):
        fetch_dataset(load_manifest("long-range"), Home.locate(tmp_path))
