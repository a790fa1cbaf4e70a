"""Format labels of graphs and nodes: names of classes, and numbers."""

from __future__ import annotations

from collections.abc import Sequence

from kmip_data.arrays import Array
from kmip_data.format.schema import Column

ZERO_TOLERANCE = 1e-12  #: largest magnitude of a label that is shown as 0


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


def number_text(number: float) -> str:
    """Format a number with three digits; rounding errors of zero become 0.

    >>> number_text(-1.11e-16), number_text(0.12345)
    ('0', '0.123')
    """
    return f"{number if abs(number) > ZERO_TOLERANCE else 0:.3g}"


def class_name(number: int, names: Sequence[str]) -> str:
    """Return the name of a class, or its number if it has no name; negative means no class."""
    if number < 0:
        return "no class"
    return names[number] if number < len(names) else f"class {number}"
