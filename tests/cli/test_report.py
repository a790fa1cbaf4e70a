"""``report`` through the command line: each form, and runs that were trained."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
from pathlib import Path

import pytest
from support.browser import act
from support.cli import expect_refusal, expect_success
from support.runs.reports import write_run
from support.shared import ROOT

from kmip_data.format.card import SAMPLE_NOTE


@pytest.fixture
def runs(home: Path) -> Path:
    """Two models on the cities, one of them with two values of k."""
    for seed in range(4):
        write_run(home, 0.53 + seed / 1000, dataset="paris", seed=seed)
        write_run(
            home, 0.52 + seed / 500, dataset="paris", seed=seed, changes=["model.attention.k=5"]
        )
    for seed in range(2):
        write_run(home, 0.5, dataset="paris", seed=seed, model="gcn")
    return home


def test_the_next_step_opens_the_best_run_of_the_best_row(runs):
    # The mean of this row is lower, but one of its seeds was lucky.
    write_run(runs, 0.6, dataset="paris", seed=0, model="sage")
    write_run(runs, 0.1, dataset="paris", seed=1, model="sage")
    step = expect_success("report").out.rpartition("Next: kmip-data explore ")[2]
    assert step.startswith("paris/gps-kmip/")


def test_report_prints_readable_row(runs):
    lines = expect_success("report").out.splitlines()
    assert lines[0] == "paris: accuracy [%] on test; build 0123456789ab, split 'random-seed0'"
    # What all rows share is said once, and the best row comes first.
    assert lines[2].startswith("All rows: time 2 h 0 min; device NVIDIA A100; memory 2.00 GB;")
    assert lines[4].split()[:3] == ["model", "test", "n"]
    assert re.search(r"^gps-kmip +53.15 ± 0.13 +4 +53.62 ± 0.22 +−0.47 +–$", lines[5])
    assert lines[6].startswith("    paper's 3 h 5 min, one")
    assert re.search(r"^gps-kmip +52.30 ", lines[7])
    assert lines[8].endswith("; model.attention.k=5 instead of 15")
    assert re.search(r"^gcn +50.00 ± 0.00 † +2 of 4 +52.93 ± 0.06 +−2.93 +−3.05$", lines[9])
    assert lines[11].startswith(
        "† mean over fewer runs than the paper's. Δ the best: mean over the seeds"
    )
    assert "Δ gcn" in expect_success("report", "--against", "gcn").out.splitlines()[4]
    out = expect_success("report", "--format", "markdown").out
    assert "| **53.15 ± 0.13** |" in out
    assert "| *52.30 ± 0.26* |" in out
    assert len({line.count("|") for line in out.splitlines() if line.startswith("|")}) == 1


def test_the_file_extension_selects_the_format(runs, tmp_path):
    for name, start in (("a.html", "<!"), ("a.md", "**paris"), ("a.json", "{"), ("a.txt", "paris")):
        expect_success("report", "--output", tmp_path / name)
        assert (tmp_path / name).read_text().startswith(start), name


def test_report_without_runs_prints_the_training_command(home):
    refusal = expect_refusal("report")
    expect_refusal("report", "sweep")
    assert refusal.endswith("  next: kmip-data train NAME\n")
    assert "next: kmip-data report --format json\n" in expect_refusal("report", "--json")


def test_an_unknown_extension_is_refused_with_a_complete_command(runs, tmp_path):
    message = expect_refusal("report", "--output", tmp_path / "a b.pdf")
    _, _, command = message.partition("next: kmip-data ")
    expect_success(*shlex.split(command))
    assert [path.name for path in tmp_path.glob("a b.*")] == ["a b.html"]
    expect_success("report", "--format", "csv", "--output", tmp_path / "table.data")
    assert (tmp_path / "table.data").read_text().startswith("dataset,")


def test_no_line_is_wider_than_a_terminal(runs):
    changes = [f"model.{key}" for key in ("layers=2", "dropout=0.3", "hidden_dim=40", "norm=layer")]
    changes += ["optimizer.lr=0.01", "optimizer.weight_decay=0.1", "training.epochs=20"]
    write_run(
        runs, 0.6, dataset="paris", changes=changes, device="NVIDIA A100-SXM4-80GB MIG 3g.40gb"
    )
    write_run(runs, 0.7, dataset="peptides-func", metric="ap", metrics={"test": {"ap": 0.7}})
    out = expect_success("report").out
    assert max(map(len, out.splitlines())) <= 80
    assert "optimizer.weight_decay=0.1" in out


def test_only_a_typed_warm_up_is_listed_as_a_change(home):
    config = ["training.epochs=1", "schedule.warmup_epochs=0"]
    write_run(home, 0.5, dataset="paris", model="gcn", changes=config)
    out = expect_success("report").out
    assert "training.epochs=1 instead" in out
    assert "warmup" not in out
    write_run(home, 0.5, dataset="paris", model="gcn", changes=["schedule.warmup_epochs=2"])
    assert "schedule.warmup_epochs=2 instead of 10" in " ".join(
        expect_success("report").out.split()
    )


@pytest.mark.parametrize(
    ("names", "tables"),
    [
        ([], ["zinc", "zinc (sample", "zinc-copy"]),
        (["zinc-copy", "zinc-sample/gps-kmip"], ["zinc (sample", "zinc-copy"]),
    ],
)
def test_report_selects_runs_by_dataset_and_marks_samples(home, names, tables):
    run = {"metric": "mae", "metrics": {"test": {"mae": 0.25}}}
    for seconds, label in enumerate(("zinc", "zinc-sample", "zinc-copy")):
        folder = write_run(home, 0.25, dataset=label.removesuffix("-sample"), **run)
        if label == "zinc-sample":
            # Written where a training on a sample writes it.
            result = json.loads((folder / "result.json").read_text()) | {"sample": True}
            (folder / "result.json").write_text(json.dumps(result))
            config = (folder / "config.toml").read_text()
            (folder / "config.toml").write_text(config.replace("sample = false", "sample = true"))
            sample = home / "runs/zinc-sample/gps-kmip/run"
            sample.parent.mkdir(parents=True)
            folder = folder.rename(sample)
        os.utime(folder / "config.toml", (seconds, seconds))

    out = expect_success("report", *names).out
    assert re.findall(r"^(\S+(?: \(sample)?).*: MAE on test", out, re.MULTILINE) == tables
    out = expect_success("runs").out
    assert out.count("0.2500 MAE") == 3
    assert re.findall(r"^(\S+)/gps-kmip/", out, re.MULTILINE) == [
        "zinc-copy",
        "zinc-sample",
        "zinc",
    ]
    assert out.endswith(f"\n\n{SAMPLE_NOTE}\n")


def test_latex_has_model_test_and_difference_in_a_page_with_escaped_names(runs):
    write_run(runs, 0.6, dataset="my_data&more", model="gcn", complete=None)
    changes = ["training.epochs=20", "model.dropout=0.3", "model.layers=2"]
    write_run(runs, 0.4, dataset="paris", changes=changes)
    out = expect_success("report", "--format", "latex").out
    for row in (
        r"gps-kmip & \textbf{53.15 $\pm$ 0.13} & $-$0.47 \\",
        r"gps-kmip, k=5 & \underline{52.30 $\pm$ 0.26}",
        r"50.00 $\pm$ 0.00 $^\dagger$",
        r"gps-kmip, layers=2, dropout=0.3, \dots{}",
        r"my\_data\&more: accuracy [\%]",
    ):
        assert row in out
    assert out.count(r"\begin{tabular}{lrr}") == 1


def test_csv_and_json_have_the_same_rows(runs, tmp_path):
    rows = list(csv.DictReader(io.StringIO(expect_success("report", "--format", "csv").out)))
    assert expect_success("report", "--format", "json", "--output", tmp_path / "r.json").out == ""
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["notices"] == []
    assert len(rows) == 3
    for one, other in zip(rows, report["rows"], strict=True):
        assert one == {key: "" if other[key] is None else str(other[key]) for key in one}
    page = (ROOT / "docs/reports.md").read_text("utf-8")
    assert [key for key in report["rows"][0] if f"`{key}`" not in page] == []


def test_html_is_one_file_with_its_pictures(runs, tmp_path):
    write_run(runs, 0.6, dataset="<script>x", model="gcn", complete=None)
    strange = (
        b"",
        b"\xff\xfe",
        b"epoch,val_accuracy\n0,x\n",
        b"a" * 1000,
    )  # curves of somebody else
    for folder, data in zip(
        sorted((runs / "runs/paris/gps-kmip").iterdir()), strange, strict=False
    ):
        (folder / "metrics.csv").write_bytes(data)
    expect_success("report", "--format", "html", "--output", tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text("utf-8")
    assert "<script>x" not in text
    assert not re.search(r"""\b(src|href)=["'][^#]""", text)
    assert text.count("<table>") == 2
    assert text.count("<svg") == text.count("</svg>") == 2, "the curves of each table"
    assert re.search(r"<p class=\"about\">\d{4}-\d\d-\d\d \d\d:\d\d; runs of /", text)
    assert text.count("<dt>test</dt>") == 2
    assert "<b>53.15 ± 0.13</b>" in text
    assert "50.00 ± 0.00 †" in text
    # Letters of pictures have the colour of the page.
    assert "#222222" not in text[text.index("<svg") :]


def test_a_report_sorts_and_filters(runs, tmp_path):
    expect_success("report", "--format", "html", "--output", tmp_path / "r.html")
    page = act(
        tmp_path / "r.html",
        """
        const table = document.querySelector("table"), [head, ...rows] = [...table.rows];
        const column = [...head.cells].findIndex((cell) => cell.textContent === "test");
        const values = () => rowsOf(table).map((row) => parseFloat(row.cells[column].textContent));
        const button = head.cells[column].firstChild;
        button.click();
        const up = values();
        button.click();
        const down = values(), sorted = head.cells[column].getAttribute("aria-sort");
        const filter = document.getElementById("filter");
        filter.value = rows[0].cells[0].textContent.toUpperCase() + " " + rows[0].cells[column].textContent;
        filter.dispatchEvent(new Event("input"));
        const seen = rowsOf(table).filter((row) => row.checkVisibility()).length;
        filter.value = "none such";
        filter.dispatchEvent(new Event("input"));
        const all = [...document.querySelectorAll("h2, table, svg, #none")];
        const left = all.filter((each) => each.checkVisibility());
        return { up, down, sorted, seen, all: rows.length, left: left.map((each) => each.textContent) };""",
        tmp_path,
    )
    assert page["up"] == sorted(page["up"])
    assert page["down"] == page["up"][::-1]
    assert (page["sorted"], page["seen"]) == ("descending", 1)
    assert page["all"] > 1
    assert page["left"] == ["No row has all of these words."]


def test_a_phone_shows_the_best_row_first_with_its_result_visible(runs, tmp_path):
    write_run(runs, 0.9, dataset="paris", model="mlp")  # last by its name
    expect_success("report", "--format", "html", "--output", tmp_path / "r.html")
    page = act(
        tmp_path / "r.html",
        """
        const page = document.cloneNode(true).documentElement;
        page.querySelectorAll("script").forEach((each) => each.remove()); // this one, too
        const frame = Object.assign(document.createElement("iframe"), { srcdoc: page.outerHTML });
        frame.style = "width: 390px; height: 844px; border: 0";
        await new Promise((done) => { frame.addEventListener("load", done); document.body.append(frame); });
        const table = frame.contentDocument.querySelector("table"), [head, ...rows] = [...table.rows];
        const names = [...head.cells].map((cell) => cell.textContent);
        const column = names.indexOf("test"), model = names.indexOf("model");
        const box = rows[0].cells[column].getBoundingClientRect();
        return { names, right: box.right, models: rows.map((row) => row.cells[model].textContent),
                 values: rows.map((row) => parseFloat(row.cells[column].textContent)),
                 headline: frame.contentDocument.querySelector("h2").textContent };""",
        tmp_path,
    )
    assert page["values"] == sorted(page["values"], reverse=True)
    assert page["models"][0].startswith("mlp")
    assert page["models"] != sorted(page["models"])
    assert page["right"] <= 390
    assert page["names"][-1] == "changes"
    assert page["headline"] == "paris: accuracy [%] on test"
