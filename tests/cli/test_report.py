"""``report`` through the command line: each form, and runs that were trained."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest
from support.cli import done, refused
from support.reports import write_run

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def runs(home: Path) -> Path:
    """Two models on the cities, one of them with two values of k."""
    for seed in range(4):
        write_run(home, 0.53 + seed / 1000, dataset="paris", seed=seed)
        write_run(home, 0.52 + seed / 500, dataset="paris", seed=seed, changes=["model.attention.k=5"])
    for seed in range(2):
        write_run(home, 0.5, dataset="paris", seed=seed, model="gcn")
    return home


def test_a_row_as_people_read_it(runs):
    lines = done("report").out.splitlines()
    assert lines[0].startswith("paris: accuracy [%] on test; build 0123456789ab, split random-seed0 (")
    assert re.search(r"^gcn +– +50.00 ± 0.00 † +2 of 4 +52.93 ± 0.06 +−2.93 +−3.05 ", lines[2])
    assert re.search(
        r"^gps-kmip +– +53.15 ± 0.11 +4 +53.62 ± 0.22 +−0.47 +– +2 h 0 min +3 h 5 min, one", lines[3]
    )
    assert "model.attention.k=5 (15)" in lines[4]
    assert lines[5].startswith("† of fewer runs than the paper's. Δ the best: mean over the seeds")
    assert "Δ gcn" in done("report", "--against", "gcn").out.splitlines()[1]
    out = done("report", "--format", "markdown").out
    assert "| **53.15 ± 0.11** |" in out
    assert "| *52.30 ± 0.22* |" in out
    assert len({line.count("|") for line in out.splitlines() if line.startswith("|")}) == 1


def test_latex_has_model_test_and_difference_in_a_page_with_escaped_names(runs):
    write_run(runs, 0.6, dataset="my_data&more", model="gcn", complete=None)
    changes = ["training.epochs=20", "model.dropout=0.3", "model.layers=2"]
    write_run(runs, 0.4, dataset="paris", changes=changes)
    out = done("report", "--format", "latex").out
    for row in (
        r"gps-kmip & \textbf{53.15 $\pm$ 0.11} & $-$0.47 \\",
        r"gps-kmip, k=5 & \underline{52.30 $\pm$ 0.22}",
        r"50.00 $\pm$ 0.00 $^\dagger$",
        r"gps-kmip, layers=2, dropout=0.3, \dots{}",
        r"my\_data\&more: accuracy [\%]",
    ):
        assert row in out
    assert out.count(r"\begin{tabular}{lrr}") == 1


def test_csv_and_json_have_the_same_rows(runs, tmp_path):
    rows = list(csv.DictReader(io.StringIO(done("report", "--format", "csv").out)))
    assert done("report", "--format", "json", "--output", tmp_path / "r.json").out == ""
    found = json.loads((tmp_path / "r.json").read_text())
    assert found["notices"] == []
    assert len(rows) == 3
    for one, other in zip(rows, found["rows"], strict=True):
        assert one == {key: "" if other[key] is None else str(other[key]) for key in one}
    page = (ROOT / "docs/reports.md").read_text("utf-8")
    assert [key for key in found["rows"][0] if f"`{key}`" not in page] == []


def test_without_runs_and_with_damaged_ones_alone(home):
    assert "none below" in refused("report")
    run = write_run(home, 0.5)
    (run / "result.json").write_text("{")
    assert "is left out" in refused("report")
