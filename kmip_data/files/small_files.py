"""Reading of untrusted small files within a size limit; digests, JSON and CSV."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any, TypeVar

from pydantic import BaseModel, ValidationError

from kmip_data.errors import Step, UsageError, unknown_name_error
from kmip_data.files.path_errors import check_resources, raise_damaged, unreadable_error
from kmip_data.text import reword_python_problem

try:
    from isal import igzip as gzip
    from isal import isal_zlib as zlib  # CRC-32 of 13 GB/s from memory, measured once
except ImportError:  # no wheel for this machine
    import gzip  # type: ignore[no-redef]
    import zlib  # type: ignore[no-redef] # same results at 2.8 GB/s

crc32 = zlib.crc32
open_gzip: Callable[..., IO[bytes]] = gzip.open
InflateError: type[Exception] = zlib.error  # type: ignore[assignment] # an instance in its stub

M = TypeVar("M", bound=BaseModel)

MAX_BYTES = 2**24  #: largest card or result that is read: 16 MiB
#: most values of a JSON file, counted before it is parsed: they take 0.8 GB at most
MAX_JSON_VALUES = 2**22
MAX_TOML_BYTES = 2**20  #: largest configuration; ours have a few kB, and 1 MiB takes a second
MAX_DEPTH = 32  #: largest number of tables and lists around a value of a configuration; ours: four
_MAX_PROBLEMS = 1_000  #: with more validation problems than this, only their number is reported


@contextlib.contextmanager
def open_regular_file(path: str | os.PathLike[str], *, follow: bool = True) -> Iterator[io.FileIO]:
    """Open a regular file for reading, unbuffered.

    Raises ``OSError`` for anything else, including a link unless ``follow``.
    """
    # O_NONBLOCK: opening a pipe must not wait for a writer.
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


def is_behind_link(folder: Path, name: str) -> bool:
    """True if a file of a folder, or a folder on the way to it, is a symbolic link."""
    inner = PurePosixPath(name)
    return any((folder / path).is_symlink() for path in (*inner.parents[:-1], inner))


def obstacle_problem(folder: Path, name: str) -> str:
    """Describe what lies in the place of a regular file; empty for such a file, or for nothing."""
    if is_behind_link(folder, name):
        return "is a symbolic link, or inside a linked folder"
    path = folder / name
    return "is not a regular file" if os.path.lexists(path) and not path.is_file() else ""


class MemoryFile(io.RawIOBase):
    """Read-only file of the bytes in ``data``, which are not copied."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._position = 0

    def tell(self) -> int:
        """Return the current position."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the position."""
        origin = {
            os.SEEK_SET: 0,
            os.SEEK_CUR: self._position,
            os.SEEK_END: len(self._data),
        }
        self._position = offset + origin[whence]
        return self._position

    def readinto(self, buffer: Any, /) -> int:
        """Fill ``buffer`` from the position."""
        view = memoryview(buffer).cast("B")
        data = self._data[self._position :][: len(view)]
        view[: len(data)] = data
        self._position += len(data)
        return len(data)


def read_small_file(path: str | os.PathLike[str], max_bytes: int = MAX_BYTES) -> bytes:
    """Return the bytes of a regular file.

    Raises ``OSError`` if the file cannot be opened, is not a regular file, or is larger than
    ``max_bytes``.
    """
    with open_regular_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        # Read one byte more than allowed: the file may grow, or may not report its size.
        data = io.BufferedReader(file).read(max_bytes + 1) if size <= max_bytes else b""
    size = max(size, len(data))
    if size > max_bytes:
        raise OSError(f"{size:,} bytes, more than the limit of {max_bytes:,}")
    return data


_TOML_SEPARATORS = frozenset("[]{},=\n")  #: marks that end a dotted key
#: Strings and comments, in which brackets mean nothing, and the marks that nest or separate values.
#: An unterminated string runs to its end of line or file, so that each character is read once.
_TOML_TOKENS = re.compile(
    r'''
    """ [^"\\]*+ (?: (?: \\. | "(?!"") ) [^"\\]*+ )*+ "{0,5}
    | \'{3} [^']*+ (?: '(?!\'\') [^']*+ )*+ '{0,5}
    | " [^"\\\n]*+ (?: \\. [^"\\\n]*+ )*+ "?
    | ' [^'\n]*+ '?
    | \# [^\n]*+
    | [][{}.,=\n]
    ''',
    re.VERBOSE | re.DOTALL,
)


def parse_toml(text: str) -> dict[str, Any]:
    """Parse untrusted TOML; raise ``ValueError`` if it is not TOML, or nested too deeply.

    Python's parser takes time and memory quadratic in the number of parts of a dotted key, and stack
    for each bracket, so both are counted before.
    """
    brackets = 0
    dots = 0  # of the current key
    for token in _TOML_TOKENS.finditer(text):
        mark = token.group()
        if mark in {"[", "{"}:
            brackets += 1
        elif mark in {"]", "}"}:
            brackets = max(brackets - 1, 0)
        if mark == ".":
            dots += 1
        elif mark in _TOML_SEPARATORS:
            dots = 0
        if brackets + dots > MAX_DEPTH:
            raise ValueError(_TOO_DEEP)
    return tomllib.loads(text)


_TOO_DEEP = f"more than {MAX_DEPTH} tables or lists in each other"


def check_yaml(text: str | bytes) -> None:
    """Raise ``ValueError`` for untrusted YAML that is nested too deeply or has aliases.

    PyYAML takes time quadratic in the depth, and an alias may stand for gigabytes. Its events come
    before the rest of the text is read. Raises ``yaml.YAMLError`` if the text is not YAML.
    """
    import yaml

    depth = 0
    for event in yaml.parse(text):
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("it has aliases, which could expand beyond memory")  # noqa: TRY004
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise ValueError(_TOO_DEEP)


def read_toml(path: str | os.PathLike[str], max_bytes: int = MAX_TOML_BYTES) -> dict[str, Any]:
    """Return the tables of a TOML file (UTF-8) of at most ``max_bytes``.

    Raises ``OSError`` as :func:`read_small_file` does, and ``ValueError`` as :func:`parse_toml` does.
    """
    return parse_toml(read_small_file(path, max_bytes).decode("utf-8-sig"))


def parse_json(text: str) -> Any:
    """Return the value of a JSON text.

    Raises ``ValueError`` if it is not JSON, is nested too deeply, or has too many values: an empty
    list takes 65 bytes of memory for each 3 bytes of text.
    """
    values = sum(map(text.count, ",[{"))  # at most 190 bytes each, as measured
    if values > MAX_JSON_VALUES:
        raise ValueError(f"JSON with {values:,} values, of at most {MAX_JSON_VALUES:,}")
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("JSON that is nested too deeply") from error


def read_json(path: str | os.PathLike[str], max_bytes: int = MAX_BYTES) -> Any:
    """Return the value in a JSON file (UTF-8) of at most ``max_bytes``.

    Raises ``OSError`` as :func:`read_small_file` does, and ``ValueError`` if the file is not JSON, is
    nested too deeply, has too many values, or holds a string that cannot be encoded.
    """
    text = read_small_file(path, max_bytes).decode("utf-8-sig")
    value = parse_json(text)
    # A lone surrogate ("\ud800") is valid JSON, but cannot be printed or used in a file name.
    if "\\ud" in text.lower():
        json.dumps(value, ensure_ascii=False).encode()
    return value


def read_model(
    path: Path,
    model: type[M],
    problem: str,
    *,
    steps: Step | Sequence[Step],
) -> M:
    """Read and validate a JSON file.

    Raises ``FileNotFoundError`` if there is no such file, ``NotADirectoryError`` if the path leads
    through a file, and ``DamagedInput`` if it cannot be read or does not follow the model, and for a
    link to nothing; its message is the path and ``problem`` ("cannot be read as …").
    """
    try:
        return model.model_validate_json(read_small_file(path))
    except NotADirectoryError:
        raise
    except (
        ValueError,
        RecursionError,
        OSError,
        TypeError,
    ) as error:  # raised by a model's own checks
        found = first_problem(error)
        if isinstance(error, FileNotFoundError):
            if not path.is_symlink():
                raise
            found = f"a symbolic link to {path.readlink()}, which is missing"
        raise_damaged(path, problem, found, remedy=steps)


def first_problem(error: Exception) -> str:
    """Describe the first problem of a parsing or validation error in one line."""
    if not isinstance(error, ValidationError):
        lines = str(error).splitlines() or [type(error).__name__]
        if isinstance(error, KeyError) and error.args:
            lines = [f"there is no {error.args[0]!r}"]
        return reword_python_problem(lines[0]).rstrip(".")[:200]
    if error.error_count() > _MAX_PROBLEMS:
        return f"{error.error_count():,} problems"

    problems = error.errors(include_url=False, include_context=False, include_input=False)
    # Unknown keys first: a misspelt key explains a missing one.
    problems.sort(key=lambda problem: problem["type"] != "extra_forbidden")
    message = reword_pydantic_problem(problems[0]["msg"])
    location = ".".join(str(field)[:80] for field in problems[0]["loc"])
    if location:
        message = f"{location}: {message}"
    return message[:300]


def unknown_key_error(error: Exception, known: Sequence[str]) -> UsageError | None:
    """Return the error for the first unknown top-level key of a file, or ``None``."""
    if not isinstance(error, ValidationError):
        return None
    for problem in error.errors(include_url=False, include_context=False, include_input=False):
        if problem["type"] == "extra_forbidden" and len(problem["loc"]) == 1:
            name = str(problem["loc"][0])[:80]
            refusal = unknown_name_error("key", name, known, command="correct the file")
            refusal.correction = None  # the typo is in the file, not in the command
            return refusal
    return None


def reword_pydantic_problem(problem: str) -> str:
    """Reword a message of pydantic for users.

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
    """Return ASCII JSON with sorted keys and no spaces: equal values give equal strings."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def readable_json(value: Mapping[str, object]) -> str:
    """Return indented JSON with sorted keys and a final line feed."""
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def csv_bytes(header: Sequence[str], rows: Iterable[Iterable[object]]) -> bytes:
    """Return a table as CSV; ``None`` becomes an empty cell."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return text.getvalue().encode()


def json_digest(value: object) -> str:
    """Return the SHA-256 (hex) of a value's canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def sealed_json(content: Mapping[str, object]) -> str:
    """Return ``content`` as readable JSON, with ``digest`` recomputed from all other fields.

    A file that was edited differs from this string, even if it parses to the same values.
    """
    fields = {name: value for name, value in content.items() if name != "digest"}
    return readable_json({**fields, "digest": json_digest(fields)})


class RunningDigests:
    """Running SHA-256, CRC-32 and size of a stream of bytes."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self._crc32 = 0
        self._bytes = 0

    def update(self, data: bytes | memoryview) -> None:
        """Add bytes."""
        self._sha256.update(data)
        self._crc32 = crc32(data, self._crc32)
        self._bytes += len(data)

    @property
    def facts(self) -> dict[str, object]:
        """Fields of a card: ``sha256`` and ``crc32`` in hex, and ``bytes``."""
        return {
            "sha256": self._sha256.hexdigest(),
            "crc32": f"{self._crc32:08x}",
            "bytes": self._bytes,
        }


def sha256_file(path: Path, new_digest: Callable[[], Any] = hashlib.sha256) -> tuple[str, int]:
    """Return the SHA-256, or the digest of another algorithm, and the size of a file.

    Raises ``DamagedInput`` if the file cannot be read, and ``OutOfResources`` if the process has too
    many open files.
    """
    try:
        # Take digest and size from one read: the file may change in between.
        with path.open("rb", buffering=0) as file:
            digest = hashlib.file_digest(file, new_digest).hexdigest()
            return digest, file.tell()
    except OSError as error:
        check_resources(path, error)
        raise unreadable_error(path, error) from error
