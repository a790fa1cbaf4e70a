"""Attention to chosen keys as custom PyTorch operators, which compiled graphs can contain.

``torch.compile`` sees opaque operators with known shapes and a gradient, because their loops depend
on the data. They run compiled kernels on the CPU, Triton kernels on CUDA, and torch operations
elsewhere.
"""

# ruff: noqa: ARG001 -- all functions of an operator share its signature
from __future__ import annotations

from types import ModuleType
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack
from torch.autograd import forward_ad

from kmip_data.errors import Setting, UsageError
from kmip_data.graphs.knn_and_radius_graphs import pointers_from_numbers
from kmip_data.models.attention import torch_kernels
from kmip_data.models.kernel_availability import can_use_triton_kernels
from kmip_data.models.search.problem import check_largest_scores

MAX_TRITON_K = 1024  #: largest k of the Triton kernels, as one program holds all keys of a query


@torch.library.custom_op("kmip_data::pointers", mutates_args=())
def pointers_from_graph_index(numbers: Tensor, rows: int, allow_pointers: bool) -> Tensor:
    """Return pointers (G + 1) int64 on the CPU from sorted graph indices (``rows``,).

    ``allow_pointers`` returns numbers from 0 to ``rows`` unchanged, as they are pointers already.
    """
    numbers = numbers.cpu()
    if allow_pointers and len(numbers) and int(numbers[0]) == 0 and int(numbers[-1]) == rows:
        return numbers.to(torch.int64, copy=True)
    return pointers_from_numbers(numbers, rows)


@pointers_from_graph_index.register_fake
def _(numbers: Tensor, _rows: int, _allow_pointers: bool) -> Tensor:
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
    dropout_mask: Tensor | None,
    kept_scale: float,
) -> tuple[Tensor, Tensor]:
    """Return the softmax-weighted sum of the chosen values (H, N, v), in their dtype, and the weights.

    Queries are (H, N, d), keys (H, M, d), values (H, M, v). Scores and indices (H, N, k) are inner
    products and rows of ``keys`` (int32 or int64) from the search; index −1: no key. Scores are
    multiplied by ``scale``, and differentiated as queries · keys. ``dropout_mask`` (H, N, k) bool
    selects the kept weights, which are multiplied by ``kept_scale``; None: no dropout. Rows without
    keys are zero. The returned weights (H, N, k) precede dropout and have no gradient.
    """
    dtype = _accumulation_dtype(values.dtype)
    scores = scores.to(dtype)
    inputs = values.to(dtype), scores, indices, dropout_mask, scale
    out, weights = _run_kernel("forward", values, indices, inputs)
    if dropout_mask is not None:
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
def attend_backward(  # noqa: PLR0913, PLR0917 -- a custom operator has no keyword arguments
    grad: Tensor,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    indices: Tensor,
    weights: Tensor,
    scale: float,
    dropout_mask: Tensor | None,
    kept_scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of queries, keys and values in :func:`attend`, from ``grad`` (H, N, v)."""
    grad = grad if dropout_mask is None else grad * kept_scale
    rows = [tensor.to(weights.dtype) for tensor in (grad, queries, keys, values)]
    grads = _run_kernel("backward", values, indices, (*rows, indices, weights, dropout_mask, scale))
    grad_queries, grad_keys, grad_values = grads
    return (
        grad_queries.to(queries.dtype),
        grad_keys.to(keys.dtype),
        grad_values.to(values.dtype),
    )


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
    # Save one weight and one index per pair. The backward pass needs no scores or gathered rows.
    queries, keys, values, _, indices, scale, dropout_mask, kept_scale = inputs
    _, weights = output
    ctx.mark_non_differentiable(weights)
    ctx.save_for_backward(queries, keys, values, indices, weights, dropout_mask)
    ctx.scale = scale
    ctx.kept_scale = kept_scale


def _differentiate(ctx: Any, grad: Tensor, _: object) -> tuple[Tensor | None, ...]:
    *saved, dropout_mask = ctx.saved_tensors
    grads = attend_backward(grad, *saved, ctx.scale, dropout_mask, ctx.kept_scale)
    return *grads, None, None, None, None, None  # no gradients of scores, indices and options


attend.register_autograd(_differentiate, setup_context=_save_for_backward)


def _refuse_second_derivative(*_: object) -> NoReturn:
    raise UsageError(
        "k-MIP attention has no second derivative by a backward pass (create_graph=True).",
        steps=[
            "PyTorch differentiates the reference any number of times",
            Setting(backend="reference"),
        ],
    )


attend_backward.register_autograd(_refuse_second_derivative)


def is_in_func_transform(*tensors: Tensor) -> bool:
    """True inside ``torch.func`` (grad, vjp, jvp, vmap), or if a tensor has a forward-mode tangent.

    Custom operators support neither.
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
    """Call ``forward`` or ``backward`` of the kernels that support the values."""
    if not _uses_cpu_kernels(values):
        kernels = triton_or_torch_kernels(values, indices.shape[2])
        return getattr(kernels, name)(*inputs)

    from kmip_data.models.attention import cpu_kernels

    if name == "forward":
        check_largest_scores(inputs[1], indices)
    arrays = map(_contiguous_array, inputs)
    outputs = getattr(cpu_kernels, name)(*arrays)
    return map(torch.from_numpy, outputs)


def triton_or_torch_kernels(values: Tensor, k: int = 1) -> ModuleType:
    """Return the module with the kernels for k values (H, M, v) on a device other than the CPU.

    These are Triton kernels in float32 if they run, else torch operations.
    """
    fits_triton = _accumulation_dtype(values.dtype) == torch.float32 and k <= MAX_TRITON_K
    if not fits_triton or not can_use_triton_kernels("attention", values.device):
        return torch_kernels
    from kmip_data.models.attention.gpu import launch

    return launch


def _accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)  # compute half precision in float32


def _uses_cpu_kernels(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu"


def _contiguous_array(value: object) -> object:
    """Convert a tensor to a contiguous NumPy array, and a missing mask to an empty one."""
    if value is None:  # an array, as compiled code has a fixed signature
        value = torch.empty((0, 0, 0), dtype=torch.bool)
    return value.detach().contiguous().numpy() if isinstance(value, Tensor) else value
