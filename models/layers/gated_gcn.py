"""GatedGCN: message passing where a sigmoid of each edge's features gates its message.

The edges are processed by compiled passes on the CPU (numba, neighbour tables), fused ones on a GPU (Triton,
tables and lists), or torch operations in all other cases: by the device, the dtype and the layer alone. The
first two drop the same elements for the same seed; torch operations draw other chances.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from kmip_data.models.context import LEFT_OUT, triton_runs
from kmip_data.models.layers.batch import Edges, GraphBatch, NeighborTable, UnformedEdges, formed
from kmip_data.models.layers.linear import Linear
from kmip_data.models.layers.norms import BatchNorm, activated, normed

if TYPE_CHECKING:
    from kmip_data.models.parts import Activation


class GatedGCN(nn.Module):
    """Residual gated graph convolution (Bresson & Laurent, arXiv 1711.07553) as upstream writes it.

    For an edge j → i with features e: ê = D x_i + E x_j + C e, gate s = sigmoid(ê), and
    x_i' = A x_i + Σ_j s · B x_j / (Σ_j s + 10⁻⁶). Then batch norm, ReLU and dropout on x' and ê; the
    edges keep a residual connection (upstream graphgps/layer/gatedgcn_layer.py). With
    ``by_distance``, s is first multiplied by a number between 0 and 1 that a perceptron 1 → d → 1 makes of
    the squared distance of the positions of i and j (Wang et al., "Equivariant and Stable Positional
    Encoding for More Powerful Graph Neural Networks", ICLR 2022).

    Parameters
    ----------
    dim, dropout
        Channels d, in and out, and probability of dropout, of nodes and edges.
    residual
        Add the input nodes to the output. The paper's code does not, for its GPS layers.
    edge_residual
        Add the input edges to the new ones. GNN⁺ does so only where it adds the nodes, too.
    update_edges
        False leaves the edges as they are: for a last layer, whose edges nothing reads. The edge
        norm then stays, for the parameter count and published weights, but takes no gradient.
    by_distance
        Scale the gates by the distance that the edges carry.
    activation
        ``relu``, or ``gelu`` as LRGB's own code configures it.
    defer_edges
        The layer may give :class:`~kmip_data.models.layers.batch.UnformedEdges`, for a next one of this
        kind to form in passes of its own. It does so on a GPU.
    """

    def __init__(
        self,
        dim: int,
        *,
        dropout: float,
        residual: bool,
        edge_residual: bool = True,
        update_edges: bool = True,
        by_distance: bool = False,
        activation: Activation = "relu",
        defer_edges: bool = False,
    ) -> None:
        super().__init__()
        self.A, self.B, self.C, self.D, self.E = (Linear(dim, dim) for _ in range(5))
        self.closeness: nn.Module | None = None
        if by_distance:
            self.closeness = nn.Sequential(Linear(1, dim), nn.ReLU(), Linear(dim, 1), nn.Sigmoid())
        self.norm_x = BatchNorm(dim)
        self.norm_e = BatchNorm(dim).requires_grad_(update_edges)
        self.dropout = dropout
        self.residual = residual
        self.update_edges = update_edges
        self.activation = activation
        self.defer_edges = defer_edges
        self.edge_residual = edge_residual

    def forward(
        self, x: Tensor, e: Tensor | UnformedEdges, batch: GraphBatch
    ) -> tuple[Tensor, Tensor | UnformedEdges]:
        """One layer: nodes (N, d) and edge features in the form of the edges to the same.

        ``e`` is (E, d) or (N, k, d), or (1, d) where all edges share one vector; ``batch`` says who is
        connected to whom, and with ``by_distance`` how far the ends are apart.
        """
        dropout = self.dropout if self.training else 0.0
        new: Any
        fused = _fused(batch, x, e, self)
        if fused is None:
            gathered, new = self._by_operators(batch, x, formed(e))
        else:
            shared = False
            if isinstance(e, Tensor):
                table = isinstance(batch.edges, NeighborTable)
                shared = e.ndim == 2 if table else len(e) == 1 < _count(batch.edges)
            at_target = self.D(x) + (self.C(e) if shared else self.C.bias)
            weight = None if shared else self.C.weight
            norm = self.norm_e if self.update_edges else None
            gathered, given = fused(
                batch, at_target, self.E(x), self.B(x), e, weight, norm, dropout
            )
            new = e if given is None else given
            # A compiled layer hands tensors on: what follows it was traced for them.
            new = new if self.defer_edges and not torch.compiler.is_compiling() else formed(new)
        residual = x if self.residual else None
        options: Any = {"activation": self.activation, "after": dropout, "residual": residual}
        return normed(self.norm_x, self.A(x), gathered, batch, **options), new

    def _by_operators(self, batch: GraphBatch, x: Tensor, old: Tensor) -> tuple[Tensor, Tensor]:
        """Σ s · B x_j / (Σ s + 10⁻⁶) of each node (N, d), and new edges, in torch operations."""
        edges = batch.edges
        # Edge tensors take most of the memory: this one is allocated once and added to in place.
        pre = edges.at_source(self.E(x))
        pre += edges.at_target(self.D(x))
        pre += self.C(old)
        gate = torch.sigmoid(pre)
        if self.closeness is not None:
            gate = gate * self.closeness(edges.distance)
        messages = edges.sum_at_target(gate * edges.at_source(self.B(x)))
        quotient = messages / (edges.sum_at_target(gate) + 1e-6)
        if not self.update_edges:
            return quotient, old
        normed = self.norm_e(pre.view(-1, pre.shape[-1]), batch.edge_rows)
        p = self.dropout if self.training else 0.0
        new = activated(normed, self.activation, p, batch.edge_rows)
        new = new.view(pre.shape)
        if self.edge_residual:
            new = new + old
        return quotient, new


def _fused(
    batch: GraphBatch, x: Tensor, old: Tensor | UnformedEdges, layer: GatedGCN
) -> Callable[..., Any] | None:
    """Return the function of compiled or fused passes for these, or None."""
    edges = batch.edges
    kind = x.device.type
    weight = layer.C.weight
    alone = batch.partition is None and not layer.norm_e.together
    if layer.closeness is not None or layer.activation != "relu" or not alone:
        return None
    if layer.update_edges and not layer.edge_residual:
        return None
    if kind not in {"cpu", "cuda"} or not _count(edges):
        return None
    lowered = torch.is_autocast_enabled(kind)
    given = (x, weight, old) if isinstance(old, Tensor) else (x, weight)
    plain = all(t.dtype == torch.float32 for t in given) and not lowered
    table = isinstance(edges, NeighborTable) and batch.edge_rows.first is None
    if kind == "cpu" and plain and table and isinstance(old, Tensor):
        from kmip_data.models.layers.cpu.gated_edges import gated_edges as compiled

        return compiled  # type: ignore[no-any-return]
    mixed = (
        lowered
        and torch.get_autocast_dtype(kind) == torch.bfloat16
        and weight.dtype == torch.float32
    )
    if kind == "cuda" and (plain or mixed) and "edges" not in LEFT_OUT and triton_runs(x.device):
        from kmip_data.models.layers.gpu.gated_edges import gated_edges as in_triton

        return in_triton  # type: ignore[no-any-return]
    return None


def _count(edges: Edges) -> int:
    return edges.neighbor.numel() if isinstance(edges, NeighborTable) else len(edges.source)
