"""Digests, JSON and CSV; small files of unknown origin, read within a limit on their size."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar

from pydantic import BaseModel, ValidationError

from kmip_data.errors import DamagedInput, UsageError, unknown_name_error
from kmip_data.files.path_errors import check_resources, unreadable_error

try:
    from isal import igzip as gzip
    from isal import isal_zlib as zlib  # CRC-32 at 13 GB/s of memory, measured once
except ImportError:  # no wheel for this machine
    import gzip  # type: ignore[no-redef]
    import zlib  # type: ignore[no-redef] # the same numbers, at 2.8 GB/s

crc32 = zlib.crc32
open_gzip: Callable[..., IO[bytes]] = gzip.open
InflateError: type[Exception] = zlib.error  # type: ignore[assignment] # an instance in its stub

M = TypeVar("M", bound=BaseModel)

MAX_BYTES = 2**24  #: 16 MiB, the largest card, configuration or result that is read
_LISTED = 1_000  #: most problems of a model that are formatted one by one


@contextlib.contextmanager
def open_regular_file(path: str | os.PathLike[str], *, follow: bool = True) -> Iterator[io.FileIO]:
    """Open a regular file to read, unbuffered.

    Anything else is an ``OSError``, without ``follow`` a link as well.
    """
    # Without O_NONBLOCK, opening a pipe waits for a writer.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
    if not follow:
        flags |= os.O_NOFOLLOW
    descriptor = os.open(path, flags)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(f"not a regular file: {stat.filemode(mode)}")
        with open(descriptor, "rb", buffering=0, closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)


class RandomAccess(io.RawIOBase):
    """A read-only file of ``size`` bytes, which ``fetch(start, stop)`` supplies."""

    def __init__(
        self,
        size: int,
        fetch: Callable[[int, int], bytes | memoryview],
    ) -> None:
        self._size = size
        self._fetch = fetch
        self._position = 0

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to a position."""
        origin = {
            os.SEEK_SET: 0,
            os.SEEK_CUR: self._position,
            os.SEEK_END: self._size,
        }
        self._position = offset + origin[whence]
        return self._position

    def readinto(self, buffer: Any, /) -> int:
        """Fill ``buffer`` from the position."""
        view = memoryview(buffer).cast("B")
        start = self._position
        stop = max(start, min(start + len(view), self._size))
        view[: stop - start] = self._fetch(start, stop)
        self._position = stop
        return stop - start


def read_small_file(path: str | os.PathLike[str], most: int = MAX_BYTES) -> bytes:
    """Return the bytes of a regular file of at most ``most`` bytes.

    Raises ``OSError`` if it cannot be opened, is a folder, device, pipe or socket, or is larger; a
    larger file is not read at all.
    """
    with open_regular_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        data = io.BufferedReader(file).read(most + 1) if size <= most else b""
    size = max(size, len(data))
    if size > most:
        raise OSError(f"{size:,} bytes, which is more than the {most:,} that are read")
    return data


def read_json(path: str | os.PathLike[str], most: int = MAX_BYTES) -> Any:
    """Return the value in a JSON file (UTF-8) of at most ``most`` bytes.

    Raises ``OSError`` as :func:`read_small_file` does, and ``ValueError`` if the file is not JSON, is
    nested too deeply, or holds a string that cannot be encoded.
    """
    text = read_small_file(path, most).decode("utf-8-sig")
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError("JSON that is nested too deeply") from error
    # Half a surrogate pair ("\ud800") is valid JSON, but no terminal, file name or table can take
    # it.
    if "\\ud" in text.lower():
        json.dumps(value, ensure_ascii=False).encode()
    return value


def read_model(
    path: Path,
    model: type[M],
    problem: str,
    *,
    next: str,  # noqa: A002 -- as in the errors
) -> M:
    """Read a JSON file that follows ``model``.

    The error is its path and ``problem`` ("cannot be read as …").

    Raises ``FileNotFoundError`` if there is no such file, and ``DamagedInput`` if it cannot be read
    or does not follow the model.
    """
    try:
        return model.model_validate_json(read_small_file(path))
    except FileNotFoundError:
        raise
    except (
        ValueError,
        RecursionError,
        OSError,
        TypeError,
    ) as error:  # raised by a model's own checks
        raise DamagedInput(
            f"{path} {problem}.",
            found=first_problem(error),
            next=next,
        ) from error


def first_problem(error: Exception) -> str:
    """Return one line on the first problem in text that could not be parsed."""
    if not isinstance(error, ValidationError):
        lines = str(error).splitlines() or [type(error).__name__]
        return lines[0][:200]
    if error.error_count() > _LISTED:
        return f"{error.error_count():,} problems"

    problems = error.errors(include_url=False, include_context=False, include_input=False)
    # A misspelt key explains one that is missing.
    problems.sort(key=lambda problem: problem["type"] != "extra_forbidden")
    message = reword_pydantic_problem(problems[0]["msg"])
    location = ".".join(str(field)[:80] for field in problems[0]["loc"])
    if location:
        message = f"{location}: {message}"
    return message[:300]


def unknown_key_error(error: Exception, known: Sequence[str]) -> UsageError | None:
    """Return the error for a key at the top of a file that has none of the known names, if any."""
    if not isinstance(error, ValidationError):
        return None
    for problem in error.errors(include_url=False, include_context=False, include_input=False):
        if problem["type"] == "extra_forbidden" and len(problem["loc"]) == 1:
            name = str(problem["loc"][0])[:80]
            refusal = unknown_name_error("key", name, known, command="correct the file")
            refusal.correction = None  # the word is in the file, not on the line
            return refusal
    return None


def reword_pydantic_problem(problem: str) -> str:
    """Return a problem that pydantic found in words for a reader.

    >>> reword_pydantic_problem("Input should be greater than or equal to 1")
    'must be greater than or equal to 1'
    >>> reword_pydantic_problem("Input should be a valid integer, unable to parse string as an integer")
    'must be a whole number'
    """
    problem = problem.removeprefix("Value error, ").replace("Field required", "is missing")
    problem = problem.partition(", unable to ")[0].replace("a valid boolean", "true or false")
    problem = problem.replace("a valid integer", "a whole number").replace("a valid", "a")
    return problem.replace("Input should be", "must be")


def canonical_json(value: object) -> str:
    """Return JSON with sorted keys, no spaces and ASCII only: equal values give equal text."""
    return json.dumps(
        value,
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=True,
    )


def readable_json(value: Mapping[str, object]) -> str:
    """Return indented JSON with sorted keys and a line feed at its end."""
    return (
        json.dumps(
            value,
            indent=1,
            sort_keys=True,
            ensure_ascii=False,
        )
        + "\n"
    )


def csv_bytes(header: Sequence[str], rows: Iterable[Iterable[object]]) -> bytes:
    """Return a CSV file of one line per row; cells that are None stay empty."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return text.getvalue().encode()


def json_digest(value: object) -> str:
    """Return the SHA-256 (hex) of a value as canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def sealed_json(content: Mapping[str, object]) -> str:
    """Return readable JSON of ``content`` with ``digest``, made anew from all other fields.

    A card that was changed on disk differs from this, even where it parses to the same values.
    """
    others = {name: value for name, value in content.items() if name != "digest"}
    return readable_json({**others, "digest": json_digest(others)})


class Digests:
    """SHA-256, CRC-32 and size of a stream of bytes, as a card lists them."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self._crc32 = 0
        self._bytes = 0

    def update(self, data: bytes | memoryview) -> None:
        """Add bytes to the stream."""
        self._sha256.update(data)
        self._crc32 = crc32(data, self._crc32)
        self._bytes += len(data)

    @property
    def facts(self) -> dict[str, object]:
        """``sha256`` and ``crc32``, in hex, and ``bytes``."""
        return {
            "sha256": self._sha256.hexdigest(),
            "crc32": f"{self._crc32:08x}",
            "bytes": self._bytes,
        }


def sha256_file(path: Path, start: Callable[[], Any] = hashlib.sha256) -> tuple[str, int]:
    """Return SHA-256, or the digest begun by ``start``, and size of a file.

    Raises ``DamagedInput`` if the file cannot be read, ``OutOfResources`` for lack of descriptors.
    """
    try:
        # Digest and size of one reading: the file may change in between.
        with path.open("rb", buffering=0) as file:
            digest = hashlib.file_digest(file, start).hexdigest()
            return digest, file.tell()
    except OSError as error:
        check_resources(path, error)
        raise unreadable_error(path, error) from error
