"""k-MIP attention on CUDA for inference: search, then the gathered formula.

Where it applies, :func:`fused_attention` gives what :func:`kmip_data.models.attention.kmip.kmip_attention`
gives, bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from kmip_data.models.attention import gathered
from kmip_data.models.search.topk import topk_inner_product


def fused_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    k: int,
    *,
    query_ptr: Tensor | Sequence[int] | None = None,
    key_ptr: Tensor | Sequence[int] | None = None,
    scale: float | None = None,
    backend: str = "auto",
) -> Tensor | None:
    """Attention over the k best keys of each query: (H, N, v), dtype of ``values``.

    Queries are (H, N, d), keys (H, M, d), values (H, M, v); ``scale`` is the factor of the scores in the
    softmax, by default 1/√d; the others are as :func:`~kmip_data.models.search.topk.topk_inner_product` takes
    them. Rows without any key are zero. None where a gradient is wanted, or on another kind of device.
    """
    if torch.compiler.is_compiling() or queries.device.type != "cuda":
        return None  # compiled models keep the two operators whole; the CPU has kernels of its own for them
    graded = torch.is_grad_enabled() and any(x.requires_grad for x in (queries, keys, values))
    if graded or gathered.has_tangent(queries, keys, values):
        return None
    if values.ndim != 3 or values.shape[:2] != keys.shape[:2] or values.device != keys.device:
        return None
    scores, indices = topk_inner_product(
        queries, keys, k, query_ptr=query_ptr, key_ptr=key_ptr, backend=backend
    )
    rows = values.float() if values.dtype in {torch.float16, torch.bfloat16} else values
    factor = 1 / math.sqrt(queries.shape[2]) if scale is None else scale
    return gathered.forward(rows, scores.to(rows.dtype), indices, None, factor)[0].to(values.dtype)
