"""GatedGCN: message passing in which a sigmoid of each edge's features gates its message.

:meth:`GatedGCN._gate_with_torch_operators` is the reference. :func:`_find_kernel` replaces it by a faster
kernel: numba on a CPU, Triton on a GPU. For the same seed, both kernels drop the same elements, but
torch operations drop others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from kmip_data.models.kernel_availability import can_use_triton_kernels
from kmip_data.models.layers.batch import Edges, GraphBatch, NeighborTable
from kmip_data.models.layers.linear import Linear, build_distance_gate
from kmip_data.models.layers.norms import BatchNorm, apply_activation, apply_norm_block

if TYPE_CHECKING:
    from kmip_data.models.components import Activation


#: Function with the signature of :func:`.cpu.gated_edges.gated_edges`.
GatedEdgesKernel = Callable[..., tuple[Tensor, Tensor | None]]


class GatedGCN(nn.Module):
    """Residual gated graph convolution (Bresson & Laurent, arXiv 1711.07553), as upstream has it.

    For an edge j → i with features e, ê = D x_i + E x_j + C e, the gate is s = sigmoid(ê), and x_i'
    = A x_i + Σ_j s · B x_j / (Σ_j s + 10⁻⁶). Batch norm, ReLU and dropout follow on x' and ê, and
    the edges have a residual connection (upstream graphgps/layer/gatedgcn_layer.py). With
    ``by_distance``, s is multiplied by a number between 0 and 1 that a perceptron 1 → d → 1
    computes from the squared distance of the positions of i and j (Wang et al., "Equivariant and
    Stable Positional Encoding for More Powerful Graph Neural Networks", ICLR 2022).

    Parameters
    ----------
    dim, dropout
        Input and output channels d of nodes and edges, and dropout probability.
    residual
        Add the input nodes to the output. The paper's code does not do so in GPS layers.
    edge_residual
        Add the input edges to the output edges. GNN⁺ does so only if it also adds the nodes.
    update_edges
        False leaves the edges unchanged, for a last layer, whose edges are not read. The edge norm
        is still built, to match published weights, but takes no gradient.
    by_distance
        Scale the gates by the distance between an edge's ends.
    activation
        ``relu``, or ``gelu`` as in LRGB's own configuration.
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
            self.closeness = build_distance_gate(dim)
        self.norm_x = BatchNorm(dim)
        self.norm_e = BatchNorm(dim).requires_grad_(update_edges)
        self.dropout = dropout
        self.residual = residual
        self.update_edges = update_edges
        self.activation = activation
        self.edge_residual = edge_residual
        kernel_updates_edges = edge_residual or not update_edges
        self.has_kernel = kernel_updates_edges and activation == "relu" and not by_distance

    def forward(self, x: Tensor, e: Tensor, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Update nodes (N, d) and edge features.

        ``e`` is (E, d) or (N, k, d), or (1, d) if all edges share one vector. With ``by_distance``,
        the batch's edges must have distances.
        """
        dropout = self.dropout if self.training else 0.0
        kernel = _find_kernel(batch, x, e, self)
        if kernel is None:
            gathered, new_e = self._gate_with_torch_operators(batch, x, e)
        else:
            gathered, new_e = self._gate_by_kernel(kernel, batch, x, e, dropout)
        new_x = apply_norm_block(
            self.norm_x,
            self.A(x),
            gathered,
            batch,
            activation=self.activation,
            dropout_after=dropout,
            residual=x if self.residual else None,
        )
        return new_x, new_e

    def _gate_by_kernel(
        self,
        kernel: GatedEdgesKernel,
        batch: GraphBatch,
        x: Tensor,
        e: Tensor,
        dropout: float,
    ) -> tuple[Tensor, Tensor]:
        """Compute the result of :meth:`_gate_with_torch_operators` with one fused kernel."""
        # A vector shared by all edges is projected once and added to the projection of the targets.
        shared = _is_shared(e, batch.edges)
        shift = self.C(e) if shared else self.C.bias
        gathered, new_e = kernel(
            batch,
            self.D(x) + shift,
            self.E(x),
            self.B(x),
            e,
            None if shared else self.C.weight,
            self.norm_e if self.update_edges else None,
            dropout,
        )
        return gathered, e if new_e is None else new_e

    def _gate_with_torch_operators(
        self, batch: GraphBatch, x: Tensor, e: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return Σ s · B x_j / (Σ s + 10⁻⁶) per node (N, d), and new edges, by torch operations."""
        edges = batch.edges
        # Edge tensors take most of the memory, so add in-place.
        pre = edges.at_source(self.E(x))
        pre += edges.at_target(self.D(x))
        pre += self.C(e)
        gate = torch.sigmoid(pre)
        if self.closeness is not None:
            gate = gate * self.closeness(edges.distance)
        messages = edges.sum_at_target(gate * edges.at_source(self.B(x)))
        mean = messages / (edges.sum_at_target(gate) + 1e-6)
        if not self.update_edges:
            return mean, e
        p = self.dropout if self.training else 0.0
        new_e = self.norm_e(pre.view(-1, pre.shape[-1]), batch)
        new_e = apply_activation(new_e, self.activation, p).view(pre.shape)
        if self.edge_residual:
            new_e = new_e + e
        return mean, new_e


def _find_kernel(
    batch: GraphBatch, x: Tensor, e: Tensor, layer: GatedGCN
) -> GatedEdgesKernel | None:
    """Return the device's fused kernel if it supports the layer and batch; None: torch operations.

    The CPU kernel supports neighbour tables in float32: training steps take 1.35 × the time without
    it (lists: 1.03 to 1.24). The GPU kernel supports tables and lists, in float32 or under bfloat16
    autocast.
    """
    if not layer.has_kernel or layer.norm_e.spans_processes or not _count_edges(batch.edges):
        return None
    weight = layer.C.weight
    is_float32 = all(tensor.dtype == torch.float32 for tensor in (x, weight, e))
    if x.device.type == "cpu":
        is_table = isinstance(batch.edges, NeighborTable)
        if is_table and is_float32 and not torch.is_autocast_enabled("cpu"):
            from kmip_data.models.layers.cpu.gated_edges import gated_edges as cpu_kernel

            return cpu_kernel  # type: ignore[no-any-return]
    elif can_use_triton_kernels("edges", x.device):
        is_supported = is_float32
        if torch.is_autocast_enabled("cuda"):
            autocast_dtype = torch.get_autocast_dtype("cuda")
            is_supported = autocast_dtype == torch.bfloat16 and weight.dtype == torch.float32
        if is_supported:
            from kmip_data.models.layers.gpu.gated_edges import gated_edges as gpu_kernel

            return gpu_kernel  # type: ignore[no-any-return]
    return None


def _is_shared(e: Tensor, edges: Edges) -> bool:
    """True if all edges share the one vector ``e``."""
    if isinstance(edges, NeighborTable):
        return e.ndim == 2
    return len(e) == 1 < len(edges.source)


def _count_edges(edges: Edges) -> int:
    if isinstance(edges, NeighborTable):
        return edges.neighbor.numel()
    return len(edges.source)
