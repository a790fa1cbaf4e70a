"""Convolutions of the paper's message-passing baselines, with the rest of their stacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from kmip_data.models.layers.adjacency import neighbor_sum
from kmip_data.models.layers.batch import Edges, GraphBatch
from kmip_data.models.layers.linear import Linear, distance_gate
from kmip_data.models.layers.norms import BatchNorm, apply_activation, dropout

if TYPE_CHECKING:
    from kmip_data.models.components import Activation

Stack = Literal["lrgb", "graphgps", "graphgym", "gnn-plus", "layer-norm", "none"]
#: Norms of the stacks that have one.
NORMED: dict[str, type[nn.Module]] = {
    "graphgym": BatchNorm,
    "gnn-plus": BatchNorm,
    "layer-norm": nn.LayerNorm,
}


class Convolution(nn.Module):
    """A convolution of nodes and the operations of a stack after it; edges are unchanged.

    ==========  ==============================================================================
    lrgb        bias; activation, dropout (Tönshoff et al.; the paper's LRGB and cities)
    graphgps    the same; differs for :class:`GINE` (the paper's point clouds)
    graphgym    no bias; batch norm, dropout, activation, rows scaled to length 1
    gnn-plus    bias; batch norm, activation, dropout (GCN of Luo et al.'s GNN⁺; their tunedGNN)
    layer-norm  bias; layer norm, activation, dropout (Luo et al.'s tunedGNN)
    none        bias; dropout (GPS layers of GraphGPS, whose norm and attention follow)
    ==========  ==============================================================================

    Every convolution takes the options ``dropout``, ``stack``, ``activation``, ``inputs``
    (channels that come in, by default ``dim``) and ``linear_residual``: a linear map of its input
    is added before the stack.
    """

    #: True if ``x`` may have more rows than the batch has nodes: sources behind all targets.
    narrows = False

    def __init__(
        self,
        dim: int,
        *,
        dropout: float = 0.0,
        stack: Stack = "lrgb",
        activation: Activation = "relu",
        inputs: int | None = None,
        linear_residual: bool = False,
    ) -> None:
        super().__init__()
        self.inputs = dim if inputs is None else inputs
        self.dropout = dropout
        self.stack = stack
        self.activation = activation
        self.biased = stack != "graphgym"
        self.bias: nn.Parameter | None = None
        self.norm = NORMED[stack](dim) if stack in NORMED else None
        self.skip = Linear(self.inputs, dim) if linear_residual else None

    def forward(
        self, x: Tensor, e: Tensor | None, batch: GraphBatch
    ) -> tuple[Tensor, Tensor | None]:
        """Nodes (N, inputs) to (N, dim); the edge features ``e`` are returned unchanged."""
        h = self.convolve(x, e, batch)
        if self.bias is not None:
            h = h + self.bias
        if self.skip is not None:
            h = h + self.skip(x[: len(h)])
        return self.finish(h, batch), e

    def convolve(self, x: Tensor, e: Tensor | None, batch: GraphBatch) -> Tensor:
        """(N, inputs) to (N, dim), from the neighbours; without the bias."""
        raise NotImplementedError

    def finish(self, x: Tensor, batch: GraphBatch) -> Tensor:
        """Apply the rest of the stack, (N, d) to the same."""
        if self.stack == "none":
            return dropout(x, self.dropout if self.training else 0.0)
        if isinstance(self.norm, BatchNorm):
            x = self.norm(x, batch)
        elif self.norm is not None:
            x = self.norm(x)
        p = self.dropout if self.training else 0.0
        if self.stack != "graphgym":
            return apply_activation(x, self.activation, p)
        x = apply_activation(dropout(x, p), self.activation, 0.0)
        # GraphGym scales the rows of the last layer a second time, which changes nothing.
        return nn.functional.normalize(x, dim=1)


class MLP(Convolution):
    """W x + b, without neighbours."""

    def __init__(self, dim: int, **options: Any) -> None:
        super().__init__(dim, **options)
        self.lin = Linear(self.inputs, dim, bias=self.biased)

    def convolve(self, x: Tensor, e: Tensor | None, batch: GraphBatch) -> Tensor:
        """(N, inputs) to (N, dim)."""
        return self.lin(x)  # type: ignore[no-any-return]


class GCN(Convolution):
    """Graph convolution (Kipf & Welling, arXiv 1609.02907), equal to PyTorch Geometric's ``GCNConv``.

    x_i' = Σ_j W x_j / √(g_i g_j) + b over the sources j of i and i itself, where g counts these: an
    edge from a node to itself is not counted twice.
    """

    narrows = True

    def __init__(self, dim: int, **options: Any) -> None:
        super().__init__(dim, **options)
        self.lin = Linear(self.inputs, dim, bias=False)
        nn.init.xavier_uniform_(self.lin.weight)
        if self.biased:
            self.bias = nn.Parameter(torch.zeros(dim))

    def convolve(self, x: Tensor, e: Tensor | None, batch: GraphBatch) -> Tensor:
        """(N, d) to the same."""
        adjacency = batch.edges.adjacency
        dtype = self.lin.weight.dtype
        others, loops = adjacency.degrees
        scale = (others.to(dtype) + 1).rsqrt()
        loop = 1 - loops.to(dtype)

        h: Tensor = scale * self.lin(x)
        sums = neighbor_sum(adjacency, h)
        rows = len(sums)
        return scale[:rows] * (sums + loop[:rows] * h[:rows])


class SAGE(Convolution):
    """GraphSAGE by means (Hamilton et al., arXiv 1706.02216), equal to PyG's ``SAGEConv``.

    x_i' = R x_i + W m_i + b, where m_i is the mean over the sources j of i, 0 if there are none.
    With ``self_loops``, i itself is among them, once even if there is such an edge.
    """

    narrows = True

    def __init__(self, dim: int, *, self_loops: bool = False, **options: Any) -> None:
        super().__init__(dim, **options)
        self.self_loops = self_loops
        self.lin = Linear(self.inputs, dim, bias=False)
        self.lin_root = Linear(self.inputs, dim, bias=self.biased)

    def convolve(self, x: Tensor, e: Tensor | None, batch: GraphBatch) -> Tensor:
        """(N, inputs) to (N, dim); no tensor has a row for each edge."""
        adjacency = batch.edges.adjacency
        sums = neighbor_sum(adjacency, x)
        x = x[: len(sums)]
        if self.self_loops:
            others, loops = adjacency.degrees
            sums = sums + (1 - loops[: len(x)]).to(sums.dtype) * x
            count = others[: len(x)] + 1
        else:
            count = adjacency.incoming.start.diff()[:, None].clamp_min(1)

        # The mean comes before the map, as in SAGEConv: of features, it takes no gradient.
        return self.lin(sums / count.to(sums.dtype)) + self.lin_root(x)  # type: ignore[no-any-return]


class GAT(Convolution):
    """Graph attention (Veličković et al., arXiv 1710.10903) with one head, equal to ``GATConv``.

    With h = W x, node i takes Σ_j a_ij h_j + b over its sources j and itself, where a_ij is the
    softmax over j of leaky_relu(s · h_j + t · h_i), slope 0.2. Edge features are not read.
    """

    def __init__(self, dim: int, *, bias: bool = True, **options: Any) -> None:
        super().__init__(dim, **options)
        self.lin = Linear(self.inputs, dim, bias=False)
        nn.init.xavier_uniform_(self.lin.weight)
        self.att_src = nn.Parameter(nn.init.xavier_uniform_(torch.empty(1, dim)))
        self.att_dst = nn.Parameter(nn.init.xavier_uniform_(torch.empty(1, dim)))
        if self.biased and bias:
            self.bias = nn.Parameter(torch.zeros(dim))

    def convolve(self, x: Tensor, e: Tensor | None, batch: GraphBatch) -> Tensor:
        """(N, d) to the same."""
        edges = batch.edges
        adjacency = edges.adjacency
        # 1. Scores of the edges, and of each node with itself: once, even if there is such an edge.
        h = self.lin(x)
        s = (h * self.att_src).sum(1, keepdim=True)
        t = (h * self.att_dst).sum(1, keepdim=True)
        loop_scores = nn.functional.leaky_relu(s + t, 0.2)
        scores = nn.functional.leaky_relu(edges.at_source(s) + edges.at_target(t), 0.2)
        scores = scores.masked_fill(adjacency.is_loop.view_as(scores), -torch.inf)

        # 2. The softmax over each node's sources; the largest score keeps exp within bounds.
        with torch.no_grad():
            index = adjacency.target[:, None]
            top = loop_scores.scatter_reduce(0, index, scores.reshape(-1, 1), "amax")
        weight = (scores - edges.at_target(top)).exp()
        loop_weight = (loop_scores - top).exp()
        total = edges.sum_at_target(weight) + loop_weight

        # 3. The weighted mean of the sources.
        sums = neighbor_sum(adjacency, h, weight.reshape(-1)) + loop_weight * h
        return sums / total  # type: ignore[no-any-return]


def relu_sum(x: Tensor, e: Tensor | None, edges: Edges) -> Tensor:
    """Σ_j relu(x_j + e_ij) over the sources j of each node i, (N, d).

    ``e`` has the form of the edges, or one row (1, d) where all edges share it; None: there are
    none.
    """
    if e is None:
        return neighbor_sum(edges.adjacency, x.relu())
    if e.ndim == 2 and len(e) == 1:
        return neighbor_sum(edges.adjacency, (x + e).relu())
    messages = edges.at_source(x)
    messages += e
    return edges.sum_at_target(messages.relu_())


class GCNE(Convolution):
    """GNN⁺'s GCN for graphs with edge features (Luo et al., arXiv 2502.09263).

    x_i' = Σ_j relu(W x_j + e_ij) + b over the sources j of i: unlike :class:`GCN` without degrees,
    and without node i itself. Source: ``GNNPlus/layer/gcn_conv_layer_e.py`` of LUOyk1999/GNNPlus.
    """

    def __init__(self, dim: int, **options: Any) -> None:
        super().__init__(dim, **options)
        self.lin = Linear(self.inputs, dim, bias=False)
        if self.biased:
            self.bias = nn.Parameter(torch.zeros(dim))

    def convolve(self, x: Tensor, e: Tensor | None, batch: GraphBatch) -> Tensor:
        """(N, d) and edge features, one row where all edges share it, to (N, d)."""
        return relu_sum(self.lin(x), e, batch.edges)


class GINE(Convolution):
    """Graph isomorphism network with edge features (Hu et al., arXiv 1905.12265), as ``GINEConv``.

    x_i' = f(x_i + Σ_j relu(x_j + e_ij)) over the sources j of i. f is linear, activation, dropout,
    linear, dropout with nothing after it in the stack ``lrgb``; linear, activation, linear in
    ``none``; linear, ReLU, linear in the others, with what they put after it. With ``by_distance``,
    each message is multiplied by a number between 0 and 1, as the gates of a
    :class:`~kmip_data.models.layers.gated_gcn.GatedGCN` are.
    """

    def __init__(self, dim: int, *, by_distance: bool = False, **options: Any) -> None:
        super().__init__(dim, **options)
        self.lin_in = Linear(dim, dim)
        self.lin_out = Linear(dim, dim)
        self.closeness: nn.Module | None = distance_gate(dim) if by_distance else None

    def convolve(self, x: Tensor, e: Tensor | None, batch: GraphBatch) -> Tensor:
        """(N, d) and edge features, one row where all edges share it, to (N, d)."""
        edges = batch.edges
        if self.closeness is None:
            sums = relu_sum(x, e, edges)
        else:
            messages = edges.at_source(x)
            if e is not None:
                messages = messages + e
            messages = messages.relu()
            sums = edges.sum_at_target(messages * self.closeness(edges.distance))
        h = self.lin_in(x + sums)
        if self.stack == "lrgb":
            h = apply_activation(h, self.activation, self.dropout if self.training else 0.0)
        elif self.stack == "none":
            h = getattr(nn.functional, self.activation)(h)
        else:
            h = h.relu()
        return self.lin_out(h)  # type: ignore[no-any-return]

    def finish(self, x: Tensor, batch: GraphBatch) -> Tensor:
        """(N, d) to the same."""
        if self.stack != "lrgb":
            return super().finish(x, batch)
        return dropout(x, self.dropout if self.training else 0.0)
