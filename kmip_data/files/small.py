"""Small text files that someone else may have made: read only after their size is known."""

from __future__ import annotations

import contextlib
import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError

from kmip_data.errors import DamagedInput

M = TypeVar("M", bound=BaseModel)

MAX_BYTES: Final = 2**24  #: of a card, a configuration, a result
_LISTED: Final = 1_000  #: faults up to which they are looked at one by one


@contextlib.contextmanager
def open_regular(path: str | os.PathLike[str], *, follow: bool = True) -> Iterator[io.FileIO]:
    """Open a regular file to read, unbuffered; all else, without ``follow`` a link too, is an ``OSError``."""
    # Without O_NONBLOCK, opening a pipe waits for a writer.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    descriptor = os.open(path, flags)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(f"not a regular file: {stat.filemode(mode)}")
        with open(descriptor, "rb", buffering=0, closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)


def read_small(path: str | os.PathLike[str], most: int = MAX_BYTES) -> bytes:
    """Return the bytes of a regular file of at most ``most`` bytes.

    Raises ``OSError`` where it cannot be opened, is a folder, device, pipe or socket, or is larger, of which
    nothing was read.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        data = io.BufferedReader(file).read(most + 1) if size <= most else b""
    if (size := max(size, len(data))) > most:
        raise OSError(f"{size:,} bytes, which is more than the {most:,} that are read")
    return data


def read_model(
    path: Path,
    model: type[M],
    what: str,
    *,
    expected: str,
    next: str,  # noqa: A002 -- as in the errors
) -> M:
    """Read a file of JSON that follows ``model``; ``what`` is said of it, after its path, if it does not.

    Raises ``FileNotFoundError`` where there is none; ``DamagedInput`` where it cannot be read, or does not
    follow the model.
    """
    try:
        return model.model_validate_json(read_small(path))
    except FileNotFoundError:
        raise
    except (ValueError, RecursionError, OSError) as error:
        raise DamagedInput(
            f"{path} {what}.", expected=expected, found=first_fault(error), next=next
        ) from error


def first_fault(error: Exception) -> str:
    """Say in one line what is wrong with text that could not be parsed."""
    if not isinstance(error, ValidationError):
        return (str(error).splitlines() or [type(error).__name__])[0][:200]
    if error.error_count() > _LISTED:
        return f"{error.error_count():,} faults"
    fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(part)[:80] for part in fault["loc"])
    return f"{place}: {fault['msg']}"[:300] if place else fault["msg"][:300]
