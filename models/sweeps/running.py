"""Run the cells of a sweep as processes, or submit them to SLURM; skip finished ones, resume stopped ones."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kmip_data.builds.home import BuildArguments, Home
from kmip_data.errors import KmipDataError, UsageError, writing
from kmip_data.files.changes import (
    FolderInUse,
    build_lock,
    make_folder,
    refuse_link,
    write_file,
)
from kmip_data.files.reading import canonical_json
from kmip_data.models.sweeps.cells import Cell
from kmip_data.models.sweeps.state import ERROR, failure, is_free, log_of, state_of
from kmip_data.models.training.run.folder import CONFIG_NAME
from kmip_data.pipelines.find import obtain, obtain_columns
from kmip_data.runtime.progress import Progress, say
from kmip_data.runtime.threads import begin_process

LOOK = 0.2  #: seconds between two looks at the processes
#: By run folder: the cell, its process, and what to close when it ends: its lock, and its slot, freed.
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
    """Run the cells that are not done, ``jobs`` at a time with equal shares of the cores, or one on each GPU.

    ``gpus`` are names for ``CUDA_VISIBLE_DEVICES``; ``folder``, the sweep's, is for its logs; ``options`` are
    those of the builds of missing data, which are built before the first cell starts. Cells that another
    process runs are waited for. However this function ends, its processes end first; the outcome of every
    cell is on disk (:func:`state_of`). Raises ``UsageError`` if a folder or log is a link or a special file.
    """
    quiet = options.get("quiet", False)
    make_folders(cells, home, folder)
    with build_lock(folder / "data", quiet=quiet):  # a second sweep at the same time finds them built
        waiting = with_data([cell for cell in cells if not cell.done], home, folder, options)
    slots = [{"CUDA_VISIBLE_DEVICES": gpu} for gpu in gpus] or [{} for _ in range(jobs)]
    share = 1 if gpus else jobs
    done = len(cells) - len(waiting)
    with (
        Progress(folder.name, len(cells), unit="runs", initial=done, quiet=quiet) as bar,
        _ending(quiet=quiet) as running,
    ):
        while waiting or running:
            for path, (cell, process, held) in list(running.items()):
                if (code := process.poll()) is not None:
                    log = log_of(cell, folder)
                    if not cell.done and not failure(log):  # it could not say why itself
                        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
                        with log.open("ab") as file:
                            file.write(f"\n{ERROR}it ended {how}\n".encode())
                    held.close()
                    del running[path]
                    bar.update(1)
                    bar.message(_progress(cell, home))
            for cell in list(waiting):
                if cell.done:  # by another process
                    waiting.remove(cell)
                    bar.update(1)
                elif slots and _start(cell, running, folder, slots, share):
                    waiting.remove(cell)
            time.sleep(LOOK)


def make_folders(cells: Sequence[Cell], home: Home, folder: Path, *more: Path) -> None:
    """Make the folders that a sweep writes to; raise UsageError if one is a link or no folder."""
    with writing(folder):
        home.root.mkdir(parents=True, exist_ok=True)
        for path in dict.fromkeys([folder, *more, *(cell.folder.parent for cell in cells)]):
            make_folder(path, root=home.root)
    for cell in cells:
        refuse_link(cell.folder)
        refuse_link(log_of(cell, folder))


def with_data(cells: Sequence[Cell], home: Home, folder: Path, options: BuildArguments) -> list[Cell]:
    """Build missing data, once each; return the cells with data, and log the reason for others."""
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
            say(_progress(cell, home), quiet=options.get("quiet", False))
        else:
            ready.append(cell)
    return ready


@contextmanager
def _ending(*, quiet: bool) -> Iterator[Running]:
    """Yield a table for processes, and end them all when the block is left, however it is left."""
    running: Running = {}
    try:
        yield running
    finally:
        if running:
            say("Stopping; the checkpoints are kept, and the same command resumes.", quiet=quiet)
        for _, process, _ in running.values():
            process.terminate()
        for _, process, held in running.values():
            process.wait()
            held.close()


def _start(cell: Cell, running: Running, folder: Path, slots: list[dict[str, str]], share: int) -> bool:
    """Start the process of a cell, or resume its run; return False if another process has it."""
    log = log_of(cell, folder)
    with ExitStack() as held:
        try:
            held.enter_context(build_lock(log, wait=False))
        except FolderInUse:
            return False
        # A killed sweep leaves its lock free while its run lives on, with a lock of its own.
        if cell.done or not is_free(cell.folder):
            return False
        resumed = ("train", "--resume", str(cell.folder), *cell.command[-2:])
        begun = (cell.folder / CONFIG_NAME).is_file()
        write_file(log, b"")  # a new file: what a hard link elsewhere leads to keeps its bytes
        with log.open("ab") as file:
            process = begin_process(resumed if begun else cell.command, file, share=share, **slots[0])
        held.callback(slots.append, slots.pop(0))
        running[cell.folder] = cell, process, held.pop_all()
    return True


def _progress(cell: Cell, home: Home) -> str:
    """Return one line: the run and its state."""
    state = state_of(cell.folder, home)
    return f"{'/'.join(cell.folder.parts[-3:])}: {state.kind}{state.reason and f': {state.reason}'}"


CLUSTER = "slurm"  #: submitit's name of it
MINUTES = 24 * 60  #: default time limit of a job; a run that needs more is queued again and resumes
REQUEUES = 1000  #: of a job that reached its time limit; preemptions are not counted


@dataclass(frozen=True)
class Submission:
    """One job of the cluster: run a cell, or resume it."""

    cell: Cell
    home: Home
    folder: Path  #: the sweep's
    options: BuildArguments

    def __call__(self) -> None:
        """Run the cell as a sweep of one run."""
        run_cells([self.cell], home=self.home, folder=self.folder, jobs=1, options=self.options)

    def checkpoint(self) -> Any:
        """Return the same work, queued when the job is preempted or out of time; the run resumes."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def submit_cells(
    cells: Sequence[Cell],
    *,
    home: Home,
    folder: Path,
    options: BuildArguments,
    settings: Mapping[str, int | str],
) -> None:
    """Build missing data here, and submit the cells that are not done; a job whose cell runs waits for it.

    ``settings`` are options of ``sbatch``: ``partition``, ``time`` in minutes, ``array_parallelism`` and so
    on. Raises ``UsageError`` if there is no cluster, it has no such setting, or a folder is a link.
    """
    from submitit import AutoExecutor
    from submitit.core.utils import FailedJobError

    jobs = folder / "jobs"
    make_folders(cells, home, folder, jobs)
    with build_lock(folder / "data", quiet=options.get("quiet", False)):
        fresh = with_data([cell for cell in cells if not cell.done], home, folder, options)
        if not fresh:
            return
        gpus = 0 if all(cell.config.system.device == "cpu" for cell in cells) else 1
        try:
            executor = AutoExecutor(jobs, cluster=CLUSTER, slurm_max_num_timeout=REQUEUES)
            executor.update_parameters(name=folder.name, timeout_min=MINUTES, gpus_per_node=gpus)
            executor.update_parameters(**{f"slurm_{key}": value for key, value in settings.items()})
            with executor.batch():
                for cell in fresh:
                    executor.submit(Submission(cell, home, folder, options))
        except (RuntimeError, NameError, ValueError, FailedJobError) as error:
            raise UsageError(
                f"The runs of {folder.name} cannot be submitted: {' '.join(str(error).split())}",
                next="a machine with sbatch and srun, other --slurm KEY=VALUE, or --jobs without --submit",
            ) from error
