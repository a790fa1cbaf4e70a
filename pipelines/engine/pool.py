"""Build units in local worker processes, or in this process if the build is small."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

from kmip_data.errors import (
    SAME_AGAIN,
    Command,
    DamagedInput,
    KmipDataError,
    OutOfResources,
    Step,
    UsageError,
)
from kmip_data.files import atomic_writes
from kmip_data.files.atomic_writes import fsync_path
from kmip_data.files.path_errors import DISK_FULL_ERRNOS
from kmip_data.format import writer
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.writer import SkippedRecord
from kmip_data.graphs.statistics import UnitStatistics
from kmip_data.pipelines.base import AnyPipeline, Prepared, RawCopy, Unit
from kmip_data.pipelines.engine.unfinished_builds import (
    PREPARATION_NAME,
    RESUMABLE_STATE,
    UnitResult,
)
from kmip_data.pipelines.parameters import BuildParams
from kmip_data.plugins import fault_of_plugin
from kmip_data.runtime import parallel, signals
from kmip_data.runtime.current_folder import safe_children
from kmip_data.runtime.memory import limit_memory


class UnitTask(Protocol):
    """Picklable task for one unit of work, such as one shard."""

    @property
    def name(self) -> str:
        """Name in messages."""

    @property
    def file(self) -> str:
        """File to write, relative to the build folder."""

    @property
    def step(self) -> str:
        """Name of the build step that records the result."""

    @property
    def stop(self) -> Path:
        """File whose existence stops the worker."""

    @property
    def graphs(self) -> int:
        """Expected number of graphs."""


T = TypeVar("T", bound=UnitTask)
R = TypeVar("R")


class StopRequestedError(Exception):
    """Raised in a worker if the build is interrupted; the unit is discarded."""


@dataclass(frozen=True)
class BuildTask:
    """Task to build one unit."""

    pipeline: AnyPipeline
    params: BuildParams
    prepared: Prepared
    unit: Unit
    folder: Path  #: the build folder
    stop: Path  #: file whose existence stops the worker
    key: str  #: build key
    threads: int = 1  #: threads of compiled kernels

    @property
    def file(self) -> str:
        """Path of the shard relative to the build folder."""
        return f"shards/{self.unit.index:05d}.h5"

    @property
    def name(self) -> str:
        """Name of the unit."""
        return self.unit.name

    @property
    def step(self) -> str:
        """Name of the build step that records the result."""
        return f"{self.unit.index:05d}"

    @property
    def graphs(self) -> int:
        """Expected number of graphs."""
        return self.unit.expected_graphs


def run_prepare(
    pipeline: AnyPipeline,
    raw: RawCopy,
    params: BuildParams,
    workdir: Path,
    threads: int = 1,
) -> Prepared:
    """Run the pipeline's ``prepare`` and sync its files to disk.

    Raises the same errors as :func:`build_unit`.
    """
    parallel.set_num_threads(threads)
    with (
        gc_frozen(),
        convert_unit_errors(pipeline.manifest.name, PREPARATION_NAME, pipeline.damage_remedy()),
    ):
        prepared: Prepared = pipeline.prepare(raw, params, workdir)
        for path in (*workdir.rglob("*"), workdir):
            fsync_path(path)
    return prepared


def build_unit(task: BuildTask) -> UnitResult:
    """Build the records of one unit and write its shard.

    Raises the pipeline's ``KmipDataError``, with unit and record added; ``OutOfResources`` if disk
    or memory runs out; ``StopRequestedError`` once the stop file exists; ``DamagedInput`` for any
    other exception.
    """
    parallel.set_num_threads(task.threads)
    schema = task.pipeline.schema(task.params)
    statistics = UnitStatistics(schema)
    keys: list[str] = []
    skipped: list[list[str]] = []
    name = task.pipeline.manifest.name

    def where() -> str:
        after = f" (after {keys[-1]!r})" if keys else ""
        return f"unit {task.unit.name!r}, record {len(keys)}{after}"

    with gc_frozen(), convert_unit_errors(name, where, task.pipeline.damage_remedy()):
        card_fields, structure = writer.write_shard(
            task.folder / task.file,
            _stoppable_records(task, statistics, keys, skipped),
            schema,
            root=task.folder,
            dataset=name,
            build_key=task.key,
        )
    return UnitResult(
        task.name,
        task.file,
        statistics=statistics.to_json(),
        skipped=skipped,
        structure=structure,
        **card_fields,
    )


def _stoppable_records(
    task: BuildTask,
    statistics: UnitStatistics,
    keys: list[str],
    skipped: list[list[str]],
) -> Iterator[GraphRecord]:
    """Yield the records of a unit, collecting ``statistics``, ``keys`` and ``skipped``."""
    if task.stop.exists():
        raise StopRequestedError
    last_stop_check = time.monotonic()
    last_progress = last_stop_check
    for record in task.pipeline.records(task.prepared, task.unit, task.params):
        now = time.monotonic()
        if now > last_stop_check + STOP_CHECK_SECONDS:
            last_stop_check = now
            if task.stop.exists():
                raise StopRequestedError
        if now > last_progress + PROGRESS_SECONDS:
            last_progress = now
            write_progress(task, len(keys) + len(skipped))
        if isinstance(record, SkippedRecord):
            skipped.append([record.key, record.reason])
            continue
        yield record
        statistics.add(record)
        keys.append(record.key)


def _progress_file(task: UnitTask) -> Path:
    """File whose size is the number of graphs built; works for every executor."""
    return task.stop.with_name(f"{task.step}.count")


def write_progress(task: BuildTask, count: int) -> None:
    """Write the number of graphs built so far, as the size of a sparse file.

    A sparse file needs no space, so this works on a full disk.
    """
    with contextlib.suppress(OSError):
        file = os.open(_progress_file(task), os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        os.truncate(file, count)
        os.close(file)


def read_progress(task: UnitTask) -> int:
    """Return the number of graphs that a running task has built, at most the expected number."""
    with contextlib.suppress(OSError):
        return min(task.graphs, _progress_file(task).stat().st_size)
    return 0


@contextlib.contextmanager
def gc_frozen() -> Iterator[None]:
    """Exclude existing objects from garbage collection inside the block.

    Imported libraries have a million objects, which reading a large pickle would scan hundreds of
    times: 7 of 20 s for ZINC.
    """
    if gc.get_freeze_count():  # frozen by the user or by an enclosing block
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextlib.contextmanager
def convert_unit_errors(
    dataset: str,
    where: Callable[[], str] | str,
    remedy: Sequence[Step] = (),
) -> Iterator[None]:
    """Convert any exception to an error that names its location, which ``where`` may compute."""
    try:
        yield
    except StopRequestedError:
        raise
    except KmipDataError as error:
        if callable(where) and not error.has_location:
            error.message = f"{error.message} [{where()}]"
        if isinstance(error, DamagedInput):
            error.steps = error.steps or [*remedy]
        raise
    except Exception as error:
        location = where() if callable(where) else where
        # A build without space can resume; any other error is a fault of the raw files.
        is_memory_error = isinstance(error, MemoryError)
        if is_memory_error or _is_disk_full(error):
            cause = "Memory ran out" if is_memory_error else "The disk is full"
            raise OutOfResources(
                f"{cause} at {location}: {str(error) or type(error).__name__}.",
                left=RESUMABLE_STATE,
                steps=[
                    "free disk space or memory (a worker needs about 1 GiB), or use fewer jobs",
                    SAME_AGAIN,
                ],
            ) from error
        if plugin_error := fault_of_plugin(error):
            plugin_error.found = location
            raise plugin_error from error
        raise DamagedInput(
            f"Building stopped at {location}: {type(error).__name__}: {error}",
            left="the shards that are finished",
            steps=[
                Command("kmip-data info", dataset),
                "check the raw files, then build again",
            ],
        ) from error


def _is_disk_full(error: Exception) -> bool:
    if not isinstance(error, OSError):
        return False
    # NumPy's error has no number, only "804 requested and 496 written".
    is_short_write = error.errno is None and "written" in str(error)
    return is_short_write or error.errno in DISK_FULL_ERRNOS


STOP_CHECK_SECONDS = 0.05  #: interval between checks of the stop file
PROGRESS_SECONDS = 0.5  #: interval between updates of the progress

#: environment of the workers: one thread each, and the same hash seed in every run
WORKER_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "NUMEXPR_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "PYTHONHASHSEED": "0",
    "PYTHONSAFEPATH": "1",
}  # fmt: skip


class Executor(contextlib.AbstractContextManager["Executor", None]):
    """Runs functions, usually in other processes, and returns futures.

    Leaving the ``with`` block ends all workers. After an exception in the block, the file ``stop``
    is created, and running calls have ``grace_seconds`` to notice it.
    """

    grace_seconds = 0.5

    def __init__(self, stop: Path) -> None:
        self.stop = stop
        self.running: set[Future[Any]] = set()
        self._executor: Any = None  #: executor of loky or Dask

    def __enter__(self) -> Self:
        """Remove the stop file of an earlier run."""
        atomic_writes.remove_file(self.stop, root=self.stop.parent.parent)
        return self

    @abstractmethod
    def start(self, count: int) -> int:
        """Provide ``count`` workers (a cluster has its own); return how many calls to submit at once."""

    @abstractmethod
    def end(self) -> None:
        """Kill the workers; their results are no longer needed."""

    def submit(self, function: Callable[..., R], *arguments: object) -> Future[R]:
        """Run ``function(*arguments)`` in a worker."""
        with signals.defer_signals():
            future: Future[R] = self._executor.submit(function, *arguments)
            self.running.add(future)
            future.add_done_callback(self.running.discard)
        return future

    def result(self, future: Future[R], name: str) -> R:
        """Return the result of a call, named ``name`` in messages, or raise its exception.

        Raises ``BrokenExecutor`` if a worker died.
        """
        return future.result()

    def call_and_wait(self, function: Callable[..., R], *arguments: object) -> R:
        """Run a pass over the raw files, while no unit runs, and return its result.

        Raises ``OutOfResources`` if the worker died.
        """
        try:
            return self.result(self.submit(function, *arguments), PREPARATION_NAME)
        except BrokenExecutor as error:
            raise worker_died_error(PREPARATION_NAME) from error

    def __exit__(self, exception_type: type[BaseException] | None, *_: object) -> None:
        with signals.defer_signals():
            if exception_type is not None:
                # The disk may be too full to create the file.
                with contextlib.suppress(OSError):
                    self.stop.touch()
                # Do not cancel: loky fails on cancelled futures when it kills its workers. Calls
                # that start now see the stop file.
                wait(list(self.running), timeout=self.grace_seconds)
            self.end()


def worker_died_error(where: str) -> OutOfResources:
    """Return the error for work that crashed its worker process."""
    return OutOfResources(
        f"The worker process died on {where}: killed by the system (out of memory?) or crashed.",
        expected="memory for one shard in each worker (about 1 GiB)",
        left=RESUMABLE_STATE,
        steps=["free some memory; dmesg shows whether the system killed it", SAME_AGAIN],
    )


def start_worker(parent: int, memory: int | None) -> None:
    """Initialise a worker process: signals, one thread, memory limit, and exit with its parent."""

    def watch() -> None:
        # A killed parent cannot end its workers, so they watch it.
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    signals.ignore_ending_signals()
    parallel.set_num_threads(1)
    if memory is not None:
        limit_memory(memory)
    threading.Thread(target=watch, daemon=True, name="parent-watch").start()


class LocalWorkers(Executor):
    """Executor of new local processes, which do not import the user's ``__main__``."""

    def __init__(self, stop: Path, memory: int | None = None) -> None:
        super().__init__(stop)
        self._memory = memory
        self._size = 0

    @safe_children()
    def start(self, count: int) -> int:
        """Provide at least ``count`` processes; the first submitted call starts them.

        Raises ``UsageError`` if the current folder was removed: no process can start there.
        """
        from multiprocessing import resource_tracker

        from loky import ProcessPoolExecutor

        # Reuse idle processes if there are enough.
        if self._executor is None or self._size < count:
            self.end()
            self._size = count
            try:
                Path.cwd()
            except FileNotFoundError as error:
                raise UsageError(
                    "The current folder no longer exists: no worker process can be started in it.",
                    steps=["change to an existing folder", SAME_AGAIN],
                ) from error
            with signals.defer_signals():
                # Otherwise loky starts the trackers with the first worker, which unblocks the
                # deferred signals.
                resource_tracker.ensure_running()
                self._executor = ProcessPoolExecutor(
                    max_workers=count,
                    initializer=start_worker,
                    initargs=(os.getpid(), self._memory),
                    env=WORKER_ENVIRONMENT,
                )
        # One call more than processes, so that no process has to wait.
        return self._size + 1

    def end(self) -> None:
        """Kill the processes, idle or not."""
        if self._executor is not None:
            self._executor.shutdown(wait=True, kill_workers=True)
            self._executor = None


class InProcessExecutor(Executor):
    """Executor in this process, for work that is shorter than the start of a worker.

    Bytes on disk and resumption are the same. If a library crashes, this process ends, but finished
    steps stay. Helsinki takes 0.34 s here, 2.26 s in a worker.
    """

    def start(self, count: int) -> int:
        """Allow one call at a time."""
        return 1

    def submit(self, function: Callable[..., R], *arguments: object) -> Future[R]:
        """Call the function and return a finished future; raise its exceptions at once.

        The thread limit is restored afterwards.
        """
        future: Future[R] = Future()
        with parallel.restore_thread_limit():
            future.set_result(function(*arguments))
        return future

    def end(self) -> None:
        """Do nothing: this process has no workers to stop."""


def run_tasks(
    executor: Executor,
    function: Callable[[T], R],
    tasks: Iterable[T],
    *,
    jobs: int,
    on_result: Callable[[T, R], None],
    on_wait: Callable[[Collection[T]], None],
    print_line: Callable[[str], None],
) -> None:
    """Run ``function`` on every task, and call ``on_result(task, result)`` as each one finishes.

    ``on_wait`` is called periodically with the running tasks. The first exception of a task is
    raised. If a worker dies, its tasks are retried, one at a time; a task whose worker dies once
    more is an error.
    """
    waiting = deque(tasks)
    suspects: deque[T] = deque()
    running: dict[Future[R], T] = {}
    while suspects or waiting or running:
        is_retry = bool(suspects)
        queue = suspects or waiting
        try:
            if is_retry:
                executor.start(1)
                max_running = 1
            else:
                max_running = executor.start(min(jobs, len(waiting) + len(running)))
            while queue and len(running) < max_running:
                task = queue[0]
                running[executor.submit(function, task)] = task
                queue.popleft()
            finished: set[Future[R]] = set()
            while not finished:
                on_wait(running.values())
                finished, _ = wait(running, PROGRESS_SECONDS, return_when=FIRST_COMPLETED)
            # Record successes first, even if another task failed at the same time.
            for future in sorted(finished, key=_failed_or_was_cancelled):
                task = running[future]
                on_result(task, executor.result(future, f"unit {task.name!r}"))
                del running[future]
        except BrokenExecutor as error:
            executor.end()
            if is_retry:
                raise worker_died_error(f"unit {task.name!r}, also when it ran alone") from error
            suspects.extend(running.values())
            running.clear()
            print_line(f"a worker process died; trying its {len(suspects)} shards one by one")


def _failed_or_was_cancelled(future: Future[Any]) -> bool:
    return future.cancelled() or future.exception() is not None


def count_jobs(jobs: int | None) -> int:
    """Return ``jobs``; by default, the number of cores that this process may use."""
    import loky

    return int(loky.cpu_count()) if jobs is None else jobs
