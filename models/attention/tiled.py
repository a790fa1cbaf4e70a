"""Full attention with dropout on a CPU, a tile of weights at a time: only the mask is stored, in bits.

In torch's operations all weights of a graph are written six times and two copies are kept. Here those
of some queries go through all operations in the cache, and the backward pass computes them again.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from kmip_data.models.layers.cpu.chances import draw_chances, masked
from kmip_data.models.layers.linear import product, product_of_columns

#: Weights of a tile: 2 MiB, which stay in the cache with their gradients.
TILE = 2**19


def attended(queries: Tensor, keys: Tensor, values: Tensor, p: float) -> Tensor:
    """Return dropout(softmax(``queries`` · ``keys``ᵀ)) · ``values``, with probability ``p`` of dropout.

    All are (…, n, d), float32. Torch's global generator draws what it draws for
    ``torch.nn.functional.dropout`` of all weights.
    """
    # oneDNN takes a hundred times as long for rows that are not contiguous.
    matrices = (rows.flatten(0, -3).contiguous().unbind() for rows in (queries, keys, values))
    out = [_Attended.apply(*operands, p) for operands in zip(*matrices, strict=True)]  # type: ignore[no-untyped-call]
    return torch.stack(out).view(values.shape)


class _Attended(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, values: Tensor, p: float) -> Tensor:
        ctx.rows = max(1, TILE // len(keys))
        ctx.scale = np.float32(1) / np.float32(1 - p)
        # One tensor of all pairs, by whose shape a plan of memory knows it.
        drawn = torch.empty(len(queries), math.ceil(len(keys) / 8), dtype=torch.uint8)
        out = []
        tiles = zip(torch.split(queries, ctx.rows), torch.split(drawn, ctx.rows), strict=True)
        for query, bits in tiles:
            weights = product(query, keys).softmax(1)
            mask = torch.empty(weights.shape, dtype=torch.bool)
            draw_chances(mask, 1 - p)
            bits.copy_(torch.from_numpy(np.packbits(mask.numpy(), axis=1)))
            out.append(product(masked(weights, mask, ctx.scale), values.t()))
        ctx.save_for_backward(queries, keys, values, drawn)
        return torch.cat(out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        queries, keys, values, drawn = ctx.saved_tensors
        grad_queries = []
        grad_keys = torch.zeros_like(keys)
        grad_values = torch.zeros_like(values)
        tiles = zip(
            torch.split(queries, ctx.rows),
            torch.split(grad.contiguous(), ctx.rows),
            torch.split(drawn, ctx.rows),
            strict=True,
        )
        for query, grad_out, bits in tiles:
            weights = product(query, keys).softmax(1)
            mask = torch.from_numpy(np.unpackbits(bits.numpy(), axis=1, count=len(keys)))
            dropped = masked(weights, mask, ctx.scale)
            grad_values += product_of_columns(dropped, grad_out)
            grad_weights = masked(product(grad_out, values), mask, ctx.scale)
            slopes = torch._softmax_backward_data(grad_weights, weights, 1, torch.float32)  # noqa: SLF001
            grad_keys += product_of_columns(slopes, query)
            grad_queries.append(product(slopes, keys.t()))
        return torch.cat(grad_queries), grad_keys, grad_values, None
