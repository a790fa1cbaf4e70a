"""Format labels of graphs: classes or targets."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kmip_data.arrays import Array
from kmip_data.format.schema import Column
from kmip_data.text import class_name, number_text


def label_text(column: Column, value: Array, names: Sequence[str]) -> str:
    """Format the label (1,) or (C,) of a graph: class, positive labels, or targets; NaN is unknown."""
    if column.num_classes and not column.shape:
        return class_name(int(value), names)
    fields = column.fields or tuple(map(str, range(value.size)))
    numbers = value.ravel().tolist()
    if column.num_classes:
        positive = [name for name, target in zip(fields, numbers, strict=True) if target == 1]
        return "\n".join(positive) or "no positive label"
    texts = ["unknown" if math.isnan(number) else number_text(number) for number in numbers]
    if len(texts) == 1 and not column.fields:
        return texts[0]
    return "\n".join(f"{name}  {text}" for name, text in zip(fields, texts, strict=True))
