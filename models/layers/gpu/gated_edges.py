"""GatedGCN on a GPU: the edge operations of a layer as one differentiable function.

As on the CPU, a layer saves two (E, d) tensors for its backward pass: z and the old edges. PyTorch
computes matrix products.
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
from kmip_data.models.layers.gpu.gate_kernels import OPTIONS, channels_per_tile, count_programs
from kmip_data.models.layers.norms import BatchNorm, norm_constants, norm_gradients

#: Elements per tile, and unrolled slots of a neighbour table, of the kernels grouped by target.
GATE_TILE = (256, 2)
DIFFERENTIATE_TILE = (512, 4)
SOURCES_TILE = 256  #: elements per tile of ``sum_at_sources``
EDGE_TILE = 1024  #: elements per step of the kernels that process edges in order
STEPS_PER_PROGRAM = 8  #: steps per program of the kernel that sums over edges


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
    """Gate the edges, sum at the targets and update the edges, as the CPU kernel does.

    :func:`kmip_data.models.layers.cpu.gated_edges.gated_edges` documents the formulas and arguments.

    Edges are a table or a list in any order; ``old`` is (N, k, d) or (E, d), or (1, d) if all edges
    share one vector. All tensors are float32. Under autocast to bfloat16, node tensors may have
    either dtype, z and the new edges are bfloat16, and running statistics, sums and gradients of
    nodes stay float32. The device draws the seed, so the host need not wait. Edges must name
    existing nodes, which is not checked.
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
    k: int  #: edges per node of a neighbour table; 0: a list
    count: int  #: number of edges
    shape: tuple[int, ...]  #: shape of the edge values
    #: Start, source and index of the edges; for a table, kernels read only the source.
    incoming: tuple[Tensor | None, ...]

    @classmethod
    def of(cls, batch: GraphBatch) -> _Entries:
        edges = batch.edges
        if isinstance(edges, NeighborTable):
            nodes, k = edges.neighbor.shape
            sources = edges.neighbor.contiguous()
            return cls(batch, k, nodes * k, (nodes, k, -1), (sources, sources, sources))
        grouped = edges.edge_list.incoming
        count = len(edges.source)
        return cls(batch, 0, count, (count, -1), (grouped.start, grouped.other_end, grouped.edge))


def options_by_node(shape: tuple[int, int], d: int, k: int) -> dict[str, int]:
    """Return the compile-time options of a kernel grouped by target; k = 0: a list."""
    elements, unrolled = shape
    block = channels_per_tile(d)
    return {
        "D": d,
        "K": k,
        "BC": block,
        "BN": elements // block,
        "UNROLL": unrolled if k else 1,
        **OPTIONS,
    }


class _GatedEdges(torch.autograd.Function):
    """Weighted means at the targets, and new edges."""

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
        ctx.inverse_count = float(by_batch) / count

        # 1. Compute z, its gates, the sums at the targets and, if the norm needs them, statistics of z.
        z = old.new_empty(count, d) if weight is None else torch.mm(old, weight.t())
        quotient = torch.empty(nodes, d, device=z.device)
        inverse = torch.empty(nodes, d, device=z.device)
        shape = options_by_node(GATE_TILE, d, entries.k)
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

        # 2. Compute the new edges, in place of z if no backward pass will read it.
        statistics = _edge_statistics(partial_sums, count) if by_batch else None
        constants, deviation = norm_constants(norm, statistics, count)
        new = torch.empty_like(z) if any(ctx.needs_input_grad) else z
        block = channels_per_tile(d)
        with torch.cuda.device_of(z):  # type: ignore[no-untyped-call]
            gate_kernels.update_edges[count_programs(count, EDGE_TILE // block, d)](
                old,
                z,
                constants,
                new,
                *drop,
                count,
                D=d,
                BE=EDGE_TILE // block,
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
        block = channels_per_tile(d)
        grad_scale = None
        grad_shift = None
        norm = None
        if grad_quotient is None:
            grad_quotient = torch.zeros_like(quotient)
        with torch.cuda.device_of(z):  # type: ignore[no-untyped-call]
            # 1. Gradients of the norm, whose sums over all edges every edge's gradient needs.
            if grad_new is not None:
                grad_new = grad_new.contiguous()
                norm, deviation = constants
                rows = EDGE_TILE // block
                edges = rows * STEPS_PER_PROGRAM
                partial_sums = torch.empty(cdiv(entries.count, edges), 2, d, device=z.device)
                gate_kernels.sum_norm_gradients[count_programs(entries.count, edges, d)](
                    z,
                    grad_new,
                    norm,
                    partial_sums,
                    *ctx.drop,
                    entries.count,
                    D=d,
                    STEPS=STEPS_PER_PROGRAM,
                    BE=rows,
                    BC=block,
                    **OPTIONS,
                )
                total, product = partial_sums.sum(0, dtype=torch.float64)
                grad_scale, grad_shift, norm = norm_gradients(
                    norm, deviation, total, product, ctx.inverse_count
                )

            # 2. Gradient of z, and its sums at the targets.
            grad_pre = torch.empty_like(z)
            of_target, of_source, of_message, of_sum = torch.empty(4, nodes, d, device=z.device)
            shape = options_by_node(DIFFERENTIATE_TILE, d, entries.k)
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

            # 3. Sums of z's gradient at the sources.
            outgoing = entries.batch.edges.edge_list.outgoing
            gate_kernels.sum_at_sources[count_programs(nodes, SOURCES_TILE // block, d)](
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
                BN=SOURCES_TILE // block,
                BC=block,
                **OPTIONS,
            )

        # 4. Gradient of the old edges, which are added to the new ones and multiplied for z.
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
    """Combine counts, means and centred squares of tiles (tiles, 3, d) to mean and variance (d,) float64."""
    counts, means, squares = partial_sums.double().unbind(1)
    mean = (counts * means).sum(0) / count
    between_tiles = (means - mean).square_()
    return mean, (squares + counts * between_tiles).sum(0) / count
