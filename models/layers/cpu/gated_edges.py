"""GatedGCN on the CPU: the edge operations of a layer as one differentiable function.

In torch operations, a layer allocates ten edge tensors and saves four. Compiled passes allocate
two, z and the new edges, and save only z: the backward pass recomputes gates and dropout. Large
tensors come from :mod:`kmip_data.runtime.memory`, as fresh memory costs as much as a matrix product.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from kmip_data.arrays import F32
from kmip_data.models.layers.batch import GraphBatch, NeighborTable, NodeRange
from kmip_data.models.layers.cpu import gate_kernels
from kmip_data.models.layers.cpu.dropout import draw_seed
from kmip_data.models.layers.cpu.gate_kernels import DropoutOptions, NeighborSources
from kmip_data.models.layers.norms import BatchNorm, norm_constants, norm_gradients
from kmip_data.runtime import reused_buffers
from kmip_data.runtime.parallel import num_threads, run_in_ranges

MIN_NODES_PER_THREAD = 64  #: fewest nodes per thread
MIN_EDGES_PER_THREAD = 1 << 10  #: fewest edges per thread


@dataclass(frozen=True)
class _Options:
    """Arguments of a call other than tensors."""

    edges: NeighborTable
    norm: BatchNorm | None
    dropout: DropoutOptions
    needs_gradients: bool  #: True if a backward pass will follow


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
    """Gate the edges of a batch's neighbour table, sum at the targets, and update the edges.

    For an edge j → i, z = ``at_target``_i + ``at_source``_j + ``weight`` · old. Its gate is
    sigmoid(z), and its new features are old + dropout(relu(norm(z))).

    ``at_target``, ``at_source`` and ``message`` are (N, d) float32. ``old`` is float32, (N, k, d),
    or (1, d) if all edges share one vector. ``weight`` is (d, d), or None if z does not depend on
    ``old``. The running statistics of ``norm`` are updated in training; None: no new edges.
    ``dropout`` is 0 outside training; torch's global generator draws the seed of its mask.

    Returns the sum of sigmoid(z) · ``message``_j over the edges of each node, divided by the sum of
    sigmoid(z) + 10⁻⁶, (N, d), and the new edges, (N, k, d), or None.
    """
    edges = batch.edges
    assert isinstance(edges, NeighborTable)
    tensors = [at_target, at_source, message, old, weight, None, None]
    dropped = 0
    seed = 0
    if norm is not None:
        tensors[-2:] = [norm.weight, norm.bias]
        dropped = round(dropout * 2**32)
    if dropped:
        seed = draw_seed()
    requires_grad = any(tensor is not None and tensor.requires_grad for tensor in tensors)
    options = _Options(
        edges,
        norm,
        dropout=(seed, dropped, 1 / (1 - dropout)),
        needs_gradients=requires_grad and torch.is_grad_enabled(),
    )
    gathered, new = _GatedEdges.apply(*tensors, options)  # type: ignore[no-untyped-call]
    if new is not None:
        new = new.view(*edges.neighbor.shape, -1)
    return gathered, new


class _GatedEdges(torch.autograd.Function):
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
        options: _Options,
    ) -> tuple[Tensor, Tensor | None]:
        ctx.set_materialize_grads(False)
        norm = options.norm
        edges = options.edges
        nodes, d = at_target.shape
        count = edges.neighbor.numel()

        # 1. Compute z, its gates, the sums at the targets and, if the norm needs them, statistics of z.
        pre = _allocate_edges(count, d)
        if weight is not None:
            torch.mm(old.reshape(-1, d), weight.t(), out=pre)
        by_batch = norm is not None and norm.uses_batch_statistics(count)
        quotients, divisors, sums, squares = (torch.empty(nodes, d) for _ in range(4))
        edges.node_ranges  # noqa: B018 -- checks the edges
        gate = partial(
            gate_kernels.gate_edges,
            d,
            _neighbor_entries(edges),
            _flat_arrays(at_target, at_source, message),
            flat_elements(pre),
            weight is not None,
            by_batch,
            _flat_arrays(quotients, divisors, sums, squares),
        )
        run_in_ranges(gate, nodes, grain=MIN_NODES_PER_THREAD)
        ctx.options = options
        ctx.by_batch = by_batch
        saved = [message, old, weight, pre, quotients, divisors]
        if norm is None:
            ctx.save_for_backward(*saved)
            return quotients, None

        # 2. Compute the new edges, in place of z if no backward pass will read it.
        statistics = _edge_statistics(sums, squares, edges.neighbor.shape[1]) if by_batch else None
        constants, deviation = norm_constants(norm, statistics, count)
        new = _allocate_edges(count, d) if options.needs_gradients else pre
        update = partial(
            gate_kernels.update_edges,
            d,
            flat_elements(pre),
            flat_elements(constants),
            options.dropout,
            flat_elements(old),
            flat_elements(new),
        )
        run_in_ranges(update, count, grain=MIN_EDGES_PER_THREAD)
        if options.needs_gradients:
            ctx.save_for_backward(*saved, constants, deviation)
        return quotients, new

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any,
        grad_quotients: Tensor | None,
        grad_new: Tensor | None,
    ) -> tuple[Tensor | None, ...]:
        message, old, weight, pre, quotients, divisors, *constants = ctx.saved_tensors
        options: _Options = ctx.options
        edges = options.edges
        nodes, d = message.shape

        # 1. Gradients of the norm, whose sums over all edges every edge's gradient needs.
        grad_scale = None
        grad_shift = None
        grad = None
        norm = torch.zeros(0)
        if grad_new is not None:
            norm, deviation = constants
            grad = grad_new.contiguous().view(-1, d)
            total, product = _gradient_sums(pre, grad, norm, options)
            inverse = float(ctx.by_batch) / len(pre)  # of the number of edges
            grad_scale, grad_shift, norm = norm_gradients(norm, deviation, total, product, inverse)

        # 2. Process one range per thread at a time. Their gradients of z are consumed immediately and
        # overwritten, so that there is no third edge tensor.
        grad_target = torch.empty(nodes, d)
        at_sources = torch.zeros(2, nodes, d)
        if grad_quotients is None:
            grad_quotients = torch.zeros(nodes, d)
        arguments = (
            d,
            _neighbor_entries(edges),
            _flat_arrays(pre, torch.zeros(0) if grad is None else grad),
            flat_elements(message),
            _flat_arrays(grad_quotients, quotients, divisors),
            flat_elements(norm),
            options.dropout,
        )
        wants_old = ctx.needs_input_grad[3]
        grad_old = None
        grad_weight = None
        old_rows = old.reshape(-1, d)
        if weight is not None:
            grad_weight = torch.zeros_like(weight)
            if wants_old:
                grad_old = _allocate_edges(*old_rows.shape)
        elif wants_old and grad is not None:
            # The one row of ``old`` was added to all new edges.
            grad_old = grad.sum(0, keepdim=True)
        ranges = edges.node_ranges
        step = min(num_threads(), len(ranges))
        k = edges.neighbor.shape[1]
        largest = k * max(piece.stop - piece.start for piece in ranges)
        grad_pre = _allocate_edges(step * largest, d).view(step, largest, d)
        reused_buffers.keep_used_buffers()  # of all layers, for the next step

        def differentiate(jobs: list[tuple[NodeRange, Tensor, Tensor]]) -> None:
            for piece, rows, sums in jobs:
                firsts = k * piece.start, piece.low
                results = _flat_arrays(rows, grad_target)
                gate_kernels.differentiate_gate(
                    piece.start, piece.stop, *arguments, firsts, results, _flat_arrays(*sums)
                )

        width = -(-d // gate_kernels.LANES) * gate_kernels.LANES
        for first in range(0, len(ranges), step):
            group = ranges[first : first + step]
            sums = [torch.zeros(2, piece.high - piece.low, width) for piece in group]
            jobs = list(zip(group, grad_pre, sums, strict=False))
            run_in_ranges(lambda a, b, jobs=jobs: differentiate(jobs[a:b]), len(jobs))  # type: ignore[misc]
            # Add in the order of the ranges, so that sums do not depend on the number of threads.
            for piece, rows, piece_sums in jobs:
                at_sources[:, piece.low : piece.high] += piece_sums[..., :d]
                if weight is None or grad_weight is None:
                    continue
                of_piece = slice(k * piece.start, k * piece.stop)
                grad_rows = rows[: k * (piece.stop - piece.start)]
                grad_weight.addmm_(grad_rows.t(), old_rows[of_piece])
                if grad_old is not None:
                    addend = None if grad is None else grad[of_piece]
                    _add_product(addend, grad_rows, weight, grad_old[of_piece])
        return (
            grad_target,
            *at_sources,
            None if grad_old is None else grad_old.view(old.shape),
            grad_weight,
            grad_scale,
            grad_shift,
            None,
        )


def _gradient_sums(pre: Tensor, grad: Tensor, norm: Tensor, options: _Options) -> Tensor:
    """Return Σ g and Σ g · (z − mean) over all edges: (2, d) float64."""
    nodes, k = options.edges.neighbor.shape
    d = pre.shape[1]
    sums = torch.empty(2, nodes, d)
    operands = (flat_elements(pre), flat_elements(grad), flat_elements(norm))
    work = partial(
        gate_kernels.sum_norm_gradients, d, k, *operands, options.dropout, _flat_arrays(*sums)
    )
    run_in_ranges(work, nodes, grain=MIN_NODES_PER_THREAD)
    return sums.sum(1, dtype=torch.float64)


def _add_product(addend: Tensor | None, rows: Tensor, weight: Tensor, out: Tensor) -> None:
    """Write ``addend`` + ``rows`` · ``weight`` to ``out``; None: no addend."""
    if addend is None:
        torch.mm(rows, weight, out=out)
    else:
        torch.addmm(addend, rows, weight, out=out)


def flat_elements(tensor: Tensor) -> F32:
    """Return the elements (n,) of a tensor in row-major order, for a kernel."""
    elements: F32 = tensor.detach().contiguous().view(-1).numpy()
    return elements


def _flat_arrays(*tensors: Tensor) -> tuple[F32, ...]:
    return tuple(map(flat_elements, tensors))


def _neighbor_entries(edges: NeighborTable) -> NeighborSources:
    return edges.neighbor.shape[1], edges.neighbor.contiguous().view(-1).numpy()


def _allocate_edges(rows: int, d: int) -> Tensor:
    return torch.from_numpy(reused_buffers.reused_array((rows, d), np.dtype(np.float32)))


def _edge_statistics(sums: Tensor, squares: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Combine each node's sum and centred squares over its k edges to mean and variance (d,) float64."""
    count = k * len(sums)
    mean = sums.sum(0, dtype=torch.float64) / count
    between_nodes = (sums.double() / k - mean).square_().sum(0)
    within_nodes = squares.sum(0, dtype=torch.float64)
    return mean, (within_nodes + k * between_nodes) / count
