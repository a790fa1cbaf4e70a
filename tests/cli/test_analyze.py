"""``analyze`` through the command line."""

import shlex
from pathlib import Path

import pytest
from support.cases import check_each
from support.cli import expect_refusal, expect_success
from support.typed_advice import commands_in

from kmip_data.models.analysis.study import collect_run_projections

QUICK = [
    "--epochs",
    "1",
    "--device",
    "cpu",
    "-q",
    "--set",
    "model.layers=3",
    "--set",
    "model.hidden_dim=8",
]


def test_analyze_writes_a_table_files_and_json(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = expect_success(
        "analyze", "approximation", "--gaussian", "40x4", "--k", "1,10,40"
    ).out.splitlines()
    assert lines[0].split() == ["k", "k-MIP", "normal", "outputs"]
    assert lines[3].split()[:2] == ["40", "0.0000"]
    assert not [*tmp_path.iterdir()], "nobody asked for files"
    words = ("analyze", "approximation", "--gaussian", "40x4", "--save", tmp_path / "a")
    expect_success(*words)
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / "a.csv").read_text().startswith("layer,graph,nodes,k,k-MIP,normal")
    assert "exists already" in expect_refusal(*words)
    args = ["--gaussian", "30x16", "--json", "-q", "--save", tmp_path / "mine"]
    result = expect_success("analyze", "cumulative-weight", *args).json
    assert (result["k"][-1], result["samples"]) == (30, 1)
    assert result["curves"]["k-MIP"]["mean"][-1] == pytest.approx(1)
    assert all(Path(path).is_file() for path in result["saved"])
    assert result["curves"]["Gaussian"]["mean"][0] != result["curves"]["k-MIP"]["mean"][0]


def test_a_run_is_analysed_without_its_first_layer(make_build):
    words = ("train", make_build().path, *QUICK, "--json")
    run = expect_success(*words, "--name", "mine").json["run"]
    both = expect_refusal("analyze", "approximation", run, "--gaussian", "9x4")
    advised = [f"kmip-data analyze approximation {words}" for words in (run, "--gaussian 9x4")]
    assert commands_in(both) == advised
    commands = commands_in(expect_refusal("analyze", "approximation"))
    of_run, of_gaussian = (shlex.split(command)[1:] for command in commands)
    expect_success(*of_gaussian, "--k", "1,2", "--queries", "9", "-q")
    text = expect_success(*of_run[:-1], run, "--k", "1,2", "-q").out
    assert (Path(run) / "approximation.png").is_file()
    assert f"2 layers of {len(collect_run_projections(run).sizes)} graph" in text
    assert "the first layer left out" in text
    gcn = expect_success(*words, "--model", "gcn", "--name", "gcn").json["run"]
    assert "has no k-MIP attention to record" in expect_refusal("analyze", "approximation", gcn)


def test_wrong_usage_is_named(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cases = {
        "": "Neither RUN nor --gaussian is given",
        "--gaussian 9": "'9' is not NxD of numbers above 0",
        "--gaussian 9x4 --nodes 0..9": "'0..9' is not A..B of numbers above 0",
        "--gaussian 9x4 --k 0,1": "values of k",
        "--gaussian 9x4 --save /no/such/x": "the folder /no/such does not exist",
    }

    def check(line):
        assert cases[line] in expect_refusal("analyze", "approximation", *line.split())
        assert not any(tmp_path.iterdir())

    check_each(check, cases)


def test_help_of_analyze_is_written_in_sentences():
    assert "…" not in expect_success("analyze", "--help").out.replace("[SWEEP|RUN…]", "")
    assert "..." not in expect_success("analyze", "--help").out.split("Commands:")[1]
