"""Checks of a graph from an untrusted file: arrays, edges and values.

Every fault is a ``DamagedInput`` that begins with ``where``: the file and the number of the graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kmip_data.arrays import Array, fits, shape_text
from kmip_data.errors import DamagedInput

MOST_NODES = 2**32  #: of a graph in a shard
#: Kinds of numpy's dtypes, and the word for them.
_KINDS = {"f": "floats", "iu": "whole numbers", "fiu": "numbers"}


def array_of(
    graph: Mapping[str, Any],
    name: str,
    kinds: str,
    shape: Sequence[int | None] | None,
    where: str,
) -> Array:
    """Return an array of a graph whose dtype is one of ``kinds``: ``f``, ``iu`` or ``fiu``.

    ``shape`` has ``None`` for an axis of any length, and is ``None`` itself where any shape will
    do. A whole number counts as an array without axes.
    """
    value = graph.get(name)
    if isinstance(value, int):
        value = np.asarray(value)
    if not isinstance(value, np.ndarray):
        raise DamagedInput(f"{where}: {name} is {type(value).__name__}, not {_KINDS[kinds]}.")
    if value.dtype.kind in kinds and (shape is None or fits(value.shape, shape)):
        return value
    wanted = _KINDS[kinds]
    if shape is not None:
        wanted += f" of shape {shape_text(shape)}"
    raise DamagedInput(f"{where}: {name} is {value.dtype} {value.shape}, not {wanted}.")


def in_range(values: Array, count: int) -> bool:
    """True if all values are one of 0 to ``count - 1``."""
    return not values.size or bool(0 <= values.min() <= values.max() < count)


def nodes_of(edges: Array) -> int:
    """Return the number of nodes that edges need."""
    return int(edges.max()) + 1 if edges.size else 0


def check_edges(edges: Array, nodes: int, where: str) -> None:
    """Refuse more nodes than a shard can number, and edges between nodes that are not there."""
    if nodes > MOST_NODES:
        raise DamagedInput(f"{where}: {nodes:,} nodes, of at most {MOST_NODES:,}.")
    if not in_range(edges, nodes):
        least = edges.min()
        largest = edges.max()
        raise DamagedInput(f"{where}: edges of nodes {least:,} to {largest:,}, of {nodes:,}.")
