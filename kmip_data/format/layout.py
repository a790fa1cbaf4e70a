"""Which datasets a shard holds, with dtype and shape, as a function of its schema alone."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from kmip_data.errors import UsageError
from kmip_data.format.schema import EDGE_INDEX, EDGE_PTR, KEY, NEIGHBOR, NODE_PTR, Column, Schema

#: dtypes a column may be stored with: numbers of fixed size, so that a mapped view is always valid.
#: A boolean is stored as ``uint8`` and presented as ``bool``.
STORED_DTYPES: Final = frozenset(
    {"float16", "float32", "float64"} | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
)
MAX_ROW_BYTES: Final = 2**31

RESERVED: Final = frozenset({NODE_PTR, EDGE_PTR, KEY, NEIGHBOR, EDGE_INDEX})


@dataclass(frozen=True)
class Expected:
    """One dataset that a shard of a schema holds."""

    key: str
    dtype: np.dtype[Any]  #: always little-endian
    per: str  #: what a row belongs to: graph, node or edge; ``pointer`` has one row per graph and one more
    row: tuple[int, ...] = ()  #: shape of a row

    @property
    def axis(self) -> int:
        """The axis that counts rows: 1 for ``edge/index`` [2, ΣE], else 0."""
        return int(self.key == EDGE_INDEX)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.dtype.itemsize * math.prod(self.row)

    def shape(self, graphs: int, nodes: int, edges: int) -> tuple[int, ...]:
        """Shape in a shard with these counts."""
        count = {"pointer": graphs + 1, "graph": graphs, "node": nodes, "edge": edges}[self.per]
        return (*self.row, count) if self.axis else (count, *self.row)


def expected_datasets(schema: Schema) -> dict[str, Expected]:
    """Return every dataset of a shard with ``schema`` by key, in the order in which they are written.

    Raises ``UsageError`` where the schema cannot be stored: a bad column key, an unsupported dtype, a missing
    ``k`` and so on.
    """
    try:
        return parse_schema(schema.to_json())[1]
    except ValueError as error:
        raise UsageError(
            "The schema cannot be stored.", expected="what docs/format.md says", found=str(error)
        ) from error


@functools.lru_cache(maxsize=16)
def parse_schema(text: str) -> tuple[Schema, dict[str, Expected]]:
    """Return a schema from its JSON, and its layout; the shards of a build all have the same text.

    Raises ``ValueError`` where it is not a schema, or one that cannot be stored.
    """
    schema = Schema.from_json(text)
    _check(schema)
    pointer, index = np.dtype("<i8"), np.dtype(schema.index_dtype).newbyteorder("<")
    columns = [
        Expected(column.key, np.dtype(column.stored).newbyteorder("<"), column.level, column.shape)
        for column in schema.columns
    ]
    found = [Expected(NODE_PTR, pointer, "pointer")]
    if schema.edges == "index":
        found.append(Expected(EDGE_PTR, pointer, "pointer"))
    found.append(Expected(KEY, np.dtype(f"S{schema.key_length}"), "graph"))
    found += [entry for entry in columns if entry.per == "graph"]
    found += [entry for entry in columns if entry.per == "node"]
    if schema.edges == "neighbor":
        found.append(Expected(NEIGHBOR, index, "node", (schema.k or 0,)))
    if schema.edges == "index":
        found.append(Expected(EDGE_INDEX, index, "edge", (2,)))
    found += [entry for entry in columns if entry.per == "edge"]
    return schema, {entry.key: entry for entry in found}


def bytes_per(schema: Schema) -> tuple[int, int, int]:
    """Bytes that one graph, one node and one edge add to a shard, for dealing records to shards.

    The neighbour table counts with the nodes: its size does not depend on the number of edges.
    """
    totals = {"graph": 0, "node": 0, "edge": 0}
    for entry in expected_datasets(schema).values():
        totals["graph" if entry.per == "pointer" else entry.per] += entry.row_bytes
    return totals["graph"], totals["node"], totals["edge"]


def _check(schema: Schema) -> None:
    """Raise ValueError for the first thing in ``schema``, of the right types, that the format cannot hold."""
    _require(schema.edges != "neighbor" or schema.k is not None, "k", "a number of neighbours", schema.k)
    for column in schema.columns:
        _check_column(column)
    edge_columns = [column.key for column in schema.columns if column.level == "edge"]
    _require(
        schema.edges != "none" or not edge_columns, "columns", "no edge columns without edges", edge_columns
    )
    keys = [column.key for column in schema.columns]
    attributes = [column.attribute for column in schema.columns] + [view.attribute for view in schema.views]
    for what, names in (("column keys", keys), ("attributes", attributes)):
        _require(len(set(names)) == len(names), what, "each name once", names)
    widths = {column.key: column.shape[0] for column in schema.columns if column.shape}
    for view in schema.views:
        inside = view.start <= view.stop <= widths.get(view.source, 0)
        expected = "a range of the components of a stored column"
        _require(inside, f"view {view.attribute!r}", expected, f"{view.source}[{view.start}:{view.stop}]")


def _check_column(column: Column) -> None:
    what = f"column {column.key!r}"
    _require(column.key not in RESERVED, what, "a name that the format does not use itself", column.key)
    _require(column.attribute.isidentifier(), f"attribute of {what}", "an identifier", column.attribute)
    for name, dtype, allowed in (
        ("stored dtype", column.stored, STORED_DTYPES),
        ("presented dtype", column.presented, STORED_DTYPES | {"bool"}),
    ):
        _require(dtype in allowed, f"{name} of {what}", ", ".join(sorted(allowed)), dtype)
    row_bytes = np.dtype(column.stored).itemsize * math.prod(column.shape)
    _require(row_bytes <= MAX_ROW_BYTES, f"shape of {what}", "rows of at most 2 GiB", column.shape)


def _require(condition: bool, what: str, expected: str, found: object) -> None:
    if not condition:
        raise ValueError(f"{what}: expected {expected}, found {found!r}")
