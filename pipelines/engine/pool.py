"""Executors of units: worker processes of this machine, or for a small build this process."""

from __future__ import annotations

import contextlib
import gc
import math
import os
import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from kmip_data.errors import FULL, DamagedInput, KmipDataError, OutOfResources, UsageError
from kmip_data.files import changes as files
from kmip_data.files.changes import fsync_path
from kmip_data.format import writer
from kmip_data.format.writer import GraphRecord, Skipped
from kmip_data.graphs.statistics import UnitStatistics
from kmip_data.pipelines.base import Params, Pipeline, Prepared, RawFolder, Unit
from kmip_data.pipelines.engine.journal import PREPARATION, RESUMES, UnitResult
from kmip_data.runtime import signals, threads
from kmip_data.runtime.memory import bound_memory


class StopRequestedError(Exception):
    """The build was interrupted; the unit ends between two records and nothing of it is kept."""


@dataclass(frozen=True)
class BuildTask:
    """Everything that one unit needs, picklable."""

    pipeline: Pipeline[Any, Any]
    params: Params
    prepared: Prepared
    unit: Unit
    folder: Path  #: the build folder
    stop: Path  #: a file; the worker stops when it appears
    key: str
    compression: writer.Compression
    threads: int = 1  #: for compiled kernels: more than one where there are fewer units than jobs

    @property
    def file(self) -> str:
        """Path of the shard relative to the build folder."""
        return f"shards/{self.unit.index:05d}.h5"

    @property
    def name(self) -> str:
        """Name of the unit."""
        return self.unit.name


def prepare(
    pipeline: Pipeline[Any, Any],
    name: str,
    given: RawFolder | Prepared,
    params: Params,
    workdir: Path,
    count: int = 1,
) -> Prepared:
    """Run the pipeline's pass ``name`` with ``count`` threads; wait until what it wrote is on disk.

    ``given`` are the raw files for ``prepare``, for one of its ``passes`` the result of the one
    before. Errors are those of :func:`build_unit`.
    """
    threads.set_num_threads(count)
    with frozen(), explained(pipeline.manifest.name, PREPARATION, pipeline.advice()):
        prepared: Prepared = getattr(pipeline, name)(given, params, workdir)
        for path in sorted(workdir.rglob("*")):
            fsync_path(path)
    return prepared


def build_unit(task: BuildTask) -> UnitResult:
    """Build the records of one unit, encode them, write the shard and describe it.

    Raises ``KmipDataError`` as the pipeline raised it, with the unit and the record named;
    ``DamagedInput`` for any other exception; ``OutOfResources`` where disk or memory ran out;
    ``StopRequestedError`` once the stop file appeared.
    """
    threads.set_num_threads(task.threads)
    schema = task.pipeline.schema(task.params)
    statistics = UnitStatistics(schema)
    where = _Location(task.unit)
    skipped: list[list[str]] = []
    name = task.pipeline.manifest.name
    # Records are made, checked and written one by one: a unit is never in memory as a whole.
    with frozen(), explained(name, where, task.pipeline.advice()):
        facts = writer.write_shard(
            task.folder / task.file,
            _watched(task, statistics, where, skipped),
            schema,
            root=task.folder,
            dataset=name,
            build_key=task.key,
            compression=task.compression,
        )
    return UnitResult(
        task.name,
        task.file,
        statistics=statistics.to_json(),
        skipped=skipped,
        **facts,
    )


class _Location:
    """Position of the work inside a unit, for messages."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.count = 0
        self.last = ""
        self.encoding = False

    def __str__(self) -> str:
        if self.encoding:
            return f"unit {self.unit.name!r}, encoding its {self.count} records"
        after = f" (after {self.last!r})" if self.last else ""
        return f"unit {self.unit.name!r}, record {self.count}{after}"


def _watched(
    task: BuildTask,
    statistics: UnitStatistics,
    where: _Location,
    skipped: list[list[str]],
) -> Iterator[GraphRecord]:
    looked = -math.inf
    for record in task.pipeline.records(task.prepared, task.unit, task.params):
        # A look at the file system now and then: how an interrupt reaches a worker.
        now = time.monotonic()
        if now > looked + LOOK_SECONDS:
            looked = now
            if task.stop.exists():
                raise StopRequestedError
        if isinstance(record, Skipped):
            skipped.append([record.key, record.reason])
            continue
        yield record
        statistics.add(record)
        where.count += 1
        where.last = record.key
    where.encoding = True


@contextlib.contextmanager
def frozen() -> Iterator[None]:
    """Leave what is in memory out of garbage collection inside: libraries are a million objects.

    A pickle of a million tuples looks them through hundreds of times: 7 of 20 s for ZINC.
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
def explained(
    dataset: str,
    where: _Location | str,
    advice: str | None = None,
) -> Iterator[None]:
    """Turn any exception inside into an error that names its place: ``str(where)`` at that moment."""
    try:
        yield
    except StopRequestedError:
        raise
    except KmipDataError as error:
        if isinstance(where, _Location):
            error.what = f"{error.what} [{where}]"
        if isinstance(error, DamagedInput):
            error.parts["next"] = error.parts["next"] or advice
        raise
    except Exception as error:
        # No room is nobody's fault and can be resumed; all else is a fault of the raw files.
        memory = isinstance(error, MemoryError)
        if memory or (isinstance(error, OSError) and error.errno in FULL):
            full = "Memory ran out" if memory else "The disk is full"
            what = f"{full} at {where}: {str(error) or type(error).__name__}."
            again = (
                "free some (a worker needs about 1 GiB), fewer --jobs or more --memory; then again"
            )
            raise OutOfResources(what, left=RESUMES, next=again) from error
        what = f"Building stopped at {where}: {type(error).__name__}: {error}"
        again = f"kmip-data info {dataset}; check the raw files, then build again"
        raise DamagedInput(what, left="the shards that are finished", next=again) from error


LOOK_SECONDS = 0.05  #: between two looks for the stop file
GRACE_SECONDS = 1.0  #: wait for workers to stop by themselves after an interrupt

#: Environment of the workers: one thread each, and no hash seed that differs between runs.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "NUMEXPR_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "PYTHONHASHSEED": "0",
}  # fmt: skip

#: A task: one unit, picklable, with a ``name`` for messages and the ``file`` that it writes.
T = TypeVar("T", bound=Any)
R = TypeVar("R")


class Executor(AbstractContextManager["Executor", None]):
    """Runs functions elsewhere. Leaving the ``with`` block ends what it started.

    After an exception in the block the file ``stop`` appears, running calls see it, and no more is
    begun.
    """

    def __init__(self, stop: Path) -> None:
        self.stop = stop

    def __enter__(self) -> Self:
        """Begin without the stop file of an earlier run."""
        files.remove_file(self.stop, root=self.stop.parent.parent)
        return self

    @abstractmethod
    def call(self, function: Callable[..., R], *arguments: object, expect: int = 1) -> R:
        """Return ``function(*arguments)``, run in a worker; ``expect`` calls will follow at a time.

        Raises ``OutOfResources`` where the worker died.
        """

    @abstractmethod
    def run_all(
        self,
        function: Callable[[T], R],
        tasks: Iterable[T],
        *,
        jobs: int,
        done: Callable[[R], None],
    ) -> tuple[list[T], list[T]]:
        """Run ``function`` on every task, ``jobs`` at a time unless a cluster decides that.

        ``done`` is called here with each result, as they come; the first exception of a task is
        raised. Returns, after a worker died, the tasks handed over and not finished, and those not
        yet handed over.
        """


def worker_died(where: str) -> OutOfResources:
    """Return the error for a unit that took its worker process down."""
    return OutOfResources(
        f"The worker process died on {where}: killed by the system (out of memory?) or crashed.",
        expected="memory for one shard in each worker (about 1 GiB)",
        left=RESUMES,
        next="free some memory and run the same command again; dmesg says whether the system killed it",
    )


def start_worker(parent: int, memory: int | None) -> None:
    """Set a new worker process up: signals, one thread, most bytes of memory, and an end with its parent."""

    def watch() -> None:
        # A parent that was killed cannot end its workers: they look for themselves.
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    signals.ignore_ends()
    threads.set_num_threads(1)
    if memory is not None:
        bound_memory(memory)
    threading.Thread(target=watch, daemon=True, name="parent-watch").start()


class Workers(Executor):
    """Processes that are started afresh and do not import the user's ``__main__``.

    After an exception in the block they end when they have seen the stop file, or a second later.
    """

    def __init__(self, stop: Path, memory: int | None = None) -> None:
        super().__init__(stop)
        self._memory = memory
        self._futures: set[Future[Any]] = set()
        self._executor: Any = None
        self._size = 0

    def ensure(self, size: int) -> None:
        """Have at least ``size`` processes, which start with the first task.

        Where there are fewer, they are replaced.

        Raises ``UsageError`` where the current folder was removed: no process can be started from
        it.
        """
        from multiprocessing import resource_tracker

        from loky import ProcessPoolExecutor

        # Idle processes are reused; too few are replaced by as many as are needed.
        if self._executor is not None and self._size >= size:
            return
        self.end()
        self._size = size
        try:
            Path.cwd()
        except FileNotFoundError as error:
            raise UsageError(
                "The current folder no longer exists: no worker process can be started in it.",
                next="cd, then the same command again",
            ) from error
        with signals.held():
            # Else loky starts it before the first worker, and that unblocks the signals that are
            # held then.
            resource_tracker.ensure_running()
        with signals.held():
            initargs = (os.getpid(), self._memory)
            self._executor = ProcessPoolExecutor(
                max_workers=size,
                initializer=start_worker,
                initargs=initargs,
                env=ENVIRONMENT,
            )

    def call(self, function: Callable[..., R], *arguments: object, expect: int = 1) -> R:
        """Return ``function(*arguments)``, run in one of ``expect`` processes (see :class:`Executor`)."""
        self.ensure(expect)
        try:
            return self.submit(function, *arguments).result()
        except BrokenExecutor as error:
            raise worker_died(PREPARATION) from error

    def submit(self, function: Callable[..., R], *arguments: object) -> Future[R]:
        """Run ``function(*arguments)`` in a worker."""
        with signals.held():
            future: Future[R] = self._executor.submit(function, *arguments)
            self._futures.add(future)
            future.add_done_callback(self._futures.discard)
        return future

    def end(self) -> None:
        """Kill the processes; idle or not, nothing they could still do is wanted."""
        if self._executor is not None:
            self._executor.shutdown(wait=True, kill_workers=True)
            self._executor = None

    def run_all(
        self,
        function: Callable[[T], R],
        tasks: Iterable[T],
        *,
        jobs: int,
        done: Callable[[R], None],
    ) -> tuple[list[T], list[T]]:
        """Run ``function`` on every task, at most ``jobs + 1`` handed over at a time (:class:`Executor`)."""
        waiting = deque(tasks)
        running: dict[Future[R], T] = {}
        if waiting:
            self.ensure(min(jobs, len(waiting)))
        try:
            while waiting or running:
                # One task more than there are processes: none waits until the next is handed out.
                while waiting and len(running) <= jobs:
                    future = self.submit(function, waiting[0])
                    running[future] = waiting.popleft()
                finished, _ = wait(running, return_when=FIRST_COMPLETED)
                # What succeeded counts, also where another task of the same moment failed.
                for future in sorted(finished, key=lambda future: future.exception() is not None):
                    done(future.result())
                    del running[future]
        except BrokenExecutor:
            self.end()
        return list(running.values()), list(waiting)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with signals.held():
            if kind is not None:
                # Without room for the file the workers are ended all the same.
                with contextlib.suppress(OSError):
                    self.stop.touch()
                # Not cancelled: loky stumbles over cancelled futures when it kills its workers, and
                # a task that only now begins sees the stop file.
                wait(list(self._futures), timeout=GRACE_SECONDS)
            self.end()


class InProcess(Executor):
    """Calls the functions here, one after the other: a worker would take longer to start than to work.

    Bytes on disk, journal and resume are those of worker processes. A crash of a library ends this
    process as ``kill -9`` would, with all finished steps kept. Helsinki takes 0.34 s here, 2.26 s
    by a worker.
    """

    def call(self, function: Callable[..., R], *arguments: object, expect: int = 1) -> R:
        """Return ``function(*arguments)``; the thread limit that it sets is put back."""
        with threads.limit_restored():
            return function(*arguments)

    def run_all(
        self,
        function: Callable[[T], R],
        tasks: Iterable[T],
        *,
        jobs: int,
        done: Callable[[R], None],
    ) -> tuple[list[T], list[T]]:
        """Run ``function`` on every task; none is ever lost (see :class:`Executor`)."""
        for task in tasks:
            done(self.call(function, task))
        return [], []

    def __exit__(self, *_: object) -> None:
        pass


def count_jobs(jobs: int | None) -> int:
    """Return ``jobs``, or the cores this process may use (affinity and container limits)."""
    import loky

    return int(loky.cpu_count()) if jobs is None else jobs
