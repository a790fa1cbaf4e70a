"""Run a sweep: skip finished runs, and resume stopped ones."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from kmip_data.builds.execution_options import BuildArguments
from kmip_data.builds.home import Home
from kmip_data.errors import ERROR_PREFIX, FolderInUse, KmipDataError
from kmip_data.files.atomic_writes import (
    create_marked_folder,
    folder_lock,
    make_folder,
    refuse_link,
    write_file,
)
from kmip_data.files.path_errors import convert_write_errors
from kmip_data.files.small_files import canonical_json
from kmip_data.models.sweeps.plans import SweepRun
from kmip_data.models.training.run.run_folder import CONFIG_NAME
from kmip_data.models.training.run.run_status import (
    is_unlocked,
    last_logged_error,
    log_name,
    read_run_status,
)
from kmip_data.pipelines.find_builds import ensure_columns, find_or_build
from kmip_data.runtime.current_folder import safe_children
from kmip_data.runtime.parallel import available_cores
from kmip_data.runtime.progress import Progress, print_status
from kmip_data.text import count_with_noun, format_duration

SWEEP_MARKER = "sweep"  #: marker of a sweep's folder, which holds its logs


def log_path(run: SweepRun, folder: Path) -> Path:
    """Return the path of a run's log, whose lock is held by the sweep that started it."""
    return folder / log_name(run.folder)


PROGRAM_COMMAND = (sys.executable, "-m", "kmip_data")  #: command line of ``kmip-data``
POLL_SECONDS = 0.2  #: interval between checks of the processes
#: Run, process, and context that releases lock and slot at the end, by run folder.
Running = dict[Path, tuple[SweepRun, subprocess.Popen[bytes], ExitStack]]


def run_sweep(
    runs: list[SweepRun],
    *,
    home: Home,
    folder: Path,
    jobs: int,
    options: BuildArguments,
    gpus: Sequence[str] = (),
) -> None:
    """Train the runs that are not done, ``jobs`` at a time with equal numbers of cores, or one per GPU.

    ``gpus`` are values of ``CUDA_VISIBLE_DEVICES``. The sweep's ``folder`` holds the logs.
    ``options`` apply to missing builds, which are built before the first run starts. Runs of
    another process are waited for. All processes started here end before this function returns or
    raises; the outcome of every run is on disk (:func:`read_run_status`). Raises ``UsageError`` if a
    folder or log is a link or a special file.
    """
    # 1. Make folders and data before any run starts.
    quiet = options.get("quiet", False)
    _prepare_folders(runs, home, folder)
    # The lock makes a concurrent sweep wait for the builds.
    with folder_lock(folder / "data", quiet=quiet):
        waiting = _build_missing_data(
            [run for run in runs if not run.is_done], home, folder, options
        )

    # Remove the locks of a killed sweep whose runs have ended; checking a lock removes it.
    for run in runs:
        if run.is_done:
            is_unlocked(log_path(run, folder))

    # 2. Make slots, each with its own GPU or a share of the cores.
    slots = [{"CUDA_VISIBLE_DEVICES": gpu} for gpu in gpus] or [{} for _ in range(jobs)]
    share = 1 if gpus else jobs
    done = len(runs) - len(waiting)
    start_time = time.monotonic()
    ended = 0
    with (
        Progress(
            folder.name,
            len(runs),
            unit="runs",
            initial=done,
            quiet=quiet,
        ) as bar,
        _end_processes_on_exit(quiet=quiet) as running,
    ):
        while waiting or running:
            # 3. Report ended runs, and estimate the remaining time.
            for run in _release_ended_processes(running, folder):
                bar.update(1)
                message = _progress_line(run, home)
                ended += 1
                remaining = len(waiting) + len(running)
                if remaining:
                    seconds = (time.monotonic() - start_time) / ended * remaining
                    runs_left = count_with_noun(remaining, "run")
                    message += f"; {runs_left} left, about {format_duration(seconds)}"
                bar.print_line(message)

            # 4. Start runs in free slots; retry runs that another process is running.
            for run in list(waiting):
                if run.is_done:  # finished by another process
                    waiting.remove(run)
                    bar.update(1)
                elif slots and _start_run(run, running, folder, slots, share):
                    waiting.remove(run)
            time.sleep(POLL_SECONDS)


def _release_ended_processes(running: Running, folder: Path) -> Iterator[SweepRun]:
    """Release the lock and slot of each process that has ended, and yield its run."""
    for path, (run, process, resources) in list(running.items()):
        code = process.poll()
        if code is None:
            continue
        log = log_path(run, folder)
        if not run.is_done and not last_logged_error(log):  # killed before it could report
            cause = f"by signal {-code}" if code < 0 else f"with exit code {code}"
            with log.open("ab") as file:
                file.write(f"\n{ERROR_PREFIX}it ended {cause}\n".encode())
        resources.close()
        del running[path]
        yield run


def _prepare_folders(runs: Sequence[SweepRun], home: Home, folder: Path) -> None:
    """Create the folder of a sweep and the parents of its run folders.

    Raises ``UsageError`` if one of them or a run folder is a link, or not a folder.
    """
    for path in dict.fromkeys([folder, *(run.folder.parent for run in runs)]):
        with convert_write_errors(path):  # sweeps/ and runs/ may be on different disks
            home.path.mkdir(parents=True, exist_ok=True)
            make_folder(path, root=home.path)
        if path == folder:
            create_marked_folder(folder, SWEEP_MARKER)
    for run in runs:
        log = log_path(run, folder)
        refuse_link(run.folder)
        refuse_link(log)


def _build_missing_data(
    runs: Sequence[SweepRun], home: Home, folder: Path, options: BuildArguments
) -> list[SweepRun]:
    """Build missing data; return the runs whose data exist, and log the errors of the others."""
    problems = {}
    ready = []
    for run in runs:
        data = run.config.data
        encodings = [encoding.name for encoding in run.config.model.encodings]
        key = canonical_json([data.model_dump(mode="json"), encodings])
        if key not in problems:
            problems[key] = ""
            try:
                build = find_or_build(
                    data.dataset,
                    data.parameters,
                    data.split,
                    home=home,
                    sample=data.sample,
                    **options,
                )
                ensure_columns(build, encodings, **options)
            except KmipDataError as error:
                problems[key] = str(error)
        if problems[key]:
            write_file(log_path(run, folder), f"{ERROR_PREFIX}{problems[key]}\n".encode())
            print_status(_progress_line(run, home), quiet=options.get("quiet", False))
        else:
            ready.append(run)
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


def _start_run(
    run: SweepRun,
    running: Running,
    folder: Path,
    slots: list[dict[str, str]],
    share: int,
) -> bool:
    """Start or resume a run; return False if another process is running it."""
    log = log_path(run, folder)
    with ExitStack() as resources:
        try:
            resources.enter_context(folder_lock(log, wait=False))
        except FolderInUse:
            return False
        # A killed sweep releases its lock, but its run may still be running.
        if run.is_done or not is_unlocked(run.folder):
            return False
        command = run.command
        if (run.folder / CONFIG_NAME).is_file():
            command = ("train", "--resume", str(run.folder), *command[-2:])
        write_file(log, b"")  # creates a new file, so that hard links keep their content
        with log.open("ab") as file:
            process = start_process(command, file, processes=share, **slots[0])
        resources.callback(slots.append, slots.pop(0))
        running[run.folder] = run, process, resources.pop_all()
    return True


@safe_children()
def start_process(
    arguments: Sequence[str], output: IO[bytes], *, processes: int = 1, **environment: str
) -> subprocess.Popen[bytes]:
    """Start ``kmip-data`` as a child process without input, writing to ``output``.

    It uses its share of the cores among ``processes``, unless ``OMP_NUM_THREADS`` is set. Ctrl-C does
    not reach it: the caller must end it.
    """
    variables = {**os.environ, **environment}
    if processes > 1:
        variables.setdefault("OMP_NUM_THREADS", str(max(1, available_cores() // processes)))
    return subprocess.Popen(
        [*PROGRAM_COMMAND, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=variables,
        start_new_session=True,
    )


def _progress_line(run: SweepRun, home: Home) -> str:
    status = read_run_status(run.folder, home)
    text = f"{'/'.join(run.folder.parts[-3:])}: {status.state}"
    return f"{text}: {status.reason}" if status.reason else text
