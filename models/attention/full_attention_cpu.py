"""Full attention with dropout on a CPU, tile by tile, without storing weights.

Torch's operations write all weights of a graph six times and save two copies. Here, each tile of
queries passes through all operations in cache, and the backward pass recomputes it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from kmip_data.models.layers.cpu.dropout import apply_dropout_mask, draw_seed
from kmip_data.models.layers.linear import onednn_linear

#: Weights per tile, 2 MiB: they fit in the cache together with their gradients.
TILE_WEIGHTS = 2**19


def tiled_attention(queries: Tensor, keys: Tensor, values: Tensor, p: float) -> Tensor:
    """Return dropout(softmax(``queries`` · ``keys``ᵀ)) · ``values``, with dropout probability ``p``.

    Operands are (…, n, d) float32.
    """
    # oneDNN is a hundred times slower if rows are not contiguous.
    matrices = (rows.flatten(0, -3).contiguous().unbind() for rows in (queries, keys, values))
    out = [_TiledAttention.apply(*operands, p) for operands in zip(*matrices, strict=True)]  # type: ignore[no-untyped-call]
    return torch.stack(out).view(values.shape)


class _TiledAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, values: Tensor, p: float) -> Tensor:
        ctx.rows = max(1, TILE_WEIGHTS // len(keys))
        ctx.p = p
        ctx.seed = draw_seed()
        ctx.save_for_backward(queries, keys, values)
        out = []
        for tile, query in enumerate(torch.split(queries, ctx.rows)):
            weights = onednn_linear(query, keys).softmax(1)
            kept_weights = _apply_tile_mask(ctx, tile, weights)
            out.append(onednn_linear(kept_weights, values.t()))
        return torch.cat(out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        queries, keys, values = ctx.saved_tensors
        grad_queries = []
        grad_keys = torch.zeros_like(keys)
        grad_values = torch.zeros_like(values)
        tiles = zip(
            torch.split(queries, ctx.rows), torch.split(grad.contiguous(), ctx.rows), strict=True
        )
        for tile, (query, grad_out) in enumerate(tiles):
            weights = onednn_linear(query, keys).softmax(1)
            grad_values.addmm_(_apply_tile_mask(ctx, tile, weights).t(), grad_out)
            grad_weights = _apply_tile_mask(ctx, tile, onednn_linear(grad_out, values))
            grad_scores = torch._softmax_backward_data(grad_weights, weights, 1, torch.float32)  # noqa: SLF001
            grad_keys.addmm_(grad_scores.t(), query)
            grad_queries.append(onednn_linear(grad_scores, keys.t()))
        return torch.cat(grad_queries), grad_keys, grad_values, None


def _apply_tile_mask(ctx: Any, tile: int, values: Tensor) -> Tensor:
    """Apply the dropout mask of a tile to its weights or their gradients."""
    return apply_dropout_mask(values, ctx.p, ctx.seed, tile * ctx.rows * values.shape[1])
