"""``bench`` through the command line, at tiny sizes."""

from __future__ import annotations

import csv
import re

import pytest
from support.cases import check_each
from support.cli import expect_refusal, expect_success

from kmip_data.cli import bench
from kmip_data.cli.main import root


@pytest.mark.slow
def test_bench_attention_prints_and_saves_its_table(tmp_path):
    outcome = expect_success(
        "bench", "attention", "--methods", "naive", "--max-n", "316", "--save", tmp_path / "a"
    )
    assert outcome.out.splitlines()[0].split()[:3] == ["inference", "100", "316"]
    for pattern in (
        r"^naive +\S+ [µm]s",
        r"^A100: symbolic.* 1.67 ms.* n\^1.9\d +[\d,–]+$",
        "measured by the paper, not on this machine",
    ):
        assert re.search(pattern, outcome.out, re.MULTILINE)
    assert "naive, training, 316 nodes" in outcome.err
    with (tmp_path / "a.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["mode"], row["n"], row["status"]) for row in rows] == [
        (setting, n, "ok") for setting in ("inference", "training") for n in ("100", "316")
    ]
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"


def test_wrong_usage_is_named_before_anything_is_measured():
    cases = {
        "attention --methods naiv": "Did you mean 'naive'",
        "attention --max-n 50": "is not in the range 100",
        "attention --save /no/such/folder/a": "the folder /no/such/folder does not exist",
    }

    def check(line):
        assert cases[line] in expect_refusal("bench", *line.split())

    check_each(check, cases)
    command = root.get_command(None, "bench").get_command(None, "attention")
    assert len([param for param in command.params if param.name not in {"as_json", "quiet"}]) <= 10
    assert [bench.format_quantity(value, "s") for value in (0.0021, 2000, None)] == [
        "2.1 ms",
        "2,000 s",
        "–",
    ]


@pytest.mark.slow
def test_bench_train_reports_times_ratios_and_why_a_network_does_not_fit(home, monkeypatch):
    monkeypatch.setattr(bench, "ROUNDS", 1)
    monkeypatch.setattr(bench, "MAX_BATCHES", 1)
    keys = (
        "model.layers=1",
        "model.hidden_dim=16",
        "training.batch_size=1",
        "data.parameters={limit = 120}",
    )
    settings = [word for key in keys for word in ("--set", key)]
    words = ("bench", "train", "long-range", "--sample", *settings, "-q", "--model")
    result = expect_success(*words, "gps-kmip,gcn", "--json").json
    ours, gcn = result["models"]
    assert ours["seconds"] > 0
    assert (ours["ratio"], ours["graphs"]) == (1, 1)
    assert gcn["ratio"] > 0
    batches = ours["hours"] * 3600 / ours["seconds"] / 12  # epochs of the preset
    assert batches == pytest.approx(round(batches))

    def too_small(config, data, device):
        raise MemoryError("no memory for it")

    monkeypatch.setattr("kmip_data.models.training.memory_estimate.estimate_step_memory", too_small)
    text = expect_success(*words, "gcn").out
    assert "gcn: no memory for it" in text
    assert "epochs of long-range/gcn on these data (sample: generated" in text
