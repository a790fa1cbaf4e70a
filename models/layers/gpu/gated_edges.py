"""GatedGCN on a GPU: the edges' part of a layer in two differentiable functions, for both forms of edges.

New edges are formed by who reads them, which is the next layer in the pass that multiplies them. As on the
CPU two (E, d) tensors live from a layer's forward to its backward pass: z and the old edges. Where a kernel
here takes the products, a layer has 6 passes over an (E, d) tensor forward (4 the old edges and their
product, 2 z) and 11 backward (3 the gradient of z, 2 the sums at sources, 2 the weight's, 4 the old edges'
and, in the same pass, the sums for the norm they came from); with products by cuBLAS 7 and 12.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from triton import cdiv

from kmip_data.models.layers.batch import GraphBatch, NeighborTable, UnformedEdges
from kmip_data.models.layers.gpu import gate_kernels, norm_kernels, norms, products
from kmip_data.models.layers.gpu.norm_kernels import OPTIONS, channels_of_a_tile, programs
from kmip_data.models.layers.norms import BatchNorm, constants_of

#: Elements of a tile, and slots of a neighbour table taken at a time, of the two kernels by target.
GATE = (256, 2)
DIFFERENTIATE = (512, 4)
SOURCES = 256  #: elements of a tile of ``sum_at_sources``


@torch.compiler.disable  # type: ignore[untyped-decorator] # is compiled already
def gated_edges(
    batch: GraphBatch, at_target: Tensor, at_source: Tensor, message: Tensor, old: Tensor | UnformedEdges,
    weight: Tensor | None, norm: BatchNorm | None, dropout: float,
) -> tuple[Tensor, UnformedEdges | None]:  # fmt: skip
    """Gate the edges, sum at the targets, and update the edges; as :func:`.cpu.gated_edges.gated_edges`.

    Edges are a table or a list in any order, ``old`` (N, k, d), (E, d) or unformed, or (1, d) where all share
    one vector. All float32; under autocast to bfloat16 node tensors may have either dtype, and z and the new
    edges are bfloat16, while running statistics, sums and gradients of nodes stay float32. The seed is drawn
    and stays on the device; nothing waits for it. That the edges name nodes that are there is not checked.
    """
    device = at_target.device
    d = at_target.shape[1]
    lowered = torch.is_autocast_enabled(device.type)
    dtype = torch.get_autocast_dtype(device.type) if lowered else torch.float32
    weight = None if weight is None else weight.to(dtype)
    product = None
    if isinstance(old, _Unformed) and weight is not None and old.dtype == dtype:
        rows, product = old.multiplied(weight, batch.context.split)
    else:
        given = old.tensor() if isinstance(old, UnformedEdges) else old
        rows = given.to(dtype).contiguous().view(-1, d)
        if weight is not None:
            rows, product = _Form.apply(rows, None, weight, None, batch.context.split)  # type: ignore[no-untyped-call]
    entries = _Entries(batch)
    norming = _Norming(norms.dropout_of(dropout if norm else 0.0, device))
    of_norm = (norm.weight, norm.bias) if norm else (None, None)
    nodes = (each.contiguous() for each in (at_target, at_source, message))
    arguments = (*nodes, product, *of_norm, entries, norm, norming, dtype)
    quotient, z = _GatedEdges.apply(*arguments)  # type: ignore[no-untyped-call]
    return quotient, None if norm is None else _Unformed(rows, z, norming, entries.shape)


class _Entries:
    """The edges of one batch as entries of their targets."""

    def __init__(self, batch: GraphBatch) -> None:
        self.batch = batch
        self.edges = batch.edges
        edges = batch.edges
        if isinstance(edges, NeighborTable):
            self.nodes, self.k = edges.neighbor.shape
            self.shape: tuple[int, ...] = (self.nodes, self.k, -1)
            ends = edges.neighbor.contiguous()
            self.incoming: tuple[Tensor | None, ...] = (ends, ends, ends)  # of which one is read
        else:
            bags = edges.adjacency.incoming
            self.nodes = edges.num_nodes
            self.k = 0
            self.shape = (len(edges.source), -1)
            self.incoming = (bags.start, bags.node, bags.edge)
        self.count = self.shape[0] * (self.k or 1)


@dataclass(eq=False)
class _Norming:
    """State of a layer's norm of z, shared by the two functions that compute it."""

    drop: norms.Dropout
    constants: Tensor = field(
        init=False
    )  #: (3, d) factors, shifts and means, once there are statistics
    parts: Tensor | None = None  #: backwards: (tiles, 2, d), the norm's sums, where they are there


class _Unformed(UnformedEdges):
    """``old`` (E, d) or (1, d) + dropout(relu(norm(z))).

    ``carrier`` is z (E, d), but its gradient is that of the edges, which the layer that made z takes through
    its norm. They are formed once, so that this gradient has one source.
    """

    def __init__(
        self, old: Tensor, carrier: Tensor, norming: _Norming, shape: tuple[int, ...]
    ) -> None:
        self._given: tuple[Tensor, Tensor | None, _Norming | None] = (old, carrier, norming)
        self._shape = shape
        self.dtype = carrier.dtype

    def tensor(self) -> Tensor:
        old, carrier, _ = self._given
        return (old if carrier is None else self.multiplied(None, None)[0]).view(self._shape)

    def multiplied(self, weight: Tensor | None, split: str | None) -> tuple[Tensor, Tensor | None]:
        """The edges (E, d), and their product with ``weight`` (d, d) transposed."""
        old, carrier, norming = self._given
        formed, product = _Form.apply(old, carrier, weight, norming, split)  # type: ignore[no-untyped-call]
        self._given = formed, None, None
        return formed, product


class _Form(torch.autograd.Function):
    """Edges, ``old`` or what is made of it and of z, and their product where there is a weight."""

    @staticmethod
    def forward(
        ctx: Any, old: Tensor, z: Tensor | None, weight: Tensor | None, norming: _Norming | None,
        split: str | None,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        ctx.set_materialize_grads(False)
        new = old
        product = None
        d = old.shape[1]
        split = (
            "bf16x3" if old.dtype == torch.bfloat16 else split
        )  # one part holds a bfloat16 number
        ctx.split = split if d <= products.MOST else None
        of = None
        if z is not None and norming is not None:
            new = torch.empty_like(z) if ctx.needs_input_grad[1] else z
            of = z, norming.constants, norming.drop
        if weight is not None and ctx.split:
            made = new if of else None
            product, _ = products.multiplied(old, weight, split=ctx.split, of=of, new=made)
        elif of:
            with torch.cuda.device_of(new):  # type: ignore[no-untyped-call]
                block = channels_of_a_tile(d)
                norm_kernels.update[programs(len(new), norms.ROWS // block, d)](
                    old, *of[:2], new, *of[2], len(new),
                    D=d, BE=norms.ROWS // block, BC=block, SHARED=len(old) < len(new), RELU=True, **OPTIONS,
                )  # fmt: skip
        if weight is not None and product is None:
            product = torch.mm(new, weight.t())
        ctx.norming = norming
        ctx.shared = len(old) < len(new)
        ctx.save_for_backward(None if weight is None else new, weight, z)
        return new, product

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad: Tensor | None, grad_product: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        new, weight, z = ctx.saved_tensors
        grad = None if grad is None else grad.contiguous()
        grad_weight = parts = None
        if grad_product is not None:
            grad_weight = grad_product.t() @ new
        if grad_product is not None and any(ctx.needs_input_grad[:2]):
            if ctx.split:
                of = None if z is None else (z, ctx.norming.constants, ctx.norming.drop)
                given = grad_product, weight.t(), grad
                grad, parts = products.multiplied(*given, split=ctx.split, of=of)
            else:
                grad = (
                    grad_product @ weight
                    if grad is None
                    else torch.addmm(grad, grad_product, weight)
                )
        if z is not None:
            ctx.norming.parts = parts
        of_old = (
            grad.sum(0, keepdim=True, dtype=torch.float32)
            if ctx.shared and grad is not None
            else grad
        )
        return of_old, None if z is None else grad, grad_weight, None, None


def by_node(shape: tuple[int, int], d: int, k: int) -> dict[str, Any]:
    """Options of a kernel that walks the entries of nodes by target; k = 0: of a list."""
    block = channels_of_a_tile(d)
    nodes = shape[0] // block
    unroll = shape[1] if k else 1
    return {"D": d, "K": k, "BC": block, "BN": nodes, "UNROLL": unroll, **OPTIONS}


class _GatedEdges(torch.autograd.Function):
    """Quotients and z, which takes ``product``'s place; for its gradient see :class:`_Unformed`."""

    @staticmethod
    def forward(
        ctx: Any, at_target: Tensor, at_source: Tensor, message: Tensor, product: Tensor | None,
        _scale: Tensor | None, _shift: Tensor | None, entries: _Entries, norm: BatchNorm | None,
        norming: _Norming, dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        ctx.set_materialize_grads(False)
        own, (nodes, d) = norm is not None and norm.uses_batch(entries.count), at_target.shape
        ctx.entries = entries
        ctx.norming = norming
        ctx.share = float(own) / entries.count
        if product is None:
            z = torch.empty(entries.count, d, dtype=dtype, device=message.device)
        else:
            z = product
            ctx.mark_dirty(product)
        quotient, inverse = (torch.empty(nodes, d, device=z.device) for _ in range(2))
        shape = by_node(GATE, d, entries.k)
        parts = torch.empty(cdiv(nodes, shape["BN"]), 3, d, device=z.device)
        with torch.cuda.device_of(z):  # type: ignore[no-untyped-call]
            gate_kernels.gate[programs(nodes, shape["BN"], d)](
                at_target, at_source, message, *entries.incoming, z, quotient, inverse, parts, nodes,
                entries.batch.node_rows.first, ADD=product is not None, STATISTICS=own, **shape,
            )  # fmt: skip
            deviation = None
            if norm is not None and own:
                repeated = entries.batch.context.repeated
                norming.constants, deviation = norms.constants_by_tiles(
                    norm, parts, repeated=repeated
                )
            elif norm is not None:
                norming.constants, deviation = constants_of(norm, None, entries.count)
        ctx.save_for_backward(message, z, quotient, inverse, deviation)
        return quotient, z

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_quotient: Tensor | None, grad: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        message, z, quotient, inverse, deviation = ctx.saved_tensors
        entries, norming, (nodes, d) = ctx.entries, ctx.norming, quotient.shape
        grad_scale = grad_shift = norm = None
        if grad_quotient is None:
            grad_quotient = torch.zeros_like(quotient)
        with torch.cuda.device_of(z):  # type: ignore[no-untyped-call]
            if grad is not None:
                parts = norming.parts
                norming.parts = None
                if parts is None:
                    parts = norms.sums_by_tiles(z, grad, norming.constants, norming.drop, relu=True)
                grad_scale, grad_shift, norm = norms.gradients_by_tiles(
                    parts, norming.constants, deviation, ctx.share, entries.batch.edge_rows.first
                )
            grad_pre = torch.empty_like(z)
            of_target, of_source, of_message, of_sum = torch.empty(4, nodes, d, device=z.device)
            shape = by_node(DIFFERENTIATE, d, entries.k)
            gate_kernels.differentiate[programs(nodes, shape["BN"], d)](
                grad_quotient.contiguous(), quotient, inverse, message, *entries.incoming, z, grad, norm,
                grad_pre, of_target, of_sum, *norming.drop, nodes, entries.batch.node_rows.first, **shape,
            )  # fmt: skip
            out = entries.edges.adjacency.outgoing
            block = channels_of_a_tile(d)
            gate_kernels.sum_at_sources[programs(nodes, SOURCES // block, d)](
                z, grad_pre, of_sum, out.start, out.node, out.edge, of_source, of_message, nodes,
                D=d, BN=SOURCES // block, BC=block, **OPTIONS,
            )  # fmt: skip
        of_product = grad_pre if ctx.needs_input_grad[3] else None
        return of_target, of_source, of_message, of_product, grad_scale, grad_shift, *(None,) * 4
