"""GraphSAGE that reads edge features and both directions of the edges."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from kmip_data.models.layers.batch import GraphBatch
from kmip_data.models.layers.convolutions import Convolution
from kmip_data.models.layers.edge_list import EdgeList, neighbor_sum
from kmip_data.models.layers.linear import Linear

_REVERSED = "reversed edges"  #: key in ``layer_cache``


class DirectedSAGE(Convolution):
    """GraphSAGE with a mean for each direction (Rossi et al., arXiv 2305.10498), and edge features.

    x_i' = R x_i + W m_i + V n_i + U f_i + T g_i + b, where m_i and f_i are the means of the nodes and
    edge features over the incoming edges of i, and n_i and g_i those over its outgoing edges; a mean
    without edges is 0. Dir-GNN's ``DirSageConv`` has no edge features. A linear model of the means
    of neighbours is a special case.
    """

    def __init__(self, dim: int, **options: Any) -> None:
        super().__init__(dim, **options)
        self.lin_root = Linear(self.input_dim, dim, bias=self.has_bias)
        self.lin_in = Linear(self.input_dim, dim, bias=False)
        self.lin_out = Linear(self.input_dim, dim, bias=False)
        self.lin_edge_in = Linear(dim, dim, bias=False)
        self.lin_edge_out = Linear(dim, dim, bias=False)

    def convolve(self, x: Tensor, e: Tensor | None, batch: GraphBatch) -> Tensor:
        """(N, input_dim) and edge features, possibly one shared row or none, to (N, dim)."""
        forward = batch.edges.edge_list
        if _REVERSED not in batch.layer_cache:
            batch.layer_cache[_REVERSED] = EdgeList(
                forward.target, forward.source, forward.num_nodes
            )
        h: Tensor = self.lin_root(x)
        for edges, lin, lin_edge in (
            (forward, self.lin_in, self.lin_edge_in),
            (batch.layer_cache[_REVERSED], self.lin_out, self.lin_edge_out),
        ):
            count = edges.incoming.start.diff()[:, None].clamp_min(1).to(x.dtype)
            h = h + lin(neighbor_sum(edges, x) / count)
            if e is not None:
                rows = e.reshape(-1, e.shape[-1]).expand(len(edges.source), -1)
                h = h + lin_edge(edges.sum_at_target(rows) / count)
        return h
