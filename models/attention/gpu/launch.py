"""Attention to chosen keys by Triton kernels, with the interface of ``cpu_kernels``, for float32.

Every sum has a fixed order, so outputs and gradients are bitwise reproducible. The host never waits
for the GPU.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from kmip_data.models.attention.gpu.kernels import (
    add_segments,
    attend_rows,
    attend_rows_backward,
    sum_segments,
)
from kmip_data.models.search.gpu.launch import not_finite_flag

SEGMENT = 512  #: most pairs summed by one program; several programs share popular keys
_QUERIES_PER_PROGRAM = 16  # at most
_CHANNELS_PER_STEP = 16  # at most
_GATHERED_PER_STEP = 2048  # gathered numbers, at most
_PARALLEL_PAIRS = 16  # pairs added in parallel before the reduction
# Products and sums are not contracted, so that the interpreter and the GPU agree.
_OPTIONS = {"enable_fp_fusion": False}


def forward(
    values: Tensor,
    scores: Tensor,
    indices: Tensor,
    dropout_mask: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Like :func:`kmip_data.models.attention.cpu_kernels.forward`; ``dropout_mask`` is (H, N, k) or None.

    If a row's largest score overflows, the next search or attention on the device raises the error.
    """
    heads, rows, k = indices.shape
    out = values.new_empty(heads, rows, values.shape[2])
    weights = values.new_empty(indices.shape)
    if indices.numel():
        sizes = _tile_sizes(k, values.shape[2])
        grid = (triton.cdiv(rows, sizes["BQ"]), heads)
        with torch.cuda.device_of(values):  # type: ignore[no-untyped-call]
            attend_rows[grid](
                scores.contiguous(),
                indices.contiguous(),
                _mask_as_bytes(dropout_mask),
                *_rows_with_strides(values),
                weights,
                out,
                not_finite_flag(values.device),
                rows,
                k,
                values.shape[2],
                scale,
                **sizes,
            )
    return out, weights


def backward(
    grad: Tensor,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    indices: Tensor,
    weights: Tensor,
    dropout_mask: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Like :func:`kmip_data.models.attention.cpu_kernels.backward`; ``dropout_mask`` is (H, N, k) or None."""
    heads, rows, k = indices.shape
    _, num_keys, dim = keys.shape
    width = values.shape[2]
    if not indices.numel() or not num_keys:
        return (
            queries.new_zeros(queries.shape),
            keys.new_zeros(keys.shape),
            values.new_zeros(values.shape),
        )

    indices = indices.contiguous()
    grad_scores = torch.empty_like(weights)
    grad_queries = queries.new_empty(heads, rows, dim)
    sizes = _tile_sizes(k, max(dim, width))
    grid = (triton.cdiv(rows, sizes["BQ"]), heads)
    with torch.cuda.device_of(values):  # type: ignore[no-untyped-call]
        attend_rows_backward[grid](
            *_rows_with_strides(grad),
            *_rows_with_strides(keys),
            *_rows_with_strides(values),
            indices,
            weights,
            _mask_as_bytes(dropout_mask),
            grad_scores,
            grad_queries,
            rows,
            k,
            dim,
            width,
            scale,
            **sizes,
        )
        pairs = sort_pairs_by_key(indices, num_keys, SEGMENT)
        grad_keys, grad_values = _key_gradients(
            pairs, num_keys, grad_scores, queries, weights, dropout_mask, grad
        )
    return grad_queries, grad_keys, grad_values


def sort_pairs_by_key(indices: Tensor, keys: int, segment: int) -> tuple[Tensor, Tensor, Tensor]:
    """Sort the P pairs of contiguous indices (H, N, k), −1: no key, by key; each head has M ``keys``.

    Returns the pairs (P,) sorted by key, then by pair, with pairs without a key last; the key (H · M:
    none) at each multiple of ``segment`` in that order; and the start of each key's list, followed by
    the end of the last list (H · M + 1,).
    """
    all_keys = len(indices) * keys
    # A radix sort of 32-bit numbers takes half the passes.
    dtype = torch.int32 if all_keys < 2**31 - 1 else torch.int64
    number = torch.arange(all_keys + 1, dtype=dtype, device=indices.device)
    first_of_head = number[:-1:keys, None, None]
    key = torch.where(indices < 0, all_keys, indices + first_of_head)
    key, order = key.to(dtype).flatten().sort(stable=True)
    return order, key[::segment].contiguous(), torch.searchsorted(key, number)


def _key_gradients(
    pairs: tuple[Tensor, Tensor, Tensor],
    keys: int,
    grad_scores: Tensor,
    queries: Tensor,
    weights: Tensor,
    dropout_mask: Tensor | None,
    grad: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return each key's Σ grad_score · query and Σ weight · gradient: (H, M, d) and (H, M, v)."""
    heads, rows, k = grad_scores.shape
    dim = queries.shape[2]
    width = grad.shape[2]
    all_keys = heads * keys
    later = (grad_scores.numel() - 1) // SEGMENT
    grad_keys = queries.new_empty(all_keys + later, dim)
    grad_values = grad.new_empty(all_keys + later, width)

    # 1. Sum every segment: the first segment of each list, then the segments that start at a cut.
    sizes = _segment_sizes(max(dim, width))
    blocks = triton.cdiv(max(dim, width), sizes["BC"])
    sum_segments[(all_keys + later, blocks)](
        *pairs,
        grad_scores,
        *_rows_with_strides(queries),
        weights,
        _mask_as_bytes(dropout_mask),
        *_rows_with_strides(grad),
        grad_keys,
        grad_values,
        rows,
        k,
        keys,
        all_keys,
        dim,
        width,
        **sizes,
    )

    # 2. Add later segments of a list to its first segment, in a fixed order.
    if later:
        _, cuts, start = pairs
        for sums in (grad_keys, grad_values):
            add_segments[(later, blocks)](cuts, start, sums, all_keys, sums.shape[1], **sizes)
    return (
        grad_keys[:all_keys].view(heads, keys, dim),
        grad_values[:all_keys].view(heads, keys, width),
    )


def _tile_sizes(k: int, width: int) -> dict[str, int]:
    """Return compile-time sizes for k keys per query and ``width`` channels per key."""
    # A program holds rows · slots · channels gathered numbers in registers. The softmax needs all
    # slots at once; channels come next, and rows take the rest.
    slots = max(2, triton.next_power_of_2(k))
    channels = min(
        _CHANNELS_PER_STEP, triton.next_power_of_2(width), max(4, _GATHERED_PER_STEP // slots)
    )
    rows = max(1, min(_QUERIES_PER_PROGRAM, _GATHERED_PER_STEP // (slots * channels)))
    return {"BQ": rows, "BK": slots, "BC": channels, "num_warps": 4, **_OPTIONS}


def _segment_sizes(width: int) -> dict[str, int]:
    """Return compile-time sizes for sums of rows with at most ``width`` channels."""
    channels = min(32, triton.next_power_of_2(width))
    return {"SEGMENT": SEGMENT, "BP": _PARALLEL_PAIRS, "BC": channels, "num_warps": 1, **_OPTIONS}


def _rows_with_strides(tensor: Tensor) -> tuple[Tensor, int, int]:
    """Return (H, rows, c) with contiguous channels, and its strides between heads and between rows."""
    if tensor.stride(2) != 1:
        tensor = tensor.contiguous()
    return tensor, tensor.stride(0), tensor.stride(1)


def _mask_as_bytes(dropout_mask: Tensor | None) -> Tensor | None:
    return None if dropout_mask is None else dropout_mask.contiguous().view(torch.uint8)
