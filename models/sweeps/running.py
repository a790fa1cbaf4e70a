"""The cells of a sweep as processes, some at a time: what is done stays, what was stopped goes on."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kmip_data.builds.find import obtain, obtain_columns
from kmip_data.builds.home import Home
from kmip_data.builds.options import BuildArguments
from kmip_data.errors import KmipDataError, UsageError
from kmip_data.files.digests import canonical_json
from kmip_data.files.locking import build_lock
from kmip_data.format.writer import write_file
from kmip_data.models.sweeps.cells import Cell
from kmip_data.models.sweeps.state import ERROR, failure, is_done, is_free, log_of, state_of
from kmip_data.models.training.run.folders import CONFIG_NAME
from kmip_data.runtime.processes import begin_process
from kmip_data.runtime.progress import Progress, say
from kmip_data.wording import counted

LOOK = 0.2  #: seconds between looks at what runs
REPORT = 600.0  #: seconds between reports of how far that is
#: By run folder: the process; what has the cell's lock, and gives back what the cell had to run on.
Running = dict[Path, tuple[subprocess.Popen[bytes], ExitStack]]


def run_cells(
    cells: list[Cell],
    *,
    home: Home,
    folder: Path,
    jobs: int,
    options: BuildArguments,
    gpus: Sequence[str] = (),
) -> None:
    """Run what is not done, ``jobs`` cells at a time; how each ended is on disk (:func:`state_of`).

    With ``gpus``, names as ``CUDA_VISIBLE_DEVICES`` takes them, each sees one that no other has then;
    without, each gets its share of the cores.
    The data of all are built before the first begins, with ``options``. What another process runs is waited
    for. However this ends, its processes end before: ``folder`` has their logs, the runs their checkpoints.
    """
    quiet = options.get("quiet", False)
    folder.mkdir(parents=True, exist_ok=True)
    with build_lock(folder / "data", quiet=quiet):  # of two sweeps at once the second finds them built
        waiting = with_data([cell for cell in cells if not is_done(cell)], home, folder, options)
    running: Running = {}
    done = len(cells) - len(waiting)
    with (
        Progress(folder.name, len(cells), unit="runs", initial=done, quiet=quiet) as bar,
        ending(running, quiet=quiet),
    ):
        _work(waiting, running, folder, places_of(jobs, gpus), bar)


def places_of(jobs: int, gpus: Sequence[str] = ()) -> list[dict[str, str]]:
    """Return what cells can run on at a time, each as variables of its process."""
    return [{"CUDA_VISIBLE_DEVICES": gpu} for gpu in gpus] or [{} for _ in range(jobs)]


@contextmanager
def ending(running: Running, *, quiet: bool) -> Iterator[None]:
    """However this is left, end what still runs."""
    try:
        yield
    finally:
        if running:
            say("Stopping; the checkpoints are kept, and the same command goes on.", quiet=quiet)
        for process, _ in running.values():
            process.terminate()
        for process, held in running.values():
            process.wait()
            held.close()


def with_data(cells: list[Cell], home: Home, folder: Path, options: BuildArguments) -> list[Cell]:
    """Build what is missing, once each; return the cells whose data are there."""
    faults: dict[str, str] = {}
    ready = []
    for cell in cells:
        data, encodings = cell.config.data, [encoding.name for encoding in cell.config.model.encodings]
        key = canonical_json([data.model_dump(mode="json"), encodings])
        if key not in faults:
            faults[key] = ""
            try:
                target, sample = data.dataset, data.sample
                build = obtain(target, data.parameters, data.split, home=home, sample=sample, **options)
                obtain_columns(build, encodings, **options)
            except KmipDataError as error:
                faults[key] = str(error)
        if faults[key]:
            write_file(log_of(cell, folder), f"{ERROR}{faults[key]}\n".encode())
            say(told(cell, folder), quiet=options.get("quiet", False))
        else:
            ready.append(cell)
    return ready


def _work(
    waiting: list[Cell], running: Running, folder: Path, places: list[dict[str, str]], bar: Progress
) -> None:
    """Begin cells and look at those that run, until none is left; ``places``: variables of what is free."""
    share = 1 if any(places) else len(places)
    cells, said = {cell.folder: cell for cell in waiting}, time.monotonic()
    while waiting or running:
        for place, (process, held) in list(running.items()):
            if process.poll() is not None:
                give_reason(cells[place], process.returncode, log_of(cells[place], folder))
                held.close()
                del running[place]
                bar.update(1)
                bar.message(told(cells[place], folder))
        for cell in list(waiting):
            if is_done(cell):  # by another process
                waiting.remove(cell)
                bar.update(1)
            elif places and begin_cell(cell, running, folder, places, share):
                waiting.remove(cell)
        if time.monotonic() - said > REPORT:
            said = time.monotonic()
            for place in running:
                bar.message(told(cells[place], folder))
        time.sleep(LOOK)


def begin_cell(cell: Cell, running: Running, folder: Path, places: list[dict[str, str]], share: int) -> bool:
    """Start the process of a cell, or go on with its run; false where another process has it."""
    log = log_of(cell, folder)
    with ExitStack() as held:
        try:
            held.enter_context(build_lock(log, wait=False))
        except UsageError:
            return False
        # A sweep that was killed has left its lock, but not the run, which lives on.
        if is_done(cell) or not is_free(cell.folder):
            return False
        resumed = ("train", "--resume", str(cell.folder), *cell.command[-2:])
        begun = (cell.folder / CONFIG_NAME).is_file()
        with log.open("wb") as file:
            process = begin_process(resumed if begun else cell.command, file, share=share, **places[0])
        held.callback(places.append, places.pop(0))
        running[cell.folder] = process, held.pop_all()
    return True


def give_reason(cell: Cell, code: int, log: Path) -> None:
    """Write why a process failed into its log where it could not say so itself."""
    if not is_done(cell) and not failure(log):
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        with log.open("a", encoding="utf-8") as file:
            file.write(f"\n{ERROR}it ended {how}\n")


def told(cell: Cell, folder: Path) -> str:
    """Return which cell it is and how far, in a line."""
    state, epochs = state_of(cell, folder), counted(cell.config.training.epochs, "epoch")
    name = " ".join(filter(None, [cell.dataset, cell.model, cell.change, f"seed {cell.seed}"]))
    far = f", {state.epoch} of {epochs}" if state.epoch else ""
    left = f", about {state.left} left" if state.kind == "running" and state.left else ""
    return f"{name}: {state.kind}{far}{left}{state.reason and f': {state.reason}'}"
