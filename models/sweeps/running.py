"""Run or submit the cells of a sweep; skip finished ones, resume stopped ones."""

from __future__ import annotations

import contextlib
import glob
import os
import shlex
import subprocess
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from kmip_data.builds.home import Home
from kmip_data.builds.options import BuildArguments
from kmip_data.errors import KmipDataError, UsageError
from kmip_data.files.changes import (
    LOCKS,
    FolderInUse,
    begin_folder,
    build_lock,
    fitting,
    make_folder,
    refuse_link,
    write_file,
)
from kmip_data.files.faults import writing
from kmip_data.files.reading import MAX_BYTES, canonical_json, open_regular, read_json, read_small
from kmip_data.models.sweeps.cells import UNNAMED, Cell, Plan, read_plan, sweep_names
from kmip_data.models.training.run.folder import (
    CONFIG_NAME,
    RESULT_NAME,
    find_run,
    home_option,
    metrics_columns,
)
from kmip_data.models.training.run.result import is_edited
from kmip_data.pipelines.find import obtain, obtain_columns
from kmip_data.runtime.progress import Progress, say
from kmip_data.runtime.threads import begin_process
from kmip_data.wording import counted, rough_time, timestamp

ERROR = "Error: "  #: prefix of the message of a command that failed
SWEEP = "sweep"  #: marker of a log folder
#: Errors on untrusted files read without pydantic models, which would load PyTorch.
_WRONG = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    RecursionError,
    OverflowError,
)


class State(NamedTuple):
    """Status of one run."""

    kind: Literal["done", "running", "failed", "stopped", "waiting"]
    epoch: int  #: finished epochs
    epochs: int | None  #: epochs of the configuration
    left: str = ""  #: estimated time of the remaining epochs
    reason: str = ""  #: reason of a failure


def state_of(run: Path, home: Home) -> State:
    """Return the state of the run in a folder of ``home``, which a waiting run does not have yet."""
    epochs = None
    left = ""
    with contextlib.suppress(*_WRONG):
        epochs = int(tomllib.loads(read_small(run / CONFIG_NAME).decode())["training"]["epochs"])
    seconds = [value for _, value in metrics_columns(run).get("seconds", [])]
    done = len(seconds)
    if (run / RESULT_NAME).is_file():
        return State("done", done, epochs)
    # No epoch yet, or absurd figures in the file.
    with contextlib.suppress(ArithmeticError, ValueError):
        left = rough_time(sum(seconds) / done * max(0, (epochs or 0) - done))
    log = next(home.root.glob(f"sweeps/*/{glob.escape('.'.join(run.parts[-3:]))}.log"), None)
    # In this order: a sweep that starts a run holds the first lock and needs the second one free.
    if not ((log is None or is_free(log)) and is_free(run)):
        return State("running", done, epochs, left)
    reason = "" if log is None else failure(log)
    if reason:
        return State("failed", done, epochs, left, reason)
    begun = (run / CONFIG_NAME).is_file()
    return State("stopped" if begun else "waiting", done, epochs, left)


def log_of(cell: Cell, folder: Path) -> Path:
    """Return the log of a cell's last process.

    The sweep that runs the cell holds the lock of this path.
    """
    return folder / f"{'.'.join(cell.folder.parts[-3:])}.log"


def is_free(path: Path) -> bool:
    """True if no process holds the lock of ``path``."""
    if not any((path.parent / LOCKS).glob(glob.escape(fitting(path.name, ".lock")) + "*")):
        return True  # without creating a lock file
    try:
        with build_lock(path, wait=False):
            return True
    except KmipDataError as error:  # anything else at the path cannot be locked
        return not isinstance(error, FolderInUse)


def failure(log: Path) -> str:
    """Return the last error in a log; empty if there is none."""
    try:
        with open_regular(log) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - MAX_BYTES))
            lines = file.read(MAX_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return ""
    for line in reversed(lines):
        if line.startswith(ERROR):
            return line.removeprefix(ERROR)
    return ""


def folders_of(names: Sequence[str], home: Home) -> list[Path]:
    """Return the run folders of ``names`` of sweeps or runs; without names, all finished runs.

    Raises ``UsageError`` if a name is neither a sweep nor a run.
    """
    if not names:
        return sorted(path.parent for path in home.runs.glob(f"*/*/*/{RESULT_NAME}"))
    folders = []
    for name in names:
        if name == UNNAMED:
            folders += runs_of(read_plan(None), home)
        elif name in sweep_names() or name.endswith(".toml"):
            folders += runs_of(read_plan(name), home)
        else:
            folders.append(find_run(name, home))
    return list(dict.fromkeys(folders))


def runs_of(plan: Plan, home: Home) -> list[Path]:
    """Return all run folders of a sweep by name, including those started with other options."""
    folders = (path.parent for path in home.runs.glob(f"*/*/*/{CONFIG_NAME}"))
    return sorted(folder for folder in folders if plan.run_names().fullmatch(folder.name))


def list_runs(home: Home) -> list[dict[str, Any]]:
    """Return the runs below ``home.runs``, the latest first, as :func:`described`."""
    configs = (path for path in home.runs.glob(f"*/*/*/{CONFIG_NAME}") if path.is_file())
    begun = [(path.stat().st_mtime, path.parent) for path in configs]
    runs = []
    for seconds, folder in sorted(begun, reverse=True):
        runs.append({**described(folder, home), "begun": timestamp(seconds)})
    return runs


def described(folder: Path, home: Home) -> dict[str, Any]:
    """Describe the state of a run as a dictionary; its folder need not exist.

    ``path``, ``dataset``, ``model``, ``name``, ``state``, ``epoch`` (that are done), ``epochs``,
    ``metric`` (that chose the epoch), ``test`` (its value), ``edited`` (its file was), ``left``
    (estimated time), ``reason`` (of a failure) and ``resume``: the command that resumes it, unless
    it runs or is done.
    """
    run = dict(zip(("dataset", "model", "name"), folder.parts[-3:], strict=True))
    state = state_of(folder, home)
    metric = None
    test = None
    edited = False
    resume = None
    if state.kind == "done":
        try:
            result: Any = read_json(folder / RESULT_NAME)
            test = float(result["metrics"]["test"][result["metric"]])
            edited = is_edited(folder)
            metric = str(result["metric"])
        except _WRONG:
            reason = f"{RESULT_NAME} cannot be read; resuming writes it again"
            state = state._replace(kind="stopped", reason=reason)
    if state.kind in {"stopped", "failed"} and (folder / CONFIG_NAME).is_file():
        resume = f"kmip-data train --resume {shlex.quote('/'.join(run.values()))}"
        resume += home_option(folder)
    return {
        "path": folder,
        **run,
        "state": state.kind,
        "epoch": state.epoch,
        "epochs": state.epochs,
        "metric": metric,
        "test": test,
        "edited": edited,
        "left": state.left,
        "reason": state.reason,
        "resume": resume,
    }


LOOK = 0.2  #: seconds between two looks at the processes
#: By run folder: cell, process, and context that releases lock and slot at the end.
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

    ``gpus`` are names for ``CUDA_VISIBLE_DEVICES``; ``folder`` of the sweep holds the logs;
    ``options`` apply to missing builds, which are made before the first cell starts. Cells that
    another process runs are waited for. However this function ends, its processes end first; the
    outcome of every cell is on disk (:func:`state_of`). Raises ``UsageError`` if a folder or log is
    a link or a special file.
    """
    # 1. Folders and data, before any run starts.
    quiet = options.get("quiet", False)
    make_folders(cells, home, folder)
    # A concurrent sweep finds them built.
    with build_lock(folder / "data", quiet=quiet):
        waiting = with_data([cell for cell in cells if not cell.done], home, folder, options)

    # 2. A slot is a GPU, the only one the process sees, or a share of the cores.
    slots = [{"CUDA_VISIBLE_DEVICES": gpu} for gpu in gpus] or [{} for _ in range(jobs)]
    share = 1 if gpus else jobs
    done = len(cells) - len(waiting)
    begun = time.monotonic()
    ended = 0
    with (
        Progress(
            folder.name,
            len(cells),
            unit="runs",
            initial=done,
            quiet=quiet,
        ) as bar,
        _ending(quiet=quiet) as running,
    ):
        while waiting or running:
            # 3. Release locks and slots of ended processes.
            for path, (cell, process, held) in list(running.items()):
                code = process.poll()
                if code is None:
                    continue
                log = log_of(cell, folder)
                if not cell.done and not failure(log):  # killed before it could report
                    how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
                    with log.open("ab") as file:
                        file.write(f"\n{ERROR}it ended {how}\n".encode())
                held.close()
                del running[path]
                bar.update(1)
                message = _progress(cell, home)
                ended += 1
                remaining = len(waiting) + len(running)
                if remaining:
                    seconds = (time.monotonic() - begun) / ended * remaining
                    runs_left = counted(remaining, "run")
                    message += f"; {runs_left} left, about {rough_time(seconds)}"
                bar.message(message)

            # 4. Start what fits; retry cells that another process holds.
            for cell in list(waiting):
                if cell.done:  # by another process
                    waiting.remove(cell)
                    bar.update(1)
                elif slots and _start(cell, running, folder, slots, share):
                    waiting.remove(cell)
            time.sleep(LOOK)


def make_folders(
    cells: Sequence[Cell],
    home: Home,
    folder: Path,
    *more: Path,
) -> None:
    """Create the folders of a sweep; raise ``UsageError`` if one is a link or not a folder."""
    for path in dict.fromkeys([folder, *more, *(cell.folder.parent for cell in cells)]):
        with writing(path):  # sweeps/ and runs/ may lie on two disks
            home.root.mkdir(parents=True, exist_ok=True)
            make_folder(path, root=home.root)
        if path == folder:
            begin_folder(folder, SWEEP)
    for cell in cells:
        log = log_of(cell, folder)
        refuse_link(cell.folder)
        refuse_link(log)


def with_data(
    cells: Sequence[Cell], home: Home, folder: Path, options: BuildArguments
) -> list[Cell]:
    """Build missing data once; return the cells that have data, and log why others do not."""
    faults = {}
    ready = []
    for cell in cells:
        data = cell.config.data
        encodings = [encoding.name for encoding in cell.config.model.encodings]
        key = canonical_json([data.model_dump(mode="json"), encodings])
        if key not in faults:
            faults[key] = ""
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
                faults[key] = str(error)
        if faults[key]:
            write_file(log_of(cell, folder), f"{ERROR}{faults[key]}\n".encode())
            say(_progress(cell, home), quiet=options.get("quiet", False))
        else:
            ready.append(cell)
    return ready


@contextmanager
def _ending(*, quiet: bool) -> Iterator[Running]:
    """Yield a table of processes, and end them all on exit from the block."""
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


def _start(
    cell: Cell,
    running: Running,
    folder: Path,
    slots: list[dict[str, str]],
    share: int,
) -> bool:
    """Start the process of a cell, or resume its run; return False if another process has it."""
    log = log_of(cell, folder)
    with ExitStack() as held:
        try:
            held.enter_context(build_lock(log, wait=False))
        except FolderInUse:
            return False
        # A killed sweep frees its lock, but its run may still hold one.
        if cell.done or not is_free(cell.folder):
            return False
        command = cell.command
        if (cell.folder / CONFIG_NAME).is_file():
            command = ("train", "--resume", str(cell.folder), *command[-2:])
        write_file(log, b"")  # a new file, so that hard links elsewhere keep their content
        with log.open("ab") as file:
            process = begin_process(command, file, share=share, **slots[0])
        held.callback(slots.append, slots.pop(0))
        running[cell.folder] = cell, process, held.pop_all()
    return True


def _progress(cell: Cell, home: Home) -> str:
    state = state_of(cell.folder, home)
    text = f"{'/'.join(cell.folder.parts[-3:])}: {state.kind}"
    return f"{text}: {state.reason}" if state.reason else text


CLUSTER = "slurm"  #: submitit's name of it
MINUTES = 24 * 60  #: default time limit of a job; longer runs are requeued and resume
REQUEUES = 1000  #: most restarts after a time limit; preemptions do not count


@dataclass(frozen=True)
class Submission:
    """Cluster job that runs or resumes a cell."""

    cell: Cell
    home: Home
    folder: Path  #: the sweep's
    options: BuildArguments

    def __call__(self) -> None:
        """Run the cell as a sweep of one run."""
        run_cells(
            [self.cell],
            home=self.home,
            folder=self.folder,
            jobs=1,
            options=self.options,
        )

    def checkpoint(self) -> object:
        """Return the same job, requeued after preemption or a time-out, to resume."""
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
    """Build missing data here, and submit the cells that are not done.

    A job whose cell runs waits for it.

    ``settings`` are options of ``sbatch``: ``partition``, ``time`` in minutes,
    ``array_parallelism`` and so on. Raises ``UsageError`` without a cluster, for an unknown
    setting, or if a folder is a link.
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
