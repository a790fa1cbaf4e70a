"""Read PLY files (Greg Turk, 1994): ASCII, or binary in either byte order.

Our own reader, because only the properties of one element are needed (ADR 0241).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from kmip_data.pipelines.datasets.points.typed_rows import (
    check_file_size,
    convert_columns,
    non_empty_lines,
    read_table,
    require_end,
)
from kmip_data.pipelines.domains.cloud_columns import (
    CloudColumns,
    check_column_count,
    distinct_names,
)

MAX_HEADER_LINES = 1_000
_TYPES = {
    "char": "i1", "int8": "i1", "uchar": "u1", "uint8": "u1", "short": "i2", "int16": "i2", "ushort": "u2",
    "uint16": "u2", "int": "i4", "int32": "i4", "uint": "u4", "uint32": "u4", "float": "f4", "float32": "f4",
    "double": "f8", "float64": "f8",
}  # fmt: skip
_BYTE_ORDERS = {
    "ascii": "",
    "binary_little_endian": "<",
    "binary_big_endian": ">",
}


class _Property(NamedTuple):
    name: str
    kind: str  #: type of the number, or of a list's values
    length: str = ""  #: type of a list's length


class _Element(NamedTuple):
    name: str
    rows: int
    properties: list[_Property]


def read_ply(path: Path) -> CloudColumns:
    """Return the scalar properties of ``element vertex``; lists and other elements are ignored."""
    with path.open("rb") as file:
        order, elements = _read_header(file)
        # Elements have no index, so read everything before the vertices.
        for index, (name, count, declared) in enumerate(elements):
            check_column_count(len(declared))
            properties = _with_distinct_names(declared)
            types = [(item.name, item.kind) for item in properties if not item.length]
            if len(types) < len(properties):
                rows = list(_rows_with_lists(file, path, elements[index], order))
                values = convert_columns(name, rows, types) if types else {}
            else:
                values = read_table(file, path, name, count, types, order)
            if name != "vertex":
                continue
            if index == len(elements) - 1:
                row_bytes = sum(np.dtype(kind).itemsize for _, kind in types) if order else 1
                require_end(file, name, count, row_bytes)
            ignored = {item.name: "a list per point" for item in properties if item.length}
            for other in elements:
                if other.name != name and other.rows:
                    ignored[f"element {other.name}"] = "no points"
            return CloudColumns(values, ignored)
    raise ValueError("no element vertex")


def _with_distinct_names(properties: Sequence[_Property]) -> list[_Property]:
    names = distinct_names([item.name for item in properties])
    return [item._replace(name=name) for item, name in zip(properties, names, strict=True)]


def _rows_with_lists(
    file: BinaryIO, path: Path, element: _Element, order: str
) -> Iterator[list[bytes]]:
    """Yield the scalars of each row, as strings, of an element that also has lists."""
    name, count, properties = element
    # A list takes at least the bytes of its length.
    min_types = [(item.name, item.length or item.kind) for item in properties]
    check_file_size(file, path, name, count, min_types, order)
    if not order:
        num_rows = 0
        for line in non_empty_lines(file, count):
            num_rows += 1
            yield _scalars_of_words(name, line.replace(b",", b".").split(), properties)
        if num_rows < count:
            raise ValueError(f"{name}: too few lines")
        return
    for _ in range(count):
        row = []
        for item in properties:
            dtype = np.dtype(order + (item.length or item.kind))
            (value,) = np.frombuffer(file.read(dtype.itemsize), dtype, 1)
            if item.length:
                file.read(_list_length(name, value) * np.dtype(item.kind).itemsize)
            else:
                row.append(repr(value.item()).encode())
        yield row


def _scalars_of_words(
    name: str, words: Sequence[bytes], properties: Sequence[_Property]
) -> list[bytes]:
    row = []
    position = 0
    for item in properties:
        if item.length:
            position += _list_length(name, float(words[position])) + 1
        else:
            row.append(words[position])
            position += 1
    if position != len(words):
        raise ValueError(f"{name}: a line of {len(words)} values, not {position}")
    return row


def _list_length(name: str, value: float) -> int:
    if not 0 <= value < 2**32 or value != int(value):
        raise ValueError(f"{name}: a list of {value} values")
    return int(value)


def _read_header(file: BinaryIO) -> tuple[str, list[_Element]]:
    """Return the byte order (empty for ASCII) and the elements."""
    if file.readline(100).strip() != b"ply":
        raise ValueError("not a PLY file: its first line is not 'ply'")
    order: str | None = None
    elements: list[_Element] = []
    for _ in range(MAX_HEADER_LINES):
        words = file.readline(10_000).decode("ascii", "replace").split()
        match words:
            case ["format", form, _] if form in _BYTE_ORDERS:
                order = _BYTE_ORDERS[form]
            case ["element", name, count] if count.isdecimal():
                elements.append(_Element(name, int(count), []))
            case ["property", "list", length, kind, name] if (
                elements and length in _TYPES and kind in _TYPES
            ):
                elements[-1].properties.append(_Property(name, _TYPES[kind], _TYPES[length]))
            case ["property", kind, name] if elements and kind in _TYPES:
                elements[-1].properties.append(_Property(name, _TYPES[kind]))
            case ["comment" | "obj_info", *_] | []:
                continue
            case ["end_header"] if order is not None:
                return order, elements
            case _:
                raise ValueError(f"unknown header line: {' '.join(words)[:80]!r}")
    raise ValueError("a header without an end")
