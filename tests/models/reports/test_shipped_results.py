"""Rows of our results: read, compared with a training; tables of the docs."""

from __future__ import annotations

import hashlib
import os
import re
import statistics
from pathlib import Path

import pytest
from support.raises import raises
from support.runs.reports import write_run
from support.shared import ROOT

from kmip_data.errors import NotReproduced, Setting, UsageError
from kmip_data.files.small_files import json_digest
from kmip_data.models.reports.shipped_results import (
    ShippedResult,
    check_reproduced,
    read_shipped_result,
    read_shipped_results,
)
from kmip_data.models.training.config.overrides import apply_overrides, value_of_key
from kmip_data.models.training.config.presets import load_preset, preset_owner
from kmip_data.models.training.run.result import read_result
from kmip_data.models.training.run.summary import RunSummary
from tools.published import (
    attention_table,
    difference,
    published_table,
    results_table,
)

DOCS = ROOT / "docs"
PAGES = [DOCS / "results.md", DOCS / "datasets/long-range.md"]
TEST = (0.90, 0.92, 0.94)


def a_row(**changes: object) -> ShippedResult:
    row = {
        "name": "gps-kmip",
        "dataset": "malnet-tiny",
        "build": "0123456789ab",
        "model": "gps-kmip",
        "variant": "code",
        "metric": "accuracy",
        "epochs": 150,
        "parameters": 499_000,
        "hardware": "a processor, 1 thread",
        "torch": "2.13.0",
        "commit": "0123456789",
        "seeds": [0, 1, 2],
        "splits": [json_digest({"test": "0"})[:12]] * 3,
        "val": TEST,
        "test": TEST,
        "seconds": [1.0, 2.0, 3.0],
        "weights": [hashlib.sha256(bytes([seed])).hexdigest() for seed in range(3)],
    }
    return ShippedResult.model_validate(row | changes)


def a_row_of_one_seed(**changes: object) -> ShippedResult:
    lists = ("seeds", "splits", "val", "test", "seconds", "weights")
    return a_row(**{name: getattr(a_row(), name)[:1] for name in lists}, **changes)


def a_summary(home: Path, *values: float, torch: str = "2.13.0", first: int = 0) -> RunSummary:
    runs = []
    for seed, value in enumerate(values, start=first):
        versions = {"kmip-data": "1.0", "torch": torch}
        run = write_run(
            home,
            value,
            seed=seed,
            versions=versions,
            hardware="a processor, 1 thread",
            device="cpu",
        )
        (run / "model.safetensors").write_bytes(bytes([seed]))
        runs.append(run)
    return RunSummary(runs, [read_result(run) for run in runs])


def test_a_reproduction_equal_to_the_digit_is_reported(tmp_path) -> None:
    data, text = check_reproduced(a_row(), a_summary(tmp_path, *TEST))
    assert text.count("equal, weights too") == 3
    assert "92.00 ± 2.00" in text
    assert [(seed["test"], seed["row"], seed["equal"]) for seed in data["seeds"]] == [
        (v, v, True) for v in TEST
    ]
    assert data["row"] == "malnet-tiny/gps-kmip"


def test_a_row_is_close_within_three_deviations(tmp_path) -> None:
    far = 3 * statistics.stdev(TEST)
    for name, value, first in (
        ("bit", 0.90 + 1e-12, 0),
        ("near", 0.92 + 0.99 * far, 0),
        ("seed", 0.93, 7),
    ):
        data, text = check_reproduced(a_row(), a_summary(tmp_path / name, value, first=first))
        assert [seed["equal"] for seed in data["seeds"]] == [False]
        assert "only at commit 0123456789" in text
    with pytest.raises(NotReproduced) as caught:
        check_reproduced(a_row(), a_summary(tmp_path / "far", 0.92 + 1.01 * far))
    assert caught.value.steps
    on_two = a_row(hardware="a processor, 2 threads")
    with pytest.raises(NotReproduced):
        check_reproduced(on_two, a_summary(tmp_path / "threads", 0.92 + 1.01 * far))

    with pytest.raises(NotReproduced):
        check_reproduced(a_row_of_one_seed(), a_summary(tmp_path / "one", 0.9000001))
    for name, other in (("build", "another"), ("splits", ["another"] * 3)):
        with pytest.raises(NotReproduced):
            check_reproduced(a_row(**{name: other}), a_summary(tmp_path / name, 0.90))


def test_other_weights_are_not_equal(tmp_path) -> None:
    summary = a_summary(tmp_path, *TEST)
    (summary.runs[1] / "model.safetensors").write_bytes(b"others")
    data, _ = check_reproduced(a_row(), summary)
    assert [seed["equal"] for seed in data["seeds"]] == [True, False, True]


def with_epochs(summary: RunSummary, *lines: str) -> RunSummary:
    """Stop each run after the epochs of ``lines``: train loss and accuracy on val."""
    for run in summary.runs:
        rows = [f"{epoch},{line}" for epoch, line in enumerate(lines)]
        (run / "metrics.csv").write_text("\n".join(["epoch,train_loss,val_accuracy", *rows]))
    results = [result.model_copy(update={"epochs": len(lines)}) for result in summary.results]
    return RunSummary(summary.runs, results)


def test_first_epochs_are_equal_or_close(tmp_path) -> None:
    columns = [{"val_accuracy": [0.25, 0.5], "train_loss": [2.0, 1.0]}] * 3
    row = a_row(first_epochs=columns)
    summary = a_summary(tmp_path, 0.9, 0.92)

    data, text = check_reproduced(row, with_epochs(summary, "2.0,0.25", "1.0,0.5"))
    assert [seed["equal"] for seed in data["seeds"]] == [True, True]
    assert "all 4 values equal" in text

    # The first epoch may be anywhere; the second decides.
    data, text = check_reproduced(row, with_epochs(summary, "3.0,0.1", "1.0099,0.5009"))
    assert [seed["equal"] for seed in data["seeds"]] == [False, False]
    assert "train_loss of epoch 2: 1.0099, row 1.0" in text
    for line in ("1.0101,0.5", "1.0,0.4989"):
        with pytest.raises(NotReproduced):
            check_reproduced(row, with_epochs(summary, "2.0,0.25", line))

    other_build = row.model_copy(update={"build": "another"})
    with pytest.raises(NotReproduced):
        check_reproduced(other_build, with_epochs(summary, "2.0,0.25", "1.0,0.5"))
    with raises(UsageError, steps=Setting(stop_after=None)):
        check_reproduced(a_row(), with_epochs(summary, "2.0,0.25", "1.0,0.5"))


def test_a_whole_training_of_one_seed_is_close_by_its_second_epoch(tmp_path) -> None:
    columns = {"train_loss": [2.0, 1.0], "val_accuracy": [0.25, 0.5]}
    one = a_row_of_one_seed(first_epochs=[columns])
    summary = a_summary(tmp_path, 0.7)
    (summary.runs[0] / "metrics.csv").write_text(
        "epoch,train_loss,val_accuracy\n0,2.0,0.25\n1,1.0,0.5001\n"
    )
    data, _ = check_reproduced(one, summary)
    assert [seed["equal"] for seed in data["seeds"]] == [False]


def test_a_partial_row_states_its_number_of_epochs(monkeypatch) -> None:
    rows = {"malnet-tiny/gps-kmip": a_row(epochs=40, planned=150)}
    monkeypatch.setattr("tools.published.read_shipped_results", lambda: rows)
    assert "|40 of 150|" in results_table("malnet-tiny")


def test_rows_on_published_splits_are_matched_by_fold(tmp_path) -> None:
    row = a_row(seeds=[0, 0, 0], folds=[4, 5, 6])
    assert row.std == statistics.stdev(TEST)
    summary = a_summary(tmp_path, *TEST)
    results = []
    for fold, result in zip((6, 4, 5), summary.results, strict=True):
        split = result.split.model_copy(update={"parameters": {"fold": fold}})
        results.append(result.model_copy(update={"seed": 0, "split": split}))
    data, text = check_reproduced(row, RunSummary(summary.runs, results))
    assert [(run["fold"], run["row"]) for run in data["seeds"]] == [(6, 0.94), (4, 0.9), (5, 0.92)]
    assert "fold 6: test 90.00 %, row 94.00 %" in text


def test_a_row_is_compared_with_the_source_of_its_settings(monkeypatch) -> None:
    row = a_row(published=[0.9, 0.01], name="gcn", model="gcn")
    monkeypatch.setattr("tools.published.read_shipped_results", lambda: {"malnet-tiny/gcn": row})
    assert "|92.00 ± 2.00|90.00 ± 1.00|+2.0|" in published_table()


def test_shipped_rows_are_valid() -> None:
    rows = read_shipped_results()
    assert {name.partition("/")[0] for name in rows} >= {"long-range", "helsinki"}
    assert all(name.endswith(f"/{row.name}") for name, row in rows.items())
    for row in rows.values():
        lists = (row.splits, row.val, row.test, row.seconds, row.weights)
        optional = filter(None, (row.folds, row.first_epochs))
        assert {len(values) for values in (*lists, *optional)} == {len(row.seeds)}
        preset = load_preset(preset_owner(row.dataset) or "city", row.model, row.variant)
        config = apply_overrides(preset, row.set)
        for item in row.set:
            key, _, value = item.partition("=")
            assert str(value_of_key(config, key)) == value or key.startswith("data.split.")
    with raises(UsageError, steps=Setting(reproduce="long-range/gps-kmip")):
        read_shipped_result("long-range/gps-kmipp")


def test_tables_in_the_docs_equal_the_rows() -> None:
    for page in PAGES:
        text = page.read_text("utf-8")
        written = re.sub(
            r"(?s)(<!-- rows: (\S+) -->\n).*?(?=\n\n|\Z)",
            lambda match: match[1] + results_table(match[2]),
            text,
        )
        for mark, table in (("attention", attention_table), ("published", published_table)):
            written = re.sub(
                rf"(?s)(<!-- {mark} -->\n).*?(?=\n\n|\Z)",
                lambda match, table=table: match[1] + table(),
                written,
            )
        check_page(page, written)
        assert "<!-- rows: " in text


def check_page(page: Path, written: str) -> None:
    if os.environ.get("KMIP_DATA_WRITE_DOCS"):
        page.write_text(written, "utf-8")
    assert page.read_text("utf-8") == written, "run make docs-tables"


def test_differences_are_in_deviations_and_positive_where_the_first_is_better() -> None:
    first = a_row(test=(0.5, 0.6, 0.7))
    assert difference(first, a_row(test=(0.3, 0.4, 0.5))) == "+2.0"
    assert difference(first, a_row(test=(0.8, 0.8, 0.8))) == "−2.8"
    errors = a_row(metric="mae", test=(0.5, 0.6, 0.7))
    assert difference(errors, a_row(metric="mae", test=(0.3, 0.4, 0.5))) == "−2.0"
