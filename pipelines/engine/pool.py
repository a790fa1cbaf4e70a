"""Executors of units: local worker processes, or this process for a small build."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from kmip_data.errors import DamagedInput, KmipDataError, OutOfResources, UsageError
from kmip_data.files import atomic_writes
from kmip_data.files.atomic_writes import fsync_path
from kmip_data.files.path_errors import DISK_FULL_ERRNOS
from kmip_data.format import writer
from kmip_data.format.writer import GraphRecord, Skipped
from kmip_data.graphs.statistics import UnitStatistics
from kmip_data.pipelines.base import AnyPipeline, BuildParams, Prepared, RawFolder, Unit
from kmip_data.pipelines.engine.unfinished_builds import PREPARATION, RESUMES, UnitResult
from kmip_data.runtime import parallel, signals
from kmip_data.runtime.memory import limit_memory

#: A task: one unit, picklable, with a ``name`` for messages, the ``file`` that it writes, a ``step``,
#: the ``stop`` file and the number of ``graphs`` that are expected.
T = TypeVar("T", bound=Any)
R = TypeVar("R")


class StopRequestedError(Exception):
    """The build was interrupted; the unit stops between two records and is discarded."""


@dataclass(frozen=True)
class BuildTask:
    """Picklable description of a unit's work."""

    pipeline: AnyPipeline
    params: BuildParams
    prepared: Prepared
    unit: Unit
    folder: Path  #: the build folder
    stop: Path  #: a file; the worker stops when it appears
    key: str
    #: threads of compiled kernels: more than one if there are fewer units than jobs
    threads: int = 1

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
        """Name of its result among the steps of the build."""
        return f"{self.unit.index:05d}"

    @property
    def graphs(self) -> int:
        """Number of graphs that are expected."""
        return self.unit.expected_graphs


def run_pass(
    pipeline: AnyPipeline,
    name: str,
    source: RawFolder | Prepared,
    params: BuildParams,
    workdir: Path,
    count: int = 1,
) -> Prepared:
    """Run the pipeline's pass ``name`` with ``count`` threads, and sync its files to disk.

    ``source`` are the raw files for ``prepare``, for one of its ``passes`` the result of the one
    before. Errors as of :func:`build_unit`.
    """
    parallel.set_num_threads(count)
    with (
        gc_frozen(),
        locating_errors(pipeline.manifest.name, PREPARATION, pipeline.advice_on_damage()),
    ):
        prepared: Prepared = getattr(pipeline, name)(source, params, workdir)
        for path in (*workdir.rglob("*"), workdir):
            fsync_path(path)
    return prepared


def build_unit(task: BuildTask) -> UnitResult:
    """Build and encode the records of one unit, write the shard and describe it.

    Raises the pipeline's ``KmipDataError`` with the unit and the record; ``DamagedInput`` for any
    other exception; ``OutOfResources`` if disk or memory runs out; ``StopRequestedError`` once the
    stop file appears.
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

    # Records are made and checked one by one; the writer holds all records of the shard.
    with gc_frozen(), locating_errors(name, where, task.pipeline.advice_on_damage()):
        facts = writer.write_shard(
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
        **facts,
    )


def _stoppable_records(
    task: BuildTask,
    statistics: UnitStatistics,
    keys: list[str],
    skipped: list[list[str]],
) -> Iterator[GraphRecord]:
    """Yield the records of a unit, whose keys are collected, unless the build is stopped."""
    if task.stop.exists():  # sent before the build was stopped
        raise StopRequestedError
    looked = counted = time.monotonic()
    for record in task.pipeline.records(task.prepared, task.unit, task.params):
        # Interrupts reach a worker through the stop file, checked now and then.
        now = time.monotonic()
        if now > looked + LOOK_SECONDS:
            looked = now
            if task.stop.exists():
                raise StopRequestedError
        if now > counted + COUNT_SECONDS:
            counted = now
            write_count(task, len(keys) + len(skipped))
        if isinstance(record, Skipped):
            skipped.append([record.key, record.reason])
            continue
        yield record
        statistics.add(record)
        keys.append(record.key)


def _progress_file(task: T) -> Path:
    """File whose size is the number of graphs done: workers of any executor share its folder."""
    path: Path = task.stop.with_name(f"{task.step}.count")
    return path


def write_count(task: BuildTask, count: int) -> None:
    """Publish how many graphs of a task are done, in a sparse file: a full disk has room for it."""
    with contextlib.suppress(OSError):
        file = os.open(_progress_file(task), os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        os.truncate(file, count)
        os.close(file)


def count_finished_graphs(task: T) -> int:
    """Return how many graphs of a running task are done, at most those expected."""
    with contextlib.suppress(OSError):
        return min(int(task.graphs), _progress_file(task).stat().st_size)
    return 0


@contextlib.contextmanager
def gc_frozen() -> Iterator[None]:
    """Exclude existing objects from garbage collection inside the block.

    Libraries have a million of them, which a large pickle would scan hundreds of times: 7 of 20 s
    for ZINC.
    """
    if gc.get_freeze_count():  # by the user, or around us
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextlib.contextmanager
def locating_errors(
    dataset: str,
    where: Callable[[], str] | str,
    advice: str | None = None,
) -> Iterator[None]:
    """Convert any exception inside to an error that names its location, which may move."""
    try:
        yield
    except StopRequestedError:
        raise
    except KmipDataError as error:
        if callable(where) and not error.located:
            error.message = f"{error.message} [{where()}]"
        if isinstance(error, DamagedInput):
            error.next = error.next or advice
        raise
    except Exception as error:
        place = where() if callable(where) else where
        # Lack of space can be resumed; anything else is a fault of the raw files.
        memory = isinstance(error, MemoryError)
        # numpy says "804 requested and 496 written", without a number.
        short = isinstance(error, OSError) and error.errno is None and "written" in str(error)
        if memory or short or (isinstance(error, OSError) and error.errno in DISK_FULL_ERRNOS):
            full = "Memory ran out" if memory else "The disk is full"
            raise OutOfResources(
                f"{full} at {place}: {str(error) or type(error).__name__}.",
                left=RESUMES,
                next="free disk space or memory (a worker needs about 1 GiB), or use fewer --jobs or more"
                " --memory; then run the same command again",
            ) from error
        raise DamagedInput(
            f"Building stopped at {place}: {type(error).__name__}: {error}",
            left="the shards that are finished",
            next=f"kmip-data info {dataset}; check the raw files, then build again",
        ) from error


LOOK_SECONDS = 0.05  #: seconds between checks of the stop file
COUNT_SECONDS = 0.5  #: seconds between two counts of the graphs done

#: Environment of the workers: one thread each, and no hash seed that differs between runs.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "NUMEXPR_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "PYTHONHASHSEED": "0",
}  # fmt: skip


class Executor(AbstractContextManager["Executor", None]):
    """Calls of functions elsewhere, as futures. Leaving the ``with`` block ends what it started.

    After an exception in the block the file ``stop`` appears, and running calls get ``grace``
    seconds to see it.
    """

    grace = 1.0

    def __init__(self, stop: Path) -> None:
        self.stop = stop
        self.running: set[Future[Any]] = set()
        self._executor: Any = None  #: executor of the library that has the workers

    def __enter__(self) -> Self:
        """Begin without the stop file of an earlier run."""
        atomic_writes.remove_file(self.stop, root=self.stop.parent.parent)
        return self

    @abstractmethod
    def start(self, count: int) -> int:
        """Provide ``count`` workers, unless a cluster decides; return how many calls to submit at a time."""

    @abstractmethod
    def end(self) -> None:
        """Kill the workers, whose results are no longer needed."""

    def submit(self, function: Callable[..., R], *arguments: object) -> Future[R]:
        """Run ``function(*arguments)`` in a worker."""
        with signals.defer_signals():
            future: Future[R] = self._executor.submit(function, *arguments)
            self.running.add(future)
            future.add_done_callback(self.running.discard)
        return future

    def result(self, future: Future[R], name: str) -> R:
        """Return the result of a call, or raise its exception: ``BrokenExecutor`` if a worker died.

        ``name`` is the call's name in messages.
        """
        return future.result()

    def call_alone(self, function: Callable[..., R], *arguments: object) -> R:
        """Return ``function(*arguments)`` of a pass over the raw files, while no unit runs.

        Raises ``OutOfResources`` where the worker died.
        """
        try:
            return self.result(self.submit(function, *arguments), PREPARATION)
        except BrokenExecutor as error:
            raise worker_died_error(PREPARATION) from error

    def __exit__(self, exception_type: type[BaseException] | None, *_: object) -> None:
        with signals.defer_signals():
            if exception_type is not None:
                # Kill the workers even without space for the file.
                with contextlib.suppress(OSError):
                    self.stop.touch()
                # Do not cancel: loky fails on cancelled futures when it kills its workers, and
                # calls that begin now see the stop file.
                wait(list(self.running), timeout=self.grace)
            self.end()


def worker_died_error(where: str) -> OutOfResources:
    """Return the error for a unit that crashed its worker process."""
    return OutOfResources(
        f"The worker process died on {where}: killed by the system (out of memory?) or crashed.",
        expected="memory for one shard in each worker (about 1 GiB)",
        left=RESUMES,
        next="free some memory and run the same command again; dmesg says whether the system killed it",
    )


def start_worker(parent: int, memory: int | None) -> None:
    """Initialise a worker process: signals, one thread, memory limit, and exit with its parent."""

    def watch() -> None:
        # A killed parent cannot end its workers, so they check for it.
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    signals.ignore_ending_signals()
    parallel.set_num_threads(1)
    if memory is not None:
        limit_memory(memory)
    threading.Thread(target=watch, daemon=True, name="parent-watch").start()


class Workers(Executor):
    """Freshly started processes that do not import the user's ``__main__``."""

    def __init__(self, stop: Path, memory: int | None = None) -> None:
        super().__init__(stop)
        self._memory = memory
        self._size = 0

    def start(self, count: int) -> int:
        """Provide at least ``count`` processes, started by the first call (:class:`Executor`).

        Raises ``UsageError`` if the current folder was removed, as no process can start in it.
        """
        from multiprocessing import resource_tracker

        from loky import ProcessPoolExecutor

        # Idle processes are reused if there are enough, else replaced.
        if self._executor is None or self._size < count:
            self.end()
            self._size = count
            try:
                Path.cwd()
            except FileNotFoundError as error:
                raise UsageError(
                    "The current folder no longer exists: no worker process can be started in it.",
                    next="change to an existing folder, then run the same command again",
                ) from error
            with signals.defer_signals():
                # Else loky starts it before the first worker, and that unblocks the signals that
                # are held then.
                resource_tracker.ensure_running()
                self._executor = ProcessPoolExecutor(
                    max_workers=count,
                    initializer=start_worker,
                    initargs=(os.getpid(), self._memory),
                    env=ENVIRONMENT,
                )
        # One call more than processes, so that none waits for the next.
        return self._size + 1

    def end(self) -> None:
        """Kill the processes, idle or not."""
        if self._executor is not None:
            self._executor.shutdown(wait=True, kill_workers=True)
            self._executor = None


class InProcess(Executor):
    """Calls functions in this process, if a worker would take longer to start than to work.

    Bytes on disk and resumption are the same. A crash of a library ends this process, with all
    finished steps kept. Helsinki takes 0.34 s here, 2.26 s in a worker.
    """

    def start(self, count: int) -> int:
        """Allow one call at a time."""
        return 1

    def submit(self, function: Callable[..., R], *arguments: object) -> Future[R]:
        """Call the function and return a finished future; its exceptions are raised here.

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
    done: Callable[[T, R], None],
    message: Callable[[str], None],
    waiting_for: Callable[[Collection[T]], None],
) -> None:
    """Run ``function`` on every task; ``done(task, result)`` is called as each finishes.

    ``waiting_for(tasks)`` is called with the running ones now and then.

    The first exception of a task is raised. The tasks of a worker that died run once more, each
    alone; one that takes its worker down again is an error, too.
    """
    waiting = deque(tasks)
    suspects: deque[T] = deque()
    running: dict[Future[R], T] = {}
    while suspects or waiting or running:
        alone = bool(suspects)
        queue = suspects or waiting
        try:
            if alone:
                executor.start(1)
                room = 1
            else:
                room = executor.start(min(jobs, len(waiting) + len(running)))
            while queue and len(running) < room:
                task = queue[0]
                running[executor.submit(function, task)] = task
                queue.popleft()
            finished: set[Future[R]] = set()
            while not finished:
                waiting_for(running.values())
                finished, _ = wait(running, COUNT_SECONDS, return_when=FIRST_COMPLETED)
            # Count successes even if another task failed at the same time.
            for future in sorted(finished, key=_has_failed):
                task = running[future]
                done(task, executor.result(future, f"unit {task.name!r}"))
                del running[future]
        except BrokenExecutor as error:
            executor.end()
            if alone:
                raise worker_died_error(f"unit {task.name!r}, also when it ran alone") from error
            suspects.extend(running.values())
            running.clear()
            message(f"a worker process died; trying its {len(suspects)} shards one by one")


def _has_failed(future: Future[Any]) -> bool:
    return future.cancelled() or future.exception() is not None


def count_jobs(jobs: int | None) -> int:
    """Return ``jobs``, or the cores this process may use (affinity and container limits)."""
    import loky

    return int(loky.cpu_count()) if jobs is None else jobs
