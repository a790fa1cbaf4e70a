"""The file operations of a process, each seen before and after it happens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
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


def served(module: str, *arguments: object, cwd: Path) -> Iterator[Any]:
    """Run a module of ours as a process of its own; give what its lines of JSON hold."""
    paths = os.pathsep.join([str(ROOT / "tests"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return map(json.loads, done.stdout.splitlines())
