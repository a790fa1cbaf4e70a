"""Expander edges and virtual nodes of Exphormer's attention, and the features of both."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from kmip_data.errors import DamagedInput, UsageError
from kmip_data.graphs.encodings.expander import COMPLETE
from kmip_data.models.layers.batch import GraphBatch
from kmip_data.models.layers.edges import EdgeList, Edges, NeighborTable


class Carried(NamedTuple):
    """What goes from layer to layer beside nodes and edges; only ``virtual`` changes on the way."""

    virtual: Tensor  #: (V, G, d) states of each graph's V virtual nodes
    kinds: Tensor  #: (1 + 2V, d) features: of expander edges, of those into and those out of virtual nodes
    edges: Tensor | None  #: features of the real edges as they were encoded; None: these are left out
    expander: Edges | None


class ExphormerEdges(nn.Module):
    """What Exphormer's attention needs before its first layer (upstream ``ExpanderEdgeFixer``).

    Parameters
    ----------
    dim
        Channels d.
    virtual_nodes
        Virtual nodes V of each graph, every one with an edge from and to each node of its graph.
    expander
        Read ``batch.added["expander"]``, (N, D) numbers inside each graph, as
        :func:`~kmip_data.graphs.encodings.expander.expander_targets` draws them.
    self_loops
        Keep expander edges from a node to itself.
    real_edges
        Attend along the edges of the graph, too.
    """

    def __init__(
        self,
        dim: int,
        *,
        virtual_nodes: int = 3,
        expander: bool = True,
        self_loops: bool = True,
        real_edges: bool = True,
    ) -> None:
        super().__init__()
        self.expander, self.self_loops, self.real_edges = expander, self_loops, real_edges
        self.expander_edge = nn.Embedding(1, dim)
        # Without a use it stays, for the parameter counts of upstream, but takes no gradient.
        self.expander_edge.requires_grad_(expander or virtual_nodes > 0)
        self.virtual = nn.Embedding(virtual_nodes, dim) if virtual_nodes else None
        self.edge_in = nn.Embedding(virtual_nodes, dim) if virtual_nodes else None
        self.edge_out = nn.Embedding(virtual_nodes, dim) if virtual_nodes else None

    def forward(self, e: Tensor | None, batch: GraphBatch) -> tuple[Carried]:
        """Encoded edge features, in the form of the edges or (1, d), to what the first layer is given."""
        kinds = self.expander_edge.weight
        virtual = kinds.new_empty(0, batch.num_graphs, kinds.shape[1])
        if self.virtual is not None and self.edge_in is not None and self.edge_out is not None:
            kinds = torch.cat([kinds, self.edge_in.weight, self.edge_out.weight])
            virtual = self.virtual.weight[:, None].expand(-1, batch.num_graphs, -1)
        expander = expander_edges(batch, self_loops=self.self_loops) if self.expander else None
        return (Carried(virtual, kinds, e if self.real_edges else None, expander),)


@torch.compiler.disable  # type: ignore[untyped-decorator] # which graphs are complete depends on the data
def expander_edges(batch: GraphBatch, *, self_loops: bool = True) -> Edges:
    """Edges of the column ``expander`` in both directions, and of complete graphs where it has none.

    Every node has the same number of edges where no graph is complete: they are then a table. Raises
    ``UsageError`` where the batch has no such column; ``DamagedInput`` where it names nodes that are not
    there.
    """
    targets = batch.added.get("expander")
    if targets is None or targets.ndim != 2:
        raise UsageError(
            "the network reads an expander that the data do not have",
            expected="expander (N, D), an added column",
            found="none" if targets is None else f"shape {tuple(targets.shape)}",
            next="kmip-data encode TARGET expander3 adds it; or --set model.attention.expander=0",
        )
    targets = targets.long()
    nodes = torch.arange(len(targets), device=targets.device)[:, None].expand_as(targets)
    sizes = batch.ptr.diff()
    size = sizes.to(targets.device)[batch.graph, None]
    if bool(((targets < -1) | (targets >= size)).any()):
        raise DamagedInput(
            "An expander names nodes that its graph does not have.",
            expected="numbers below that of the graph's nodes, or -1",
            found=f"{int(targets.min())} to {int(targets.max())}",
            next="kmip-data verify TARGET --repair",
        )
    there = targets >= 0
    links = torch.where(there, targets + batch.ptr.to(targets.device)[batch.graph, None], nodes)
    back = torch.full_like(links, -1).scatter_(0, links, nodes)
    small = (sizes <= COMPLETE) & (sizes > 1)
    if self_loops and not bool(small.any()) and bool((there & (back >= 0)).all()):
        return NeighborTable(torch.cat([links, back], 1))  # permutations: each node is a target once
    there = there if self_loops else there & (links != nodes)
    pairs = torch.stack([nodes[there], links[there]])
    pairs = torch.cat([pairs, pairs.flip(0), _complete(batch.ptr, small).to(pairs.device)], 1)
    return EdgeList(pairs[0], pairs[1], len(targets))


def _complete(ptr: Tensor, chosen: Tensor) -> Tensor:
    """All pairs of different nodes of the chosen graphs: int64 (2, E), on the CPU."""
    size, first = ptr.diff()[chosen], ptr[:-1][chosen]
    of = torch.arange(len(size)).repeat_interleave(size * size)
    begin = (size * size).cumsum(0) - size * size
    pair = torch.arange(len(of)) - begin[of]
    found = torch.stack([pair // size[of], pair % size[of]]) + first[of]
    return found[:, found[0] != found[1]]
