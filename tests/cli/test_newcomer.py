"""What a new user met: advice that can be followed, errors that read well, and what follows a build."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import torch
from support.cases import check_each
from support.cli import done, kmip_process, python, refused
from torch_geometric.data import Data

import kmip_data
from kmip_data.builds.home import Home
from kmip_data.errors import UsageError
from kmip_data.models import KMIPAttention, KMIPMultiheadAttention
from kmip_data.models.training.config.overrides import apply_overrides
from kmip_data.models.training.config.presets import config_for
from kmip_data.models.training.data.graphs import open_data
from kmip_data.models.training.run.folder import CONFIG_NAME
from kmip_data.models.training.run.train import try_encoders

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


def test_errors_read_well_and_name_what_can_be_done(home, make_build, tmp_path):
    made, file = make_build(), tmp_path / "file"
    file.write_text("mine")
    (tmp_path / "scans").mkdir()
    (tmp_path / "scans" / "a.e57").write_text("ASTM-E57")
    cases = {
        ("train", "helsinki", "--epochs", "1.5"): "'1.5' is not a valid integer.",
        ("train", "helsinki", "--dataset", "paris"): "Two datasets are named: helsinki and paris.",
        ("build", "s3dis", "--jobs", "few"): "'few' is not a valid integer.",
        ("list", "--home", file): f"The home {file} is not a folder.",
        ("build", "points", "--name", "mine", "--archive", tmp_path / "scans"):
            "a folder of .csv, .las, .laz, .npy, .pcd, .ply, .pts, .txt, .xyz files",
        ("verify", "s3dis"): f"next: name {made.path.name} instead; or",
        ("verify", "s3dis", "--sample"): "or kmip-data build s3dis --sample",
    }  # fmt: skip
    check_each(lambda case: check_in(cases[case], refused(*case)), cases)
    assert file.read_text() == "mine"


def check_in(words, message):
    assert words in message


def test_an_anchor_that_is_the_only_member_is_named_once(home, tmp_path):
    plugin = tmp_path / "ringlet_plugin.py"
    plugin.write_text(RINGLETS)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x.dat").touch()
    words = ["build", "ringlets", "--plugin", plugin, "--archive", tmp_path / "other"]
    assert kmip_process(*words, code=4).err.count("*/*.txt") == 1


RINGLETS = """
from kmip_data.format.schema import Schema
from kmip_data.pipelines.base import Pipeline

class Ringlets(Pipeline):
    facts = {"files": "*/*.txt"}
    version = 1
    def schema(self, params): return Schema(columns=())
    def units(self, prepared, params): return []
    def records(self, prepared, unit, params): return []

PLUGIN = {"datasets": {"ringlets": Ringlets}}
"""


@pytest.mark.parametrize("command", ["push", "explore", "analyze approximation", "report"])
def test_a_command_that_opens_runs_takes_their_plugins(command):
    assert "--plugin FILE" in done(*command.split(), "--help").out


def test_report_takes_the_runs_without_a_plan_and_says_what_it_wrote(home, tmp_path):
    message = refused("report", "sweep")
    assert "There is no finished run to report." in message
    assert "There is no sweep" not in message


def test_a_build_without_targets_or_split_is_said_before_torch_and_not_advised(home, tmp_path):
    (tmp_path / "clouds").mkdir()
    for name in "abcdefgh":
        rows = "\n".join(f"{n} {n % 3} {n % 2}" for n in range(9))
        (tmp_path / "clouds" / f"{name}.txt").write_text(rows)
    words = ["build", "points", "--name", "bare", "--archive", tmp_path / "clouds", "--k", "2"]
    assert "Next: kmip-data preview bare" in done(*words, "-q").out
    message = refused("train", "bare")
    assert "next: build it under another --name with --set label_column=COLUMN" in message

    kmip_data.save(graphs(), tmp_path / "whole")
    assert "Did you mean 'gcn'?" in refused("train", tmp_path / "whole", "--model", "GCN")
    message = refused("train", tmp_path / "whole")
    assert "it has no split.\n  next: kmip_data.save(…, split={" in message
    kmip_data.save(graphs(y=None), tmp_path / "unlabelled", split=SPLIT)
    message = refused("train", tmp_path / "unlabelled")
    assert (
        f"it has no targets y of nodes or graphs, or links.\n  next: kmip-data info {tmp_path}"
        in message
    )


EARLY = """
import sys
sys.modules["torch"] = None  # to import it, which takes seconds, is an error now
from kmip_data.cli.main import run
sys.exit(run(sys.argv[1:]))
"""


def test_refusals_that_need_no_torch_do_not_import_it(home, tmp_path, monkeypatch):
    kmip_data.save(graphs(y=None), tmp_path / "unlabelled", split=SPLIT)
    folder = home / "runs" / "s3dis" / "gine" / "mine"
    folder.mkdir(parents=True)
    (folder / CONFIG_NAME).touch()
    cases = {
        ("predict", "mine", "--output", tmp_path / "x.h5"): "next: --output",
        ("train", tmp_path / "unlabelled"): "it has no targets",
    }
    for line, words in cases.items():
        assert words in python("-c", EARLY, *line, code=2).err


def test_a_run_on_a_relative_path_is_found_from_another_folder(home, tmp_path, monkeypatch):
    kmip_data.save(graphs(), tmp_path / "data" / "mine", split=SPLIT)
    monkeypatch.chdir(tmp_path / "data")
    run = done("train", "mine", *QUICK, *SMALL, "--name", "a", "--json").json["run"]
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert f'dataset = "{tmp_path}/data/mine"' in (Path(run) / CONFIG_NAME).read_text()
    assert done("evaluate", run, "--json").json["same_as_result"] is True


def test_k_of_no_keys_is_refused_by_the_constructors():
    for k in (0, -1, 2.5, True):
        with pytest.raises(UsageError, match="an integer of at least 1"):
            KMIPAttention(8, heads=2, key_dim=4, k=k)
        with pytest.raises(UsageError, match="an integer of at least 1"):
            KMIPMultiheadAttention(8, 2, k=k)


def test_a_signal_while_a_plugin_is_imported_is_not_its_fault(home, tmp_path):
    text = "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\nimport time; time.sleep(60)\n"
    (tmp_path / "slow_plugin.py").write_text(text)
    words = ["info", "s3dis", "--plugin", tmp_path / "slow_plugin.py"]
    ended = kmip_process(*words, code=128 + signal.SIGTERM)
    assert "cannot be imported" not in ended.err


def test_features_without_an_embedding_leave_no_run(home, tmp_path):
    """Of 30 molecules the last alone has an aromatic bond, as ``from_smiles`` numbers it."""
    bonds = [torch.tensor([[1, 0, 0]] * 4) for _ in range(30)]
    bonds[-1][0, 0] = 12
    molecules = graphs(30, x=torch.zeros(4, 9, dtype=torch.int64))
    for data, attributes in zip(molecules, bonds, strict=True):
        data.edge_attr = attributes
    split = {"train": range(10), "val": range(10, 20), "test": range(20, 30)}
    kmip_data.save(molecules, tmp_path / "molecules", split=split)
    words = ["train", tmp_path / "molecules", *QUICK, *SMALL, "--name", "mine"]
    message = refused(*words, "--set", "model.edge_encoder=bond", code=4)
    assert "found: column 0 is 0 to 12, OGB's 0 to 4; PyTorch Geometric's from_smiles" in message
    assert "next: --set model.edge_encoder=linear, or OGB's numbers" in message

    kmip_data.save(graphs(edge_attr=torch.rand(4, 3)), tmp_path / "plain", split=SPLIT)
    plain = ["train", tmp_path / "plain", *QUICK, *SMALL, "--name", "mine"]
    message = refused(*plain, "--set", "model.edge_encoder=bond")
    assert "3 columns of torch.float32, not OGB's 3 of integers" in message
    assert not home.exists(), "a refused run has no folder, and its name is free"
    done(*words, "--set", "model.edge_encoder=linear", "--set", "model.node_encoder=atom")


def test_for_a_gpu_the_encoders_are_tried_on_the_cpu(home, tmp_path):
    kmip_data.save(graphs(edge_attr=torch.rand(4, 3)), tmp_path / "plain", split=SPLIT)
    config = config_for(str(tmp_path / "plain"), "gps-kmip")
    data = open_data(config, home=Home.locate(home))
    before = torch.random.get_rng_state()
    try_encoders(data.pinned(config), data)
    assert torch.equal(torch.random.get_rng_state(), before)
    wrong = apply_overrides(config, ["model.edge_encoder=bond", "model.local.kind=gated-gcn"])
    data = open_data(wrong, home=Home.locate(home))
    with pytest.raises(UsageError, match="not OGB's 3 of integers"):
        try_encoders(data.pinned(wrong), data)
