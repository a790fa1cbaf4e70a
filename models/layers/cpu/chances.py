"""Dropout on a CPU: the mask of ``torch.nn.functional.dropout``, drawn several times as fast.

PyTorch draws one number at a time from its Mersenne Twister (64 bits for each element) and saves a
float32 mask. Compiled code here draws the same numbers a block at a time from the state of the same
generator, leaves the state as PyTorch would, and saves a boolean mask. PyTorch with MKL on an Intel
processor draws other numbers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from kmip_data.arrays import F32, U8, U32, Bools
from kmip_data.runtime.threads import for_ranges, njit_nogil

#: 32-bit words of the generator's state; each is drawn once before all are renewed.
WORDS = 624
#: Index of ``left`` in PyTorch's 5,056 bytes of state as int32.
LEFT = 2
#: Indices of ``next`` and of the first word, as 64-bit numbers.
NEXT = 2
FIRST = 3
#: Elements that are worth handing to a thread: 430,000 take 0.2 ms on two, 0.1 ms on one.
GRAIN = 1 << 20

U64 = NDArray[np.uint64]


def dropout(x: Tensor, p: float) -> Tensor:
    """Set elements of ``x`` to zero with probability ``p`` and multiply the others by 1 / (1 - p)."""
    return _Dropout.apply(x, p)  # type: ignore[no-any-return, no-untyped-call]


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        mask = torch.empty(x.shape, dtype=torch.bool)
        draw_chances(mask, 1 - p)
        ctx.save_for_backward(mask)
        # Rounded as PyTorch does it: a quotient of float32 numbers.
        ctx.scale = np.float32(1) / np.float32(1 - p)
        return masked(x, mask, ctx.scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return masked(grad, mask, ctx.scale), None


def draw_chances(mask: Tensor, p: float) -> None:
    """Fill a boolean tensor with True by probability ``p``, from torch's global generator."""
    state = torch.get_rng_state()
    numbers = state.numpy()
    halves = numbers.view(np.int32)
    longs = numbers[: 8 * (FIRST + WORDS)].view(np.uint64)

    words = longs[FIRST:].astype(np.uint32)
    unread = int(halves[LEFT]) - 1
    # A double of 53 bits is less than p where its integer is less than p · 2⁵³, rounded up.
    limit = math.ceil(math.ldexp(p, 53))
    unread = _draw(words, unread, limit, mask.view(-1).numpy())

    halves[LEFT] = unread + 1
    longs[NEXT] = WORDS - unread
    longs[FIRST:] = words
    torch.set_rng_state(state)


def masked(x: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Return ``x`` · ``mask`` · ``scale``, of any shape."""
    x = x.detach().contiguous()
    out = torch.empty_like(x)
    values = x.view(-1).numpy()
    bits = mask.view(-1).view(torch.uint8).numpy()
    results = out.view(-1).numpy()

    def work(start: int, stop: int) -> None:
        _mask(values[start:stop], bits[start:stop], scale, results[start:stop])

    for_ranges(work, len(results), grain=GRAIN)
    return out


@njit_nogil()
def _mask(x: F32, mask: U8, scale: float, out: F32) -> None:
    for i in range(len(out)):
        # A product with 0 is NaN where x is not finite, as in PyTorch.
        factor = np.float32(mask[i]) * scale
        out[i] = x[i] * factor


@njit_nogil()
def _twist(words: U32) -> None:
    """Renew all words (Matsumoto and Nishimura's MT19937)."""
    # Two loops and a last word, so that no index wraps: a processor takes 16 words at a time.
    for i in range(227):
        mixed = _mixed(words[i], words[i + 1])
        words[i] = mixed ^ words[i + 397]
    for i in range(227, WORDS - 1):
        mixed = _mixed(words[i], words[i + 1])
        words[i] = mixed ^ words[i - 227]
    last = WORDS - 1
    words[last] = _mixed(words[last], words[0]) ^ words[396]


@njit_nogil(inline="always")
def _mixed(word: np.uint32, following: np.uint32) -> np.uint32:
    highest = word & np.uint32(0x80000000)
    mixed = highest | (following & np.uint32(0x7FFFFFFF))
    twist = (following & np.uint32(1)) * np.uint32(0x9908B0DF)
    return np.uint32((mixed >> np.uint32(1)) ^ twist)


@njit_nogil()
def _temper(words: U32, out: U32) -> None:
    for i in range(len(words)):
        y = words[i]
        y = np.uint32(y ^ (y >> np.uint32(11)))
        y = np.uint32(y ^ ((y << np.uint32(7)) & np.uint32(0x9D2C5680)))
        y = np.uint32(y ^ ((y << np.uint32(15)) & np.uint32(0xEFC60000)))
        out[i] = np.uint32(y ^ (y >> np.uint32(18)))


@njit_nogil()
def _compare(numbers: U64, limit: np.uint64, mask: Bools) -> None:
    """Compare the low 53 bits of numbers whose halves are swapped."""
    for i in range(len(mask)):
        number = (numbers[i] << np.uint64(32)) | (numbers[i] >> np.uint64(32))
        mask[i] = (number & np.uint64(2**53 - 1)) < limit


@njit_nogil()
def _draw(words: U32, unread: int, limit: int, mask: Bools) -> int:
    """Draw two words for each element of ``mask``; return the number of unread ``words``."""
    tempered = np.empty(WORDS + 2, np.uint32)
    below = np.uint64(limit)
    carried = 0  # 1: the first half of an element was the last word of a block
    done = 0
    while done < len(mask):
        # 1. Renew the block when it is used up.
        if unread == 0:
            _twist(words)
            unread = WORDS

        # 2. Temper what is left of it, or as much as the mask still needs.
        count = min(unread, 2 * (len(mask) - done) - carried)
        begin = WORDS - unread
        end = carried + count
        _temper(words[begin : begin + count], tempered[carried:end])
        unread -= count

        # 3. Compare whole pairs; an odd word waits for the next block.
        pairs = end // 2
        _compare(tempered.view(np.uint64)[:pairs], below, mask[done : done + pairs])
        done += pairs
        carried = end % 2
        if carried:
            tempered[0] = tempered[2 * pairs]
    return unread
