"""Checks for overflowing scores, called outside compiled graphs."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kmip_data.models.search.problem import check_finite, overflow_error


@torch.compiler.disable  # type: ignore[untyped-decorator] # depends on the data
def check_attention_weights(weights: Tensor) -> None:
    """Raise if weights (H, N, k) contain NaN, the result of overflowing products.

    Waits for the GPU; skipped during capture.
    """
    if is_capturing(weights):
        return
    if bool(weights.detach().sum().isnan()):
        raise overflow_error(weights.dtype)


@torch.compiler.disable  # type: ignore[untyped-decorator] # depends on the data
def check_inner_products(queries: Tensor, keys: Tensor) -> None:
    """Raise if rows (…, d) are not finite, or so long that an inner product may overflow.

    Waits for the GPU; skipped during capture.
    """
    if is_capturing(queries):
        return
    queries = queries.detach()
    keys = keys.detach()
    dtype = torch.promote_types(queries.dtype, torch.float32)
    limit = torch.finfo(dtype).max
    # One pass: the norm over all rows is an upper bound of the longest row's norm.
    if bool(queries.norm(dtype=dtype) * keys.norm(dtype=dtype) <= limit):
        return
    check_finite(queries, keys)
    max_norms = [float(rows.double().norm(dim=-1).amax()) for rows in (queries, keys)]
    if math.prod(max_norms) > limit:
        raise overflow_error(dtype)


def is_capturing(values: Tensor) -> bool:
    """True while a CUDA graph is captured, when the host cannot read ``values`` of any shape."""
    return values.is_cuda and torch.cuda.is_current_stream_capturing()
