"""Code inside a Dask worker: check of the shared folder, then the unit within its memory."""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from kmip_data.errors import UsageError
from kmip_data.pipelines.finishing.identity import versions_of_bytes

R = TypeVar("R")


@dataclass(frozen=True)
class Sight:
    """Files, folders and versions that a worker must see as this process does."""

    token: str  #: a file
    secret: str  #: its content, so that another folder at the same path does not pass
    folders: tuple[str, ...]  #: must be there; the first must take files
    versions: tuple[tuple[str, str], ...]  #: of the packages that have a say in the bytes of a shard


def own_versions() -> tuple[tuple[str, str], ...]:
    """Versions here of what has a say in the bytes."""
    return tuple((name, version) for name, version in versions_of_bytes().items() if name != "python")


def look(sight: Sight) -> str:
    """Return the name of this machine; an error where it does not see what ``sight`` says."""
    host = socket.gethostname()
    try:
        seen = Path(sight.token).read_text(encoding="ascii") == sight.secret
    except (OSError, UnicodeDecodeError):
        seen = False
    missing = [folder for folder in sight.folders if not Path(folder).is_dir()]
    if not seen or missing or not os.access(sight.folders[0], os.W_OK):
        raise UsageError(
            f"The worker on {host} does not see the build folder.",
            expected=f"{', '.join(sight.folders)} on a file system that all workers share, at the same path",
            found=f"no {missing[0]}" if missing else "another folder, or one that takes no files",
            left="what was finished before is kept",
            next="give a shared folder with --home or --output, or mount it on every worker",
        )
    versions: Mapping[str, str] = dict(own_versions())
    for name, version in sight.versions:
        if versions.get(name) != version:
            raise UsageError(
                f"The worker on {host} has another {name}, which could give other bytes.",
                expected=f"{name} {version}, as where the command was given",
                found=f"{name} {versions.get(name)}",
                left="what was finished before is kept",
                next="give every worker the same environment, then the same command",
            )
    return host


def call_here(sight: Sight, memory: int, function: Callable[..., R], arguments: tuple[Any, ...]) -> R:
    """Run ``function(*arguments)`` in this worker, which may have joined after the others were asked."""
    from threadpoolctl import threadpool_limits

    _look_once(sight)
    with _admitted(memory), threadpool_limits(1):
        return function(*arguments)


_look_once = functools.lru_cache(maxsize=8)(look)  #: the result does not change while a worker lives

_used = 0
_room = threading.Condition()


@contextlib.contextmanager
def _admitted(memory: int) -> Iterator[None]:
    """Wait until ``memory`` bytes more fit into this worker; one task always does."""
    global _used
    from distributed import get_worker

    limit = getattr(get_worker().memory_manager, "memory_limit", None)
    with _room:
        _room.wait_for(lambda: not _used or not limit or _used + memory <= limit)
        _used += memory
    try:
        yield
    finally:
        with _room:
            _used -= memory
            _room.notify_all()
