"""Point clouds of your own as named columns: ``.npy``, ``.ply`` and text (``.csv .txt .xyz .pts``).

PLY is read as Greg Turk describes it (1994), ASCII or binary of either byte order; our own reader,
because all that is wanted are the scalar properties of one element (ADR 0241).
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np

from kmip_data.arrays import Array
from kmip_data.errors import DamagedInput

MAX_COLUMNS: Final = 1_000
_TYPES: Final = {
    "char": "i1", "int8": "i1", "uchar": "u1", "uint8": "u1", "short": "i2", "int16": "i2", "ushort": "u2",
    "uint16": "u2", "int": "i4", "int32": "i4", "uint": "u4", "uint32": "u4", "float": "f4", "float32": "f4",
    "double": "f8", "float64": "f8",
}  # fmt: skip
_ORDERS: Final = {
    "ascii": "",
    "binary_little_endian": "<",
    "binary_big_endian": ">",
}
_MAX_HEADER: Final = 1_000  #: lines

Columns = Mapping[str, Array]


def read_points(path: Path, name: str) -> Columns:
    """Return the columns of a cloud, (N,) each, in file order.

    Columns without names are called x, y, z, and then by their place from 0: ``3``, ``4``, … Raises
    ``DamagedInput`` where the file is damaged or holds no points.
    """
    try:
        columns = READERS[path.suffix.lower()](path)
    except (OSError, ValueError, EOFError, LookupError, TypeError, OverflowError) as error:
        fault = next(iter(str(error).splitlines()), type(error).__name__)
        raise DamagedInput(f"{name} cannot be read as a point cloud: {fault}") from error
    if not columns or not len(next(iter(columns.values()))):
        raise DamagedInput(f"{name} holds no points.")
    return columns


def _named(rows: Array, names: list[str] | None = None) -> Columns:
    count = rows.shape[1]
    # A header may declare 10¹⁰ columns of no rows, which take no byte of the file.
    if count > MAX_COLUMNS:
        raise ValueError(f"{count:,} columns, and {MAX_COLUMNS:,} are allowed")
    if names and len(names) != count:
        raise ValueError(f"{len(names)} names for {count} columns")
    if not names:
        names = [*"xyz", *map(str, range(3, count))][:count]
    return dict(zip(names, rows.T, strict=True))


def _npy(path: Path) -> Columns:
    rows = np.load(path, mmap_mode="r", allow_pickle=False)
    if rows.dtype.names:
        scalar = [field for field in rows.dtype.names if rows.dtype[field].shape == ()]
        return {field: rows[field].reshape(-1) for field in scalar}
    if rows.ndim != 2 or rows.dtype.kind not in "fiub":
        raise ValueError(f"{rows.ndim} axes of {rows.dtype} instead of numbers, one row per point")
    return _named(rows)


def _text(path: Path) -> Columns:
    """Numbers separated by commas, semicolons or blanks.

    The first line may have names, also after ``#``.
    """
    data = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    data = data.translate(bytes.maketrans(b",;\t", b"   "))

    head, _, rest = data.partition(b"\n")
    words = head.decode("utf-8", "replace").split()
    names: list[str] = []
    if path.suffix.lower() == ".pts" and len(words) == 1 and words[0].isdigit():
        data = rest  # after the number of points
    elif words and not all(map(_is_number, words)):
        data = rest
        bare = [word.lstrip("#/").strip("\"'") for word in words]
        names = [name for name in bare if name]
    if not data.strip():
        return {}

    try:
        rows = np.loadtxt(io.BytesIO(data), np.float64, comments="#", ndmin=2)
    except ValueError as error:
        fault = str(error).split(";", maxsplit=1)[0]
        if data is rest:
            fault += " (lines are counted after the first)"
        raise ValueError(fault) from error
    return _named(rows, names) if rows.size else {}


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _ply(path: Path) -> Columns:
    """Return the scalar properties of ``element vertex``.

    Raises ``ValueError`` where lists come before or in it.
    """
    with path.open("rb") as file:
        # Elements follow each other without an index: those before the vertices are read, too.
        order, elements = _ply_header(file)
        for element, count, properties in elements:
            if any(kind is None for _, kind in properties):
                raise ValueError(f"lists in or before the element vertex ({element})")
            dtype = np.dtype([(name, order + str(kind)) for name, kind in properties])
            # Of text at least a digit and a gap for each value.
            least = count * (dtype.itemsize if order else max(2 * len(properties), 1))
            if file.tell() + least > path.stat().st_size + 1:  # the last line may have no end
                raise ValueError(
                    f"{element}: {count} entries are declared, and the file ends before"
                )

            if order:
                table = np.frombuffer(file.read(least), dtype, count)
            else:
                rows = [tuple(file.readline().split()) for _ in range(count)]
                if any(len(row) != len(properties) for row in rows):
                    raise ValueError(
                        f"{element}: a line without {len(properties)} values, or too few lines"
                    )
                table = np.array(rows, [(name, "f8") for name, _ in properties])
            if element == "vertex":
                return {name: table[name].astype(str(kind)) for name, kind in properties}
    raise ValueError("no element vertex")


def _ply_header(file: BinaryIO) -> tuple[str, list[tuple[str, int, list[tuple[str, str | None]]]]]:
    """Return the byte order (empty for ASCII) and each element with its count and properties."""
    if file.readline(100).strip() != b"ply":
        raise ValueError("not a PLY file: its first line is not 'ply'")
    order: str | None = None
    elements: list[tuple[str, int, list[tuple[str, str | None]]]] = []
    for _ in range(_MAX_HEADER):
        words = file.readline(10_000).decode("ascii", "replace").split()
        match words:
            case ["format", form, _] if form in _ORDERS:
                order = _ORDERS[form]
            case ["element", name, count] if count.isdecimal():
                elements.append((name, int(count), []))
            case ["property", "list", _, _, name] if elements:
                elements[-1][2].append((name, None))
            case ["property", kind, name] if elements and kind in _TYPES:
                elements[-1][2].append((name, _TYPES[kind]))
            case ["comment" | "obj_info", *_] | []:
                continue
            case ["end_header"] if order is not None:
                return order, elements
            case _:
                raise ValueError(f"a header line that is not understood: {' '.join(words)[:80]!r}")
    raise ValueError("a header without an end")


READERS: Final[Mapping[str, Callable[[Path], Columns]]] = {
    ".npy": _npy,
    ".ply": _ply,
    **dict.fromkeys((".csv", ".pts", ".txt", ".xyz"), _text),
}
