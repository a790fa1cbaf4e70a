"""State of the runs of a home and of a sweep, read from disk alone, and the command that resumes each."""

from __future__ import annotations

import contextlib
import glob
import os
import shlex
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from kmip_data.builds.home import Home
from kmip_data.errors import KmipDataError
from kmip_data.files.changes import LOCKS, FolderInUse, build_lock
from kmip_data.files.reading import MAX_BYTES, open_regular, read_json, read_small
from kmip_data.models.sweeps.cells import UNNAMED, Cell, Plan, read_plan, sweep_names
from kmip_data.models.training.run.folder import CONFIG_NAME, RESULT_NAME, find_run, metrics_columns
from kmip_data.wording import rough_time, timestamp

ERROR = "Error: "  #: prefix of the message of a command that failed
#: Errors of reading untrusted files without their pydantic models, which would load PyTorch.
_WRONG = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError)


class State(NamedTuple):
    """State of one run."""

    kind: Literal["done", "running", "failed", "stopped", "waiting"]
    epoch: int  #: epochs that are done
    epochs: int | None  #: of the configuration
    left: str = ""  #: estimated time of the remaining epochs
    reason: str = ""  #: why it failed


def state_of(run: Path, home: Home) -> State:
    """Return the state of the run in a folder of ``home``, which a run that waits does not have yet."""
    epochs, left = None, ""
    with contextlib.suppress(*_WRONG):
        epochs = int(tomllib.loads(read_small(run / CONFIG_NAME).decode())["training"]["epochs"])
    seconds = [value for _, value in metrics_columns(run).get("seconds", [])]
    done = len(seconds)
    if (run / RESULT_NAME).is_file():
        return State("done", done, epochs)
    with contextlib.suppress(ArithmeticError, ValueError):  # no epoch yet, or absurd figures in the file
        left = rough_time(sum(seconds) / done * max(0, (epochs or 0) - done))
    log = next(home.root.glob(f"sweeps/*/{glob.escape('.'.join(run.parts[-3:]))}.log"), None)
    # In this order: a sweep that starts a run holds the first lock and must find the second one free.
    if not ((log is None or is_free(log)) and is_free(run)):
        return State("running", done, epochs, left)
    if log is not None and (reason := failure(log)):
        return State("failed", done, epochs, left, reason)
    return State("stopped" if (run / CONFIG_NAME).is_file() else "waiting", done, epochs, left)


def log_of(cell: Cell, folder: Path) -> Path:
    """Return the log of a cell's last process; the sweep that runs the cell holds the lock of this path."""
    return folder / f"{'.'.join(cell.folder.parts[-3:])}.log"


def is_free(path: Path) -> bool:
    """True if no process holds the lock of ``path``."""
    if not any((path.parent / LOCKS).glob(f"{glob.escape(path.name)}.lock*")):
        return True  # without making a lock file
    try:
        with build_lock(path, wait=False):
            return True
    except KmipDataError as error:  # where something else lies there, nobody can hold it
        return not isinstance(error, FolderInUse)


def failure(log: Path) -> str:
    """Return the last error in a log; empty if there is none."""
    try:
        with open_regular(log) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - MAX_BYTES))
            lines = file.read(MAX_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.removeprefix(ERROR) for line in reversed(lines) if line.startswith(ERROR)), "")


def folders_of(names: Sequence[str], home: Home) -> list[Path]:
    """Return the run folders that ``names`` mean: sweeps or runs; without names, all finished runs.

    Raises ``UsageError`` if a name is neither a sweep nor a run.
    """
    if not names:
        return sorted(path.parent for path in home.runs.glob(f"*/*/*/{RESULT_NAME}"))
    found = list[Path]()
    for name in names:
        if name in {*sweep_names(), UNNAMED} or name.endswith(".toml"):
            found += runs_of(read_plan(None if name == UNNAMED else name), home)
        else:
            found.append(find_run(name, home))
    return [*dict.fromkeys(found)]


def runs_of(plan: Plan, home: Home) -> list[Path]:
    """Return the run folders of a sweep, by their names: also those that were started with other options."""
    folders = (path.parent for path in home.runs.glob(f"*/*/*/{CONFIG_NAME}"))
    return sorted(folder for folder in folders if plan.run_names().fullmatch(folder.name))


def list_runs(home: Home) -> list[dict[str, Any]]:
    """Return the runs below ``home.runs``, the latest first, as :func:`described`."""
    configs = (path for path in home.runs.glob(f"*/*/*/{CONFIG_NAME}") if path.is_file())
    found = sorted(((path.stat().st_mtime, path.parent) for path in configs), reverse=True)
    return [described(folder, home) | {"begun": timestamp(begun)} for begun, folder in found]


def described(folder: Path, home: Home) -> dict[str, Any]:
    """Return the state of a run for people and scripts; its folder need not exist.

    ``path``, ``dataset``, ``model``, ``name``, ``state``, ``epoch`` (that are done), ``epochs``, ``metric``
    (that chose the epoch), ``test`` (its value), ``left`` (estimated time), ``reason`` (of a failure) and
    ``resume``: the command that resumes it, unless it runs or is done.
    """
    run = dict(zip(("dataset", "model", "name"), folder.parts[-3:], strict=True))
    state, metric, test, resume = state_of(folder, home), None, None, None
    if state.kind == "done":
        try:
            found: Any = read_json(folder / RESULT_NAME)
            test = float(found["metrics"]["test"][found["metric"]])
            metric = str(found["metric"])
        except _WRONG:
            why = f"{RESULT_NAME} cannot be read; resuming writes it again"
            state = state._replace(kind="stopped", reason=why)
    if state.kind in {"stopped", "failed"} and (folder / CONFIG_NAME).is_file():
        elsewhere = "" if home == Home.locate() else f" --home {shlex.quote(str(home.root))}"
        resume = f"kmip-data train --resume {shlex.quote('/'.join(run.values()))}{elsewhere}"
    kind, epoch, epochs, left, reason = state
    found = {"path": folder, **run, "state": kind, "epoch": epoch, "epochs": epochs, "metric": metric}
    return {**found, "test": test, "left": left, "reason": reason, "resume": resume}
