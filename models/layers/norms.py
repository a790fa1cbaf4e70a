"""Normalisation layers by name, called as ``norm(x, batch)``, and the operations around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, distributed, nn
from torch.autograd.function import once_differentiable
from torch_geometric.nn import norm as geometric

from kmip_data.models.kernels import takes_cpu_kernels
from kmip_data.models.layers.adjacency import widen_half_precision
from kmip_data.models.layers.batch import GraphBatch

if TYPE_CHECKING:
    from kmip_data.models.components import Activation

#: Fewest elements for :mod:`~.cpu.dropout` on a CPU.
MANY = 1 << 16


class BatchNorm(nn.BatchNorm1d):
    """Batch norm over all rows (N, d) of a batch.

    Unlike ``torch.nn.BatchNorm1d``, it accepts zero rows and, in training, a single row (normalised
    by the running statistics, as its own variance is zero).
    """

    weight: nn.Parameter
    bias: nn.Parameter
    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor
    momentum: float
    #: In training on several processes that share a batch: 1.0 if this process's rows count, else
    #: 0.0. ``None``: use the statistics of this process's rows alone.
    share: float | None = None

    def forward(self, x: Tensor, batch: GraphBatch | None = None) -> Tensor:
        """Normalise (N, d); norms of graphs also read the batch."""
        if self.spans_processes:
            return self._normalise_over_processes(x, self.share or 0.0)  # type: ignore[no-any-return]
        if x.shape[0] == 0:
            return x
        if not self.training or self.uses_batch(x.shape[0]):
            return super().forward(x)
        return self._normalise_by_running(x)

    def _normalise_by_running(self, x: Tensor) -> Tensor:
        """Normalise by running statistics, without updating them."""
        return nn.functional.batch_norm(
            x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            eps=self.eps,
        )

    def uses_batch(self, rows: int) -> bool:
        """True if this many rows are normalised by their own, not by running statistics."""
        return self.training and rows > 1

    @property
    def spans_processes(self) -> bool:
        """True if rows are normalised by statistics over all processes."""
        return self.training and self.share is not None

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _normalise_over_processes(self, x: Tensor, share: float) -> Tensor:
        # `SyncBatchNorm` does not support CPUs. Each row affects the losses of all processes.
        work = widen_half_precision(x)
        count = int(_sum_of_processes(work.new_tensor(len(x) * share, dtype=torch.float64)))
        if count < 2:
            return self._normalise_by_running(x)
        mean = _sum_of_processes(work.sum(0) * share) / count
        centred = work - mean
        variance = _sum_of_processes(centred.square().sum(0) * share) / count
        self.update_running(mean, variance, count)
        factor = self.weight * (variance + self.eps).rsqrt()
        return (centred * factor + self.bias).to(x.dtype)

    @torch.no_grad()
    def update_running(self, mean: Tensor, variance: Tensor, rows: int) -> None:
        """Update the running statistics by a batch of ``rows`` rows that was normalised elsewhere.

        Mean and variance are (d,), the variance the batch's own, divided by ``rows``.
        """
        self.num_batches_tracked += 1
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
        unbiased = variance * (rows / (rows - 1))
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)


def _sum_of_processes(x: Tensor) -> Tensor:
    total: Tensor = _SumOfProcesses.apply(x)  # type: ignore[no-untyped-call]
    return total


class _SumOfProcesses(torch.autograd.Function):
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
    """Return factors, shifts and means of a norm (3, d), and 1 / deviation (d,) in float64.

    The norm of a value z is factor · z + shift. ``statistics`` are mean and variance (d,) of these
    ``rows`` values, which update ``norm``; None: use the running ones.
    """
    if statistics is not None:
        norm.update_running(*statistics, rows)
    mean, variance = statistics or (norm.running_mean, norm.running_var)
    inverse = (variance.double() + norm.eps).rsqrt()
    factor = norm.weight * inverse
    shift = norm.bias - mean * factor
    return torch.stack([factor, shift, mean]).float(), inverse


def norm_gradients(
    constants: Tensor, inverse: Tensor, total: Tensor, product: Tensor, share: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return gradients of the norm's weight and bias (d,), and the constants of a value's gradient.

    ``total`` and ``product`` (d,) float64 are Σ g and Σ g · (z − mean), g the gradient of what the
    norm gives; ``share`` is 1 / the number of values if normalised by their own statistics, else 0,
    as running ones do not depend on z. The constants are (5, d): ``constants``, offsets and slopes;
    the gradient of z is factor · g − offset − slope · (z − mean).
    """
    means = torch.stack([total * share, product * inverse.square() * share])
    offsets_and_slopes = (constants[0] * means).float()
    grad_weight = (product * inverse).float()
    return grad_weight, total.float(), torch.cat([constants, offsets_and_slopes])


class GraphLayerNorm(geometric.LayerNorm):  # type: ignore[misc] # PyTorch Geometric has no types
    """PyTorch Geometric's ``LayerNorm(mode="graph")``: one mean and variance of each graph, all channels.

    It computes in float32 at least: a count in bfloat16 stops at 256.
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
    more: Tensor | None = None,
    batch: GraphBatch | None = None,
    *,
    before: float = 0.0,
    activation: Activation | None = None,
    after: float = 0.0,
    residual: Tensor | None = None,
) -> Tensor:
    """``residual`` + dropout(activation(norm(``rows`` + dropout(``more``)))), (N, d) each.

    Arguments that are None are omitted. ``before`` and ``after`` are the probabilities of the two
    dropouts, 0 outside training; ``norm`` is of :data:`~kmip_data.models.component_names.NORMS`, and rows
    are the nodes of ``batch`` (None: one graph).
    """
    if more is not None:
        rows = rows + dropout(more, before)
    if not isinstance(norm, nn.Identity):
        rows = norm(rows, batch)
    if activation is not None:
        rows = apply_activation(rows, activation, after)
    return rows if residual is None else residual + rows


def apply_activation(rows: Tensor, activation: Activation, p: float) -> Tensor:
    """``dropout(activation(rows), p)`` of rows (N, d); the probability is 0 outside training."""
    activate = getattr(nn.functional, activation)
    return dropout(activate(rows), p)


def dropout(x: Tensor, p: float) -> Tensor:
    """Set elements of ``x`` (N, d) to zero with probability ``p`` and scale up the others.

    On a CPU, many elements are dropped by a hash, as PyTorch draws each random number on one core.
    """
    if x.numel() < MANY or not 0 < p < 1 or not takes_cpu_kernels(x):
        return nn.functional.dropout(x, p)
    # Imports numba, which takes a while.
    from kmip_data.models.layers.cpu.dropout import dropout as hashed

    return hashed(x, p)
