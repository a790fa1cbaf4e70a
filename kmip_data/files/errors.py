"""What a disk refuses, as errors that say what to do."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from kmip_data.errors import KmipDataError, OutOfResources, UsageError

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}


def disk_error(error: OSError, path: Path, *, left: str = "nothing was left behind") -> KmipDataError:
    """Return our error for ``error``, met while ``path`` was written."""
    reason = error.strerror or str(error)
    if error.errno in FULL:
        return OutOfResources(
            f"There is no room to write {path}.",
            expected=f"free space on the disk of {path.parent}",
            found=reason,
            left=left,
            next="free some space, or choose another disk with --home DIR (or KMIP_DATA_HOME)",
        )
    if error.errno in FORBIDDEN:
        what, expected = f"{path} cannot be written.", "a folder this user may write to"
    elif error.errno == errno.ENAMETOOLONG:
        what, expected = f"The name {path} is too long for this file system.", "a shorter path"
    elif error.errno in {errno.ELOOP, errno.EMLINK}:
        what, expected = f"{path} is a symbolic link, and is not followed.", "a plain file, or none"
    elif error.errno == errno.ENOENT:
        what, expected = f"{path} cannot be made.", "a folder that can hold it"
    elif error.errno in {errno.ENOTDIR, errno.EEXIST, errno.EISDIR}:
        what, expected = f"Something else is in the way of {path}.", "a folder, or nothing, at that place"
    else:
        return OutOfResources(
            f"{path} could not be written.",
            expected="a working disk",
            found=reason,
            left=left,
            next="check the disk, or choose another one with --home DIR (or KMIP_DATA_HOME)",
        )
    return UsageError(
        what,
        expected=expected,
        found=reason,
        left=left,
        next="choose another folder with --home DIR (or KMIP_DATA_HOME)",
    )


@contextlib.contextmanager
def writing(path: Path, *, left: str = "nothing was left behind") -> Iterator[None]:
    """Turn an ``OSError`` inside the block into our error about ``path``."""
    try:
        yield
    except OSError as error:
        raise disk_error(error, path, left=left) from error
