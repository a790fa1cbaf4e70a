"""Errors of disks and paths, with the step that resolves them; free space."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kmip_data.errors import DamagedInput, KmipDataError, OutOfResources, UsageError

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = (".", "a folder this user may write to")
_IN_THE_WAY = (": something else is in the way.", "a folder, or nothing, at that place")
_A_LINK = (": it is a symbolic link, and is not followed.", "a regular file, or none")
#: Errors of the path itself: end of the message, and what is expected. Others are the disk's fault.
_WRONG_PLACE = {
    errno.EACCES: _FORBIDDEN,
    errno.EPERM: _FORBIDDEN,
    errno.EROFS: _FORBIDDEN,
    errno.ENAMETOOLONG: (": its name is too long for this file system.", "a shorter path"),
    errno.ELOOP: _A_LINK,
    errno.EMLINK: _A_LINK,
    errno.ENOENT: (".", "a folder that exists"),
    errno.ENOTDIR: _IN_THE_WAY,
    errno.EEXIST: _IN_THE_WAY,
    errno.EISDIR: _IN_THE_WAY,
}


def located(path: str | os.PathLike[str], what: str = "path") -> Path:
    """Return a user's path as an absolute one, with ``~`` expanded; nothing needs to exist there.

    Raises ``UsageError`` if no file can have it: too long, with a zero byte, below an unknown user's home or
    a loop of links.
    """
    try:
        found = Path(path).expanduser().absolute()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            found.lstat()
    except (OSError, RuntimeError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise UsageError(f"This {what} cannot be used: {str(path)[:200]} ({reason}).") from error
    return found


def disk_error(
    error: OSError, path: Path, *, left: str = "nothing was left behind", needed: int | None = None
) -> KmipDataError:
    """Return our error for ``error``, met while ``path``, of ``needed`` bytes, was written."""
    reason = error.strerror or str(error)
    if error.errno in _WRONG_PLACE:
        why, expected = _WRONG_PLACE[error.errno]
        return UsageError(
            f"{path} cannot be written{why}",
            expected=expected,
            found=reason,
            left=left,
            next="choose another place with --home DIR (or KMIP_DATA_HOME) or --output",
        )
    full = error.errno in FULL
    with contextlib.suppress(OSError):
        reason += f"; {shutil.disk_usage(path.parent).free:,} bytes free"
    room = "free space" if needed is None else f"room for {needed:,} bytes"
    return OutOfResources(
        f"There is no room to write {path}." if full else f"{path} could not be written.",
        expected=f"{room} on {'the' if full else 'a working'} disk of {path.parent}",
        found=reason,
        left=left,
        next=f"{'free some space' if full else 'check the disk'} (or raise the quota or the limit on file "
        "sizes), or choose another disk with --home DIR (or KMIP_DATA_HOME); then the same command again",
    )


@contextlib.contextmanager
def writing(path: Path, **about: Any) -> Iterator[None]:
    """Turn an ``OSError`` inside the block into our error about ``path``, as :func:`disk_error` does."""
    try:
        yield
    except OSError as error:
        raise disk_error(error, path, **about) from error


def unreadable(path: Path, error: OSError) -> DamagedInput:
    """Return the error for a file that exists but cannot be read."""
    reason = error.strerror or str(error)
    return DamagedInput(f"{path} cannot be read: {reason}.", next="check its permissions and the disk")


def occupied(folder: Path, expected: str, found: str, option: str = "--output") -> UsageError:
    """Return the error for a folder, which ``option`` names, that holds something else than is put there."""
    next_step = f"give another {option} folder"
    return UsageError(f"{folder} holds something else.", expected=expected, found=found, next=next_step)


def left_in(folder: Path) -> str:
    """Return what is left of a folder whose files were removed by name, as words."""
    if folder.is_dir() and any(folder.iterdir()):
        return f"in {folder} what kmip-data did not write, and nothing else"
    return "nothing"


def require_room(folder: Path, needed: int, purpose: str) -> None:
    """Raise OutOfResources when ``needed`` bytes do not fit on the disk of ``folder``."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise OutOfResources(
            f"{purpose} does not fit on the disk: {folder} has {human_bytes(free)} of {human_bytes(needed)}.",
            next="free some space, or choose another disk with --home DIR (or KMIP_DATA_HOME)",
        )


def human_bytes(count: float) -> str:
    """Return bytes for people, decimal: ``3 kB``, ``1.7 GB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit in {"B", "kB"} else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
