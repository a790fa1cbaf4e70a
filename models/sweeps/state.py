"""State of each cell of a sweep, read from disk alone."""

from __future__ import annotations

import contextlib
import glob
import os
import re
from pathlib import Path
from typing import Literal, NamedTuple

from kmip_data.errors import KmipDataError
from kmip_data.files.locking import LOCKS, FolderInUse, build_lock
from kmip_data.files.reading import MAX_BYTES, open_regular, read_small
from kmip_data.models.sweeps.cells import Cell
from kmip_data.models.training.run.folder import CONFIG_NAME, RESULT_NAME, metrics_columns
from kmip_data.wording import rough_time

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
