"""GatedGCN: message passing where a sigmoid of each edge's features gates its message.

The reference is :meth:`GatedGCN._gate_by_operators`. :func:`_find_kernel` replaces it where a kernel is faster:
numba on a CPU, Triton on a GPU. These two drop the same elements for the same seed; torch operations
drop others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from kmip_data.models.kernels import kernels_run
from kmip_data.models.layers.batch import Edges, GraphBatch, NeighborTable
from kmip_data.models.layers.linear import Linear, distance_gate
from kmip_data.models.layers.norms import BatchNorm, apply_activation, apply_norm_block

if TYPE_CHECKING:
    from kmip_data.models.components import Activation


#: Function as :func:`.cpu.gated_edges.gated_edges`.
Kernel = Callable[..., tuple[Tensor, Tensor | None]]


class GatedGCN(nn.Module):
    """Residual gated graph convolution (Bresson & Laurent, arXiv 1711.07553) as upstream writes it.

    For an edge j → i with features e: ê = D x_i + E x_j + C e, gate s = sigmoid(ê), and x_i' = A
    x_i + Σ_j s · B x_j / (Σ_j s + 10⁻⁶). Then batch norm, ReLU and dropout on x' and ê; the edges
    keep a residual connection (upstream graphgps/layer/gatedgcn_layer.py). With ``by_distance``, s
    is first multiplied by a number between 0 and 1 that a perceptron 1 → d → 1 computes from the
    squared distance of the positions of i and j (Wang et al., "Equivariant and Stable Positional
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
        False leaves the edges unchanged: for a last layer, whose edges nothing reads. The edge
        norm then stays, for the parameter count and published weights, but takes no gradient.
    by_distance
        Scale the gates by the distance of the edges' ends.
    activation
        ``relu``, or ``gelu`` as LRGB's own code configures it.
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
    ) -> None:
        super().__init__()
        self.A, self.B, self.C, self.D, self.E = (Linear(dim, dim) for _ in range(5))
        self.closeness: nn.Module | None = None
        if by_distance:
            self.closeness = distance_gate(dim)
        self.norm_x = BatchNorm(dim)
        self.norm_e = BatchNorm(dim).requires_grad_(update_edges)
        self.dropout = dropout
        self.residual = residual
        self.update_edges = update_edges
        self.activation = activation
        self.edge_residual = edge_residual
        usual_edges = edge_residual or not update_edges
        self.has_kernel = usual_edges and activation == "relu" and not by_distance

    def forward(self, x: Tensor, e: Tensor, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """One layer: nodes (N, d) and edge features in the form of the edges to the same.

        ``e`` is (E, d) or (N, k, d), or (1, d) where all edges share one vector; ``batch`` has the
        edges, and with ``by_distance`` the distance of their ends.
        """
        dropout = self.dropout if self.training else 0.0
        kernel = _find_kernel(batch, x, e, self)
        if kernel is None:
            gathered, new = self._gate_by_operators(batch, x, e)
        else:
            gathered, new = self._gate_by_kernel(kernel, batch, x, e, dropout)
        new_x = apply_norm_block(
            self.norm_x,
            self.A(x),
            gathered,
            batch,
            activation=self.activation,
            after=dropout,
            residual=x if self.residual else None,
        )
        return new_x, new

    def _gate_by_kernel(
        self,
        kernel: Kernel,
        batch: GraphBatch,
        x: Tensor,
        e: Tensor,
        dropout: float,
    ) -> tuple[Tensor, Tensor]:
        """Return what :meth:`_gate_by_operators` returns, computed by one fused kernel."""
        # The product of one vector for all edges is added to the product of the targets.
        shared = _is_shared(e, batch.edges)
        shift = self.C(e) if shared else self.C.bias
        gathered, new = kernel(
            batch,
            self.D(x) + shift,
            self.E(x),
            self.B(x),
            e,
            None if shared else self.C.weight,
            self.norm_e if self.update_edges else None,
            dropout,
        )
        return gathered, e if new is None else new

    def _gate_by_operators(
        self, batch: GraphBatch, x: Tensor, old: Tensor
    ) -> tuple[Tensor, Tensor]:
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
        p = self.dropout if self.training else 0.0
        new = self.norm_e(pre.view(-1, pre.shape[-1]), batch)
        new = apply_activation(new, self.activation, p).view(pre.shape)
        if self.edge_residual:
            new = new + old
        return quotient, new


def _find_kernel(batch: GraphBatch, x: Tensor, old: Tensor, layer: GatedGCN) -> Kernel | None:
    """Return the kernel of this device where it computes the layer; None: torch operations.

    On a CPU it takes neighbour tables in float32, whose training steps take 1.35 × the time without
    it (lists: 1.03 to 1.24); on a GPU tables and lists, in float32 or under bfloat16 autocast.
    """
    if not layer.has_kernel or layer.norm_e.spans_processes or not _count_edges(batch.edges):
        return None
    weight = layer.C.weight
    in_float32 = all(tensor.dtype == torch.float32 for tensor in (x, weight, old))
    if x.device.type == "cpu":
        table = isinstance(batch.edges, NeighborTable)
        if table and in_float32 and not torch.is_autocast_enabled("cpu"):
            from kmip_data.models.layers.cpu.gated_edges import gated_edges as compiled

            return compiled  # type: ignore[no-any-return]
    elif kernels_run("edges", x.device):
        suits = in_float32
        if torch.is_autocast_enabled("cuda"):
            lowered = torch.get_autocast_dtype("cuda")
            suits = lowered == torch.bfloat16 and weight.dtype == torch.float32
        if suits:
            from kmip_data.models.layers.gpu.gated_edges import gated_edges as in_triton

            return in_triton  # type: ignore[no-any-return]
    return None


def _is_shared(e: Tensor, edges: Edges) -> bool:
    """True if ``e`` is one vector for all edges."""
    if isinstance(edges, NeighborTable):
        return e.ndim == 2
    return len(e) == 1 < len(edges.source)


def _count_edges(edges: Edges) -> int:
    if isinstance(edges, NeighborTable):
        return edges.neighbor.numel()
    return len(edges.source)
