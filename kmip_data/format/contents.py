"""Checks of the values in a shard against the promises of its schema."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kmip_data.arrays import I64
from kmip_data.format.hdf5 import refuse
from kmip_data.format.reader import Shard
from kmip_data.format.schema import EDGE_INDEX, NEIGHBOR, Column

BLOCK_VALUES: Final = 2**20  #: values checked at once; bounds the memory


class Fault(NamedTuple):
    """A promise of the schema that values of one dataset break."""

    what: str
    expected: str
    found: str


def content_faults(shard: Shard) -> Iterator[Fault]:
    """Yield one fault for every promise of the schema that some values of ``shard`` break.

    Indices must lie inside their graph, floating-point columns be finite, and bounds hold.
    """
    yield from _edge_faults(shard)
    for column in shard.schema.columns:
        yield from column_faults(shard, column)


def check_edges(shard: Shard) -> None:
    """Raise DamagedInput if an edge leads out of its graph: compiled code follows edges unchecked."""
    refuse_faults(shard, _edge_faults(shard))


def refuse_faults(shard: Shard, faults: Iterator[Fault]) -> None:
    """Raise DamagedInput for the first fault of a shard, if there is one."""
    for what, expected, found in faults:
        refuse(shard.path, f"is damaged: {what}", expected, found)


def _edge_faults(shard: Shard) -> Iterator[Fault]:
    if shard.schema.edges == "none":
        return
    table = shard.schema.edges == "neighbor"
    key, row_ptr = (NEIGHBOR, shard.node_ptr) if table else (EDGE_INDEX, shard.edge_ptr)
    sizes = np.diff(shard.node_ptr)

    def outside(block: NDArray[Any], start: int) -> NDArray[np.bool_]:
        rows = np.arange(start, start + block.shape[-1 if key == EDGE_INDEX else 0])
        limits = sizes[np.searchsorted(row_ptr, rows, side="right") - 1]
        return block >= (limits if key == EDGE_INDEX else limits[:, None])

    yield from _faults(shard, key, row_ptr, outside, "indices inside their graph")


def column_faults(shard: Shard, column: Column) -> Iterator[Fault]:
    """Yield a fault for every promise of the schema that values of one column break."""
    row_ptr = {"graph": np.arange(shard.graphs + 1), "node": shard.node_ptr, "edge": shard.edge_ptr}[
        column.level
    ]
    low, high = column.low, column.most
    if column.finite and np.dtype(column.stored).kind == "f":
        yield from _faults(shard, column.key, row_ptr, lambda block, _: ~np.isfinite(block), "finite values")
    if low is not None:
        yield from _faults(shard, column.key, row_ptr, lambda block, _: block < low, f"at least {low}")
    if high is not None:
        yield from _faults(shard, column.key, row_ptr, lambda block, _: block > high, f"at most {high}")


def _faults(
    shard: Shard,
    key: str,
    row_ptr: I64,
    wrong: Callable[[NDArray[Any], int], NDArray[np.bool_]],
    expected: str,
) -> Iterator[Fault]:
    """Yield a fault if ``wrong(rows, first row)`` is true of any value of a dataset."""
    count, first = 0, -1
    for start, block in _blocks(shard, key, int(row_ptr[-1])):
        bad = wrong(block, start)
        if bad.any():
            count += int(bad.sum())
            if first < 0:
                rows = bad.any(axis=0) if key == EDGE_INDEX else bad.reshape(len(bad), -1).any(axis=1)
                first = start + int(rows.argmax())
    if count:
        graph = int(np.searchsorted(row_ptr, first, side="right")) - 1
        record = shard.keys[graph]
        yield Fault(
            f"{key} holds wrong values",
            expected,
            f"{count:,} other, the first in record {record!r}, row {first - int(row_ptr[graph]):,}",
        )


def _blocks(shard: Shard, key: str, rows: int) -> Iterator[tuple[int, NDArray[Any]]]:
    view = shard.mapped(key)
    step = max(1, BLOCK_VALUES // max(1, math.prod(shard.layout[key].row)))
    for start in range(0, rows, step):
        stop = min(rows, start + step)
        if view is None:
            yield start, shard.read(key, start, stop)
        else:
            yield start, view[:, start:stop] if key == EDGE_INDEX else view[start:stop]
