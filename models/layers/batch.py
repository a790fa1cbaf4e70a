"""Graphs of a batch in the form that networks read, from PyTorch Geometric's objects.

Edges are a list (2, E), which gathers and scatters by index, or where every node has exactly k
sources a neighbour table (N, k), which needs no index for the target side: values at the target
broadcast along k and sums run over k. Both give the same numbers to float tolerance.

Edge values have the channels last and one or two leading axes, by form: ``at_source`` returns them
newly allocated, and the result of ``at_target`` broadcasts against them. ``distance`` is the
squared distance of the positions of each edge's ends, edge values with one channel, or None;
``index`` (2, E) are sources and targets, as PyTorch Geometric's layers take them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from kmip_data.errors import UsageError
from kmip_data.models.layers.adjacency import EdgeList
from kmip_data.models.search.problem import check_ptr, check_strided
from kmip_data.reading.batching import batch_neighbors, graph_pointers, pointers_on_cpu

#: Node ranges, one per thread at most.
RANGES = 16
#: Node ranges if sources lie anywhere: each range then needs a sum for every node.
RANGES_OF_ONE_GRAPH = 4


class NodeRange(NamedTuple):
    """Nodes ``start`` to ``stop``, whose sources are all from ``low`` to ``high``."""

    start: int
    stop: int
    low: int
    high: int


@dataclass(frozen=True, eq=False)
class NeighborTable:
    """Fixed in-degree k: edge values are (N, k, d)."""

    #: (N, k) int64, the sources of each target, as rows of the whole batch.
    neighbor: Tensor
    #: (N, k, 1), where nodes have positions.
    distance: Tensor | None = None

    @property
    def index(self) -> Tensor:
        """(2, N · k), grouped by target."""
        nodes = torch.arange(len(self.neighbor), device=self.neighbor.device)
        targets = nodes[:, None].expand_as(self.neighbor)
        return torch.stack([self.neighbor.long(), targets]).flatten(1)

    @functools.cached_property
    def adjacency(self) -> EdgeList:
        """The edges as a list."""
        source, target = self.index
        return EdgeList(source, target, len(self.neighbor), by_target=True)

    def at_source(self, x: Tensor) -> Tensor:
        """Value of each edge's source: (N, d) → (N, k, d)."""
        # Use an embedding look-up, whose result is no view: adding in place to a view copies it.
        return nn.functional.embedding(self.neighbor, x)

    def at_target(self, x: Tensor) -> Tensor:
        """Value of each edge's target: (N, d) → (N, 1, d)."""
        return x[:, None, :]

    def sum_at_target(self, values: Tensor) -> Tensor:
        """Sum of the values of each node's incoming edges: (N, k, d) → (N, d)."""
        return values.sum(1, dtype=torch.promote_types(values.dtype, torch.float32))

    @functools.cached_property
    def node_ranges(self) -> list[NodeRange]:
        """Ranges of nodes with the range of their sources, fixed by the data alone.

        Kernels that sum at the sources keep one partial sum per range and add them in this order,
        so results do not depend on threads. In a batch of graphs the ranges of sources are short;
        where all of them are long there are fewer ranges.

        Raises ``UsageError`` where an edge names a missing node.
        """
        sources = self.neighbor.numpy()
        nodes = len(sources)
        for count in (RANGES, RANGES_OF_ONE_GRAPH):
            ranges = []
            for i in range(count):
                start = nodes * i // count
                stop = nodes * (i + 1) // count
                rows = sources[start:stop]
                low = int(rows.min(initial=nodes))
                high = int(rows.max(initial=low - 1)) + 1
                if start < stop:
                    ranges.append(NodeRange(start, stop, low, high))
            sums = sum(piece.high - piece.low for piece in ranges)
            if sums <= RANGES_OF_ONE_GRAPH * nodes:
                break

        low = min(piece.low for piece in ranges)
        high = max(piece.high for piece in ranges)
        if low < 0 or high > nodes:
            raise UsageError(
                f"The neighbour table names sources {low} to {high - 1} of the nodes 0 to {nodes - 1}."
            )
        return ranges


Edges = EdgeList | NeighborTable


@dataclass(frozen=True)
class BatchSize:
    """Graphs, nodes and edges of a batch."""

    graphs: int
    nodes: int
    edges: int
    #: Σ n² over graphs of n nodes: their pairs of nodes; 0: not counted.
    squares: int = 0

    @classmethod
    def of(cls, batch: Any) -> BatchSize:
        """Count the contents of a batch, with edges as a table or as pairs."""
        neighbor = getattr(batch, "neighbor", None)
        index = getattr(batch, "edge_index", None)
        edges = 0
        if neighbor is not None:
            edges = neighbor.numel()
        elif index is not None:
            edges = index.shape[1]
        return cls(int(getattr(batch, "num_graphs", 1)), int(batch.num_nodes), edges)

    def __str__(self) -> str:
        graphs = "1 graph" if self.graphs == 1 else f"{self.graphs} graphs"
        return f"{graphs}, {self.nodes:,} nodes, {self.edges:,} edges"


#: Attribute of a sampled neighbourhood: its :class:`Hops`.
HOPS = "hops"


class Hops(NamedTuple):
    """Sizes of a sampled neighbourhood, whose nodes and edges are in the order of its hops."""

    nodes: list[int]  #: seeds, then nodes that each hop met first
    edges: list[int]  #: edges of each hop; all are sorted by target


@dataclass(frozen=True, eq=False)
class GraphBatch:
    """Graphs of a batch, as layers, encoders and heads read them.

    Made from a PyG ``Batch`` or ``Data`` by :func:`read_batch`. ``edges.index`` is (2, E),
    ``edges.at_source(x)`` and ``edges.at_target(x)`` gather node rows per edge; ``ptr`` (G + 1)
    and ``graph`` (N,) assign nodes to graphs; ``num_graphs`` is G.
    """

    #: (N, c) node features.
    x: Tensor
    edges: Edges
    #: Edge features in the form of ``edges``.
    edge_attr: Tensor | None
    #: (G + 1) int64 on the CPU: graph g has the nodes ``ptr[g]:ptr[g + 1]``. (On the CPU because
    #: the search reads it in every layer; a tensor because ``torch.compile`` would recompile for
    #: other numbers.)
    ptr: Tensor
    #: (N,) int64, the graph of each node.
    graph: Tensor
    #: Further columns, such as encodings; columns of edges in the order of ``edges.index``.
    added: Mapping[str, Tensor] = field(default_factory=dict)
    #: Plans that the layers share, such as BigBird's blocks.
    plans: dict[Any, Any] = field(default_factory=dict)
    #: Hops of a sampled neighbourhood. Predictions are made for its seeds, which come first.
    hops: Hops | None = None

    @property
    def num_graphs(self) -> int:
        """Number of graphs G."""
        return self.ptr.shape[0] - 1

    @functools.cached_property
    def nodes_to_graphs(self) -> EdgeList:
        """Each node as an edge into its graph: sums over graphs, and values of graphs at their nodes."""
        return EdgeList(self.graph, self.graph, self.num_graphs, by_target=True)

    @functools.cached_property
    def graph_sizes(self) -> Tensor:
        """(G, 1) nodes of each graph, and 1 for an empty one, on the device of ``graph``."""
        return self.nodes_to_graphs.incoming.start.diff().clamp_min(1)[:, None]


Pointers = Tensor | Sequence[int] | GraphBatch | None


def pointers_of_batch(ptr: Pointers, rows: int) -> tuple[int, ...]:
    """Return (G + 1) row numbers of a batch or its ``ptr``; None means one graph."""
    starts = ptr.ptr if isinstance(ptr, GraphBatch) else ptr
    return check_ptr("ptr", starts, rows)


@torch.compiler.disable  # type: ignore[untyped-decorator] # its checks read values
def read_batch(batch: Any, added: Sequence[str] = ()) -> GraphBatch:
    """Take ``x``, the edges, ``ptr``, ``batch`` and the columns ``added`` from a ``Batch`` or a ``Data``.

    Edges are ``neighbor`` (N, k), as ``GraphLoader(compact=True)`` gives them or as rows of the
    whole batch (see :func:`~kmip_data.reading.batching.batch_neighbors`), or else ``edge_index``
    (2, E). ``ptr`` follows from a sorted ``batch``, and ``batch`` from ``ptr``; without both it is
    one graph.

    Raises
    ------
    UsageError
        The batch has no node features or no edges attribute, or they do not fit; ``batch`` is not
        sorted, or contradicts ``ptr``.
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

    ptr, graph = read_graphs(batch, x)

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
        edges = EdgeList(source, target, len(x), by_target=sampled)

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
        graph,
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
    """Return a matrix of integers with ``rows`` rows; ``UsageError`` for anything else."""
    index = check_strided(f"the batch's {name}", values, meta=True)
    if index.ndim != 2 or len(index) != rows or index.dtype not in dtypes:
        names = " or ".join(map(str, dtypes))
        raise UsageError(
            f"{name} of the batch is {index.dtype} of shape {tuple(index.shape)}, "
            f"not {names} of shape ({rows}, …)."
        )
    return index


def read_graphs(batch: Any, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the ``ptr`` (G + 1) and ``graph`` (N,) of :class:`GraphBatch` for a batch with ``rows`` (N, …).

    Raises ``UsageError`` where ``ptr`` or ``batch`` does not fit, ``batch`` is not sorted, or they
    contradict each other. On a GPU, which the host does not wait for, the last two fail in an
    assertion on the device.
    """
    count = rows.shape[0]
    device = rows.device
    graph = getattr(batch, "batch", None)
    usual = graph is not None and graph.dtype == torch.int64 and graph.shape == (count,)
    host_ptr = None
    if usual and device.type != "cpu":
        host_ptr = pointers_on_cpu(batch, count)

    # 1. On a GPU, with the pointers that the loader keeps on the CPU: check without waiting.
    if host_ptr is not None and graph is not None and graph.device == batch.ptr.device == device:
        is_sorted = (graph.diff() >= 0).all()
        agrees = (pointers_of(graph, len(host_ptr) - 1) == batch.ptr).all()
        torch._assert_async(is_sorted & agrees, "batch and ptr contradict each other")  # noqa: SLF001 -- no wait
        return torch.tensor(check_ptr("ptr", host_ptr, count)), graph

    # 2. Otherwise the given pointers, or pointers computed from the graphs of the nodes.
    starts = getattr(batch, "ptr", None)
    if starts is None and graph is not None:
        starts = graph_pointers(batch, count)
    ptr = torch.tensor(check_ptr("ptr", starts, count))
    if len(ptr) == 2 and graph is None:
        return ptr, torch.zeros(count, dtype=torch.int64, device=device)

    # 3. The graphs of the nodes from the pointers, and both compared.
    sizes = ptr.diff().to(device)
    numbers = torch.arange(len(sizes), device=device)
    expected = numbers.repeat_interleave(sizes, output_size=count)
    if graph is not None and not torch.equal(graph.to(expected), expected):
        raise UsageError(
            "batch and ptr contradict each other: nodes ptr[g] to ptr[g + 1] are graph g's."
        )
    return ptr, expected


def pointers_of(graph: Tensor, graphs: int) -> Tensor:
    """Compute ``ptr`` (G + 1) of :class:`GraphBatch` on the device of its ``graph``: no wait for a GPU."""
    return torch.searchsorted(graph, torch.arange(graphs + 1, device=graph.device))


def pad_by_graph(rows: Tensor, graph: Tensor, ptr: Tensor, fill: float = 0) -> Tensor:
    """Lay out node rows (N, d) by graph: (G, W, d), W nodes being the largest graph; ``fill`` elsewhere.

    ``graph`` and ``ptr`` are as :class:`GraphBatch` has them.
    """
    graphs = len(ptr) - 1
    width = max(ptr.diff().tolist())
    numbers = torch.arange(len(rows), device=rows.device)
    column = numbers - pointers_of(graph, graphs)[graph]
    out = rows.new_full((graphs, width, rows.shape[1]), fill)
    out[graph, column] = rows
    return out
