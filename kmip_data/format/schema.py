"""Schema of a shard: its columns with dtypes, shapes and units, and the layout of edges.

A :class:`Schema` lists the columns of a dataset, how PyTorch Geometric presents them, and the layout
of edges. It depends on parameters and manifest, never on the data of one shard, and is written into
every shard as JSON (``docs/format.md`` is normative). It determines the HDF5 datasets of a shard
(:class:`ExpectedArray`).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from kmip_data.arrays import I64, Array, DType
from kmip_data.errors import UsageError
from kmip_data.files.small_files import canonical_json, first_problem

FORMAT_NAME = "kmip-data"  #: value of the root attribute ``format``
FORMAT_VERSION = 1  #: value of the root attribute ``format_version``

NODE_PTR = "graph/node_ptr"  #: int64 [G+1], first node of each graph
EDGE_PTR = "graph/edge_ptr"  #: int64 [G+1], first edge of each graph; only with EDGE_INDEX
GRAPH_KEY = "graph/key"  #: fixed-length bytes [G], upstream identity of each graph
NEIGHBOR = "edge/neighbor"  #: uint16|uint32 [ΣN, k], sources of each target, nearest first
EDGE_INDEX = "edge/index"  #: uint16|uint32 [2, ΣE], indices inside the graph
COORDINATE_ENCODING = "node/coordinate_encoding"  #: column of cities
PART_DOC = "part: 0 train, 1 val, 2 test, 255 none"  #: doc of a column that defines a split
#: doc of a column of groups: items with the same number are in one part of a random split
GROUP_DOC = "group: equal values are in one part of a split; negative: no group"
#: docs of digests by RDKit: equal molecules, and molecules with the same scaffold
MOLECULE_DOC = "digest of the canonical SMILES"
SCAFFOLD_DOC = "digest of the Bemis-Murcko scaffold"
#: docs of columns that only splits read
_SPLIT_DOCS = {PART_DOC, GROUP_DOC, MOLECULE_DOC, SCAFFOLD_DOC}
#: column of your own node ids in a single graph: integers, or UTF-8 padded with zeros
NODE_ID = "node/node_id"
#: unit of decimal logarithms; metrics are computed on 10 to the power of the values
LOG10_UNIT = "log10"
LINK_ATTRIBUTE = "contact"  #: attribute of links to predict: one row of bits per node

EdgeLayout = Literal["neighbor", "index", "none"]
#: Kind of a field of a feature column: a number, a category as 0 and 1 of one of its values, a
#: category as an integer code, false and true as 0 and 1, a mark of missing values, or a coordinate.
FieldKind = Literal["number", "one-hot", "category", "boolean", "missing", "position"]
ItemForm = Literal["axis", "row", "number", "text"]
_Size = Annotated[int, Field(ge=0, le=2**31)]
_Bound = Annotated[int, Field(gt=-(2**64), lt=2**64)] | float | None
# Strict, because a schema may come from an untrusted file.
_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True, kw_only=True)
class Column:
    """Array of a shard with one row per node, edge or graph."""

    __pydantic_config__ = _STRICT

    #: HDF5 path without the leading slash, such as ``node/x``; its first component is the level
    key: Annotated[str, Field(pattern=r"^(graph|node|edge)/[A-Za-z][A-Za-z0-9_]{0,99}$")]
    attribute: str  #: name on the :class:`torch_geometric.data.Data` item
    stored: str  #: numpy dtype on disk, the narrowest lossless one
    presented: str  #: numpy dtype on the item
    #: shape of one row; ``()`` for a scalar
    shape: Annotated[tuple[_Size, ...], Field(max_length=8)] = ()
    unit: str = ""
    doc: str = ""
    #: names of the components of a row, with units if they have one (``"x [m]"``)
    fields: tuple[str, ...] = ()
    #: inclusive bounds of all values, checked on writing; ``None`` if unbounded
    low: _Bound = None
    high: _Bound = None
    finite: bool = True
    num_classes: Annotated[int, Field(ge=0)] | None = None  #: set on label columns
    #: form of a graph-level column on the item. ``axis``: the row with a leading axis of one, so that
    #: shape ``()`` becomes ``[1]`` and ``(T,)`` becomes ``[1, T]``, as PyTorch Geometric does for
    #: targets; ``row``: the row; ``number``: a Python number; ``text``: a string, stored as UTF-8
    #: bytes padded with zeros. Ignored for node and edge columns.
    form: ItemForm = "axis"

    @property
    def upper_bound(self) -> float | None:
        """Upper bound of the values: ``high`` or the last class; ``None`` if unbounded."""
        # In a row of several labels, each label is 0 or 1.
        if self.num_classes is None or self.shape or self.stored.startswith("float"):
            return self.high
        last_class = self.num_classes - 1
        return last_class if self.high is None else min(self.high, last_class)

    @property
    def level(self) -> str:
        """Owner of a row: ``node``, ``edge`` or ``graph``."""
        return self.key.split("/", 1)[0]

    def problem(self, values: Array) -> str:
        """Describe how values (rows, …) violate the column; empty if they do not."""
        if not values.size:
            return ""
        # If NaN is allowed, the bounds ignore it.
        low = values.min() if self.finite else np.fmin.reduce(values, axis=None)
        high = values.max() if self.finite else np.fmax.reduce(values, axis=None)
        if self.finite and not (np.isfinite(low) and np.isfinite(high)):
            return "has values that are not finite"
        is_too_high = self.upper_bound is not None and high > self.upper_bound
        is_too_low = self.low is not None and low < self.low
        if is_too_high or is_too_low:
            return f"is {low} to {high}, not {self.low} to {self.upper_bound}"
        return ""


@dataclass(frozen=True, kw_only=True)
class View:
    """Item attribute that is a slice of a stored column: ``attribute = source[:, start:stop]``."""

    __pydantic_config__ = _STRICT

    attribute: str
    source: str  #: key of the column
    start: _Size
    stop: _Size


@dataclass(frozen=True, kw_only=True)
class Schema:
    """Columns, views and edge layout of a dataset."""

    __pydantic_config__ = _STRICT

    columns: tuple[Column, ...]
    views: tuple[View, ...] = ()
    #: ``neighbor``: a table of ``k`` sources per node (``edge/neighbor``); ``index``: an edge list
    #: (``edge/index``); ``none``: no edges
    edges: EdgeLayout = "index"
    k: Annotated[int, Field(ge=1, le=2**24)] | None = None
    #: largest graph allowed by the manifest; determines the dtype of indices
    max_nodes: Annotated[int, Field(ge=1, le=2**32)] = 65_536
    directed: bool = True
    #: largest length of a record's key in bytes
    key_length: Annotated[int, Field(ge=1, le=1024)] = 64

    @property
    def index_dtype(self) -> str:
        """``uint16`` if all node indices fit, else ``uint32``."""
        return "uint16" if self.max_nodes <= 65_536 else "uint32"

    def column(self, key: str) -> Column:
        """Return the column stored at ``key``."""
        return next(column for column in self.columns if column.key == key)

    @property
    def attributes(self) -> list[str]:
        """Attributes of the stored columns, in order."""
        return [column.attribute for column in self.columns]

    @property
    def split_attributes(self) -> set[str]:
        """Attributes that define splits; items have them only if they are requested."""
        return {column.attribute for column in self.columns if column.doc in _SPLIT_DOCS}

    @property
    def y_column(self) -> Column | None:
        """Column presented as ``y``, or ``None``."""
        return next((column for column in self.columns if column.attribute == "y"), None)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features ``x`` of nodes."""
        return next((column.fields for column in self.columns if column.attribute == "x"), ())

    @property
    def is_in_metres(self) -> bool:
        """True if positions are in metres."""
        for view in self.views:
            if view.attribute == "pos":
                column = self.column(view.source)
                return column.unit == "m" or column.fields[view.start : view.stop][:1] == ("x [m]",)
        return any(column.attribute == "pos" and column.unit == "m" for column in self.columns)

    @property
    def link_column(self) -> Column | None:
        """Column of links to predict, or ``None``; bit j in the row of node i is the pair (i, j)."""
        for column in self.columns:
            is_node_row = column.level == "node" and len(column.shape) == 1
            is_bits = column.stored == column.presented == "uint8"
            if column.attribute == LINK_ATTRIBUTE and is_node_row and is_bits:
                return column
        return None

    def to_json(self) -> str:
        """Return canonical JSON: equal schemas give equal bytes."""
        columns = [vars(column) for column in self.columns]
        views = [vars(view) for view in self.views]
        return canonical_json({**vars(self), "columns": columns, "views": views})


#: Numeric dtypes of which every bit pattern is valid, as mapped views require. A boolean is stored as
#: ``uint8`` and presented as ``bool``.
STORED_DTYPES = frozenset(
    {"float16", "float32", "float64"}
    | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
)
RESERVED_KEYS = frozenset({NODE_PTR, EDGE_PTR, GRAPH_KEY, NEIGHBOR, EDGE_INDEX})


@dataclass(frozen=True)
class ExpectedArray:
    """HDF5 dataset that a shard must hold by its schema."""

    key: str
    dtype: DType  #: always little-endian
    per: str  #: owner of a row: graph, node or edge; ``pointer`` has one row more than graphs
    row_shape: tuple[int, ...] = ()

    @property
    def row_axis(self) -> int:
        """Axis of the rows: 1 for ``edge/index`` [2, ΣE], else 0."""
        return int(self.key == EDGE_INDEX)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.dtype.itemsize * math.prod(self.row_shape)

    def shape(self, graphs: int, nodes: int, edges: int) -> tuple[int, ...]:
        """Return the shape in a shard with these counts."""
        rows = {"pointer": graphs + 1, "graph": graphs, "node": nodes, "edge": edges}[self.per]
        return (*self.row_shape, rows) if self.row_axis else (rows, *self.row_shape)


class ShardStructure(NamedTuple):
    """Attributes, schema, offsets of the data and row pointers of a shard."""

    dataset: str
    build_key: str
    schema: Schema
    expected_arrays: dict[str, ExpectedArray]
    graphs: int
    nodes: int
    edges: int
    offsets: dict[str, int | None]  #: first byte of each dataset
    node_ptr: I64  #: [G+1], first node of each graph
    edge_ptr: I64  #: [G+1], first edge of each graph; zero without edges


def expected_arrays(schema: Schema, schema_text: str = "") -> dict[str, ExpectedArray]:
    """Return all arrays of a shard with ``schema`` by key, in the order of writing.

    ``schema_text`` is the schema's JSON, if it is at hand.

    Raises ``UsageError`` if the schema cannot be stored, for example because of an unsupported dtype
    or a missing ``k``.
    """
    try:
        return parse_schema(schema_text or schema.to_json())[1]
    except ValueError as error:
        raise UsageError(
            f"The schema cannot be stored: {error}", steps="see docs/format.md"
        ) from error


@functools.cache
def _schema_adapter() -> TypeAdapter[Schema]:
    return TypeAdapter(Schema)


@functools.lru_cache(maxsize=16)
def parse_schema(text: str) -> tuple[Schema, dict[str, ExpectedArray]]:
    """Parse a schema from JSON, and derive its arrays; cached, as all shards of a build share it.

    Raises ``ValueError`` if ``text`` is not a schema, or if the schema cannot be stored.
    """
    try:
        schema = _schema_adapter().validate_json(text)
    except ValidationError as error:
        raise ValueError(first_problem(error)) from error
    _check_schema(schema)
    pointer = np.dtype("<i8")
    index = np.dtype(schema.index_dtype).newbyteorder("<")
    columns: dict[str, list[ExpectedArray]] = {"graph": [], "node": [], "edge": []}
    for column in schema.columns:
        dtype = np.dtype(column.stored).newbyteorder("<")
        columns[column.level].append(ExpectedArray(column.key, dtype, column.level, column.shape))

    # The order of writing, which affects the bytes of every shard.
    entries = [ExpectedArray(NODE_PTR, pointer, "pointer")]
    if schema.edges == "index":
        entries.append(ExpectedArray(EDGE_PTR, pointer, "pointer"))
    entries.append(ExpectedArray(GRAPH_KEY, np.dtype(f"S{schema.key_length}"), "graph"))
    entries += columns["graph"]
    entries += columns["node"]
    if schema.edges == "neighbor":
        entries.append(ExpectedArray(NEIGHBOR, index, "node", (schema.k or 0,)))
    if schema.edges == "index":
        entries.append(ExpectedArray(EDGE_INDEX, index, "edge", (2,)))
    entries += columns["edge"]
    return schema, {entry.key: entry for entry in entries}


def shard_member_name(file: str, number: int) -> str:
    """Return the file name of a member of a split shard: ``00000-00002.h5`` of ``00000.h5``."""
    return f"{file.removesuffix('.h5')}-{number:05d}.h5"


def bytes_per_graph_node_edge(schema: Schema) -> tuple[int, int, int]:
    """Return the bytes that one graph, one node and one edge add to a shard.

    A neighbour table is part of the node bytes, because it has one row per node.
    """
    totals = {"graph": 0, "node": 0, "edge": 0}
    for entry in expected_arrays(schema).values():
        totals["graph" if entry.per == "pointer" else entry.per] += entry.row_bytes
    return totals["graph"], totals["node"], totals["edge"]


def _check_schema(schema: Schema) -> None:
    """Raise ``ValueError`` for the first part of a schema that the format cannot store."""
    _require(
        schema.edges != "neighbor" or schema.k is not None,
        "k, the number of neighbours, is missing",
    )
    for column in schema.columns:
        subject = f"column {column.key!r}"
        attribute = column.attribute
        _require(column.key not in RESERVED_KEYS, f"{subject} has a name reserved by the format")
        _require(attribute.isidentifier(), f"attribute {attribute!r} is not an identifier")
        _require(
            column.stored in STORED_DTYPES, f"{subject} has the stored dtype {column.stored!r}"
        )
        can_present = column.presented in {*STORED_DTYPES, "bool"}
        _require(can_present, f"{subject} has the presented dtype {column.presented!r}")
        row_bytes = np.dtype(column.stored).itemsize * math.prod(column.shape)
        _require(
            row_bytes <= 2**31, f"{subject} has the shape {column.shape}: rows of more than 2 GiB"
        )
        has_edges = schema.edges != "none" or column.level != "edge"
        _require(has_edges, f"{subject} needs edges, but none are stored")

    # Keys and attributes must be unique.
    keys = [column.key for column in schema.columns]
    attributes = schema.attributes + [view.attribute for view in schema.views]
    for names in (keys, attributes):
        _require(len(set(names)) == len(names), f"a name occurs twice in {names}")
    # A view must be a slice of the first axis of a stored column.
    widths = {column.key: column.shape[0] for column in schema.columns if column.shape}
    for view in schema.views:
        is_valid = view.start <= view.stop <= widths.get(view.source, 0)
        selection = f"{view.source}[{view.start}:{view.stop}]"
        _require(
            is_valid, f"view {view.attribute!r} is {selection}, which is not within a stored column"
        )


def node_id_texts(ids: Array) -> list[str]:
    """Return ids of nodes as texts: stored as integers (N,) or as UTF-8 (N, bytes) padded with zeros."""
    if ids.ndim == 1:
        return [*map(str, ids.tolist())]
    return [bytes(row).rstrip(b"\0").decode(errors="replace") for row in ids]


def _require(condition: bool, problem: str) -> None:
    if not condition:
        raise ValueError(problem)
