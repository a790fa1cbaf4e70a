"""GatedGCN: message passing where a sigmoid of each edge's features gates its message."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from kmip_data.models.layers.batch import GraphBatch
from kmip_data.models.layers.edges import Edges, NeighborTable
from kmip_data.models.layers.norms import BatchNorm
from kmip_data.models.layers.relu_dropout import relu_dropout


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
    """

    def __init__(
        self,
        dim: int,
        *,
        dropout: float,
        residual: bool,
        update_edges: bool = True,
        by_distance: bool = False,
        activation: Literal["relu", "gelu"] = "relu",
    ) -> None:
        super().__init__()
        self.A = nn.Linear(dim, dim)
        self.B = nn.Linear(dim, dim)
        self.C = nn.Linear(dim, dim)
        self.D = nn.Linear(dim, dim)
        self.E = nn.Linear(dim, dim)
        self.closeness = (
            nn.Sequential(nn.Linear(1, dim), nn.ReLU(), nn.Linear(dim, 1), nn.Sigmoid())
            if by_distance
            else None
        )
        self.norm_x = BatchNorm(dim)
        self.norm_e = BatchNorm(dim).requires_grad_(update_edges)
        self.dropout, self.residual, self.update_edges = dropout, residual, update_edges
        self.activation = activation

    def forward(self, x: Tensor, e: Tensor, batch: GraphBatch | Edges) -> tuple[Tensor, Tensor]:
        """One layer: nodes (N, d) and edge features in the form of the edges to the same.

        ``e`` is (E, d) or (N, k, d), or (1, d) where all edges share one vector; ``batch`` says who is
        connected to whom, and with ``by_distance`` how far the ends are apart; or its edges.
        """
        edges = batch.edges if isinstance(batch, GraphBatch) else batch
        if isinstance(edges, NeighborTable) and self._takes(x, e, edges):
            messages, gates, e_new = self._sums_compiled(x, e, edges)
        else:
            messages, gates, e_new = self._sums(x, e, edges)
        x_new = self.A(x) + messages / (gates + 1e-6)
        x_new = self._activate(self.norm_x(x_new))
        return (x_new + x if self.residual else x_new), e_new

    def _activate(self, rows: Tensor) -> Tensor:
        if self.activation == "gelu":
            return nn.functional.dropout(nn.functional.gelu(rows), self.dropout, self.training)
        return relu_dropout(rows, self.dropout, self.training)

    def _sums(self, x: Tensor, e: Tensor, edges: Edges) -> tuple[Tensor, Tensor, Tensor]:
        """Messages and gates summed at the targets, and the new edges; any device, dtype and edges."""
        # Edge tensors rule the memory: this one is allocated once and added to in place.
        pre = edges.at_source(self.E(x))
        pre += edges.at_target(self.D(x))
        pre += self.C(e)
        gate = torch.sigmoid(pre)
        if self.closeness is not None:
            gate = gate * self.closeness(edges.distance)
        messages, gates = edges.sum_at_target(gate * edges.at_source(self.B(x))), edges.sum_at_target(gate)
        if not self.update_edges:
            return messages, gates, e
        e_new = self._activate(self.norm_e(pre.view(-1, pre.shape[-1])))
        return messages, gates, e_new.view(pre.shape) + e

    def _sums_compiled(self, x: Tensor, e: Tensor, edges: NeighborTable) -> tuple[Tensor, Tensor, Tensor]:
        """The same by compiled passes over the table; dropout draws other chances."""
        from kmip_data.models.layers.cpu.gated_edges import gated_edges

        shared = e.ndim == 2
        messages, gates, e_new = gated_edges(
            edges,
            self.D(x) + (self.C(e) if shared else self.C.bias),
            self.E(x),
            self.B(x),
            e,
            None if shared else self.C.weight,
            self.norm_e if self.update_edges else None,
            self.dropout if self.training else 0.0,
        )
        return messages, gates, e if e_new is None else e_new

    def _takes(self, x: Tensor, e: Tensor, edges: NeighborTable) -> bool:
        """Whether compiled passes can take these: float32 on the CPU, not under autocast or compilation."""
        return (
            self.closeness is None
            and self.activation == "relu"
            and x.device.type == "cpu"
            and not torch.compiler.is_compiling()
            and not torch.is_autocast_enabled("cpu")
            and type(self.norm_e) is BatchNorm
            and not self.norm_e.together
            and edges.neighbor.numel() > 0
            and all(t.dtype == torch.float32 for t in (x, e, self.C.weight))
        )

    def extra_repr(self) -> str:
        """Options that the sub-modules do not show."""
        return f"dropout={self.dropout}, residual={self.residual}, update_edges={self.update_edges}"
