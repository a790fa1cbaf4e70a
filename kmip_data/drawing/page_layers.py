"""Pack layers and other arrays for the explorer's page, without loss."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from kmip_data.arrays import Array
from kmip_data.drawing.layers import (
    Categories,
    Layer,
    Scale,
    cast_to_smallest_dtype,
    class_layer,
)
from kmip_data.drawing.style import PALETTE, SHADES, colors_by_background
from kmip_data.format.schema import FieldKind

Json = dict[str, Any]  #: JSON that the page reads
#: name, prefix if the name is taken, values (N,) and kind of a stored column
NamedColumn = tuple[str, str, Array, FieldKind]
LATER_LAYERS = ("attention", "influence")  #: layers that the page adds from runs
#: distinct colours; with more, codes are coloured as numbers
MAX_CATEGORIES = len(PALETTE) * len(SHADES)
#: labels of the values 0 and 1 of a mark, if they are not its name
FLAG_LABELS: dict[FieldKind, tuple[str, str]] = {"missing": ("has a value", "missing")}


class ArrayPacker:
    """Concatenate arrays for a page, and describe where each one is."""

    def __init__(self) -> None:
        self._data = bytearray()

    def add(self, values: Array) -> Json:
        """Append an array (n,); return its type, offset and size for the page."""
        offset = len(self._data)
        data = np.ascontiguousarray(values).tobytes()
        padding = bytes(-len(data) % 8)  # JavaScript's typed arrays must be aligned
        self._data += data + padding
        return {
            "kind": f"{values.dtype.kind}{8 * values.dtype.itemsize}",  # such as u8 or f32
            "at": offset,
            "count": values.size,
        }

    def add_layer(self, layer: Layer) -> Json:
        """Append the codes or values of a layer; return its description for the page.

        A scale of few distinct values is stored as codes and a table of values.
        """
        if isinstance(layer, Scale) and not np.ptp(1 * layer.values):
            layer = _constant_layer(layer)
        header: Json = {"name": layer.name}
        if layer.note:
            header["note"] = layer.note
        if isinstance(layer, Categories):
            header["labels"] = layer.labels
            header["colors"] = colors_by_background(layer.color_function)
            header["counts"] = layer.counts
            header["codes"] = self.add(layer.codes)
            if layer.values is not None:
                header["values"] = self.add(layer.values)
            return header

        if layer.unit:
            header["unit"] = layer.unit
        limits = asdict(layer.limits)
        header["limits"] = {
            key: value for key, value in limits.items() if value is not None and value is not False
        }
        # Identifiers are integers below 2**53, which are exact in float64.
        values = layer.values
        if values.dtype != np.float32:
            values = values.astype(np.float64)
        distinct, codes = np.unique(values, return_inverse=True)
        if len(distinct) <= min(65_536, len(values) // 2):
            header["codes"] = self.add(cast_to_smallest_dtype(codes, len(distinct)))
            values = distinct
        header["values"] = self.add(values)
        return header

    def to_base64(self) -> str:
        """Return all arrays as compressed base64; equal arrays give equal strings."""
        data = gzip.compress(self._data, compresslevel=9, mtime=0)
        return base64.b64encode(data).decode()


def column_layers(columns: Iterable[NamedColumn], layers: Sequence[Layer]) -> list[Layer]:
    """Return layers of stored columns, with values (N,).

    A name is taken if one of the page's ``layers`` or a previous column has it.
    """
    taken = {*LATER_LAYERS, *(layer.name for layer in layers)}
    result = []
    for name, prefix, values, kind in columns:
        distinct_name = _distinct_name(name, prefix, taken)
        taken.add(distinct_name)
        result.append(_column_layer(distinct_name, values, kind))
    return result


def _distinct_name(name: str, prefix: str, taken: Collection[str]) -> str:
    """Return the name, behind the prefix if the name is taken.

    >>> _distinct_name("y", "pos", {"y"}), _distinct_name("z", "pos", {"y"})
    ('pos y', 'z')
    """
    while name in taken:
        name = f"{prefix} {name}"
    return name


def _constant_layer(layer: Scale) -> Categories:
    """Return the layer of values that are all equal, which needs no ramp."""
    label = f"{np.format_float_positional(layer.values[0], trim='-')} {layer.unit}".strip()
    constant = class_layer(layer.name, np.zeros(len(layer.values)), (label,), layer.note)
    return replace(constant, values=layer.values[:1].astype(np.float64))


def _column_layer(name: str, values: Array, kind: FieldKind) -> Layer:
    """Return the layer of a column (N,): flags and categories have a label for each value."""
    if kind in {"number", "position"}:
        return Scale(name, values)

    # The possible values; a damaged card may give a kind that the values do not have.
    distinct, codes = np.unique(values, return_inverse=True)
    labels = tuple(f"{value:g}" for value in distinct.tolist())
    has_colors = len(distinct) <= MAX_CATEGORIES and np.isfinite(distinct).all()
    if kind != "category":
        labels = FLAG_LABELS.get(kind, (f"not {name}", name))
        has_colors = bool(np.isin(distinct, (0, 1)).all())
        distinct = np.arange(2)
        codes = values
    if not has_colors:
        return Scale(name, values)
    layer = class_layer(name, codes.astype(np.int64), labels)
    return replace(layer, values=distinct.astype(np.float64))
