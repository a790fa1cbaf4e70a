"""``report`` through the command line: each form, and runs that were trained."""

from __future__ import annotations

import csv
import io
import json
import re
import statistics
from pathlib import Path

import pytest
from support.cases import check_each
from support.cli import done, refused
from support.reports import write_run
from support.sweeps import SMALL, write_plan
from support.training_data import learnable_build

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
    assert re.search(r"^gcn +– +50.00 ± 0.00 † +2 of 4 +52.93 ± 0.06 +−2.93 \[", lines[2])
    assert re.search(
        r"^gps-kmip +– +53.15 ± 0.11 +4 +53.62 ± 0.22 +−0.47 \[−\S+, [−+]\S+\] +– +2 h 0 min +3 h 5 min, one",
        lines[3],
    )
    assert "model.attention.k=5 (15)" in lines[4]
    assert lines[5].startswith("† of fewer runs than the paper's. Δ")
    assert "Δ gcn" in done("report", "--against", "gcn").out.splitlines()[1]
    refused("report", "--against", "gnc")


def test_markdown_marks_the_best_and_the_second(runs):
    out = done("report", "--format", "markdown").out
    assert "| **53.15 ± 0.11** |" in out
    assert "| *52.30 ± 0.22* |" in out
    assert len({line.count("|") for line in out.splitlines() if line.startswith("|")}) == 1


def test_latex_uses_booktabs_and_escapes_names(runs):
    write_run(runs, 0.6, dataset="my_data&more", model="gcn", complete=None)
    out = done("report", "--format", "latex").out
    assert r"\textbf{53.15 $\pm$ 0.11}" in out
    assert r"\underline{52.30 $\pm$ 0.22}" in out
    assert r"50.00 $\pm$ 0.00\rlap{$^\dagger$}" in out
    assert r"my\_data\&more: accuracy [\%]" in out
    for word in ("toprule", "midrule", "bottomrule", "begin{tabular}", "end{tabular}"):
        assert out.count(f"\\{word}") == 2
    for table in out.split(r"\begin{tabular}")[1:]:
        columns = len(re.match(r"\{([lr]+)\}", table)[1])
        rows = re.findall(r"^    (.+) \\\\$", table, re.MULTILINE)
        assert {len(re.findall(r"(?<!\\)&", row)) + 1 for row in rows} == {columns}


def test_csv_and_json_have_the_same_rows(runs, tmp_path):
    rows = list(csv.DictReader(io.StringIO(done("report", "--format", "csv").out)))
    assert done("report", "--format", "json", "--output", tmp_path / "r.json").out == ""
    found = json.loads((tmp_path / "r.json").read_text())
    assert found["notices"] == []
    assert len(rows) == 3
    for one, other in zip(rows, found["rows"], strict=True):
        assert one == {key: "" if other[key] is None else str(other[key]) for key in one}
    page = (ROOT / "docs/reports.md").read_text("utf-8")
    for key in found["rows"][0]:
        assert f"`{key}`" in page, f"{key} is not in docs/reports.md"


def test_html_is_one_file_with_its_pictures(runs, tmp_path):
    write_run(runs, 0.6, dataset="<script>x", model="gcn", complete=None)
    strange = (b"", b"\xff\xfe", b"epoch,val_accuracy\n0,x\n", b"a" * 1000)  # curves of somebody else
    for folder, data in zip(sorted((runs / "runs/paris/gps-kmip").iterdir()), strange, strict=False):
        (folder / "metrics.csv").write_bytes(data)
    done("report", "--format", "html", "--output", tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text("utf-8")
    assert "<script>x" not in text
    tags = re.findall(r"<(\w+)([^>]*)>", text)
    assert not any(re.search(r"\b(src|href)=", attributes) for _, attributes in tags)
    assert [tag for tag, _ in tags].count("table") == 2
    assert text.count("<figure>") == 3 + 2  # k alone differs in the first table
    assert "<b>53.15 ± 0.11</b>" in text
    assert '<span class="few">50.00 ± 0.00 †</span>' in text
    assert text.count("<title>gps-kmip, the paper") == 1  # k = 5 is of the same preset


def test_without_runs_and_with_damaged_ones_alone(home):
    assert "none below" in refused("report")
    run = write_run(home, 0.5)
    (run / "result.json").write_text("{")
    assert "is left out" in refused("report")


def test_datasets_in_each_form(home):
    def check(form):
        text = done("report", "datasets", "--format", form).out
        assert "13" in text
        assert "malnet-tiny" in text

    check_each(check, ["text", "markdown", "csv", "json", "latex", "html"])


def test_a_sweep_that_was_trained(home, tmp_path):
    learnable_build(home / "built/clouds")
    plan = write_plan(tmp_path / "small.toml", set=SMALL)
    done("sweep", plan, "-q")
    rows = done("report", plan, "--format", "json").json["rows"]
    assert [row["model"] for row in rows] == ["gps-kmip", "gps-none"]
    for row in rows:
        results = [json.loads((Path(run) / "result.json").read_text()) for run in row["folders"].split()]
        values = [result["metrics"]["test"]["accuracy"] for result in results]
        assert row["test"] == statistics.fmean(values)
        assert row["test_std"] == pytest.approx(statistics.pstdev(values))
        assert (row["seeds"], row["share"], row["paper"]) == ("0 1", "", None)
        assert "training.epochs=3 (200)" in row["changes"]
        assert "model.head" not in row["changes"]
    assert {row["pairs"] for row in rows} == {None, 2}


def test_a_grid_has_models_by_datasets(runs):
    write_run(runs, 0.93, dataset="malnet-tiny")
    write_run(runs, 0.4, dataset="paris", model="gcn", build_key="another build")
    lines = done("report", "--grid", "--format", "markdown").out.splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    assert rows[0][:2] == ["model", "changes"]
    assert sorted(rows[0][2:]) == [
        "malnet-tiny, accuracy [%]",
        "paris, accuracy [%]",
        "paris, accuracy [%], build another build",
    ]
    cells = {(row[0], row[1]): dict(zip(rows[0][2:], row[2:], strict=True)) for row in rows[2:]}
    assert cells["gps-kmip", "–"]["paris, accuracy [%]"] == "53.15 ± 0.11 (paper 53.62 ± 0.22)"
    assert cells["gps-kmip", "–"]["malnet-tiny, accuracy [%]"] == "93.00 † (paper 93.52 ± 0.49)"
    assert cells["gcn", "–"]["malnet-tiny, accuracy [%]"] == "–"
    assert len(cells) == 3
    page = done("report", "--grid", "--format", "html")
    assert "Models and datasets" in page.out
