"""``bench`` through the command line, at tiny sizes."""

from __future__ import annotations

import csv
import re

import pytest
from support.cli import kmip

from kmip_data.cli.benchmarks import attention, train
from kmip_data.cli.main import root
from kmip_data.models.profiling import reading

TINY = ["--methods", "naive", "--max-n", "1000"]


@pytest.mark.slow
def test_attention_prints_and_saves(tmp_path):
    outcome = kmip("bench", "attention", *TINY, "--save", tmp_path / "a")
    assert outcome.code == 0, outcome.err
    lines = outcome.out.splitlines()
    assert lines[0].split()[:4] == ["inference", "100", "316", "1,000"]
    assert any(re.match(r"naive +\S+ [µm]s", line) for line in lines)
    assert any(line.startswith("A100: symbolic") and "1.67 ms" in line for line in lines)
    assert "not of this machine" in outcome.out
    assert "naive, training, 316 nodes" in outcome.err
    with (tmp_path / "a.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["setting"], row["n"], row["status"]) for row in rows] == [
        (setting, n, "ok") for setting in ("inference", "training") for n in ("100", "316", "1000")
    ]
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"


def test_wrong_usage_is_named_before_anything_is_measured():
    cases = {
        ("attention", "--methods", "naiv"): "Did you mean 'naive'",
        ("attention", "--max-n", "many"): "is not a number",
        ("attention", "--data", "uniform"): "'uniform' is not one of",
        ("attention", "--save", "/no/such/folder/a"): "cannot be saved there",
        ("attention", "--table"): "make bench",
        ("train", "helsinki", "--model", "gcm"): "'city/gcn'",
        ("reeding",): "'reading'",
    }
    wrong = []
    for words, said in cases.items():
        outcome = kmip("bench", *words)
        if outcome.code != 2 or said not in outcome.err:
            wrong.append((words, outcome.code, outcome.err))
    assert not wrong


def test_attention_has_at_most_ten_options_and_examples_that_parse():
    command = root.get_command(None, "bench").get_command(None, "attention")
    assert len([param for param in command.params if param.name not in {"as_json", "quiet"}]) <= 10
    for example in command.examples:
        command.make_context("attention", example.split()[3:]).close()


@pytest.mark.slow
def test_reading_compares_with_pyg(monkeypatch):
    monkeypatch.setattr(reading, "REPEATS", 2)
    monkeypatch.setattr(reading, "NODES", 64)
    outcome = kmip("bench", "reading", "--graphs", 16, "--json")
    assert outcome.code == 0, outcome.err
    assert [row["what"] for row in outcome.json["rows"]] == [
        "one graph at random",
        "shuffled batch of 8",
        "shuffled batch of 8, compact",
    ]
    assert all(row["least"] <= row["ratio"] <= row["most"] for row in outcome.json["rows"])


SMALL = ("--set", "model.layers=1", "--set", "model.hidden_dim=16", "--set", "training.batch_size=1")


@pytest.mark.slow
def test_train_has_times_and_ratios(home_of_sample, monkeypatch):
    monkeypatch.setattr(train, "ROUNDS", 1)
    monkeypatch.setattr(train, "BATCHES", 1)
    target = ("s3dis", "--sample", "--set", "data.parameters={limit = 12, k = 4}", "--home", home_of_sample)
    words = ("bench", "train", *target, "-q", "--model", "gps-kmip,gcn", *SMALL)
    outcome = kmip(*words, "--json")
    assert outcome.code == 0, outcome.err
    ours, gcn = outcome.json["models"]
    assert ours["seconds"] > 0
    assert (ours["ratio"], ours["graphs"]) == (1, 1)
    assert gcn["ratio"] > 0
    assert "sample" in outcome.json["data"]
    batches = ours["hours"] * 3600 / ours["seconds"] / 200  # epochs of the preset
    assert batches == pytest.approx(round(batches))
    assert "hours: for the 200 epochs of s3dis/gps-kmip on these data (sample: generated" in kmip(*words).out


@pytest.mark.slow
def test_a_network_that_does_not_fit_is_a_row_with_its_reason(home_of_sample, monkeypatch):
    def too_small(config, data, device):
        raise MemoryError("no memory for it")

    monkeypatch.setattr("kmip_data.models.profiling.training.plan_memory", too_small)
    target = ("s3dis", "--sample", "--set", "data.parameters={limit = 12, k = 4}", "--home", home_of_sample)
    outcome = kmip("bench", "train", *target, "-q", "--model", "gcn", *SMALL)
    assert outcome.code == 0, outcome.err
    assert "gcn: no memory for it" in outcome.out


def test_quantities_have_a_unit_of_their_size():
    assert attention.quantity(0.0021, "s") == "2.1 ms"
    assert attention.quantity(None, "s") == "–"
