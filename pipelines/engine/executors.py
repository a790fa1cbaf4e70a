"""Executors of units: worker processes, this process for a small build, or a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, Protocol, Self, TypeVar

from kmip_data.errors import OutOfResources
from kmip_data.files import changes as files

EXECUTOR_FILES: Final = ("stop", "token")  #: files of executors in their work folder
UNIT_MEMORY: Final = 2**30  #: bytes that a worker needs for one shard of a build


class Job(Protocol):
    """Task of an executor: one unit, picklable, with a name and the memory it needs."""

    @property
    def name(self) -> str:
        """For messages."""

    @property
    def memory(self) -> int:
        """Bytes that a worker needs for it."""


T = TypeVar("T", bound=Job)
R = TypeVar("R")


class WorkerDiedError(Exception):
    """The process that ran a call is gone."""


class Executor(AbstractContextManager["Executor", None], Protocol):
    """Runs functions elsewhere. Leaving the ``with`` block ends what it started.

    After an exception in the block ``stop`` appears, running calls see it, and nothing more is begun.
    """

    stop: Path  #: the stop file that tasks look for

    def __enter__(self) -> Self:
        """Begin without the stop file of an earlier run."""
        files.remove_file(self.stop, root=self.stop.parent.parent)
        return self

    def call(self, function: Callable[..., R], *arguments: Any, expect: int = 1) -> R:
        """Return ``function(*arguments)``, run in a worker; ``expect`` calls will follow at a time.

        Raises :class:`WorkerDiedError` where the worker is gone.
        """

    def run_all(
        self, function: Callable[[T], R], tasks: Iterable[T], *, jobs: int, done: Callable[[R], None]
    ) -> tuple[list[T], list[T]]:
        """Run ``function`` on every task, ``jobs`` at a time where that is not the cluster's to say.

        ``done`` is called in this process with each result, in the order in which they come; the first
        exception of a task is raised here. Returns, after a worker died, the tasks that were handed over and
        not finished, and those not yet handed over; else nothing of either.
        """


def worker_died(place: str) -> OutOfResources:
    """Return the error for a unit that took its worker process down."""
    return OutOfResources(
        f"The worker process died on {place}.",
        expected="memory for one shard in each worker (about 1 GiB)",
        found="a process killed by the system (out of memory?) or crashed",
        left="finished shards; the next run resumes from them",
        next="free some memory and run the same command again; dmesg says whether the system killed it",
    )
