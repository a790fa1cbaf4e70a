"""Full attention with dropout on a CPU, a tile of weights at a time: only the mask is stored, in bits.

In torch's operations all weights of a graph are written six times and two copies are kept. Here those
of some queries go through all operations in the cache, and the backward pass computes them again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from kmip_data.arrays import F32, U8
from kmip_data.models.layers.cpu.chances import draw_chances, masked
from kmip_data.models.layers.linear import product, product_of_columns
from kmip_data.runtime.threads import njit_nogil

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
        drawn = []
        out = []
        for query in queries.split(ctx.rows):
            weights = product(query, keys).softmax(1)
            mask = torch.empty(weights.shape, dtype=torch.bool)
            draw_chances(mask, 1 - p)
            drawn.append(torch.from_numpy(np.packbits(mask.numpy())))
            out.append(product(masked(weights, mask, ctx.scale), values.t()))
        ctx.save_for_backward(queries, keys, values, *drawn)
        return torch.cat(out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        queries, keys, values, *drawn = ctx.saved_tensors
        grad_queries = []
        grad_keys = torch.zeros_like(keys)
        grad_values = torch.zeros_like(values)
        tiles = zip(queries.split(ctx.rows), grad.contiguous().split(ctx.rows), drawn, strict=True)
        for query, grad_out, bits in tiles:
            weights = product(query, keys).softmax(1)
            slopes = product(grad_out, values)
            mask = np.unpackbits(bits.numpy(), count=weights.numel())
            _differentiate(weights.numpy(), slopes.numpy(), mask, ctx.scale)
            grad_values += product_of_columns(weights, grad_out)
            grad_keys += product_of_columns(slopes, query)
            grad_queries.append(product(slopes, keys.t()))
        return torch.cat(grad_queries), grad_keys, grad_values, None


# Sums may be reordered into vector lanes, always the same way.
@njit_nogil(fastmath={"reassoc", "contract", "nsz"}, error_model="numpy")
def _differentiate(weights: F32, slopes: F32, mask: U8, scale: float) -> None:
    """Turn gradients of dropped weights into those of their scores, and weights into dropped ones."""
    width = weights.shape[1]
    for i in range(len(weights)):
        row = weights[i]
        slope = slopes[i]
        factors = mask[i * width : (i + 1) * width]
        mean = np.float32(0)
        for j in range(width):
            slope[j] *= np.float32(factors[j]) * scale
            mean += slope[j] * row[j]
        for j in range(width):
            slope[j] = row[j] * (slope[j] - mean)
            row[j] *= np.float32(factors[j]) * scale
