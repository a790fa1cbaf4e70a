"""Candidates of a block of queries: collected by a float32 filter, then ranked by the rule.

The filter's products err by less than a proven bound, so a key whose product lies further below the
k-th best product cannot be among the k best by the rule (ADR 0100). Arrays of a block are accessed
through pointers (:func:`kmip_data.models.search.cpu.simd.pointer_to_elements`).

The k-th largest number is found by bisection: counting the numbers that reach a trial value takes
one comparison per 16 numbers and no branch, which beats partitioning (measured: ADR 0100). A result
is packed into one int64, score bits above the inverted row, whose order is the rule's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import carray  # type: ignore[attr-defined] # exported, not declared

from kmip_data.arrays import F32
from kmip_data.models.search.cpu import simd
from kmip_data.models.search.cpu.simd import (
    Pointer,
    Register,
    at_least,
    count_bits,
    load_lanes,
    pointer_to_elements,
    splat_lanes,
    store_lanes,
)
from kmip_data.models.search.cpu.sorted_keys import ByLength
from kmip_data.runtime.parallel import njit_nogil

OUT = np.float32(np.inf)  #: floor of an abandoned query, which nothing reaches
LAST = 0xFFFFFFFF
_FLIP = 0x7FFFFFFF
_EMPTY = np.int64(-(2**63))
#: Candidates above which sorting beats counting ranks: k = 5,000 is 3.4 times as fast.
_MIN_SORTED_CANDIDATES = 2_000


@njit_nogil(error_model="numpy")
def integer_of_float(value: np.float32) -> int:
    """Map a float32 to an integer of the same order (−0 below +0)."""
    bits: int = simd.bits_of_float(value)
    return bits ^ _FLIP if bits < 0 else bits


@njit_nogil(error_model="numpy")
def float_of_integer(rank: int) -> np.float32:
    """Return the float32 for an integer of :func:`integer_of_float`."""
    bits = rank ^ _FLIP if rank < 0 else rank
    number: np.float32 = simd.float_of_bits(bits)
    return number


@njit_nogil(error_model="numpy")
def top_k_threshold(
    values: Pointer,
    start: int,
    stop: int,
    k: int,
    spare: int,
) -> np.float32:
    """Return a number that at least k and at most k + ``spare`` of some float32 numbers reach.

    The numbers, from ``start`` to ``stop``, are more than k, and none is NaN; the 16 entries behind
    them may be overwritten. Where more than k + ``spare`` reach the k-th largest, it is that one.
    """
    # NaN after the last number reaches nothing.
    store_lanes(values, stop, splat_lanes(np.float32(np.nan)))
    low = integer_of_float(-OUT)
    high = integer_of_float(OUT) + 1
    reach_low = stop - start
    # Bisect the range of bits, which always ends.
    while reach_low > k + spare and high - low > 1:
        middle = (low + high) >> 1
        # Count how many reach the middle: a comparison for 16 numbers, and no branch.
        reach = 0
        limit = splat_lanes(float_of_integer(middle))
        for i in range(start, stop, 16):
            reach += count_bits(at_least(load_lanes(values, i), limit))
        if reach >= k:
            low = middle
            reach_low = reach
        else:
            high = middle
    return float_of_integer(low)


UNIT = 2.0**-24  #: largest relative error of rounding to float32
#: Space, besides 3 k, for candidates that the filter cannot separate from the k-th best.
SPARE_CANDIDATES = 192


class Block(NamedTuple):
    """Pointers to the state of B queries."""

    unit: Pointer  #: (B, d) float32, queries of length 1
    product: Pointer  #: (B, space) float32, products of the candidates
    position: Pointer  #: (B, space) int32, their positions by length
    filled: Pointer  #: (B,) int64, number of candidates
    due: Pointer  #: (B,) int64, number of candidates at which to prune
    floor: Pointer  #: (B,) float32, least product that passes
    limit: Pointer  #: (B,) float32, least length of a key that passes
    slack: Pointer  #: (B,) float32, gap between the k-th best product and the floor
    line: Pointer  #: (16,) float32, scratch
    packed: Pointer  #: (space + 8,) int64, scratch of :func:`write_best`
    k: int
    space: int
    margin: np.float32  #: how far a computed product may exceed a key's length


@njit_nogil(error_model="numpy")
def new_block(rows: int, dim: int, k: int) -> tuple[Block, Any]:
    """Return a block of ``rows`` queries, and its arrays, which must outlive it."""
    space = 3 * k + SPARE_CANDIDATES
    # Zeros: rows without a query reach nothing.
    reals = np.zeros(rows * (dim + space + 3) + 32, np.float32)
    wholes = np.empty(rows * 2, np.int64)
    positions = np.empty(rows * space, np.int32)
    packed = np.empty(space + 8, np.int64)
    state = reals[rows * space + 16 :]
    block = Block(
        unit=pointer_to_elements(state[rows * 3 + 16 :]),
        product=pointer_to_elements(reals),
        position=pointer_to_elements(positions),
        filled=pointer_to_elements(wholes),
        due=pointer_to_elements(wholes[rows:]),
        floor=pointer_to_elements(state),
        limit=pointer_to_elements(state[rows:]),
        slack=pointer_to_elements(state[rows * 2 :]),
        line=pointer_to_elements(state[rows * 3 :]),
        packed=pointer_to_elements(packed),
        k=k,
        space=space,
        margin=np.float32(8 * (dim + 8) * UNIT),
    )
    return block, (reals, wholes, positions, packed)


@njit_nogil(error_model="numpy")
def _rule_slack(length: float, dim: int, scale: float, longest: float) -> float:
    """Bound on the gap between two filter products that the rule may rank in the opposite order (ADR 0100).

    In the filter a query and the longest key have length 1. Rounding both to float32 and summing
    costs a product (d + 2) · 2⁻²⁴ (2 more for good measure); rounding a score of the rule costs
    2⁻²⁴ of it, or half of the least subnormal.
    """
    # 1. Scores may overflow to equal infinities, which no filter can rank: abandon the query.
    if length * longest > 3e38:
        return np.inf
    # 2. E1, the error of a filter product: d roundings of the sum and 2 of the operands, 2 more for
    #    good measure.
    filtered = (dim + 4) * UNIT * 1.1
    # 3. E2, the rounding of a score of the rule, in units of the filter, where |q| = |longest key|
    #    = 1.
    ruled = (1.1 * UNIT * length * longest + 2.0**-148) / (length * scale)
    # 4. k products reach tau, so k scores reach tau - E; a key below tau - 2 E scores less than
    #    each of them.
    return 2.2 * (filtered + ruled)


@njit_nogil(error_model="numpy", forceinline=True)
def set_floor(block: Block, i: int, value: np.float32) -> None:
    """Pass no product below ``value``."""
    block.floor[i] = value
    block.limit[i] = value - block.margin if value > block.margin else -OUT


@njit_nogil(error_model="numpy")
def least_passing_length(block: Block, i: int) -> np.float32:
    """Return the length below which no key passes for any of the four queries from ``i`` on."""
    first = min(block.limit[i], block.limit[i + 1])
    second = min(block.limit[i + 2], block.limit[i + 3])
    return min(first, second)


@njit_nogil(error_model="numpy")
def load_queries(
    block: Block,
    queries: F32,
    first: int,
    count: int,
    sorted_keys: ByLength,
) -> None:
    """Load queries (R, d) from ``first`` on into a block; abandon queries that no filter can rank."""
    dim = queries.shape[1]
    scale = sorted_keys.scale
    longest = sorted_keys.longest
    for i in range(count):
        total = 0.0
        for c in range(dim):
            total += np.float64(queries[first + i, c]) ** 2
        length = np.sqrt(total)
        slack = np.inf
        if length > 0 and scale > 0:
            slack = _rule_slack(length, dim, scale, longest)
        for c in range(dim):
            block.unit[i * dim + c] = queries[first + i, c] / length if length > 0 else 0.0
        block.slack[i] = slack
        block.filled[i] = 0
        block.due[i] = block.k + 1
        # Products lie within ±1: with a slack of 1 or more the filter would exclude almost nothing.
        set_floor(block, i, -OUT if slack < 1 else OUT)
    # Missing queries in the last tile of four pass nothing.
    for i in range(count, (count + 3) & ~3):
        block.filled[i] = 0
        set_floor(block, i, OUT)


@njit_nogil(error_model="numpy")
def prune_candidates(block: Block, i: int, spare: int) -> None:
    """Raise a query's floor to below its k-th best product, and drop the candidates under it.

    The floor may lie up to ``spare`` ranks lower, which saves bisections. If too many candidates
    remain, such as equal ones, the query is abandoned.
    """
    k = block.k
    base = i * block.space
    n = block.filled[i]
    floor = block.floor[i]

    # 1. The floor lies one slack below the k-th best product so far, and only ever rises.
    if n > k:
        kth = top_k_threshold(block.product, base, base + n, k, spare)
        floor = max(floor, kth - block.slack[i])

    # 2. Compact the candidates in place without branches: copy each, and count it if it stays.
    to = base
    for j in range(base, base + n):
        product = block.product[j]
        block.product[to] = product
        block.position[to] = block.position[j]
        to += product >= floor

    # 3. Prune again after 16 + k/2 further candidates (or half as many as there are). Less room than
    #    that, of 3 k + 192 places, means that the filter cannot separate the rest: the query is
    #    searched exactly. It drops its candidates, because leaves that are under way still add to
    #    them, beyond the room of the query and into the next one's.
    n = to - base
    least = 16 + k // 2
    if block.space - n - 32 < least:
        floor = OUT
        n = 0
    room = block.space - n - 32
    block.filled[i] = n
    block.due[i] = n + min(max(least, n // 2), room)
    set_floor(block, i, floor)


@njit_nogil(error_model="numpy", forceinline=True)
def add_candidates(block: Block, i: int, products: Register, position: int) -> None:
    """Add the products that reach a query's floor, among 16 of keys from ``position`` on."""
    hits = at_least(products, splat_lanes(block.floor[i]))
    if not hits:
        return
    store_lanes(block.line, 0, products)
    to = i * block.space + block.filled[i]
    while hits:
        lane = simd.lowest_bit(hits)
        hits &= hits - 1
        block.product[to] = block.line[lane]
        block.position[to] = position + lane
        to += 1
    block.filled[i] = to - i * block.space
    if block.filled[i] >= block.due[i]:
        prune_candidates(block, i, block.k // 8)


@njit_nogil(error_model="numpy")
def score_candidates(
    block: Block,
    i: int,
    start: int,
    number: Pointer,
    queries: Pointer,
    query: int,
    keys: Pointer,
    dim: int,
) -> None:
    """Score the candidates of a query from ``start`` on by the rule, in place of their products.

    Rows of ``queries`` and ``keys`` are behind pointers; the query is row ``query``.
    """
    base = i * block.space
    last = base + block.filled[i] - 1
    # Float64 sums in index order are one chain of dependent additions each: eight candidates are
    # the lanes of a register.
    for j in range(base + start, last + 1, 8):
        for lane in range(8):
            block.packed[lane] = number[block.position[min(j + lane, last)]] * dim
        sums = splat_lanes(0.0)
        for c in range(0, dim, 8):
            at = query * dim + c
            sums = simd.add_products(sums, keys, block.packed, c, queries, at, dim - c)
        store_lanes(block.product, j, simd.round_to_scores(sums))


@njit_nogil(error_model="numpy")
def write_best(
    block: Block,
    i: int,
    number: Pointer,
    scores: Pointer,
    indices: Pointer,
    to: int,
) -> None:
    """Write the k best of the scored candidates of a query, best first, from ``to`` on."""
    # 1. One integer each, which orders as (score, lower row first).
    base = i * block.space
    count = block.filled[i]
    packed = block.packed
    for j in range(count):
        row = np.int64(number[block.position[base + j]])
        packed[j] = (integer_of_float(block.product[base + j]) << 32) | (LAST - row)
    if count > _MIN_SORTED_CANDIDATES:
        carray(packed, (count,)).sort()
        for j in range(block.k):
            best = packed[count - 1 - j]
            scores[to + j] = float_of_integer(best >> 32)
            indices[to + j] = LAST - (best & LAST)
        return

    # 2. The rank of each is the number of better ones: unlike sorting, no branches.
    store_lanes(packed, count, splat_lanes(_EMPTY))
    for j in range(count):
        value = packed[j]
        rank = 0
        limit = splat_lanes(value)
        for other in range(0, count, 8):
            better = simd.above(load_lanes(packed, other), limit)
            rank += count_bits(better)
        if rank < block.k:
            scores[to + rank] = float_of_integer(value >> 32)
            indices[to + rank] = LAST - (value & LAST)
