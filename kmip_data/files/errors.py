"""What a disk refuses, as errors that say what to do."""

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
_LONGEST_NAME, _LONGEST_PATH = 255, 4095  #: bytes, on every usual file system
_FORBIDDEN = (".", "a folder this user may write to")
_IN_THE_WAY = (": something else is in the way.", "a folder, or nothing, at that place")
_A_LINK = (": it is a symbolic link, and is not followed.", "a regular file, or none")
#: The place itself is wrong: how the message goes on, and what is expected. All else is the disk's fault.
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


def checked_path(path: str | os.PathLike[str]) -> Path:
    """Return an absolute path, ``~`` expanded, that a file system and every message can take.

    Raises ``UsageError`` for a name with NUL or bytes that are not UTF-8, or of more than 255 bytes, for a
    path of more than 4,095, and for ``~NAME`` of a user who is not known.
    """
    text = os.fspath(path)
    fault = ""
    try:
        encoded = text.encode()
        if b"\0" in encoded:
            fault = "a NUL in a name"
        elif len(encoded) > _LONGEST_PATH or max(map(len, encoded.split(b"/"))) > _LONGEST_NAME:
            fault = f"{len(encoded):,} bytes, a name of {max(map(len, encoded.split(b'/'))):,}"
        else:
            return Path(text).expanduser().absolute()
    except UnicodeEncodeError:
        fault = "bytes that are not UTF-8"
    except (RuntimeError, FileNotFoundError) as error:  # no home folder, or no working folder any more
        fault = str(error)
    raise UsageError(
        f"{text[:200]!r} cannot be the path of a folder.",
        expected="UTF-8 without NUL, names of at most 255 bytes and 4,095 in all",
        found=fault,
        next="choose another path",
    )


def unreadable(path: Path, error: OSError) -> DamagedInput:
    """Return our error for a file that is there but cannot be read."""
    return DamagedInput(
        f"{path} cannot be read.",
        expected="a file this user may read, on a working disk",
        found=error.strerror or str(error),
        next="check its permissions and the disk",
    )


def occupied(folder: Path, expected: str, found: str, option: str = "--output") -> UsageError:
    """Return the error for a folder, which ``option`` names, that holds something else than is put there."""
    return UsageError(
        f"{folder} holds something else.",
        expected=expected,
        found=found,
        left="that folder is as it was",
        next=f"give another {option} folder",
    )
