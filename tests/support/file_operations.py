"""The file operations of a process, each seen before and after it happens."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

OPERATIONS = ("open", "mkdir", "write", "fsync", "ftruncate", "replace", "unlink", "rmdir")


def watch(folder: Path, before: Callable[[int, str, str], None]) -> None:
    """Call ``before(n, operation, path)`` ahead of the n-th change (from 0) of what lies below ``folder``."""
    seen = -1

    def wrapped(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal seen
            path = changed(name, arguments, options)
            if path is not None and path.startswith(str(folder)):
                seen += 1
                before(seen, name, path)
            return function(*arguments, **options)

        return call

    for name in OPERATIONS:
        setattr(os, name, wrapped(name, getattr(os, name)))


def changed(name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> str | None:
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
