"""Runs that were stopped and resumed equal runs that were not, bit for bit on the CPU."""

from __future__ import annotations

import copy
import itertools
import multiprocessing
import os
import shutil
import signal
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.builds.learnable import (
    OF_THE_MACHINE,
    learnable_build,
    read_history,
    streets_build,
    tiny_config,
)
from support.raises import raises
from support.runs.stopping import stop_at

from kmip_data.builds.home import Home
from kmip_data.cli.main import main
from kmip_data.errors import CheckFailed, DamagedInput, FolderInUse, KmipDataError, UsageError
from kmip_data.files import atomic_writes
from kmip_data.models.config import known_models
from kmip_data.models.training.config.overrides import config_from_mapping
from kmip_data.models.training.run import checkpoint, loop
from kmip_data.models.training.run.checkpoint import (
    LAST_CHECKPOINT,
    WEIGHTS_NAME,
    latest_checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from kmip_data.models.training.run.evaluate_run import evaluate
from kmip_data.models.training.run.result import read_result
from kmip_data.models.training.run.run_folder import RESULT_NAME, RUN_MARKER
from kmip_data.models.training.run.train import resume, train
from kmip_data.runtime.progress import Progress


class Stop(KmipDataError):
    """Error that ends a run in these tests, unrelated to its checkpoint."""


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    return learnable_build(tmp_path_factory.mktemp("data") / "build")


def same_run(first, second):
    """Weights bit for bit, history and result but for times."""
    one, two = load_file(first / WEIGHTS_NAME), load_file(second / WEIGHTS_NAME)
    assert one.keys() == two.keys()
    for name in one:
        assert torch.equal(one[name], two[name]), name
    rows = [
        [
            {key: value for key, value in row.items() if key not in OF_THE_MACHINE}
            for row in read_history(run)
        ]
        for run in (first, second)
    ]
    assert rows[0] == rows[1]
    assert read_result(first).metrics == read_result(second).metrics
    assert read_result(first).best_epoch == read_result(second).best_epoch
    # The very last state too: weights, optimizer, schedule, random generators.
    states = [torch.load(run / LAST_CHECKPOINT, weights_only=True) for run in (first, second)]
    for state in states:
        del state["history"]  # compared above, but for times
    assert_equal(*states)


def assert_equal(one, two):
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, two)
    elif isinstance(one, dict):
        assert one.keys() == two.keys()
        for key in one:
            assert_equal(one[key], two[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(two)
        for a, b in zip(one, two, strict=True):
            assert_equal(a, b)
    else:
        assert one == two


@pytest.fixture(scope="module")
def options():
    return {"training": {"epochs": 4, "shuffle": True, "eval_every": 2}, "model": {"dropout": 0.3}}


@pytest.fixture(scope="module")
def whole(build, options, tmp_path_factory):
    home = Home(tmp_path_factory.mktemp("whole"))
    return train(tiny_config(build, **options), home=home, quiet=True).runs[0]


stop_in = partial(stop_at, batch=1, error=Stop)


def stopped(monkeypatch, tmp_path, config, **when):
    """Home and folder of a run that ended as :func:`stop_in` says."""
    home = Home(tmp_path / "home")
    with monkeypatch.context() as patch:
        stop_in(patch, **when)
        with pytest.raises(Stop):
            train(config, home=home, quiet=True)
    (run,) = home.runs.glob("*/*/[!.]*")
    return home, run


@pytest.mark.parametrize(
    ("where", "epoch"), [("unsaved", 0), ("unsaved", 1), ("batch", 3), ("saved", 3)]
)
def test_a_stopped_run_resumes_to_the_same_weights(
    build, options, whole, tmp_path, monkeypatch, epoch, where
):
    config = tiny_config(build, **options)
    home, run = stopped(monkeypatch, tmp_path, config, epoch=epoch, where=where)
    assert not (run / WEIGHTS_NAME).exists()
    torch.manual_seed(999)  # whatever the generators are at, the checkpoint decides
    assert resume(run, home=home, quiet=True).runs == [run]
    same_run(run, whole)


def test_a_run_ends_early_on_its_schedule_and_continues(build, options, whole, tmp_path):
    home = Home(tmp_path)
    config = tiny_config(build, **options)
    training = config.training.model_copy(update={"stop_after": 2})
    summary = train(config.model_copy(update={"training": training}), home=home, quiet=True)
    run = summary.runs[0]
    first_epochs = read_history(run)
    assert [row["lr"] for row in first_epochs] == [row["lr"] for row in read_history(whole)][:2]
    assert summary.results[0].epochs == 2

    assert resume(run, home=home, quiet=True).results[0].epochs == 2
    assert resume(run, home=home, stop_after=1, quiet=True).results[0].epochs == 2
    assert resume(run, home=home, stop_after=4, quiet=True).results[0].epochs == 4
    same_run(run, whole)


@pytest.mark.parametrize("stop", [3, *(pytest.param(n, marks=pytest.mark.torture) for n in (2, 5))])
def test_the_evaluation_of_a_stop_moves_nothing_that_a_resumed_run_depends_on(
    build, tmp_path, stop
):
    options = {
        "training": {"epochs": 6, "eval_every": 4, "patience": 2},
        "schedule": {"kind": "reduce_on_plateau", "patience": 0},
    }
    whole = train(tiny_config(build, **options), home=Home(tmp_path / "whole"), quiet=True)
    options["training"]["stop_after"] = stop
    home = Home(tmp_path / "stopped")
    (run,) = train(tiny_config(build, **options), home=home, quiet=True).runs
    assert "val_loss" in read_history(run)[-1]  # for its own result
    resume(run, home=home, stop_after=6, quiet=True)
    same_run(run, whole.runs[0])


def test_the_progress_of_a_resumed_run_begins_where_it_stopped(build, tmp_path, monkeypatch):
    config = tiny_config(build, training={"epochs": 4, "stop_after": 3})
    (run,) = train(config, home=Home(tmp_path), quiet=True).runs
    shown = []

    def progress(*args, initial=0, **options):
        shown.append((args[1], initial))
        return Progress(*args, initial=initial, **options)

    monkeypatch.setattr(loop, "Progress", progress)
    resume(run, home=Home(tmp_path), stop_after=4)
    total, initial = shown[-1]
    assert 0 < initial == 3 / 4 * total


#: One for each way in which a network draws numbers or keeps statistics.
FEW_MODELS = {"gps-kmip", "gps-performer", "gps-bigbird", "gcn-plus"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in FEW_MODELS else pytest.mark.torture)
        for name in sorted(known_models())
    ],
)
def test_every_model_resumes_to_the_same_weights(build, name, tmp_path, monkeypatch):
    values = {
        "data": {"dataset": str(build.path)},
        "model": {"name": name, "layers": 2, "hidden_dim": 8, "dropout": 0.3},
        "training": {"epochs": 2, "batch_size": 2},
        "system": {"device": "cpu"},
    }
    config = config_from_mapping(values, "the test")
    undisturbed = train(config, home=Home(tmp_path / "whole"), quiet=True).runs[0]
    home, run = stopped(monkeypatch, tmp_path, config, epoch=1, where="batch")
    torch.manual_seed(999)
    assert resume(run, home=home, quiet=True).runs == [run]
    same_run(run, undisturbed)


#: Parts with a state within an epoch, next to weights and their optimizer.
WITHIN = {
    "plain": {"model": {"dropout": 0.3}},
    "patience, rate per step": {
        "training": {"clip_norm": 0.1, "patience": 2},
        "schedule": {"per": "step", "warmup_epochs": 1},
        "optimizer": {"name": "sgd", "momentum": 0.9},
    },
    "k that moves": {"training": {"k_schedule": "linear:6:3"}, "model": {"norm": "batch"}},
    "sampled neighbourhoods": {"training": {"neighbors": [2, 1], "batch_size": 7}},
}


@pytest.fixture(scope="module")
def longer(tmp_path_factory):
    """A build of eight batches of two train graphs, and one of one graph."""
    folder = tmp_path_factory.mktemp("longer")
    return learnable_build(folder / "many", graphs=20), streets_build(folder / "one")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.torture if name == "plain" else [])
        for name in WITHIN  # the others have its dropout, too
    ],
)
def test_three_stops_within_an_epoch_resume_to_the_same_weights(
    longer, name, tmp_path, monkeypatch
):
    """Batches 3, 4 and 7 of the second epoch were to be trained on; a step takes two."""
    sections = copy.deepcopy(WITHIN[name])
    sections["training"] = {"epochs": 3, "batch_size": 2, **sections.get("training", {})}
    build = longer[bool(sections["training"].get("neighbors"))]
    whole = train(tiny_config(build, **sections), home=Home(tmp_path / "whole"), quiet=True).runs[0]
    sections["system"] = {"checkpoint_every": 1e-9}
    config, home = tiny_config(build, **sections), Home(tmp_path / "home")
    go_on = partial(train, config, name="often")
    for batch, saved in ((3, 2), (4, 4), (7, 6)):
        with monkeypatch.context() as patch:
            stop_in(patch, epoch=1, where="batch", batch=batch)
            with pytest.raises(Stop):
                go_on(home=home, quiet=True)
        (run,) = home.runs.glob("*/*/often")
        state = torch.load(run / LAST_CHECKPOINT, weights_only=True)
        assert (state["epoch"], state["batch"], len(state["processes"])) == (1, saved, 1)
        assert len(read_history(run)) == 1
        torch.manual_seed(999)
        go_on = partial(resume, run)
    resume(run, home=home, quiet=True)
    same_run(run, whole)
    for row in read_history(run):  # what was measured before a stop counts
        assert 0 < row["seconds_train"] < row["seconds"]


def test_a_metric_that_cannot_be_merged_needs_as_many_processes(
    longer, tmp_path, monkeypatch, capsys
):
    system = {"checkpoint_every": 1e-9}
    config = tiny_config(longer[0], training={"epochs": 3, "batch_size": 2}, system=system)
    with monkeypatch.context() as patch:
        stop_at(patch, 1, batch=5)
        with pytest.raises(KeyboardInterrupt):
            train(config, home=Home(tmp_path), name="two")
    run = next(Home(tmp_path).runs.glob("*/*/two"))
    said = capsys.readouterr().err
    command = f"kmip-data train --resume {run} --home {tmp_path}"
    assert f"Continue from the last checkpoint with: {command}\n" in said
    state = torch.load(run / LAST_CHECKPOINT, weights_only=True)
    state["processes"] *= 2
    write_checkpoint(run, state)
    monkeypatch.delattr("kmip_data.models.training.accumulators._SumAccumulator.merge_state")
    with raises(UsageError, naming=["accuracy", 2]):
        resume(run, home=Home(tmp_path), quiet=True)


def test_weights_have_the_names_that_published_files_have(whole):
    part = {f"{name}.{end}" for name in "ABCDE" for end in ("weight", "bias")}
    norm = {f"norm_{name}.{end}" for name in "xe" for end in ("weight", "bias")}
    statistics = {"running_mean", "running_var", "num_batches_tracked"}
    norm |= {f"norm_{name}.{end}" for name in "xe" for end in statistics}
    names = {f"local.{name}" for name in part | norm}
    names |= {
        f"attention.{name}.{end}"
        for name in ("query", "key", "value")
        for end in ("weight", "bias")
    }
    names |= {f"linear_{name}.{end}" for name in ("in", "out") for end in ("weight", "bias")}
    ends = {"weight", "bias"} | statistics
    names |= {f"norm_{name}.{end}" for name in ("local", "global", "out") for end in ends}
    shapes = {
        name.removeprefix("layers.0.")
        for name in load_file(whole / WEIGHTS_NAME)
        if "layers.0." in name
    }
    assert shapes == names


@pytest.mark.parametrize("content", [b"{", b'{"version": 1}', b"\xff\xfe"])
def test_a_finished_run_stays_as_it_is_and_a_damaged_result_is_written_anew(
    whole, tmp_path, content
):
    run = shutil.copytree(whole, tmp_path / "runs/clouds/gps-kmip/damaged")
    before = (run / WEIGHTS_NAME).stat().st_mtime_ns
    assert resume(run, home=Home(tmp_path), quiet=True).results == [read_result(run)]
    assert (run / WEIGHTS_NAME).stat().st_mtime_ns == before
    (run / RESULT_NAME).write_bytes(content)
    with raises(DamagedInput, naming=run / RESULT_NAME) as caught:
        evaluate(run, home=Home(tmp_path))
    assert "--resume" in caught.value.steps[-1].words
    resume(run, home=Home(tmp_path), quiet=True)
    result, expected = (read_result(folder) for folder in (run, whole))
    for name in ("metrics", "best_epoch", "epochs", "split", "num_parameters"):
        assert getattr(result, name) == getattr(expected, name)


def test_a_run_in_use_is_not_resumed_by_a_second_process(
    build, options, whole, tmp_path, monkeypatch
):
    home = Home(tmp_path / "home")
    inside = []

    def second(*_, **__):
        (run,) = home.runs.glob("*/*/two*")
        inside.append(run)
        with raises(FolderInUse, naming=run):
            resume(run, home=home, quiet=True)
        with raises(FolderInUse, naming=run):
            train(tiny_config(build, **options), home=home, name="two", quiet=True)
        raise Stop("stopped")

    for begin in (
        lambda: train(tiny_config(build, **options), home=home, name="two", quiet=True),
        lambda: resume("two", home=home, quiet=True),
    ):
        with monkeypatch.context() as patch:
            patch.setattr("kmip_data.models.training.run.loop.evaluate_parts", second)
            with pytest.raises(Stop):
                begin()
    assert len(inside) == 2
    resume("two", home=home, quiet=True)
    same_run(inside[0], whole)
    assert [entry.name for entry in inside[0].parent.iterdir()] == ["two"]  # no lock is left


def test_a_folder_without_a_configuration_is_taken_over(build, options, whole, tmp_path):
    home = Home(tmp_path / "home")
    run = home.runs / "clouds" / "gps-kmip" / "early"
    atomic_writes.create_marked_folder(run, RUN_MARKER)
    (run / atomic_writes.partial_name("config.toml")).write_text("[da")
    with raises(UsageError, naming="early"):
        resume("early", home=home, quiet=True)
    train(tiny_config(build, **options), home=home, name="early", quiet=True)
    same_run(run, whole)
    (run.parent / "mine").mkdir()
    (run.parent / "mine/notes.txt").write_text("mine")
    with raises(UsageError, naming="notes.txt"):
        train(tiny_config(build, **options), home=home, name="mine", quiet=True)


def resume_and_die(home, run, when):
    """Resume in a fork that kills itself: half way through writing a checkpoint, after one, or in a batch."""
    write, step = checkpoint.write_file, loop.Loop.train_batch

    def die():
        os.kill(os.getpid(), signal.SIGKILL)

    def writing(path, data):
        if path.name == "last.ckpt" and when == "half":
            path.with_name(atomic_writes.partial_name(path.name)).write_bytes(
                data[: len(data) // 2]
            )
            die()
        write(path, data)
        if path.name == "last.ckpt" and when == "after":
            die()

    def stepping(self, *args, **options):
        if when == "batch" and self.batches_done == 1:
            die()
        return step(self, *args, **options)

    checkpoint.write_file, loop.Loop.train_batch = writing, stepping
    resume(run, home=home, quiet=True)


def killed(home, run, moments):
    """Resume the run in processes that are killed, each after an epoch is saved or before."""
    for when, epoch in moments:
        fork = multiprocessing.get_context("fork").Process(
            target=resume_and_die, args=(home, run, when)
        )
        fork.start()
        fork.join(600)
        assert fork.exitcode == -signal.SIGKILL
        assert read_checkpoint(latest_checkpoint(run))["epoch"] == epoch + 1


def test_run_killed_while_saving_or_training_resumes(build, options, whole, tmp_path, monkeypatch):
    config = tiny_config(build, **options)
    home, run = stopped(monkeypatch, tmp_path, config, epoch=0, where="saved")
    killed(home, run, [("half", 0), ("batch", 0)])
    resume(run, home=home, quiet=True)
    same_run(run, whole)
    assert not list(run.rglob("*.partial"))


def test_a_damaged_checkpoint_is_named_and_runs_nothing(build, options, tmp_path, monkeypatch):
    config = tiny_config(build, **options)
    home, run = stopped(monkeypatch, tmp_path, config, epoch=0, where="saved")
    canary = tmp_path / "canary"

    class Hostile:
        def __reduce__(self):
            return os.system, (f"touch {canary}",)

    for state in ({"state_dict": Hostile()}, {"pytorch-lightning_version": "2.6.6"}):
        write_checkpoint(run, state)
        with raises(DamagedInput, naming=run / LAST_CHECKPOINT):
            resume(run, home=home, quiet=True)
        assert not canary.exists()
    (run / "checkpoints").rename(run.with_name("away"))
    (run / "checkpoints").symlink_to(run.with_name("away"))
    with raises(UsageError, naming=run / "checkpoints"):
        resume(run, home=home, quiet=True)


def test_resuming_on_other_data_is_refused(options, tmp_path, monkeypatch):
    build = learnable_build(tmp_path / "build")
    config = tiny_config(build, **options)
    home, run = stopped(monkeypatch, tmp_path, config, epoch=0, where="saved")
    shutil.rmtree(build.path)
    learnable_build(
        tmp_path / "build", parts={"train": [9, 8, 7, 6, 5, 4], "val": [3, 2], "test": [1, 0]}
    )
    with raises(CheckFailed, naming="build_key"):
        resume(run, home=home, quiet=True)


#: Two cases that differ in everything.
DIFFERENT_LINKS = {(False, "unsaved", "name"), (True, "saved", "resume")}


@pytest.mark.parametrize(
    ("trained_by_link", "where", "resumed_by"),  # before or after the first checkpoint
    [
        pytest.param(*case, marks=[] if case in DIFFERENT_LINKS else pytest.mark.torture)
        for case in itertools.product((False, True), ("unsaved", "saved"), ("resume", "name"))
    ],
)
def test_the_path_of_the_data_stays_when_the_home_is_reached_by_a_link(
    tmp_path, monkeypatch, trained_by_link, where, resumed_by
):
    """By another path of the same home a run resumes, and its files keep the path they have."""
    (tmp_path / "link").symlink_to(tmp_path / "home")
    build = learnable_build(tmp_path / "home/built/clouds")
    paths = [str(tmp_path / name / "built/clouds") for name in ("home", "link")]
    if trained_by_link:
        paths.reverse()
    config = tiny_config(build).with_values("data", dataset=paths[0])
    with monkeypatch.context() as patch:
        stop_in(patch, epoch=0, where=where)
        with pytest.raises(Stop):
            train(config, home=Path(paths[0]).parents[1], name="run", quiet=True)
    (run,) = (tmp_path / "home/runs").glob("*/*/run")
    before = (run / "config.toml").read_bytes()
    home = Path(paths[1]).parents[1]
    if resumed_by == "resume":
        resume("run", home=home, quiet=True)
    else:
        train(config.with_values("data", dataset=paths[1]), home=home, name="run", quiet=True)
    assert (run / "config.toml").read_bytes() == before
    assert read_result(run).config["data"]["dataset"] == paths[0]


def run_into(file, arguments):
    """Run a command line in this fork, which is the process of it, and print into ``file``."""
    os.dup2(os.open(file, os.O_WRONLY), 2)
    sys.stderr = os.fdopen(2, "w", buffering=1)
    sys.argv[1:] = arguments
    main()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_interrupted_runs_print_the_resume_command(build, tmp_path, number, code):
    small = ["layers=1", "hidden_dim=8", "attention.heads=2", "attention.k=3"]
    words = ["train", str(build.path), "--home", str(tmp_path), "--epochs", "100000"]
    words += ["--device", "cpu", "--name", "long", "--model", "gps-kmip"]
    words += [word for key in small for word in ("--set", f"model.{key}")]
    said = tmp_path / "said"
    said.touch()
    fork = multiprocessing.get_context("fork").Process(target=run_into, args=(said, words))
    fork.start()
    while fork.is_alive() and " 3/100000 " not in said.read_text():
        time.sleep(0.02)
    os.kill(fork.pid, number)
    fork.join(600)
    assert fork.exitcode == code, said.read_text()
    assert f"kmip-data train --resume {tmp_path}/runs/clouds/gps-kmip/long" in said.read_text()
    assert (
        torch.load(tmp_path / "runs/clouds/gps-kmip/long" / LAST_CHECKPOINT, weights_only=True)[
            "epoch"
        ]
        >= 3
    )
    assert not list(tmp_path.rglob("*.lock"))
