"""Two processes learn what one does: batches divided, losses weighed, batch norms shared."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from support.builds.learnable import (
    OF_THE_MACHINE,
    learnable_build,
    read_history,
    streets_build,
    tiny_config,
)
from support.raises import raises
from support.runs.processes import find_free_port, run_on_processes
from support.runs.stopping import stop_at
from support.shared import ROOT
from torch import distributed

import kmip_data
from kmip_data.builds.home import Home
from kmip_data.cli import main as command_line
from kmip_data.errors import OutOfResources, Setting, UsageError
from kmip_data.models.training.config.compose import compose_configuration
from kmip_data.models.training.config.overrides import (
    apply_overrides,
    config_from_mapping,
    config_to_toml,
    read_config,
)
from kmip_data.models.training.losses import LOSSES
from kmip_data.models.training.memory_estimate import StepMemory
from kmip_data.models.training.processes import join_processes
from kmip_data.models.training.run import train as training
from kmip_data.models.training.run.checkpoint import LAST_CHECKPOINT
from kmip_data.models.training.run.evaluate_run import evaluate
from kmip_data.models.training.run.loop import Loop
from kmip_data.models.training.run.result import read_result
from kmip_data.models.training.run.train import resume, train

ORDER = list(range(16))
#: Train batches of 5: 3 and 2 graphs, twice as many nodes as another; the last batch has one graph
#: for two.
PARTS = {"train": ORDER[:11], "val": ORDER[11:14], "test": ORDER[14:]}
NORMED = {"norm": "batch", "local": {"kind": "gated-gcn"}, "dropout": 0.0}
#: Biases before a batch norm, and of keys, have no gradient but rounding errors, which Adam would
#: divide by their own size.
SGD = {"name": "sgd", "momentum": 0.9, "lr": 0.05}


def _divided(name: str, weight: torch.Tensor, rows: torch.Tensor, target: torch.Tensor) -> Any:
    """Loss and mean gradient of ``rows @ weight``, of which this process has the rows of its rank."""
    weight = weight.clone().requires_grad_()
    learned, whole = LOSSES[name].losses_across_processes(rows @ weight, target)
    learned.backward()
    gradient = weight.grad / distributed.get_world_size()
    distributed.all_reduce(gradient)
    return whole, gradient


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Configurations of one process; for two they have the same names and two devices."""
    build = learnable_build(tmp_path_factory.mktemp("build"), graphs=16, nodes=17, parts=PARTS)
    cases = {
        "normed": {"model": NORMED, "optimizer": SGD},
        "recomputed": {"model": {**NORMED, "checkpoint_layers": True}, "optimizer": SGD},
        "whole": {"model": {**NORMED, "dropout": 0.3}},
        "stopped": {"model": {**NORMED, "dropout": 0.3}, "system": {"checkpoint_every": 1e-9}},
    }
    usual = {"epochs": 2, "batch_size": 5}
    configs = {
        name: tiny_config(build, training=usual, **sections) for name, sections in cases.items()
    }
    links = compose_configuration(
        "pcqm-contact",
        {},
        {},
        model="gcn",
        variant="code",
        epochs=1,
        sample=True,
        device="cpu",
        overrides=[
            *(
                "model.layers=2",
                "model.hidden_dim=16",
                "model.parameter_budget=none",
                "model.dropout=0",
            ),
            *("training.batch_size=3", "model.positional=none", "model.head_dropout=0"),
        ],
    )
    return {
        name: config.model_dump(mode="json") for name, config in {**configs, "links": links}.items()
    }


@pytest.fixture(scope="module")
def losses() -> dict[str, Any]:
    """A loss, weights, and the rows and targets of each of two processes."""
    draw = torch.Generator().manual_seed(0)
    rows = [torch.randn(n, 6, generator=draw) for n in (9, 4)]
    classes = [
        torch.randint(0, c, (len(r),), generator=draw) for r, c in zip(rows, (4, 2), strict=True)
    ]
    values = [torch.randn(len(r), 4, generator=draw) for r in rows]
    values[0][:6, 1:] = math.nan
    labels = [torch.where(v.isnan(), v, (v > 0).float()) for v in values]
    weight = torch.randn(6, 4, generator=draw)
    pairs = [torch.randint(-1, 2, (g, 4, 4), generator=draw).to(torch.int8) for g in (3, 2)]
    of_pairs = [torch.randn(g, 4, 6, generator=draw) for g in (3, 2)]
    none = [rows[0], rows[1][:0]]
    return {
        "weighted_cross_entropy": ("weighted_cross_entropy", weight, rows, classes),
        "weighted_binary_cross_entropy": ("weighted_binary_cross_entropy", weight, rows, classes),
        "cross_entropy": ("cross_entropy", weight, rows, classes),
        "binary_cross_entropy": ("binary_cross_entropy", weight, rows, labels),
        "l1": ("l1", weight, rows, values),
        "log10_mse": ("log10_mse", weight, rows, values),
        "log10_mse of one": ("log10_mse", weight, none, [values[0], values[1][:0]]),
        "no rows in one": ("weighted_cross_entropy", weight, none, [classes[0], classes[1][:0]]),
        "one class": ("weighted_cross_entropy", weight, rows, [c * 0 + 2 for c in classes]),
        "nothing known": ("l1", weight, rows, [v * math.nan for v in values]),
        "link_cross_entropy": ("link_cross_entropy", weight, of_pairs, pairs),
    }


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, runs: Any, losses: Any) -> Path:
    """Every run by one process, then by two; the losses by two."""
    alone, two = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    for name, values in runs.items():
        if name in {"whole", "stopped"}:
            continue
        train(config_from_mapping(values, "the test"), home=Home(alone), name=name, quiet=True)
    (two / "built").symlink_to(alone / "built")

    def run_rank(rank: int) -> None:
        for name, values in runs.items():
            system = {**values["system"], "devices": 2}
            config = config_from_mapping({**values, "system": system}, "the test")
            if name == "stopped":
                with pytest.MonkeyPatch.context() as patch:
                    stop_at(patch, 1, batch=2)
                    with pytest.raises(KeyboardInterrupt):
                        train(config, home=Home(two), name=name, quiet=True)
                resume(name, home=Home(two), quiet=True)
            else:
                train(config, home=Home(two), name=name, quiet=True)
        own_losses = {
            case: _divided(name, weight, rows[rank], targets[rank])
            for case, (name, weight, rows, targets) in losses.items()
        }
        if rank == 0:
            torch.save(own_losses, alone / "losses.pt")

    run_on_processes(2, run_rank)
    (alone / "two").symlink_to(two)
    return alone


def _run(home: Path, name: str) -> Path:
    (run,) = (home / "runs").glob(f"*/*/{name}")
    return run


@pytest.mark.slow
@pytest.mark.parametrize("name", ["normed", "recomputed", "links"])
def test_two_processes_learn_the_same_as_one(home: Path, name: str) -> None:
    one, two = _run(home, name), _run(home / "two", name)
    within = 1e-5 if name in {"normed", "recomputed"} else 1e-6
    last = [torch.load(run / LAST_CHECKPOINT, weights_only=True)["model"] for run in (one, two)]
    assert last[0].keys() == last[1].keys()
    for key, value in last[0].items():
        torch.testing.assert_close(last[1][key], value, rtol=within, atol=within)
    pairs = [*zip(read_history(one), read_history(two), strict=True)]
    pairs += [
        (values, read_result(two).metrics[part])
        for part, values in read_result(one).metrics.items()
    ]
    for alone, shared in pairs:
        for column in alone.keys() - OF_THE_MACHINE:
            # Nodes that look alike have equal scores but for rounding, which decides their ranks.
            near = 0.02 if "mrr" in column or "hits" in column else 10 * within
            assert shared[column] == pytest.approx(alone[column], rel=near, abs=near), column


@pytest.mark.slow
def test_each_process_resumes_its_separate_random_state(home: Path) -> None:
    runs = [_run(home / "two", name) for name in ("whole", "stopped")]
    whole, stopped = (torch.load(run / LAST_CHECKPOINT, weights_only=True) for run in runs)
    for one, two in zip(*map(read_history, runs), strict=True):
        assert {**one, **dict.fromkeys(OF_THE_MACHINE)} == {**two, **dict.fromkeys(OF_THE_MACHINE)}
    assert not torch.equal(*(process["random"]["torch"] for process in whole["processes"]))
    for name, value in whole["model"].items():
        assert torch.equal(stopped["model"][name], value), name


@pytest.mark.slow
def test_losses_of_two_processes_equal_the_loss_of_all_rows(home: Path, losses: Any) -> None:
    losses_of_two = torch.load(home / "losses.pt")
    for case, (name, begun, rows, targets) in losses.items():
        weight = begun.clone().requires_grad_()
        loss = LOSSES[name](torch.cat(rows) @ weight, torch.cat(targets))
        loss.backward()
        whole, gradient = losses_of_two[case]
        torch.testing.assert_close(whole, loss.detach(), rtol=1e-6, atol=1e-7, msg=case)
        torch.testing.assert_close(gradient, weight.grad, rtol=1e-5, atol=1e-7, msg=case)


def test_two_processes_make_one_run_and_measure_each_graph_once(tmp_path: Path) -> None:
    order = list(range(15))
    parts = {"train": order[:7], "val": order[7:10], "test": order[10:]}  # none divides by two
    build = learnable_build(tmp_path / "build", graphs=15, parts=parts)
    keys = (
        "model.layers=1",
        "model.hidden_dim=8",
        "model.attention.heads=2",
        "model.attention.k=3",
        "training.batch_size=2",
        "training.patience=1",
        "schedule.per=step",
    )
    words = ["train", str(build.path), "--home", str(tmp_path), "--devices", "2"]
    words += ["--device", "cpu", "--epochs", "2", "--name", "two", "--json"]
    words += ["--model", "gps-kmip"]
    words += [word for key in keys for word in ("--set", key)]
    printed = tmp_path / "printed.json"

    def command(rank: int) -> None:
        with printed.open("a") as file:
            os.dup2(file.fileno(), 1)
        with contextlib.redirect_stdout(os.fdopen(1, "w", closefd=False)):
            code = command_line.run_command_line(words)
            sys.stdout.flush()
        assert code == 0

    run_on_processes(2, command)
    values = json.loads(printed.read_text())  # exactly one object
    run = _run(tmp_path, "two")
    assert values["run"] == str(run)
    result = read_result(run)
    assert result.config["system"]["devices"] == 2
    alone = evaluate(run, home=Home(tmp_path)).metrics
    for part in parts:
        for name in ("accuracy", "f1", "miou"):
            assert alone[part][name] == result.metrics[part][name] == values["metrics"][part][name]


def test_a_batch_that_cannot_be_divided_is_refused(tmp_path: Path) -> None:
    config = tiny_config(
        learnable_build(tmp_path / "build"), training={"batch_size": 1}, system={"devices": 2}
    )
    with raises(UsageError, steps=Setting({"training.batch_size": 2})):
        train(config, home=Home(tmp_path), quiet=True)


@pytest.mark.torture
def test_two_nodes_of_torchrun_make_one_run(tmp_path: Path) -> None:
    build = learnable_build(tmp_path / "build", graphs=12)
    small = [
        "model.layers=1",
        "model.hidden_dim=8",
        "model.attention.heads=2",
        "model.attention.k=3",
    ]
    small += ["training.batch_size=3"]
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nnodes",
        "2",
        "--nproc-per-node",
        "1",
    ]
    torchrun += ["--master-addr", "127.0.0.1", "--master-port", find_free_port()]
    command = [
        "-m",
        "kmip_data",
        "train",
        str(build.path),
        "--model",
        "gps-kmip",
        "--device",
        "cpu",
        "--json",
    ]
    command += [
        "--home",
        str(tmp_path),
        "--name",
        "nodes",
        "--epochs",
        "2",
        "--set",
        "system.nodes=2",
    ]
    command += [word for key in small for word in ("--set", key)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    nodes = [
        subprocess.Popen(
            [*torchrun, "--node-rank", rank, *command],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
        )
        for rank in "01"
    ]
    outputs = [node.communicate(timeout=400)[0].decode() for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0]
    summary = json.loads(outputs[0])
    assert not outputs[1].strip()
    run = _run(tmp_path, "nodes")
    assert summary["run"] == str(run)
    assert read_result(run).config["system"]["nodes"] == 2
    assert resume(run, home=Home(tmp_path), quiet=True).results[0].metrics == summary["metrics"]


#: A command line whose process SIGNALLED gets a signal before it learns from epoch 2.
SIGNALLED = """
import os, sys
from kmip_data.cli.main import main
from kmip_data.models.training.run.loop import Loop

step = Loop.train_batch

def signalled(loop, *given, **options):
    if (loop.epoch, os.environ["RANK"]) == (2, os.environ["SIGNALLED"]):
        os.kill(os.getpid(), int(os.environ["SIGNAL"]))
    return step(loop, *given, **options)

Loop.train_batch = signalled
main()
"""


@pytest.fixture(scope="module")
def stoppable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a run of one process, its configuration and the script above."""
    home = tmp_path_factory.mktemp("stoppable")
    sections: dict[str, Any] = {
        "model": NORMED,
        "optimizer": SGD,
        "training": {"accumulate": 1, "batch_size": 5},
    }
    build = learnable_build(home / "build", graphs=16, nodes=17, parts=PARTS)
    config = tiny_config(build, **sections)
    train(config, home=Home(home), name="one", quiet=True)
    (home / "config.toml").write_text(config_to_toml(config))
    (home / "signalled.py").write_text(SIGNALLED)
    return home


def _signalled(home: Path, name: str, rank: int, number: int) -> tuple[int, str]:
    """Train on two processes, of which one gets a signal; return exit code and errors."""
    command = [
        sys.executable,
        str(home / "signalled.py"),
        "train",
        "--config",
        str(home / "config.toml"),
    ]
    command += ["--devices", "2", "--home", str(home), "--name", name, "--quiet"]
    chosen = {"SIGNALLED": str(rank), "SIGNAL": str(number), "OMP_NUM_THREADS": "1"}
    environment = {**os.environ, **chosen, "GLOO_SOCKET_IFNAME": "lo"}
    # Both hold the pipe: it ends with the later one.
    options: dict[str, Any] = {"env": environment, "cwd": ROOT, "stderr": subprocess.PIPE}
    done = subprocess.run(command, check=False, timeout=300, **options)
    return done.returncode, done.stderr.decode()


#: Processes of a run, one after the other, and the epoch and batch before which they are stopped.
STAGES = ((1, 0, 2), (2, 1, 0), (3, 1, 1), (1, 2, 1), (4, 9, 9))


@pytest.mark.slow
def test_a_run_continues_on_other_numbers_of_processes(
    stoppable: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Within epochs and between two: each graph is learned once an epoch, and the metrics are the same."""
    wanted = _run(stoppable, "one")
    run = wanted.parent / "moved"
    config = apply_overrides(
        read_config(stoppable / "config.toml"), ["system.checkpoint_every=1e-9"]
    )
    (stoppable / "moved.toml").write_text(config_to_toml(config))
    home = ["--home", str(stoppable)]
    start = ["train", "--config", str(stoppable / "moved.toml"), "--name", "moved", *home]

    for processes, epoch, batch in STAGES:
        resumed = ["train", "--resume", "moved", "--devices", str(processes), *home]

        def stage(rank: int, at: tuple[int, int] = (epoch, batch), line: Any = resumed) -> None:
            step = Loop.train_batch

            def recorded(loop: Loop, graphs: Any, *given: Any, **options: Any) -> Any:
                if "train_mask" not in graphs:  # else it repeats another process's graph
                    firsts = graphs.x[graphs.ptr[:-1], 0].tolist()
                    with (stoppable / f"learned{loop.epoch}-{rank}").open("a") as file:
                        print(*firsts, sep="\n", file=file)
                return step(loop, graphs, *given, **options)

            Loop.train_batch = recorded  # type: ignore[method-assign]
            if rank:  # as where less memory is free: all have to recompute layers, or none
                training.memory_estimate.estimate_step_memory = lambda *_: StepMemory(True, 0, 0)
            with pytest.MonkeyPatch.context() as patch:
                stop_at(patch, at[0], batch=at[1])
                code = command_line.run_command_line(line if run.exists() else start)
            assert code == (0 if at[0] == 9 else 130)

        run_on_processes(processes, stage)
        # As on two machines, of which one is left.
        text = (run / "config.toml").read_text()
        (run / "config.toml").write_text(text.replace("nodes = 1", "nodes = 2"))

    assert "processes: 3 instead of 2" in capfd.readouterr().err
    each_once = sorted(
        float(graph.x[0, 0]) for graph in kmip_data.open(stoppable / "build", "train")
    )
    for epoch in range(3):
        files = stoppable.glob(f"learned{epoch}-*")
        learned = [float(line) for file in files for line in file.read_text().split()]
        assert sorted(learned) == each_once, epoch

    last = [torch.load(each / LAST_CHECKPOINT, weights_only=True) for each in (wanted, run)]
    for key, value in last[0]["model"].items():
        torch.testing.assert_close(last[1]["model"][key], value, rtol=1e-4, atol=1e-5, msg=key)
    for alone, moved in zip(read_history(wanted), read_history(run), strict=True):
        for column in alone.keys() - OF_THE_MACHINE:
            near = 1e-4 if "loss" in column or "grad" in column else 0.01
            assert moved[column] == pytest.approx(alone[column], rel=near, abs=near), column
    again = evaluate(run, home=Home(stoppable)).metrics["test"]["loss"]
    assert again == pytest.approx(read_result(run).metrics["test"]["loss"], rel=1e-5)


@pytest.mark.torture
def test_a_signal_ends_both_processes_of_a_run_with_its_code(stoppable: Path) -> None:
    code, errors = _signalled(stoppable, "ended", 0, signal.SIGTERM)
    assert code == 143, errors


@pytest.mark.parametrize(("kind", "backend"), [("cpu", "gloo"), ("cuda", "nccl")])
def test_the_backend_follows_from_the_device(
    kind: str, backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config(streets_build(tmp_path / "build"), system={"devices": 2})
    for name, value in {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    chosen: list[Any] = []
    monkeypatch.setattr(distributed, "init_process_group", chosen.append)
    # There is no group to leave.
    monkeypatch.setattr("kmip_data.models.training.processes.atexit.register", lambda leave: None)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    device = join_processes(config, kind)
    assert (device.type, chosen) == (kind, [1, backend] if kind == "cuda" else [backend])


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, pytest.param(1, marks=pytest.mark.torture)])
def test_a_process_that_is_killed_ends_the_other_with_one_error(stoppable: Path, rank: int) -> None:
    code, errors = _signalled(stoppable, f"killed-{rank}", rank, signal.SIGKILL)
    assert code == (OutOfResources.exit_code if rank else -signal.SIGKILL), errors
    assert errors.count("Error: Another process of this run has stopped responding.") == 1
    assert errors.count("Error") == 1
    assert "Traceback" not in errors


def test_one_graph_is_refused_on_several_processes(tmp_path: Path) -> None:
    config = tiny_config(streets_build(tmp_path / "build"), system={"devices": 2})
    with raises(UsageError, steps=Setting(devices=None)):
        train(config, home=Home(tmp_path), quiet=True)
