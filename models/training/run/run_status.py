"""Status of runs, read from their folders and the logs of sweeps."""

from __future__ import annotations

import contextlib
import glob
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kmip_data.builds.home import Home
from kmip_data.errors import ERROR_PREFIX, DamagedInput, FolderInUse, KmipDataError
from kmip_data.files.atomic_writes import folder_lock, lock_path
from kmip_data.files.small_files import MAX_BYTES, open_regular_file, read_toml
from kmip_data.models.training.run.result import is_edited, read_result
from kmip_data.models.training.run.run_folder import (
    CONFIG_NAME,
    RESULT_NAME,
    metrics_columns,
    run_option_text,
)
from kmip_data.text import format_duration, timestamp


def log_name(run: Path) -> str:
    """Return the file name of a run's log in the folder of a sweep."""
    return f"{'.'.join(run.parts[-3:])}.log"


def is_unlocked(path: Path) -> bool:
    """True if no process holds the lock of ``path``."""
    if not lock_path(path).exists():
        return True  # taking the lock would create the file
    try:
        with folder_lock(path, wait=False):
            return True
    except KmipDataError as error:  # if the lock file is invalid, nothing can hold it
        return not isinstance(error, FolderInUse)


def last_logged_error(log: Path) -> str:
    """Return the last error in a log; empty without one."""
    try:
        with open_regular_file(log) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - MAX_BYTES))
            lines = file.read(MAX_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return ""
    for line in reversed(lines):
        if line.startswith(ERROR_PREFIX):
            return line.removeprefix(ERROR_PREFIX)
    return ""


RunState = Literal["waiting", "running", "stopped", "failed", "done"]


@dataclass
class RunStatus:
    """State of a run with the details shown in lists; a waiting run has no folder yet."""

    path: Path
    dataset: str
    model: str
    name: str
    seed: int | None  #: ``None`` if the configuration cannot be read
    state: RunState
    epoch: int  #: number of finished epochs
    epochs: int | None
    sample: bool = False  #: True if trained on generated data
    metric: str | None = None  #: metric that selected the best epoch, for a finished run
    val: float | None = None  #: value of the metric on val
    test: float | None = None  #: value of the metric on test
    edited: bool = False  #: True if the result file was edited
    remaining: str = ""  #: estimated remaining time
    reason: str = ""  #: reason for failing or stopping
    resume: str | None = None  #: command to resume the run, unless it is running or done
    begun: str = ""  #: date of the configuration; empty if not requested

    def as_json(self) -> dict[str, Any]:
        """Return the fields by name, omitting an empty ``begun``."""
        fields = dict(vars(self))
        if not self.begun:
            del fields["begun"]
        return fields


def list_runs(home: Home) -> list[RunStatus]:
    """Return the runs below ``home.runs``, newest first."""
    configs = [folder / CONFIG_NAME for folder in home.run_folders()]
    start_times = [(path.stat().st_mtime, path.parent) for path in configs if path.is_file()]
    runs = []
    for seconds, folder in sorted(start_times, reverse=True):
        run = read_run_status(folder, home)
        run.begun = timestamp(seconds)
        runs.append(run)
    return runs


def read_run_status(folder: Path, home: Home) -> RunStatus:
    """Return the status of a run; its folder need not exist."""
    dataset, model, name = folder.parts[-3:]
    epochs = None
    seed = None
    sample = False
    # Skip validation, as the configuration may name plugins that are not loaded.
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError, OverflowError):
        config = read_toml(folder / CONFIG_NAME)
        epochs = int(config["training"]["epochs"])
        seed = int(config["training"]["seed"])
        sample = bool(config["data"]["sample"])
    seconds = [value for _, value in metrics_columns(folder).get("seconds", [])]
    has_begun = (folder / CONFIG_NAME).is_file()
    run = RunStatus(
        path=folder,
        dataset=dataset,
        model=model,
        name=name,
        seed=seed,
        state="stopped" if has_begun else "waiting",
        epoch=len(seconds),
        epochs=epochs,
        sample=sample,
    )

    # 1. A finished run.
    has_damaged_result = False
    if (folder / RESULT_NAME).is_file():
        try:
            result = read_result(folder)
        except DamagedInput:
            has_damaged_result = True
        else:
            run.state = "done"
            run.metric = result.metric
            run.val = result.metrics.get("val", {}).get(result.metric)
            run.test = result.metrics.get("test", {}).get(result.metric)
            run.edited = is_edited(folder)
            return run

    # 2. An unfinished run: running, failed or stopped. Test the log's lock first: a sweep that is
    #    starting a run holds it, and needs the folder's lock to be free.
    # There may be no epoch yet, or absurd values in the file.
    with contextlib.suppress(ArithmeticError, ValueError):
        mean = sum(seconds) / len(seconds)
        run.remaining = format_duration(mean * max(0, (epochs or 0) - len(seconds)))
    log = next(home.path.glob(f"sweeps/*/{glob.escape(log_name(folder))}"), None)
    if not ((log is None or is_unlocked(log)) and is_unlocked(folder)):
        run.state = "running"
        return run
    if has_damaged_result:
        run.state = "stopped"
        run.reason = f"{RESULT_NAME} cannot be read; resuming rewrites it"
    elif log is not None and (reason := last_logged_error(log)):
        run.state = "failed"
        run.reason = reason

    if has_begun:
        run.resume = f"kmip-data train --resume {shlex.quote(f'{dataset}/{model}/{name}')}"
        run.resume += run_option_text(folder)
    return run
