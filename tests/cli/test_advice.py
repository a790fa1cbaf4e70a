"""Advice of errors and of finished commands, typed as it was printed."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from support import type_advice
from support.cli import expect_refusal, expect_success, kmip
from support.plugins import fresh

from kmip_data.builds.home import Home, list_builds, unused_name
from kmip_data.models.training.config.compose import compose_configuration

TINY = ["--model", "gcn", *type_advice.TINY]
STOPPED = [*TINY, "--epochs", "2", "--stop-after", "1", "--name"]
LONGER = ["--stop-after", "2", "-q"]

#: Two plugins of a training.
SCHEDULE = """\
from kmip_data.models.training.schedules import Schedule, schedule_by_factor

PLUGIN = {"schedules": {"line": Schedule(schedule_by_factor(lambda time, options: 1.0))}}
"""
OPTIMIZER = """\
import torch
from kmip_data.models.training.optimizers import OptimizerFactory

PLUGIN = {"optimizers": {"radam": OptimizerFactory(torch.optim.RAdam)}}
"""


def command_in(text: str) -> list[str]:
    """Return the words of the first command after the last ``next`` of a message."""
    advice = re.split("next: |Next: ", text)[-1]
    return shlex.split(re.search(r"kmip-data (.+?)(?= \(| && |[;,\n]|$)", advice)[1])


@pytest.fixture
def run(user: Path) -> str:
    """A finished run on the build ``assay``, which has targets."""
    return "assay/gcn/one"


def test_a_file_in_place_of_a_name_gets_a_name_that_no_build_has(run, home):
    for line in (["train", "assay.csv"], ["predict", run, "--dataset", "assay.csv"]):
        words = command_in(expect_refusal(*line))
        name = words[words.index("--name") + 1]
        assert not list_builds(Home(home), name)
        expect_success(*words, "-q")
        # The build with targets is still the one that its name means.
        expect_success("train", "assay", *TINY)
    words = command_in(expect_refusal("build", "graphs", "assay.csv"))
    assert words[:4] == ["build", "graphs", "--name", "assay-4"]
    words = command_in(expect_refusal("build", "graphs", "--archive", "assay.csv"))
    assert words[-2:] == ["--name", "assay-4"]
    expect_success(*words, "-q")
    assert unused_name("assay", Home(home)) == "assay-5"
    # A file with the name of a dataset does not hide it.
    Path("assay-4").touch()
    expect_success("info", "assay-4")


def test_new_data_are_named_differently_from_every_build(run):
    name = "new"
    for line in (["build", "graphs", "--name", "new", "--archive", "assay.csv", "-q"], None):
        if line:
            expect_success(*line)
            name = "new-2"
        out = expect_success("train", "assay", *TINY).out
        build, predict = re.search(
            "On new data, with or without labels: kmip-data (.*); then: kmip-data (.*)", out
        ).groups()
        assert f"--name {name} " in build
        assert predict.endswith(f"--dataset {name}")
    expect_success(*shlex.split(build.replace("FILE", "assay.csv")), "-q")
    expect_success(*shlex.split(predict))


def test_new_data_get_the_encodings_that_the_network_reads(run):
    tiny = ["--set", "model.hidden_dim=64", "--set", "model.positional=rwse"]
    out = expect_success("train", "assay", *TINY, *tiny, "--name", "walks").out
    advice = re.search(r"On new data, with or without labels: (.*)", out)[1]
    build, encode, predict = (shlex.split(step)[1:] for step in advice.split("; then: "))
    assert (build[0], encode[0], predict[0]) == ("build", "encode", "predict")
    build[build.index("FILE")] = "assay.csv"
    expect_success(*build, "-q")
    # Without the encoding, the refusal names the same command.
    assert command_in(expect_refusal(*predict)) == encode
    for step in (encode, predict):
        expect_success(*step)


def test_a_name_of_a_shipped_dataset_gets_a_name_that_no_build_has(user):
    build = ["build", "graphs", "--archive", "assay.csv", "-q"]
    for unused in ("my-cora", "my-cora-2"):
        words = command_in(expect_refusal(*build, "--name", "cora"))
        assert words[words.index("--name") + 1] == unused
        expect_success(*words)


def test_runs_that_cannot_be_read_are_not_denied(run, home):
    result = home / "runs" / run / "result.json"
    result.write_text(result.read_text().replace('"metric"', '"meter"'))
    message = expect_refusal("report", "assay")
    assert str(result.parent) in message
    expect_success(*command_in(message))


def test_remove_names_only_runs_of_the_typed_dataset(run, home):
    shutil.copytree(home / "runs" / run, home / "runs" / "rings" / "gcn" / "two")
    message = expect_refusal("remove", "assay/gcn")
    assert "assay/gcn is not a run but has 1 run.\n  found: runs/assay/gcn/one\n" in message
    for name in ("ringss/gcn", "sassay/gcn/one", "other/gcn"):
        message = expect_refusal("remove", name)
        hints = re.findall(r"'(runs/[^']+)'", message.partition("Did you mean")[2])
        for hint in hints:
            assert hint.split("/")[1] == {"ringss": "rings", "sassay": "assay"}[name.split("/")[0]]
    assert (home / "runs" / run).is_dir()


def test_settings_typed_without_set_get_it(user):
    line = ["build", "graphs", "label=toxic", "--name", "a", "--archive", "assay.csv", "-q"]
    words = command_in(expect_refusal(*line))
    assert words == [*line[:2], "--set", *line[2:]]
    expect_success(*words)
    words = command_in(expect_refusal("train", "a", *TINY, "optimizer.lr=0.1", "training.seed=1"))
    assert words[-4:] == ["--set", "optimizer.lr=0.1", "--set", "training.seed=1"]
    expect_success(*words)


def test_a_run_whose_build_moved_names_the_option_that_its_command_takes(run, home, tmp_path):
    expect_success("train", "assay", *STOPPED, "stopped")
    (folder,) = (home / "built").glob("assay-*")
    shutil.move(folder, tmp_path / "elsewhere")
    for command in ("predict", "evaluate"):
        message = expect_refusal(command, run)
        words = command_in(message)
        assert words == [command, str(home / "runs" / run), "--dataset", "FOLDER"]
        words[-1] = str(tmp_path / "elsewhere")
        expect_success(*words)

    # These commands take no other dataset: the build is moved back.
    for line in (["explore", run, "--no-open"], ["train", "--resume", "stopped", *LONGER]):
        message = expect_refusal(*line)
        assert "remedy: FOLDER is the moved build\n" in message
        move = re.search(r"next: (mv FOLDER .+)\n", message)[1]
        words = shlex.split(move.replace("FOLDER", str(tmp_path / "elsewhere")))
        subprocess.run(words, check=True)
        expect_success(*line)
        shutil.move(home / "built" / "elsewhere", tmp_path / "elsewhere")

    # So is a build that the run names by its folder.
    expect_success("train", tmp_path / "elsewhere", *STOPPED, "two")
    shutil.move(tmp_path / "elsewhere", tmp_path / "gone")
    for line in (
        ["explore", "assay/gcn/two", "--no-open"],
        ["train", "--resume", "assay/gcn/two", *LONGER],
    ):
        message = expect_refusal(*line)
        assert f"next: mv FOLDER {tmp_path}/elsewhere\n" in message


def test_a_missing_configuration_is_replaced_only_by_one_of_the_typed_dataset(run, home):
    config = home / "runs" / run / "config.toml"
    for words in (["--config", "none.toml"], ["assay", "--config", "none.toml"]):
        line = command_in(expect_refusal("train", *words))
        assert line[-2:] == ["--config", str(config)]
    for name in ("cora", "/", "other/gcn", "../x", "*"):
        for words in (
            [name, "--config", "none.toml"],
            ["--config", "none.toml", name],
        ):
            assert command_in(expect_refusal("train", *words)) == ["train", "--help"]
    expect_success(*line, "-q")


def test_options_that_a_command_lacks_are_not_added_to_its_line(run, home):
    for command in ("predict", "evaluate"):
        for path in (home / "built").glob("assay-*"):
            shutil.rmtree(path)
        advice = expect_refusal(command, run).partition("next: ")[2]
        assert not re.search(f"kmip-data {command} .*--set", advice)


def test_plugins_of_a_run_are_named_one_after_the_other(run):
    Path("first_plugin.py").write_text(SCHEDULE)
    Path("second_plugin.py").write_text(OPTIMIZER)
    line = ["train", "assay", *TINY, "--set", "schedule.kind=line", "--set", "optimizer.name=radam"]
    line += ["--plugin", "first_plugin.py", "--plugin=second_plugin.py", "--json"]
    with fresh():
        words = ["evaluate", expect_success(*line).json["run"]]
    for count in (1, 2):
        with fresh():
            words = command_in(expect_refusal(*words))
        assert words.count("--plugin") == count
    with fresh():
        expect_success(*words)


def test_next_step_of_a_sweep_keeps_its_plugins(run, tmp_path, in_process):
    (tmp_path / "my_plugin.py").write_text('PLUGIN = {"norms": {"my_norm": dict}}\n')
    line = ["sweep", "--dataset", "assay", "--plugin", "my_plugin.py", *TINY]
    line.remove("--device")
    line.remove("cpu")
    with fresh():
        words = command_in(expect_success(*line).out)
    assert words[words.index("--plugin") + 1] == "my_plugin.py"
    with fresh():
        expect_success(*words)
    assert "assay" in Path(words[words.index("--output") + 1]).read_text("utf-8")


def test_another_split_rule_replaces_the_preset_split(home):
    options = {"model": "gcn", "home": Home(home), "quiet": True}
    preset = compose_configuration("cora", {}, {}, **options).data.split
    assert preset == {"split_rule": "per-class", "split_seed": 123}
    for typed in ({"split_rule": "upstream"}, {"split_rule": "per-class"}, {"split_seed": 4}):
        config = compose_configuration("cora", {}, typed, **options)
        is_same_rule = typed.get("split_rule", "per-class") == "per-class"
        assert config.data.split == ({**preset, **typed} if is_same_rule else typed)


def test_a_described_choice_of_a_column_is_no_typed_option(home, tmp_path, monkeypatch):
    import networkx as nx

    monkeypatch.chdir(tmp_path)
    Path("old").mkdir()
    Path("old/nodes.csv").write_text("node,age,y\np,1,a\nq,2,b\nr,3,a\n")
    Path("old/edges.csv").write_text("source,target\np,q\nq,r\n")
    words = ["build", "graphs", "-q", "--name", "old", "--archive", "old", "--set", "label=y"]
    expect_success(*words, "--set", "node=node")
    graph = nx.path_graph(["p", "q", "r"])
    nx.set_node_attributes(graph, {"p": 1, "q": 2, "r": 3}, "age")
    nx.set_node_attributes(graph, {"p": "a", "q": "b", "r": "a"}, "y")
    nx.write_graphml(graph, "new.graphml")
    line = ["build", "graphs", "-q", "--name", "new", "--archive", "new.graphml"]
    outcome = kmip(*line, "--like", "old")
    assert "has no effect" not in outcome.err
    assert "node='id' has no effect" in expect_refusal(*line, "--set", "node=id")
