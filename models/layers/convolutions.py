"""Message passing by one graph convolution, such as GCN, and the operations after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from kmip_data.models.layers.batch import Edges, GraphBatch
from kmip_data.models.layers.edge_list import neighbor_sum
from kmip_data.models.layers.linear import Linear, build_distance_gate
from kmip_data.models.layers.norms import BatchNorm, apply_activation, dropout

if TYPE_CHECKING:
    from kmip_data.models.components import Activation

Stack = Literal["lrgb", "graphgps", "graphgym", "gnn-plus", "layer-norm", "none"]
STACK_NORMS: dict[str, type[nn.Module]] = {
    "graphgym": BatchNorm,
    "gnn-plus": BatchNorm,
    "layer-norm": nn.LayerNorm,
}


class Convolution(nn.Module):
    """Message passing by one graph convolution and the operations of its ``stack``.

    :meth:`convolve` alone is the convolution, in the sense of PyTorch Geometric's ``GCNConv``. Edges
    are unchanged.

    ==========  ==============================================================================
    lrgb        bias; activation, dropout (Tönshoff et al.; the paper's LRGB and cities)
    graphgps    bias; activation, dropout (the paper's point clouds)
    graphgym    no bias; batch norm, dropout, activation, rows scaled to length 1
    gnn-plus    bias; batch norm, activation, dropout (GCN of Luo et al.'s GNN⁺; their tunedGNN)
    layer-norm  bias; layer norm, activation, dropout (Luo et al.'s tunedGNN)
    none        bias; dropout (GPS layers of GraphGPS, whose norm and attention follow)
    ==========  ==============================================================================

    ``lrgb`` and ``graphgps`` differ only for :class:`GINE`, which lists its form in each stack.

    **Rows.** The first N rows of ``x`` are the nodes of the batch, all of them targets; the output
    has only these. Sources are the same rows and, in a trimmed sample, rows after them, if
    ``accepts_extra_sources``. Graphs are concatenated: there are no padding rows.

    Parameters
    ----------
    dim, input_dim
        Output channels, and input channels (by default ``dim``).
    dropout, stack, activation
        Dropout probability, and the operations after the convolution.
    linear_residual
        Add a linear map of the input before the stack.
    """

    #: True if ``x`` may have rows after the batch's nodes, which are only sources.
    accepts_extra_sources = False

    def __init__(
        self,
        dim: int,
        *,
        dropout: float = 0.0,
        stack: Stack = "lrgb",
        activation: Activation = "relu",
        input_dim: int | None = None,
        linear_residual: bool = False,
    ) -> None:
        super().__init__()
        self.input_dim = dim if input_dim is None else input_dim
        self.dropout = dropout
        self.stack = stack
        self.activation = activation
        # Subclasses place the bias: in a linear layer (NodeLinear, SAGE), or, where the neighbours' sum
        # follows the linear layer, in ``bias``, which is added after that sum (GCN, GCNE, GAT).
        self.has_bias = stack != "graphgym"
        self.bias: nn.Parameter | None = None
        self.norm = STACK_NORMS[stack](dim) if stack in STACK_NORMS else None
        self.skip = Linear(self.input_dim, dim) if linear_residual else None

    def forward(
        self, x: Tensor, e: Tensor | None, batch: GraphBatch
    ) -> tuple[Tensor, Tensor | None]:
        """Update nodes (N, input_dim) to (N, dim); return the edge features ``e`` unchanged."""
        h = self.convolve(x, e, batch)
        if self.bias is not None:
            h = h + self.bias
        if self.skip is not None:
            h = h + self.skip(x[: len(h)])
        return self.apply_stack(h, batch), e

    def convolve(self, x: Tensor, e: Tensor | None, batch: GraphBatch) -> Tensor:
        """Convolve nodes (N, input_dim) to (N, dim), without the bias."""
        raise NotImplementedError

    def apply_stack(self, x: Tensor, batch: GraphBatch) -> Tensor:
        """Apply the operations after the convolution: (N, dim) to the same."""
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


class NodeLinear(Convolution):
    """Linear layer on each node, without neighbours."""

    def __init__(self, dim: int, **options: Any) -> None:
        super().__init__(dim, **options)
        self.lin = Linear(self.input_dim, dim, bias=self.has_bias)

    def convolve(self, x: Tensor, e: Tensor | None, batch: GraphBatch) -> Tensor:
        """(N, input_dim) to (N, dim)."""
        return self.lin(x)  # type: ignore[no-any-return]


class GCN(Convolution):
    """Graph convolution (Kipf & Welling, arXiv 1609.02907), equal to PyTorch Geometric's ``GCNConv``.

    x_i' = Σ_j W x_j / √(g_i g_j) + b over the sources j of i and i itself, where g is the number of
    these; an explicit self-loop does not count twice.
    """

    accepts_extra_sources = True

    def __init__(self, dim: int, **options: Any) -> None:
        super().__init__(dim, **options)
        self.lin = Linear(self.input_dim, dim, bias=False)
        nn.init.xavier_uniform_(self.lin.weight)
        if self.has_bias:
            self.bias = nn.Parameter(torch.zeros(dim))

    def convolve(self, x: Tensor, e: Tensor | None, batch: GraphBatch) -> Tensor:
        """(N, input_dim) to (N, dim)."""
        edge_list = batch.edges.edge_list
        dtype = self.lin.weight.dtype
        others, loops = edge_list.degrees
        scale = (others.to(dtype) + 1).rsqrt()
        loop = 1 - loops.to(dtype)

        h: Tensor = scale * self.lin(x)
        sums = neighbor_sum(edge_list, h)
        rows = len(sums)
        return scale[:rows] * (sums + loop[:rows] * h[:rows])


class SAGE(Convolution):
    """GraphSAGE with mean aggregation (Hamilton et al., arXiv 1706.02216), equal to PyG's ``SAGEConv``.

    x_i' = R x_i + W m_i + b, where m_i is the mean over the sources j of i, or 0 without sources.
    With ``self_loops``, i itself is a source, once even if it has an explicit self-loop.
    """

    accepts_extra_sources = True

    def __init__(self, dim: int, *, self_loops: bool = False, **options: Any) -> None:
        super().__init__(dim, **options)
        self.self_loops = self_loops
        self.lin = Linear(self.input_dim, dim, bias=False)
        self.lin_root = Linear(self.input_dim, dim, bias=self.has_bias)

    def convolve(self, x: Tensor, e: Tensor | None, batch: GraphBatch) -> Tensor:
        """(N, input_dim) to (N, dim), without an (E, d) tensor."""
        edge_list = batch.edges.edge_list
        sums = neighbor_sum(edge_list, x)
        x = x[: len(sums)]
        if self.self_loops:
            others, loops = edge_list.degrees
            sums = sums + (1 - loops[: len(x)]).to(sums.dtype) * x
            count = others[: len(x)] + 1
        else:
            count = edge_list.incoming.start.diff()[:, None].clamp_min(1)

        # Average before the linear map, as SAGEConv does: the mean of input features needs no gradient.
        return self.lin(sums / count.to(sums.dtype)) + self.lin_root(x)  # type: ignore[no-any-return]


class GAT(Convolution):
    """Graph attention (Veličković et al., arXiv 1710.10903) with one head, equal to ``GATConv``.

    With h = W x, x_i' = Σ_j a_ij h_j + b over the sources j of i and i itself, where a_ij is the
    softmax over j of leaky_relu(s · h_j + t · h_i) with slope 0.2. Edge features are not read.
    """

    def __init__(self, dim: int, *, bias: bool = True, **options: Any) -> None:
        super().__init__(dim, **options)
        self.lin = Linear(self.input_dim, dim, bias=False)
        nn.init.xavier_uniform_(self.lin.weight)
        self.att_src = nn.Parameter(nn.init.xavier_uniform_(torch.empty(1, dim)))
        self.att_dst = nn.Parameter(nn.init.xavier_uniform_(torch.empty(1, dim)))
        if self.has_bias and bias:
            self.bias = nn.Parameter(torch.zeros(dim))

    def convolve(self, x: Tensor, e: Tensor | None, batch: GraphBatch) -> Tensor:
        """(N, input_dim) to (N, dim)."""
        edges = batch.edges
        edge_list = edges.edge_list
        # 1. Scores of all edges, and of each node with itself; explicit self-loops do not count.
        h = self.lin(x)
        s = (h * self.att_src).sum(1, keepdim=True)
        t = (h * self.att_dst).sum(1, keepdim=True)
        loop_scores = nn.functional.leaky_relu(s + t, 0.2)
        scores = nn.functional.leaky_relu(edges.at_source(s) + edges.at_target(t), 0.2)
        scores = scores.masked_fill(edge_list.self_loop_mask.view_as(scores), -torch.inf)

        # 2. Softmax over each node's sources, relative to its largest score so that exp stays finite.
        with torch.no_grad():
            index = edge_list.target[:, None]
            top = loop_scores.scatter_reduce(0, index, scores.reshape(-1, 1), "amax")
        weight = (scores - edges.at_target(top)).exp()
        loop_weight = (loop_scores - top).exp()
        total = edges.sum_at_target(weight) + loop_weight

        # 3. Weighted mean of the sources.
        sums = neighbor_sum(edge_list, h, weight.reshape(-1)) + loop_weight * h
        return sums / total  # type: ignore[no-any-return]


def relu_sum(x: Tensor, e: Tensor | None, edges: Edges) -> Tensor:
    """Return Σ_j relu(x_j + e_ij) over the sources j of each node i, (N, d).

    ``e`` has the form of the edges, or one row (1, d) shared by all edges; None: no features.
    """
    if e is None:
        return neighbor_sum(edges.edge_list, x.relu())
    if e.ndim == 2 and len(e) == 1:
        return neighbor_sum(edges.edge_list, (x + e).relu())
    messages = edges.at_source(x)
    messages += e
    return edges.sum_at_target(messages.relu_())


class GCNE(Convolution):
    """GNN⁺'s GCN for graphs with edge features (Luo et al., arXiv 2502.09263).

    x_i' = Σ_j relu(W x_j + e_ij) + b over the sources j of i. Unlike :class:`GCN`, it ignores
    degrees and does not add node i itself. Source: ``GNNPlus/layer/gcn_conv_layer_e.py`` of
    LUOyk1999/GNNPlus.
    """

    def __init__(self, dim: int, **options: Any) -> None:
        super().__init__(dim, **options)
        self.lin = Linear(self.input_dim, dim, bias=False)
        if self.has_bias:
            self.bias = nn.Parameter(torch.zeros(dim))

    def convolve(self, x: Tensor, e: Tensor | None, batch: GraphBatch) -> Tensor:
        """(N, input_dim) and edge features, possibly one shared row, to (N, dim)."""
        return relu_sum(self.lin(x), e, batch.edges)


class GINE(Convolution):
    """Graph isomorphism network with edge features (Hu et al., arXiv 1905.12265), as ``GINEConv``.

    x_i' = f(x_i + Σ_j relu(x_j + e_ij)) over the sources j of i, where f and the operations after
    it depend on the stack; f has biases in every stack.

    ==========  ====================================  ==========================================
    stack       f                                     after f
    ==========  ====================================  ==========================================
    lrgb        linear, activation, dropout, linear   dropout
    graphgps    linear, ReLU, linear                  activation, dropout
    graphgym    linear, ReLU, linear                  batch norm, dropout, activation, unit rows
    gnn-plus    linear, ReLU, linear                  batch norm, activation, dropout
    layer-norm  linear, ReLU, linear                  layer norm, activation, dropout
    none        linear, activation, linear            dropout
    ==========  ====================================  ==========================================

    With ``by_distance``, each message is multiplied by a number between 0 and 1, like the gates of a
    :class:`~kmip_data.models.layers.gated_gcn.GatedGCN`.
    """

    def __init__(self, dim: int, *, by_distance: bool = False, **options: Any) -> None:
        super().__init__(dim, **options)
        self.lin_in = Linear(dim, dim)
        self.lin_out = Linear(dim, dim)
        self.closeness: nn.Module | None = build_distance_gate(dim) if by_distance else None

    def convolve(self, x: Tensor, e: Tensor | None, batch: GraphBatch) -> Tensor:
        """(N, dim) and edge features, possibly one shared row, to (N, dim)."""
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

    def apply_stack(self, x: Tensor, batch: GraphBatch) -> Tensor:
        """(N, dim) to the same."""
        if self.stack != "lrgb":
            return super().apply_stack(x, batch)
        return dropout(x, self.dropout if self.training else 0.0)
