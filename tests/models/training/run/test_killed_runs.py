"""Killed, or out of room, at any file operation: the command that is named finishes with the same weights."""

from __future__ import annotations

import errno
import functools
import json
import os
import random
import re
import shlex
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
from support.attacks.power_cuts import recorded
from support.builds.learnable import OF_THE_MACHINE, learnable_build, read_history
from support.cli import kmip

from kmip_data.cli.main import run_command_line

pytestmark = [pytest.mark.torture, pytest.mark.timeout(3600)]

TAKES_ROOM = {"open", "mkdir", "write", "fsync"}
SMALL = ("layers=1", "hidden_dim=8", "attention.heads=2", "attention.k=3")
#: Line of a run that was refused or failed: the command that leads on.
RESUME = re.compile(r"kmip-data (train --resume [^\s,]+)")


OPERATIONS = ("open", "mkdir", "write", "fsync", "ftruncate", "replace", "unlink", "rmdir")
NEVER = 10**9
#: Carries an operation out: its number (from 0), its name, the path, the call.
Around = Callable[[int, str, str, "functools.partial[Any]"], Any]


class Case(NamedTuple):
    """A fault at the n-th operation (from 0): a kill, or from there on no room."""

    n: int
    when: Literal["before", "middle", "after"] = "before"
    how: Literal["kill", "no-space"] = "kill"


def watch(folder: Path, around: Around) -> None:
    """Let ``around`` carry out each change of what lies below ``folder``."""
    seen = -1

    def wrapped(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal seen
            path = _changed(name, arguments, options)
            if path is None or not path.startswith(str(folder)):
                return function(*arguments, **options)
            seen += 1
            return around(seen, name, path, functools.partial(function, *arguments, **options))

        return call

    for name in OPERATIONS:
        setattr(os, name, wrapped(name, getattr(os, name)))


def _changed(name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> str | None:
    """Path of the file that an operation changes, if it changes one."""
    if name == "open" and not arguments[1] & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
        return None
    target = arguments[1] if name == "replace" else arguments[0]
    if isinstance(target, int):
        try:
            target = Path(f"/proc/self/fd/{target}").readlink()
        except OSError:
            return None
    inside = options.get("dst_dir_fd", options.get("dir_fd"))  # a name inside an open folder
    base = Path.cwd() if inside is None else Path(f"/proc/self/fd/{inside}").readlink()
    return str(base / target)


def fork(action: Callable[[], int], said: Path, folder: Path, around: Around) -> int:
    """Run ``action`` in a fork, which ends with its code; what it prints is in ``said``."""
    said.write_text("")
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        descriptor = os.open(said, os.O_WRONLY | os.O_APPEND)
        for stream in (1, 2):
            os.dup2(descriptor, stream)
        sys.stdout, sys.stderr = (os.fdopen(stream, "w", buffering=1) for stream in (1, 2))
        watch(folder, around)
        code = action()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def disturbed(home: Path, words: list[str], case: Case, log: Path | None = None) -> tuple[int, str]:
    """Run a command line in a fork; return how it ended (negative: by a signal) and its output."""

    def around(n: int, name: str, path: str, call: Any) -> Any:
        if log is not None:
            with log.open("a") as file:
                file.write(json.dumps([name, Path(path).name]) + "\n")
        if case.how == "no-space" and n >= case.n and name in TAKES_ROOM:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if case.how == "no-space" or n != case.n:
            return call()
        if case.when == "middle" and name == "write":
            call.func(call.args[0], bytes(call.args[1])[: len(call.args[1]) // 2])
        try:
            if case.when == "after":
                call()
        finally:  # `mkdir` of a folder that is there raises, too
            os.kill(os.getpid(), signal.SIGKILL)

    said = home.parent / "said"
    pid = fork(lambda: run_command_line(words), said, home, around)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said.read_text()


def train(place: Path, home: Path) -> list[str]:
    small = [word for key in SMALL for word in ("--set", f"model.{key}")]
    options = [
        "--model",
        "gps-kmip",
        "--epochs",
        "4",
        "--device",
        "cpu",
        "--name",
        "run",
        "--set",
        "training.batch_size=4",
    ]
    return ["train", str(place / "build"), "--home", str(home), *options, *small]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("killed")
    learnable_build(folder / "build")
    assert (
        run_command_line([*train(folder, folder / "warm"), "--quiet"]) == 0
    )  # what every fork would begin with
    return folder


@pytest.fixture(scope="module")
def operations(place: Path) -> list[tuple[str, str]]:
    """Every file operation of an undisturbed run of four epochs, as ``replace``, ``metrics.csv``."""
    log, whole = place / "operations", place / "whole/home"
    whole.parent.mkdir()
    code, said = disturbed(whole, train(place, whole), Case(NEVER), log)
    assert code == 0, said
    return [tuple(json.loads(line)) for line in log.read_text().splitlines()]


def check(place: Path, cases: list[Case]) -> None:
    """Disturb a run in each case, then do what is said until it is finished."""
    for case in cases:
        home = Path(tempfile.mkdtemp(dir=place)) / "home"
        begin = train(place, home)
        status, said = disturbed(home, begin, case)
        code, commands = status, []
        while code != 0 and len(commands) < 4:
            assert "Traceback" not in said, (case, said)
            named = RESUME.search(said)
            commands.append([*shlex.split(named[1]), "--home", str(home)] if named else begin)
            code, said = disturbed(home, commands[-1], Case(NEVER))
        assert code == 0, (case, said)
        if case.how == "kill":
            assert status == -signal.SIGKILL, case
        else:  # the last room that is asked for is for the folder, which is synced
            assert status == 6, case
            assert 1 <= len(commands) <= 2, (case, commands)
            assert not list(home.rglob("*.lock")), case
        assert state(home) == state(place / "whole/home"), case
        shutil.rmtree(home.parent)


def state(home: Path) -> dict[str, Any]:
    """Files of a finished run and what may not differ between two."""
    folder = home / "runs/clouds/gps-kmip/run"
    files: dict[str, Any] = {
        path.relative_to(folder).as_posix(): None
        for path in folder.rglob("*")
        if path.suffix != ".partial"
    }
    for name in ("model.safetensors", "checkpoints/best.safetensors", "config.toml"):
        files[name] = (folder / name).read_bytes()
    rows = read_history(folder)
    files["metrics.csv"] = [
        {name: row[name] for name in row if name not in OF_THE_MACHINE} for row in rows
    ]
    files["result.json"] = json.loads((folder / "result.json").read_text("utf-8"))["metrics"]
    return files


@pytest.mark.parametrize("part", range(4))
def test_runs_killed_at_200_moments(
    place: Path, operations: Any, part: int, torture_count: Callable[..., None]
) -> None:
    moments = [
        Case(n, when)
        for n, (name, _) in enumerate(operations)
        for when in ("before", "middle", "after")
        if when != "middle" or name == "write"
    ]
    cases = random.Random(0).sample(moments, 200)[part::4]
    check(place, cases)
    torture_count("kills", len(cases))


def test_runs_whose_disk_is_full_from_any_operation_on(
    place: Path, operations: Any, torture_count: Callable[..., None]
) -> None:
    cases = [
        Case(n, how="no-space") for n, (name, _) in enumerate(operations) if name in TAKES_ROOM
    ]
    cases = random.Random(1).sample(cases, 40)
    check(place, cases)
    torture_count("full disks", len(cases))


def test_runs_after_a_power_cut_at_every_moment(
    place: Path, tmp_path: Path, torture_count: Callable[..., None]
) -> None:
    home = tmp_path / "home"
    begin = [*train(place, home), "--quiet"]
    begin[begin.index("4")] = "2"
    (home / "runs").mkdir(parents=True)
    with recorded(home / "runs") as disk:
        assert kmip(*begin).code == 0
    whole = state(home)

    for number, files in enumerate(disk.states):
        disk.put(files)
        commands = [begin]
        outcome = kmip(*begin)
        while outcome.code != 0 and len(commands) < 4:
            named = RESUME.search(outcome.err)
            commands.append(
                [*shlex.split(named[1]), "--home", str(home), "--quiet"] if named else begin
            )
            outcome = kmip(*commands[-1])
        assert outcome.code == 0, (number, outcome.err)
        assert state(home) == whole, number
    torture_count("power cuts of runs", len(disk.states))
