"""State of the runs of a home and of a sweep, read from disk alone, and the command that resumes each."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shlex
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from kmip_data.builds.home import Home
from kmip_data.errors import KmipDataError
from kmip_data.files.changes import LOCKS, FolderInUse, build_lock
from kmip_data.files.reading import MAX_BYTES, open_regular, read_json, read_small
from kmip_data.models.sweeps.cells import Cell
from kmip_data.models.sweeps.plan import UNNAMED, read_plan, sweep_names
from kmip_data.models.training.run.folder import CONFIG_NAME, RESULT_NAME, find_run, metrics_columns
from kmip_data.wording import rough_time, timestamp

ERROR = "Error: "  #: prefix of the message of a command that failed
_JOB = re.compile(rb"[0-9]{1,18}(_[0-9]{1,9})?")  #: id of a SLURM job, or of a task of an array job


class State(NamedTuple):
    """State of one cell."""

    kind: Literal["done", "running", "failed", "stopped", "waiting"]
    epoch: int = 0  #: epochs that are done
    left: str = ""  #: estimated time of the remaining epochs
    reason: str = ""  #: why it failed; for a submitted cell, its job


def state_of(cell: Cell, folder: Path) -> State:
    """Return the state of a cell; ``folder`` is the sweep's."""
    found = state_of_run(cell.folder, log_of(cell, folder), cell.config.training.epochs)
    job = job_of(cell, folder) if found.kind in {"stopped", "waiting"} else ""
    return found._replace(reason=f"submitted as job {job}") if job else found


def state_of_run(folder: Path, log: Path | None, epochs: int) -> State:
    """Return the state of a run of ``epochs`` epochs; ``log``: of its cell, if it belongs to a sweep."""
    seconds = [value for _, value in metrics_columns(folder).get("seconds", [])]
    epoch = len(seconds)
    if (folder / RESULT_NAME).is_file():
        return State("done", epoch)
    left = ""
    with contextlib.suppress(ArithmeticError, ValueError):  # no epoch yet, or absurd figures in the file
        left = rough_time(sum(seconds) / epoch * max(0, epochs - epoch))
    # In this order: a sweep that starts a run holds the first lock and must find the second one free.
    if not ((log is None or is_free(log)) and is_free(folder)):
        return State("running", epoch, left)
    if log is not None and (reason := failure(log)):
        return State("failed", epoch, left, reason)
    return State("stopped" if (folder / CONFIG_NAME).is_file() else "waiting", epoch, left)


def is_done(cell: Cell) -> bool:
    """Return True if the run has its result."""
    return (cell.folder / RESULT_NAME).is_file()


def log_of(cell: Cell, folder: Path) -> Path:
    """Return the log of a cell's last process; the sweep that runs the cell holds the lock of this path."""
    return folder / f"{'.'.join(cell.folder.parts[-3:])}.log"


def job_path(cell: Cell, folder: Path) -> Path:
    """Return the file with the id of the job that was submitted for a cell."""
    return log_of(cell, folder).with_suffix(".job")


def job_of(cell: Cell, folder: Path) -> str:
    """Return the id of a cell's job; empty if none was submitted, or the file holds no id."""
    with contextlib.suppress(OSError, ValueError):
        found = read_small(job_path(cell, folder), most=100).strip()
        return found.decode() if _JOB.fullmatch(found) else ""
    return ""


def is_free(path: Path) -> bool:
    """Return True if no process holds the lock of ``path``."""
    if not any((path.parent / LOCKS).glob(f"{glob.escape(path.name)}.lock*")):
        return True  # without making a lock file
    try:
        with build_lock(path, wait=False):
            return True
    except FolderInUse:
        return False
    except KmipDataError:  # something else lies where the lock file would: nobody can hold it
        return True


def failure(log: Path) -> str:
    """Return the last error in a log; empty if there is none."""
    try:
        with open_regular(log) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - MAX_BYTES))
            lines = file.read(MAX_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.removeprefix(ERROR) for line in reversed(lines) if line.startswith(ERROR)), "")


#: Errors of reading untrusted files without their pydantic models, which would load PyTorch.
_WRONG = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError)


def folders_of(names: Sequence[str], home: Home) -> list[Path]:
    """Return the run folders that ``names`` mean: sweeps or runs; without names, all finished runs.

    Raises ``UsageError`` if a name is neither a sweep nor a run.
    """
    if not names:
        return sorted(path.parent for path in home.runs.glob(f"*/*/*/{RESULT_NAME}"))
    sweeps, found = [*sweep_names(), UNNAMED], dict[Path, None]()
    configs = sorted(home.runs.glob(f"*/*/*/{CONFIG_NAME}"))
    for name in names:
        if name in sweeps or name.endswith(".toml"):
            pattern = read_plan(None if name == UNNAMED else name).run_names()
            found |= dict.fromkeys(path.parent for path in configs if pattern.fullmatch(path.parent.name))
            continue
        found[find_run(name, home)] = None
    return [*found]


def list_runs(home: Home) -> list[dict[str, Any]]:
    """Return the runs below ``home.runs``, the latest first.

    Of each ``path``, ``dataset``, ``model``, ``name``, ``state``, ``epoch`` (that are done), ``epochs``,
    ``begun``, ``metric`` (that chose the epoch), ``test`` (its value), ``left`` (estimated time), ``reason``
    (of a failure) and ``resume``: the command that resumes it, unless it runs or is done.
    """
    configs = [path for path in home.runs.glob(f"*/*/*/{CONFIG_NAME}") if path.is_file()]
    found = sorted(((path.stat().st_mtime, path.parent) for path in configs), reverse=True)
    return [_listed(home, folder, begun) for begun, folder in found]


def _listed(home: Home, folder: Path, begun: float) -> dict[str, Any]:
    dataset, model, name = folder.parts[-3:]
    epochs = None
    with contextlib.suppress(*_WRONG):
        epochs = int(tomllib.loads(read_small(folder / CONFIG_NAME).decode())["training"]["epochs"])
    log = next(home.root.glob(f"sweeps/*/{glob.escape(f'{dataset}.{model}.{name}')}.log"), None)
    state, metric, test = state_of_run(folder, log, epochs or 0), None, None
    if state.kind == "done":
        try:
            found: Any = read_json(folder / RESULT_NAME)
            metric = str(found["metric"])
            test = float(found["metrics"]["test"][metric])
        except _WRONG:
            why = f"{RESULT_NAME} cannot be read; resuming writes it again"
            state, metric = State("stopped", state.epoch, "", why), None
    run, resume = folder.relative_to(home.runs).as_posix(), None
    if state.kind in {"stopped", "failed"}:
        elsewhere = "" if home == Home.locate() else f" --home {shlex.quote(str(home.root))}"
        resume = f"kmip-data train --resume {shlex.quote(run)}{elsewhere}"
    about = {"path": folder, "dataset": dataset, "model": model, "name": name, "state": state.kind}
    far = {"epoch": state.epoch, "epochs": epochs, "begun": timestamp(begun), "metric": metric, "test": test}
    return {**about, **far, "left": state.left, "reason": state.reason, "resume": resume}
