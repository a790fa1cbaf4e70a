"""k-MIP attention on CUDA for inference: search, softmax and weighted values without the (N, k) weights.

Where it applies, :func:`fused_attention` gives what :func:`kmip_data.models.attention.kmip.kmip_attention`
gives, bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from kmip_data.models.attention import gathered
from kmip_data.models.attention.operators import kernels_for
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
    """Attention over the k best keys of each query without its weights: (H, N, v), dtype of ``values``.

    Queries are (H, N, d), keys (H, M, d), values (H, M, v); ``scale`` is the factor of the scores in the
    softmax, by default 1/√d; the others are as :func:`~kmip_data.models.search.topk.topk_inner_product` takes
    them. Rows without any key are zero. None where the weights must be kept or nothing is gained: a gradient
    is wanted, or Triton's kernels do not run there (another device, float64).
    """
    if torch.compiler.is_compiling():
        return None  # search and attention are operators that a compiled model keeps whole
    graded = torch.is_grad_enabled() and any(x.requires_grad for x in (queries, keys, values))
    if graded or gathered.is_transformed(queries, keys, values):
        return None
    if values.ndim != 3 or values.shape[:2] != keys.shape[:2] or values.device != keys.device:
        return None
    kernels = kernels_for(values)
    if kernels is gathered:
        return None
    scores, indices = topk_inner_product(
        queries, keys, k, query_ptr=query_ptr, key_ptr=key_ptr, backend=backend
    )
    factor = 1 / math.sqrt(queries.shape[2]) if scale is None else scale
    rows = values.float(), scores.float(), indices
    out: Tensor = kernels.forward(*rows, None, factor, keep_weights=False)[0]
    return out.to(values.dtype)
