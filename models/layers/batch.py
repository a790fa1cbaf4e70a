"""Graphs of a batch as a network reads them, from PyTorch Geometric's objects.

Edges are a list (2, E), which gathers and scatters by index, or where every node has exactly k sources a
neighbour table (N, k), which needs no index for the target side: values at the target broadcast along k and
sums run over k. Both give the same numbers to float tolerance.

Edge values have the channels last and one or two leading axes, by form: ``at_source`` gives them newly
allocated, and what ``at_target`` gives broadcasts against them. ``distance`` is the squared distance of the
positions of each edge's ends, edge values with one channel, or None; ``index`` (2, E) are sources and
targets, as PyTorch Geometric's layers take them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from kmip_data.errors import UsageError
from kmip_data.models.context import PLAIN, ForwardContext
from kmip_data.models.layers.adjacency import EdgeList, SharedMembers
from kmip_data.models.search.problem import check_ptr, strided
from kmip_data.reading.batching import batch_neighbors, graph_pointers, pointers_on_cpu

if TYPE_CHECKING:
    from kmip_data.models.layers.partition import Chosen, Partition

PARTS: Final = 16  #: of a neighbour table, for as many threads
PARTS_OF_ONE_GRAPH: Final = (
    4  #: of one whose nodes have sources anywhere: each has a sum for every node
)


@dataclass(frozen=True, eq=False)
class NeighborTable:
    """Fixed in-degree k: edge values are (N, k, d)."""

    neighbor: Tensor  #: (N, k) int64, the sources of each target, as rows of the whole batch
    distance: Tensor | None = None  #: (N, k, 1), where nodes have positions

    @property
    def index(self) -> Tensor:
        """(2, N · k), the edges of a target one after the other."""
        targets = torch.arange(len(self.neighbor), device=self.neighbor.device)[:, None]
        return torch.stack([self.neighbor.long(), targets.expand_as(self.neighbor)]).flatten(1)

    @functools.cached_property
    def adjacency(self) -> EdgeList:
        """The edges as a list."""
        source, target = self.index
        return EdgeList(source, target, len(self.neighbor), by_target=True)

    def at_source(self, x: Tensor) -> Tensor:
        """Value of each edge's source: (N, d) → (N, k, d)."""
        # An embedding look-up, because its result is not a view: adding to a view in place copies it.
        return nn.functional.embedding(self.neighbor, x)

    def at_target(self, x: Tensor) -> Tensor:
        """Value of each edge's target: (N, d) → (N, 1, d)."""
        return x[:, None, :]

    def sum_at_target(self, values: Tensor) -> Tensor:
        """Sum of the values of each node's incoming edges: (N, k, d) → (N, d)."""
        return values.sum(1, dtype=torch.promote_types(values.dtype, torch.float32))

    @functools.cached_property
    def parts(self) -> list[TableRange]:
        """The nodes in a few parts, by the data alone, with the range that each one's sources lie in.

        Compiled kernels that sum at the sources have sums of each part's range, added up in this order. In a
        batch of graphs the ranges are short; where they all are long there are fewer parts.
        """
        table = self.neighbor.contiguous().numpy()
        for count in (PARTS, PARTS_OF_ONE_GRAPH):
            ends = [len(table) * i // count for i in range(count + 1)]
            found = [
                TableRange(a, b, int(table[a:b].min()), int(table[a:b].max()) + 1)
                for a, b in itertools.pairwise(ends)
                if a < b
            ]
            if sum(part.high - part.low for part in found) <= PARTS_OF_ONE_GRAPH * len(table):
                break
        low = min(part.low for part in found)
        high = max(part.high for part in found)
        if low < 0 or high > len(table):
            raise UsageError(
                f"the neighbour table names nodes {low} to {high - 1} of 0 to {len(table) - 1}"
            )
        return found


Edges = EdgeList | NeighborTable


class UnformedEdges:
    """New edges that no one has formed yet: the next layer does, in its first pass over them."""

    def tensor(self) -> Tensor:
        """Form them: edge values, as a layer would have given them."""
        raise NotImplementedError


def formed(edges: Any) -> Any:
    """``edges``, which are formed if they are not."""
    return edges.tensor() if isinstance(edges, UnformedEdges) else edges


class TableRange(NamedTuple):
    """Nodes ``start`` to ``stop`` of a neighbour table, whose sources are all from ``low`` to ``high``."""

    start: int
    stop: int
    low: int
    high: int


@dataclass(frozen=True)
class BatchSize:
    """Graphs, nodes and edges of a batch."""

    graphs: int
    nodes: int
    edges: int
    squares: int = 0  #: Σ n² over graphs of n nodes: their pairs of nodes; 0: not counted

    @classmethod
    def of(cls, batch: Any) -> BatchSize:
        """Count what a batch holds, with edges as a table or as pairs."""
        neighbor = getattr(batch, "neighbor", None)
        index = getattr(batch, "edge_index", None)
        edges = (
            neighbor.numel() if neighbor is not None else index.shape[1] if index is not None else 0
        )
        return cls(int(getattr(batch, "num_graphs", 1)), int(batch.num_nodes), int(edges))

    def __str__(self) -> str:
        graphs = "1 graph" if self.graphs == 1 else f"{self.graphs} graphs"
        return f"{graphs}, {self.nodes:,} nodes, {self.edges:,} edges"


#: Attribute of a padded batch, (2,) int64: how many nodes and edges count; the rest, behind them, is padding.
COUNTED = "counted"
EDGE_COLUMNS = {"edge_attr", "edge_rwse"}  #: attributes of a batch with a row for each edge


class Rows(NamedTuple):
    """Rows that a batch norm computes its statistics from."""

    first: Tensor | None = (
        None  #: (1,) int64 on their device: only so many, the first ones; None: all
    )
    repeated: bool = (
        False  #: True in the second pass of a recomputed layer: running statistics stay
    )
    among: Chosen | None = (
        None  #: which rows of a graph on several processes they are; None: all there are
    )


ALL = Rows()


@dataclass(frozen=True, eq=False)
class GraphBatch:
    """The graphs of a batch."""

    x: Tensor  #: (N, c) node features
    edges: Edges
    edge_attr: Tensor | None  #: edge features in the form of ``edges``
    #: (G + 1) int64 on the CPU: graph g has the nodes ``ptr[g]:ptr[g + 1]``. (On the CPU as search reads it
    #: in every layer; a tensor as ``torch.compile`` would compile anew for other numbers.) Of a padded batch
    #: it is on the batch's device, and the host does not read it.
    ptr: Tensor
    graph: Tensor  #: (N,) int64, the graph of each node
    added: Mapping[str, Tensor] = field(
        default_factory=dict
    )  #: further columns of the nodes, as encodings; of the edges in the order of ``edges.index``
    #: (2,) int64 on the device of ``x``: how many nodes and edges are not padding, which comes after them;
    #: None: all. Layers read it by ``node_rows``, ``edge_rows`` and ``search_options``.
    counted: Tensor | None = None
    context: ForwardContext = PLAIN  #: settings and records of the forward pass
    plans: dict[Any, Any] = field(
        default_factory=dict
    )  #: what the layers share, such as BigBird's blocks
    partition: Partition | None = (
        None  #: of one graph on several processes: which of its nodes these are
    )

    @property
    def num_graphs(self) -> int:
        """Number of graphs G."""
        return self.ptr.shape[0] - 1

    @functools.cached_property
    def members(self) -> EdgeList:
        """Each node as an edge into its graph: sums over graphs, and values of graphs at their nodes."""
        kind = EdgeList if self.partition is None else SharedMembers
        return kind(
            self.graph, self.graph, self.num_graphs, by_target=True, partition=self.partition
        )

    @functools.cached_property
    def sizes(self) -> Tensor:
        """(G, 1) nodes of each graph, and 1 where it has none, on the device of ``graph``."""
        sizes = self.members.incoming.start.diff()
        if self.partition is not None:
            sizes = torch.full_like(sizes, self.partition.nodes.total)
        return sizes.clamp_min(1)[:, None]

    @property
    def node_rows(self) -> Rows:
        """Nodes that a batch norm counts, and dropout draws for."""
        among = None if self.partition is None else self.partition.nodes
        return Rows(
            None if self.counted is None else self.counted[:1], self.context.repeated, among
        )

    @property
    def edge_rows(self) -> Rows:
        """Edges that a batch norm counts, and dropout draws for."""
        among = None if self.partition is None else self.partition.edges
        return Rows(
            None if self.counted is None else self.counted[1:], self.context.repeated, among
        )

    @property
    def search_options(self) -> dict[str, Any]:
        """Arguments of a search within each graph; where graphs begin only a GPU knows of a padded batch."""
        if self.counted is not None:
            return {"query_ptr": self.ptr, "trusted": True}
        if self.partition is not None:  # own nodes ask, all nodes answer
            return {"query_ptr": self.ptr, "key_ptr": torch.tensor([0, self.partition.nodes.total])}
        return {"query_ptr": self.ptr, "key_ptr": self.ptr}


Pointers = Tensor | Sequence[int] | GraphBatch | None


def pointers(ptr: Pointers, rows: int) -> tuple[int, ...]:
    """Return (G + 1) row numbers of a batch or its stand-in, or None for one graph."""
    return check_ptr("ptr", ptr.ptr if isinstance(ptr, GraphBatch) else ptr, rows)


def context_of(batch: Any) -> ForwardContext:
    """Return the context of the forward pass that a batch is part of; what is no batch has none."""
    return batch.context if isinstance(batch, GraphBatch) else PLAIN


@torch.compiler.disable  # type: ignore[untyped-decorator] # its checks read values; nothing to gain
def read_batch(
    batch: Any, added: Sequence[str] = (), context: ForwardContext = PLAIN
) -> GraphBatch:
    """Take ``x``, the edges, ``ptr``, ``batch`` and the columns ``added`` from a ``Batch`` or a ``Data``.

    Edges are ``neighbor`` (N, k), as ``GraphLoader(compact=True)`` gives them or as rows of the
    whole batch (see :func:`~kmip_data.reading.batching.batch_neighbors`), or else ``edge_index`` (2, E).
    ``ptr`` follows from a sorted ``batch``, and ``batch`` from ``ptr``; without both it is one graph. Where
    there is :data:`COUNTED` the batch is padded, and both are taken as they are.

    Raises
    ------
    UsageError
        The batch has no node features or no edges attribute, or they do not fit; ``batch`` is not sorted, or
        contradicts ``ptr``.
    """
    x = strided(
        "the batch's x",
        getattr(batch, "x", None),
        "node features x of shape (N, channels)",
        meta=True,
    )
    if x.ndim != 2:
        raise UsageError(f"the batch's x has shape {tuple(x.shape)}, not (N, channels)")
    neighbor, edge_attr, counted = (
        getattr(batch, of, None) for of in ("neighbor", "edge_attr", COUNTED)
    )
    if edge_attr is not None:
        edge_attr = strided("the batch's edge_attr", edge_attr, meta=True)
    ptr, graph = read_graphs(batch, x) if counted is None else (batch.ptr, batch.batch)
    partition: Partition | None = getattr(batch, "partition", None)
    edges: Edges
    if neighbor is not None:
        _whole_numbers(neighbor, "neighbor", len(x), (*_SIGNED, torch.uint16, torch.uint32))
        edges = NeighborTable(batch_neighbors(batch))
        edge_attr = None if edge_attr is None else edge_attr.view(*neighbor.shape, -1)
    elif getattr(batch, "edge_index", None) is None:
        raise UsageError("the batch has no edges: no neighbor (N, k) or edge_index (2, E)")
    else:
        index = _whole_numbers(batch.edge_index, "edge_index", 2)
        edges = EdgeList(index[0], index[1], len(x), partition=partition)
    columns = {name: value for name in added if (value := getattr(batch, name, None)) is not None}
    return GraphBatch(
        x, edges, edge_attr, ptr, graph, columns, counted, context, partition=partition
    )


_SIGNED = (torch.int32, torch.int64)


def _whole_numbers(
    given: Any, name: str, rows: int, dtypes: tuple[torch.dtype, ...] = _SIGNED
) -> Tensor:
    """Return a matrix of so many ``rows`` of such numbers; ``UsageError`` for anything else."""
    index = strided(f"the batch's {name}", given, meta=True)
    if index.ndim != 2 or len(index) != rows or index.dtype not in dtypes:
        found = f"{index.dtype} of shape {tuple(index.shape)}"
        expected = f"{' or '.join(map(str, dtypes))} of shape ({rows}, …)"
        raise UsageError(f"{name} of the batch is {found}, not {expected}")
    return index


def read_graphs(batch: Any, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``ptr`` and ``graph``, as :class:`GraphBatch` has them, of a batch whose nodes have ``rows``.

    Raises ``UsageError`` where ``ptr`` or ``batch`` does not fit, ``batch`` is not sorted, or they contradict
    each other. On a GPU, which nothing here waits for, the last two end in an assertion of its own.
    """
    count = rows.shape[0]
    device = rows.device
    given = getattr(batch, "batch", None)
    kept = None if device.type == "cpu" else pointers_on_cpu(batch, count)
    usual = given is not None and given.dtype == torch.int64 and given.shape == (count,)
    if (
        kept is not None
        and given is not None
        and usual
        and given.device == batch.ptr.device == device
    ):
        fits = (given.diff() >= 0).all() & (pointers_of(given, len(kept) - 1) == batch.ptr).all()
        torch._assert_async(fits, "batch and ptr contradict each other")  # noqa: SLF001 -- nothing waits
        return torch.tensor(check_ptr("ptr", kept, count)), given
    starts = getattr(batch, "ptr", None)
    if starts is None and given is not None:
        starts = graph_pointers(batch, count)
    ptr = torch.tensor(check_ptr("ptr", starts, count))
    if len(ptr) == 2 and given is None:
        return ptr, torch.zeros(count, dtype=torch.int64, device=device)
    sizes = ptr.diff().to(device)
    graph = torch.arange(len(sizes), device=device).repeat_interleave(sizes, output_size=count)
    if given is not None and not torch.equal(given.to(graph), graph):
        raise UsageError(
            "batch and ptr contradict each other: nodes ptr[g] to ptr[g + 1] are graph g's"
        )
    return ptr, graph


def pointers_of(graph: Tensor, graphs: int) -> Tensor:
    """``ptr`` of :class:`GraphBatch` where its ``graph`` is, found there: a copy would wait for a GPU."""
    return torch.searchsorted(graph, torch.arange(graphs + 1, device=graph.device))


def by_graph(rows: Tensor, graph: Tensor, ptr: Tensor, fill: float = 0) -> Tensor:
    """Rows of the nodes by graph: (N, d) → (G, W, d), W nodes of the largest graph, ``fill`` beyond the rest.

    ``graph`` and ``ptr`` are as :class:`GraphBatch` has them.
    """
    place = torch.arange(len(rows), device=rows.device) - pointers_of(graph, len(ptr) - 1)[graph]
    out = rows.new_full((len(ptr) - 1, max(ptr.diff().tolist()), rows.shape[1]), fill)
    out[graph, place] = rows
    return out
