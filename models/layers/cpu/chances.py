"""Dropout on a CPU: the chances of ``torch.nn.functional.dropout``, drawn several times as fast.

PyTorch draws one number at a time from its Mersenne Twister (64 bits for each element) and keeps a float32
mask. Here compiled code draws the same numbers a block at a time from the state of the same generator, and
leaves it where PyTorch would; a boolean mask is kept. PyTorch with MKL on an Intel processor has other ones.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from kmip_data.arrays import F32, U8
from kmip_data.runtime.threads import for_ranges, njit_nogil

WORDS = 624  #: of the generator's state, each drawn once before all are made anew
#: Positions in PyTorch's 5,056 bytes of state: ``left`` as int32; ``next`` and the words as 64-bit numbers.
LEFT = 2
NEXT = 2
FIRST = 3
GRAIN = 1 << 16  #: elements that are worth handing to a thread

Bool = NDArray[np.bool_]
U32 = NDArray[np.uint32]
U64 = NDArray[np.uint64]


def dropout(x: Tensor, p: float) -> Tensor:
    """Set elements of ``x`` to zero with probability ``p`` and multiply the others by 1 / (1 - p)."""
    return _Dropout.apply(x, p)  # type: ignore[no-any-return, no-untyped-call]


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        kept = torch.empty(x.shape, dtype=torch.bool)
        draw_chances(kept, 1 - p)
        ctx.save_for_backward(kept)
        # As PyTorch rounds it: a float32 one, divided.
        ctx.scale = np.float32(1) / np.float32(1 - p)
        return _masked(x, kept, ctx.scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (kept,) = ctx.saved_tensors
        return _masked(grad, kept, ctx.scale), None


def draw_chances(kept: Tensor, p: float) -> None:
    """Fill a boolean tensor with True by probability ``p``, from torch's global generator."""
    state = torch.get_rng_state()
    numbers = state.numpy()
    halves = numbers.view(np.int32)
    longs = numbers[: 8 * (FIRST + WORDS)].view(np.uint64)

    words = longs[FIRST:].astype(np.uint32)
    unread = int(halves[LEFT]) - 1
    # A double of 53 bits is less than p where its whole number is less than p · 2⁵³, rounded up.
    limit = math.ceil(math.ldexp(p, 53))
    unread = _draw(words, unread, limit, kept.view(-1).numpy())

    halves[LEFT] = unread + 1
    longs[NEXT] = WORDS - unread
    longs[FIRST:] = words
    torch.set_rng_state(state)


def _masked(x: Tensor, kept: Tensor, scale: float) -> Tensor:
    x = x.detach().contiguous()
    out = torch.empty_like(x)
    given = x.view(-1).numpy()
    mask = kept.view(-1).view(torch.uint8).numpy()
    new = out.view(-1).numpy()
    for_ranges(lambda a, b: _mask(given[a:b], mask[a:b], scale, new[a:b]), len(new), grain=GRAIN)
    return out


@njit_nogil()
def _mask(x: F32, kept: U8, scale: float, out: F32) -> None:
    for i in range(len(out)):
        # A product with 0 is NaN where x is not finite, as in PyTorch.
        out[i] = x[i] * (np.float32(kept[i]) * scale)


@njit_nogil()
def _twist(words: U32) -> None:
    """Make all words anew (Matsumoto and Nishimura's MT19937)."""
    # Three loops without a wrap of the index, which a processor runs 16 words at a time.
    for i in range(227):
        words[i] = _mixed(words[i], words[i + 1]) ^ words[i + 397]
    for i in range(227, WORDS - 1):
        words[i] = _mixed(words[i], words[i + 1]) ^ words[i - 227]
    words[WORDS - 1] = _mixed(words[WORDS - 1], words[0]) ^ words[396]


@njit_nogil(inline="always")
def _mixed(word: np.uint32, following: np.uint32) -> np.uint32:
    mixed = (word & np.uint32(0x80000000)) | (following & np.uint32(0x7FFFFFFF))
    return np.uint32((mixed >> np.uint32(1)) ^ ((following & np.uint32(1)) * np.uint32(0x9908B0DF)))


@njit_nogil()
def _temper(words: U32, out: U32) -> None:
    for i in range(len(words)):
        y = words[i]
        y = np.uint32(y ^ (y >> np.uint32(11)))
        y = np.uint32(y ^ ((y << np.uint32(7)) & np.uint32(0x9D2C5680)))
        y = np.uint32(y ^ ((y << np.uint32(15)) & np.uint32(0xEFC60000)))
        out[i] = np.uint32(y ^ (y >> np.uint32(18)))


@njit_nogil()
def _compare(numbers: U64, limit: np.uint64, kept: Bool) -> None:
    """Compare the low 53 bits of numbers whose halves are the wrong way round."""
    for i in range(len(kept)):
        number = (numbers[i] << np.uint64(32)) | (numbers[i] >> np.uint64(32))
        kept[i] = (number & np.uint64(2**53 - 1)) < limit


@njit_nogil()
def _draw(words: U32, unread: int, limit: int, kept: Bool) -> int:
    """Draw two words for each element of ``kept``; return how many of ``words`` are not read yet."""
    tempered = np.empty(WORDS + 2, np.uint32)
    below = np.uint64(limit)
    held = 0  # 1: the first half of an element was the last word of a block
    done = 0
    while done < len(kept):
        if unread == 0:
            _twist(words)
            unread = WORDS
        count = min(unread, 2 * (len(kept) - done) - held)
        begin = WORDS - unread
        _temper(words[begin : begin + count], tempered[held : held + count])
        unread -= count

        pairs = (held + count) // 2
        _compare(tempered.view(np.uint64)[:pairs], below, kept[done : done + pairs])
        done += pairs
        held = (held + count) % 2
        if held:
            tempered[0] = tempered[2 * pairs]
    return unread
