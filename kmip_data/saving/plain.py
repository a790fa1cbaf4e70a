"""Homogeneous ``Data`` as named arrays, and a temporary file for them between two passes."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import Batch, Data, HeteroData

from kmip_data.errors import OutOfResources, UsageError

Kind = Literal["tensor", "int", "float", "bool", "text"]

_NUMBERS: dict[type, Kind] = {bool: "bool", int: "int", float: "float"}
_NUMBER_DTYPES = {"int": np.int64, "float": np.float64, "bool": np.bool_}


@dataclass(frozen=True)
class PlainGraph:
    """One graph as named arrays: a tensor's numbers, a Python number without axes, a text's UTF-8 bytes."""

    name: str  #: for messages and as its key
    num_nodes: int
    values: Mapping[str, NDArray[Any]]
    kinds: Mapping[str, Kind]  #: what each value was

    @property
    def num_edges(self) -> int | None:
        """Columns of ``edge_index``; ``None`` without one."""
        return self.values["edge_index"].shape[1] if "edge_index" in self.values else None


def plain_graph(data: Any, name: str) -> PlainGraph:
    """Return ``data`` as arrays.

    It is a UsageError if it is not a homogeneous ``Data`` of dense tensors, numbers and texts.
    """
    if isinstance(data, HeteroData) or not isinstance(data, Data) or isinstance(data, Batch):
        raise UsageError(
            f"Graph {name} cannot be saved.",
            expected="torch_geometric.data.Data: a homogeneous graph",
            found=type(data).__name__,
            next="save(data.to_homogeneous() …)" if isinstance(data, HeteroData) else None,
        )
    if any(inspect.getattr_static(type(data), n) is not Data.__dict__[n] for n in ("__inc__", "__cat_dim__")):
        raise UsageError(
            f"Graph {name} cannot be saved: its class has rules of its own for batching.",
            expected="Data as it is, because that is what comes back",
            found=type(data).__name__,
            left="nothing was written",
        )
    graph = data.batch
    if isinstance(graph, torch.Tensor) and graph.numel() and bool((graph != graph.flatten()[0]).any()):
        raise UsageError(
            f"Graph {name} cannot be saved: it is several graphs.",
            expected="one graph",
            found="a batch that names others",
            next="save the graphs that it was made of, as a list",
        )
    values: dict[str, NDArray[Any]] = {}
    kinds: dict[str, Kind] = {}
    for attribute, value in data.to_dict().items():
        values[attribute], kinds[attribute] = _plain(value, attribute, name)
    edges = values.get("edge_index")
    if edges is not None and (edges.dtype != np.int64 or edges.ndim != 2 or len(edges) != 2):
        raise UsageError(
            f"Graph {name} cannot be saved: its edge_index is not valid.",
            expected="int64 [2, E]",
            found=f"{edges.dtype} {list(edges.shape)}",
            left="nothing was written",
        )
    return PlainGraph(name, int(data.num_nodes or 0), values, kinds)


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
    found = f"{value.dtype} tensor" if isinstance(value, torch.Tensor) else type(value).__name__
    raise UsageError(
        f"Attribute {attribute!r} of graph {name} cannot be saved.",
        expected="a dense tensor of booleans, integers or floats of up to 64 bits, a number or a text",
        found=f"{type(value).__name__}, {value.layout}" if found.startswith("torch.float") else found,
        next=f"leave it out (del data.{attribute}) or turn it into a dense tensor",
    )


class Spool:
    """Keeps graphs in a new file, which the caller removes, for sources that can be read only once."""

    def __init__(self, path: Path, graphs: Iterable[PlainGraph]) -> None:
        self._path = path
        self._heads: list[tuple[str, int, dict[str, Kind]]] = []
        try:
            with path.open("xb") as file:
                for graph in graphs:
                    self._heads.append((graph.name, graph.num_nodes, dict(graph.kinds)))
                    for value in graph.values.values():
                        np.lib.format.write_array(file, np.ascontiguousarray(value).reshape(value.shape))
        except OSError as error:
            raise OutOfResources(
                f"The disk did not take {path}, which keeps the graphs until all are known.",
                expected="room for all graphs, uncompressed",
                found=str(error),
                left="nothing",
                next="free some space, or save a dataset that can be read twice: a list or a PyG dataset "
                "without transform",
            ) from error

    def __iter__(self) -> Iterator[PlainGraph]:
        with self._path.open("rb") as file:
            for name, num_nodes, kinds in self._heads:
                values = {attribute: np.lib.format.read_array(file) for attribute in kinds}
                yield PlainGraph(name, num_nodes, values, kinds)
