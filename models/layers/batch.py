"""Batches of graphs in the form that networks read, converted from PyTorch Geometric's objects.

Edges are an edge list, or, if every node has exactly k sources, a neighbour table (N, k). A table
needs no index for targets: values at the target broadcast along k, and sums run over k. Both give
the same results within float tolerance.

Edge values have the channels last, after one axis (list) or two (table). ``at_source`` returns a
new tensor, and the result of ``at_target`` broadcasts against it. ``distance`` holds the squared
distance between each edge's ends, as edge values with one channel, or is None. ``index`` (2, E)
holds sources and targets, as PyTorch Geometric's layers expect them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from kmip_data.errors import UsageError
from kmip_data.models.layers.edge_list import EdgeList
from kmip_data.models.search.problem import check_strided, parse_pointers
from kmip_data.reading.batching import batch_neighbors, graph_pointers, pointers_on_cpu

MAX_NODE_RANGES = 16  #: node ranges of a table, each processed by one thread
#: Node ranges if sources can be anywhere, as each range then needs a partial sum for every node.
MIN_NODE_RANGES = 4


class NodeRange(NamedTuple):
    """Nodes ``start:stop``, all of whose sources are in ``low:high``."""

    start: int
    stop: int
    low: int
    high: int


@dataclass(frozen=True, eq=False)
class NeighborTable:
    """Edges of nodes with in-degree k; edge values are (N, k, d)."""

    neighbor: Tensor  #: (N, k) int64, sources of each node, as rows of the batch
    distance: Tensor | None = None  #: (N, k, 1) squared distance of the ends; None: no positions

    @property
    def index(self) -> Tensor:
        """Sources and targets of the edges, (2, N · k), grouped by target."""
        nodes = torch.arange(len(self.neighbor), device=self.neighbor.device)
        targets = nodes[:, None].expand_as(self.neighbor)
        return torch.stack([self.neighbor.long(), targets]).flatten(1)

    @functools.cached_property
    def edge_list(self) -> EdgeList:
        """The edges as an edge list."""
        source, target = self.index
        return EdgeList(source, target, len(self.neighbor), is_sorted_by_target=True)

    def at_source(self, x: Tensor) -> Tensor:
        """Gather the row of each edge's source: (N, d) → (N, k, d)."""
        # Unlike indexing, an embedding does not return a view, which in-place addition would copy.
        return nn.functional.embedding(self.neighbor, x)

    def at_target(self, x: Tensor) -> Tensor:
        """Return the row of each edge's target, to broadcast: (N, d) → (N, 1, d)."""
        return x[:, None, :]

    def sum_at_target(self, values: Tensor) -> Tensor:
        """Sum the values of each node's incoming edges in at least float32: (N, k, d) → (N, d)."""
        return values.sum(1, dtype=torch.promote_types(values.dtype, torch.float32))

    @functools.cached_property
    def node_ranges(self) -> list[NodeRange]:
        """Ranges of nodes with the range of their sources, independent of the number of threads.

        Kernels that sum at the sources keep one partial sum per range and add them in this order,
        so results do not depend on threads. If the ranges of sources are long, as in a single
        graph, there are fewer ranges.

        Raises ``UsageError`` if an edge names a missing node.
        """
        sources = self.neighbor.numpy()
        nodes = len(sources)
        for count in (MAX_NODE_RANGES, MIN_NODE_RANGES):
            ranges = []
            for i in range(count):
                start = nodes * i // count
                stop = nodes * (i + 1) // count
                rows = sources[start:stop]
                low = int(rows.min(initial=nodes))
                high = int(rows.max(initial=low - 1)) + 1
                if start < stop:
                    ranges.append(NodeRange(start, stop, low, high))
            partial_sums = sum(node_range.high - node_range.low for node_range in ranges)
            if partial_sums <= MIN_NODE_RANGES * nodes:
                break

        low = min(node_range.low for node_range in ranges)
        high = max(node_range.high for node_range in ranges)
        if low < 0 or high > nodes:
            raise UsageError(
                f"The neighbour table names sources {low} to {high - 1} of the nodes 0 to {nodes - 1}."
            )
        return ranges


Edges = EdgeList | NeighborTable


@dataclass(frozen=True)
class BatchSize:
    """Number of graphs, nodes and edges in a batch, and form of the edges."""

    graphs: int
    nodes: int
    edges: int
    node_pairs: int = 0  #: Σ n² over graphs of n nodes; 0: not counted
    is_table: bool = False  #: True if the edges are a neighbour table

    @classmethod
    def of(cls, batch: Any) -> BatchSize:
        """Measure a batch with ``neighbor`` or ``edge_index``."""
        neighbor = getattr(batch, "neighbor", None)
        index = getattr(batch, "edge_index", None)
        edges = 0
        if neighbor is not None:
            edges = neighbor.numel()
        elif index is not None:
            edges = index.shape[1]
        graphs = int(getattr(batch, "num_graphs", 1))
        return cls(graphs, int(batch.num_nodes), edges, is_table=neighbor is not None)

    def __str__(self) -> str:
        graphs = "1 graph" if self.graphs == 1 else f"{self.graphs} graphs"
        return f"{graphs}, {self.nodes:,} nodes, {self.edges:,} edges"


HOPS = "hops"  #: attribute of a sampled neighbourhood that holds its :class:`Hops`


class Hops(NamedTuple):
    """Nodes and edges per hop of a sampled neighbourhood, which is ordered by hop."""

    nodes: list[int]  #: number of seeds, then of new nodes in each hop
    edges: list[int]  #: number of edges in each hop; all edges are sorted by target


@dataclass(frozen=True, eq=False)
class GraphBatch:
    """Batch of graphs, as layers, encoders and heads read it.

    :func:`read_batch` converts a PyG ``Batch`` or ``Data``. ``edges.index`` is (2, E), and
    ``edges.at_source(x)`` and ``edges.at_target(x)`` gather node rows per edge.
    """

    x: Tensor  #: (N, c) node features
    edges: Edges
    edge_attr: Tensor | None  #: edge features in the form of ``edges``
    #: (G + 1) int64 on the CPU: graph g has the nodes ``ptr[g]:ptr[g + 1]``. On the CPU because the
    #: search reads it in every layer; a tensor because ``torch.compile`` recompiles for new numbers.
    ptr: Tensor
    graph_index: Tensor  #: (N,) int64, graph index of each node
    #: Additional columns, such as encodings; edge columns are in the order of ``edges.index``.
    added: Mapping[str, Tensor] = field(default_factory=dict)
    #: Values computed once for all layers, such as BigBird's block plans.
    layer_cache: dict[Any, Any] = field(default_factory=dict)
    #: Hops of a sampled neighbourhood; predictions are made for its seeds, the first nodes.
    hops: Hops | None = None

    @property
    def num_graphs(self) -> int:
        """Number of graphs G."""
        return self.ptr.shape[0] - 1

    @functools.cached_property
    def nodes_to_graphs(self) -> EdgeList:
        """Edges from nodes to their graphs, to sum over graphs and to gather graph values per node."""
        return EdgeList(
            self.graph_index, self.graph_index, self.num_graphs, is_sorted_by_target=True
        )

    @functools.cached_property
    def graph_sizes(self) -> Tensor:
        """Number of nodes of each graph, at least 1: (G, 1), on the device of ``graph_index``."""
        return self.nodes_to_graphs.incoming.start.diff().clamp_min(1)[:, None]


BatchOrPointers = Tensor | Sequence[int] | GraphBatch | None


def batch_pointers(ptr: BatchOrPointers, rows: int) -> tuple[int, ...]:
    """Return the checked (G + 1) pointers of a batch, or from its ``ptr``; None means one graph."""
    starts = ptr.ptr if isinstance(ptr, GraphBatch) else ptr
    return parse_pointers("ptr", starts, rows)


@torch.compiler.disable  # type: ignore[untyped-decorator] # the checks read values
def read_batch(batch: Any, added: Sequence[str] = ()) -> GraphBatch:
    """Read ``x``, the edges, ``ptr``, ``batch`` and the columns ``added`` of a PyG ``Batch`` or ``Data``.

    Edges are ``neighbor`` (N, k), from ``GraphLoader(compact=True)`` or as rows of the batch (see
    :func:`~kmip_data.reading.batching.batch_neighbors`), or else ``edge_index`` (2, E). ``ptr`` is
    derived from a sorted ``batch``, and ``batch`` from ``ptr``; without either there is one graph.

    Raises
    ------
    UsageError
        Node features or edges are missing or have the wrong shape; ``batch`` is not sorted, or
        contradicts ``ptr``.
    """
    x = check_strided(
        "the batch's x",
        getattr(batch, "x", None),
        "node features x of shape (N, channels)",
        meta=True,
    )
    if x.ndim != 2:
        raise UsageError(f"The batch's x has shape {tuple(x.shape)}, not (N, channels).")
    edge_attr = getattr(batch, "edge_attr", None)
    if edge_attr is not None:
        edge_attr = check_strided("the batch's edge_attr", edge_attr, meta=True)

    ptr, graph_index = read_graphs(batch, x)

    hops: Hops | None = getattr(batch, HOPS, None)
    neighbor = getattr(batch, "neighbor", None)
    edges: Edges
    if neighbor is not None:
        dtypes = (*_SIGNED, torch.uint16, torch.uint32)
        _integer_matrix(neighbor, "neighbor", len(x), dtypes)
        edges = NeighborTable(batch_neighbors(batch))
        if edge_attr is not None:
            edge_attr = edge_attr.view(*neighbor.shape, -1)
    elif getattr(batch, "edge_index", None) is None:
        raise UsageError("The batch has no edges: no neighbor (N, k) or edge_index (2, E).")
    else:
        source, target = _integer_matrix(batch.edge_index, "edge_index", 2)
        sampled = hops is not None
        edges = EdgeList(source, target, len(x), is_sorted_by_target=sampled)

    columns = {}
    for name in added:
        column = getattr(batch, name, None)
        if column is not None:
            columns[name] = column
    return GraphBatch(
        x,
        edges,
        edge_attr,
        ptr,
        graph_index,
        columns,
        hops=hops,
    )


_SIGNED = (torch.int32, torch.int64)


def _integer_matrix(
    values: object,
    name: str,
    rows: int,
    dtypes: tuple[torch.dtype, ...] = _SIGNED,
) -> Tensor:
    """Return ``values`` if they are an integer matrix with ``rows`` rows, or raise ``UsageError``."""
    index = check_strided(f"the batch's {name}", values, meta=True)
    if index.ndim != 2 or len(index) != rows or index.dtype not in dtypes:
        names = " or ".join(map(str, dtypes))
        raise UsageError(
            f"{name} of the batch is {index.dtype} of shape {tuple(index.shape)}, "
            f"not {names} of shape ({rows}, …)."
        )
    return index


def read_graphs(batch: Any, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``ptr`` (G + 1) and ``graph_index`` (N,) of a :class:`GraphBatch`, for a batch with ``rows`` (N, …).

    Raises ``UsageError`` if ``ptr`` or ``batch`` has the wrong shape, ``batch`` is not sorted, or
    they contradict each other. On a GPU, the last two fail in an assertion on the device instead,
    so that the host need not wait.
    """
    count = rows.shape[0]
    device = rows.device
    graph_index = getattr(batch, "batch", None)
    has_graph_index = (
        graph_index is not None
        and graph_index.dtype == torch.int64
        and graph_index.shape == (count,)
    )
    host_ptr = None
    if has_graph_index and device.type != "cpu":
        host_ptr = pointers_on_cpu(batch, count)

    # 1. On a GPU, with pointers that the loader keeps on the CPU: check without waiting.
    if (
        host_ptr is not None
        and graph_index is not None
        and graph_index.device == batch.ptr.device == device
    ):
        is_sorted = (graph_index.diff() >= 0).all()
        agrees = (pointers_on_device(graph_index, len(host_ptr) - 1) == batch.ptr).all()
        torch._assert_async(is_sorted & agrees, "batch and ptr contradict each other")  # noqa: SLF001 -- no wait
        return torch.tensor(parse_pointers("ptr", host_ptr, count)), graph_index

    # 2. Otherwise: use the pointers, or derive them from the graph indices.
    starts = getattr(batch, "ptr", None)
    if starts is None and graph_index is not None:
        starts = graph_pointers(batch, count)
    ptr = torch.tensor(parse_pointers("ptr", starts, count))
    if len(ptr) == 2 and graph_index is None:
        return ptr, torch.zeros(count, dtype=torch.int64, device=device)

    # 3. Derive the graph indices from the pointers, and compare.
    sizes = ptr.diff().to(device)
    numbers = torch.arange(len(sizes), device=device)
    expected = numbers.repeat_interleave(sizes, output_size=count)
    if graph_index is not None and not torch.equal(graph_index.to(expected), expected):
        raise UsageError(
            "batch and ptr contradict each other: nodes ptr[g] to ptr[g + 1] are graph g's."
        )
    return ptr, expected


def pointers_on_device(graph_index: Tensor, graphs: int) -> Tensor:
    """Compute ``ptr`` (G + 1) from ``graph_index`` (N,) on its device, without waiting for a GPU."""
    return torch.searchsorted(graph_index, torch.arange(graphs + 1, device=graph_index.device))


def pad_by_graph(rows: Tensor, graph_index: Tensor, ptr: Tensor, fill: float = 0) -> Tensor:
    """Pad the rows (N, d) of each graph with ``fill`` to the largest graph's W rows: (G, W, d).

    ``graph_index`` and ``ptr`` are those of a :class:`GraphBatch`.
    """
    graphs = len(ptr) - 1
    width = max(ptr.diff().tolist())
    row = torch.arange(len(rows), device=rows.device)
    column = row - pointers_on_device(graph_index, graphs)[graph_index]
    out = rows.new_full((graphs, width, rows.shape[1]), fill)
    out[graph_index, column] = rows
    return out
