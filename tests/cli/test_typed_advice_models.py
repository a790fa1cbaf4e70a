"""Advice of training, of sweeps and of shared runs, typed as it was printed."""

from __future__ import annotations

import logging
import shlex
import sys
from pathlib import Path

import pytest
from support.cli import expect_refusal, expect_success
from support.hub import replace_hub
from support.type_advice import TINY, VALUES, type_advice, type_commands
from support.typed_advice import commands_in, typed_advice

import kmip_data
from kmip_data.cli import train as train_command
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.models.config import ModelConfig
from kmip_data.models.reports.shipped_results import read_shipped_result
from kmip_data.models.search.gpu import launch
from kmip_data.models.training import self_check
from kmip_data.models.training.config import presets
from kmip_data.models.training.run import loop
from kmip_data.models.training.run.predictions import evaluate_predictions

RUN = "home/runs/assay/gcn/one"
PLAN = """\
datasets = ["assay", "cora"]
models = ["gcn"]
seeds = [0]
changes = [{ name = "slow", set = ["optimizer.lr=0.1"], datasets = ["cora"] }]
"""


def _write_configuration(user: Path) -> None:
    text = (user / RUN / "config.toml").read_text()
    (user / "mine.toml").write_text(text)
    (user / "wrong.toml").write_text(text.replace("hidden_dim = 8", "hidden_dim = 0"))


def _remove_configuration(user: Path) -> None:
    (user / RUN / "config.toml").unlink()


def _train_two_epochs(user: Path) -> None:
    expect_success("train", "assay", "--model", "gcn", *TINY, "--name", "two", "--epochs", "2")


def _damage_added_column(user: Path) -> None:
    expect_success("encode", "assay", "rwse20", "-q")
    next(user.glob("home/built/assay-*/columns/*/card.json")).write_text("x")


def _write_plan(user: Path) -> None:
    (user / "plan.toml").write_text(PLAN)


@pytest.mark.parametrize(
    ("change", "line", "advised"),
    [
        (None, "preview cora/gcn", "train assay --preset cora/gcn"),
        (
            None,
            f"train assay --model gcn {shlex.join(TINY)} --set model.attention.k=4",
            f"train assay {shlex.join(TINY)} --set model.attention.k=4 --model gps-kmip",
        ),
        (
            None,
            "train assay --model gps-kmip --set model.attention.k=1,2,3",
            "sweep --model gps-kmip --dataset assay",
        ),
        (
            None,
            "train assay --model gcn --set optimizer.lr=0.1,0.2 --set training.batch_size=4,8",
            "sweep --model gcn --dataset assay --set optimizer.lr=0.1,0.2 --set",
        ),
        (
            None,
            "train s3dis --k 3 --seeds 1 --set optimizer.lr=0.1,0.2",
            "sweep --seeds 1 --dataset s3dis --set data.parameters.k=3 --set optimizer.lr=0.1,0.2",
        ),
        (
            _write_configuration,
            "train --config mine.toml --set optimizer.lr=0.1,0.2",
            "train --config mine.toml --set optimizer.lr=0.1",
        ),
        (_write_configuration, "train --config wrong.toml", "info s3dis --model gps-kmip"),
        (
            _write_configuration,
            "train assay --model gcn --config mine.toml",
            "train assay --config mine.toml",
        ),
        (None, f"train assay --model gcn {shlex.join(TINY)} --set optimizer.lr=1e30", "verify"),
        (
            _train_two_epochs,
            "train --resume assay/gcn/two --stop-after 9",
            "train --config",
        ),
        (_remove_configuration, f"evaluate {RUN}", "verify"),
        (_damage_added_column, "info assay", "verify"),
        (_write_plan, "sweep plan.toml --dataset assay --dry-run", "sweep --dataset assay"),
    ],
)
def test_advice_of_trainings_is_typed(user, change, line, advised):
    if change is not None:
        change(user)
    typed = type_advice(line)
    assert any(command.startswith(advised) for command in typed), typed


def test_the_origin_of_a_preset_advises_its_differences():
    origin = presets.preset_origin(presets.config_for_data("helsinki"))
    typed_advice.note_page(origin, presets.__name__)
    (command,) = commands_in(origin)
    assert "upstream" in expect_success(*shlex.split(command)[1:]).out


def test_shorter_runs_are_advised_for_a_run_of_over_a_day(user, monkeypatch):
    monkeypatch.setattr(loop, "FORECAST_SECONDS", 1e-9)
    monkeypatch.setattr(loop, "DAY_SECONDS", 1e-6)
    words = [word for word in TINY if word != "-q"]
    warning = expect_success("train", "cora", "--sample", "--model", "gcn", *words).err
    shorter = commands_in(warning.partition("over a day; shorter: ")[2])
    options = [shlex.split(command)[3:] for command in shorter]
    assert [option for _, option, _ in options] == ["--epochs", "--neighbor-sampling"]
    for command in shorter:
        expect_success(*shlex.split(command)[1:], "-q")


def test_an_unknown_row_advises_a_row_that_starts(monkeypatch):
    started = []

    def start(config: object, *_: object) -> None:
        started.append(config)
        raise SystemExit(0)  # before the build and the training

    monkeypatch.setattr(train_command, "_prepare_data", start)
    for name in ("cora", "x", "zzzz/gcn"):
        (command,) = commands_in(expect_refusal("train", "--reproduce", name))
    expect_success(*shlex.split(command)[1:])
    row = read_shipped_result(command.split()[-1])
    assert (started[0].data.dataset, started[0].model.name) == (row.dataset, row.model)


def test_unreadable_predictions_advise_how_to_write_some(user):
    with pytest.raises(DamagedInput) as refusal:
        evaluate_predictions("assay.csv", "assay")
    (command,) = commands_in(refusal.value.steps)
    values = VALUES | {"FILE": "mine.npz"}
    expect_success(*(values.get(word, word) for word in shlex.split(command)[1:]))
    assert evaluate_predictions("mine.npz", "assay").metrics


@pytest.mark.parametrize(
    ("name", "address"), [("assay", "hf://datasets/me/mine"), ("assay/gcn/one", "hf://me/mine")]
)
def test_a_folder_that_may_be_meant_for_the_hub_advises_its_address(
    user, monkeypatch, name, address
):
    commits = replace_hub(monkeypatch)
    saved = expect_success("push", name, "me/mine").out
    assert f"\nSaved into the folder {user / 'me' / 'mine'}\n" in saved
    assert "hf://" not in expect_success("push", name, user / "share").out
    push, pull = commands_in(saved)
    assert push.endswith(address)
    out = expect_success(*shlex.split(push)[1:]).out
    expect_success(*shlex.split(push)[1:])  # the same again is no commit
    assert [repository for repository, _, _ in commits] == ["me/mine"]
    expect_success(*shlex.split(pull)[1:], "--output", "local")
    (pull_from_hub,) = commands_in(out)
    expect_success(*shlex.split(pull_from_hub)[1:], "--output", "remote")


def test_the_page_of_a_pushed_run_has_commands_that_use_it(user, monkeypatch):
    expect_success("push", "assay/gcn/one", "shared")
    page = (user / "shared" / "README.md").read_text()
    typed_advice.note_page(page, "kmip_data.models.training.push_run")
    for command in commands_in(page):
        words = [VALUES.get(word, word) for word in shlex.split(command)[1:]]
        expect_success(*words)
    assert {path.name for path in (user / "one").iterdir()} > {"config.toml", "result.json"}

    address = (user / "shared").as_uri()
    with pytest.raises(UsageError) as refusal:
        kmip_data.open(address)
    assert not (user / "home/built/one").exists()
    assert type_commands(refusal.value.steps) == [f"pull {address}"]


def test_fetched_files_are_built_offline(user):
    name = "city-roads-m"  # its files are not pinned
    expect_success("build", name, "--sample", "--jobs", "1", "-q")
    (archive,) = (user / "home/raw" / f"{name}-sample").glob("members-*")
    (command,) = commands_in(expect_success("fetch", name, "--archive", archive).out)
    assert "--offline" in command
    expect_success(*shlex.split(command)[1:], "--jobs", "1", "-q")


def test_faults_of_a_gpu_advise_the_doctor(user, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(UsageError) as refusal:
        launch.nvrtc_version.__wrapped__()
    monkeypatch.setattr(self_check, "check_all_gpu_features", lambda _: {"search": "other bits"})
    disabled: dict[str, str] = {}
    monkeypatch.setattr("kmip_data.models.kernel_availability.DISABLED_GPU_FEATURES", disabled)
    monkeypatch.delenv("KMIP_DATA_SELF_CHECK", raising=False)
    with caplog.at_level(logging.WARNING, logger=self_check.__name__):
        self_check.check_gpu_before_run(ModelConfig(), "a GPU")
    assert disabled == {"search": "other bits"}
    (warning,) = (record.getMessage() for record in caplog.records)
    typed_advice.note_page(warning, self_check.__name__)
    for command in [*commands_in(refusal.value.steps), *commands_in(warning)]:
        expect_success(*shlex.split(command)[1:])
