"""GCN's normalised sum over neighbours on a CPU, in one pass: it makes one tensor where torch makes five."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from kmip_data.arrays import F32, I64
from kmip_data.models.layers.adjacency import EdgeList
from kmip_data.runtime.threads import for_ranges, njit_nogil

GRAIN = 256  #: nodes that are worth handing to a thread


def propagated(edges: EdgeList, x: Tensor, scale: Tensor, loop: Tensor) -> Tensor:
    """``scale`` · (Σ_j (``scale`` · x)_j + ``loop`` · ``scale`` · x), summed over the sources j of each node.

    ``x`` is (N, d) float32, ``scale`` and ``loop`` are (N, 1) of it and take no gradient. Every product and
    sum is rounded as torch's operations round them, in their order.
    """
    return _Propagated.apply(x, edges, scale, loop)  # type: ignore[no-any-return, no-untyped-call]


class _Propagated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, edges: EdgeList, scale: Tensor, loop: Tensor) -> Tensor:
        ctx.edges = edges
        ctx.save_for_backward(scale, loop)
        incoming = edges.incoming
        out: Tensor = _pass(incoming.node, incoming.start, x, scale, loop)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        # The matrix is transposed, so its gradient is the same pass over the edges of each source.
        outgoing = ctx.edges.outgoing
        return _pass(outgoing.node, outgoing.start, grad, *ctx.saved_tensors), None, None, None


@torch.library.custom_op("kmip_data::propagate", mutates_args=())
def _pass(node: Tensor, start: Tensor, x: Tensor, scale: Tensor, loop: Tensor) -> Tensor:
    """One pass over the neighbours ``node[start[i]:start[i + 1]]`` of each i, an operator that recordings see."""
    x = x.detach().contiguous()  # threads of their own do not know that no gradient is wanted
    out = torch.empty_like(x)
    lists = node.long().numpy(), start.long().numpy()
    factors = scale.reshape(-1).numpy(), loop.reshape(-1).numpy()
    for_ranges(
        lambda a, b: _sum(a, b, *lists, *factors, x.numpy(), out.numpy()), len(x), grain=GRAIN
    )
    return out


@njit_nogil()
def _sum(
    begin: int, end: int, node: I64, start: I64, scale: F32, loop: F32, x: F32, out: F32
) -> None:
    for i in range(begin, end):
        total = out[i]
        total[:] = 0
        for e in range(start[i], start[i + 1]):
            row = x[node[e]]
            factor = scale[node[e]]
            for c in range(len(total)):
                total[c] += factor * row[c]
        row = x[i]
        own = scale[i]
        for c in range(len(total)):
            total[c] = own * (total[c] + loop[i] * (own * row[c]))
