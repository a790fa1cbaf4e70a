"""How far each cell of a sweep is, as the disk has it: nothing else need run to tell."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Literal, NamedTuple

from kmip_data.errors import UsageError
from kmip_data.files.locking import LOCKS, build_lock
from kmip_data.files.small import MAX_BYTES, open_regular
from kmip_data.models.sweeps.cells import Cell
from kmip_data.models.training.run.folders import CONFIG_NAME, RESULT_NAME, metrics_columns
from kmip_data.wording import rough_time

ERROR = "Error: "  #: begins what a command says that failed
PRUNED = "Pruned: "  #: begins why a trial was ended


class State(NamedTuple):
    """Where a cell stands."""

    kind: Literal["done", "running", "pruned", "failed", "stopped", "waiting"]
    epoch: int = 0  #: epochs that are done
    left: str = ""  #: the time that the others take, by those
    reason: str = ""  #: why it failed or was pruned; of what waits, in which job


def state_of(cell: Cell, folder: Path) -> State:
    """Return where a cell stands; ``folder`` is the sweep's."""
    found = state_of_run(cell.folder, log_of(cell, folder), cell.config.training.epochs)
    job = job_of(cell, folder) if found.kind in {"stopped", "waiting"} else ""
    return found._replace(reason=f"submitted as job {job}") if job else found


def state_of_run(folder: Path, log: Path | None, epochs: int) -> State:
    """Return where a run of so many epochs stands; ``log`` is that of its cell, where it is of a sweep."""
    seconds = [value for _, value in metrics_columns(folder).get("seconds", [])]
    epoch = len(seconds)
    if (folder / RESULT_NAME).is_file():
        return State("done", epoch)
    left = ""
    with contextlib.suppress(ArithmeticError, ValueError):  # without epochs, or with figures of a stranger
        left = rough_time(sum(seconds) / epoch * max(0, epochs - epoch))
    # In this order: whoever begins a run has the first lock, and must find the second one free.
    if not ((log is None or is_free(log)) and is_free(folder)):
        return State("running", epoch, left)
    if log is not None and (reason := failure(log, PRUNED)):
        return State("pruned", epoch, "", reason)
    if log is not None and (reason := failure(log)):
        return State("failed", epoch, left, reason)
    return State("stopped" if (folder / CONFIG_NAME).is_file() else "waiting", epoch, left)


def is_done(cell: Cell) -> bool:
    """Whether the run has its result."""
    return (cell.folder / RESULT_NAME).is_file()


def log_of(cell: Cell, folder: Path) -> Path:
    """Where the last process of a cell printed, and what the sweep that runs the cell holds the lock of."""
    return folder / f"{'.'.join(cell.folder.parts[-3:])}.log"


def job_path(cell: Cell, folder: Path) -> Path:
    """File with the number of the job that was submitted for a cell."""
    return log_of(cell, folder).with_suffix(".job")


def job_of(cell: Cell, folder: Path) -> str:
    """Return the number of a cell's job; nothing where none was submitted."""
    path = job_path(cell, folder)
    return path.read_text("utf-8") if path.is_file() else ""


def is_free(path: Path) -> bool:
    """Whether no process holds the lock of ``path``."""
    if not any((path.parent / LOCKS).glob(f"{path.name}.lock*")):
        return True  # without making one
    try:
        with build_lock(path, wait=False):
            return True
    except UsageError:
        return False


def failure(log: Path, mark: str = ERROR) -> str:
    """Return what a log's last error says, or other line with a ``mark``; nothing where there is none."""
    try:
        with open_regular(log) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - MAX_BYTES))
            lines = file.read(MAX_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.removeprefix(mark) for line in reversed(lines) if line.startswith(mark)), "")
