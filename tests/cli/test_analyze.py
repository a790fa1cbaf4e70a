"""``analyze`` and ``evaluate --dump-qk`` through the command line."""

from pathlib import Path

import pytest
from support.cases import check_each
from support.cli import kmip
from support.reports import write_run
from support.shared import ROOT

from kmip_data.cli.analyze import command as analyze
from kmip_data.models.analysis import expressivity
from kmip_data.models.analysis.projections import read_projections

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


def test_a_run_its_dump_and_its_analysis(make_build, tmp_path):
    build = make_build()
    run = kmip("train", "--dataset", build.path, *QUICK, "--name", "mine", "--json").json["run"]
    dump = tmp_path / "qk.safetensors"
    outcome = kmip("evaluate", run, "--dump-qk", dump, "--split", "train", "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.json["dump"]["layers"] == 3
    assert set(outcome.json["metrics"]) == {"train", "val", "test"}
    found = read_projections(dump)
    assert outcome.json["dump"]["graphs"] == len(found.ptr) - 1
    assert found.ptr[-1] == outcome.json["dump"]["nodes"]
    assert found.about["part"] == "train"
    assert found.about["sample"] is False
    assert "dump" in kmip("evaluate", run, "--dump-qk", dump).out
    assert read_projections(dump).about["part"] == "test"

    of_run = kmip("analyze", "approximation", run, "--k", "1,2", "--json", "-q")
    assert of_run.code == 0, of_run.err
    assert (Path(run) / "approximation.png").is_file()
    of_file = kmip("analyze", "approximation", "--qk", dump, "--k", "1,2", "--json", "-q", "--save",
                   tmp_path / "a")  # fmt: skip
    assert of_run.json["curves"] == of_file.json["curves"]
    assert of_run.json["samples"] == 2 * len(read_projections(dump).sizes)  # layers 1 and 2


GAUSSIAN = ["approximation", "--gaussian", "9x4"]
WRONG = [
    (["approximation"], 2, "RUN, --qk FILE or --gaussian"),
    ([*GAUSSIAN, "--qk", "x"], 2, "--qk and --gaussian"),
    (["approximation", "--qk", "x", "--n", "5"], 2, "--gaussian NxD"),
    (["approximation", "--gaussian", "9"], 2, "'9' is not AxB"),
    ([*GAUSSIAN, "--nodes", "0..9"], 2, "'0..9' is not A..B of numbers above 0"),
    ([*GAUSSIAN, "--k", "1-3"], 2, "not a list of numbers"),
    ([*GAUSSIAN, "--k", "0,1"], 2, "values of k"),
    ([*GAUSSIAN, "--k", "1..999999999"], 2, "not a list of numbers"),
    ([*GAUSSIAN, "--save", "/no/such/x"], 2, "cannot be saved there"),
    (["approximation", "no-such-run"], 2, "no-such-run"),
    (["approximation", "--qk", str(ROOT / "README.md")], 4, "cannot be read as projections"),
    (["approximation", "--qk", "no-such-file"], 2, "no-such-file"),
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


def test_dump_into_no_folder_is_told_before_the_work(home):
    run = write_run(home, 0.5)
    outcome = kmip("evaluate", run, "--dump-qk", "/no/such/folder/x")
    assert outcome.code == 2
    assert "--dump-qk" in outcome.err


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
