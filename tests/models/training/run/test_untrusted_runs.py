"""A run folder from a stranger: nothing in it is executed or followed, and what is wrong in it is named."""

from __future__ import annotations

import io
import os
import shutil

import pytest
import torch
from support.builds.learnable import learnable_build, tiny_config
from support.cli import kmip
from support.raises import raises
from support.runs.stopping import stop_at

from kmip_data.builds.home import Home
from kmip_data.errors import DamagedInput, KmipDataError, OutOfResources, UsageError
from kmip_data.models.training.config.overrides import read_config
from kmip_data.models.training.config.run_config import SystemConfig
from kmip_data.models.training.run.checkpoint import LAST_CHECKPOINT, WEIGHTS_NAME, write_checkpoint
from kmip_data.models.training.run.evaluate_run import evaluate
from kmip_data.models.training.run.run_folder import (
    CONFIG_NAME,
    RESULT_NAME,
    new_run,
    restrict_foreign_config,
)
from kmip_data.models.training.run.train import resume, train
from kmip_data.models.training.run.training_module import TrainingModule


class Stop(KmipDataError):
    """Ends a run in these tests."""


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """A home with a build, a finished run and one that was stopped after its first epoch."""
    home = Home(tmp_path_factory.mktemp("theirs"))
    build = learnable_build(home.built / "clouds")
    train(tiny_config(build, training={"epochs": 1}), home=home, name="done", quiet=True)
    patch = pytest.MonkeyPatch()
    stop_at(patch, 0, "saved", error=Stop)
    with pytest.raises(Stop):
        train(tiny_config(build, training={"epochs": 2}), home=home, name="stopped", quiet=True)
    patch.undo()
    return home


@pytest.fixture
def copies(theirs, tmp_path):
    """Copies of both runs outside of every home."""
    runs = theirs.runs / "clouds/gps-kmip"
    return [
        shutil.copytree(runs / name, tmp_path / "received" / name) for name in ("done", "stopped")
    ]


def test_data_folders_named_by_a_received_run_are_not_opened(copies, theirs, tmp_path):
    """No data folder that a received run names is opened."""
    done, stopped = copies
    mine = Home(tmp_path / "mine")
    for action in (
        lambda: evaluate(done, home=mine),
        lambda: resume(stopped, home=mine, quiet=True),
    ):
        with raises(UsageError, naming=theirs.built / "clouds"):
            action()
    assert evaluate(done, dataset=str(theirs.built / "clouds"), home=mine).equals_result
    copied_run = mine.runs / "clouds/gps-kmip/done"
    shutil.copytree(done, copied_run)  # the word of the user
    assert evaluate(copied_run, home=mine).equals_result


def test_settings_of_a_received_run_start_no_program(copies, theirs, tmp_path):
    config = read_config(copies[0] / CONFIG_NAME)
    system = config.system.model_copy(update={"logger": "wandb", "devices": 2})
    data = config.data.model_copy(update={"dataset": "s3dis"})
    config = config.model_copy(update={"system": system, "data": data})
    assert restrict_foreign_config(config, copies[0], Home(tmp_path)).system == SystemConfig()
    assert restrict_foreign_config(config, theirs.runs / "clouds/gps-kmip/done", theirs) == config


@pytest.mark.parametrize("linked", ["clouds", "clouds/gps-kmip"])
def test_a_new_run_is_not_written_through_a_link(linked, tmp_path):
    home, elsewhere = Home(tmp_path / "home"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (home.runs / linked).parent.mkdir(parents=True)
    (home.runs / linked).symlink_to(elsewhere)
    with (
        raises(UsageError, naming=home.runs / linked),
        new_run(home, "clouds", "gps-kmip", "mine"),
    ):
        pass
    assert not list(elsewhere.iterdir())


STATES = {
    "history": lambda state: state.update(history=None),
    "best epoch": lambda state: state.update(best_weights={7: {}}),
    "random": lambda state: state["processes"][0].update(random={"torch": torch.zeros(3)}),
    "data": lambda state: state.pop("data"),
    "best weights": lambda state: state.update(best_weights={0: {"a": torch.zeros(1)}}),
    "weights": lambda state: state.update(model={"a": torch.zeros(1)}),
    "optimizer": lambda state: state.update(optimizer={}),
    "position": lambda state: state.update(epoch=3),
}


def test_wrong_values_in_a_checkpoint_are_named(theirs, tmp_path, subtests):
    home = Home(tmp_path)
    run = shutil.copytree(
        theirs.runs / "clouds/gps-kmip/stopped", home.runs / "clouds/gps-kmip/stopped"
    )
    saved = (run / LAST_CHECKPOINT).read_bytes()
    for name, change in STATES.items():
        state = torch.load(io.BytesIO(saved), weights_only=True)
        change(state)
        write_checkpoint(run, state)
        (run / RESULT_NAME).unlink(missing_ok=True)
        with subtests.test(name):
            with pytest.raises(KmipDataError):
                resume(run, home=home, quiet=True)
            assert not (run / RESULT_NAME).exists(), "finished"


#: File of a run -> what stands in it, and what a stranger puts there; the whole text where nothing
#: stands.
ODD = {
    CONFIG_NAME: [
        *[
            ("layers = 2", f"layers = {value}")
            for value in ("1" + "0" * 12, '"\\u0000"', "[" * 5_000)
        ],
        ("dataset = ", 'dataset = "a\\u0000b"\nfeatures = '),
        *[("", text) for text in ("", "\udcff", "data = 3")],
    ],
    RESULT_NAME: [
        ('"metric": "', '"metric": "no-'),
        ('"train": {', '"elsewhere": {'),
        ('"plugins": ', '"plugins": "a", "x": '),
        ('"plugins": ', '"plugins": 3, "x": '),
        ('"loss": ', '"loss": NaN, "x": '),
        *[("", text) for text in ("", "\udcff", "[1]", "[" * 50_000)],
    ],
}


def test_malformed_text_files_end_in_a_kmip_data_error(theirs, tmp_path, subtests):
    """Commands that read a damaged run end with an error of ours; ``runs`` still lists it."""
    run = shutil.copytree(
        theirs.runs / "clouds/gps-kmip/done", tmp_path / "runs/clouds/gps-kmip/done"
    )
    for file, cases in ODD.items():
        sound = (run / file).read_text()
        for old, new in cases:
            assert old in sound
            text = sound.replace(old, new) if old else new
            (run / file).write_bytes(text.encode(errors="surrogateescape"))
            for words in (
                ["evaluate", run],
                ["predict", run, "--output", tmp_path / "a.npz"],
                ["runs"],
            ):
                with subtests.test(f"{file}, {old!r}, {new[:40]!r}: {words[0]}"):
                    code = kmip(*words, "--home", tmp_path).code
                    assert code in ({0} if words == ["runs"] else {2, 4})
        (run / file).write_text(sound)


@pytest.mark.whole_run
@pytest.mark.parametrize("dim", [10**9, 10**13])  # 10¹³: more bytes than an integer of torch counts
@pytest.mark.parametrize("command", ["evaluate", "predict", "explore", "resume"])
def test_a_network_beyond_memory_is_refused_before_it_is_built(
    command, dim, copies, tmp_path, monkeypatch
):
    def build_scaled_network(*_arguments, **_options):
        raise AssertionError("built")

    monkeypatch.setattr(TrainingModule, "__init__", build_scaled_network)
    run = copies[command == "resume"]
    config = (run / CONFIG_NAME).read_text()
    assert "hidden_dim = 8\n" in config
    (run / CONFIG_NAME).write_text(config.replace("hidden_dim = 8\n", f"hidden_dim = {dim}\n"))
    home = Home(tmp_path / "home")
    name = shutil.copytree(run, home.runs / "clouds/gps-kmip/run")
    words = ["train", "--resume", name] if command == "resume" else [command, name]
    if command == "explore":
        words += ["--output", tmp_path / "page.html"]
    done = kmip(*words, "--home", home.path)
    assert done.code == OutOfResources.exit_code, done.err
    assert f"layers and hidden_dim = {dim} needs about " in done.err


def test_weights_that_are_a_pickle_run_nothing_and_no_pipe_is_waited_for(theirs, tmp_path):
    home, canary = Home(tmp_path), tmp_path / "canary"
    run = shutil.copytree(theirs.runs / "clouds/gps-kmip/done", home.runs / "clouds/gps-kmip/done")

    class Hostile:
        def __reduce__(self):
            return os.system, (f"touch {canary}",)

    def no_file():
        (run / WEIGHTS_NAME).unlink()
        os.mkfifo(run / WEIGHTS_NAME)

    for spoil in (lambda: torch.save({"state_dict": Hostile()}, run / WEIGHTS_NAME), no_file):
        spoil()
        with raises(DamagedInput, naming=WEIGHTS_NAME):
            evaluate(run, home=home)
    assert not canary.exists()
