"""Graphs as named arrays, and one pass over them, which gives the schema to store them with."""

from __future__ import annotations

import hashlib
import inspect
import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import Batch, Data, HeteroData

from kmip_data.errors import UsageError, writing
from kmip_data.format.schema import RESERVED, Column, ItemForm, Schema
from kmip_data.format.writer import GraphRecord

Kind = Literal["tensor", "int", "float", "bool", "text"]

_NUMBERS: dict[type, Kind] = {bool: "bool", int: "int", float: "float"}
_NUMBER_DTYPES = {"int": np.int64, "float": np.float64, "bool": np.bool_}


@dataclass(frozen=True)
class PlainGraph:
    """One graph as named arrays: a tensor's numbers, a Python number without axes, a text's UTF-8 bytes."""

    name: str  #: for messages and as its key
    num_nodes: int
    values: Mapping[str, NDArray[Any]]
    types: Mapping[str, Kind]  #: what each value was

    @property
    def num_edges(self) -> int | None:
        """Columns of ``edge_index``; ``None`` without one."""
        return self.values["edge_index"].shape[1] if "edge_index" in self.values else None


def plain_graph(data: Any, name: str) -> PlainGraph:
    """Return ``data`` as arrays.

    It is a UsageError if it is not a homogeneous ``Data`` of dense tensors, numbers and texts.
    """
    kind = type(data).__name__
    if isinstance(data, HeteroData) or not isinstance(data, Data) or isinstance(data, Batch):
        advice = "save(data.to_homogeneous() …)" if isinstance(data, HeteroData) else None
        raise _unfit(name, f"{kind} is not a homogeneous graph (torch_geometric.data.Data)", advice)
    if any(inspect.getattr_static(type(data), n) is not Data.__dict__[n] for n in ("__inc__", "__cat_dim__")):
        raise _unfit(name, f"{kind} has rules of its own for batching, which plain Data would not bring back")
    graph = data.batch
    if isinstance(graph, torch.Tensor) and graph.numel() and bool((graph != graph.flatten()[0]).any()):
        raise _unfit(name, "it is several graphs", "save the graphs that it was made of, as a list")
    values: dict[str, NDArray[Any]] = {}
    types: dict[str, Kind] = {}
    for attribute, value in data.to_dict().items():
        values[attribute], types[attribute] = _plain(value, attribute, name)
    edges = values.get("edge_index")
    if edges is not None and (edges.dtype != np.int64 or edges.ndim != 2 or len(edges) != 2):
        found = f"{edges.dtype} {list(edges.shape)}"
        raise _unfit(name, f"its edge_index is not valid: {found}, not int64 [2, E]")
    return PlainGraph(name, int(data.num_nodes or 0), values, types)


def _unfit(name: str, why: str, advice: str | None = None) -> UsageError:
    return UsageError(f"Graph {name} cannot be saved: {why}.", next=advice)


def _plain(value: Any, attribute: str, name: str) -> tuple[NDArray[Any], Kind]:
    if type(value) in _NUMBERS:
        kind = _NUMBERS[type(value)]
        try:
            return np.array(value, _NUMBER_DTYPES[kind]), kind
        except OverflowError:
            pass
    elif isinstance(value, str):
        text = value.encode("utf-8")
        if not text.endswith(b"\0"):
            return np.frombuffer(text, np.uint8), "text"
    elif type(value) in {torch.Tensor, torch.nn.Parameter} and value.layout == torch.strided:
        try:
            array = value.detach().cpu().numpy()
        except TypeError:  # bfloat16 and others that numpy does not have
            pass
        else:
            if array.dtype.kind in "biuf":
                return array, "tensor"
    of = f" ({value.dtype}, {value.layout})" if isinstance(value, torch.Tensor) else ""
    raise UsageError(
        f"Attribute {attribute!r} of graph {name} cannot be saved: {type(value).__name__}{of} is not a dense "
        "tensor of booleans, integers or floats of up to 64 bits, a number or a text.",
        next=f"leave it out (del data.{attribute}) or turn it into a dense tensor",
    )


class Spool:
    """Keeps graphs in a new file, which the caller removes, for sources that can be read only once."""

    def __init__(self, path: Path, graphs: Iterable[PlainGraph]) -> None:
        self._path, self._count = path, 0
        with writing(path), path.open("xb") as file:
            for self._count, graph in enumerate(graphs, start=1):
                pickle.dump(graph, file, pickle.HIGHEST_PROTOCOL)

    def __iter__(self) -> Iterator[PlainGraph]:
        with self._path.open("rb") as file:
            for _ in range(self._count):
                yield pickle.load(file)  # noqa: S301 -- written above


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
            was = f"{self.dtype} {list(self.shape)}, as in every graph before"
            if before != {"graph"}:
                owners = " or ".join(sorted(before))
                was = f"{self.dtype}, rows of shape {list(self.shape[1:])}, one for each {owners}"
            size = f"in a graph of {graph.num_nodes} nodes and {graph.num_edges or 0} edges"
            raise UsageError(
                f"Attribute {self.name!r} of graph {graph.name} does not go with those before it.",
                expected=was,
                found=f"{value.dtype} {list(value.shape)}, {size}",
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
        """Return the level with the most rows; the name decides between nodes and edges."""
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
            raise UsageError("There is nothing to save: no graph.")

    def _add(self, graph: PlainGraph) -> None:
        first = self.graphs == 0
        if first:
            for name, value in graph.values.items():
                kind = graph.types[name]
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
                next=f"give every graph the attribute {name!r}, or none",
            )
        for name, kind in graph.types.items():
            if kind != self._attributes[name].kind:
                what = f"Attribute {name!r} of graph {graph.name} has another type than before"
                raise UsageError(f"{what}: {kind}, not {self._attributes[name].kind}.")

    def content_digest(self) -> str:
        """Return the SHA-256 (hex) over names, sizes, dtypes and values of all graphs, in order."""
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
        what = f"Graph {graph.name} changed while it was saved: {column.attribute} has other values."
        raise UsageError(what, next="save a list of the graphs")
    return stored
