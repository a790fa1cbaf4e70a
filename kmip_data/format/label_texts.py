"""Format labels of graphs: classes or targets."""

from __future__ import annotations

from collections.abc import Sequence

from kmip_data.arrays import Array
from kmip_data.format.schema import Column
from kmip_data.text import class_name, number_text


def label_text(column: Column, value: Array, names: Sequence[str]) -> str:
    """Format the label (1,) or (C,) of a graph: class, positive labels, or targets."""
    if column.num_classes and not column.shape:
        return class_name(int(value), names)
    fields = column.fields or tuple(map(str, range(value.size)))
    named = zip(fields, value.ravel(), strict=True)
    if column.num_classes:
        positive = [name for name, target in named if target == 1]  # NaN: unknown
        return "\n".join(positive) or "no positive label"
    if value.size == 1 and not column.fields:
        return number_text(value.item())
    return "\n".join(f"{name}  {number_text(number)}" for name, number in named)
