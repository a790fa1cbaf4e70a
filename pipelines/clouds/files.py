"""Point clouds of your own as named columns: ``.npy``, ``.ply`` and text (``.csv .txt .xyz .pts``)."""

from __future__ import annotations

import codecs
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kmip_data.errors import DamagedInput, UsageError
from kmip_data.pipelines.formats.ply import read_ply

MAX_COLUMNS: Final = 1_000
UNNAMED: Final = ("x", "y", "z")

Columns = Mapping[str, NDArray[Any]]


def read_points(path: Path, name: str) -> Columns:
    """Return the columns of a cloud, (N,) each, in file order.

    Columns without names are called x, y, z, and then by their place from 0: ``3``, ``4``, …
    ``DamagedInput`` where the file is damaged or holds no points, ``UsageError`` where a package that reads
    this format is not installed.
    """
    try:
        columns = READERS[path.suffix.lower()](path, name)
    except (DamagedInput, UsageError):
        raise
    except OSError as error:
        raise _damaged(name, f"{error.strerror or error}") from error
    except (ValueError, EOFError, KeyError, IndexError, TypeError, OverflowError) as error:
        raise _damaged(name, str(error).splitlines()[0] if str(error) else type(error).__name__) from error
    if not columns or not len(next(iter(columns.values()))):
        raise DamagedInput(f"{name} holds no points.")
    return columns


def _damaged(name: str, found: str) -> DamagedInput:
    return DamagedInput(f"{name} cannot be read as a point cloud: {found}")


def _of_rows(rows: NDArray[Any]) -> Columns:
    if rows.dtype.names:
        return {field: rows[field].reshape(-1) for field in rows.dtype.names if rows.dtype[field].shape == ()}
    if rows.ndim != 2 or rows.dtype.kind not in "fiub":
        raise ValueError(
            f"an array of {rows.dtype} with {rows.ndim} axes instead of numbers, one row per point"
        )
    return dict(zip(_names(rows.shape[1]), rows.T, strict=True))


def _names(count: int) -> list[str]:
    # A header may declare 10¹⁰ columns of no rows, which take no byte of the file.
    if count > MAX_COLUMNS:
        raise ValueError(f"{count:,} columns, and {MAX_COLUMNS:,} are allowed")
    return [UNNAMED[i] if i < len(UNNAMED) else str(i) for i in range(count)]


def _npy(path: Path, _: str) -> Columns:
    return _of_rows(np.load(path, mmap_mode="r", allow_pickle=False))


def _text(path: Path, name: str) -> Columns:
    """Numbers separated by commas, semicolons or blanks; the first line may have names, also after ``#``."""
    data = path.read_bytes().removeprefix(codecs.BOM_UTF8).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    head, _, rest = data.partition(b"\n")
    words = _words(head)
    names, skipped = None, 0
    if path.suffix.lower() == ".pts" and len(words) == 1 and words[0].isdigit():
        data, skipped = rest, 1  # the number of points
    elif words and not all(map(_is_number, words)):
        names, data, skipped = [word.lstrip("#/").strip("\"'") for word in words], rest, 1
        names = [word for word in names if word]
    blanks = data.translate(bytes.maketrans(b",;\t", b"   "))
    if not blanks.strip():
        return {}
    try:
        rows = np.loadtxt(io.BytesIO(blanks), np.float64, comments="#", ndmin=2)
    except ValueError as error:
        lines = f" (lines are counted after the first {skipped})" if skipped else ""
        raise _damaged(name, f"{str(error).split(';', maxsplit=1)[0]}{lines}") from error
    if names is not None and rows.size and len(names) != rows.shape[1]:
        raise ValueError(f"{len(names)} names for {rows.shape[1]} columns")
    return dict(zip(names or _names(rows.shape[1]), rows.T, strict=True)) if rows.size else {}


def _words(line: bytes) -> list[str]:
    return line.decode("utf-8", "replace").replace(",", " ").replace(";", " ").split()


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


READERS: Final[Mapping[str, Callable[[Path, str], Columns]]] = {
    ".csv": _text,
    ".npy": _npy,
    ".ply": lambda path, _: read_ply(path),
    ".pts": _text,
    ".txt": _text,
    ".xyz": _text,
}
