"""Schema of a shard: every HDF5 key and attribute, with shape, dtype and unit.

A :class:`Schema` lists the columns of a dataset, their presentation to PyTorch Geometric, and the
layout of edges. It depends on the parameters and the manifest, never on the data of one shard, and
is written into every shard as JSON (``docs/format.md`` is normative). The datasets of a shard
(:class:`ExpectedDataset`) follow from it.
"""

from __future__ import annotations

import functools
import math
from dataclasses import asdict, dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from kmip_data.arrays import Array, DType
from kmip_data.errors import UsageError
from kmip_data.files.reading import canonical_json, first_problem

FORMAT = "kmip-data"  #: value of the root attribute ``format``
FORMAT_VERSION = 1  #: value of the root attribute ``format_version``

NODE_PTR = "graph/node_ptr"  #: int64 [G+1], first node of each graph
EDGE_PTR = "graph/edge_ptr"  #: int64 [G+1], first edge of each graph; absent with NEIGHBOR
KEY = "graph/key"  #: fixed-length bytes [G], upstream identity of each graph
NEIGHBOR = "edge/neighbor"  #: uint16|uint32 [ΣN, k], sources of each target, nearest first
EDGE_INDEX = "edge/index"  #: uint16|uint32 [2, ΣE], indices inside the graph
COORDINATES = "node/coordinate_encoding"  #: a column of cities only
PART_DOC = "part: 0 train, 1 val, 2 test, 255 none"  #: doc of a column from which a split is made
#: column of the ids that your table gives the nodes of one graph: integers, or UTF-8 padded with zeros
NODE_ID = "node/node_id"
LOG10 = "log10"  #: unit of a column of decimal logarithms; metrics are of 10 to their power
LINKS = "contact"  #: attribute of links to predict: a row of bits per node

EdgeLayout = Literal["neighbor", "index", "none"]
ItemForm = Literal["axis", "row", "number", "text"]
_Size = Annotated[int, Field(ge=0, le=2**31)]
_Bound = Annotated[int, Field(gt=-(2**64), lt=2**64)] | float | None
# A schema may come from an untrusted file.
_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True, kw_only=True)
class Column:
    """One array of the shards."""

    __pydantic_config__ = _STRICT

    #: HDF5 path without the leading slash: ``node/x``, ``graph/y``, ``edge/attr``. The part before
    #: the slash is the level: one row per node, graph or edge
    key: Annotated[str, Field(pattern=r"^(graph|node|edge)/[A-Za-z][A-Za-z0-9_]{0,99}$")]
    attribute: str  #: name on the :class:`torch_geometric.data.Data` item
    #: stored, presented: numpy dtype names on disk and on the item. ``stored`` is the narrowest
    #: lossless one
    stored: str
    presented: str
    #: Shape of one row; ``()`` for a scalar.
    shape: Annotated[tuple[_Size, ...], Field(max_length=8)] = ()
    unit: str = ""
    doc: str = ""
    #: names of the components of a row, with units where they have one (``"x [m]"``)
    fields: tuple[str, ...] = ()
    #: low, high: inclusive bounds that every value keeps, checked when it is written; ``None``:
    #: unbounded
    low: _Bound = None
    high: _Bound = None
    finite: bool = True
    num_classes: Annotated[int, Field(ge=0)] | None = None  #: set on label columns
    #: Form of a *graph* column on the item: ``axis``, its row with a leading axis of one, so that
    #: shape ``()`` is presented as ``[1]`` and ``(T,)`` as ``[1, T]``, as PyTorch Geometric does
    #: for targets; ``row``, the row as it is; ``number``, a Python number; ``text``, a string
    #: stored as UTF-8 bytes padded with zeros. Node and edge columns are always rows
    form: ItemForm = "axis"

    @property
    def upper_bound(self) -> float | None:
        """Upper bound of the values: ``high``, or the last class; ``None``: unbounded."""
        # In a row of labels each is 0 or 1, however many there are.
        if self.num_classes is None or self.shape or self.stored.startswith("float"):
            return self.high
        last_class = self.num_classes - 1
        return last_class if self.high is None else min(self.high, last_class)

    @property
    def level(self) -> str:
        """``node``, ``edge`` or ``graph``: the owner of a row."""
        return self.key.split("/", 1)[0]

    def problem(self, values: Array) -> str:
        """Return the promise that some values (rows, …) break, for a message; empty if none."""
        if not values.size:
            return ""
        # Where NaN is allowed, it has no part in the bounds.
        least = values.min() if self.finite else np.fmin.reduce(values, axis=None)
        most = values.max() if self.finite else np.fmax.reduce(values, axis=None)
        if self.finite and not (np.isfinite(least) and np.isfinite(most)):
            return "has values that are not finite"
        beyond = self.upper_bound is not None and most > self.upper_bound
        if beyond or (self.low is not None and least < self.low):
            return f"is {least} to {most}, not {self.low} to {self.upper_bound}"
        return ""


@dataclass(frozen=True, kw_only=True)
class View:
    """An item attribute that is a slice of a stored column: ``attribute = source[:, start:stop]``."""

    __pydantic_config__ = _STRICT

    attribute: str
    source: str  #: key of the column
    start: _Size
    stop: _Size


@dataclass(frozen=True, kw_only=True)
class Schema:
    """The columns, views and edge layout of a dataset."""

    __pydantic_config__ = _STRICT

    columns: tuple[Column, ...]
    views: tuple[View, ...] = ()
    #: ``neighbor``: every node has exactly ``k`` sources (``edge/neighbor``); ``index``: an edge
    #: list (``edge/index``); ``none``: no edges stored
    edges: EdgeLayout = "index"
    k: Annotated[int, Field(ge=1, le=2**24)] | None = None
    #: Largest graph the manifest allows; sets the width of the indices. A larger graph is an error
    max_nodes: Annotated[int, Field(ge=1, le=2**32)] = 65_536
    directed: bool = True
    #: bytes kept for the key of each record; a longer key is an error
    key_length: Annotated[int, Field(ge=1, le=1024)] = 64

    @property
    def index_dtype(self) -> str:
        """``uint16`` where every index fits, else ``uint32``."""
        return "uint16" if self.max_nodes <= 65_536 else "uint32"

    def column(self, key: str) -> Column:
        """Return the column stored at ``key``."""
        return next(column for column in self.columns if column.key == key)

    @property
    def split_attributes(self) -> set[str]:
        """Attributes from which splits are made; an item has them only if they are named."""
        return {column.attribute for column in self.columns if column.doc == PART_DOC}

    @property
    def label_column(self) -> Column | None:
        """The column presented as ``y``, if there is one."""
        return next((column for column in self.columns if column.attribute == "y"), None)

    @property
    def link_column(self) -> Column | None:
        """The column of links to predict, if there is one: bit j in the row of node i is the pair (i, j)."""
        for column in self.columns:
            is_row_of_node = column.level == "node" and len(column.shape) == 1
            is_bits = column.stored == column.presented == "uint8"
            if column.attribute == LINKS and is_row_of_node and is_bits:
                return column
        return None

    def to_json(self) -> str:
        """Return canonical JSON, with sorted keys and no spaces: equal schemas give equal bytes."""
        return canonical_json(asdict(self))


#: dtypes a column may be stored with: numbers of fixed size, so that a mapped view is always valid.
#: A boolean is stored as ``uint8`` and presented as ``bool``.
STORED_DTYPES = frozenset(
    {"float16", "float32", "float64"}
    | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
)
RESERVED = frozenset({NODE_PTR, EDGE_PTR, KEY, NEIGHBOR, EDGE_INDEX})


@dataclass(frozen=True)
class ExpectedDataset:
    """One dataset that a shard of a schema holds."""

    key: str
    dtype: DType  #: always little-endian
    per: str  #: owner of a row: graph, node or edge; ``pointer`` has one row per graph and one more
    row: tuple[int, ...] = ()  #: shape of a row

    @property
    def row_axis(self) -> int:
        """The axis that counts rows: 1 for ``edge/index`` [2, ΣE], else 0."""
        return int(self.key == EDGE_INDEX)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.dtype.itemsize * math.prod(self.row)

    def shape(self, graphs: int, nodes: int, edges: int) -> tuple[int, ...]:
        """Shape in a shard with these counts."""
        count = {"pointer": graphs + 1, "graph": graphs, "node": nodes, "edge": edges}[self.per]
        return (*self.row, count) if self.row_axis else (count, *self.row)


def expected_datasets(schema: Schema) -> dict[str, ExpectedDataset]:
    """Return every dataset of a shard with ``schema`` by key, in the order in which they are written.

    Raises ``UsageError`` if the schema cannot be stored: a bad column key, an unsupported dtype, a
    missing ``k`` and so on.
    """
    try:
        return parse_schema(schema.to_json())[1]
    except ValueError as error:
        raise UsageError(
            f"The schema cannot be stored: {error}", next="see docs/format.md"
        ) from error


@functools.cache
def _schema_adapter() -> TypeAdapter[Schema]:
    return TypeAdapter(Schema)


@functools.lru_cache(maxsize=16)
def parse_schema(text: str) -> tuple[Schema, dict[str, ExpectedDataset]]:
    """Return a schema from its JSON, and its datasets.

    They are cached: all shards of a build have the same text.

    Raises ``ValueError`` if it is not a schema, or cannot be stored.
    """
    try:
        schema = _schema_adapter().validate_json(text)
    except ValidationError as error:
        raise ValueError(first_problem(error)) from error
    _check_schema(schema)
    pointer = np.dtype("<i8")
    index = np.dtype(schema.index_dtype).newbyteorder("<")
    columns: dict[str, list[ExpectedDataset]] = {"graph": [], "node": [], "edge": []}
    for column in schema.columns:
        dtype = np.dtype(column.stored).newbyteorder("<")
        columns[column.level].append(ExpectedDataset(column.key, dtype, column.level, column.shape))

    # The order in which they are written, so it decides the bytes of every shard.
    entries = [ExpectedDataset(NODE_PTR, pointer, "pointer")]
    if schema.edges == "index":
        entries.append(ExpectedDataset(EDGE_PTR, pointer, "pointer"))
    entries.append(ExpectedDataset(KEY, np.dtype(f"S{schema.key_length}"), "graph"))
    entries += columns["graph"]
    entries += columns["node"]
    if schema.edges == "neighbor":
        entries.append(ExpectedDataset(NEIGHBOR, index, "node", (schema.k or 0,)))
    if schema.edges == "index":
        entries.append(ExpectedDataset(EDGE_INDEX, index, "edge", (2,)))
    entries += columns["edge"]
    return schema, {entry.key: entry for entry in entries}


def shard_member_name(file: str, number: int) -> str:
    """Return the name of one member of a shard that is cut: ``00000-00002.h5`` of ``00000.h5``."""
    return f"{file.removesuffix('.h5')}-{number:05d}.h5"


def bytes_per_graph_node_edge(schema: Schema) -> tuple[int, int, int]:
    """Return the bytes that one graph, one node and one edge add to a shard.

    The neighbour table counts with the nodes: its size does not depend on the number of edges.
    """
    totals = {"graph": 0, "node": 0, "edge": 0}
    for entry in expected_datasets(schema).values():
        totals["graph" if entry.per == "pointer" else entry.per] += entry.row_bytes
    return totals["graph"], totals["node"], totals["edge"]


def _check_schema(schema: Schema) -> None:
    """Raise ValueError for the first part of a well-typed ``schema`` that the format cannot hold."""
    _require(
        schema.edges != "neighbor" or schema.k is not None,
        "k, the number of neighbours, is missing",
    )
    # Column by column, the first problem: names, types, then the bytes of a row.
    for column in schema.columns:
        subject = f"column {column.key!r}"
        attribute = column.attribute
        _require(column.key not in RESERVED, f"{subject} has a name that the format uses itself")
        _require(attribute.isidentifier(), f"attribute {attribute!r} is not an identifier")
        _require(
            column.stored in STORED_DTYPES, f"{subject} has the stored dtype {column.stored!r}"
        )
        presented = column.presented in {*STORED_DTYPES, "bool"}
        _require(presented, f"{subject} has the presented dtype {column.presented!r}")
        row_bytes = np.dtype(column.stored).itemsize * math.prod(column.shape)
        _require(
            row_bytes <= 2**31, f"{subject} has the shape {column.shape}: rows of more than 2 GiB"
        )
        has_edges = schema.edges != "none" or column.level != "edge"
        _require(has_edges, f"{subject} needs edges, and none are stored")

    # Two columns at one place, or under one attribute, would hide each other.
    keys = [column.key for column in schema.columns]
    attributes = [column.attribute for column in schema.columns]
    attributes += [view.attribute for view in schema.views]
    for names in (keys, attributes):
        _require(len(set(names)) == len(names), f"a name occurs twice in {names}")
    # A view is a slice of the first axis of a stored column.
    widths = {column.key: column.shape[0] for column in schema.columns if column.shape}
    for view in schema.views:
        section = f"{view.source}[{view.start}:{view.stop}]"
        inside = view.start <= view.stop <= widths.get(view.source, 0)
        _require(
            inside, f"view {view.attribute!r} is {section}, which is not within a stored column"
        )


def _require(condition: bool, problem: str) -> None:
    if not condition:
        raise ValueError(problem)
