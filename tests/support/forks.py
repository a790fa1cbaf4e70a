"""Forks of this process, whose file operations are seen: each may be killed or out of room at one.

What a fork runs is imported and compiled already.
"""

from __future__ import annotations

import functools
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

OPERATIONS = ("open", "mkdir", "write", "fsync", "ftruncate", "replace", "unlink", "rmdir")
NEVER = 10**9
#: Carries an operation out: its number (from 0), its name, the path, the call.
Around = Callable[[int, str, str, "functools.partial[Any]"], Any]


def watch(folder: Path, around: Around) -> None:
    """Let ``around`` carry out each change of what lies below ``folder``."""
    seen = -1

    def wrapped(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal seen
            path = _changed(name, arguments, options)
            if path is None or not path.startswith(str(folder)):
                return function(*arguments, **options)
            seen += 1
            return around(seen, name, path, functools.partial(function, *arguments, **options))

        return call

    for name in OPERATIONS:
        setattr(os, name, wrapped(name, getattr(os, name)))


def _changed(name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> str | None:
    """Path of the file that an operation changes, if it changes one."""
    if name == "open" and not arguments[1] & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
        return None
    target = arguments[1] if name == "replace" else arguments[0]
    if isinstance(target, int):
        try:
            target = Path(f"/proc/self/fd/{target}").readlink()
        except OSError:
            return None
    inside = options.get("dst_dir_fd", options.get("dir_fd"))  # a name inside an open folder
    base = Path.cwd() if inside is None else Path(f"/proc/self/fd/{inside}").readlink()
    return str(base / target)


def fork(action: Callable[[], int], said: Path, folder: Path, around: Around) -> int:
    """Run ``action`` in a fork, which ends with its code; what it prints is in ``said``."""
    said.write_text("")
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        descriptor = os.open(said, os.O_WRONLY | os.O_APPEND)
        for stream in (1, 2):
            os.dup2(descriptor, stream)
        sys.stdout, sys.stderr = (os.fdopen(stream, "w", buffering=1) for stream in (1, 2))
        watch(folder, around)
        code = action()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def end_of(pid: int) -> int:
    """Wait for a fork and return how it ended (negative: by a signal)."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
