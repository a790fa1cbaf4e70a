"""Graphs as named arrays, and the schema to store them with."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch_geometric.data import Batch, Data

from kmip_data.arrays import I64, Array, DType
from kmip_data.errors import UsageError
from kmip_data.format.levels import fitting_levels, form_of, likeliest_level
from kmip_data.format.schema import RESERVED, Column, EdgeLayout, ItemForm, Schema
from kmip_data.format.writer import GraphRecord

ValueKind = Literal["tensor", "int", "float", "bool", "str"]

_NUMBERS: dict[ValueKind, type[np.generic]] = {
    "int": np.int64,
    "float": np.float64,
    "bool": np.bool_,
}
_MAX_CLASSES = 2**20  #: most classes; larger numbers in ``y`` are not classes


@dataclass(frozen=True)
class DenseGraph:
    """One graph as named arrays: a tensor's numbers, a Python number without axes, a text's UTF-8 bytes."""

    name: str  #: for messages and as its key
    num_nodes: int
    values: Mapping[str, Array]
    kinds: Mapping[str, ValueKind]  #: original type of each value

    @property
    def num_edges(self) -> int | None:
        """Columns of ``edge_index``; ``None`` without one."""
        return self.values["edge_index"].shape[1] if "edge_index" in self.values else None


def dense_graph(data: object, name: str) -> DenseGraph:
    """Return a homogeneous ``Data`` of dense tensors, numbers and texts as arrays.

    Anything else is refused.
    """
    unfit = f"Graph {name} cannot be saved"
    kind = type(data).__name__
    if not isinstance(data, Data) or isinstance(data, Batch):
        raise UsageError(
            f"{unfit}: {kind} is not a homogeneous graph (torch_geometric.data.Data).",
            next="save Data, such as data.to_homogeneous() of HeteroData or batch.to_data_list()",
        )
    for rule in ("__inc__", "__cat_dim__"):
        if inspect.getattr_static(type(data), rule) is not Data.__dict__[rule]:
            raise UsageError(
                f"{unfit}: {kind} has rules of its own for batching, which would be lost."
            )
    if isinstance(data.batch, torch.Tensor) and data.batch.unique().numel() > 1:  # type: ignore[no-untyped-call]
        raise UsageError(
            f"{unfit}: it is several graphs.", next="save those it was made of, as a list"
        )

    values = {}
    kinds = {}
    for attribute, value in data.to_dict().items():
        values[attribute], kinds[attribute] = _plain(value, attribute, name)
    edges = values.get("edge_index")
    if edges is not None and (edges.dtype != np.int64 or edges.ndim != 2 or len(edges) != 2):
        raise UsageError(
            f"{unfit}: its edge_index is not valid.",
            found=f"{edges.dtype} {list(edges.shape)}, not int64 [2, E]",
        )
    return DenseGraph(name, int(data.num_nodes or 0), values, kinds)


def _plain(value: Any, attribute: str, name: str) -> tuple[Array, ValueKind]:
    kind: Any = type(value).__name__
    try:
        if kind in _NUMBERS:
            return np.array(value, _NUMBERS[kind]), kind
        if kind == "str" and not value.endswith("\0"):  # shorter texts are padded with zeros
            return np.frombuffer(value.encode(), np.uint8), kind
        if type(value) in {torch.Tensor, torch.nn.Parameter} and value.layout == torch.strided:
            array = value.detach().cpu().numpy()
            if array.dtype.kind in "biuf":
                return array, "tensor"
    except (OverflowError, TypeError, UnicodeError, NotImplementedError):
        pass  # more than 64 bits; bfloat16, which numpy does not have; half a surrogate; meta
    if isinstance(value, torch.Tensor):
        kind += f" ({value.dtype}, {value.layout})"
    raise UsageError(
        f"Attribute {attribute!r} of graph {name} cannot be saved: {kind} is not a dense "
        "tensor of booleans, integers or floats of up to 64 bits, a number or a text.",
        next=f"leave it out (del data.{attribute}) or turn it into a dense tensor",
    )


@dataclass
class _Attribute:
    """Properties of one attribute in all graphs read so far."""

    name: str
    kind: ValueKind
    dtype: DType
    shape: tuple[int, ...]  #: in the first graph
    #: Levels whose rows it can be
    levels: set[str] = field(default_factory=lambda: {"node", "edge", "graph"})
    low: int | None = None
    high: int | None = None
    lowest: int | None = None  #: smallest value other than -1
    finite: bool = True
    longest: int = 1  #: bytes of a text

    def add(self, value: Array, graph: DenseGraph) -> None:
        if self.kind == "str":
            self.longest = max(self.longest, value.size)
            return

        # Each graph leaves fewer levels: a column of nodes has as many rows as nodes in every
        # graph.
        fits = fitting_levels(value.shape, self.shape, graph.num_nodes, graph.num_edges)
        if value.dtype != self.dtype or not self.levels & fits:
            levels = " or ".join(sorted(self.levels))
            raise UsageError(
                f"Attribute {self.name!r} of graph {graph.name} does not go with those before it.",
                expected=f"{self.dtype}, one row of {list(self.shape[1:])} for each {levels}",
                found=(
                    f"{value.dtype} {list(value.shape)} "
                    f"({graph.num_nodes} nodes, {graph.num_edges} edges)"
                ),
                next=f"leave {self.name!r} out or pad it, so that it has one row per node, edge or graph",
            )
        self.levels &= fits
        if value.size and self.dtype.kind in "iub":
            low = int(value.min())
            high = int(value.max())
            self.low = low if self.low is None else min(self.low, low)
            self.high = high if self.high is None else max(self.high, high)
            if self.name == "y" and (known := value[value != -1]).size:
                lowest = int(known.min())
                self.lowest = lowest if self.lowest is None else min(self.lowest, lowest)
        elif value.size and self.finite:
            self.finite = bool(np.isfinite(value).all())

    def column(self) -> Column:
        level = self._level()
        key = f"{level}/{self.name}"
        if key in RESERVED:
            key = f"{level}/column_{self.name}"
        form, shape = self._form(level)

        num_classes = None
        labels = self.name == "y" and self.dtype.kind in "iu" and not shape and form == "axis"
        if labels and self.high is not None and 0 <= self.high < _MAX_CLASSES:
            num_classes = self.high + 1
            if self.low == -1 and self.lowest == self.high:
                raise UsageError(
                    f"y is -1 and {self.high}: two classes, a class and no label, or numbers.",
                    next="data.y[data.y == -1] = 0 where it is a class; "
                    "data.y = data.y.float() where it is a number",
                )
        return Column(
            key=key,
            attribute=self.name,
            stored=self.stored,
            presented=self.dtype.name,
            shape=shape,
            low=self.low,
            high=self.high,
            finite=self.finite,
            num_classes=num_classes,
            form=form,
        )

    def _level(self) -> str:
        """Return the likeliest of the levels that fit in all graphs."""
        if self.kind != "tensor":
            return "graph"
        return likeliest_level(self.name, len(self.shape), self.levels)

    def _form(self, level: str) -> tuple[ItemForm, tuple[int, ...]]:
        if self.kind == "str":
            return "text", (self.longest,)
        if self.kind != "tensor":
            return "number", ()
        return form_of(level, self.shape)

    @property
    def stored(self) -> str:
        """Return the narrowest dtype for all values; floats keep theirs."""
        if self.dtype.kind == "b":
            return "uint8"
        if self.low is None or self.high is None:
            return self.dtype.name
        # As many numbers below zero as at and above it fit into a signed dtype.
        farthest = self.high if self.low >= 0 else min(self.low, -self.high - 1)
        return np.min_scalar_type(farthest).name


class Survey:
    """Properties of all graphs, from which their schema follows.

    Raises ``UsageError`` where they do not go together.
    """

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.sizes: list[tuple[int, int]] = []  #: nodes and edges of each graph
        self._attributes: dict[str, _Attribute] = {}
        self._degrees: set[int | None] = set()  #: in-degrees of all nodes of a graph
        self._digest = hashlib.sha256()

    def add(self, graph: DenseGraph) -> None:
        """Look at one graph."""
        if not self.keys:
            for name, value in graph.values.items():
                self._attributes[name] = _Attribute(
                    name, graph.kinds[name], value.dtype, value.shape
                )
        for name in self._attributes.keys() ^ graph.values.keys():
            raise UsageError(
                f"Graph {graph.name} has other attributes than those before it.",
                next=f"give every graph the attribute {name!r}, or none",
            )
        self.keys.append(graph.name)
        self.sizes.append((graph.num_nodes, graph.num_edges or 0))
        self._digest.update(f"{graph.name} {graph.num_nodes}\n".encode())
        for name, value in graph.values.items():
            attribute = self._attributes[name]
            kind = graph.kinds[name]
            if kind != attribute.kind:
                raise UsageError(
                    f"Attribute {name!r} of graph {graph.name} has another type than before: "
                    f"{kind}, not {attribute.kind}."
                )
            if name == "edge_index":
                self._degrees.add(_fixed_degree(value, graph.num_nodes))
            else:
                attribute.add(value, graph)
            self._digest.update(f"{name} {value.dtype} {value.shape}\n".encode())
            self._digest.update(value.tobytes())

    def content_digest(self) -> str:
        """Return the SHA-256 (hex) over names, sizes, dtypes and values of all graphs, in order."""
        return self._digest.hexdigest()

    def schema(self, without: frozenset[str] = frozenset()) -> Schema:
        """Return the schema to store the graphs with, leaving out some attributes."""
        columns = []
        for name, attribute in self._attributes.items():
            if name != "edge_index" and name not in without:
                columns.append(attribute.column())

        # A neighbour table where all nodes of all graphs have the same number of sources.
        edges: EdgeLayout = "index" if self._degrees else "none"
        k = None
        if len(self._degrees) == 1:
            k = next(iter(self._degrees))
        if k is not None:
            edges = "neighbor"

        largest = max(nodes for nodes, _ in self.sizes)
        return Schema(
            columns=tuple(columns),
            edges=edges,
            k=k,
            max_nodes=65_536 if largest <= 65_536 else 2**32,
            key_length=max(8, *map(len, self.keys)),
        )


def _fixed_degree(edge_index: I64, nodes: int) -> int | None:
    """Return k if the columns are the k sources of node 0, then of node 1, …; else ``None``."""
    edges = edge_index.shape[1]
    if not nodes or not edges or edges % nodes:
        return None
    k = edges // nodes
    targets = edge_index[1].reshape(nodes, k)
    in_order = (targets == np.arange(nodes)[:, None]).all()
    return k if in_order else None


def to_record(graph: DenseGraph, schema: Schema) -> GraphRecord:
    """Return ``graph`` with the stored dtypes."""
    columns = {}
    for column in schema.columns:
        columns[column.key] = _stored(graph.values[column.attribute], column)

    edges = graph.values.get("edge_index")
    neighbor = None
    if edges is not None and schema.edges == "neighbor":
        neighbor = edges[0].reshape(graph.num_nodes, -1)
        edges = None
    return GraphRecord(
        key=graph.name,
        num_nodes=graph.num_nodes,
        columns=columns,
        neighbor=neighbor,
        edge_index=edges,
    )


def _stored(value: Array, column: Column) -> Array:
    if column.form == "text":
        return np.pad(value, (0, column.shape[0] - value.size))
    rows = value[0] if column.level == "graph" and column.form == "axis" else value
    return np.asarray(rows).astype(column.stored, copy=False)
