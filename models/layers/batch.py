"""The graphs of a batch as a network reads them, from PyTorch Geometric's objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from kmip_data.errors import UsageError
from kmip_data.models.context import PLAIN, ForwardContext
from kmip_data.models.layers.edges import EdgeList, Edges, NeighborTable
from kmip_data.models.layers.norms import Rows
from kmip_data.models.search.problem import check_ptr, strided
from kmip_data.reading.batching import batch_neighbors, graph_pointers, pointers_on_cpu

#: Attribute of a padded batch, (2,) int64: how many nodes and edges are not padding, which comes after them.
REAL_SIZES = "real_sizes"


@dataclass(frozen=True, eq=False)
class GraphBatch:
    """The graphs of a batch.

    Attributes
    ----------
    x
        (N, c) node features.
    edges
        All edges.
    edge_attr
        Edge features in the form of ``edges``, or None.
    ptr
        (G + 1) int64 on the CPU: graph g has the nodes ``ptr[g]:ptr[g + 1]``. (On the CPU because
        search reads it in every layer; a tensor because ``torch.compile`` would compile anew for
        other numbers.) Of a padded batch it is on the batch's device, and the host does not read it.
    graph
        (N,) int64, the graph of each node.
    added
        Further columns of the nodes by name, such as positional encodings.
    real_nodes, real_edges
        (1,) int64 on the device of ``x``: how many nodes and edges are not padding, which comes after them;
        None: all.
    context
        Settings and records of the forward pass.
    plans
        Results that the layers of one network share, such as the blocks of BigBird.
    """

    x: Tensor
    edges: Edges
    edge_attr: Tensor | None
    ptr: Tensor
    graph: Tensor
    added: Mapping[str, Tensor] = field(default_factory=dict)
    real_nodes: Tensor | None = None
    real_edges: Tensor | None = None
    context: ForwardContext = PLAIN
    plans: dict[Any, Any] = field(default_factory=dict)

    @property
    def num_graphs(self) -> int:
        """Number of graphs G."""
        return self.ptr.shape[0] - 1

    @property
    def node_rows(self) -> Rows:
        """Nodes that a batch norm counts."""
        return Rows(self.real_nodes, self.context.repeated)

    @property
    def edge_rows(self) -> Rows:
        """Edges that a batch norm counts."""
        return Rows(self.real_edges, self.context.repeated)


def context_of(batch: Any) -> ForwardContext:
    """Return the context of the forward pass that a batch is part of; what is no batch has none."""
    return batch.context if isinstance(batch, GraphBatch) else PLAIN


@torch.compiler.disable  # type: ignore[untyped-decorator] # its checks read values; nothing to gain
def read_batch(batch: Any, added: Sequence[str] = (), context: ForwardContext = PLAIN) -> GraphBatch:
    """Take ``x``, the edges, ``ptr``, ``batch`` and the columns ``added`` from a ``Batch`` or a ``Data``.

    Edges are ``neighbor`` (N, k), as ``GraphLoader(compact=True)`` gives them or as rows of the
    whole batch (see :func:`~kmip_data.reading.batching.batch_neighbors`), or else ``edge_index`` (2, E).
    ``ptr`` follows from a sorted ``batch``, and ``batch`` from ``ptr``; without both it is one graph. Where
    there is :data:`REAL_SIZES` the batch is padded, and both are taken as they are.

    Raises
    ------
    UsageError
        The batch has no node features or no edges attribute, or they do not fit; ``batch`` is not sorted, or
        contradicts ``ptr``.
    """
    x = strided(
        "the batch's x", getattr(batch, "x", None), "node features x of shape (N, channels)", meta=True
    )
    if x.ndim != 2:
        raise UsageError(
            "the batch's x has the wrong shape", expected="(N, channels)", found=str(tuple(x.shape))
        )
    count = x.shape[0]
    sizes = getattr(batch, REAL_SIZES, None)
    ptr, graph = read_graphs(batch, x) if sizes is None else (batch.ptr, batch.batch)
    more: dict[str, Any] = {"context": context}
    if sizes is not None:
        more |= {"real_nodes": sizes[:1], "real_edges": sizes[1:]}
    columns = {name: value for name in added if (value := getattr(batch, name, None)) is not None}
    edge_attr = getattr(batch, "edge_attr", None)
    neighbor, edge_index = getattr(batch, "neighbor", None), getattr(batch, "edge_index", None)
    if edge_attr is not None:
        edge_attr = strided("the batch's edge_attr", edge_attr, meta=True)
    if neighbor is not None:
        neighbor = strided("the batch's neighbor", neighbor, meta=True)
        fits = neighbor.ndim == 2 and neighbor.shape[0] == count
        _check("neighbor", neighbor, fits, f"({count}, k)", (*_SIGNED, torch.uint16, torch.uint32))
        if edge_attr is not None:
            edge_attr = edge_attr.view(*neighbor.shape, -1)
        return GraphBatch(x, NeighborTable(batch_neighbors(batch)), edge_attr, ptr, graph, columns, **more)
    if edge_index is None:
        raise UsageError(
            "the batch has no edges", expected="neighbor (N, k) or edge_index (2, E)", found="neither"
        )
    edge_index = strided("the batch's edge_index", edge_index, meta=True)
    _check("edge_index", edge_index, edge_index.ndim == 2 and edge_index.shape[0] == 2, "(2, E)")
    pairs = EdgeList(edge_index[0], edge_index[1], count)
    return GraphBatch(x, pairs, edge_attr, ptr, graph, columns, **more)


def read_graphs(batch: Any, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``ptr`` and ``graph``, as :class:`GraphBatch` has them, of a batch whose nodes have ``rows``.

    Raises ``UsageError`` where ``ptr`` or ``batch`` does not fit, ``batch`` is not sorted, or they contradict
    each other. On a GPU, which nothing here waits for, the last two end in an assertion of its own.
    """
    count, device = rows.shape[0], rows.device
    given = getattr(batch, "batch", None)
    kept = None if device.type == "cpu" else pointers_on_cpu(batch, count)
    usual = given is not None and given.dtype == torch.int64 and given.shape == (count,)
    if kept is not None and given is not None and usual and given.device == batch.ptr.device == device:
        fits = (given.diff() >= 0).all() & (pointers_of(given, len(kept) - 1) == batch.ptr).all()
        torch._assert_async(fits, "batch and ptr contradict each other")  # noqa: SLF001 -- nothing waits
        return torch.tensor(check_ptr("ptr", kept, count)), given
    ptr = torch.tensor(check_ptr("ptr", graph_pointers(batch, count), count))
    if len(ptr) == 2 and given is None:
        return ptr, torch.zeros(count, dtype=torch.int64, device=device)
    sizes = ptr.diff().to(device)
    graph = torch.arange(len(sizes), device=device).repeat_interleave(sizes, output_size=count)
    if given is not None and not torch.equal(given.to(graph), graph):
        raise UsageError(
            "batch and ptr contradict each other",
            expected="the nodes ptr[g] to ptr[g + 1] in graph g",
            found="another graph for some of them",
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


_SIGNED = (torch.int32, torch.int64)


def _check(
    name: str, index: Tensor, fits: bool, expected: str, dtypes: tuple[torch.dtype, ...] = _SIGNED
) -> None:
    if not fits or index.dtype not in dtypes:
        raise UsageError(
            f"{name} of the batch is wrong",
            expected=f"{' or '.join(map(str, dtypes))} of shape {expected}",
            found=f"{index.dtype} of shape {tuple(index.shape)}",
        )
