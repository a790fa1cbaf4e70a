"""Trainings on graphs of your own: what is refused before a run begins, and relative paths."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import torch
from support.cli import expect_refusal, expect_success, python
from torch_geometric.data import Data

import kmip_data
from kmip_data.builds.home import Home
from kmip_data.errors import UsageError
from kmip_data.models.training.config.overrides import apply_overrides
from kmip_data.models.training.config.presets import config_for_data
from kmip_data.models.training.data.open_data import open_data
from kmip_data.models.training.run.input_checks import check_encoders
from kmip_data.models.training.run.result import read_result
from kmip_data.models.training.run.run_folder import CONFIG_NAME
from kmip_data.models.training.run.summary import RunSummary

QUICK = ["--epochs", "1", "--device", "cpu", "--quiet", "--model", "gine"]
TINY = ["model.parameter_budget=none", "model.layers=1", "model.hidden_dim=8"]
SMALL = [word for key in TINY for word in ("--set", key)]
SPLIT = {"train": range(6), "val": range(6, 8), "test": range(8, 10)}


def graphs(count=10, **changes):
    """Rings of four nodes with a class; ``changes`` replace attributes, ``None`` leaves one out."""
    ring = torch.stack([torch.arange(4), torch.arange(4).roll(1)])
    made = []
    for number in range(count):
        values = {"x": torch.rand(4, 3), "edge_index": ring, "y": torch.tensor([number % 2])}
        values |= changes
        made.append(Data(**{name: value for name, value in values.items() if value is not None}))
    return made


def test_a_build_without_targets_is_refused_before_torch_loads(home, tmp_path):
    (tmp_path / "clouds").mkdir()
    for name in "abcdefgh":
        rows = "\n".join(f"{n} {n % 3} {n % 2}" for n in range(9))
        (tmp_path / "clouds" / f"{name}.txt").write_text(rows)
    words = ["build", "points", "--name", "bare", "--archive", tmp_path / "clouds", "--k", "2"]
    assert "Next: kmip-data preview bare" in expect_success(*words, "-q").out
    message = expect_refusal("train", "bare")
    assert "remedy: build it under another name, with a column as label" in message

    kmip_data.save(graphs(), tmp_path / "whole")
    assert "Did you mean 'gcn'" in expect_refusal("train", tmp_path / "whole", "--model", "GCN")
    kmip_data.save(graphs(y=None), tmp_path / "unlabelled", split=SPLIT)
    message = expect_refusal("train", tmp_path / "unlabelled")
    assert f"it has no targets y.\n  next: kmip-data info {tmp_path}" in message


EARLY = """
import sys
sys.modules["torch"] = None  # to import it, which takes seconds, is an error now
from kmip_data.cli.main import run_command_line as run
sys.exit(run(sys.argv[1:]))
"""


def test_refusals_that_need_no_torch_do_not_import_it(home, tmp_path, monkeypatch):
    kmip_data.save(graphs(y=None), tmp_path / "unlabelled", split=SPLIT)
    folder = home / "runs" / "s3dis" / "gine" / "mine"
    folder.mkdir(parents=True)
    (folder / CONFIG_NAME).touch()
    cases = {
        ("predict", "mine", "--output", tmp_path / "x.h5"): "next: kmip-data predict mine --output",
        ("train", tmp_path / "unlabelled"): "it has no targets",
    }
    for line, words in cases.items():
        assert words in python("-c", EARLY, *line, code=2).err


def test_a_run_on_a_relative_path_is_found_from_another_folder(home, tmp_path, monkeypatch):
    kmip_data.save(graphs(), tmp_path / "data" / "mine", split=SPLIT)
    monkeypatch.chdir(tmp_path / "data")
    run = expect_success("train", "./mine", *QUICK, *SMALL, "--name", "a", "--json").json["run"]
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert f'dataset = "{tmp_path}/data/mine"' in (Path(run) / CONFIG_NAME).read_text()
    assert expect_success("evaluate", run, "--json").json["same_as_result"] is True


def test_features_without_an_embedding_leave_no_run(home, tmp_path):
    """An edge attribute without an embedding is refused: ``from_smiles``'s number in one of 30 molecules."""
    bonds = [torch.tensor([[1, 0, 0]] * 4) for _ in range(30)]
    bonds[-1][0, 0] = 12
    molecules = graphs(30, x=torch.zeros(4, 9, dtype=torch.int64))
    for data, attributes in zip(molecules, bonds, strict=True):
        data.edge_attr = attributes
    split = {"train": range(10), "val": range(10, 20), "test": range(20, 30)}
    kmip_data.save(molecules, tmp_path / "molecules", split=split)
    words = ["train", tmp_path / "molecules", *QUICK, *SMALL, "--name", "mine"]
    message = expect_refusal(*words, "--set", "model.edge_encoder=bond", code=4)
    assert "found: column 0 is 0 to 12, OGB's 0 to 4" in message
    assert "--set model.edge_encoder=linear" in message

    kmip_data.save(graphs(edge_attr=torch.rand(4, 3)), tmp_path / "plain", split=SPLIT)
    plain = ["train", tmp_path / "plain", *QUICK, *SMALL, "--name", "mine"]
    message = expect_refusal(*plain, "--set", "model.edge_encoder=bond")
    assert "3 columns of torch.float32, not OGB's 3 of integers" in message
    assert not home.exists(), "a refused run has no folder, and its name is free"
    expect_success(*words, "--set", "model.edge_encoder=linear", "--set", "model.node_encoder=atom")


def test_a_metric_that_val_does_not_define_ends_after_one_epoch(home, tmp_path):
    split = {"train": range(6), "val": [6, 8], "test": [7, 9]}
    kmip_data.save(graphs(), tmp_path / "mine", split=split)
    words = ["train", tmp_path / "mine", *QUICK, *SMALL, "--epochs", "50", "--name", "a"]
    message = expect_refusal(*words, "--set", "training.metric=roc_auc", code=1)
    assert "The val part has no finite roc_auc.\n" in message
    assert "expected: rows of both classes" in message
    assert "use another training.metric or split" in message
    assert not [*home.rglob("metrics.csv")], "the first of 50 epochs ends the run"


def test_encoders_of_integers_refuse_the_numbers_of_one_graph(home, tmp_path):
    masks = {f"{part}_mask": torch.arange(4) == row for row, part in enumerate(SPLIT)}
    (graph,) = graphs(1, y=torch.tensor([0, 1, 0, 1]), edge_attr=torch.rand(4, 1), **masks)
    kmip_data.save([graph], tmp_path / "one")
    words = ["train", tmp_path / "one", *QUICK, *SMALL]
    for encoder in ("edge_encoder=bond", "node_encoder=atom", "edge_encoder=types4"):
        message = expect_refusal(*words, "--set", f"model.{encoder}")
        assert f"--set model.{encoder.partition('=')[0]}=linear" in message


def test_encoders_are_tried_on_the_cpu_before_a_gpu_run(home, tmp_path):
    kmip_data.save(graphs(edge_attr=torch.rand(4, 3)), tmp_path / "plain", split=SPLIT)
    config = config_for_data(str(tmp_path / "plain"), "gps-kmip")
    data = open_data(config, home=Home.locate(home))
    before = torch.random.get_rng_state()
    check_encoders(data.pin_settings(config), data)
    assert torch.equal(torch.random.get_rng_state(), before)
    wrong = apply_overrides(config, ["model.edge_encoder=bond", "model.local.kind=gated-gcn"])
    data = open_data(wrong, home=Home.locate(home))
    with pytest.raises(UsageError):
        check_encoders(data.pin_settings(wrong), data)


def write_rings(folder, sizes):
    """Write tables of rings of these numbers of nodes, whose class is the parity of their number."""
    folder.mkdir(exist_ok=True)
    nodes = ["graph,node,a"]
    edges = ["graph,source,target"]
    for graph, size in enumerate(sizes):
        nodes += [f"{graph},{node},{node % 2}" for node in range(size)]
        edges += [f"{graph},{node},{(node + 1) % size}" for node in range(size)]
    classes = ["graph,y", *(f"{graph},{graph % 2}" for graph in range(len(sizes)))]
    for name, lines in {"nodes": nodes, "edges": edges, "graphs": classes}.items():
        (folder / f"{name}.csv").write_text("\n".join(lines))


def test_a_run_keeps_using_the_build_it_was_trained_on(home, tmp_path):
    folder = tmp_path / "rings"
    build = ("build", "graphs", "--name", "rings", "--archive", folder)
    write_rings(folder, [3] * 20)
    expect_success(*build, "-q")
    words = ["train", "rings", *QUICK, *SMALL, "--epochs", "2", "--stop-after", "1"]
    run = Path(expect_success(*words, "--json").json["run"])
    first = expect_success("evaluate", run, "--json").json

    write_rings(folder, [5] * 20)
    second = expect_success(*build)
    assert "; the name rings means the newest build" in " ".join(second.out.split())
    outcome = expect_success("info", "rings", "--json")
    assert outcome.json["counts"]["nodes"] == 100
    assert "rings has 2 builds: uses the newest, " in outcome.err
    (other,) = re.findall("name ([^ ]+) to use another", outcome.err)

    again = expect_success("evaluate", run, "--json")
    assert again.json == first
    assert "has 2 builds" not in again.err
    key = read_result(run).build_key
    expect_success("train", "--resume", run, "--stop-after", "2", "-q")
    assert read_result(run).epochs == 2
    assert read_result(run).build_key == key

    expect_success("remove", other, "--yes")
    assert "has 2 builds" not in expect_success("info", "rings").err


@pytest.mark.slow
def test_commands_to_try_name_the_default_network_first_and_nothing_that_was_tried(
    home, tmp_path, monkeypatch
):
    """Each command is typed as printed, and is not printed again."""
    monkeypatch.setattr(RunSummary, "reference_sentence", "It is not better.")
    (tmp_path / "own").mkdir()
    nodes = [f"n{n},{n % 7},{'ab'[n % 2]}" for n in range(40)]
    edges = [f"n{n},n{(n + 1) % 40},{n % 5}.5" for n in range(40)]
    (tmp_path / "own/nodes.csv").write_text("\n".join(["id,size,kind", *nodes]))
    (tmp_path / "own/edges.csv").write_text("\n".join(["source,target,weight", *edges]))
    words = ["--archive", tmp_path / "own", "--set", "label=kind", "-q"]
    expect_success("build", "graphs", "--name", "own", *words)

    def commands_to_try(*line: object) -> list[list[str]]:
        advised = re.search(r"Try: (kmip-data .+)\n", expect_success(*line).out)
        return [shlex.split(text)[1:] for text in advised[1].split("; or ")] if advised else []

    quick = ["--device", "cpu", "--set", "training.eval_every=100"]
    sage = ["train", "own", "--model", "sage", "--epochs", "3", *quick]
    network, longer, *_ = commands_to_try(*sage)
    assert network == ["train", "own", "--model", "dir-sage"]
    assert longer[-2:] == ["--epochs", "300"]
    one_epoch = [*network, "--epochs", "1"]
    advised = commands_to_try(*one_epoch)
    assert advised[-1][-2:] == ["--epochs", "2"]
    expect_success(*advised[-1])
    assert commands_to_try(*one_epoch)[-1][-2:] != ["--epochs", "2"]

    lower_rate, *_ = commands_to_try(*longer)
    assert lower_rate[-1] == "optimizer.lr=0.0006"
    assert all(command[-2] == "--epochs" for command in commands_to_try(*lower_rate))
