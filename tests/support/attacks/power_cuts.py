"""Content of a disk after each change of a folder, if the power is cut then.

Every ``fsync`` is honoured, and every later write is lost. Of names there are two kinds of disks: one
keeps each rename and removal in order, the other only renames in folders that were synced.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: Files by name below the folder; ``None`` is a folder.
State = dict[str, bytes | None]
CHANGES = ("fsync", "replace", "unlink", "rmdir", "mkdir")


class Disk:
    """Recorder of the states of a folder, each once; see :func:`recorded`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.states: list[State] = []
        self._numbers = itertools.count()
        # A number of an inode may come again once it is free, so each has an identity of ours.
        self._identities: dict[int, int] = {}
        self._folders: set[int] = set()
        self._content: dict[int, bytes] = {}  #: content of files when they were last synced
        self._entries: dict[int, dict[str, int]] = {}  #: files of folders then, by name
        for parent, folders, names in os.walk(folder):
            for path in (Path(parent), *(Path(parent, name) for name in (*folders, *names))):
                self.synced(path)

    def identity(self, path: Path) -> int:
        number = self._identities.setdefault(path.lstat().st_ino, next(self._numbers))
        if path.is_dir():
            self._folders.add(number)
        return number

    def forget(self, path: Path) -> None:
        """Note that the inode at a path is about to be free."""
        with contextlib.suppress(OSError):
            self._identities.pop(path.lstat().st_ino, None)

    def synced(self, path: Path) -> None:
        if path.is_dir():
            entries = {inner.name: self.identity(inner) for inner in path.iterdir()}
            self._entries[self.identity(path)] = entries
        else:
            self._content[self.identity(path)] = path.read_bytes()

    def record(self) -> None:
        """Add what the two kinds of disks hold now."""
        with_names: State = {}
        for path in sorted(self.folder.rglob("*")):
            content = None if path.is_dir() else self._content.get(self.identity(path), b"")
            with_names[path.relative_to(self.folder).as_posix()] = content
        for state in (with_names, dict(self._reachable(self.identity(self.folder), ""))):
            if state not in self.states:
                self.states.append(state)

    def _reachable(self, folder: int, prefix: str) -> Iterator[tuple[str, bytes | None]]:
        for name, number in self._entries.get(folder, {}).items():
            is_folder = number in self._folders
            yield prefix + name, None if is_folder else self._content.get(number, b"")
            yield from self._reachable(number, f"{prefix}{name}/")

    def put(self, state: State) -> None:
        """Let the folder hold a state, and nothing else."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        for name, content in state.items():
            path = self.folder / name
            if content is None:
                path.mkdir(parents=True, exist_ok=True)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)


@contextlib.contextmanager
def recorded(folder: Path) -> Iterator[Disk]:
    """Record the states of a folder at each change that is made in it inside."""
    disk = Disk(folder)
    functions = {name: getattr(os, name) for name in CHANGES}

    def watched(name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            path = _changed(name, arguments, options)
            if path is None or not path.is_relative_to(folder):
                return functions[name](*arguments, **options)
            if name in {"replace", "unlink", "rmdir"}:
                disk.forget(path)
            result = functions[name](*arguments, **options)
            if name == "fsync":
                disk.synced(path)
            disk.record()
            return result

        return call

    vars(os).update({name: watched(name) for name in CHANGES})
    try:
        yield disk
    finally:
        vars(os).update(functions)


def _changed(name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Path | None:
    """Return the path that a call changes."""
    target = arguments[1] if name == "replace" else arguments[0]
    if isinstance(target, int):
        return Path(f"/proc/self/fd/{target}").readlink()
    folder = options.get("dst_dir_fd", options.get("dir_fd"))
    base = Path.cwd() if folder is None else Path(f"/proc/self/fd/{folder}").readlink()
    return base / os.fspath(target)
