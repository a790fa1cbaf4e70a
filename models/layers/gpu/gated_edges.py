"""GatedGCN on a GPU: the edges' part of a layer as one differentiable function, for both forms of edges.

As on the CPU two (E, d) tensors live from a layer's forward to its backward pass: z and the old edges. Each
kernel goes through them as few times as it can; a step takes 7 passes over an (E, d) tensor forward (2 the
product, 2 z, 3 the new edges) and 12 backward (2 the norm's sums, 3 the gradient of z, 2 the sums at sources,
5 the products). A layer that formed the edges of the one before in its own first pass, and products made in
such passes, would leave 16 of these 19.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from triton import cdiv

from kmip_data.models.layers.edge_norm import constants_of
from kmip_data.models.layers.edges import Edges, NeighborTable
from kmip_data.models.layers.gpu import gate_kernels, norm_kernels, products
from kmip_data.models.layers.gpu.norms import (
    BLOCK,
    Dropout,
    constants_by_tiles,
    dropout_of,
    gradients_by_tiles,
)
from kmip_data.models.layers.gpu.tiles import OPTIONS, channels_of_a_tile, programs
from kmip_data.models.layers.norms import BatchNorm
from kmip_data.models.layers.precision import splits

#: Elements of a tile, and slots of a neighbour table taken at a time, of the two kernels by target.
GATE, DIFFERENTIATE = (256, 2), (512, 4)
SOURCES = 256  #: elements of a tile of ``sum_at_sources``


@dataclass(frozen=True)
class _Options:
    """The arguments of a call that are not tensors."""

    edges: Edges
    norm: BatchNorm | None
    drop: Dropout
    dtype: torch.dtype  #: of z and of the new edges
    keep: bool  #: for a backward pass
    split: bool  #: products in bf16x3


@torch.compiler.disable  # type: ignore[untyped-decorator] # is compiled already
def gated_edges(
    edges: Edges, at_target: Tensor, at_source: Tensor, message: Tensor, old: Tensor, weight: Tensor | None,
    norm: BatchNorm | None, dropout: float,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Gate the edges, sum at the targets, and update the edges; as :func:`.cpu.gated_edges.gated_edges`.

    Edges are a table or a list in any order, ``old`` (N, k, d) or (E, d), or (1, d) where all share one
    vector. All float32; under autocast to bfloat16 node tensors may have either dtype, and z and the new
    edges are bfloat16, while running statistics, sums and gradients of nodes stay float32. The seed is drawn
    and stays on the device; nothing waits for it. That the edges name nodes that are there is not checked.
    """
    device = at_target.device
    lowered = torch.is_autocast_enabled(device.type)
    dtype = torch.get_autocast_dtype(device.type) if lowered else torch.float32
    if weight is not None:
        old, weight = old.to(dtype), weight.to(dtype)
    of_norm = (norm.weight, norm.bias) if norm else (None, None)
    tensors = (*(rows.contiguous() for rows in (at_target, at_source, message, old)), weight, *of_norm)
    drop = dropout_of(dropout if norm is not None else 0.0, device)
    split = splits() and dtype == torch.float32 and at_target.shape[1] <= products.MOST
    keep = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
    options = _Options(edges, norm, drop, dtype, keep, split)
    found: tuple[Tensor, Tensor | None] = _GatedEdges.apply(*tensors, options)  # type: ignore[no-untyped-call]
    return found


def by_node(shape: tuple[int, int], d: int, k: int) -> dict[str, Any]:
    """Options of a kernel that walks the entries of nodes by target; k = 0: of a list."""
    block = channels_of_a_tile(d)
    nodes, unroll = shape[0] // block, shape[1] if k else 1
    return {"D": d, "K": k, "BC": block, "BN": nodes, "UNROLL": unroll, **OPTIONS}


class _Entries:
    """The edges of one batch as entries of their targets."""

    def __init__(self, edges: Edges) -> None:
        if isinstance(edges, NeighborTable):
            self.nodes, self.k = edges.neighbor.shape
            self.count = self.nodes * self.k
            ends = edges.neighbor.contiguous()
            self.incoming: tuple[Tensor | None, ...] = (ends, ends, ends)  # of which one is read
        else:
            bags = edges.adjacency.incoming
            self.nodes, self.k, self.count = edges.num_nodes, 0, len(edges.source)
            self.incoming = (bags.start, bags.node, bags.edge)


class _GatedEdges(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, at_target: Tensor, at_source: Tensor, message: Tensor, old: Tensor, weight: Tensor | None,
        _scale: Tensor | None, _shift: Tensor | None, options: _Options,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        ctx.set_materialize_grads(False)
        norm, d = options.norm, at_target.shape[1]
        entries = _Entries(options.edges)
        nodes, count = entries.nodes, entries.count
        own = norm is not None and norm.uses_batch(count)
        ctx.options, ctx.own = options, own
        if weight is None:
            pre = torch.empty(count, d, dtype=options.dtype, device=old.device)
        else:
            rows = old.view(-1, d)
            pre = products.split_product(rows, weight) if options.split else torch.mm(rows, weight.t())
        quotient, inverse = (torch.empty(nodes, d, device=old.device) for _ in range(2))
        shape = by_node(GATE, d, entries.k)
        parts = torch.empty(cdiv(nodes, shape["BN"]), 3, d, device=old.device)
        with torch.cuda.device_of(pre):  # type: ignore[no-untyped-call]
            gate_kernels.gate[programs(nodes, shape["BN"], d)](
                at_target, at_source, message, *entries.incoming, pre, quotient, inverse, parts, nodes,
                ADD=weight is not None, STATISTICS=own, **shape,
            )  # fmt: skip
            if norm is None:
                ctx.save_for_backward(message, old, weight, pre, quotient, inverse)
                return quotient, None
            constants, deviation = constants_by_tiles(norm, parts) if own else constants_of(norm, None, count)
            new = torch.empty_like(pre) if options.keep else pre
            norm_kernels.update[(cdiv(pre.numel(), BLOCK),)](
                old, pre, constants, new, *options.drop, pre.numel(),
                D=d, BLOCK=BLOCK, ADD=True, SHARED=weight is None, NORM=True, RELU=True,
                DROP=options.drop[1] > 0, **OPTIONS,
            )  # fmt: skip
        ctx.save_for_backward(message, old, weight, pre, quotient, inverse, constants, deviation)
        return quotient, new.view(nodes, entries.k, d) if entries.k else new

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_quotient: Tensor | None, grad_new: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        message, old, weight, pre, quotient, inverse, *of_norm = ctx.saved_tensors
        options: _Options = ctx.options
        d, nodes = pre.shape[1], len(quotient)
        entries = _Entries(options.edges)
        grad_scale = grad_shift = grad_weight = grad_old = None
        grad = norm = pre  # not read where the new edges are not used
        with torch.cuda.device_of(pre):  # type: ignore[no-untyped-call]
            if grad_new is not None:
                grad, (constants, deviation) = grad_new.contiguous().view(-1, d), of_norm
                grad_scale, grad_shift, norm = gradients_by_tiles(
                    pre, grad, constants, deviation, options.drop, relu=True, own=ctx.own
                )
            if grad_quotient is None:
                grad_quotient = torch.zeros_like(quotient)
            grad_pre = torch.empty_like(pre)
            of_target, of_source, of_message, of_sum = torch.empty(4, nodes, d, device=pre.device)
            shape = by_node(DIFFERENTIATE, d, entries.k)
            gate_kernels.differentiate[programs(nodes, shape["BN"], d)](
                grad_quotient.contiguous(), quotient, inverse, message, *entries.incoming, pre, grad, norm,
                grad_pre, of_target, of_sum, *options.drop, nodes,
                UPDATE=grad_new is not None, DROP=options.drop[1] > 0, **shape,
            )  # fmt: skip
            out, block = options.edges.adjacency.outgoing, channels_of_a_tile(d)
            gate_kernels.sum_at_sources[programs(nodes, SOURCES // block, d)](
                pre, grad_pre, of_sum, out.start, out.node, out.edge, of_source, of_message, nodes,
                D=d, BN=SOURCES // block, BC=block, **OPTIONS,
            )  # fmt: skip
        if weight is not None:
            grad_weight = grad_pre.t() @ old.view(-1, d)
            if ctx.needs_input_grad[3]:
                grad_old = _of_old(None if grad_new is None else grad, grad_pre, weight, split=options.split)
                grad_old = grad_old.view(old.shape)
        elif ctx.needs_input_grad[3] and grad_new is not None:  # one row, only added to the new edges
            grad_old = grad.sum(0, keepdim=True, dtype=torch.float32)
        return of_target, of_source, of_message, grad_old, grad_weight, grad_scale, grad_shift, None


def _of_old(grad_new: Tensor | None, grad_pre: Tensor, weight: Tensor, *, split: bool) -> Tensor:
    """Gradient of the old edges, (E, d): that of the new ones, to which they were added, and z's."""
    if split:
        return products.split_product(grad_pre, weight.t(), grad_new)
    return grad_pre @ weight if grad_new is None else torch.addmm(grad_new, grad_pre, weight)
