"""Units on a Dask cluster: the workers see the same folder, and only descriptions cross the network."""

from __future__ import annotations

import contextlib
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from kmip_data.errors import KmipDataError, SourceUnavailable, UsageError
from kmip_data.files.changes import write_file
from kmip_data.pipelines.engine.cluster_worker import Sight, call_here, look, own_versions
from kmip_data.pipelines.engine.executors import UNIT_MEMORY, Executor, Job, WorkerDiedError, worker_died
from kmip_data.runtime import signals
from kmip_data.runtime.presence import install_command
from kmip_data.runtime.progress import say

T = TypeVar("T", bound=Job)
R = TypeVar("R")

CONNECT_SECONDS: Final = 30
GRACE_SECONDS: Final = 5.0  #: wait for units to stop by themselves after an interrupt


class DaskWorkers(Executor):
    """A Dask cluster, found or started when the block is entered.

    A task whose worker dies is run by another one: Dask does that by itself, up to the scheduler's
    ``allowed-failures`` (3) times. Nothing is lost with it, because a shard becomes visible by a rename.

    ``work`` is a folder on the shared file system for the stop file and the token that workers must find,
    ``scheduler`` an address or scheduler file; ``None`` starts one and ``jobs`` workers here. Every worker
    must see the folders that it ``needs``.
    """

    def __init__(
        self, work: Path, scheduler: str | None, *, jobs: int, needs: tuple[Path, ...], quiet: bool
    ) -> None:
        self.stop = work / "stop"
        self._token = work / "token"
        self._scheduler, self._jobs, self._needs, self._quiet = scheduler, jobs, needs, quiet
        self._client: Any = None
        self._stack = contextlib.ExitStack()
        self._running: dict[Any, Any] = {}

    def __enter__(self) -> Self:
        super().__enter__()
        secret = secrets.token_hex(16)
        write_file(self._token, secret.encode("ascii"))
        folders = tuple(str(path) for path in (self._token.parent.parent, *self._needs))
        self._sight = Sight(str(self._token), secret, folders, own_versions())
        try:
            self._connect()
            self._check_workers()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with signals.held():
            if error is not None:
                with contextlib.suppress(OSError):
                    self.stop.touch()
                self._abandon()
            self._stack.close()

    def call(self, function: Callable[..., R], *arguments: Any, expect: int = 1) -> R:
        """Return ``function(*arguments)``, run in a worker (see :class:`Executor`)."""
        from distributed import KilledWorker

        future = self._client.submit(call_here, self._sight, UNIT_MEMORY, function, arguments, pure=False)
        self._running[future] = function
        try:
            with self._connected():
                result: R = future.result()
        except KilledWorker as error:
            raise WorkerDiedError from error
        del self._running[future]
        return result

    def run_all(
        self, function: Callable[[T], R], tasks: Iterable[T], *, jobs: int, done: Callable[[R], None]
    ) -> tuple[list[T], list[T]]:
        """Run ``function`` on every task; the cluster says how many at a time (see :class:`Executor`).

        Dask has tried a task several times before it gives it up: then it is an error at once.
        """
        from distributed import KilledWorker, as_completed

        waiting = deque(tasks)
        if not waiting:
            return [], []
        finished = as_completed(loop=self._client.loop)
        with self._connected():
            while waiting or self._running:
                # One more per worker than it runs at a time: it never waits for the next to arrive.
                ready = self._client.nthreads()
                while waiting and len(self._running) < max(1, sum(ready.values()) + len(ready)):
                    task = waiting.popleft()
                    future = self._client.submit(
                        call_here, self._sight, task.memory, function, (task,), pure=False
                    )
                    self._running[future] = task
                    finished.add(future)
                future = next(finished)
                try:
                    result: R = future.result()
                except KilledWorker as error:
                    raise worker_died(f"unit {self._running[future].name!r}, on several workers") from error
                del self._running[future]
                future.release()
                done(result)
        return [], []

    def _connect(self) -> None:
        from distributed import Client

        if self._scheduler is None:
            found = {"address": self._stack.enter_context(_local_cluster(self._jobs)).scheduler_address}
        elif Path(self._scheduler).is_file():
            found = {"scheduler_file": self._scheduler}
        else:
            found = {"address": self._scheduler}
        try:
            client = Client(**found, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:  # a timeout is an OSError
            raise UsageError(
                f"No Dask scheduler answers at {self._scheduler}.",
                expected="the address that `dask scheduler` prints (tcp://HOST:8786), or its scheduler file",
                found=str(error).splitlines()[0] if str(error) else type(error).__name__,
                left="what was finished before is kept",
                next="`dask scheduler`, then `dask worker ADDRESS` on each machine; or --dask alone",
            ) from error
        self._client = self._stack.enter_context(client)
        if not self._client.nthreads():
            say("waiting for the first worker …", quiet=self._quiet)
            self._client.wait_for_workers(1)
        text = f"dask: {len(self._client.nthreads())} workers, dashboard {self._client.dashboard_link}"
        say(text, quiet=self._quiet)

    def _check_workers(self) -> None:
        """Refuse a cluster with a worker that does not see the folders or has other versions."""
        try:
            answers: Mapping[str, Any] = self._client.run(look, self._sight, on_error="return")
        except Exception as error:
            raise _unlike("Workers could not be asked.", error) from error
        for address, answer in answers.items():
            if isinstance(answer, KmipDataError):
                raise answer
            if isinstance(answer, BaseException):
                raise _unlike(f"The worker {address} could not be asked.", answer) from answer

    @contextlib.contextmanager
    def _connected(self) -> Any:
        """Turn the loss of the scheduler into our error."""
        from concurrent.futures import CancelledError

        from distributed.comm.core import CommClosedError

        try:
            yield
        except (CancelledError, CommClosedError) as error:
            raise SourceUnavailable(
                "The Dask scheduler went away.",
                expected="a scheduler that lives until the build is done",
                found=str(error) or type(error).__name__,
                left="finished shards; the next run resumes from them",
                next="start the scheduler and its workers again, then the same command",
            ) from error

    def _abandon(self) -> None:
        """Take back what has not begun, and wait a moment for what sees the stop file."""
        from distributed import wait

        futures = list(self._running)
        with contextlib.suppress(Exception):  # the scheduler may be what was lost
            wait(futures, timeout=GRACE_SECONDS)
        with contextlib.suppress(Exception):
            self._client.cancel(futures, force=True)


def _local_cluster(jobs: int) -> Any:
    """Start a scheduler and ``jobs`` worker processes of one thread on this machine, until it is left."""
    import logging

    from distributed import LocalCluster

    # A free port for the dashboard, and no port that another machine can reach.
    return LocalCluster(
        n_workers=jobs,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        silence_logs=logging.CRITICAL,
    )


def _unlike(what: str, error: BaseException) -> UsageError:
    return UsageError(
        what,
        expected="the same kmip-data in the environment of every worker",
        found=f"{type(error).__name__}: {error}",
        left="what was finished before is kept",
        next=f"{install_command('distributed')} on every worker, then start it again",
    )
