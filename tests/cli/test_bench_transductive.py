"""The transductive benchmark runs, and says what it measured."""

from __future__ import annotations

import json

from support.cli import kmip

from kmip_data.cli.benchmarks.transductive import write_city


def test_memory_beside_its_estimate():
    outcome = kmip("bench", "transductive", "--nodes", "300", "--set", "model.layers=1", "--json")
    assert outcome.code == 0, outcome.err
    (row,) = json.loads(outcome.out)["rows"]
    assert row["unit"] == "GiB"
    assert row["ratio"] == row["theirs"] / row["ours"]
    assert "300 nodes" in row["note"]


def test_the_generated_city_is_as_sparse_as_london(tmp_path):
    import kmip_data

    write_city(tmp_path / "c", 900)
    graph = kmip_data.open(tmp_path / "c")[0]
    assert graph.num_nodes == 900
    assert 2.5 < graph.num_edges / 900 <= 2 * 1.328
    assert graph.is_undirected()
    assert (graph.train_mask.int() + graph.val_mask.int() + graph.test_mask.int() == 1).all()
