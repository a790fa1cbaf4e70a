"""Refusals whose advice is typed as it was printed, from the first command of a user on."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest
from support.cli import expect_success
from support.type_advice import TINY, type_advice, type_commands

import kmip_data
from kmip_data.builds.added_columns import read_added_column_card
from kmip_data.builds.home import Build, Home, list_builds
from kmip_data.errors import KmipDataError
from kmip_data.models.training.run.finished_run import open_run
from kmip_data.pipelines.find_builds import find_or_build
from kmip_data.reading.dataset import ShardedDataset


@pytest.mark.parametrize(
    ("line", "advised"),
    [
        # Names of something else.
        ("info asay", "info assay"),
        ("info zzzzzz", "list"),
        ("fetch zzzzzz", "list --all"),
        ("evaluate zzzzzz", "runs"),
        ("sweep zzzzzz", "sweep --help"),
        ("explore", "list"),
        ("evaluate assay/gcn/two", "evaluate assay/gcn/one"),
        ("train assay/gcn/one", "train --resume assay/gcn/one"),
        ("preview assay/gcn/one", "explore assay/gcn/one"),
        ("export assay/gcn/one", "evaluate assay/gcn/one"),
        ("preview assay/gcn", "train assay --model gcn"),
        ("preview home", "list"),
        # Options and parameters.
        ("train", "train --help"),
        ("build cora --dry-run", "build graphs --archive assay.csv --dry-run"),
        ("build cora --name mine", "info cora"),
        ("build cora --set zzzz=1", "info cora"),
        ("build city --name a --archive assay.csv", "info city"),
        ("build graphs --archive assay.csv", "build graphs --archive assay.csv --name assay-2"),
        ("train assay --set zzzz=1", "info assay --model dir-sage"),
        (
            "train assay --model gps-kmip --set model.attention.zzzz=1",
            "train assay --model gps-kmip --set model.attention.k=1",
        ),
        ("train assay --model zzzz", ""),
        ("train assay --preset zzzz/gcn", ""),
        ("train assay --preset cora/zzzz", ""),
        ("train assay --model gps-kmip --set model.attention.search=zzzz", "doctor"),
        ("report small-cities", "sweep small-cities"),
        ("encode assay zzzz", "encode --help"),
        ("sweep", ""),
        ("train graphs", "info graphs"),
        ("train assay --set data.features=zzzz", "info assay"),
        ("train assay --set label=toxic", "build graphs --name assay --archive assay.csv"),
        ("train assay --label toxic", "build graphs --help"),
        ("train assay --preset assay/gcn", "train assay --model gcn"),
        ("train assay --resume assay/gcn/one", "train --resume assay/gcn/one"),
        ("train assay --set optimizer.lr=0.1,0.2", "sweep --dataset assay"),
        ("preview assay --limit 5", "build graphs --name assay --archive assay.csv"),
        # Results that lead on.
        ("list", "runs"),
        ("list --all", "info assay"),
        ("report", "explore assay/gcn/one"),
        ("push assay shared", "pull shared"),
        ("info assay", ""),
    ],
)
def test_advice_is_typed(user, line, advised):
    typed = type_advice(line)
    if advised:
        assert any(command.startswith(advised) for command in typed), typed


def _damage_shard(user: Path) -> None:
    shard = next((user / "home" / "built").glob("assay-*/shards/*.h5"))
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)


def _damage_shard_and_raw(user: Path) -> None:
    _damage_shard(user)
    shutil.rmtree(user / "home" / "raw")


def _remove_shard(user: Path) -> None:
    next((user / "home" / "built").glob("assay-*/shards/*.h5")).unlink()


def _damage_configuration(user: Path) -> None:
    (user / "home/runs/assay/gcn/one/config.toml").write_text("x")


def _train_on_values(user: Path) -> None:
    words = ("train", "assay", "--model", "gcn", "--set", "training.task=regression")
    expect_success(*words, *TINY, "--name", "values")


def _move_build(user: Path) -> None:
    next((user / "home" / "built").glob("assay-*")).rename(user / "moved")


def _build_without_targets(user: Path) -> None:
    (user / "new.csv").write_text("smiles\n" + "CCO\nCCN\nCCC\nCC\n" * 3)
    expect_success("build", "graphs", "--name", "bare", "--archive", "new.csv", "-q")
    expect_success(
        "build", "graphs", "--name", "alike", "--archive", "new.csv", "--like", "assay", "-q"
    )


def _build_with_a_value(user: Path) -> None:
    (user / "value.csv").write_text("smiles,mass\n" + "CCO,46\nCCN,45\nCCC,44\nCC,30\n" * 3)
    expect_success("build", "graphs", "--name", "value", "--archive", "value.csv", "-q")


def _build_with_other_columns(user: Path) -> None:
    (user / "edges.csv").write_text("source,target\n0,1\n1,2\n2,3\n")
    (user / "nodes.csv").write_text("node,age,y\n0,1,a\n1,2,b\n2,3,a\n3,4,b\n")
    (user / "other").mkdir()
    for name in ("edges.csv", "nodes.csv"):
        (user / name).rename(user / "other" / name)
    words = ("build", "graphs", "--name", "other", "--archive", "other", "--set", "label=y", "-q")
    expect_success(*words, "--set", "val_fraction=0.25", "--set", "test_fraction=0.25")


def _run_on_other(user: Path) -> None:
    _build_with_other_columns(user)
    expect_success("train", "other", "--model", "gcn", *TINY, "--name", "two")


def _rebuild_differently(user: Path) -> None:
    _move_build(user)
    words = ("build", "graphs", "--name", "assay", "--archive", "assay.csv", "-q")
    expect_success(*words, "--set", "label=toxic", "--set", "ignore=none", "--limit", "20")


def _second_build(user: Path) -> None:
    words = ("build", "graphs", "--name", "assay", "--archive", "assay.csv", "-q")
    expect_success(*words, "--set", "label=toxic", "--limit", "20")


def _remove_result(user: Path) -> None:
    (user / "home/runs/assay/gcn/one/result.json").unlink()


def _remove_metrics(user: Path) -> None:
    (user / "home/runs/assay/gcn/one/metrics.csv").unlink()


def _damage_weights(user: Path) -> None:
    (user / "home/runs/assay/gcn/one/model.safetensors").write_bytes(b"x")


def _empty_home(user: Path) -> None:
    shutil.rmtree(user / "home")


def _remove_card(user: Path) -> None:
    next((user / "home" / "built").glob("assay-*/card.json")).unlink()


@pytest.mark.parametrize(
    ("change", "line", "advised"),
    [
        (None, "preview cora --limit 50", "build cora --limit 50"),
        (None, "preview cora --sample", "build cora --sample"),
        (None, "train assay --model gcn --name one", "train assay --model gcn --name one-2"),
        (None, "remove assay/gcn/one", "remove assay/gcn/one --yes"),
        (None, "sweep --dataset assay --dry-run", "sweep --dataset assay"),
        (None, "build graphs --name assay2 --archive assay.csv --set label=toxic", "train assay2"),
        (None, "explore assay assay/gcn/one", ""),
        (None, "pull nowhere", ""),
        (None, "fetch assay", "build graphs --name assay --archive assay.csv"),
        (None, "train assay --epochs 3 --stop-after 5", ""),
        (None, "info assay/gcn", "train assay --model gcn"),
        (None, "evaluate assay", "evaluate assay/gcn/one"),
        (_damage_shard, "verify assay", "verify"),
        (_damage_shard, "evaluate assay/gcn/one", "verify"),
        (_damage_shard, "export assay --output out", "verify"),
        (_damage_shard, "push assay shared", "verify"),
        (_damage_shard, "preview assay --output picture.png", "verify"),
        (_damage_shard, "train assay --model gcn --epochs 1", "verify"),
        (_damage_shard_and_raw, "verify assay --repair", "build graphs --name assay"),
        (
            _remove_shard,
            "build graphs --name assay --archive assay.csv --set label=toxic",
            "verify",
        ),
        (_damage_configuration, "verify assay/gcn/one", "verify"),
        (_train_on_values, "explore assay/gcn/values --output page.html", "predict"),
        (_remove_card, "info assay", ""),
        (_remove_card, "list", ""),
        (_move_build, "evaluate assay/gcn/one", ""),
        (_move_build, "preview assay", ""),
        (_build_without_targets, "train alike", "predict"),
        (_build_without_targets, "evaluate assay/gcn/one --dataset bare", "predict"),
        (_build_without_targets, "evaluate assay/gcn/one --dataset alike", "predict"),
        (_build_with_other_columns, "predict assay/gcn/one --dataset other", "train other"),
        (_run_on_other, "predict assay/gcn/one --dataset other", "predict other/gcn/two"),
        (_build_without_targets, "train bare", "predict"),
        (_build_with_a_value, "train value", "build graphs --name value-2"),
        (_rebuild_differently, "evaluate assay/gcn/one", ""),
        (_second_build, "train assay --model gcn --epochs 1 -q", ""),
        (
            None,
            f"train assay --model gcn --seeds 0,1 --name two {shlex.join(TINY)}",
            "train --config",
        ),
        (_remove_result, "evaluate assay/gcn/one", "train --resume"),
        (_remove_result, "report assay/gcn/one", "runs"),
        (_remove_result, "runs", "train --resume"),
        (_remove_metrics, "verify assay/gcn/one", "train --config"),
        (_damage_weights, "evaluate assay/gcn/one", "train --resume"),
        (_empty_home, "list", "build long-range"),
    ],
)
def test_advice_about_changed_files_is_typed(user, change, line, advised):
    if change is not None:
        change(user)
    is_read = change is _damage_shard and not line.startswith("verify")
    typed = type_advice(line, code=4 if is_read else None)
    if advised:
        assert any(command.startswith(advised) for command in typed), typed


def _build(user: Path) -> Build:
    (build,) = list_builds(Home(user / "home"), "assay")
    return build


@pytest.mark.parametrize(
    ("call", "advised"),
    [
        (lambda user: kmip_data.open("assay", columns=["zzzz"]), "info /"),
        (lambda user: ShardedDataset(_build(user), columns=["rwse20"]), "encode assay rwse20"),
        (lambda user: ShardedDataset(_build(user), "zzzz", split_name="zzzz"), "info"),
        (lambda user: read_added_column_card(_build(user), "zzzz"), "encode --help"),
        (lambda user: find_or_build("cora", {"zzzz": 1}), "info cora"),
        (lambda user: find_or_build("cora", zzzz=1), "build cora --help"),
        (lambda user: open_run("zzzz"), "runs"),
    ],
)
def test_advice_to_python_is_typed(user, call, advised):
    with pytest.raises(KmipDataError) as refusal:
        call(user)
    (typed,) = type_commands(refusal.value.steps)
    assert typed.startswith(advised)
