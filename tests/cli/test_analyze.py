"""``analyze`` through the command line."""

from pathlib import Path

import pytest
from support.cases import check_each
from support.cli import kmip
from support.shared import ROOT

from kmip_data.cli.analyze import command as analyze
from kmip_data.models.analysis import expressivity

QUICK = ["--epochs", "1", "--device", "cpu", "-q", "--set", "model.layers=3", "--set", "model.hidden_dim=8"]


def test_gaussian_table_and_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = kmip("analyze", "approximation", "--gaussian", "40x4", "--k", "1,10,40")
    assert outcome.code == 0, outcome.err
    lines = outcome.out.splitlines()
    assert lines[0].split() == ["k", "distance", "normal", "outputs"]
    assert lines[3].split()[:2] == ["40", "0.0000"]
    assert (tmp_path / "approximation.png").read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / "approximation.csv").read_text().startswith("layer,graph,nodes,k,k-MIP,as published")
    published = kmip("analyze", "approximation", "--gaussian", "40x4", "--as-published", "--k", "1")
    assert published.out.splitlines()[0].split()[:3] == ["k", "as", "published"]


def test_json_and_prefix(tmp_path):
    args = ["--gaussian", "30x16", "--graphs", 2, "--json", "-q", "--save", tmp_path / "mine"]
    found = kmip("analyze", "cumulative-weight", *args).json
    assert found["k"][-1] == 30
    assert found["curves"]["k-MIP"]["mean"][-1] == pytest.approx(1)
    assert found["samples"] == 2
    assert all(Path(path).is_file() for path in found["saved"])
    assert found["curves"]["Gaussian"]["mean"][0] != found["curves"]["k-MIP"]["mean"][0]


def test_a_run_is_analysed_without_its_first_layer(make_build):
    build = make_build()
    run = kmip("train", "--dataset", build.path, *QUICK, "--name", "mine", "--json").json["run"]
    found = kmip("analyze", "approximation", run, "--k", "1,2", "--json", "-q")
    assert found.code == 0, found.err
    assert (Path(run) / "approximation.png").is_file()
    graphs = build.card.splits["default"].parts["test"].count
    assert found.json["samples"] == 2 * graphs
    said = kmip("analyze", "approximation", run, "--k", "1,2", "-q").out
    assert f"2 layers of {graphs} graph" in said
    assert "the first layer left out" in said
    gcn = kmip("train", "--dataset", build.path, *QUICK, "--model", "gcn", "--name", "gcn", "--json").json[
        "run"
    ]
    refused = kmip("analyze", "approximation", gcn)
    assert refused.code == 2
    assert "has no k-MIP attention to record" in refused.err


GAUSSIAN = ["approximation", "--gaussian", "9x4"]
WRONG = [
    (["approximation"], 2, "Neither RUN nor --gaussian is given"),
    ([*GAUSSIAN, "x/y/z"], 2, "Both RUN and --gaussian are given"),
    (["approximation", "--n", "5"], 2, "--gaussian NxD"),
    (["approximation", "--gaussian", "9"], 2, "'9' is not AxB"),
    ([*GAUSSIAN, "--nodes", "0..9"], 2, "'0..9' is not A..B of numbers above 0"),
    ([*GAUSSIAN, "--k", "1-3"], 2, "not a list of numbers"),
    ([*GAUSSIAN, "--k", "0,1"], 2, "values of k"),
    ([*GAUSSIAN, "--k", "1..999999999"], 2, "not a list of numbers"),
    ([*GAUSSIAN, "--save", "/no/such/x"], 2, "cannot be saved there"),
    (["approximation", "no-such-run"], 2, "no-such-run"),
    (["approximation", "--qk", "x"], 2, "record_run"),
    (["aproximation"], 2, "Did you mean 'approximation'"),
    (["classes"], 2, "kmip-data evaluate RUN --by-class"),
]


def test_wrong_usage_is_named(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wrong = []
    for args, code, word in WRONG:
        outcome = kmip("analyze", *args)
        if outcome.code != code or word not in outcome.err or any(tmp_path.iterdir()):
            wrong.append((args, outcome.code, outcome.err))
    assert not wrong


def test_help_has_examples_that_parse():
    def check(name):
        command = analyze.commands[name]
        text = kmip("analyze", name, "--help").out
        for example in command.examples:
            assert f"  {example}\n" in text
            command.make_context(name, example.split()[3:], resilient_parsing=True).close()
        documented = (ROOT / "docs" / "analysis.md").read_text("utf-8")
        words = {word for param in command.params for word in param.opts if word.startswith("--")}
        of_all = {"--home", "--json", "--quiet"}
        assert [word for word in words - of_all if f"`{word}" not in documented] == []

    check_each(check, analyze.commands)


@pytest.fixture
def fitted(monkeypatch):
    """No transformer is fitted."""
    monkeypatch.setattr(expressivity, "fit", lambda k, depths, **_: iter([1 / (k + n) for n in depths]))


@pytest.mark.usefixtures("fitted")
def test_expressivity_prints_and_saves(tmp_path):
    shown = kmip("analyze", "expressivity", "-q", "--json", "--save", tmp_path / "mine").json
    assert shown["separated"]["2 C3, C6"] == {
        "1-WL": None, "S-SEG-WL": None, "+ rwse20": 0, "+ rwse3": 0, "+ lappe10": 0
    }  # fmt: skip
    verdicts = {(one["attention"], one["positional"]): one["verdict"] for one in shown["networks"]}
    assert verdicts["k-mip", "none"] == "bounded"
    assert verdicts["exphormer", "none"] == "order of nodes"
    assert (tmp_path / "mine.png").read_bytes()[:4] == b"\x89PNG"
    lines = (tmp_path / "mine.csv").read_text().splitlines()
    assert lines[2] == '"2 C3, C6",6,,,0,0,0'
    assert shown["fits"]["depths"] == [1, 2, 4]
    assert shown["fits"]["errors"] == {"1": [1 / 2, 1 / 3, 1 / 5], "8": [1 / 9, 1 / 10, 1 / 12]}
    assert shown["fits"]["copied"]["8"] < 1e-5
