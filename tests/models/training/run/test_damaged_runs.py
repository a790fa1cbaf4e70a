"""Damaged, edited and exchanged files of a run: refused where they are read, with the file and a way out."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from safetensors.torch import load_file
from support.builds.learnable import learnable_build, tiny_config
from support.cases import flip_bit
from support.cli import expect_refusal, expect_success, kmip
from support.raises import raises
from support.runs.stopping import stop_at

from kmip_data.builds.home import Build, Home
from kmip_data.errors import CheckFailed, DamagedInput
from kmip_data.files.small_files import sealed_json
from kmip_data.models.training.config.overrides import read_config
from kmip_data.models.training.run.checkpoint import (
    LAST_CHECKPOINT,
    PREVIOUS_CHECKPOINT,
    WEIGHTS_NAME,
)
from kmip_data.models.training.run.result import read_result
from kmip_data.models.training.run.run_folder import RESULT_NAME
from kmip_data.models.training.run.train import resume, train


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    return learnable_build(tmp_path_factory.mktemp("data") / "build")


@pytest.fixture(scope="module")
def homes(build: Build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a finished run and one that was stopped in its third epoch."""
    root = tmp_path_factory.mktemp("home")
    train(tiny_config(build), home=Home(root), name="done", quiet=True)
    with pytest.MonkeyPatch.context() as patch:
        stop_at(patch, 2)
        with pytest.raises(KeyboardInterrupt):
            train(tiny_config(build), home=Home(root), name="stopped", quiet=True)
    return root


@pytest.fixture
def home(homes: Path, tmp_path: Path) -> Home:
    return Home(shutil.copytree(homes, tmp_path / "home"))


def run_of(home: Home, name: str) -> Path:
    return home.runs / "clouds" / "gps-kmip" / name


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text("utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), "utf-8")


def best_accuracy(run: Path) -> None:
    """Make the accuracy on test 99.99 %."""
    result = json.loads((run / RESULT_NAME).read_text("utf-8"))
    written = result["metrics"]["test"]["accuracy"]
    result["metrics"]["test"]["accuracy"] = 0.9999
    assert written != 0.9999
    (run / RESULT_NAME).write_text(json.dumps(result, indent=1, sort_keys=True) + "\n", "utf-8")


def test_weights_with_a_flipped_bit_are_refused_and_written_again(home, build, tmp_path):
    run = run_of(home, "done")
    sound = (run / WEIGHTS_NAME).read_bytes()
    flip_bit(run / WEIGHTS_NAME)
    load_file(run / WEIGHTS_NAME)  # they can be read
    rooted = ("--home", home.path)
    commands = (
        ("evaluate", run, *rooted),
        ("predict", run, "--output", tmp_path / "p.npz", *rooted),
        ("train", build.path, "--init-from", run, "--epochs", 1, *rooted),
        ("push", run, tmp_path / "share", *rooted),
    )
    for words in commands:
        message = expect_refusal(*words, code=4)
        assert str(run / WEIGHTS_NAME) in message
    command = message.partition("next: kmip-data ")[2]
    expect_success(*shlex.split(command), "--quiet")
    assert (run / WEIGHTS_NAME).read_bytes() == sound

    shutil.rmtree(run / "checkpoints")  # as of a run that was pulled
    flip_bit(run / WEIGHTS_NAME)
    with raises(DamagedInput, naming=WEIGHTS_NAME):
        resume(run, home=home, quiet=True)


@pytest.mark.parametrize("share", [0.02, 0.3, 0.5, 0.7, 0.98])
def test_a_flipped_bit_in_a_checkpoint_is_refused_and_the_one_before_offered(home, share):
    run = run_of(home, "stopped")
    flip_bit(run / LAST_CHECKPOINT, int(share * (run / LAST_CHECKPOINT).stat().st_size))
    message = expect_refusal("train", "--resume", run, "--home", home.path, code=4)
    assert str(run / LAST_CHECKPOINT) in message
    damaged = (run / LAST_CHECKPOINT).read_bytes()
    move = re.search(r"next: (mv .*)\n", message)[1]
    subprocess.run(shlex.split(move), check=True)
    assert Path(f"{run / LAST_CHECKPOINT}.damaged").read_bytes() == damaged
    expect_success("train", "--resume", run, "--home", home.path, "--quiet")
    whole = run_of(home, "done")
    assert (run / WEIGHTS_NAME).read_bytes() == (whole / WEIGHTS_NAME).read_bytes()


def test_no_damaged_checkpoint_is_offered(home):
    run = run_of(home, "stopped")
    for name in (LAST_CHECKPOINT, PREVIOUS_CHECKPOINT):
        flip_bit(run / name)
    message = expect_refusal("train", "--resume", run, "--home", home.path, code=4)
    assert "next: mv" not in message


def test_a_kill_between_two_checkpoints_loses_no_checkpoint(home):
    run = run_of(home, "stopped")
    (run / LAST_CHECKPOINT).unlink()
    resume(run, home=home, quiet=True)
    whole = run_of(home, "done")
    assert (run / WEIGHTS_NAME).read_bytes() == (whole / WEIGHTS_NAME).read_bytes()


def test_another_shard_under_the_same_key_is_refused(home, build, tmp_path):
    """The labels differ, and the card describes the difference."""
    data = Path(shutil.copytree(build.path, tmp_path / "data"))
    for path in (run_of(home, "stopped") / "config.toml", run_of(home, "done") / "config.toml"):
        edit(path, f'dataset = "{build.path}"', f'dataset = "{data}"')
    sound = resume(run_of(home, "stopped"), home=home, quiet=True).results[0]
    assert sound.epochs == 3

    other = learnable_build(tmp_path / "other", one_class=True)
    assert other.card.key == build.card.key
    shutil.rmtree(data)
    shutil.copytree(other.path, data)
    run = run_of(home, "done")
    (run / RESULT_NAME).unlink()
    with raises(CheckFailed, naming="build_key"):
        resume(run, home=home, quiet=True)


def test_an_edited_result_is_marked_wherever_it_shows(home):
    run = run_of(home, "done")
    rooted = ("--home", home.path)
    for form in ("text", "markdown", "csv", "json", "latex", "html"):
        assert "(edited)" not in expect_success("report", "--format", form, *rooted).out
    assert "(edited)" not in expect_success("runs", *rooted).out
    best_accuracy(run)

    for form in ("text", "markdown", "latex", "html"):
        report = expect_success("report", "--format", form, *rooted).out
        assert re.search(r"99\.99( \S+ [\d.]+)? \(edited\)", report)
    report = expect_success("report", "--format", "json", *rooted).json
    assert [row["edited"] for row in report["rows"]] == [True]
    assert report["notices"] == [f"{run / RESULT_NAME} was edited after it was written."]
    assert ",True," in expect_success("report", "--format", "csv", *rooted).out
    assert "99.99 % accuracy (edited)" in expect_success("runs", *rooted).out
    rows = {
        row["name"]: row["edited"] for row in expect_success("runs", "--json", *rooted).json["runs"]
    }
    assert rows == {"done": True, "stopped": False}


def test_an_edited_result_is_neither_pushed_nor_resumed(home, tmp_path):
    run = run_of(home, "done")
    best_accuracy(run)
    edited = (run / RESULT_NAME).read_bytes()
    for words in (("push", run, tmp_path / "share"), ("train", "--resume", run)):
        message = expect_refusal(*words, "--home", home.path, code=4)
        assert str(run / RESULT_NAME) in message
    assert not (tmp_path / "share").exists()
    assert (run / RESULT_NAME).read_bytes() == edited


def test_an_edited_configuration_is_not_pushed(home, tmp_path):
    run = run_of(home, "done")
    expect_success("push", run, tmp_path / "sound", "--home", home.path)
    edit(run / "config.toml", "\nepochs = 3", "\nepochs = 4")
    message = expect_refusal("push", run, tmp_path / "share", "--home", home.path, code=4)
    assert "config.toml" in message
    assert not (tmp_path / "share").exists()


def test_an_evaluation_with_other_figures_ends_with_exit_1(home):
    run = run_of(home, "done")
    words = ("evaluate", run, "--home", home.path)
    assert "equal to result.json" in expect_success(*words).out
    measured = read_result(run).metrics["test"]["accuracy"]
    best_accuracy(run)
    outcome = kmip(*words)
    assert outcome.code == 1
    assert "result.json was edited" in outcome.out
    assert f"test accuracy {measured:.6g}, not 0.9999" in outcome.err

    # Sealed anew, the figures alone tell.
    (run / RESULT_NAME).write_text(sealed_json(json.loads((run / RESULT_NAME).read_text())))
    outcome = kmip(*words, "--json")
    assert (outcome.code, outcome.json["edited"]) == (1, False)

    close = json.loads((run / RESULT_NAME).read_text())
    close["metrics"]["test"]["accuracy"] = measured + 5e-5
    (run / RESULT_NAME).write_text(sealed_json(close))
    assert "not bitwise equal" in expect_success(*words).out


def test_a_number_of_epochs_that_the_run_has_passed_is_named(home, build):
    run = run_of(home, "stopped")
    words = ["train", "--resume", run]
    message = expect_refusal(*words, "--stop-after", 9, "--home", home.path)
    assert f"next: kmip-data train --resume {run} --home {home.path}\n" in message
    outcome = kmip(*words, "--stop-after", 1, "--home", home.path)
    assert outcome.code == 0, outcome.err
    assert "The run has finished 2 epochs already and ends here." in outcome.err
    assert read_result(run).epochs == 2
    said = expect_success("train", "--resume", run, "--stop-after", 1, "--home", home.path).err
    assert "after 2 of 3 epochs; kmip-data train --resume" in said


def test_the_configuration_has_the_number_of_epochs_that_a_run_continues_to(home, monkeypatch):
    run = run_of(home, "stopped")
    resume(run, home=home, stop_after=2, quiet=True)
    assert read_config(run / "config.toml").training.stop_after == 2
    with monkeypatch.context() as patch:
        stop_at(patch, 2)
        with pytest.raises(KeyboardInterrupt):
            resume(run, home=home, stop_after=3, quiet=True)
    assert read_config(run / "config.toml").training.stop_after == 3
    # The command that an interrupted run prints has no --stop-after.
    assert resume(run, home=home, quiet=True).results[0].epochs == 3
    assert read_result(run).config == read_config(run / "config.toml").model_dump(mode="json")
