"""Read the vertices of a PLY file: ASCII, or binary of either byte order.

Format: Greg Turk's description of 1994. A reader of our own, because all that is wanted are the scalar
properties of one element (ADR 0241).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

_TYPES: Final = {
    "char": "i1", "int8": "i1", "uchar": "u1", "uint8": "u1", "short": "i2", "int16": "i2", "ushort": "u2",
    "uint16": "u2", "int": "i4", "int32": "i4", "uint": "u4", "uint32": "u4", "float": "f4", "float32": "f4",
    "double": "f8", "float64": "f8",
}  # fmt: skip
_ORDERS: Final = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
_MAX_HEADER: Final = 1_000  #: lines


def read_ply(path: Path) -> dict[str, NDArray[Any]]:
    """Return the scalar properties of ``element vertex``, (N,) each, in file order.

    Raises ``ValueError`` where the file is not a PLY file, is cut off, or lists come before or in the
    vertices.
    """
    with path.open("rb") as file:
        order, elements = _header(file)
        for element, count, properties in elements:
            if any(kind is None for _, kind in properties):
                raise ValueError(f"lists in or before the element vertex ({element})")
            dtype = np.dtype([(name, order + str(kind)) for name, kind in properties])
            wanted = element == "vertex"
            least = count * (
                dtype.itemsize if order else max(2 * len(properties), 1)
            )  # a digit and a gap each
            if file.tell() + least > path.stat().st_size + 1:  # the last line may have no end
                raise ValueError(f"{element}: {count} entries are declared, and the file ends before")
            if not order:
                rows = [file.readline().split() for _ in range(count)]
                if any(len(row) != len(properties) for row in rows):
                    msg = f"{element}: a line without {len(properties)} values, or too few lines"
                    raise ValueError(msg)
                if wanted:
                    columns = zip(*rows, strict=True) if rows else [()] * len(properties)
                    return {
                        name: np.array(column, "f8").astype(kind)
                        for (name, kind), column in zip(properties, columns, strict=True)
                    }
                continue
            if wanted:
                table = np.frombuffer(file.read(least), dtype, count)
                return {name: table[name].astype(dtype[name].newbyteorder("=")) for name, _ in properties}
            file.seek(least, 1)
    raise ValueError("no element vertex")


def _header(file: BinaryIO) -> tuple[str, list[tuple[str, int, list[tuple[str, str | None]]]]]:
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
