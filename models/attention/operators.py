"""Attention over chosen pairs as PyTorch operators, so that compiled graphs may hold them.

``torch.compile`` sees opaque operators with known shapes and a gradient, as their loops depend on
the data. They run compiled kernels on the CPU, Triton kernels on CUDA, and torch operations
elsewhere.
"""

# ruff: noqa: ARG001 -- the functions of an operator share one signature
from __future__ import annotations

from types import ModuleType
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack
from torch.autograd import forward_ad

from kmip_data.errors import UsageError
from kmip_data.graphs.tensor_graphs import pointers_from_numbers
from kmip_data.models.attention import gathered_rows
from kmip_data.models.kernels import kernels_run
from kmip_data.models.search.problem import check_best

MAX_K = 1024  #: a Triton program holds all keys of a query


@torch.library.custom_op("kmip_data::pointers", mutates_args=())
def pointers_of_graph_numbers(numbers: Tensor, rows: int, either: bool) -> Tensor:
    """Return pointers (G + 1) int64 on the CPU from sorted graph numbers (``rows``,).

    ``either``: numbers from 0 to ``rows`` are taken as pointers already.
    """
    numbers = numbers.cpu()
    if either and len(numbers) and int(numbers[0]) == 0 and int(numbers[-1]) == rows:
        return numbers.to(torch.int64, copy=True)
    return pointers_from_numbers(numbers, rows)


@pointers_of_graph_numbers.register_fake
def _(numbers: Tensor, _rows: int, _either: bool) -> Tensor:
    count = torch.library.get_ctx().new_dynamic_size()
    return numbers.new_empty(count, dtype=torch.int64, device="cpu")


@torch.library.custom_op("kmip_data::attend", mutates_args=())
def attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    scores: Tensor,
    indices: Tensor,
    scale: float,
    keep: Tensor | None,
    kept_scale: float,
) -> tuple[Tensor, Tensor]:
    """Return the softmax-weighted sum of the chosen values (H, N, v), in the dtype of ``values``, and weights.

    Queries are (H, N, d), keys (H, M, d), values (H, M, v). Scores and indices (H, N, k) are inner
    products and rows of ``keys`` (int32 or int64), as the search gives them; index −1: no key.
    Scores are used as given, times ``scale``, and differentiated as queries · keys. ``keep`` (H, N,
    k) bool marks the weights that dropout keeps, scaled by ``kept_scale``; None: all. Rows without
    keys are zero. The returned weights (H, N, k) are those before dropout; no gradient flows
    through them.
    """
    work = _accumulation_dtype(values.dtype)
    scores = scores.to(work)
    inputs = values.to(work), scores, indices, keep, scale
    out, weights = _run_kernel("forward", values, indices, inputs)
    if keep is not None:
        out *= kept_scale
    return out.to(values.dtype), weights


@attend.register_fake
def _(
    _queries: Tensor,
    _keys: Tensor,
    values: Tensor,
    _scores: Tensor,
    indices: Tensor,
    *_: object,
) -> tuple[Tensor, Tensor]:
    out = values.new_empty((*indices.shape[:2], values.shape[2]))
    return out, values.new_empty(indices.shape, dtype=_accumulation_dtype(values.dtype))


@torch.library.custom_op("kmip_data::attend_backward", mutates_args=())
def attend_backward(  # noqa: PLR0913, PLR0917 -- what a custom operator saves
    grad: Tensor,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    indices: Tensor,
    weights: Tensor,
    scale: float,
    keep: Tensor | None,
    kept_scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of :func:`attend` in queries, keys and values, from ``grad`` (H, N, v)."""
    grad = grad if keep is None else grad * kept_scale
    rows = [tensor.to(weights.dtype) for tensor in (grad, queries, keys, values)]
    of_queries, of_keys, of_values = _run_kernel(
        "backward", values, indices, (*rows, indices, weights, keep, scale)
    )
    return of_queries.to(queries.dtype), of_keys.to(keys.dtype), of_values.to(values.dtype)


@attend_backward.register_fake
def _(
    _grad: Tensor,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *_: object,
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        queries.new_empty(queries.shape),
        keys.new_empty(keys.shape),
        values.new_empty(values.shape),
    )


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    # Save one weight and one index per pair, but no scores and no gathered rows: given the weights,
    # the backward pass needs no softmax.
    queries, keys, values, _, indices, scale, keep, kept_scale = inputs
    _, weights = output
    ctx.mark_non_differentiable(weights)
    ctx.save_for_backward(queries, keys, values, indices, weights, keep)
    ctx.scale = scale
    ctx.kept_scale = kept_scale


def _differentiate(ctx: Any, grad: Tensor, _: object) -> tuple[Tensor | None, ...]:
    *saved, keep = ctx.saved_tensors
    grads = attend_backward(grad, *saved, ctx.scale, keep, ctx.kept_scale)
    return *grads, None, None, None, None, None  # gradients of scores, indices and options


attend.register_autograd(_differentiate, setup_context=_save_for_backward)


def _refuse_second_derivative(*_: object) -> NoReturn:
    raise UsageError(
        "k-MIP attention has no second derivative by a backward pass (create_graph=True).",
        next="backend='reference', which PyTorch differentiates any number of times",
    )


attend_backward.register_autograd(_refuse_second_derivative)


def in_func_transform(*tensors: Tensor) -> bool:
    """True inside ``torch.func`` (grad, vjp, jvp, vmap), or if a tensor carries a forward-mode tangent.

    Custom operators have no rule for either.
    """
    if torch.compiler.is_compiling():
        return False
    if peek_interpreter_stack() is not None:
        return True
    duals = map(forward_ad.unpack_dual, tensors)
    return any(dual.tangent is not None for dual in duals)


def _run_kernel(
    name: str,
    values: Tensor,
    indices: Tensor,
    inputs: tuple[Any, ...],
) -> Any:
    """Call ``forward`` or ``backward`` of the kernels that attend to such values."""
    if not _takes_compiled_kernels(values):
        kernels = kernels_for(values, indices.shape[2])
        return getattr(kernels, name)(*inputs)

    from kmip_data.models.attention import cpu_kernels

    if name == "forward":
        check_best(inputs[1], indices)
    arrays = map(_contiguous_array, inputs)
    outputs = getattr(cpu_kernels, name)(*arrays)
    return map(torch.from_numpy, outputs)


def kernels_for(values: Tensor, k: int = 1) -> ModuleType:
    """Return the module whose ``forward`` and ``backward`` attend to k such values (H, M, v) on another device.

    Triton's kernels in float32 where they run, else torch operations.
    """
    fits = _accumulation_dtype(values.dtype) == torch.float32 and k <= MAX_K
    if not fits or not kernels_run("attention", values.device):
        return gathered_rows
    from kmip_data.models.attention.gpu import launch

    return launch


def _accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)  # compute half precision in float32


def _takes_compiled_kernels(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu"


def _contiguous_array(value: object) -> object:
    """Return a contiguous NumPy view; a missing mask has size 0."""
    if value is None:  # an empty mask keeps the signature of the compiled code
        value = torch.empty((0, 0, 0), dtype=torch.bool)
    return value.detach().contiguous().numpy() if isinstance(value, Tensor) else value
