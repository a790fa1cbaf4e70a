"""Overflow checks of scores from finite inputs, called between the parts of a compiled graph."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kmip_data.models.search.problem import check_finite, overflow_error


@torch.compiler.disable  # type: ignore[untyped-decorator] # depends on the data
def check_weights(weights: Tensor) -> None:
    """Raise on NaN in weights (H, N, k), from overflowing products; waits for the GPU, skipped in capture."""
    if is_capturing(weights):
        return
    if bool(weights.detach().sum().isnan()):
        raise overflow_error(weights.dtype)


@torch.compiler.disable  # type: ignore[untyped-decorator] # depends on the data
def check_lengths(queries: Tensor, keys: Tensor) -> None:
    """Raise on rows (…, d) that are not finite, or so long that an inner product may overflow.

    Waits for the GPU, and is skipped during capture.
    """
    if is_capturing(queries):
        return
    queries = queries.detach()
    keys = keys.detach()
    precise = torch.promote_types(queries.dtype, torch.float32)
    limit = torch.finfo(precise).max
    # The norm over all rows bounds the longest row's norm, in one pass.
    if bool(queries.norm(dtype=precise) * keys.norm(dtype=precise) <= limit):
        return
    check_finite(queries, keys)
    lengths = [float(rows.double().norm(dim=-1).amax()) for rows in (queries, keys)]
    if math.prod(lengths) > limit:
        raise overflow_error(precise)


def is_capturing(values: Tensor) -> bool:
    """True while a CUDA graph is captured, so that the host cannot wait for values of any shape."""
    return values.is_cuda and torch.cuda.is_current_stream_capturing()
