"""Errors of paths, disks and files as errors of kmip-data."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from kmip_data.errors import DamagedInput, KmipDataError, OutOfResources, UsageError
from kmip_data.text import human_bytes, is_likely_typo, nearest_name

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:[:/]")
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_LOOKED_AT = 1_000  #: files in which a name that was probably meant is looked for
#: Errors caused by the path itself; the disk causes all others.
_WRONG_PLACE = {
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.EMLINK,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EEXIST,
    errno.EISDIR,
}


def absolute_path(path: str | os.PathLike[str], noun: str = "path") -> Path:
    """Return a user's path as an absolute one, with ``~`` expanded; nothing needs to exist there.

    Raises ``UsageError`` if no file can have it: an address, too long, with a zero byte, below an
    unknown user's home or a loop of links.
    """
    if _ADDRESS.match(os.fspath(path)):  # also where a Path has taken one of its slashes
        shown = os.fspath(path)[:200]
        raise UsageError(
            f"{shown} is an address, where a {noun} on this machine is expected.",
            next="a path; kmip-data push and pull take addresses",
        )
    try:
        absolute = Path(path).expanduser().absolute()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            absolute.lstat()
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"This {noun} cannot be used: {str(path)[:200]} ({reason}).") from error
    return absolute


def absent_file_error(path: Path, step: str, noun: str = "file") -> UsageError:
    """Return the error for a user's file that is not there, with the file probably meant, or a step."""
    names = list[str]()
    with contextlib.suppress(OSError):
        names = [entry.name for entry in itertools.islice(path.parent.iterdir(), _LOOKED_AT)]
    close = nearest_name(path.name, names)
    if close is None or not is_likely_typo(path.name, close):
        return UsageError(f"There is no {noun} {path}.", next=step)
    error = UsageError(f"There is no {noun} {path}. Did you mean {close!r}?", next=step)
    error.correction = (path.name, close)
    return error


def disk_error(
    error: OSError,
    path: Path,
    *,
    left: str | None,
    needed: int | None = None,
) -> KmipDataError:
    """Return our error for ``error``, met while ``path``, of ``needed`` bytes, was written."""
    reason = error.strerror or str(error)
    if error.errno in _WRONG_PLACE:
        return UsageError(
            f"{path} cannot be written: {reason}.",
            left=left,
            next="choose another place with --home DIR (or KMIP_DATA_HOME) or --output",
        )
    with contextlib.suppress(OSError):
        reason += f"; {shutil.disk_usage(path.parent).free:,} bytes free"
    if needed is not None:
        reason += f", {needed:,} bytes needed"
    return OutOfResources(
        f"{path} could not be written.",
        found=reason,
        left=left,
        next="check free space, quota and the limit on file sizes of this disk, or choose another one with "
        "--home DIR (or KMIP_DATA_HOME); then run the same command again",
    )


@contextlib.contextmanager
def write_errors(
    path: Path, *, left: str | None = "nothing was left behind", needed: int | None = None
) -> Iterator[None]:
    """Turn an ``OSError`` inside the block into our error about ``path``, as :func:`disk_error` does."""
    try:
        yield
    except OSError as error:
        raise disk_error(error, path, left=left, needed=needed) from error


def unreadable_error(path: Path, error: OSError) -> DamagedInput:
    """Return the error for a file that exists but cannot be read."""
    reason = error.strerror or str(error)
    return DamagedInput(
        f"{path} cannot be read: {reason}.", next="check its permissions and the disk"
    )


def occupied_error(
    folder: Path, expected: str, found: str, remedy: str | None = None
) -> UsageError:
    """Return the error for a folder that already holds something else."""
    return UsageError(
        f"{folder} holds something else.",
        expected=expected,
        found=found,
        next=remedy or "give another --output folder",
    )


def require_room(folder: Path, needed: int, purpose: str) -> None:
    """Raise OutOfResources when ``needed`` bytes do not fit on the disk of ``folder``."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        sizes = f"{folder} has {human_bytes(free)} of {human_bytes(needed)}"
        raise OutOfResources(
            f"{purpose} does not fit on the disk: {sizes}.",
            next="free some space, or choose another disk with --home DIR (or KMIP_DATA_HOME)",
        )


def raise_damaged(
    path: Path,
    problem: str,
    found: str | Exception,
    *,
    remedy: str = "",
) -> NoReturn:
    """Raise DamagedInput, or OutOfResources if an error that was met is one; ``remedy`` is the next step.

    By default that is the repair of a build with the file in ``shards/``, ``splits/`` or
    ``columns/NAME/``.
    """
    build = path.parent.parent
    if build.name == "columns":
        build = build.parent
    error = None
    if isinstance(found, Exception):
        error = found
        check_resources(path, error)
        message = getattr(error, "strerror", None) or str(error)
        finding = " ".join(message.split())[:200] or type(error).__name__
        if isinstance(error, KmipDataError) and error.found:
            finding = f"{error.message} ({error.found})"
    else:
        finding = found
    raise DamagedInput(
        f"{path} {problem}.",
        found=finding,
        next=remedy or f"kmip-data verify {build} --repair",
    ) from error


def check_resources(path: Path, error: BaseException) -> None:
    """Raise OutOfResources if this process lacks memory or descriptors: the file may be sound."""
    codes = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
    lacking = isinstance(error, OSError) and error.errno in codes
    if lacking or isinstance(error, MemoryError):
        raise OutOfResources(
            f"{path} cannot be read now: {str(error) or type(error).__name__}",
            next="close other programs or raise the limit (ulimit -n), and repeat the command",
        ) from error


def check_version(path: Path, version: int | str | None, known: int) -> None:
    """Raise DamagedInput unless a file has the known version of its format."""
    if isinstance(version, int) and version > known:
        raise DamagedInput(
            f"{path} was written by a newer kmip-data: format version {version}, not {known}.",
            next="pip install --upgrade kmip-data",
        )
    if version != known:
        raise_damaged(path, "has no valid format version", repr(version)[:40])
