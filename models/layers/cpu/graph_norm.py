"""Norm over all nodes and channels of a graph on a CPU: five passes, where torch has thirty."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from kmip_data.arrays import F32, F64, I64
from kmip_data.runtime.threads import for_ranges, njit_nogil

#: Elements that are worth handing to a thread.
GRAIN = 1 << 20
#: Rows whose gradients of the weights are summed together: results do not depend on threads.
ROWS = 256


def normalised(x: Tensor, ptr: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Normalise (N, d) float32 by one mean and variance of each graph, times ``weight``, plus ``bias``.

    Graph g has the rows ``ptr[g]:ptr[g + 1]`` (int64, on the CPU); ``weight`` and ``bias`` are (d,).
    The result has the bits of torch's operations; the gradient is rounded in a different order.
    """
    return _Normalised.apply(x, weight, bias, ptr, eps)  # type: ignore[no-any-return, no-untyped-call]


class _Normalised(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, ptr: Tensor, eps: float
    ) -> Tensor:
        x = x.contiguous()
        nodes, channels = x.shape
        out = torch.empty_like(x)
        graph = torch.arange(len(ptr) - 1).repeat_interleave(ptr.diff()).numpy()
        rows = x.numpy()

        # 1. Mean and deviation of each graph, by sums over its nodes and then over its channels.
        starts = ptr.numpy()
        count = ptr.diff().clamp_min(1)[:, None] * channels
        sums = torch.zeros(2, len(count), channels)
        totals, squares = sums.numpy()
        mean = torch.zeros(len(count), 1)
        means = mean.numpy()
        grain = -(-GRAIN // max(1, nodes))
        for_ranges(lambda a, b: _add(a, b, rows, starts, totals), channels, grain=grain)
        mean.copy_(sums[0].sum(1, keepdim=True) / count)
        for_ranges(
            lambda a, b: _add_squares(a, b, rows, starts, means, squares), channels, grain=grain
        )
        deviation = (sums[1].sum(1, keepdim=True) / count + eps).sqrt()
        statistics = torch.cat([mean, deviation], 1).numpy()

        # 2. The norm.
        factors = weight.detach().numpy()
        shifts = bias.detach().numpy()
        results = out.numpy()
        _in_parts(
            lambda a, b: _apply(a, b, rows, graph, statistics, factors, shifts, results),
            channels,
            nodes,
        )
        ctx.save_for_backward(x, weight, ptr)
        ctx.graph = graph
        ctx.statistics = statistics
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, ptr = ctx.saved_tensors
        nodes, channels = x.shape
        grad_x = torch.empty_like(x)
        parts = torch.zeros(2, -(-nodes // ROWS), channels)
        row_sums = np.empty((2, nodes))
        arguments = (
            grad.contiguous().numpy(),
            x.numpy(),
            ctx.graph,
            ctx.statistics,
            weight.detach().numpy(),
        )

        # 1. Gradients of the weights, and what the mean and variance of each graph take back.
        partial = parts.numpy()
        _in_parts(lambda a, b: _sum(a, b, *arguments, row_sums, partial), channels, nodes)
        taken = _means(ptr.numpy(), row_sums, channels)

        # 2. The gradient of each row.
        results = grad_x.numpy()
        _in_parts(lambda a, b: _differentiate(a, b, *arguments, taken, results), channels, nodes)
        grad_weight, grad_bias = parts.sum(1)
        return grad_x, grad_weight, grad_bias, None, None


def _in_parts(work: Any, channels: int, nodes: int) -> None:
    """Call ``work`` for ranges of rows that begin at multiples of ``ROWS``."""

    def some(first: int, last: int) -> None:
        work(first * ROWS, min(nodes, last * ROWS))

    grain = -(-GRAIN // (ROWS * max(1, channels)))
    for_ranges(some, -(-nodes // ROWS), grain=grain)


# Sums may be reordered into vector lanes, always the same way.
_compiled = njit_nogil(fastmath={"reassoc", "contract", "nsz"}, error_model="numpy")


# Without these flags, so that every number is rounded as torch's operations round it.
_exact = njit_nogil(error_model="numpy")


@_exact
def _add(first: int, last: int, x: F32, ptr: I64, sums: F32) -> None:
    for g in range(len(ptr) - 1):
        total = sums[g, first:last]
        for i in range(ptr[g], ptr[g + 1]):
            row = x[i, first:last]
            for c in range(len(total)):
                total[c] += row[c]


@_exact
def _add_squares(first: int, last: int, x: F32, ptr: I64, mean: F32, sums: F32) -> None:
    for g in range(len(ptr) - 1):
        total = sums[g, first:last]
        middle = mean[g, 0]
        for i in range(ptr[g], ptr[g + 1]):
            row = x[i, first:last]
            for c in range(len(total)):
                away = row[c] - middle
                total[c] += away * away


@_exact
def _apply(
    start: int,
    stop: int,
    x: F32,
    graph: I64,
    statistics: F32,
    weight: F32,
    bias: F32,
    out: F32,
) -> None:
    for i in range(start, stop):
        mean = statistics[graph[i], 0]
        deviation = statistics[graph[i], 1]
        for c in range(x.shape[1]):
            out[i, c] = (x[i, c] - mean) / deviation * weight[c] + bias[c]


@_compiled
def _sum(
    start: int,
    stop: int,
    grad: F32,
    x: F32,
    graph: I64,
    statistics: F32,
    weight: F32,
    sums: F64,
    parts: F32,
) -> None:
    """Σ g · weight and Σ g · weight · normal of each row; Σ g · normal and Σ g of each part and channel."""
    for i in range(start, stop):
        part = i // ROWS
        mean = statistics[graph[i], 0]
        inverse = np.float32(1) / statistics[graph[i], 1]
        total = np.float32(0)
        product = np.float32(0)
        for c in range(x.shape[1]):
            normal = (x[i, c] - mean) * inverse
            slope = grad[i, c] * normal
            parts[0, part, c] += slope
            parts[1, part, c] += grad[i, c]
            total += grad[i, c] * weight[c]
            product += slope * weight[c]
        sums[0, i] = total
        sums[1, i] = product


@_exact
def _means(ptr: I64, rows: F64, channels: int) -> F32:
    """Means over each graph of both sums of its rows: (2, G)."""
    graphs = len(ptr) - 1
    means = np.zeros((2, graphs), np.float32)
    for g in range(graphs):
        count = (ptr[g + 1] - ptr[g]) * channels
        for kind in range(2):
            total = 0.0
            for i in range(ptr[g], ptr[g + 1]):
                total += rows[kind, i]
            means[kind, g] = total / count
    return means


@_compiled
def _differentiate(
    start: int,
    stop: int,
    grad: F32,
    x: F32,
    graph: I64,
    statistics: F32,
    weight: F32,
    taken: F32,
    out: F32,
) -> None:
    for i in range(start, stop):
        g = graph[i]
        mean = statistics[g, 0]
        inverse = np.float32(1) / statistics[g, 1]
        for c in range(x.shape[1]):
            normal = (x[i, c] - mean) * inverse
            out[i, c] = inverse * (grad[i, c] * weight[c] - taken[0, g] - normal * taken[1, g])
