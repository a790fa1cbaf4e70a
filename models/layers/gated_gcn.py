"""GatedGCN: message passing where a sigmoid of each edge's features gates its message."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kmip_data.models.layers.edges import Edges
from kmip_data.models.layers.norms import BatchNorm
from kmip_data.models.layers.relu_dropout import relu_dropout


class GatedGCN(nn.Module):
    """Residual gated graph convolution (Bresson & Laurent, arXiv 1711.07553) as upstream writes it.

    For an edge j → i with features e: ê = D x_i + E x_j + C e, gate s = sigmoid(ê), and
    x_i' = A x_i + Σ_j s · B x_j / (Σ_j s + 10⁻⁶). Then batch norm, ReLU and dropout on x' and ê; the
    edges always keep a residual connection (upstream graphgps/layer/gatedgcn_layer.py).

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
    """

    def __init__(self, dim: int, *, dropout: float, residual: bool, update_edges: bool = True) -> None:
        super().__init__()
        self.A = nn.Linear(dim, dim)
        self.B = nn.Linear(dim, dim)
        self.C = nn.Linear(dim, dim)
        self.D = nn.Linear(dim, dim)
        self.E = nn.Linear(dim, dim)
        self.norm_x = BatchNorm(dim)
        self.norm_e = BatchNorm(dim).requires_grad_(update_edges)
        self.dropout, self.residual, self.update_edges = dropout, residual, update_edges

    def forward(self, x: Tensor, e: Tensor, edges: Edges) -> tuple[Tensor, Tensor]:
        """One layer.

        Parameters
        ----------
        x
            (N, d).
        e
            Edge features in the form of ``edges``: (E, d) or (N, k, d); (1, d) when all edges share
            one vector.
        edges
            Who is connected to whom.

        Returns
        -------
        tuple
            Nodes (N, d) and edge features in the form of ``edges``.
        """
        # Edge tensors rule the memory: this one is allocated once and added to in place.
        pre = edges.at_source(self.E(x))
        pre += edges.at_target(self.D(x))
        pre += self.C(e)
        gate = torch.sigmoid(pre)
        total = edges.sum_at_target(gate * edges.at_source(self.B(x)))
        x_new = self.A(x) + total / (edges.sum_at_target(gate) + 1e-6)
        x_new = relu_dropout(self.norm_x(x_new), self.dropout, self.training)
        if self.residual:
            x_new = x_new + x
        if not self.update_edges:
            return x_new, e
        e_new = relu_dropout(self.norm_e(pre.view(-1, pre.shape[-1])), self.dropout, self.training)
        return x_new, e_new.view(pre.shape) + e

    def extra_repr(self) -> str:
        """Options that the sub-modules do not show."""
        return f"dropout={self.dropout}, residual={self.residual}, update_edges={self.update_edges}"
