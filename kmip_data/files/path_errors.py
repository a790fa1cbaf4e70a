"""Conversion of ``OSError`` and path problems to errors of kmip-data."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from kmip_data.errors import (
    SAME_AGAIN,
    Command,
    DamagedInput,
    KmipDataError,
    OutOfResources,
    Step,
    UsageError,
)
from kmip_data.text import human_bytes, is_likely_typo, nearest_name, reword_python_problem

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:[:/]")
DISK_FULL_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_MAX_SUGGESTED_FROM = 1_000  #: number of files of a folder searched for a similar name
#: Errors caused by the path; all other errors are caused by the disk.
_PATH_ERRNOS = {
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.EMLINK,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EEXIST,
    errno.ENOTEMPTY,
}


def absolute_path(path: str | os.PathLike[str], noun: str = "path") -> Path:
    """Return a user's path made absolute, with ``~`` expanded; it need not exist.

    Raises ``UsageError`` if no file can have this path: an address, a path that is too long or
    contains a zero byte, an unknown user's home, or a loop of links.
    """
    if _ADDRESS.match(os.fspath(path)):  # with one slash too, as ``Path`` leaves it
        raise UsageError(
            f"{os.fspath(path)[:200]} is an address, but a {noun} on this machine is expected.",
            steps="a path; only push and pull take addresses",
        )
    try:
        absolute = Path(path).expanduser().absolute()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            absolute.lstat()
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"This {noun} cannot be used: {str(path)[:200]} ({reason}).") from error
    return absolute


def absent_file_error(path: Path, remedy: Step | Sequence[Step], noun: str = "file") -> UsageError:
    """Return the error for a missing file of the user, with a similar file name if there is one.

    A folder, a pipe or a link to nothing in its place is named.
    """
    if os.path.lexists(path):
        kind = "a folder" if path.is_dir() else "a pipe or a device"
        if not path.exists():
            kind = "a link to nothing"
        return UsageError(f"{path} is {kind}, not a {noun}.", steps=remedy)
    names: list[str] = []
    with contextlib.suppress(OSError):
        entries = itertools.islice(path.parent.iterdir(), _MAX_SUGGESTED_FROM)
        names = [entry.name for entry in entries]
    close = nearest_name(path.name, names)
    if close is None or not is_likely_typo(path.name, close):
        return UsageError(f"There is no {noun} {path}.", steps=remedy)
    error = UsageError(f"There is no {noun} {path}. Did you mean {close!r}?", steps=remedy)
    error.correction = (path.name, close)
    return error


def path_instead_of_name_error(name: str) -> UsageError:
    """Return the error for a word that names nothing, but a file or folder of the working directory."""
    path = f".{os.sep}{name}"
    error = UsageError(f"Nothing is called {name!r}, but {path} exists.", steps=path)
    error.correction = (name, path)
    return error


def disk_error(
    error: OSError,
    path: Path,
    *,
    left: str | None,
    needed: int | None = None,
) -> KmipDataError:
    """Convert an ``OSError`` raised while writing ``path``, a file of ``needed`` bytes."""
    reason = error.strerror or str(error)
    if error.errno == errno.EISDIR:
        return UsageError(
            f"{path} is a folder, and a file is to be written there.",
            left=left,
            steps=[f"move {path} elsewhere", SAME_AGAIN],
        )
    if error.errno in _PATH_ERRNOS:
        return UsageError(
            f"{path} cannot be written: {reason}.",
            left=left,
            steps="choose another home or output folder",
        )
    with contextlib.suppress(OSError):
        reason += f"; {shutil.disk_usage(path.parent).free:,} bytes free"
    if needed is not None:
        reason += f", {needed:,} bytes needed"
    return OutOfResources(
        f"{path} could not be written.",
        found=reason,
        left=left,
        steps=[
            "check free space, quota and file-size limit of this disk, or choose a home on another",
            SAME_AGAIN,
        ],
    )


@contextlib.contextmanager
def convert_write_errors(
    path: Path, *, left: str | None = None, needed: int | None = None
) -> Iterator[None]:
    """Convert an ``OSError`` raised inside the block by :func:`disk_error`."""
    try:
        yield
    except OSError as error:
        raise disk_error(error, path, left=left, needed=needed) from error


def unreadable_error(path: Path, error: OSError) -> DamagedInput:
    """Return the error for a file that exists but cannot be read."""
    reason = error.strerror or str(error)
    return DamagedInput(
        f"{path} cannot be read: {reason}.", steps="check its permissions and the disk"
    )


def occupied_error(
    folder: Path, expected: str, found: str, remedy: Step | None = None
) -> UsageError:
    """Return the error for a folder that already holds something else."""
    return UsageError(
        f"{folder} holds something else.",
        expected=expected,
        found=found,
        steps=remedy or "choose another output folder",
    )


def require_disk_space(folder: Path, needed: int, purpose: str) -> None:
    """Raise ``OutOfResources`` if ``needed`` bytes do not fit on the disk of ``folder``."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        sizes = f"{folder} has {human_bytes(free)} of {human_bytes(needed)}"
        raise OutOfResources(
            f"{purpose} does not fit on the disk: {sizes}.",
            steps="free some space, or choose a home on another disk",
        )


def raise_damaged(
    path: Path,
    problem: str,
    found: str | Exception | None = None,
    *,
    remedy: Step | Sequence[Step] | None = None,
) -> NoReturn:
    """Raise ``DamagedInput``, or ``OutOfResources`` if ``found`` is an exception caused by a limit.

    The default ``remedy`` repairs the build whose folder ``shards/``, ``splits/`` or
    ``columns/NAME/`` holds the file.
    """
    build = path.parent.parent
    if build.name == "columns":
        build = build.parent
    cause = None
    if isinstance(found, Exception):
        cause = found
        check_resources(path, cause)
        message = getattr(cause, "strerror", None) or reword_python_problem(str(cause))
        found = " ".join(message.split())[:200] or type(cause).__name__
        if isinstance(cause, KmipDataError) and cause.found:
            found = f"{cause.message} ({cause.found})"
    error = DamagedInput(
        f"{path} {problem}.",
        found=found,
        steps=remedy or Command("kmip-data verify {} --repair", build),
    )
    error.problem = problem
    raise error from cause


def check_resources(path: Path, error: BaseException) -> None:
    """Raise ``OutOfResources`` if memory or file descriptors ran out: the file may be sound."""
    limit_errnos = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
    is_limit = isinstance(error, OSError) and error.errno in limit_errnos
    if is_limit or isinstance(error, MemoryError):
        raise OutOfResources(
            f"{path} cannot be read now: {str(error) or type(error).__name__}",
            steps=["close other programs or raise the limit (ulimit -n)", SAME_AGAIN],
        ) from error


def check_version(path: Path, version: int | str | None, known: int) -> None:
    """Raise ``DamagedInput`` unless a file has the known version of its format."""
    if isinstance(version, int) and version > known:
        raise DamagedInput(
            f"{path} was written by a newer kmip-data: format version {version}, not {known}.",
            steps=Command("pip install --upgrade kmip-data"),
        )
    if version != known:
        raise_damaged(path, "has no valid format version", repr(version)[:40])
