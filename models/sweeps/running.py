"""The cells of a sweep as processes, some at a time: what is done stays, what was stopped goes on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Unpack

from kmip_data.builds.find import obtain, obtain_columns
from kmip_data.builds.home import Home
from kmip_data.builds.options import BuildArguments
from kmip_data.errors import KmipDataError, UsageError
from kmip_data.files.digests import canonical_json
from kmip_data.files.locking import build_lock
from kmip_data.format.writer import write_file
from kmip_data.models.sweeps.cells import Cell
from kmip_data.models.sweeps.state import ERROR, failure, is_free, log_of, state_of
from kmip_data.models.training.run.folders import CONFIG_NAME, RESULT_NAME
from kmip_data.runtime.progress import Progress, say
from kmip_data.runtime.threads import available_cores
from kmip_data.wording import counted

PROGRAM = (sys.executable, "-m", "kmip_data")  #: the same as ``kmip-data``
LOOK = 0.2  #: seconds between looks at what runs
REPORT = 600.0  #: seconds between reports of how far that is


class _Running(NamedTuple):
    process: subprocess.Popen[bytes]
    held: ExitStack  #: the lock of the cell


def run_cells(
    cells: list[Cell], *, home: Home, folder: Path, jobs: int, quiet: bool, **options: Unpack[BuildArguments]
) -> None:
    """Run what is not done, ``jobs`` cells at a time; how each ended is on disk (:func:`state_of`).

    The data of all are there, or built, before the first begins. What another process runs is waited for.

    Parameters
    ----------
    folder
        Of the sweep: logs and locks.
    options
        Of the builds.

    Raises
    ------
    KeyboardInterrupt
        Ctrl-C; the runs were stopped and keep their checkpoints.
    OutOfResources
        The disk is full.
    """
    unique = list({cell.folder: cell for cell in cells}.values())
    waiting = [cell for cell in unique if not _done(cell)]
    folder.mkdir(parents=True, exist_ok=True)
    with build_lock(folder / "data", quiet=quiet):  # two sweeps at once: the other finds them built
        waiting = _with_data(waiting, home, folder, quiet=quiet, **options)
    running: dict[Path, _Running] = {}
    with Progress(
        folder.name, len(unique), unit="runs", initial=len(unique) - len(waiting), quiet=quiet
    ) as bar:
        try:
            _work(waiting, running, folder, jobs, bar)
        finally:
            if running:
                say("Stopping; the checkpoints are kept, and the same command goes on.", quiet=quiet)
            for process, _ in running.values():
                process.terminate()
            for process, held in running.values():
                process.wait()
                held.close()


def _work(waiting: list[Cell], running: dict[Path, _Running], folder: Path, jobs: int, bar: Progress) -> None:
    """Begin cells and look at those that run until none is left."""
    cells, said = {cell.folder: cell for cell in waiting}, time.monotonic()
    while waiting or running:
        for place, (process, held) in list(running.items()):
            if process.poll() is not None:
                _note(cells[place], process.returncode, folder)
                held.close()
                del running[place]
                bar.update(1)
                bar.message(told(cells[place], folder))
        for cell in list(waiting):
            if len(running) < jobs and (begun := _begin(cell, folder, jobs)) is not None:
                running[cell.folder] = begun
            if cell.folder in running or _done(cell):
                waiting.remove(cell)
                if cell.folder not in running:
                    bar.update(1)  # another process did it
        if time.monotonic() - said > REPORT:
            said = time.monotonic()
            for place in running:
                bar.message(told(cells[place], folder))
        time.sleep(LOOK)


def _begin(cell: Cell, folder: Path, jobs: int) -> _Running | None:
    """Start the process of a cell, or go on with its run; ``None`` where another process has it."""
    log, held = log_of(cell, folder), ExitStack()
    try:
        held.enter_context(build_lock(log, wait=False))
    except UsageError:
        return None
    if _done(cell) or not is_free(cell.folder):  # of a sweep that was killed: its runs live on
        held.close()
        return None
    home = cell.command[-2:]
    begun = (cell.folder / CONFIG_NAME).is_file()
    arguments = ("train", "--resume", str(cell.folder), *home) if begun else cell.command
    environment = dict(os.environ)
    if jobs > 1:
        environment.setdefault("OMP_NUM_THREADS", str(max(1, available_cores() // jobs)))
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*PROGRAM, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # Ctrl-C reaches the sweep, which then stops its runs once
        )
    return _Running(process, held)


def _note(cell: Cell, code: int, folder: Path) -> None:
    """Write why a process failed into its log where it could not say so itself."""
    if not _done(cell) and not failure(log_of(cell, folder)):
        with log_of(cell, folder).open("a", encoding="utf-8") as file:
            file.write(
                f"\n{ERROR}it ended {f'by signal {-code}' if code < 0 else f'with exit code {code}'}\n"
            )


def _with_data(
    cells: list[Cell], home: Home, folder: Path, *, quiet: bool, **options: Unpack[BuildArguments]
) -> list[Cell]:
    """Build what is missing, once each; return the cells whose data are there."""
    faults: dict[str, str] = {}
    ready = []
    for cell in cells:
        data, encodings = cell.config.data, [encoding.name for encoding in cell.config.model.encodings]
        key = canonical_json([data.model_dump(mode="json"), encodings])
        if key not in faults:
            faults[key] = ""
            try:
                build = obtain(
                    *(data.dataset, data.parameters, data.split),
                    home=home, sample=data.sample, quiet=quiet, **options,
                )  # fmt: skip
                obtain_columns(build, encodings, quiet=quiet, **options)
            except KmipDataError as error:
                faults[key] = str(error)
        if faults[key]:
            write_file(log_of(cell, folder), f"{ERROR}{faults[key]}\n".encode())
            say(told(cell, folder), quiet=quiet)
        else:
            ready.append(cell)
    return ready


def _done(cell: Cell) -> bool:
    return (cell.folder / RESULT_NAME).is_file()


def told(cell: Cell, folder: Path) -> str:
    """Return which cell it is and how far, in a line."""
    state, epochs = state_of(cell, folder), counted(cell.config.training.epochs, "epoch")
    name = " ".join(filter(None, [cell.dataset, cell.model, cell.change, f"seed {cell.seed}"]))
    far = f", {state.epoch} of {epochs}" if state.epoch else ""
    left = f", about {state.left} left" if state.left and state.kind == "running" else ""
    return f"{name}: {state.kind}{far}{left}{state.reason and f': {state.reason}'}"
