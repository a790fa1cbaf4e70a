"""One pass over the graphs of a dataset, which gives the schema to store them with."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kmip_data.errors import UsageError
from kmip_data.format.record import GraphRecord
from kmip_data.format.schema import RESERVED, Column, ItemForm, Schema
from kmip_data.saving.plain import Kind, PlainGraph

_SMALL_GRAPH: Final = 65_536  #: nodes up to which indices take two bytes
_LARGE_GRAPH: Final = 2**32
_INTEGERS: Final = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")


@dataclass
class _Attribute:
    """Properties of one attribute in all graphs read so far."""

    name: str
    kind: Kind
    dtype: np.dtype[Any]
    shape: tuple[int, ...]  #: in the first graph
    levels: set[str] = field(default_factory=lambda: {"node", "edge", "graph"})
    low: Any = None
    high: Any = None
    finite: bool = True
    longest: int = 0  #: bytes of a text

    def add(self, value: NDArray[Any], graph: PlainGraph) -> None:
        if self.kind == "text":
            self.longest = max(self.longest, value.size)
            return
        self._narrow(value, graph)
        if value.size and self.dtype.kind in "iub":
            low, high = int(value.min()), int(value.max())
            self.low = low if self.low is None else min(self.low, low)
            self.high = high if self.high is None else max(self.high, high)
        elif value.size and self.finite:
            self.finite = bool(np.isfinite(value).all())

    def _narrow(self, value: NDArray[Any], graph: PlainGraph) -> None:
        """Leave the levels whose rows the value can be; there must be one."""
        before = set(self.levels)
        rows = value.shape[0] if value.ndim else None
        tail = value.ndim > 0 and value.shape[1:] == self.shape[1:]
        if not (tail and rows == graph.num_nodes):
            self.levels.discard("node")
        if not (tail and graph.num_edges is not None and rows == graph.num_edges):
            self.levels.discard("edge")
        if value.shape != self.shape:
            self.levels.discard("graph")
        if value.dtype != self.dtype or not self.levels:
            was = " or ".join(sorted(before))
            raise UsageError(
                f"Attribute {self.name!r} of graph {graph.name} does not go with those before it.",
                expected=f"{self.dtype}, rows of shape {list(self.shape[1:])}, one for each {was}"
                if before != {"graph"}
                else f"{self.dtype} {list(self.shape)}, as in every graph before",
                found=f"{value.dtype} {list(value.shape)}, in a graph of {graph.num_nodes} nodes and "
                f"{graph.num_edges or 0} edges",
                next=f"leave {self.name!r} out or pad it, so that it has one row per node, edge or graph",
            )

    def column(self) -> Column:
        level = self._level()
        key = f"{level}/{self.name}"
        if key in RESERVED:
            key = f"{level}/column_{self.name}"
        form, shape = self._form(level)
        labels = self.name == "y" and self.dtype.kind in "iu" and not shape and form == "axis"
        return Column(
            key=key,
            attribute=self.name,
            stored=self.stored,
            presented=self.dtype.name if self.kind != "text" else "uint8",
            shape=shape,
            low=self.low if self.dtype.kind in "iub" else None,
            high=self.high if self.dtype.kind in "iub" else None,
            finite=self.finite,
            num_classes=self.high + 1 if labels and self.high is not None and self.high >= 0 else None,
            form=form,
        )

    def _level(self) -> str:
        """The level with the most rows; the name decides between nodes and edges."""
        order = ("edge", "node", "graph") if "edge" in self.name else ("node", "edge", "graph")
        return next(level for level in order if level in self.levels) if self.kind == "tensor" else "graph"

    def _form(self, level: str) -> tuple[ItemForm, tuple[int, ...]]:
        if self.kind == "text":
            return "text", (max(1, self.longest),)
        if self.kind != "tensor":
            return "number", ()
        if level != "graph" or (self.shape and self.shape[0] == 1):
            return "axis", self.shape[1:]
        return "row", self.shape

    @property
    def stored(self) -> str:
        """The narrowest dtype that holds every value; floats stay as they are."""
        if self.kind == "text" or self.dtype.kind == "b":
            return "uint8"
        if self.dtype.kind == "f" or self.low is None:
            return self.dtype.name
        fits = (np.iinfo(name) for name in _INTEGERS)
        return next(info.dtype.name for info in fits if info.min <= self.low and self.high <= info.max)


class Survey:
    """Look at every graph once, then say how to store them; UsageError where they do not go together."""

    def __init__(self, graphs: Iterable[PlainGraph]) -> None:
        self.graphs = 0
        self.largest = 0
        self.longest_key = 1
        self._attributes: dict[str, _Attribute] = {}
        self._degree: int | None = None  # of every node, while there is one
        self._digest = hashlib.sha256()
        for graph in graphs:
            self._add(graph)
        if not self.graphs:
            raise UsageError("There is nothing to save.", expected="at least one graph", found="none")

    def _add(self, graph: PlainGraph) -> None:
        first = self.graphs == 0
        if first:
            for name, value in graph.values.items():
                kind = graph.kinds[name]
                self._attributes[name] = _Attribute(name, kind, value.dtype, value.shape)
        self._check(graph)
        self.graphs += 1
        self.largest = max(self.largest, graph.num_nodes)
        self.longest_key = max(self.longest_key, len(graph.name))
        self._digest.update(f"{graph.name} {graph.num_nodes}\n".encode())
        for name, value in graph.values.items():
            if name != "edge_index":
                self._attributes[name].add(value, graph)
            self._digest.update(f"{name} {value.dtype} {value.shape}\n".encode())
            self._digest.update(value.tobytes())
        if "edge_index" in graph.values and (first or self._degree is not None):
            degree = fixed_degree(graph.values["edge_index"], graph.num_nodes)
            self._degree = degree if first or degree == self._degree else None

    def _check(self, graph: PlainGraph) -> None:
        for name in self._attributes.keys() ^ graph.values.keys():
            raise UsageError(
                f"Graph {graph.name} has other attributes than those before it.",
                expected=", ".join(self._attributes),
                found=", ".join(graph.values),
                next=f"give every graph the attribute {name!r}, or none",
            )
        for name, kind in graph.kinds.items():
            if kind != self._attributes[name].kind:
                raise UsageError(
                    f"Attribute {name!r} of graph {graph.name} has another type than before.",
                    expected=self._attributes[name].kind,
                    found=kind,
                    left="nothing was written",
                )

    def content_digest(self) -> str:
        """SHA-256 (hex) over names, sizes, dtypes and values of all graphs, in order."""
        return self._digest.hexdigest()

    def schema(self, without: frozenset[str] = frozenset()) -> Schema:
        """Return the schema to store the graphs with, leaving out some attributes."""
        columns = [a.column() for a in self._attributes.values() if a.name not in {"edge_index", *without}]
        small = self.largest <= _SMALL_GRAPH
        edges = "edge_index" in self._attributes
        return Schema(
            columns=tuple(columns),
            edges="none" if not edges else "index" if self._degree is None else "neighbor",
            k=self._degree if edges else None,
            max_nodes=_SMALL_GRAPH if small else _LARGE_GRAPH,
            key_length=max(8, self.longest_key),
        )


def fixed_degree(edge_index: NDArray[np.int64], nodes: int) -> int | None:
    """Return k if the columns are the k sources of node 0, those of node 1, …; else ``None``."""
    edges = edge_index.shape[1]
    if not nodes or not edges or edges % nodes:
        return None
    k = edges // nodes
    return k if (edge_index[1].reshape(nodes, k) == np.arange(nodes)[:, None]).all() else None


def to_record(graph: PlainGraph, schema: Schema) -> GraphRecord:
    """Return ``graph`` with the stored dtypes; UsageError if it changed since it was surveyed."""
    columns = {column.key: _stored(graph, column) for column in schema.columns}
    neighbor = edges = None
    if schema.edges == "neighbor":
        neighbor = graph.values["edge_index"][0].reshape(graph.num_nodes, schema.k or 0)
    elif schema.edges == "index":
        edges = graph.values["edge_index"]
    return GraphRecord(
        key=graph.name, num_nodes=graph.num_nodes, columns=columns, neighbor=neighbor, edge_index=edges
    )


def _stored(graph: PlainGraph, column: Column) -> NDArray[Any]:
    value = graph.values[column.attribute]
    if column.form == "text":
        padded = np.zeros(column.shape, np.uint8)
        padded[: value.size] = value
        return padded
    if column.level == "graph" and column.form == "axis":
        value = value[0]
    stored = np.asarray(value).astype(column.stored, copy=False)
    if stored.dtype.kind in "iu" and not np.array_equal(stored, value):
        raise UsageError(
            f"Graph {graph.name} changed while it was saved.",
            expected=f"{column.attribute} as it was read before",
            found="other values",
            left="nothing",
            next="save a list of the graphs",
        )
    return stored
