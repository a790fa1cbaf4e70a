"""``analyze`` through the command line."""

from pathlib import Path

import pytest
from support.cases import check_each
from support.cli import done, refused
from support.shared import ROOT

from kmip_data.cli.analyze import command as analyze
from kmip_data.models.analysis import expressivity
from kmip_data.models.analysis.study import record_run

QUICK = ["--epochs", "1", "--device", "cpu", "-q", "--set", "model.layers=3", "--set", "model.hidden_dim=8"]


def test_gaussian_table_files_and_json(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = done("analyze", "approximation", "--gaussian", "40x4", "--k", "1,10,40").out.splitlines()
    assert lines[0].split() == ["k", "k-MIP", "as", "published", "normal", "outputs"]
    assert lines[3].split()[:2] == ["40", "0.0000"]
    assert (tmp_path / "approximation.png").read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / "approximation.csv").read_text().startswith("layer,graph,nodes,k,k-MIP,as published")
    args = ["--gaussian", "30x16", "--graphs", 2, "--json", "-q", "--save", tmp_path / "mine"]
    found = done("analyze", "cumulative-weight", *args).json
    assert (found["k"][-1], found["samples"]) == (30, 2)
    assert found["curves"]["k-MIP"]["mean"][-1] == pytest.approx(1)
    assert all(Path(path).is_file() for path in found["saved"])
    assert found["curves"]["Gaussian"]["mean"][0] != found["curves"]["k-MIP"]["mean"][0]


def test_a_run_is_analysed_without_its_first_layer(make_build):
    build = make_build()
    words = ("train", "--dataset", build.path, *QUICK, "--json")
    run = done(*words, "--name", "mine").json["run"]
    found = done("analyze", "approximation", run, "--k", "1,2", "--json", "-q").json
    assert (Path(run) / "approximation.png").is_file()
    graphs = len(record_run(run).sizes)
    assert found["samples"] == 2 * graphs
    text = done("analyze", "approximation", run, "--k", "1,2", "-q").out
    assert f"2 layers of {graphs} graph" in text
    assert "the first layer left out" in text
    gcn = done(*words, "--model", "gcn", "--name", "gcn").json["run"]
    assert "has no k-MIP attention to record" in refused("analyze", "approximation", gcn)


#: Line -> words of its error.
WRONG = {
    "approximation": "Neither RUN nor --gaussian is given",
    "approximation --gaussian 9x4 x/y/z": "There is no run called 'x/y/z'",
    "approximation --gaussian 9": "'9' is not AxB of numbers above 0",
    "approximation --gaussian 9x4 --nodes 0..9": "'0..9' is not A..B of numbers above 0",
    "approximation --gaussian 9x4 --k 1-3": "not a list of numbers",
    "approximation --gaussian 9x4 --k 0,1": "values of k",
    "approximation --gaussian 9x4 --k 1..999999999": "not a list of numbers",
    "approximation --gaussian 9x4 --save /no/such/x": "cannot be saved there",
}


def test_wrong_usage_is_named(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def check(line):
        assert WRONG[line] in refused("analyze", *line.split())
        assert not any(tmp_path.iterdir())

    check_each(check, WRONG)


def test_help_has_examples_that_parse():
    documented = (ROOT / "docs" / "analysis.md").read_text("utf-8")

    def check(name):
        command = analyze.commands[name]
        text = done("analyze", name, "--help").out
        for example in command.examples:
            assert f"  {example}\n" in text
            command.make_context(name, example.split()[3:], resilient_parsing=True).close()
        words = {word for param in command.params for word in param.opts if word.startswith("--")}
        of_all = {"--home", "--json", "--quiet"}
        assert [word for word in words - of_all if f"`{word}" not in documented] == []

    check_each(check, analyze.commands)


def test_expressivity_prints_its_tables(monkeypatch):
    monkeypatch.setattr(expressivity, "fit", lambda k, depths, **_: iter([1 / (k + n) for n in depths]))
    pairs = {name: pair for name, pair in expressivity.known_pairs().items() if len(pair[0]) in {6, 16}}
    monkeypatch.setattr(expressivity, "known_pairs", lambda: pairs)
    shown = done("analyze", "expressivity", "-q", "--json").json
    assert shown["separated"]["2 C3, C6"] == {
        "1-WL": None, "S-SEG-WL": None, "+ rwse20": 0, "+ rwse3": 0, "+ lappe10": 0
    }  # fmt: skip
    verdicts = {(one["attention"], one["positional"]): one["verdict"] for one in shown["networks"]}
    assert verdicts["k-mip", "none"] == "bounded"
    assert verdicts["exphormer", "none"] == "order of nodes"
    assert shown["fits"]["depths"] == [1, 2, 4]
    assert shown["fits"]["errors"] == {"1": [1 / 2, 1 / 3, 1 / 5], "8": [1 / 9, 1 / 10, 1 / 12]}
    assert shown["fits"]["copied"]["8"] < 1e-5
