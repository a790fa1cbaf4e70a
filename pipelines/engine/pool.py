"""Executors of this machine: the worker processes of one build, and for a small one this process."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar, get_args

from kmip_data.builds.home import BuildOptions, EngineName
from kmip_data.errors import UsageError
from kmip_data.pipelines.engine.executors import Executor, Job, WorkerDiedError
from kmip_data.pipelines.engine.workers import ENVIRONMENT, start_worker
from kmip_data.runtime import signals, threads
from kmip_data.runtime.presence import require_extra

T = TypeVar("T", bound=Job)
R = TypeVar("R")

GRACE_SECONDS = 1.0  #: wait for workers to stop by themselves after an interrupt


class Workers(Executor):
    """Processes that are started afresh and do not import the user's ``__main__``.

    Leaving the ``with`` block ends them: at once where all work is done, and after an exception
    when they have seen the stop file, or a second later.
    """

    def __init__(self, stop: Path) -> None:
        self.stop = stop
        self._futures: set[Future[Any]] = set()
        self._executor: Any = None
        self._size = 0

    def ensure(self, size: int) -> None:
        """Have at least ``size`` processes, which start with the first task; fewer ones are replaced.

        Raises ``UsageError`` where the current folder was removed: no process can be started from it.
        """
        from multiprocessing import resource_tracker

        from loky import ProcessPoolExecutor

        if self._executor is not None and self._size >= size:
            return
        self.end()
        self._size = size
        try:
            Path.cwd()
        except FileNotFoundError as error:
            raise UsageError(
                "The current folder no longer exists.",
                expected="a folder to start worker processes in",
                found="a folder that was removed",
                left="what was finished before is kept",
                next="cd, then the same command again",
            ) from error
        with signals.held():
            # Else loky starts it before the first worker, and that unblocks the signals that are held then.
            resource_tracker.ensure_running()
        with signals.held():
            self._executor = ProcessPoolExecutor(
                max_workers=size, initializer=start_worker, initargs=(os.getpid(),), env=ENVIRONMENT
            )

    def call(self, function: Callable[..., R], *arguments: Any, expect: int = 1) -> R:
        """Return ``function(*arguments)``, run in one of ``expect`` processes (see :class:`Executor`)."""
        self.ensure(expect)
        try:
            return self.submit(function, *arguments).result()
        except BrokenExecutor as error:
            raise WorkerDiedError from error

    def submit(self, function: Callable[..., R], *arguments: Any) -> Future[R]:
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
        self, function: Callable[[T], R], tasks: Iterable[T], *, jobs: int, done: Callable[[R], None]
    ) -> tuple[list[T], list[T]]:
        """Run ``function`` on every task, at most ``jobs + 1`` handed over at a time (:class:`Executor`)."""
        waiting = deque(tasks)
        running: dict[Future[R], T] = {}
        if not waiting:
            return [], []
        self.ensure(min(jobs, len(waiting)))
        try:
            while waiting or running:
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
        return [], []

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with signals.held():
            if error is not None:
                # Without room for the file the workers are ended all the same.
                with contextlib.suppress(OSError):
                    self.stop.touch()
                # Not cancelled: loky stumbles over cancelled futures when it kills its workers, and a
                # task that only now begins sees the stop file.
                wait(list(self._futures), timeout=GRACE_SECONDS)
            self.end()


class InProcess(Executor):
    """Calls the functions here, one after the other: a worker would take longer to start than to work.

    Order and bytes on disk, journal and resume are those of worker processes, for the functions are the
    same. What a worker gives besides is not needed for a few megabytes: an interrupt is an exception at
    the next Python instruction, and a crash of a library ends this process as ``kill -9`` would, with
    all finished steps kept. Helsinki is built in 0.34 s here, in 2.26 s by a worker.
    """

    def __init__(self, stop: Path) -> None:
        self.stop = stop

    def call(self, function: Callable[..., R], *arguments: Any, expect: int = 1) -> R:
        """Return ``function(*arguments)``; the thread limit that it sets is put back."""
        with threads.limit_restored():
            return function(*arguments)

    def run_all(
        self, function: Callable[[T], R], tasks: Iterable[T], *, jobs: int, done: Callable[[R], None]
    ) -> tuple[list[T], list[T]]:
        """Run ``function`` on every task; none is ever lost (see :class:`Executor`)."""
        for task in tasks:
            done(self.call(function, task))
        return [], []

    def __exit__(self, *_: object) -> None:
        pass


def count_jobs(jobs: int | None) -> int:
    """``jobs``, at least 1, or the cores this process may use (affinity and container limits)."""
    if jobs is not None and jobs < 1:
        raise UsageError("--jobs is too small.", expected="1 or more", found=str(jobs))
    if jobs is None:
        import loky

        jobs = int(loky.cpu_count())
    return jobs


def check_options(options: BuildOptions) -> None:
    """Refuse options that no build can have, before anything is read or written.

    Raises ``UsageError`` where compression, engine, scheduler or jobs are wrong, or what the engine needs is
    not installed.
    """
    if options.compression not in {None, "gzip", "zstd"}:
        raise UsageError("Unknown compression.", expected="gzip or zstd", found=str(options.compression))
    count_jobs(options.jobs)
    engines = get_args(EngineName)
    if options.engine not in engines:
        raise UsageError("There is no such engine.", expected=", ".join(engines), found=repr(options.engine))
    if options.engine == "dask":
        require_extra("distributed", "The engine dask")
    elif options.scheduler is not None:
        raise UsageError(
            "A scheduler belongs to the engine dask.",
            expected="engine='dask' with it",
            found=f"scheduler={options.scheduler!r} with worker processes",
            next=f"--dask {options.scheduler}",
        )


def open_executor(
    options: BuildOptions, work: Path, *, jobs: int, needs: Iterable[Path], here: bool = False
) -> Executor:
    """Return the executor that the options, already checked, mean; it is not entered yet.

    ``work`` is for the stop file and what else executors keep on disk; every worker must see the folders that
    it ``needs``. ``here``: run in this process, for work that is done before a worker has started.
    """
    if options.engine == "dask":
        from kmip_data.pipelines.engine.cluster import DaskWorkers

        return DaskWorkers(work, options.scheduler, jobs=jobs, needs=tuple(needs), quiet=options.quiet)
    return InProcess(work / "stop") if here else Workers(work / "stop")
