"""Dropout on a CPU in one pass, by a hash of seed and position, so that no mask is saved.

PyTorch draws a float64 number for each element on one core, and saves a float32 mask.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from kmip_data.arrays import F32
from kmip_data.runtime.parallel import njit_nogil, run_in_ranges

MIN_VALUES_PER_THREAD = 1 << 20  #: fewest elements per thread


def dropout(x: Tensor, p: float) -> Tensor:
    """Set elements of float32 ``x`` (N, d) to zero with probability ``p``, and scale up the others."""
    return _Dropout.apply(x, p, draw_seed())  # type: ignore[no-any-return, no-untyped-call]


def draw_seed() -> int:
    """Draw a 64-bit seed from torch's global generator."""
    return int(torch.empty((), dtype=torch.int64).random_())


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float, seed: int) -> Tensor:
        ctx.p = p
        ctx.seed = seed
        return apply_dropout_mask(x, p, seed)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return apply_dropout_mask(grad, ctx.p, ctx.seed), None, None


def apply_dropout_mask(x: Tensor, p: float, seed: int, first: int = 0) -> Tensor:
    """Apply the dropout mask of ``seed``, from its element ``first`` on, to x of any shape."""
    x = x.detach().contiguous()
    out = torch.empty_like(x)
    values = x.view(-1).numpy()
    results = out.view(-1).numpy()
    limit = min(round(p * 2**32), 2**32 - 1)
    scale = np.float32(1 / (1 - p))

    def work(start: int, stop: int) -> None:
        _drop(values[start:stop], seed, first + start, limit, scale, results[start:stop])

    run_in_ranges(work, len(results), grain=MIN_VALUES_PER_THREAD)
    return out


@njit_nogil()
def _drop(x: F32, seed: int, first: int, limit: int, scale: np.float32, out: F32) -> None:
    """Drop the elements whose hash (Wellons' "triple32", mixed with the seed) is below ``limit``."""
    low = np.uint32(seed)
    high = np.uint32(seed >> 32)
    least = np.uint32(limit)
    for i in range(len(out)):
        h = np.uint32(first + i) ^ low
        h = np.uint32((h ^ (h >> np.uint32(17))) * np.uint32(0xED5AD4BB))
        h = np.uint32(h ^ high)
        h = np.uint32((h ^ (h >> np.uint32(11))) * np.uint32(0xAC4C1B51))
        h = np.uint32((h ^ (h >> np.uint32(15))) * np.uint32(0x31848BAB))
        h = np.uint32(h ^ (h >> np.uint32(14)))
        out[i] = x[i] * scale if h >= least else np.float32(0)
