"""Normalisation layers, called as ``norm(x, batch)``, activation and dropout."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, distributed, nn
from torch.autograd.function import once_differentiable
from torch_geometric.nn import norm as geometric

from kmip_data.models.kernel_availability import can_use_cpu_kernels
from kmip_data.models.layers.batch import GraphBatch
from kmip_data.models.layers.edge_list import widen_half_precision

if TYPE_CHECKING:
    from kmip_data.models.components import Activation

MIN_HASHED_ELEMENTS = 1 << 16  #: fewest elements for :mod:`~.cpu.dropout` on a CPU


class BatchNorm(nn.BatchNorm1d):
    """Batch norm over all rows (N, d) of a batch.

    Unlike ``torch.nn.BatchNorm1d``, it accepts zero rows and, in training, a single row, which it
    normalises by the running statistics because a single row has no variance.
    """

    weight: nn.Parameter
    bias: nn.Parameter
    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor
    momentum: float
    #: Weight of this process's rows if several processes share a batch in training: 1.0, or 0.0 to
    #: leave them out. None: normalise by the statistics of this process's rows only.
    row_weight: float | None = None

    def forward(self, x: Tensor, batch: GraphBatch | None = None) -> Tensor:
        """Normalise rows (N, d); ``batch`` is ignored."""
        if self.spans_processes:
            return self._normalise_over_processes(x, self.row_weight or 0.0)  # type: ignore[no-any-return]
        if x.shape[0] == 0:
            return x
        if not self.training or self.uses_batch_statistics(x.shape[0]):
            return super().forward(x)
        return self._normalise_by_running_statistics(x)

    def _normalise_by_running_statistics(self, x: Tensor) -> Tensor:
        """Normalise without updating the running statistics."""
        return nn.functional.batch_norm(
            x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            eps=self.eps,
        )

    def uses_batch_statistics(self, rows: int) -> bool:
        """True if this many rows are normalised by their own statistics, not by the running ones."""
        return self.training and rows > 1

    @property
    def spans_processes(self) -> bool:
        """True if rows are normalised by statistics over all processes."""
        return self.training and self.row_weight is not None

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _normalise_over_processes(self, x: Tensor, row_weight: float) -> Tensor:
        # `SyncBatchNorm` does not support CPUs. Each row affects the losses of all processes.
        work = widen_half_precision(x)
        local_count = work.new_tensor(len(x) * row_weight, dtype=torch.float64)
        count = int(_sum_over_processes(local_count))
        if count < 2:
            return self._normalise_by_running_statistics(x)
        mean = _sum_over_processes(work.sum(0) * row_weight) / count
        centred = work - mean
        variance = _sum_over_processes(centred.square().sum(0) * row_weight) / count
        self.update_running_statistics(mean, variance, count)
        factor = self.weight * (variance + self.eps).rsqrt()
        return (centred * factor + self.bias).to(x.dtype)

    @torch.no_grad()
    def update_running_statistics(self, mean: Tensor, variance: Tensor, rows: int) -> None:
        """Update the running statistics for a batch of ``rows`` rows that was normalised elsewhere.

        Mean and biased variance are (d,).
        """
        self.num_batches_tracked += 1
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
        unbiased = variance * (rows / (rows - 1))
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)


def _sum_over_processes(x: Tensor) -> Tensor:
    total: Tensor = _SumOverProcesses.apply(x)  # type: ignore[no-untyped-call]
    return total


class _SumOverProcesses(torch.autograd.Function):
    @staticmethod
    def forward(_: object, x: Tensor) -> Tensor:
        total = x.clone()
        distributed.all_reduce(total)
        return total

    @staticmethod
    @once_differentiable
    def backward(_: object, grad: Tensor) -> Tensor:
        total = grad.clone()
        distributed.all_reduce(total)
        return total


def norm_constants(
    norm: BatchNorm, statistics: tuple[Tensor, Tensor] | None, rows: int
) -> tuple[Tensor, Tensor]:
    """Return a norm's factors, shifts and means (3, d), and 1 / standard deviation (d,) in float64.

    A value z is normalised to factor · z + shift. ``statistics`` are mean and variance (d,) over
    ``rows`` values, and update the running statistics; None: use the running ones.
    """
    if statistics is not None:
        norm.update_running_statistics(*statistics, rows)
    mean, variance = statistics or (norm.running_mean, norm.running_var)
    inverse = (variance.double() + norm.eps).rsqrt()
    factor = norm.weight * inverse
    shift = norm.bias - mean * factor
    return torch.stack([factor, shift, mean]).float(), inverse


def norm_gradients(
    constants: Tensor, inverse: Tensor, total: Tensor, product: Tensor, inverse_count: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return gradients of the norm's weight and bias (d,), and constants (5, d) of z's gradient.

    ``total`` and ``product`` (d,) float64 are Σ g and Σ g · (z − mean), where g is the gradient of
    the normalised value. ``inverse_count`` is 1 / the number of values z if they were normalised by
    their own statistics, else 0, as running statistics do not depend on z. The returned constants
    append offsets and slopes to ``constants``: z's gradient is factor · g − offset − slope · (z −
    mean).
    """
    means = torch.stack([total, product * inverse.square()]) * inverse_count
    offsets_and_slopes = (constants[0] * means).float()
    grad_weight = (product * inverse).float()
    return grad_weight, total.float(), torch.cat([constants, offsets_and_slopes])


class GraphLayerNorm(geometric.LayerNorm):  # type: ignore[misc] # PyTorch Geometric has no types
    """PyTorch Geometric's ``LayerNorm(mode="graph")``: one mean and variance per graph.

    It computes in at least float32: a count in bfloat16 stops at 256.
    """

    def forward(self, x: Tensor, batch: GraphBatch) -> Tensor:
        """(N, d) to the same."""
        nodes = batch.nodes_to_graphs
        count = batch.graph_sizes * x.shape[1]
        x = widen_half_precision(x)
        mean = nodes.sum_at_target(x).sum(1, keepdim=True) / count
        x = x - nodes.at_target(mean)
        variance = nodes.sum_at_target(x * x).sum(1, keepdim=True) / count
        deviation = nodes.at_target((variance + self.eps).sqrt())
        return x / deviation * self.weight + self.bias  # type: ignore[no-any-return]


class GraphNorm(geometric.GraphNorm):  # type: ignore[misc]
    """PyTorch Geometric's ``GraphNorm``: one mean and variance per graph and channel, in float32."""

    def forward(self, x: Tensor, batch: GraphBatch) -> Tensor:
        """(N, d) to the same."""
        nodes = batch.nodes_to_graphs
        count = batch.graph_sizes
        x = widen_half_precision(x)
        mean = nodes.sum_at_target(x) / count
        x = x - nodes.at_target(mean) * self.mean_scale
        variance = nodes.sum_at_target(x.square()) / count
        deviation = nodes.at_target((variance + self.eps).sqrt())
        return self.weight * x / deviation + self.bias  # type: ignore[no-any-return]


def apply_norm_block(
    norm: nn.Module,
    rows: Tensor,
    update: Tensor | None = None,
    batch: GraphBatch | None = None,
    *,
    dropout_before: float = 0.0,
    activation: Activation | None = None,
    dropout_after: float = 0.0,
    residual: Tensor | None = None,
) -> Tensor:
    """Return ``residual`` + dropout(activation(norm(``rows`` + dropout(``update``)))), (N, d) each.

    Operations whose argument is None are omitted. ``dropout_before`` and ``dropout_after`` are the
    probabilities of the two dropouts, 0 outside training. ``rows`` are the nodes of ``batch`` (None:
    one graph).
    """
    if update is not None:
        rows = rows + dropout(update, dropout_before)
    if not isinstance(norm, nn.Identity):
        rows = norm(rows, batch)
    if activation is not None:
        rows = apply_activation(rows, activation, dropout_after)
    return rows if residual is None else residual + rows


def apply_activation(rows: Tensor, activation: Activation, p: float) -> Tensor:
    """Return dropout(activation(rows)) of rows (N, d); ``p`` is 0 outside training."""
    activate = getattr(nn.functional, activation)
    return dropout(activate(rows), p)


def dropout(x: Tensor, p: float) -> Tensor:
    """Set elements of ``x`` (N, d) to zero with probability ``p`` and scale up the others.

    On a CPU, a hash selects the elements of large tensors: PyTorch draws random numbers on one core.
    """
    if x.numel() < MIN_HASHED_ELEMENTS or not 0 < p < 1 or not can_use_cpu_kernels(x):
        return nn.functional.dropout(x, p)
    # Imports numba, which takes a while.
    from kmip_data.models.layers.cpu.dropout import dropout as hashed_dropout

    return hashed_dropout(x, p)
