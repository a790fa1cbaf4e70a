"""Training runs that are killed, or find the disk full, at a chosen file operation, and then go on.

PyTorch is imported once, by the process that this module is run as; each command is a fork of it.

    python -m support.killed_runs FOLDER BUILD '[[N, WHEN, HOW], …]'

prints a JSON line for each file operation of an undisturbed run, then one for each case.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from support.file_operations import OPERATIONS, changed, served

TAKES_ROOM = {"open", "mkdir", "write", "fsync"}
SMALL = ("layers=1", "hidden_dim=8", "attention.heads=2", "attention.k=3")
NEVER = 10**9
#: What a run prints that was refused or failed: the command that leads on.
RESUME = re.compile(r"kmip-data (train --resume [^\s,]+)")


class Operation(NamedTuple):
    """One file operation of a run, as ``replace metrics.csv``."""

    name: str
    file: str


class Case(NamedTuple):
    """A fault at the n-th operation (from 0): a kill, or from there on no room."""

    n: int
    when: Literal["before", "middle", "after"] = "before"
    how: Literal["kill", "no-space"] = "kill"


class Outcome(NamedTuple):
    """Exit of the command, what resumed it, and differences of the finished run; empty without any."""

    case: Case
    status: int
    commands: list[str]
    fault: str


def survey(folder: Path, build: Path) -> list[Operation]:
    """Return the operations of an undisturbed run, which stays in ``folder`` to compare with."""
    return [Operation(*entry) for entry in _served(folder, build, [])]


def disturb(folder: Path, build: Path, cases: list[Case]) -> list[Outcome]:
    """Disturb one run a case, do what it says until it is finished, and compare with :func:`survey`."""
    return [Outcome(Case(*case), *rest) for case, *rest in _served(folder, build, cases)]


def _served(folder: Path, build: Path, cases: list[Case]) -> Iterator[list[Any]]:
    return served("support.killed_runs", folder, build, json.dumps(cases), cwd=folder)


class _Counter:
    """Counts operations on files below ``folder`` and lets the case happen."""

    def __init__(self, folder: Path, case: Case, log: Path | None) -> None:
        self.folder, self.case, self.log, self.seen = str(folder), case, log, -1
        for name in OPERATIONS:
            setattr(os, name, self.wrapped(name, getattr(os, name)))

    def wrapped(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            path = changed(name, arguments, options)  # of files below the folder alone
            if path is None or not path.startswith(self.folder):
                return function(*arguments, **options)
            self.seen += 1
            case, due = self.case, self.seen == self.case.n
            if self.log is not None:
                with self.log.open("a") as file:
                    file.write(json.dumps([name, Path(path).name]) + "\n")
            if case.how == "no-space":
                if self.seen >= case.n and name in TAKES_ROOM:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return function(*arguments, **options)
            if due and case.when == "middle" and name == "write":
                function(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
            if due and case.when != "after":
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                return function(*arguments, **options)
            finally:  # `mkdir` of a folder that is there raises, too
                if due:
                    os.kill(os.getpid(), signal.SIGKILL)

        return call


def _forked(arguments: list[str], folder: Path, case: Case, log: Path | None = None) -> tuple[int, str]:
    """Run one command line in a fork; return how it ended (negative: by a signal) and what it said."""
    said = folder.with_suffix(".said")
    child = os.fork()
    if child == 0:
        descriptor = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        _Counter(folder, case, log)
        from kmip_data.cli.main import run

        code = run(arguments)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), said.read_text()


def _train(build: str, home: Path) -> list[str]:
    small = [word for key in SMALL for word in ("--set", f"model.{key}")]
    options = ["--epochs", "4", "--device", "cpu", "--name", "run", "--set", "training.batch_size=4"]
    return ["train", "--dataset", build, "--home", str(home), *options, *small]


def _run_folder(home: Path) -> Path:
    return home / "runs/clouds/gps-kmip/run"


def _go_on(build: str, home: Path, case: Case) -> Outcome:
    """Disturb, then do what is said until the run is finished."""
    begin = _train(build, home)
    status, said = _forked(begin, home, case)
    code, commands = status, []
    while code != 0 and len(commands) < 4:
        if "Traceback" in said:
            return Outcome(case, status, commands, said)
        named = RESUME.search(said)
        command = [*shlex.split(named[1]), "--home", str(home)] if named else begin
        commands.append(command[1])
        code, said = _forked(command, home, Case(NEVER))
    if code == 0 and case.how != "kill" and (_run_folder(home).parent / ".locks").exists():
        return Outcome(case, status, commands, "a lock is left")
    return Outcome(case, status, commands, said if code else _difference(home, home.parent / "whole"))


def _difference(home: Path, whole: Path) -> str:
    run, reference = _run_folder(home), _run_folder(whole)
    files, found = (
        sorted(path.relative_to(top).as_posix() for path in top.rglob("*") if path.suffix != ".partial")
        for top in (reference, run)
    )
    if found != files:
        return f"files {found}"
    for name in ("model.safetensors", "checkpoints/best.safetensors", "config.toml"):
        if (run / name).read_bytes() != (reference / name).read_bytes():
            return name
    if _rows(run) != _rows(reference):
        return "metrics.csv"
    one, two = (json.loads((path / "result.json").read_text("utf-8")) for path in (run, reference))
    return "" if one["metrics"] == two["metrics"] else "result.json"


def _rows(run: Path) -> list[dict[str, float]]:
    from support.training_data import OF_THE_MACHINE, read_history

    return [{name: row[name] for name in row if name not in OF_THE_MACHINE} for row in read_history(run)]


def main() -> None:
    """Serve the command line that the module says."""
    folder, build = Path(sys.argv[1]), sys.argv[2]
    cases = [Case(*case) for case in json.loads(sys.argv[3])]
    with tempfile.TemporaryDirectory() as warm, contextlib.redirect_stdout(None):
        from kmip_data.cli.main import run

        # Imports, kernels and fonts: what every fork would begin with.
        assert run([*_train(build, Path(warm)), "--quiet"]) == 0
    if not cases:
        log = folder / "operations"
        code, said = _forked(_train(build, folder / "whole"), folder / "whole", Case(NEVER), log)
        assert code == 0, said
        print(log.read_text(), end="")  # noqa: T201
    for i, case in enumerate(cases):
        home = folder / f"case{i}"
        print(json.dumps(_go_on(build, home, case)), flush=True)  # noqa: T201
        shutil.rmtree(home)


if __name__ == "__main__":
    main()
