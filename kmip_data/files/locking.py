"""Folder locks: one writer per folder, its owner in a side file, and a message while others wait.

The lock is ``flock`` (:class:`filelock.FileLock`), which the kernel releases with its process, so a
killed builder never blocks the next one. A file system without it has no lock, and a line says so.
Nothing relies on the lock for correctness: every file of a build is renamed in complete, and two
builders of one key write the same bytes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kmip_data.errors import KmipDataError, UsageError, writing
from kmip_data.files.changes import refuse_link, remove_empty, remove_file, write_json
from kmip_data.files.reading import read_json
from kmip_data.runtime.progress import say

LOCKS = ".locks"  #: folder of lock files, next to the build folders
MESSAGE_SECONDS = 30.0
NO_FLOCK = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP)


class FolderInUse(UsageError):
    """Another process holds the lock."""


def lock_path(folder: Path) -> Path:
    """Return the path of a folder's lock: ``.locks/<name>.lock`` next to it.

    A folder whose parent cannot be written to (the root of a mounted disk), or where ``.locks`` is a link,
    has it inside. Either is there only while the lock is held, or after its holder was killed.
    """
    locks = folder.parent / LOCKS
    with contextlib.suppress(OSError):
        _make(locks)
        if not locks.is_symlink():
            return locks / f"{folder.name}.lock"
    return folder / ".lock"


def _make(locks: Path) -> None:
    """Make a folder that another process may remove at any moment: then ``mkdir`` finds it there and gone."""
    while True:
        try:
            locks.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            try:
                if not stat.S_ISDIR(locks.lstat().st_mode):  # a link that leads nowhere, too
                    raise
            except FileNotFoundError:
                continue
        else:
            return


@contextlib.contextmanager
def build_lock(folder: Path, *, quiet: bool = False, wait: bool = True) -> Iterator[None]:
    """Hold the lock of a folder, which need not exist; wait, with a message, while another process has it.

    Whoever waited finds what that process left: look at the folder again. Raises ``FolderInUse`` where
    another process has it and ``wait`` is off; ``UsageError`` where the lock file may not be written there;
    ``OutOfResources`` where the disk did not take it.
    """
    path = lock_path(folder)
    owner = path.with_suffix(".owner.json")
    with writing(path):
        for file in (path, owner):
            refuse_link(file)
        lock = _acquire(path, owner, folder, quiet=quiet, wait=wait)
    try:
        entry = {"pid": os.getpid(), "host": socket.gethostname(), "started": time.time()}
        # The side file only feeds a message: a full disk must not stop a build that has the lock.
        with contextlib.suppress(KmipDataError):
            write_json(owner, entry)
        yield
    finally:
        # Gone before it is free: who has it open sees that and tries again, so nothing is left behind.
        for file in (owner, path):
            remove_file(file)
        lock.release()
        if path.parent.name == LOCKS:
            remove_empty(path.parent)  # not empty while others wait or work


def _acquire(path: Path, owner: Path, folder: Path, *, quiet: bool, wait: bool) -> Any:
    import filelock

    lock: Any = filelock.FileLock(path, fallback_to_soft=False)
    timeout = 0.0
    while True:
        _make(path.parent)
        try:
            lock.acquire(timeout=timeout, poll_interval=0.2)
        except (FileNotFoundError, FileExistsError):
            continue  # another process removed the empty folder of locks in between
        except filelock.Timeout:
            if not wait:
                raise FolderInUse(
                    f"{folder} is in use by {describe_owner(owner)}.",
                    next="the same command when that process has ended",
                ) from None
            timeout = MESSAGE_SECONDS
            say(f"waiting for {folder.name}: {describe_owner(owner)} has it", quiet=quiet)
        except OSError as error:
            if error.errno not in NO_FLOCK:
                raise
            say(f"{folder.parent} has no file locks: start no second command on {folder.name}", quiet=quiet)
            return lock
        else:
            return lock


def describe_owner(owner: Path) -> str:
    """Return the holder of the lock from its side file: process id, host and age."""
    try:
        entry = read_json(owner)
        age = max(0, round(time.time() - float(entry["started"])))
        return f"process {int(entry['pid'])} on {entry['host']} (for {age} s)"
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return "another process"
