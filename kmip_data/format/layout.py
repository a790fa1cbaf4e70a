"""Which datasets a shard holds, with dtype and shape, as a function of its schema alone."""

from __future__ import annotations

import functools
import math
import re
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
PRESENTED_DTYPES: Final = STORED_DTYPES | {"bool"}
MAX_KEY_LENGTH: Final = 1024
MAX_GRAPH_NODES: Final = 2**32
MAX_ROW_BYTES: Final = 2**31

_COLUMN_KEY: Final = re.compile(r"(graph|node|edge)/[A-Za-z][A-Za-z0-9_]{0,99}")
_RESERVED: Final = frozenset({NODE_PTR, EDGE_PTR, KEY, NEIGHBOR, EDGE_INDEX})


@dataclass(frozen=True)
class Expected:
    """One dataset that a shard of a schema holds.

    Attributes
    ----------
    per
        What one row belongs to: ``graph``, ``node`` or ``edge``; ``pointer`` has one row per graph
        and one more.
    row
        Shape of one row.
    """

    key: str
    dtype: np.dtype[Any]  #: always little-endian
    per: str
    row: tuple[int, ...] = ()

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

    Raises
    ------
    UsageError
        The schema cannot be stored: a bad column key, an unsupported dtype, a missing ``k`` …
    """
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
    return {entry.key: entry for entry in found}


@functools.lru_cache(maxsize=16)
def parse_schema(text: str) -> tuple[Schema, dict[str, Expected]]:
    """Return a schema from its JSON, and its layout; the shards of a build all have the same text.

    Raises
    ------
    ValueError
        It is not a schema, or one that cannot be stored.
    """
    try:
        schema = Schema.from_json(text)
        return schema, expected_datasets(schema)
    except UsageError as error:
        raise ValueError(f"{error.what} ({error.parts['found']})") from error
    except (TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        raise ValueError(f"not a schema: {type(error).__name__}: {error}") from error


def bytes_per(schema: Schema) -> tuple[int, int, int]:
    """Bytes that one graph, one node and one edge add to a shard, for dealing records to shards.

    The neighbour table counts with the nodes: its size does not depend on the number of edges.
    """
    totals = {"graph": 0, "node": 0, "edge": 0}
    for entry in expected_datasets(schema).values():
        totals["graph" if entry.per == "pointer" else entry.per] += entry.row_bytes
    return totals["graph"], totals["node"], totals["edge"]


def _check(schema: Schema) -> None:
    """Raise UsageError for the first thing in ``schema`` that the format cannot hold."""
    _require(schema.edges in {"neighbor", "index", "none"}, "edges", "neighbor, index or none", schema.edges)
    needs_k = schema.edges == "neighbor" or schema.k is not None
    _require(not needs_k or _is_int(schema.k, 1, 2**24), "k", "a whole number from 1 to 2²⁴", schema.k)
    _require(_is_int(schema.max_nodes, 1, MAX_GRAPH_NODES), "max_nodes", "1 to 2³²", schema.max_nodes)
    _require(
        _is_int(schema.key_length, 1, MAX_KEY_LENGTH),
        "key_length",
        f"1 to {MAX_KEY_LENGTH}",
        schema.key_length,
    )
    _require(isinstance(schema.directed, bool), "directed", "true or false", schema.directed)
    for column in schema.columns:
        _check_column(column)
    _require(
        schema.edges != "none" or all(column.level != "edge" for column in schema.columns),
        "columns",
        "no edge columns where no edges are stored",
        [column.key for column in schema.columns if column.level == "edge"],
    )
    keys = [column.key for column in schema.columns]
    attributes = [column.attribute for column in schema.columns] + [view.attribute for view in schema.views]
    for what, names in (("column keys", keys), ("attributes", attributes)):
        _require(len(set(names)) == len(names), what, "each name once", names)
    for view in schema.views:
        source = next((column for column in schema.columns if column.key == view.source), None)
        width = source.shape[0] if source is not None and source.shape else 0
        _require(
            isinstance(view.attribute, str)
            and _is_int(view.start, 0, width)
            and _is_int(view.stop, 0, width)
            and view.start <= view.stop,
            f"view {view.attribute!r}",
            "a range of the components of a stored column",
            f"{view.source}[{view.start}:{view.stop}]",
        )


def _check_column(column: Column) -> None:
    what = f"column {column.key!r}"
    valid = isinstance(column.key, str) and _COLUMN_KEY.fullmatch(column.key) is not None
    _require(valid, what, "node/NAME, edge/NAME or graph/NAME", column.key)
    _require(column.key not in _RESERVED, what, "a name that the format does not use itself", column.key)
    attribute = isinstance(column.attribute, str) and column.attribute.isidentifier()
    _require(attribute, f"attribute of {what}", "an identifier", column.attribute)
    for name, value, allowed in (
        ("stored dtype", column.stored, STORED_DTYPES),
        ("presented dtype", column.presented, PRESENTED_DTYPES),
    ):
        valid = isinstance(value, str) and value in allowed
        _require(valid, f"{name} of {what}", ", ".join(sorted(allowed)), value)
    sizes = isinstance(column.shape, tuple) and len(column.shape) <= 8
    sizes = sizes and all(_is_int(size, 0, 2**31) for size in column.shape)
    _require(sizes, f"shape of {what}", "at most 8 whole numbers", column.shape)
    row_bytes = np.dtype(column.stored).itemsize * math.prod(column.shape)
    _require(row_bytes <= MAX_ROW_BYTES, f"shape of {what}", "rows of at most 2 GiB", column.shape)
    words = (column.unit, column.doc, *column.fields)
    _require(all(isinstance(word, str) for word in words), f"words of {what}", "texts", words)
    for name in ("low", "high"):
        bound = getattr(column, name)
        number = bound is None or (isinstance(bound, int | float) and not isinstance(bound, bool))
        number = number and (bound is None or -(2**64) < bound < 2**64 or isinstance(bound, float))
        _require(number, f"{name} of {what}", "a number or none", bound)
    form = column.form in {"axis", "row", "number", "text"}
    _require(form, f"form of {what}", "axis, row, number or text", column.form)
    _require(isinstance(column.finite, bool), f"finite of {what}", "true or false", column.finite)
    classes = column.num_classes is None or _is_int(column.num_classes, 0)
    _require(classes, f"num_classes of {what}", "a whole number or none", column.num_classes)


def _is_int(value: object, low: int, high: int | None = None) -> bool:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return whole and low <= value and (high is None or value <= high)  # type: ignore[operator]


def _require(condition: bool, what: str, expected: str, found: object) -> None:
    if not condition:
        raise UsageError(
            f"The schema cannot be stored: {what} is not valid.", expected=expected, found=repr(found)
        )
