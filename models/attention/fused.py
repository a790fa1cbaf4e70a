"""k-MIP attention in one kernel, for inference: search, softmax and weighted values without (N, k) tensors.

Where it applies, :func:`fused_attention` gives what :func:`kmip_data.models.attention.kmip.kmip_attention`
gives, to float tolerance: the same keys by the same rule, weights summed slot after slot.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kmip_data.models.attention.gathered import has_tangent
from kmip_data.models.search.backends import triton
from kmip_data.models.search.problem import check_problem
from kmip_data.models.search.registry import choose


def fuses(queries: Tensor, keys: Tensor, values: Tensor, backend: str = "auto") -> bool:
    """Whether the fused kernel can take this call: no gradient wanted, and ``triton`` may be chosen."""
    if torch.compiler.is_compiling():
        return False  # the two steps are operators that a compiled model keeps whole
    graded = torch.is_grad_enabled() and any(x.requires_grad for x in (queries, keys, values))
    if graded or has_tangent(queries, keys, values):
        return False
    return (
        values.ndim == 3
        and values.shape[:2] == keys.shape[:2]
        and values.device == keys.device
        and backend in {"auto", triton.NAME}
        and (backend == triton.NAME or queries.device.type == "cuda")
        and values.dtype in {torch.float32, torch.float16, torch.bfloat16}
        and triton.unusable(queries.device.type) is None
    )


@torch.no_grad()
def fused_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    k: int,
    *,
    query_ptr: Tensor | Sequence[int] | None = None,
    key_ptr: Tensor | Sequence[int] | None = None,
    scale: float,
    backend: str = "auto",
) -> Tensor | None:
    """Attention over the k best keys of each query, straight from the kernel.

    Parameters
    ----------
    queries, keys, values
        (H, N, d), (H, M, d) and (H, M, v), for which :func:`fuses` holds.
    k, query_ptr, key_ptr, backend
        As :func:`~kmip_data.models.search.topk.topk_inner_product` takes them.
    scale
        Factor of the scores in the softmax.

    Returns
    -------
    Tensor or None
        (H, N, v), dtype of ``values``, rows without any key zero. None where the search would go to
        another backend (float64, large d or k, scores beyond the float32 range): take the two steps.
    """
    from kmip_data.models.search.gpu.launch import Attend, fits_range, run

    problem = check_problem(queries, keys, k, query_ptr, key_ptr)
    if choose(problem, backend).NAME != triton.NAME or not fits_range(problem):
        return None
    try:
        (output,) = run(problem, Attend(values.detach().contiguous(), scale))
    except torch.cuda.OutOfMemoryError as error:
        raise triton.out_of_memory(problem) from error
    return output
