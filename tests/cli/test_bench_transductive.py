"""The transductive benchmark runs, and says what it measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.transductive import write_city

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


def test_memory_beside_its_estimate():
    command = [sys.executable, ROOT / "tests" / "benchmarks", "transductive", "--nodes", "300", "--json"]
    done = subprocess.run([*command, "--set", "model.layers=1"], capture_output=True, text=True, check=True)
    (row,) = json.loads(done.stdout)["rows"]
    assert row["unit"] == "GiB"
    assert row["ratio"] == pytest.approx(row["theirs"] / row["ours"])
    assert "300 nodes" in row["note"]


def test_the_generated_city_is_as_sparse_as_london(tmp_path):
    import kmip_data

    write_city(tmp_path / "c", 900)
    graph = kmip_data.open(tmp_path / "c")[0]
    assert graph.num_nodes == 900
    assert 2.5 < graph.num_edges / 900 <= 2 * 1.328
    assert graph.is_undirected()
    assert (graph.train_mask.int() + graph.val_mask.int() + graph.test_mask.int() == 1).all()
