"""Read point clouds of one's own, as named columns: ``.npy .ply .las .laz .txt .csv .xyz .pts .h5``."""

from __future__ import annotations

import codecs
import io
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kmip_data.errors import DamagedInput, UsageError
from kmip_data.pipelines.formats.ply import read_ply
from kmip_data.pipelines.raw.extras import require_extra

MAX_BYTES: Final = 64_000_000_000  #: declared size of an HDF5 file
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
        raise DamagedInput(f"{name} holds no points.", expected="at least one", found="none")
    return columns


def _damaged(name: str, found: str) -> DamagedInput:
    return DamagedInput(f"{name} cannot be read.", expected="a point cloud", found=found)


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


def _las(path: Path, name: str) -> Columns:
    require_extra("points", f"{name}: reading LAS and LAZ")
    import laspy

    _check_las_counts(path)
    try:
        cloud = laspy.read(path)
    except Exception as error:  # laspy and its decoders raise what they like on damaged files
        raise _damaged(name, f"{type(error).__name__}: {error}") from error
    columns = {axis: np.asarray(cloud[axis], np.float64) for axis in UNNAMED}
    others = [field for field in cloud.point_format.dimension_names if field not in {"X", "Y", "Z"}]
    return {**columns, **{field: np.asarray(cloud[field]) for field in others}}


def _check_las_counts(path: Path) -> None:
    """Raise ValueError where the header declares more than the file can hold: laspy would go on for hours."""
    size = path.stat().st_size
    with path.open("rb") as file:
        header = file.read(255)
    if len(header) < 227 or header[:4] != b"LASF":
        raise ValueError("not a LAS file")
    minor, (variable, form, length, points) = header[25], struct.unpack_from("<IBHI", header, 100)
    extended = 0
    if minor >= 4 and len(header) == 255:
        extended, points = struct.unpack_from("<IQ", header, 243)
    compressed = form & 0x80 != 0
    if variable * 54 + extended * 60 + (0 if compressed else points * length) > size:
        msg = f"{points} points and {variable + extended} further records in a file of {size} bytes"
        raise ValueError(msg)


def _h5(path: Path, _: str) -> Columns:
    """Datasets of one axis are columns; those of two are ``name/0``, ``name/1`` …, or unnamed if alone."""
    from kmip_data.format.hdf5.safety import open_untrusted

    with open_untrusted(path, max_declared_bytes=MAX_BYTES) as file:
        datasets = {key: value for key in file if hasattr(value := file.get(key), "dtype")}
        tables = {k: v for k, v in datasets.items() if v.dtype.kind in "fiub" and v.ndim in {1, 2}}
        alone = sum(value.ndim == 2 for value in tables.values()) == 1
        columns: dict[str, NDArray[Any]] = {}
        for key, value in tables.items():
            if value.ndim == 1:
                columns[key] = value[:]
            else:
                width = value.shape[1]
                names = _names(width) if alone else [f"{key}/{i}" for i in range(width)]
                columns.update(zip(names, value[:].T, strict=True))
    if len({len(column) for column in columns.values()}) > 1:
        lengths = ", ".join(f"{key} {len(column)}" for key, column in columns.items())
        raise ValueError(f"columns of different lengths: {lengths}")
    return columns


READERS: Final[Mapping[str, Callable[[Path, str], Columns]]] = {
    ".csv": _text,
    ".h5": _h5,
    ".hdf5": _h5,
    ".las": _las,
    ".laz": _las,
    ".npy": _npy,
    ".ply": lambda path, _: read_ply(path),
    ".pts": _text,
    ".txt": _text,
    ".xyz": _text,
}
