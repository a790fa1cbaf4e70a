"""Units on a Dask cluster, whose workers share the folder; only descriptions cross the network."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import secrets
import socket
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any, NamedTuple, Self

from kmip_data.builds.execution_options import ExecutionOptions
from kmip_data.errors import KmipDataError, SourceUnavailable, UsageError
from kmip_data.files.atomic_writes import write_file
from kmip_data.files.reading import first_problem
from kmip_data.pipelines.engine.plan import versions_of_bytes
from kmip_data.pipelines.engine.pool import Executor, R, worker_died_error
from kmip_data.pipelines.engine.unfinished_builds import RESUMES
from kmip_data.runtime.extras import install_command
from kmip_data.runtime.progress import print_status

CONNECT_SECONDS = 30


class SharedView(NamedTuple):
    """Files, folders and versions that must look equal to workers and this process."""

    token: str  #: a file
    secret: str  #: its content, which detects another folder at the same path
    folders: tuple[str, ...]  #: folders that must exist, the first one writable
    versions: tuple[tuple[str, str], ...]  #: versions of packages that affect the bytes of a shard


def local_versions() -> tuple[tuple[str, str], ...]:
    """Return the local versions of packages that affect the bytes."""
    return tuple(
        (name, version) for name, version in versions_of_bytes().items() if name != "python"
    )


def check_view(view: SharedView) -> str:
    """Return this worker's machine name.

    Raises an error unless it sees the same as ``view``.
    """
    host = socket.gethostname()
    seen = False
    with contextlib.suppress(OSError, UnicodeDecodeError):
        seen = Path(view.token).read_text(encoding="ascii") == view.secret
    exist = all(Path(folder).is_dir() for folder in view.folders)
    if not (seen and exist and os.access(view.folders[0], os.W_OK)):
        raise UsageError(
            f"The worker on {host} does not see {', '.join(view.folders)}, or may not write to the first.",
            next="give a folder that all workers share with --home or --output",
        )
    here = dict(local_versions())
    for name, version in view.versions:
        if here.get(name) != version:
            raise UsageError(
                f"The worker on {host} has {name} {here.get(name)}, not {version}: bytes could differ.",
                next="give every worker the same environment, then run the same command again",
            )
    return host


#: the result does not change while a worker lives
_check_once = functools.lru_cache(maxsize=8)(check_view)


def call_in_worker(
    view: SharedView,
    function: Callable[..., R],
    arguments: tuple[Any, ...],
) -> R:
    """Run ``function(*arguments)`` in this worker, which may have joined later than the others."""
    from threadpoolctl import threadpool_limits

    _check_once(view)
    with threadpool_limits(1):
        return function(*arguments)


class DaskWorkers(Executor):
    """A Dask cluster, found or started when the block is entered.

    Dask runs a task whose worker dies on another one, up to the scheduler's ``allowed-failures``
    (3) times. ``work`` is a folder on the shared file system for the stop file and the token that
    workers must find; without a ``scheduler`` in the options one is started here, with ``jobs``
    workers. Every worker must see the folders that it ``needs``.
    """

    grace = 5.0

    def __init__(
        self,
        work: Path,
        options: ExecutionOptions,
        *,
        jobs: int,
        needs: Iterable[Path],
    ) -> None:
        super().__init__(work / "stop")
        self._token = work / "token"
        self._scheduler = options.scheduler
        self._jobs = jobs
        self._needs = tuple(needs)
        self._quiet = options.quiet
        self._client: Any = None

    def __enter__(self) -> Self:
        super().__enter__()
        secret = secrets.token_hex(16)
        write_file(self._token, secret.encode("ascii"))
        folders = tuple(str(path) for path in (self._token.parent.parent, *self._needs))
        self._view = SharedView(
            str(self._token),
            secret,
            folders,
            local_versions(),
        )
        with contextlib.ExitStack() as stack:  # leave at once if a worker is refused
            self._connect(stack)
            self._check_workers()
            self._executor = self._client.get_executor(pure=False)
            self._stack = stack.pop_all()
        return self

    def start(self, count: int) -> int:
        """Return how many calls to submit at a time, which the cluster decides (:class:`Executor`)."""
        # One more per worker than it runs at a time, so that it never waits for the next call.
        with _cluster_errors():
            ready: dict[str, int] = self._client.nthreads()
        return max(1, sum(ready.values()) + len(ready))

    def submit(self, function: Callable[..., R], *arguments: object) -> Future[R]:
        """Run ``function(*arguments)`` in a worker that sees what this process sees."""
        return super().submit(call_in_worker, self._view, function, arguments)

    def result(self, future: Future[R], name: str) -> R:
        """Return the result of a call, which Dask tries on several workers before giving up."""
        from distributed import KilledWorker

        try:
            with _cluster_errors():
                return future.result()
        except KilledWorker as error:
            raise worker_died_error(name) from error

    def end(self) -> None:
        """Cancel running calls, and leave the cluster or end the one started here."""
        # The scheduler may be what was lost.
        with contextlib.suppress(Exception):
            self._executor.shutdown(wait=False)
        self._stack.close()

    def _connect(self, stack: contextlib.ExitStack) -> None:
        from distributed import Client, LocalCluster

        if self._scheduler is None:
            # A free port for the dashboard, and no port that another machine can reach.
            local = LocalCluster(
                n_workers=self._jobs,
                threads_per_worker=1,
                silence_logs=logging.CRITICAL,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
            )
            where = {"address": stack.enter_context(local).scheduler_address}
        else:
            where = {
                "scheduler_file" if Path(self._scheduler).is_file() else "address": self._scheduler
            }
        try:
            client = Client(**where, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:  # a timeout is an OSError
            raise UsageError(
                f"No Dask scheduler answers at {self._scheduler}: {first_problem(error)}",
                next="`dask scheduler`, then `dask worker ADDRESS` on each machine; or --dask alone",
            ) from error
        self._client = stack.enter_context(client)
        if not self._client.nthreads():
            print_status("waiting for the first worker …", quiet=self._quiet)
            self._client.wait_for_workers(1)
        workers = len(self._client.nthreads())
        print_status(
            f"dask: {workers} workers, dashboard {self._client.dashboard_link}", quiet=self._quiet
        )

    def _check_workers(self) -> None:
        """Refuse a cluster if a worker does not see the folders or has other versions."""
        try:
            answers = self._client.run(check_view, self._view, on_error="return")
        except Exception as error:  # noqa: BLE001 -- the worker has not even this function
            answers = {"": error}
        for address, answer in answers.items():
            if isinstance(answer, KmipDataError):
                raise answer
            if isinstance(answer, BaseException):
                raise UsageError(
                    f"The worker {address} did not answer: {type(answer).__name__}: {answer}",
                    next=f"{install_command('distributed')} on every worker, then start it again",
                ) from answer


@contextlib.contextmanager
def _cluster_errors() -> Iterator[None]:
    """Convert the loss of the scheduler to our error."""
    from distributed.comm.core import CommClosedError

    try:
        yield
    except (CancelledError, CommClosedError) as error:
        raise SourceUnavailable(
            f"The connection to the Dask scheduler was lost: {str(error) or type(error).__name__}.",
            left=RESUMES,
            next="start the scheduler and its workers again, then run the same command again",
        ) from error
