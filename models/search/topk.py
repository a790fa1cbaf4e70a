"""``topk_inner_product``: the k keys with the largest inner product for each query, exactly."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import Tensor

from kmip_data.models.search.problem import SearchProblem, check_finite, check_problem, out_of_memory
from kmip_data.models.search.registry import choose
from kmip_data.runtime.memory import is_out_of_memory


@torch.compiler.disable  # type: ignore[untyped-decorator] # data-dependent loops: a compiled model calls it as it is
@torch.no_grad()
def topk_inner_product(
    queries: Tensor,
    keys: Tensor,
    k: int,
    *,
    query_ptr: Tensor | Sequence[int] | None = None,
    key_ptr: Tensor | Sequence[int] | None = None,
    backend: str = "auto",
    hint: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Search, for each query, the k keys of its graph with the largest inner product.

    The result is exact and the same bits from every backend and device: the score of a pair is the
    float64 sum, in index order, of its exact products, rounded once to float32; scores descend and
    equal ones come by lower index. Not differentiable; :func:`kmip_data.models.attention.kmip.kmip_attention`
    differentiates through the chosen pairs.

    Parameters
    ----------
    queries
        (H, N, d) float16, bfloat16, float32 or float64; half precision is widened to float32, which
        is exact. Float64 rows are for checking gradients: only ``dense`` takes them, products are
        rounded, and the scores stay float64.
    keys
        (H, M, d), same dtype and device.
    k
        At least 1; may exceed the number of keys.
    query_ptr, key_ptr
        (G + 1) integers: graph g has the rows ``ptr[g]:ptr[g + 1]``, and no query sees another
        graph's keys. ``key_ptr`` defaults to ``query_ptr`` when N = M; both absent: one graph.
        Graphs may be empty.
    backend
        ``auto`` or a name that :func:`kmip_data.models.search.registry.backend_status` lists.
    hint
        (H, N, h) integers: rows of ``keys`` that are likely among the best, such as the indices of the
        layer or the step before. They set where the search begins and never its result; negative
        entries, repeated ones and those of other graphs are passed over, and so is the whole hint by a
        backend that has no use for it.

    Returns
    -------
    scores : Tensor
        (H, N, k) float32 (float64 for float64 input).
    indices : Tensor
        (H, N, k) int64, row numbers of ``keys`` (of the whole ragged tensor). Where a graph has
        fewer than k keys the slots left over hold −1, with score −inf.

    Raises
    ------
    UsageError
        A ``ValueError`` that names the argument, what was expected and what came. NaN and infinity that
        the backend ``cuda`` finds are raised by the next search on that device: asking would wait for it.
    OutOfResources
        Memory ran out; it says how much was needed.
    """
    return ranked(check_problem(queries, keys, k, query_ptr, key_ptr, hint), backend)


@torch.no_grad()
def ranked(problem: SearchProblem, backend: str) -> tuple[Tensor, Tensor]:
    """:func:`topk_inner_product` of a checked problem."""
    # Autocast would turn the filters' products into half precision, below their proven margin.
    kind = problem.device.type
    with torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext():
        try:
            module = choose(problem, backend)
            if not getattr(module, "CHECKS_VALUES", False):
                check_finite(problem)
            if not getattr(module, "READS_STARTS", False):
                problem = problem.read()
            found: tuple[Tensor, Tensor] = module.search(problem)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            raise out_of_memory(problem, error) from error
    return found
