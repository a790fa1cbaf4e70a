"""Run the cells of a sweep: skip finished ones, and resume stopped ones."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kmip_data.builds.execution_options import BuildArguments
from kmip_data.builds.home import Home
from kmip_data.errors import KmipDataError
from kmip_data.files.atomic_writes import (
    FolderInUse,
    create_marked_folder,
    folder_lock,
    make_folder,
    refuse_link,
    write_file,
)
from kmip_data.files.path_errors import convert_write_errors
from kmip_data.files.reading import canonical_json
from kmip_data.models.sweeps.cells import Cell
from kmip_data.models.training.run.run_folder import CONFIG_NAME
from kmip_data.models.training.run.run_status import (
    ERROR,
    is_unlocked,
    last_logged_error,
    log_name,
    read_run_status,
)
from kmip_data.pipelines.find import obtain, obtain_columns
from kmip_data.runtime.parallel import start_process
from kmip_data.runtime.progress import Progress, print_status
from kmip_data.text import count_with_noun, format_duration

SWEEP_MARKER = "sweep"  #: marker of a sweep's folder, which holds its logs


def log_path(cell: Cell, folder: Path) -> Path:
    """Return the path of a cell's log, whose lock is held by the sweep that runs the cell."""
    return folder / log_name(cell.folder)


POLL_SECONDS = 0.2  #: interval between checks of the processes
#: Cell, process, and context that releases lock and slot at the end, by run folder.
Running = dict[Path, tuple[Cell, subprocess.Popen[bytes], ExitStack]]


def run_cells(
    cells: list[Cell],
    *,
    home: Home,
    folder: Path,
    jobs: int,
    options: BuildArguments,
    gpus: Sequence[str] = (),
) -> None:
    """Run the cells that are not done, ``jobs`` at a time with equal numbers of cores, or one per GPU.

    ``gpus`` are values of ``CUDA_VISIBLE_DEVICES``. The sweep's ``folder`` holds the logs.
    ``options`` apply to missing builds, which are built before the first cell starts. Cells run by
    another process are waited for. All processes started here end before this function returns or
    raises; the outcome of every cell is on disk (:func:`read_run_status`). Raises ``UsageError`` if a
    folder or log is a link or a special file.
    """
    # 1. Make folders and data before any run starts.
    quiet = options.get("quiet", False)
    make_folders(cells, home, folder)
    # The lock makes a concurrent sweep wait for the builds.
    with folder_lock(folder / "data", quiet=quiet):
        waiting = build_missing_data(
            [cell for cell in cells if not cell.is_done], home, folder, options
        )

    # Remove the locks of a killed sweep whose runs have ended; checking a lock removes it.
    for cell in cells:
        if cell.is_done:
            is_unlocked(log_path(cell, folder))

    # 2. Make slots, each with its own GPU or a share of the cores.
    slots = [{"CUDA_VISIBLE_DEVICES": gpu} for gpu in gpus] or [{} for _ in range(jobs)]
    share = 1 if gpus else jobs
    done = len(cells) - len(waiting)
    start_time = time.monotonic()
    ended = 0
    with (
        Progress(
            folder.name,
            len(cells),
            unit="runs",
            initial=done,
            quiet=quiet,
        ) as bar,
        _end_processes_on_exit(quiet=quiet) as running,
    ):
        while waiting or running:
            # 3. Report ended runs, and estimate the remaining time.
            for cell in _release_ended_processes(running, folder):
                bar.update(1)
                message = _progress_line(cell, home)
                ended += 1
                remaining = len(waiting) + len(running)
                if remaining:
                    seconds = (time.monotonic() - start_time) / ended * remaining
                    runs_left = count_with_noun(remaining, "run")
                    message += f"; {runs_left} left, about {format_duration(seconds)}"
                bar.print_line(message)

            # 4. Start cells in free slots; retry cells that another process is running.
            for cell in list(waiting):
                if cell.is_done:  # finished by another process
                    waiting.remove(cell)
                    bar.update(1)
                elif slots and _start_cell(cell, running, folder, slots, share):
                    waiting.remove(cell)
            time.sleep(POLL_SECONDS)


def _release_ended_processes(running: Running, folder: Path) -> Iterator[Cell]:
    """Release the lock and slot of each process that has ended, and yield its cell."""
    for path, (cell, process, resources) in list(running.items()):
        code = process.poll()
        if code is None:
            continue
        log = log_path(cell, folder)
        if not cell.is_done and not last_logged_error(log):  # killed before it could report
            cause = f"by signal {-code}" if code < 0 else f"with exit code {code}"
            with log.open("ab") as file:
                file.write(f"\n{ERROR}it ended {cause}\n".encode())
        resources.close()
        del running[path]
        yield cell


def make_folders(
    cells: Sequence[Cell],
    home: Home,
    folder: Path,
    *more: Path,
) -> None:
    """Create the folders of a sweep; raise ``UsageError`` if one is a link or not a folder."""
    for path in dict.fromkeys([folder, *more, *(cell.folder.parent for cell in cells)]):
        with convert_write_errors(path):  # sweeps/ and runs/ may be on different disks
            home.path.mkdir(parents=True, exist_ok=True)
            make_folder(path, root=home.path)
        if path == folder:
            create_marked_folder(folder, SWEEP_MARKER)
    for cell in cells:
        log = log_path(cell, folder)
        refuse_link(cell.folder)
        refuse_link(log)


def build_missing_data(
    cells: Sequence[Cell], home: Home, folder: Path, options: BuildArguments
) -> list[Cell]:
    """Build missing data; return the cells whose data exist, and log the errors of the others."""
    problems = {}
    ready = []
    for cell in cells:
        data = cell.config.data
        encodings = [encoding.name for encoding in cell.config.model.encodings]
        key = canonical_json([data.model_dump(mode="json"), encodings])
        if key not in problems:
            problems[key] = ""
            try:
                build = obtain(
                    data.dataset,
                    data.parameters,
                    data.split,
                    home=home,
                    sample=data.sample,
                    **options,
                )
                obtain_columns(build, encodings, **options)
            except KmipDataError as error:
                problems[key] = str(error)
        if problems[key]:
            write_file(log_path(cell, folder), f"{ERROR}{problems[key]}\n".encode())
            print_status(_progress_line(cell, home), quiet=options.get("quiet", False))
        else:
            ready.append(cell)
    return ready


@contextmanager
def _end_processes_on_exit(*, quiet: bool) -> Iterator[Running]:
    """Yield a table of processes, and end all of them when the block exits."""
    running: Running = {}
    try:
        yield running
    finally:
        if running:
            print_status(
                "Stopping; the checkpoints are kept, and the same command resumes.", quiet=quiet
            )
        for _, process, _ in running.values():
            process.terminate()
        for _, process, resources in running.values():
            process.wait()
            resources.close()


def _start_cell(
    cell: Cell,
    running: Running,
    folder: Path,
    slots: list[dict[str, str]],
    share: int,
) -> bool:
    """Start or resume the run of a cell; return False if another process is running it."""
    log = log_path(cell, folder)
    with ExitStack() as resources:
        try:
            resources.enter_context(folder_lock(log, wait=False))
        except FolderInUse:
            return False
        # A killed sweep releases its lock, but its run may still be running.
        if cell.is_done or not is_unlocked(cell.folder):
            return False
        command = cell.command
        if (cell.folder / CONFIG_NAME).is_file():
            command = ("train", "--resume", str(cell.folder), *command[-2:])
        write_file(log, b"")  # creates a new file, so that hard links keep their content
        with log.open("ab") as file:
            process = start_process(command, file, processes=share, **slots[0])
        resources.callback(slots.append, slots.pop(0))
        running[cell.folder] = cell, process, resources.pop_all()
    return True


def _progress_line(cell: Cell, home: Home) -> str:
    run = read_run_status(cell.folder, home)
    text = f"{'/'.join(cell.folder.parts[-3:])}: {run.state}"
    return f"{text}: {run.reason}" if run.reason else text
