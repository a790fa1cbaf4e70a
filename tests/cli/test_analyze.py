"""``analyze`` and ``evaluate --dump-qk`` through the command line."""

from pathlib import Path

import pytest
from support.cases import check_each
from support.cli import done, refused
from support.shared import ROOT

from kmip_data.cli.analyze import command as analyze
from kmip_data.models.analysis import expressivity
from kmip_data.models.analysis.projections import read_projections

QUICK = ["--epochs", "1", "--device", "cpu", "-q", "--set", "model.layers=3", "--set", "model.hidden_dim=8"]


def test_gaussian_table_files_and_json(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = done("analyze", "approximation", "--gaussian", "40x4", "--k", "1,10,40").out.splitlines()
    assert lines[0].split() == ["k", "distance", "normal", "outputs"]
    assert lines[3].split()[:2] == ["40", "0.0000"]
    assert (tmp_path / "approximation.png").read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / "approximation.csv").read_text().startswith("layer,graph,nodes,k,k-MIP,as published")
    published = done("analyze", "approximation", "--gaussian", "40x4", "--as-published", "--k", "1")
    assert published.out.splitlines()[0].split()[:3] == ["k", "as", "published"]
    args = ["--gaussian", "30x16", "--graphs", 2, "--json", "-q", "--save", tmp_path / "mine"]
    found = done("analyze", "cumulative-weight", *args).json
    assert (found["k"][-1], found["samples"]) == (30, 2)
    assert found["curves"]["k-MIP"]["mean"][-1] == pytest.approx(1)
    assert all(Path(path).is_file() for path in found["saved"])
    assert found["curves"]["Gaussian"]["mean"][0] != found["curves"]["k-MIP"]["mean"][0]


def test_a_run_its_dump_and_its_analysis(make_build, tmp_path):
    build = make_build()
    run = done("train", "--dataset", build.path, *QUICK, "--name", "mine", "--json").json["run"]
    assert "--dump-qk" in refused("evaluate", run, "--dump-qk", "/no/such/folder/x")
    dump = tmp_path / "qk.safetensors"
    outcome = done("evaluate", run, "--dump-qk", dump, "--split", "train", "--json").json
    assert set(outcome["metrics"]) == {"train", "val", "test"}
    found = read_projections(dump)
    counts = {"graphs": len(found.ptr) - 1, "layers": 3, "nodes": found.ptr[-1]}
    assert outcome["dump"] == {"file": str(dump), "part": "train", **counts}
    assert (found.about["part"], found.about["sample"]) == ("train", False)
    assert "dump" in done("evaluate", run, "--dump-qk", dump).out
    assert read_projections(dump).about["part"] == "test"

    of_run = done("analyze", "approximation", run, "--k", "1,2", "--json", "-q").json
    assert (Path(run) / "approximation.png").is_file()
    words = ("--k", "1,2", "--json", "-q", "--save", tmp_path / "a")
    of_file = done("analyze", "approximation", "--qk", dump, *words).json
    assert of_run["curves"] == of_file["curves"]
    assert of_run["samples"] == 2 * len(read_projections(dump).sizes)  # layers 1 and 2


#: Line -> words of its error; exit code 2 but for a damaged file.
WRONG = {
    "approximation": "RUN, --qk FILE or --gaussian",
    "approximation --gaussian 9x4 --qk x": "--qk and --gaussian",
    "approximation --gaussian 9": "'9' is not AxB",
    "approximation --gaussian 9x4 --nodes 0..9": "'0..9' is not A..B of numbers above 0",
    "approximation --gaussian 9x4 --k 1-3": "not a list of numbers",
    "approximation --gaussian 9x4 --k 0,1": "values of k",
    "approximation --gaussian 9x4 --k 1..999999999": "not a list of numbers",
    "approximation --gaussian 9x4 --save /no/such/x": "cannot be saved there",
    f"approximation --qk {ROOT / 'README.md'}": "cannot be read as projections",
    "approximation --qk no-such-file": "no-such-file",
}


def test_wrong_usage_is_named(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def check(line):
        code = 4 if "README" in line else 2
        assert WRONG[line] in refused("analyze", *line.split(), code=code)
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


def test_expressivity_prints_and_saves(tmp_path, monkeypatch):
    monkeypatch.setattr(expressivity, "fit", lambda k, depths, **_: iter([1 / (k + n) for n in depths]))
    shown = done("analyze", "expressivity", "-q", "--json", "--save", tmp_path / "mine").json
    assert shown["separated"]["2 C3, C6"] == {
        "1-WL": None, "S-SEG-WL": None, "+ rwse20": 0, "+ rwse3": 0, "+ lappe10": 0
    }  # fmt: skip
    verdicts = {(one["attention"], one["positional"]): one["verdict"] for one in shown["networks"]}
    assert verdicts["k-mip", "none"] == "bounded"
    assert verdicts["exphormer", "none"] == "order of nodes"
    assert (tmp_path / "mine.png").read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / "mine.csv").read_text().splitlines()[2] == '"2 C3, C6",6,,,0,0,0'
    assert shown["fits"]["depths"] == [1, 2, 4]
    assert shown["fits"]["errors"] == {"1": [1 / 2, 1 / 3, 1 / 5], "8": [1 / 9, 1 / 10, 1 / 12]}
    assert shown["fits"]["copied"]["8"] < 1e-5
