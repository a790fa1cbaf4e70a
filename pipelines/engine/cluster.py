"""Build units on a Dask cluster whose workers share the build folder."""

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
from kmip_data.errors import SAME_AGAIN, KmipDataError, Setting, SourceUnavailable, UsageError
from kmip_data.files.atomic_writes import write_file
from kmip_data.files.small_files import first_problem
from kmip_data.pipelines.engine.plan import versions_affecting_bytes
from kmip_data.pipelines.engine.pool import Executor, R, worker_died_error
from kmip_data.pipelines.engine.unfinished_builds import RESUMABLE_STATE
from kmip_data.runtime.extras import install_command
from kmip_data.runtime.progress import print_status

CONNECT_SECONDS = 30


class WorkerRequirements(NamedTuple):
    """Files, folders and versions that must be the same for workers and this process."""

    token: str  #: path of a file
    secret: str  #: its content; differs if a worker sees another folder at that path
    folders: tuple[str, ...]  #: folders that must exist; the first one must be writable
    versions: tuple[tuple[str, str], ...]  #: package versions that affect the bytes of shards


def local_versions() -> tuple[tuple[str, str], ...]:
    """Return the local package versions that affect the bytes of shards."""
    return tuple(
        (name, version) for name, version in versions_affecting_bytes().items() if name != "python"
    )


def check_worker(requirements: WorkerRequirements) -> str:
    """Return this worker's host name; raise ``UsageError`` unless it sees the same as ``requirements``."""
    host = socket.gethostname()
    sees_token = False
    with contextlib.suppress(OSError, UnicodeDecodeError):
        sees_token = Path(requirements.token).read_text(encoding="ascii") == requirements.secret
    folders_exist = all(Path(folder).is_dir() for folder in requirements.folders)
    if not (sees_token and folders_exist and os.access(requirements.folders[0], os.W_OK)):
        folders = ", ".join(requirements.folders)
        raise UsageError(
            f"The worker on {host} does not see {folders}, or may not write to the first.",
            steps="choose a home or an output folder that all workers share",
        )
    worker_versions = dict(local_versions())
    for name, version in requirements.versions:
        if worker_versions.get(name) != version:
            raise UsageError(
                f"The worker on {host} has {name} {worker_versions.get(name)}, not {version}; "
                "bytes could differ.",
                steps=["give every worker the same environment", SAME_AGAIN],
            )
    return host


_check_worker_once = functools.lru_cache(maxsize=8)(check_worker)


def call_in_worker(
    requirements: WorkerRequirements,
    function: Callable[..., R],
    arguments: tuple[Any, ...],
) -> R:
    """Run ``function(*arguments)`` in this worker, after checking ``requirements`` once."""
    from threadpoolctl import threadpool_limits

    _check_worker_once(requirements)  # the worker may have joined after the first check
    with threadpool_limits(1):
        return function(*arguments)


class DaskWorkers(Executor):
    """Executor on a Dask cluster, which the ``with`` block connects to or starts.

    If a worker dies, Dask retries its task on another worker, up to the scheduler's
    ``allowed-failures`` (3) times. ``work`` is a folder on the shared file system, for the stop file
    and the token. Without a ``scheduler`` in the options, a local cluster of ``jobs`` workers is
    started. Every worker must see the folders in ``needs``.
    """

    grace_seconds = 5.0

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
        self._requirements = WorkerRequirements(
            str(self._token),
            secret,
            folders,
            local_versions(),
        )
        with contextlib.ExitStack() as stack:  # disconnects if a worker is refused
            self._connect(stack)
            self._refuse_unsuitable_workers()
            self._executor = self._client.get_executor(pure=False)
            self._stack = stack.pop_all()
        return self

    def start(self, count: int) -> int:
        """Return how many calls to submit at once; the cluster decides how many workers it has."""
        with _convert_cluster_errors():
            threads_of_worker: dict[str, int] = self._client.nthreads()
        # One extra call per worker, so that no worker has to wait for its next call.
        return max(1, sum(threads_of_worker.values()) + len(threads_of_worker))

    def submit(self, function: Callable[..., R], *arguments: object) -> Future[R]:
        """Run ``function(*arguments)`` in a worker that sees the same folders and versions."""
        return super().submit(call_in_worker, self._requirements, function, arguments)

    def result(self, future: Future[R], name: str) -> R:
        """Return the result of a call; Dask tries several workers before it gives up."""
        from distributed import KilledWorker

        try:
            with _convert_cluster_errors():
                return future.result()
        except KilledWorker as error:
            raise worker_died_error(name) from error

    def end(self) -> None:
        """Cancel running calls and disconnect; stop a cluster that was started here."""
        # The connection to the scheduler may be lost.
        with contextlib.suppress(Exception):
            self._executor.shutdown(wait=False)
        self._stack.close()

    def _connect(self, stack: contextlib.ExitStack) -> None:
        from distributed import Client, LocalCluster

        if self._scheduler is None:
            # Pick a free port for the dashboard; accept no connections from other machines.
            local = LocalCluster(
                n_workers=self._jobs,
                threads_per_worker=1,
                silence_logs=logging.CRITICAL,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
            )
            scheduler = {"address": stack.enter_context(local).scheduler_address}
        elif Path(self._scheduler).is_file():
            scheduler = {"scheduler_file": self._scheduler}
        else:
            scheduler = {"address": self._scheduler}
        try:
            client = Client(**scheduler, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:  # a timeout is an OSError
            raise UsageError(
                f"No Dask scheduler answers at {self._scheduler}: {first_problem(error)}",
                steps=[
                    "start a Dask scheduler and its workers, or use this machine alone",
                    Setting(dask=""),
                ],
            ) from error
        self._client = stack.enter_context(client)
        if not self._client.nthreads():
            print_status("waiting for the first worker …", quiet=self._quiet)
            self._client.wait_for_workers(1)
        workers = len(self._client.nthreads())
        print_status(
            f"dask: {workers} workers, dashboard {self._client.dashboard_link}", quiet=self._quiet
        )

    def _refuse_unsuitable_workers(self) -> None:
        """Refuse a cluster if a worker does not see the folders or has other versions."""
        try:
            answers = self._client.run(check_worker, self._requirements, on_error="return")
        except Exception as error:  # noqa: BLE001 -- the worker may lack this function
            answers = {"": error}
        for address, answer in answers.items():
            if isinstance(answer, KmipDataError):
                raise answer
            if isinstance(answer, BaseException):
                raise UsageError(
                    f"The worker {address} did not answer: {type(answer).__name__}: {answer}",
                    steps=[
                        "on every worker, which then starts again",
                        install_command("distributed"),
                    ],
                ) from answer


@contextlib.contextmanager
def _convert_cluster_errors() -> Iterator[None]:
    """Convert the loss of the scheduler to ``SourceUnavailable``."""
    from distributed.comm.core import CommClosedError

    try:
        yield
    except (CancelledError, CommClosedError) as error:
        raise SourceUnavailable(
            f"The connection to the Dask scheduler was lost: {str(error) or type(error).__name__}.",
            left=RESUMABLE_STATE,
            steps=["start the scheduler and its workers again", SAME_AGAIN],
        ) from error
