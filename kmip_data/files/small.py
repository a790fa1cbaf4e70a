"""Small text files that someone else may have made: read only after their size is known."""

from __future__ import annotations

import os
import stat
from typing import Final

from pydantic import ValidationError

MAX_BYTES: Final = 2**24  #: of a card, a configuration, a result
_LISTED: Final = 1_000  #: faults up to which they are looked at one by one


def read_small(path: str | os.PathLike[str], most: int = MAX_BYTES) -> bytes:
    """Return the bytes of a regular file of at most ``most`` bytes.

    Raises
    ------
    OSError
        It cannot be opened, is a folder, device, pipe or socket, or is larger: nothing of it was read.
    """
    # Without O_NONBLOCK, opening a pipe waits for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            msg = f"not a regular file: {stat.filemode(status.st_mode)}"
            raise OSError(msg)
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(most + 1) if status.st_size <= most else b""
    finally:
        os.close(descriptor)
    if (size := max(status.st_size, len(data))) > most:
        msg = f"{size:,} bytes, which is more than the {most:,} that are read"
        raise OSError(msg)
    return data


def first_fault(error: Exception) -> str:
    """Say in one line what is wrong with text that could not be parsed."""
    if not isinstance(error, ValidationError):
        return (str(error).splitlines() or [type(error).__name__])[0][:200]
    if error.error_count() > _LISTED:
        return f"{error.error_count():,} faults"
    fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(part)[:80] for part in fault["loc"])
    return f"{place}: {fault['msg']}"[:300] if place else fault["msg"][:300]
