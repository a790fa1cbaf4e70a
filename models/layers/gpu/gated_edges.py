"""GatedGCN on a GPU: the edges' part of a layer in two differentiable functions, for both forms of edges.

New edges are formed by their reader, the next layer, in the pass that multiplies them. As on the
CPU two (E, d) tensors live from a layer's forward to its backward pass: z and the old edges. Where
one of these kernels computes the products, a layer has 6 passes over an (E, d) tensor forward (4
the old edges and their product, 2 z) and 11 backward (3 the gradient of z, 2 the sums at sources, 2
the weight's, 4 the old edges' and, in the same pass, the sums for the norm they came from); with
products by cuBLAS 7 and 12.
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

#: Elements of a tile and unrolled slots of a neighbour table, of the two kernels by target.
GATE = (256, 2)
DIFFERENTIATE = (512, 4)
#: Elements of a tile of ``sum_at_sources``.
SOURCES = 256


@torch.compiler.disable  # type: ignore[untyped-decorator] # is compiled already
def gated_edges(
    batch: GraphBatch,
    at_target: Tensor,
    at_source: Tensor,
    message: Tensor,
    old: Tensor | UnformedEdges,
    weight: Tensor | None,
    norm: BatchNorm | None,
    dropout: float,
) -> tuple[Tensor, UnformedEdges | None]:
    """Gate the edges, sum at the targets, update the edges: :func:`.cpu.gated_edges.gated_edges`.

    Edges are a table or a list in any order, ``old`` (N, k, d), (E, d) or unformed, or (1, d) where
    all share one vector. All float32; under autocast to bfloat16 node tensors may have either
    dtype, and z and the new edges are bfloat16, while running statistics, sums and gradients of
    nodes stay float32. The seed is drawn and stays on the device; the host does not wait for it.
    The edges must name existing nodes, which is not checked.
    """
    # 1. The old edges, formed if they are not, and their product with the weight.
    device = at_target.device
    d = at_target.shape[1]
    dtype = torch.float32
    if torch.is_autocast_enabled(device.type):
        dtype = torch.get_autocast_dtype(device.type)
    if weight is not None:
        weight = weight.to(dtype)
    product = None
    if isinstance(old, _Unformed) and weight is not None and old.dtype == dtype:
        rows, product = old.multiplied(weight, batch.context.split)
    else:
        values = old.tensor() if isinstance(old, UnformedEdges) else old
        rows = values.to(dtype).contiguous().view(-1, d)
        if weight is not None:
            rows, product = _Form.apply(rows, None, weight, None, batch.context.split)  # type: ignore[no-untyped-call]

    # 2. Gates and sums; z takes the product's memory.
    entries = _Entries(batch)
    norming = _Norming(norms.dropout_of(dropout if norm else 0.0, device))
    quotient, z = _GatedEdges.apply(  # type: ignore[no-untyped-call]
        at_target.contiguous(),
        at_source.contiguous(),
        message.contiguous(),
        product,
        norm.weight if norm else None,
        norm.bias if norm else None,
        entries,
        norm,
        norming,
        dtype,
    )
    if norm is None:
        return quotient, None
    return quotient, _Unformed(rows, z, norming, entries.shape)


class _Entries:
    """The edges of one batch as entries of their targets."""

    def __init__(self, batch: GraphBatch) -> None:
        self.batch = batch
        self.edges = batch.edges
        edges = batch.edges
        if isinstance(edges, NeighborTable):
            self.nodes, self.k = edges.neighbor.shape
            self.shape: tuple[int, ...] = (self.nodes, self.k, -1)
            self.count = self.nodes * self.k
            # Start, end and number of entries, of which kernels read only the end.
            ends = edges.neighbor.contiguous()
            self.incoming: tuple[Tensor | None, ...] = (ends, ends, ends)
        else:
            bags = edges.adjacency.incoming
            self.nodes = edges.num_nodes
            self.k = 0
            self.shape = (len(edges.source), -1)
            self.count = len(edges.source)
            self.incoming = (bags.start, bags.node, bags.edge)


@dataclass(eq=False)
class _Norming:
    """State of a layer's norm of z, shared by the two functions that compute it."""

    drop: norms.Dropout
    #: (3, d) factors, shifts and means, set once there are statistics.
    constants: Tensor = field(init=False)
    #: Backwards: (tiles, 2, d), the norm's sums, where a product has computed them.
    parts: Tensor | None = None


class _Unformed(UnformedEdges):
    """``old`` (E, d) or (1, d) + dropout(relu(norm(z))).

    ``carrier`` is z (E, d), but its gradient is that of the edges, which z's layer takes through
    its norm. They are formed once, so that this gradient has one source.
    """

    def __init__(
        self,
        old: Tensor,
        carrier: Tensor,
        norming: _Norming,
        shape: tuple[int, ...],
    ) -> None:
        self._rows = old
        self._carrier: Tensor | None = carrier
        self._norming: _Norming | None = norming
        self._shape = shape
        self.dtype = carrier.dtype

    def tensor(self) -> Tensor:
        if self._carrier is not None:
            self.multiplied(None, None)
        return self._rows.view(self._shape)

    def multiplied(self, weight: Tensor | None, split: str | None) -> tuple[Tensor, Tensor | None]:
        """Return the edges (E, d), and their product with ``weight`` (d, d) transposed."""
        formed, product = _Form.apply(self._rows, self._carrier, weight, self._norming, split)  # type: ignore[no-untyped-call]
        self._rows = formed
        self._carrier = None
        self._norming = None
        return formed, product


class _Form(torch.autograd.Function):
    """Edges, ``old`` or formed from it and z, and their product if there is a weight."""

    @staticmethod
    def forward(
        ctx: Any,
        old: Tensor,
        z: Tensor | None,
        weight: Tensor | None,
        norming: _Norming | None,
        split: str | None,
    ) -> tuple[Tensor, Tensor | None]:
        ctx.set_materialize_grads(False)
        d = old.shape[1]
        if old.dtype == torch.bfloat16:
            split = "bf16x3"  # whose first part holds all of a bfloat16 number
        ctx.split = split if d <= products.MOST else None

        # 1. Memory of the new edges: z's, unless a backward pass will read z.
        new = old
        carried: products.Norming | None = None
        if z is not None and norming is not None:
            new = torch.empty_like(z) if ctx.needs_input_grad[1] else z
            carried = (z, norming.constants, norming.drop)
        ctx.shared = len(old) < len(new)

        # 2. Form and multiply them in one pass, or form them and leave the product to cuBLAS.
        product = None
        if weight is not None and ctx.split:
            product, _ = products.multiplied(
                old,
                weight,
                split=ctx.split,
                norming=carried,
                new=new if carried else None,
            )
        elif carried:
            _update(old, new, carried)
        if weight is not None and product is None:
            product = torch.mm(new, weight.t())
        ctx.norming = norming
        ctx.save_for_backward(None if weight is None else new, weight, z)
        return new, product

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad: Tensor | None, grad_product: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        new, weight, z = ctx.saved_tensors
        wants_edges = any(ctx.needs_input_grad[:2])
        if grad is not None:
            grad = grad.contiguous()
        grad_weight = None
        parts = None
        if grad_product is not None:
            grad_weight = grad_product.t() @ new

        # The product's gradient, added to that of the edges.
        if grad_product is not None and wants_edges:
            if ctx.split:
                carried = None
                if z is not None:
                    carried = (z, ctx.norming.constants, ctx.norming.drop)
                grad, parts = products.multiplied(
                    grad_product,
                    weight.t(),
                    grad,
                    split=ctx.split,
                    norming=carried,
                )
            elif grad is None:
                grad = grad_product @ weight
            else:
                grad = torch.addmm(grad, grad_product, weight)
        if z is not None:
            ctx.norming.parts = parts

        grad_old = grad
        if ctx.shared and grad is not None:
            grad_old = grad.sum(0, keepdim=True, dtype=torch.float32)
        grad_z = None if z is None else grad
        return grad_old, grad_z, grad_weight, None, None


def _update(old: Tensor, new: Tensor, norming: products.Norming) -> None:
    """``new`` (E, d) becomes ``old`` + dropout(relu(norm(z)))."""
    edges, d = new.shape
    z, constants, drop = norming
    block = channels_of_a_tile(d)
    rows = norms.ROWS // block
    with torch.cuda.device_of(new):  # type: ignore[no-untyped-call]
        norm_kernels.update[programs(edges, rows, d)](
            old,
            z,
            constants,
            new,
            *drop,
            edges,
            D=d,
            BE=rows,
            BC=block,
            SHARED=len(old) < edges,
            RELU=True,
            **OPTIONS,
        )


def by_node(shape: tuple[int, int], d: int, k: int) -> dict[str, Any]:
    """Options of a kernel that walks the entries of nodes by target; k = 0: of a list."""
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
    """Quotients and z, in the memory of ``product``; for z's gradient see :class:`_Unformed`."""

    @staticmethod
    def forward(
        ctx: Any,
        at_target: Tensor,
        at_source: Tensor,
        message: Tensor,
        product: Tensor | None,
        _scale: Tensor | None,
        _shift: Tensor | None,
        entries: _Entries,
        norm: BatchNorm | None,
        norming: _Norming,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        nodes, d = at_target.shape
        by_batch = norm is not None and norm.uses_batch(entries.count)
        ctx.entries = entries
        ctx.norming = norming
        ctx.share = float(by_batch) / entries.count
        if product is None:
            z = torch.empty(entries.count, d, dtype=dtype, device=message.device)
        else:
            z = product
            ctx.mark_dirty(product)
        quotient = torch.empty(nodes, d, device=z.device)
        inverse = torch.empty(nodes, d, device=z.device)
        shape = by_node(GATE, d, entries.k)
        parts = torch.empty(cdiv(nodes, shape["BN"]), 3, d, device=z.device)
        with torch.cuda.device_of(z):  # type: ignore[no-untyped-call]
            gate_kernels.gate[programs(nodes, shape["BN"], d)](
                at_target,
                at_source,
                message,
                *entries.incoming,
                z,
                quotient,
                inverse,
                parts,
                nodes,
                ADD=product is not None,
                STATISTICS=by_batch,
                **shape,
            )
            deviation = None
            if norm is not None and by_batch:
                norming.constants, deviation = norms.constants_by_tiles(norm, parts)
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
        entries: _Entries = ctx.entries
        norming: _Norming = ctx.norming
        nodes, d = quotient.shape
        grad_scale = None
        grad_shift = None
        norm = None
        if grad_quotient is None:
            grad_quotient = torch.zeros_like(quotient)
        with torch.cuda.device_of(z):  # type: ignore[no-untyped-call]
            # 1. Gradients of the norm; the pass that multiplied may have computed its sums.
            if grad is not None:
                parts = norming.parts
                norming.parts = None
                if parts is None:
                    parts = norms.sums_by_tiles(z, grad, norming.constants, norming.drop, relu=True)
                grad_scale, grad_shift, norm = norms.gradients_by_tiles(
                    parts, norming.constants, deviation, ctx.share
                )

            # 2. The gradient of z, and its sums at the targets.
            grad_pre = torch.empty_like(z)
            of_target, of_source, of_message, of_sum = torch.empty(4, nodes, d, device=z.device)
            shape = by_node(DIFFERENTIATE, d, entries.k)
            gate_kernels.differentiate[programs(nodes, shape["BN"], d)](
                grad_quotient.contiguous(),
                quotient,
                inverse,
                message,
                *entries.incoming,
                z,
                grad,
                norm,
                grad_pre,
                of_target,
                of_sum,
                *norming.drop,
                nodes,
                **shape,
            )

            # 3. Its sums at the sources.
            outgoing = entries.edges.adjacency.outgoing
            block = channels_of_a_tile(d)
            gate_kernels.sum_at_sources[programs(nodes, SOURCES // block, d)](
                z,
                grad_pre,
                of_sum,
                outgoing.start,
                outgoing.node,
                outgoing.edge,
                of_source,
                of_message,
                nodes,
                D=d,
                BN=SOURCES // block,
                BC=block,
                **OPTIONS,
            )
        of_product = grad_pre if ctx.needs_input_grad[3] else None
        return of_target, of_source, of_message, of_product, grad_scale, grad_shift, *(None,) * 4
