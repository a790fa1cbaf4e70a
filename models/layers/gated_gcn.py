"""GatedGCN: message passing where a sigmoid of each edge's features gates its message.

The edges are processed by compiled passes on the CPU (numba, neighbour tables), fused ones on a GPU (Triton,
tables and lists), or torch operations for all other cases: by the device, the dtype and the layer alone. The
first two drop the same elements for the same seed; torch operations draw other chances.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from kmip_data.models.layers.batch import GraphBatch
from kmip_data.models.layers.edges import Edges, NeighborTable, UnformedEdges, formed
from kmip_data.models.layers.normed import Activation, activated, normed
from kmip_data.models.layers.norms import BatchNorm
from kmip_data.models.layers.triton_devices import triton_runs


class GatedGCN(nn.Module):
    """Residual gated graph convolution (Bresson & Laurent, arXiv 1711.07553) as upstream writes it.

    For an edge j → i with features e: ê = D x_i + E x_j + C e, gate s = sigmoid(ê), and
    x_i' = A x_i + Σ_j s · B x_j / (Σ_j s + 10⁻⁶). Then batch norm, ReLU and dropout on x' and ê; the
    edges always keep a residual connection (upstream graphgps/layer/gatedgcn_layer.py). With
    ``by_distance``, s is first multiplied by a number between 0 and 1 that a perceptron 1 → d → 1 makes of
    the squared distance of the positions of i and j (Wang et al., "Equivariant and Stable Positional
    Encoding for More Powerful Graph Neural Networks", ICLR 2022).

    Parameters
    ----------
    dim
        Channels d of nodes and edges, in and out.
    dropout
        Probability, on nodes and edges.
    residual
        Add the input nodes to the output. The paper's code does not, for its GPS layers.
    update_edges
        False leaves the edges as they are: for a last layer, whose edges nothing reads. The edge
        norm then stays, for the parameter count and published weights, but takes no gradient.
    by_distance
        Scale the gates by the distance that the edges carry.
    activation
        ``relu``, or ``gelu`` as LRGB's own code configures it.
    defer_edges
        The layer may give :class:`~kmip_data.models.layers.edges.UnformedEdges`, for a next one of this
        kind to form in passes of its own. It does so on a GPU.
    """

    def __init__(
        self,
        dim: int,
        *,
        dropout: float,
        residual: bool,
        update_edges: bool = True,
        by_distance: bool = False,
        activation: Activation = "relu",
        defer_edges: bool = False,
    ) -> None:
        super().__init__()
        self.A, self.B, self.C, self.D, self.E = (nn.Linear(dim, dim) for _ in range(5))
        self.closeness = (
            nn.Sequential(nn.Linear(1, dim), nn.ReLU(), nn.Linear(dim, 1), nn.Sigmoid())
            if by_distance
            else None
        )
        self.norm_x = BatchNorm(dim)
        self.norm_e = BatchNorm(dim).requires_grad_(update_edges)
        self.dropout, self.residual, self.update_edges = dropout, residual, update_edges
        self.activation, self.defer_edges = activation, defer_edges

    def forward(
        self, x: Tensor, e: Tensor | UnformedEdges, batch: GraphBatch
    ) -> tuple[Tensor, Tensor | UnformedEdges]:
        """One layer: nodes (N, d) and edge features in the form of the edges to the same.

        ``e`` is (E, d) or (N, k, d), or (1, d) where all edges share one vector; ``batch`` says who is
        connected to whom, and with ``by_distance`` how far the ends are apart.
        """
        dropout = self.dropout if self.training else 0.0
        linear = self.D, self.E, self.B, self.C
        part = EdgePart(
            *linear,
            self.norm_e,
            self.update_edges,
            self.activation,
            dropout,
            self.closeness,
            self.defer_edges,
        )
        gathered, e_new = gated_edges(batch, x, e, part)
        residual, act = x if self.residual else None, self.activation
        x_new = normed(
            self.norm_x,
            self.A(x),
            gathered,
            batch,
            activation=act,
            after=dropout,
            residual=residual,
        )
        return x_new, e_new

    def extra_repr(self) -> str:
        """Options that the sub-modules do not show."""
        return f"dropout={self.dropout}, residual={self.residual}, update_edges={self.update_edges}"


@dataclass(frozen=True, eq=False)
class EdgePart:
    """What a layer does to its edges."""

    #: target, source, message, product: d → d each, of the nodes at both ends, the source and the old edges
    target: nn.Linear
    source: nn.Linear
    message: nn.Linear
    product: nn.Linear
    norm: nn.Module  #: of ê, (E, d) to the same
    update: bool  #: whether there are new edges
    activation: Activation
    dropout: float  #: probability; 0 outside training
    closeness: nn.Module | None = None  #: factor of the gates, of the edges' distance
    defer: bool = False  #: whether new edges may be left unformed


def gated_edges(
    batch: GraphBatch, x: Tensor, old: Tensor | UnformedEdges, part: EdgePart
) -> tuple[Tensor, Tensor | UnformedEdges]:
    """Gate the edges, sum at the targets, and update the edges.

    For an edge j → i: ê = target(x_i) + source(x_j) + product(old), its gate s = sigmoid(ê), and its new
    features old + dropout(activation(norm(ê))). ``x`` is (N, d); ``old`` is in the form of the edges, or
    (1, d) where all edges share one vector, or what a layer before left unformed.

    Gives Σ s · message(x_j) / (Σ s + 10⁻⁶) over the edges of each node, (N, d), and the new edges in the same
    form, or ``old`` itself where they are not updated.
    """
    edges = batch.edges
    fused = _fused(batch, x, old, part)
    if fused is None:
        return _by_operators(batch, x, formed(old), part)
    shared = False
    if isinstance(old, Tensor):
        shared = old.ndim == 2 if isinstance(edges, NeighborTable) else len(old) == 1 < _count(edges)
    weight, norm = None if shared else part.product.weight, part.norm if part.update else None
    at_target = part.target(x) + (part.product(old) if shared else part.product.bias)
    quotient, new = fused(batch, at_target, part.source(x), part.message(x), old, weight, norm, part.dropout)
    new = old if new is None else new
    # A compiled layer hands tensors on: what follows it was traced for them.
    return quotient, new if part.defer and not torch.compiler.is_compiling() else formed(new)


def _by_operators(batch: GraphBatch, x: Tensor, old: Tensor, part: EdgePart) -> tuple[Tensor, Tensor]:
    edges = batch.edges
    # Edge tensors rule the memory: this one is allocated once and added to in place.
    pre = edges.at_source(part.source(x))
    pre += edges.at_target(part.target(x))
    pre += part.product(old)
    gate = torch.sigmoid(pre)
    if part.closeness is not None:
        gate = gate * part.closeness(edges.distance)
    messages = edges.sum_at_target(gate * edges.at_source(part.message(x)))
    quotient = messages / (edges.sum_at_target(gate) + 1e-6)
    if not part.update:
        return quotient, old
    flat = pre.view(-1, pre.shape[-1])
    normed = part.norm(flat, batch.edge_rows) if isinstance(part.norm, BatchNorm) else part.norm(flat)
    new = activated(normed, part.activation, part.dropout)
    return quotient, new.view(pre.shape) + old


def _fused(
    batch: GraphBatch, x: Tensor, old: Tensor | UnformedEdges, part: EdgePart
) -> Callable[..., Any] | None:
    """The function of compiled or fused passes that takes these, or None."""
    edges = batch.edges
    if (
        part.closeness is not None
        or part.activation != "relu"
        or x.device.type not in {"cpu", "cuda"}
        or type(part.norm) is not BatchNorm
        or part.norm.together
        or not _count(edges)
    ):
        return None
    kind, weight = x.device.type, part.product.weight
    lowered = torch.is_autocast_enabled(kind)
    given = (x, weight, old) if isinstance(old, Tensor) else (x, weight)
    plain = all(t.dtype == torch.float32 for t in given) and not lowered
    whole = isinstance(edges, NeighborTable) and batch.real_edges is None
    if kind == "cpu" and plain and whole and isinstance(old, Tensor):
        from kmip_data.models.layers.cpu.gated_edges import gated_edges as compiled

        return compiled  # type: ignore[no-any-return]
    mixed = lowered and torch.get_autocast_dtype(kind) == torch.bfloat16 and weight.dtype == torch.float32
    if kind == "cuda" and (plain or mixed) and triton_runs(x.device):
        from kmip_data.models.layers.gpu.gated_edges import gated_edges as in_triton

        return in_triton  # type: ignore[no-any-return]
    return None


def _count(edges: Edges) -> int:
    return edges.neighbor.numel() if isinstance(edges, NeighborTable) else len(edges.source)
