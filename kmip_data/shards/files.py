"""Put a finished file in place: complete, synced and under its name, or not there at all."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from pathlib import Path

from kmip_data.errors import KmipDataError, OutOfResources, UsageError

PARTIAL = ".partial"

# The place itself is wrong; anything else that fails a write is a disk that cannot take the file.
_WRONG_PLACE = frozenset(
    {
        errno.EACCES,
        errno.EEXIST,
        errno.EPERM,
        errno.EROFS,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ENAMETOOLONG,
        errno.ELOOP,
    }
)


def write_file(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path`` so that a crash at any moment leaves the old file or the new one.

    The bytes go to ``NAME.partial``, are synced, renamed over ``path``, and the folder is synced.
    A ``NAME.partial`` that lies there already, left by a dead run or planted as a link, is removed
    and never written through.

    Raises
    ------
    OutOfResources
        The disk, a quota or a limit on file sizes did not take the bytes. Nothing new is left.
    UsageError
        The folder does not exist or may not be written to.
    """
    if not path.name:  # `/` or `.`
        raise _refusal(path, data, IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)))
    refuse_device(path)
    partial = path.with_name(path.name + PARTIAL)
    try:
        descriptor = _create(partial)
    except OSError as error:
        raise _refusal(path, data, error) from error
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(partial, path)  # noqa: PTH105 -- by attribute of os: fault tests wrap it
    except BaseException as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _refusal(path, data, error) from error
        raise
    try:
        _sync_folder(path.parent)
    except OSError as error:
        raise _refusal(path, data, error) from error


def refuse_device(path: Path) -> None:
    """Raise UsageError for a device, pipe or socket: a rename would replace it, ``/dev/null`` too."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode)):
        raise UsageError(
            f"{path} is no file.",
            expected="the name of a file, new or to be replaced",
            found="a device, a pipe or a socket",
            left="nothing was written",
            next="choose another place",
        )


def _create(partial: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(partial, flags, 0o666)
    except FileExistsError:
        partial.unlink()  # removes a link itself, never what it points to
        return os.open(partial, flags, 0o666)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:  # some file systems cannot sync a folder
            raise
    finally:
        os.close(descriptor)


def _refusal(path: Path, data: bytes, error: OSError) -> KmipDataError:
    reason = error.strerror or str(error)
    if error.errno in _WRONG_PLACE:
        return UsageError(
            f"{path} cannot be written.",
            expected="a folder that exists and may be written to",
            found=reason,
            left="nothing was written",
            next="choose another place with --output or --home",
        )
    try:
        free = f"{shutil.disk_usage(path.parent).free:,} bytes free"
    except OSError:
        free = "free space unknown"
    return OutOfResources(
        f"The disk did not take {path}.",
        expected=f"room for {len(data):,} bytes",
        found=f"{reason}; {free}",
        left="files that were finished before, and nothing of this one",
        next="free some space (or raise the quota or file size limit), then run the same command again",
    )
