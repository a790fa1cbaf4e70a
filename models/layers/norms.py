"""Normalisations of a layer by name, alone or fused with the operations around them.

A batch norm is called as ``norm(x, rows)``, those of graphs as ``norm(x, batch)``: padding is a graph of its
own. :func:`normed` fuses a batch norm with its surroundings on a GPU: in training, of float32 and bfloat16,
with statistics of this process alone. The fused kernels and torch draw other chances of dropout.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, distributed, nn
from torch.autograd.function import once_differentiable
from torch_geometric.nn import norm as geometric
from torch_geometric.nn.norm import LayerNorm

from kmip_data.models.context import LEFT_OUT, triton_runs
from kmip_data.models.layers.batch import ALL, GraphBatch, Rows

if TYPE_CHECKING:
    from kmip_data.models.layers.partition import Chosen


#: Elements from which dropout on a CPU is :mod:`~.cpu.chances`'; below, the state costs more than drawing.
DRAWN_IN_BLOCKS = 1 << 16


class BatchNorm(nn.BatchNorm1d):
    """Batch norm over all rows (N, d) of a batch.

    Unlike ``torch.nn.BatchNorm1d`` it takes no rows (returned as they are) and, in training, a
    single row (normalised by the running statistics, as its own variance is zero).
    """

    weight: nn.Parameter
    bias: nn.Parameter
    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor
    momentum: float
    #: In training on several processes that share a batch: whether this one's rows count (1.0) or not (0.0).
    #: ``None`` takes the statistics of this process's rows alone.
    share: float | None = None

    def forward(self, x: Tensor, rows: Rows = ALL) -> Tensor:
        """Normalise (N, d); a count of ``rows`` is at least two, and matters in training alone."""
        if rows.first is not None and self.training:
            return self._normalised_by_first(x, rows.first, rows.repeated)
        if self.together:
            normalised: Tensor = self._normalised_together(x, rows)
            return normalised
        if x.shape[0] == 0:
            return x
        by_batch = self.uses_batch(x.shape[0])
        if not self.training or (by_batch and not rows.repeated):
            return super().forward(x)
        return self._by_running(x, by_batch)

    def _by_running(self, x: Tensor, by_batch: bool = False) -> Tensor:
        """Normalise by running statistics, or by those of the batch; neither moves the running ones."""
        statistics = self.running_mean, self.running_var
        return nn.functional.batch_norm(
            x, *statistics, self.weight, self.bias, by_batch, 0.0, self.eps
        )

    def uses_batch(self, rows: int) -> bool:
        """True if this many rows are normalised by their own statistics, not by the running ones."""
        return self.training and rows > 1

    def _normalised_by_first(self, x: Tensor, count: Tensor, repeated: bool) -> Tensor:
        work = x.to(torch.promote_types(x.dtype, torch.float32))
        there = (torch.arange(len(x), device=x.device) < count)[:, None]
        mean = work.where(there, 0).sum(0) / count
        away = work - mean
        # Not multiplied by a mask: whatever other rows hold stays out of sums, and of their gradients.
        variance = away.where(there, 0).square().sum(0) / count
        self.note(mean, variance, count, repeated=repeated)
        return (away * (self.weight * (variance + self.eps).rsqrt()) + self.bias).to(x.dtype)

    @property
    def together(self) -> bool:
        """True if rows are normalised by the statistics of all processes."""
        return self.training and self.share is not None

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _normalised_together(self, x: Tensor, rows: Rows) -> Tensor:
        share = self.share or 0.0
        count, mean, variance = _statistics(x, share)
        if count < 2:
            return self._by_running(x)
        self.note(mean, variance, count, repeated=rows.repeated)
        deviation = (variance + self.eps).rsqrt()
        given = x, self.weight, self.bias, mean, deviation, share / count
        return _Together.apply(*given)  # type: ignore[no-any-return, no-untyped-call]

    @torch.no_grad()
    def note(self, mean: Tensor, variance: Tensor, rows: int | Tensor, *, repeated: bool) -> None:
        """Take up the mean and variance (d,) of a batch of ``rows`` rows that was normalised elsewhere.

        The variance is that of the batch itself, divided by ``rows``. A ``repeated`` batch is not taken up.
        """
        if repeated:
            return
        self.num_batches_tracked += 1
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
        if isinstance(
            rows, Tensor
        ):  # a padded batch: counted in the dtype of the statistics, not in float32
            rows = rows.to(variance.dtype)
        unbiased = variance * (rows / (rows - 1))
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)


@torch.no_grad()
def _statistics(x: Tensor, share: float) -> tuple[int, Tensor, Tensor]:
    """Number of rows on all processes, and their mean and variance (d,) in float64; waits for a GPU."""
    work = x.to(torch.promote_types(x.dtype, torch.float32))
    d = x.shape[1]
    mean = work.sum(0) / max(1, len(x))
    away = (work - mean).square_().sum(0).double()
    mean = mean.double()
    # Squares are about each process's own mean, so nothing is lost where that is large.
    sums = torch.cat([mean.new_ones(1), mean, mean.square()]) * len(x)
    sums[1 + d :] += away
    sums *= share
    distributed.all_reduce(sums)
    rows = int(sums[0])
    mean = sums[1 : 1 + d] / sums[0]
    return rows, mean, (sums[1 + d :] / sums[0] - mean.square()).clamp_min(0)


class _Together(torch.autograd.Function):
    """Batch norm by statistics of all processes; what a row changes in them reaches the others' losses."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        scale: Tensor,
        shift: Tensor,
        mean: Tensor,
        deviation: Tensor,
        share: float,
    ) -> Tensor:
        ctx.save_for_backward(x, scale, mean, deviation)
        ctx.share = share
        factor = scale * deviation
        return (x * factor.to(scale.dtype) + (shift - mean * factor).to(scale.dtype)).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, scale, mean, deviation = ctx.saved_tensors
        grad = grad.to(scale.dtype)
        kind = scale.dtype
        normal = (x - mean.to(kind)) * deviation.to(kind)
        shift = grad.sum(0)
        product = (grad * normal).sum(0)
        sums = torch.stack([shift, product])
        distributed.all_reduce(sums)
        through = grad - ctx.share * (sums[0] + normal * sums[1])
        grad_x = (through * (scale * deviation).to(kind)).to(x.dtype)
        return grad_x, product, shift, None, None, None


def constants_of(
    norm: BatchNorm, own: tuple[Tensor, Tensor] | None, rows: int, *, repeated: bool = False
) -> tuple[Tensor, Tensor]:
    """Make of weights and statistics (d,) (3, d) factors, shifts and means, and 1 / deviations in float64.

    The norm of a value z is factor · z + shift. ``own`` are mean and variance of these ``rows`` values, which
    ``norm`` takes up unless they are ``repeated``; None: its running ones.
    """
    if own is not None:
        norm.note(*own, rows, repeated=repeated)
    mean, variance = own or (norm.running_mean, norm.running_var)
    deviation = (variance.double() + norm.eps).rsqrt()
    factor = norm.weight * deviation
    return torch.stack([factor, norm.bias - mean * factor, mean]).float(), deviation


def gradients_of(
    constants: Tensor, deviation: Tensor, total: Tensor, product: Tensor, share: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the norm's weight and bias (d,), and what the gradient of a value takes.

    ``total`` and ``product`` (d,) float64 are Σ g and Σ g · (z − mean), g the gradient of what the norm
    gives; ``share`` is 1 / the number of values where their own statistics were taken, else 0: running ones
    do not depend on z. Gives (5, d): ``constants``, offsets and slopes; the gradient of z is
    factor · g − offset − slope · (z − mean).
    """
    more = torch.stack([total * share, product * deviation.square() * share])
    all_ = torch.cat([constants, (constants[0] * more).float()])
    return (product * deviation).float(), total.float(), all_


class GraphLayerNorm(LayerNorm):  # type: ignore[misc] # PyTorch Geometric has no types
    """PyTorch Geometric's ``LayerNorm(mode="graph")``: one mean and variance of each graph, all channels.

    In float32 at least: a count in bfloat16 stops at 256.
    """

    def forward(self, x: Tensor, batch: GraphBatch) -> Tensor:
        """(N, d) to the same."""
        nodes = batch.members
        count = batch.sizes * x.shape[1]
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        x = x - nodes.at_target(nodes.sum_at_target(x).sum(1, keepdim=True) / count)
        variance = nodes.sum_at_target(x * x).sum(1, keepdim=True) / count
        out: Tensor = x / nodes.at_target((variance + self.eps).sqrt()) * self.weight + self.bias
        return out


class GraphNorm(geometric.GraphNorm):  # type: ignore[misc]
    """PyTorch Geometric's ``GraphNorm``: one mean and variance of each graph and channel, in float32."""

    def forward(self, x: Tensor, batch: GraphBatch) -> Tensor:
        """(N, d) to the same."""
        nodes = batch.members
        count = batch.sizes
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        x = x - nodes.at_target(nodes.sum_at_target(x) / count) * self.mean_scale
        variance = nodes.sum_at_target(x.square()) / count
        out: Tensor = self.weight * x / nodes.at_target((variance + self.eps).sqrt()) + self.bias
        return out


NORMS: dict[str, Callable[[int], nn.Module]] = {
    "batch": BatchNorm,  # point clouds
    "graph-layer": GraphLayerNorm,  # LRGB and cities
    "layer": partial(
        LayerNorm, mode="node"
    ),  # one mean and variance per node: what the paper's word means
    "graph": GraphNorm,  # the thesis and Exphormer
    "none": nn.Identity,  # stacks of message passing
}


Activation = Literal["relu", "gelu"]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": nn.functional.relu,
    "gelu": nn.functional.gelu,
}


def normed(
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

    What is None is left out. ``before`` and ``after`` are the probabilities of the two dropouts, 0 outside
    training; ``norm`` is one of :data:`~.norms.NORMS`, and rows are the nodes of ``batch`` (None: one graph).
    """
    counted = ALL if batch is None else batch.node_rows
    if (
        activation != "gelu"
        and type(norm) is BatchNorm
        and norm.uses_batch(len(rows))
        and not norm.together
    ):
        kernels = _kernels(rows, more, residual)
        if kernels is not None:
            relu = activation is not None
            options = {"relu": relu, "before": before, "after": after, "counted": counted}
            fused: Tensor = kernels.normed(norm, rows, more, residual, **options)
            return fused
    if more is not None:
        rows = rows + dropout(more, before, counted)
    if not isinstance(norm, nn.Identity):
        rows = norm(rows, counted if isinstance(norm, BatchNorm) else batch)
    if activation is not None:
        rows = activated(rows, activation, after, counted)
    return rows if residual is None else residual + rows


def _kernels(*tensors: Tensor | None) -> Any:
    """The module of fused passes that take these, or None."""
    given = [tensor for tensor in tensors if tensor is not None]
    if torch.compiler.is_compiling() or "norms" in LEFT_OUT or not triton_runs(given[0].device):
        return None
    if (
        any(tensor.dtype not in {torch.float32, torch.bfloat16} for tensor in given)
        or not given[0].numel()
    ):
        return None
    return importlib.import_module("kmip_data.models.layers.gpu.norms")


def dropout(x: Tensor, p: float, rows: Rows = ALL) -> Tensor:
    """Torch's dropout of the rows of ``x``; of a graph on several processes as if one had all of them.

    Each process draws the numbers of all rows, in the order of one process, and keeps its own.
    """
    if rows.among is None or p == 0:
        return _dropped(x, p)
    total, chosen = rows.among
    return x * nn.functional.dropout(x.new_ones(total, *x.shape[1:]), p).index_select(0, chosen)


def _dropped(x: Tensor, p: float) -> Tensor:
    small = x.numel() < DRAWN_IN_BLOCKS or not 0 < p < 1
    if small or x.device.type != "cpu" or x.dtype != torch.float32 or torch.compiler.is_compiling():
        return nn.functional.dropout(x, p)
    from kmip_data.models.layers.cpu import chances  # numba, which small graphs do not pay for

    return chances.dropout(x, p)


def activated(rows: Tensor, activation: Activation, p: float, which: Rows = ALL) -> Tensor:
    """``dropout(activation(rows))``; the probability is 0 outside training."""
    if activation == "gelu":
        return dropout(nn.functional.gelu(rows), p, which)
    return relu_dropout(rows, p, True, which)


def relu_dropout(x: Tensor, p: float, training: bool, rows: Rows = ALL) -> Tensor:
    """``dropout(relu(x), p)``, any shape and floating dtype.

    On edges this is a large part of a training step: PyTorch draws a float64 number per element on
    one core and keeps two tensors of the size of ``x``. Here one 64-bit number gives four elements
    their chance, so ``p`` is taken to the nearest 1/65,536 (and the scale made to match), and a
    boolean mask is kept. Numbers come from torch's global generator, as those of ``nn.Dropout``.
    """
    if not training or p == 0:
        return nn.functional.relu(x)
    if (
        torch.compiler.is_compiling()
    ):  # fuses torch's own, and could not follow what draws the numbers here
        return nn.functional.dropout(nn.functional.relu(x), p)
    return _ReLUDropout.apply(x, round(p * 2**16), rows.among)  # type: ignore[no-any-return, no-untyped-call]


class _ReLUDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dropped: int, among: Chosen | None) -> Tensor:
        shape = x.shape if among is None else (among.total, *x.shape[1:])
        count = math.prod(shape)
        drawn = torch.empty(-(-count // 4), dtype=torch.int64, device=x.device).random_(
            -(2**63), None
        )
        numbers = drawn.view(torch.int16)[:count].view(shape)
        mask = (
            numbers if among is None else numbers.index_select(0, among.rows)
        ) >= dropped - 2**15
        mask &= x > 0
        ctx.save_for_backward(mask)
        ctx.scale = 2**16 / max(1, 2**16 - dropped)
        out: Tensor = x * ctx.scale
        return out.mul_(mask)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (mask,) = ctx.saved_tensors
        return (grad * ctx.scale).mul_(mask), None, None
