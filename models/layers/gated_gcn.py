"""GatedGCN: message passing where a sigmoid of each edge's features gates its message."""

from __future__ import annotations

from torch import Tensor, nn

from kmip_data.models.layers.batch import GraphBatch
from kmip_data.models.layers.edges import UnformedEdges
from kmip_data.models.layers.gated_edges import Activation, EdgePart, gated_edges
from kmip_data.models.layers.normed import normed
from kmip_data.models.layers.norms import BatchNorm


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
