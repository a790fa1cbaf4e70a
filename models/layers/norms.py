"""The normalisations a layer can use, by name, all called as ``norm(x, graph, num_graphs)``.

Of a padded batch those of single rows or graphs need not know; a batch norm is told how many rows are real.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.autograd.function import once_differentiable
from torch_geometric.nn.norm import GraphNorm, LayerNorm

from kmip_data.runtime.threads import set_within

_local = threading.local()


def unchanged_statistics() -> AbstractContextManager[None]:
    """Within it batch norms leave their running statistics alone.

    For the second forward pass of a checkpointed layer, which would else count its batch twice.
    """
    return set_within(_local, "unchanged", True)


def repeats() -> bool:
    """Whether a checkpointed layer runs for the second time."""
    return bool(getattr(_local, "unchanged", False))


class BatchNorm(nn.BatchNorm1d):
    """Batch norm over all rows (N, d) of a batch.

    Unlike ``torch.nn.BatchNorm1d`` it takes no rows (returned as they are) and, in training, a
    single row (normalised by the running statistics, as its own variance is zero).
    """

    #: In training on several processes that share a batch: whether this one's rows count (1.0) or not (0.0).
    #: ``None`` takes the statistics of this process's rows alone.
    share: float | None = None

    def forward(
        self,
        x: Tensor,
        graph: Tensor | None = None,
        num_graphs: int | None = None,
        *,
        real: Tensor | None = None,
    ) -> Tensor:
        """Normalise (N, d); graphs make no difference.

        ``real`` (1,), on the device of ``x``, is how many rows, two or more, the statistics in training are
        of, the first ones; None: all.
        """
        if real is not None and self.training:
            return self._normalised_by_first(x, real)
        if self.together:
            normalised: Tensor = self._normalised_together(x)
            return normalised
        if x.shape[0] == 0:
            return x
        by_batch = self.uses_batch(x.shape[0])
        if not self.training or (by_batch and not repeats()):
            return super().forward(x)
        return nn.functional.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, by_batch, 0.0, self.eps
        )

    def uses_batch(self, rows: int) -> bool:
        """Whether this many rows are normalised by their own statistics, not by the running ones."""
        return self.training and rows > 1

    def _normalised_by_first(self, x: Tensor, real: Tensor) -> Tensor:
        assert self.weight is not None
        work = x.to(torch.promote_types(x.dtype, torch.float32))
        there = (torch.arange(len(x), device=x.device) < real)[:, None]
        mean = work.where(there, 0).sum(0) / real
        away = work - mean
        # Not multiplied by a mask: whatever other rows hold stays out of sums, and of their gradients.
        variance = away.where(there, 0).square().sum(0) / real
        self.note(mean, variance, real)
        return (away * (self.weight * (variance + self.eps).rsqrt()) + self.bias).to(x.dtype)

    @property
    def together(self) -> bool:
        """Whether rows are normalised by the statistics of all processes."""
        return self.training and self.share is not None

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _normalised_together(self, x: Tensor) -> Tensor:
        rows, mean, variance = _statistics(x, self.share or 0.0)
        if rows < 2:
            return nn.functional.batch_norm(
                x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps
            )
        self.note(mean, variance, rows)
        deviation = (variance + self.eps).rsqrt()
        found: Tensor = _Together.apply(  # type: ignore[no-untyped-call]
            x, self.weight, self.bias, mean, deviation, (self.share or 0.0) / rows
        )
        return found

    @torch.no_grad()
    def note(self, mean: Tensor, variance: Tensor, rows: int | Tensor) -> None:
        """Take up the mean and variance (d,) of a batch of ``rows`` rows that was normalised elsewhere.

        The variance is that of the batch itself, divided by ``rows``.
        """
        if repeats():
            return
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        assert self.momentum is not None
        self.num_batches_tracked += 1
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
        if isinstance(rows, Tensor):  # a padded batch: counted in the dtype of the statistics, not in float32
            rows = rows.to(variance.dtype)
        unbiased = variance * (rows / (rows - 1))
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)


@torch.no_grad()
def _statistics(x: Tensor, share: float) -> tuple[int, Tensor, Tensor]:
    """Number of rows on all processes, and their mean and variance (d,) in float64; waits for a GPU."""
    work, d = x.to(torch.promote_types(x.dtype, torch.float32)), x.shape[1]
    mean = work.sum(0) / max(1, len(x))
    away = (work - mean).square_().sum(0).double()
    mean = mean.double()
    # Squares are about each process's own mean, so nothing is lost where that is large.
    sums = torch.cat([mean.new_ones(1), mean, mean.square()]) * len(x)
    sums[1 + d :] += away
    sums *= share
    distributed.all_reduce(sums)
    rows, mean = int(sums[0]), sums[1 : 1 + d] / sums[0]
    return rows, mean, (sums[1 + d :] / sums[0] - mean.square()).clamp_min(0)


class _Together(torch.autograd.Function):
    """Batch norm by statistics of all processes; what a row changes in them reaches the others' losses."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, scale: Tensor, shift: Tensor, mean: Tensor, deviation: Tensor, share: float
    ) -> Tensor:
        ctx.save_for_backward(x, scale, mean, deviation)
        ctx.share = share
        factor = scale * deviation
        return (x * factor.to(scale.dtype) + (shift - mean * factor).to(scale.dtype)).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, scale, mean, deviation = ctx.saved_tensors
        grad, kind = grad.to(scale.dtype), scale.dtype
        normal = (x - mean.to(kind)) * deviation.to(kind)
        shift, product = grad.sum(0), (grad * normal).sum(0)
        sums = torch.stack([shift, product])
        distributed.all_reduce(sums)
        through = grad - ctx.share * (sums[0] + normal * sums[1])
        grad_x = (through * (scale * deviation).to(kind)).to(x.dtype)
        return grad_x, product, shift, None, None, None


class NoNorm(nn.Module):
    """Leaves rows as they are."""

    def __init__(self, dim: int) -> None:
        super().__init__()

    def forward(self, x: Tensor, graph: Tensor | None = None, num_graphs: int | None = None) -> Tensor:
        """(N, dim) to the same."""
        return x


NORMS: dict[str, Callable[[int], nn.Module]] = {
    "batch": BatchNorm,  # point clouds
    # LRGB and cities: one mean and variance per graph, all channels
    "graph-layer": partial(LayerNorm, mode="graph"),
    "layer": partial(LayerNorm, mode="node"),  # one mean and variance per node: what the paper's word means
    "graph": GraphNorm,  # one mean and variance per graph and channel: the thesis and Exphormer
    "none": NoNorm,  # stacks of message passing
}
