"""How far each cell of a sweep is, as the disk has it: nothing else need run to tell."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kmip_data.errors import UsageError
from kmip_data.files.locking import LOCKS, build_lock
from kmip_data.models.sweeps.cells import Cell
from kmip_data.models.training.run.folders import CONFIG_NAME, METRICS_NAME, RESULT_NAME
from kmip_data.wording import rough_time

ERROR = "Error: "  #: begins what a command says that failed
_TAIL = 2**16  #: bytes of a log in which that is looked for


@dataclass(frozen=True)
class State:
    """Where a cell stands."""

    kind: Literal["done", "running", "failed", "stopped", "waiting"]
    epoch: int = 0  #: epochs that are done
    seconds: float = math.nan  #: that the others will take, by those
    reason: str = ""  #: why it failed

    @property
    def left(self) -> str:
        """The time left, for people."""
        return "" if math.isnan(self.seconds) or self.kind == "done" else rough_time(self.seconds)


def log_of(cell: Cell, folder: Path) -> Path:
    """What the run of a cell printed last, below the folder of its sweep."""
    return folder / f"{cell.folder.parent.parent.name}.{cell.folder.parent.name}.{cell.folder.name}.log"


def state_of(cell: Cell, folder: Path) -> State:
    """Return where a cell stands; ``folder`` is the sweep's."""
    epoch, seconds = _epochs(cell.folder / METRICS_NAME)
    left = seconds * (cell.config.training.epochs - epoch)
    if (cell.folder / RESULT_NAME).is_file():
        return State("done", epoch)
    # In this order: whoever begins a run has the first lock, and must find the second one free.
    if not (is_free(log_of(cell, folder)) and is_free(cell.folder)):
        return State("running", epoch, left)
    reason = failure(log_of(cell, folder))
    if reason:
        return State("failed", epoch, left, reason)
    return State("stopped" if (cell.folder / CONFIG_NAME).is_file() else "waiting", epoch, left)


def is_free(path: Path) -> bool:
    """Whether no process holds the lock of ``path``."""
    if not any((path.parent / LOCKS).glob(f"{path.name}.lock*")):
        return True  # without making one
    try:
        with build_lock(path, wait=False):
            return True
    except UsageError:
        return False


def _epochs(metrics: Path) -> tuple[int, float]:
    """Epochs that are done, and the mean of their seconds."""
    try:
        with metrics.open(encoding="utf-8", newline="") as file:
            seconds = [float(row["seconds"]) for row in csv.DictReader(file)]
    except (OSError, ValueError, KeyError, TypeError):
        return 0, math.nan
    return len(seconds), sum(seconds) / len(seconds) if seconds else math.nan


def failure(log: Path) -> str:
    """Return what a log's last error says; nothing where there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.removeprefix(ERROR) for line in reversed(lines) if line.startswith(ERROR)), "")
