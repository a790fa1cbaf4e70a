"""GatedGCN on a GPU: the edges' part of a layer as one differentiable function, for both forms of edges.

As on the CPU, two (E, d) tensors live from a layer's forward to its backward pass: z and the old
edges. Matrix products are left to PyTorch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from triton import cdiv

from kmip_data.models.layers.batch import GraphBatch, NeighborTable
from kmip_data.models.layers.gpu import gate_kernels
from kmip_data.models.layers.gpu.gate_kernels import OPTIONS, channels_of_a_tile, count_programs
from kmip_data.models.layers.norms import BatchNorm, norm_constants, norm_gradients

#: Elements of a tile and unrolled slots of a neighbour table, of the two kernels by target.
GATE = (256, 2)
DIFFERENTIATE = (512, 4)
#: Elements of a tile of ``sum_at_sources``.
SOURCES = 256
#: Elements of a step of the kernels by edge, and steps of a program that sums over edges.
ROWS = 1024
STEPS = 8


@torch.compiler.disable  # type: ignore[untyped-decorator] # is compiled already
def gated_edges(
    batch: GraphBatch,
    at_target: Tensor,
    at_source: Tensor,
    message: Tensor,
    old: Tensor,
    weight: Tensor | None,
    norm: BatchNorm | None,
    dropout: float,
) -> tuple[Tensor, Tensor | None]:
    """Gate the edges, sum at the targets, update the edges, as on a CPU.

    The formulas are at :func:`kmip_data.models.layers.cpu.gated_edges.gated_edges`.

    Edges are a table or a list in any order, ``old`` (N, k, d) or (E, d), or (1, d) where all share
    one vector. All float32; under autocast to bfloat16 node tensors may have either dtype, and z
    and the new edges are bfloat16, while running statistics, sums and gradients of nodes stay
    float32. The seed is drawn on the device, without a wait of the host. Edges must name existing
    nodes, which is not checked.
    """
    device = at_target.device
    d = at_target.shape[1]
    dtype = torch.float32
    if torch.is_autocast_enabled(device.type):
        dtype = torch.get_autocast_dtype(device.type)
    if weight is not None:
        weight = weight.to(dtype)

    dropped = round(dropout * 2**32) if norm is not None else 0
    seed = None
    if dropped:
        seed = torch.empty(1, dtype=torch.int64, device=device).random_()
    entries = _Entries.of(batch)
    quotient, new = _GatedEdges.apply(  # type: ignore[no-untyped-call]
        at_target.contiguous(),
        at_source.contiguous(),
        message.contiguous(),
        old.to(dtype).contiguous().view(-1, d),
        weight,
        norm.weight if norm else None,
        norm.bias if norm else None,
        entries,
        norm,
        (seed, dropped, 1 / (1 - dropout)),
    )
    return quotient, None if new is None else new.view(entries.shape)


@dataclass(frozen=True, eq=False)
class _Entries:
    """Edges of a batch, grouped by target."""

    batch: GraphBatch
    k: int  #: entries per node of a neighbour table; 0: a list
    count: int
    shape: tuple[int, ...]  #: shape of the edge values
    #: Start, end and number of entries; for a table, kernels read only the end.
    incoming: tuple[Tensor | None, ...]

    @classmethod
    def of(cls, batch: GraphBatch) -> _Entries:
        edges = batch.edges
        if isinstance(edges, NeighborTable):
            nodes, k = edges.neighbor.shape
            ends = edges.neighbor.contiguous()
            return cls(batch, k, nodes * k, (nodes, k, -1), (ends, ends, ends))
        grouped = edges.adjacency.incoming
        count = len(edges.source)
        return cls(batch, 0, count, (count, -1), (grouped.start, grouped.other_end, grouped.edge))


def options_by_node(shape: tuple[int, int], d: int, k: int) -> dict[str, int]:
    """Options of kernels over entries by target; k = 0: a list."""
    elements, unrolled = shape
    block = channels_of_a_tile(d)
    return {
        "D": d,
        "K": k,
        "BC": block,
        "BN": elements // block,
        "UNROLL": unrolled if k else 1,
        **OPTIONS,
    }


class _GatedEdges(torch.autograd.Function):
    """Differentiable quotients and new edges."""

    @staticmethod
    def forward(
        ctx: Any,
        at_target: Tensor,
        at_source: Tensor,
        message: Tensor,
        old: Tensor,
        weight: Tensor | None,
        _scale: Tensor | None,
        _shift: Tensor | None,
        entries: _Entries,
        norm: BatchNorm | None,
        drop: tuple[Tensor | None, int, float],
    ) -> tuple[Tensor, Tensor | None]:
        ctx.set_materialize_grads(False)
        nodes, d = at_target.shape
        count = entries.count
        by_batch = norm is not None and norm.uses_batch_statistics(count)
        ctx.entries = entries
        ctx.drop = drop
        ctx.share = float(by_batch) / count

        # 1. z, its gates and the sums at the targets; with statistics of z where the norm takes them.
        z = old.new_empty(count, d) if weight is None else torch.mm(old, weight.t())
        quotient = torch.empty(nodes, d, device=z.device)
        inverse = torch.empty(nodes, d, device=z.device)
        shape = options_by_node(GATE, d, entries.k)
        partial_sums = torch.empty(cdiv(nodes, shape["BN"]), 3, d, device=z.device)
        with torch.cuda.device_of(z):  # type: ignore[no-untyped-call]
            gate_kernels.gate_edges[count_programs(nodes, shape["BN"], d)](
                at_target,
                at_source,
                message,
                *entries.incoming,
                z,
                quotient,
                inverse,
                partial_sums,
                nodes,
                ADD=weight is not None,
                STATISTICS=by_batch,
                **shape,
            )
        saved = [message, old, weight, z, quotient, inverse]
        if norm is None:
            ctx.save_for_backward(*saved)
            return quotient, None

        # 2. New edges, in place of z where no backward pass will read it.
        statistics = _edge_statistics(partial_sums, count) if by_batch else None
        constants, deviation = norm_constants(norm, statistics, count)
        new = torch.empty_like(z) if any(ctx.needs_input_grad) else z
        block = channels_of_a_tile(d)
        with torch.cuda.device_of(z):  # type: ignore[no-untyped-call]
            gate_kernels.update_edges[count_programs(count, ROWS // block, d)](
                old,
                z,
                constants,
                new,
                *drop,
                count,
                D=d,
                BE=ROWS // block,
                BC=block,
                SHARED=len(old) < count,
                **OPTIONS,
            )
        ctx.save_for_backward(*saved, constants, deviation)
        return quotient, new

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_quotient: Tensor | None, grad_new: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        message, old, weight, z, quotient, inverse, *constants = ctx.saved_tensors
        entries: _Entries = ctx.entries
        nodes, d = quotient.shape
        block = channels_of_a_tile(d)
        grad_scale = None
        grad_shift = None
        norm = None
        if grad_quotient is None:
            grad_quotient = torch.zeros_like(quotient)
        with torch.cuda.device_of(z):  # type: ignore[no-untyped-call]
            # 1. Gradients of the norm: sums over all edges come before the gradient of any.
            if grad_new is not None:
                grad_new = grad_new.contiguous()
                norm, deviation = constants
                rows = ROWS // block
                partial_sums = torch.empty(cdiv(entries.count, rows * STEPS), 2, d, device=z.device)
                gate_kernels.sum_norm_gradients[count_programs(entries.count, rows * STEPS, d)](
                    z,
                    grad_new,
                    norm,
                    partial_sums,
                    *ctx.drop,
                    entries.count,
                    D=d,
                    STEPS=STEPS,
                    BE=rows,
                    BC=block,
                    **OPTIONS,
                )
                total, product = partial_sums.sum(0, dtype=torch.float64)
                grad_scale, grad_shift, norm = norm_gradients(
                    norm, deviation, total, product, ctx.share
                )

            # 2. The gradient of z, and its sums at the targets.
            grad_pre = torch.empty_like(z)
            of_target, of_source, of_message, of_sum = torch.empty(4, nodes, d, device=z.device)
            shape = options_by_node(DIFFERENTIATE, d, entries.k)
            gate_kernels.differentiate_gate[count_programs(nodes, shape["BN"], d)](
                grad_quotient.contiguous(),
                quotient,
                inverse,
                message,
                *entries.incoming,
                z,
                grad_new,
                norm,
                grad_pre,
                of_target,
                of_sum,
                *ctx.drop,
                nodes,
                **shape,
            )

            # 3. Its sums at the sources.
            outgoing = entries.batch.edges.adjacency.outgoing
            gate_kernels.sum_at_sources[count_programs(nodes, SOURCES // block, d)](
                z,
                grad_pre,
                of_sum,
                outgoing.start,
                outgoing.other_end,
                outgoing.edge,
                of_source,
                of_message,
                nodes,
                D=d,
                BN=SOURCES // block,
                BC=block,
                **OPTIONS,
            )

        # 4. The old edges: added to the new ones, and multiplied for z.
        grad_old = grad_new
        grad_weight = None
        if weight is not None:
            grad_weight = grad_pre.t() @ old
            if ctx.needs_input_grad[3]:
                grad_old = _add_product(grad_new, grad_pre, weight)
        if grad_old is not None and len(old) < entries.count:
            grad_old = grad_old.sum(0, keepdim=True, dtype=torch.float32).to(old.dtype)
        gradients = of_target, of_source, of_message, grad_old, grad_weight
        return *gradients, grad_scale, grad_shift, None, None, None


def _add_product(addend: Tensor | None, rows: Tensor, weight: Tensor) -> Tensor:
    return rows @ weight if addend is None else torch.addmm(addend, rows, weight)


def _edge_statistics(partial_sums: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Mean and variance over all edges, float64, from number, mean and squares of tiles (tiles, 3, d)."""
    numbers, means, squares = partial_sums.double().unbind(1)
    mean = (numbers * means).sum(0) / count
    away = (means - mean).square_()
    return mean, (squares + numbers * away).sum(0) / count
