"""Your own point clouds as named columns: NumPy, PLY, PCD, LAS and LAZ, text.

PLY is read as Greg Turk describes it (1994), ASCII or binary of either byte order, PCD as the Point
Cloud Library's page on version 0.7 does; with our own readers, as only the scalar properties of one
table are needed (ADR 0241). LAS and LAZ are read by laspy.
"""

from __future__ import annotations

import codecs
import io
import logging
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tokenize import TokenError  # of the header of an .npy file
from typing import Any, BinaryIO

import numpy as np

from kmip_data.arrays import Array
from kmip_data.errors import DamagedInput
from kmip_data.pipelines.datasets.points.las_end import check_end
from kmip_data.runtime.extras import require_extra

MAX_COLUMNS = 1_000
_TYPES = {
    "char": "i1", "int8": "i1", "uchar": "u1", "uint8": "u1", "short": "i2", "int16": "i2", "ushort": "u2",
    "uint16": "u2", "int": "i4", "int32": "i4", "uint": "u4", "uint32": "u4", "float": "f4", "float32": "f4",
    "double": "f8", "float64": "f8",
}  # fmt: skip
_ORDERS = {
    "ascii": "",
    "binary_little_endian": "<",
    "binary_big_endian": ">",
}
_MAX_HEADER = 1_000  #: lines
_CHUNK = 2**20  #: points of a LAS file decoded at a time
_VLR = 54  #: bytes of the header of a LAS file's variable length record
_LAZ_POINTS_PER_BYTE = 256  #: points that are all the same: 82; a header may declare 2⁶⁴

Columns = Mapping[str, Array]


def read_points(path: Path, name: str) -> Columns:
    """Return the columns of a cloud, (N,) each, in file order.

    Columns without names are called x, y, z, and then by their place from 0: ``3``, ``4``, … Raises
    ``DamagedInput`` for a damaged or empty file.
    """
    try:
        columns = READERS[path.suffix.lower()](path)
    except (
        OSError, ValueError, EOFError, LookupError, TypeError, ArithmeticError, TokenError, struct.error
    ) as error:  # fmt: skip
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
        # Elements have no index: read those before the vertices, too.
        order, elements = _ply_header(file)
        for element, count, properties in elements:
            if any(kind is None for _, kind in properties):
                raise ValueError(f"lists in or before the element vertex ({element})")
            table = _table(file, path, element, count, properties, order)
            if element == "vertex":
                return table
    raise ValueError("no element vertex")


def _table(
    file: BinaryIO,
    path: Path,
    title: str,
    count: int,
    types: Sequence[tuple[str, Any]],
    order: str,
) -> Columns:
    """Return ``count`` rows of numbers from the current position; without a byte order, of text."""
    dtype = np.dtype([(name, order + kind) for name, kind in types])
    # Of text at least a digit and a gap for each value.
    least = count * (dtype.itemsize if order else max(2 * len(types), 1))
    if file.tell() + least > path.stat().st_size + 1:  # the last line may have no end
        raise ValueError(f"{title}: {count} entries are declared, and the file ends before")

    if order:
        table = np.frombuffer(file.read(least), dtype, count)
    else:
        rows = [tuple(file.readline().split()) for _ in range(count)]
        if any(len(row) != len(types) for row in rows):
            raise ValueError(f"{title}: a line without {len(types)} values, or too few lines")
        table = np.array(rows, [(name, "f8") for name, _ in types])
    columns: dict[str, Array] = {}
    for name, kind in types:
        # Text may say 300 where a byte is declared, or 1e99 where float32 is.
        with np.errstate(over="raise", invalid="ignore"):
            columns[name] = table[name].astype(kind)
        if kind[0] in "iu" and (columns[name] != np.trunc(table[name])).any():
            raise ValueError(f"{title}: a value of {name} is beyond its type {kind}")
    return columns


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


def _pcd(path: Path) -> Columns:
    """Return the fields of an uncompressed PCD file; packed colours as red, green and blue."""
    with path.open("rb") as file:
        header = _pcd_header(file)
        form = header["DATA"][0]
        if form not in {"ascii", "binary"}:
            raise ValueError(
                f"DATA {form} is not read; convert it: pcl_convert_pcd_ascii_binary IN.pcd OUT.pcd 1"
            )
        names = header["FIELDS"]
        counts = [int(count) for count in header.get("COUNT", ["1"] * len(names))]
        if sum(counts) > MAX_COLUMNS:
            raise ValueError(f"{sum(counts):,} columns, and {MAX_COLUMNS:,} are allowed")

        types: list[tuple[str, str]] = []
        for name, kind, size, count in zip(
            names, header["TYPE"], header["SIZE"], counts, strict=True
        ):
            if kind not in {"F", "I", "U"}:
                raise ValueError(f"the type {kind[:20]!r} is not known")
            # Padding is called "_", and there may be several.
            field = f"_{len(types)}" if name == "_" else name
            for number in range(count):
                column = field if count == 1 else f"{field}_{number}"
                types.append((column, kind.lower() + size))
        order = "<" if form == "binary" else ""
        columns = dict(_table(file, path, "points", int(header["POINTS"][0]), types, order))

    for name in {"rgb", "rgba"} & {*columns}:
        packed = columns[name].view("u4")  # a float by its type, four bytes by its meaning
        for shift, colour in ((16, "red"), (8, "green"), (0, "blue")):
            columns[colour] = (packed >> shift).astype("u1")
    return columns


def _pcd_header(file: BinaryIO) -> dict[str, list[str]]:
    """Return the words of each line of the header by its first; the last is DATA."""
    header: dict[str, list[str]] = {}
    for _ in range(_MAX_HEADER):
        words = file.readline(10_000).decode("ascii", "replace").split()
        if len(words) > 1 and not words[0].startswith("#"):
            header[words[0]] = words[1:]
        if "DATA" in header:
            break
    missing = {"FIELDS", "SIZE", "TYPE", "POINTS", "DATA"} - {*header}
    if missing:
        raise ValueError(f"a header without {', '.join(sorted(missing))}")
    return header


def _las(path: Path) -> Columns:
    """Return the scalar dimensions of a LAS or LAZ file; x, y and z are scaled."""
    require_extra("lidar", "A LAS or LAZ file")
    import laspy

    # Silence its log, which would repeat the error.
    logging.getLogger("laspy").addHandler(logging.NullHandler())
    size = path.stat().st_size
    with path.open("rb") as file:
        records = int.from_bytes(file.read(104)[100:], "little")
    # laspy allocates as many records as the header declares, even beyond the end of the file.
    if records * _VLR > size:
        raise ValueError(f"{records:,} records are declared, and the file ends before")

    try:
        # One thread: its parallel reader believes the number of chunks.
        with (
            laspy.open(path, laz_backend=laspy.LazBackend.Lazrs, read_evlrs=False) as reader,
            np.errstate(all="ignore"),  # coordinates that overflow are refused as not finite
        ):
            check_end(reader.header, path)
            return _las_columns(reader, size)
    except (AssertionError, AttributeError, RuntimeError, laspy.LaspyException) as error:
        raise ValueError(str(error) or "not a LAS file") from error


def _las_columns(reader: Any, size: int) -> Columns:
    header = reader.header
    count = header.point_count
    least = header.offset_to_point_data + count * header.point_format.size
    if header.are_points_compressed:
        least = count // _LAZ_POINTS_PER_BYTE
    if least > size:
        raise ValueError(f"{count:,} points are declared, and the file ends before")

    names = [*"xyz", *header.point_format.dimension_names]
    columns: dict[str, Array] = {}
    row = 0
    # A chunk at a time, straight into the columns, to limit memory.
    for points in reader.chunk_iterator(_CHUNK):
        for name in names:
            values = np.asarray(points[name])
            if name in "XYZ" or values.ndim != 1:
                continue
            if name not in columns:
                columns[name] = np.empty(count, values.dtype)
            columns[name][row : row + len(values)] = values
        row += len(points)
    if row != count:
        raise ValueError(f"{count:,} points are declared, and {row:,} can be read")
    return columns


READERS: Mapping[str, Callable[[Path], Columns]] = {
    ".npy": _npy,
    ".ply": _ply,
    ".pcd": _pcd,
    **dict.fromkeys((".las", ".laz"), _las),
    **dict.fromkeys((".csv", ".pts", ".txt", ".xyz"), _text),
}
