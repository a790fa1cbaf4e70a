"""Errors for damaged files of a build, in the same words for shards and splits."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import NoReturn

from kmip_data.errors import DamagedInput, KmipDataError, OutOfResources


def refuse(
    path: Path, what: str, expected: str, found: str, error: BaseException | None = None, *, then: str = ""
) -> NoReturn:
    """Raise DamagedInput, or OutOfResources if ``error`` is one; ``then`` is the next step.

    By default that is the repair of a file in ``shards/`` or ``splits/`` of a build.
    """
    if error is not None:
        check_resources(path, error)
    if isinstance(error, KmipDataError) and error.parts["found"]:
        found = f"{error.what} ({error.parts['found']})"
    raise DamagedInput(
        f"{path} {what}.",
        expected=expected,
        found=found,
        next=then or f"kmip-data verify {path.parent.parent} --repair",
    ) from error


def check_resources(path: Path, error: BaseException) -> None:
    """Raise OutOfResources if this process lacks memory or descriptors: the file may be sound."""
    lacking = isinstance(error, OSError) and error.errno in {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
    if lacking or isinstance(error, MemoryError):
        raise OutOfResources(
            f"{path} cannot be read now.",
            expected="free memory and file descriptors",
            found=str(error) or type(error).__name__,
            next="close other programs or raise the limit (ulimit -n), and repeat the command",
        ) from error


def check_version(path: Path, found: int | str | None, known: int) -> None:
    """Raise DamagedInput unless a file has the known version of its format."""
    if isinstance(found, int) and found > known:
        raise DamagedInput(
            f"{path} was written by a newer kmip-data.",
            expected=f"format version {known} or older",
            found=f"format version {found}",
            next="pip install --upgrade kmip-data",
        )
    if found != known:
        refuse(path, "has no valid format version", f"{known}", repr(found)[:40])
