"""k-MIP attention in one kernel, for inference: search, softmax and weighted values without (N, k) tensors.

Where it applies, :func:`fused_attention` gives what :func:`kmip_data.models.attention.kmip.kmip_attention`
gives, to float tolerance: the same keys by the same rule, weights summed slot after slot.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from kmip_data.models.attention.gathered import has_tangent
from kmip_data.models.search.backends import triton
from kmip_data.models.search.problem import check_problem, out_of_memory
from kmip_data.models.search.registry import choose


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
    """Attention over the k best keys of each query, straight from the kernel: (H, N, v), dtype of ``values``.

    Queries are (H, N, d), keys (H, M, d), values (H, M, v); ``scale`` is the factor of the scores in the
    softmax, by default 1/√d; the others are as :func:`~kmip_data.models.search.topk.topk_inner_product` takes
    them. Rows without any key are zero. None where two steps must be taken: a gradient is wanted, or the
    search goes to another backend (another device, float64, large d or k, scores beyond the float32 range).
    """
    if torch.compiler.is_compiling():
        return None  # the two steps are operators that a compiled model keeps whole
    graded = torch.is_grad_enabled() and any(x.requires_grad for x in (queries, keys, values))
    if graded or has_tangent(queries, keys, values):
        return None
    fits = values.ndim == 3 and values.shape[:2] == keys.shape[:2] and values.device == keys.device
    if (
        not fits
        or not (backend == triton.NAME or (backend == "auto" and queries.device.type == "cuda"))
        or values.dtype not in {torch.float32, torch.float16, torch.bfloat16}
        or triton.unusable(queries.device.type) is not None
    ):
        return None
    from kmip_data.models.search.gpu.launch import fits_range, run

    problem = check_problem(queries, keys, k, query_ptr, key_ptr)
    if choose(problem, backend).NAME != triton.NAME or not fits_range(problem):
        return None
    try:
        factor = 1 / math.sqrt(problem.dim) if scale is None else scale
        (output,) = run(problem, values.detach().contiguous(), factor)
    except torch.cuda.OutOfMemoryError as error:
        raise out_of_memory(problem, error) from error
    return output
