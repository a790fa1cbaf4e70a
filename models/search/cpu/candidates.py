"""Candidates of a block of queries, collected by a filter and then ranked by the rule.

The error of the filter's products has a proven bound, so a key whose product is further below the
k-th best product cannot be among the k best by the rule (ADR 0100). Arrays of a block are accessed
through pointers (:func:`kmip_data.models.search.cpu.simd.pointer_to_elements`).

Bisection finds the k-th largest number: counting the numbers that reach a trial value takes one
comparison per 16 numbers and no branch, which is faster than partitioning (ADR 0100). A result is
packed into one int64, score bits above the inverted row, so that integers order as the rule does.
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
from kmip_data.models.search.cpu.sorted_keys import KeysByLength
from kmip_data.runtime.parallel import njit_nogil

INFINITY = np.float32(np.inf)  #: floor of an abandoned query, which no product reaches
LOW_32_BITS = 0xFFFFFFFF
_FLIP = 0x7FFFFFFF
_EMPTY = np.int64(-(2**63))
#: Candidates above which sorting is faster than counting ranks: for k = 5,000, 3.4 times.
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
    """Return a number that at least k and at most k + ``spare`` of the float32 values reach.

    There are more than k values, from ``start`` to ``stop``, without NaN; the 16 entries after them
    are overwritten. If more than k + ``spare`` values reach the k-th largest, return that one.
    """
    # NaN after the last value reaches nothing.
    store_lanes(values, stop, splat_lanes(np.float32(np.nan)))
    low = integer_of_float(-INFINITY)
    high = integer_of_float(INFINITY) + 1
    reach_low = stop - start
    # Bisect over the bits of the float, which always terminates.
    while reach_low > k + spare and high - low > 1:
        middle = (low + high) >> 1
        # Count the values that reach the middle, 16 per comparison and without a branch.
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


UNIT_ROUNDOFF = 2.0**-24  #: largest relative error of rounding to float32
#: Space beyond 3 k for candidates that the filter cannot separate from the k-th best.
SPARE_CAPACITY = 192


class QueryBlock(NamedTuple):
    """Pointers to the state of B queries."""

    unit_queries: Pointer  #: (B, d) float32, queries scaled to length 1
    product: Pointer  #: (B, capacity) float32, products of the candidates
    position: Pointer  #: (B, capacity) int32, positions of the candidates in the order by length
    filled: Pointer  #: (B,) int64, number of candidates
    prune_at: Pointer  #: (B,) int64, number of candidates at which to prune
    floor: Pointer  #: (B,) float32, smallest product that passes; byte filter: smallest score
    #: (B,) float32, smallest length of a key that passes; byte filter: smallest product
    limit: Pointer
    slack: Pointer  #: (B,) float32, gap between the k-th best product and the floor
    scratch: Pointer  #: (16,) float32, products of 16 keys
    packed: Pointer  #: (capacity + 8,) int64, scratch of :func:`write_best`
    k: int
    capacity: int
    margin: np.float32  #: how far a computed product may exceed a key's length


@njit_nogil(error_model="numpy")
def new_block(rows: int, dim: int, k: int) -> tuple[QueryBlock, Any]:
    """Return a block of ``rows`` queries, and its arrays, which must outlive it."""
    capacity = 3 * k + SPARE_CAPACITY
    # Zero rows stand for missing queries.
    reals = np.zeros(rows * (dim + capacity + 3) + 32, np.float32)
    wholes = np.empty(rows * 2, np.int64)
    positions = np.empty(rows * capacity, np.int32)
    packed = np.empty(capacity + 8, np.int64)
    state = reals[rows * capacity + 16 :]
    block = QueryBlock(
        unit_queries=pointer_to_elements(state[rows * 3 + 16 :]),
        product=pointer_to_elements(reals),
        position=pointer_to_elements(positions),
        filled=pointer_to_elements(wholes),
        prune_at=pointer_to_elements(wholes[rows:]),
        floor=pointer_to_elements(state),
        limit=pointer_to_elements(state[rows:]),
        slack=pointer_to_elements(state[rows * 2 :]),
        scratch=pointer_to_elements(state[rows * 3 :]),
        packed=pointer_to_elements(packed),
        k=k,
        capacity=capacity,
        margin=np.float32(8 * (dim + 8) * UNIT_ROUNDOFF),
    )
    return block, (reals, wholes, positions, packed)


@njit_nogil(error_model="numpy")
def _rule_slack(length: float, dim: int, scale: float, longest: float) -> float:
    """Return a bound on the gap between two filter products that the rule may rank in reverse (ADR 0100).

    In the filter, a query and the longest key have length 1. Rounding both to float32 and summing
    changes a product by up to (d + 2) · 2⁻²⁴; rounding a score changes it by up to 2⁻²⁴ of it, or
    half of the smallest subnormal.
    """
    # 1. Abandon queries whose scores may overflow to equal infinities, which no filter can rank.
    if length * longest > 3e38:
        return np.inf
    # 2. E1, the error of a filter product: d roundings of the sum, 2 of the operands, and a margin of
    #    2.
    filtered = (dim + 4) * UNIT_ROUNDOFF * 1.1
    # 3. E2, the rounding error of a score, in units of the filter, where |q| = |longest key| = 1.
    ruled = (1.1 * UNIT_ROUNDOFF * length * longest + 2.0**-148) / (length * scale)
    # 4. With E = E1 + E2: if k products reach tau, k scores reach tau - E, and a key below tau - 2 E
    #    scores less than all of them.
    return 2.2 * (filtered + ruled)


@njit_nogil(error_model="numpy", forceinline=True)
def set_floor(block: QueryBlock, i: int, value: np.float32) -> None:
    """Let only products of at least ``value`` pass."""
    block.floor[i] = value
    block.limit[i] = value - block.margin if value > block.margin else -INFINITY


@njit_nogil(error_model="numpy")
def least_passing_length(block: QueryBlock, i: int) -> np.float32:
    """Return the length below which no key passes for any of the four queries from ``i`` on."""
    first = min(block.limit[i], block.limit[i + 1])
    second = min(block.limit[i + 2], block.limit[i + 3])
    return min(first, second)


@njit_nogil(error_model="numpy")
def load_queries(
    block: QueryBlock,
    queries: F32,
    first: int,
    count: int,
    sorted_keys: KeysByLength,
) -> None:
    """Load ``count`` queries (R, d) into a block, and abandon those that no filter can rank."""
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
            block.unit_queries[i * dim + c] = queries[first + i, c] / length if length > 0 else 0.0
        block.slack[i] = slack
        block.filled[i] = 0
        block.prune_at[i] = block.k + 1
        # Products are within ±1, so a filter with a slack of 1 or more would exclude almost nothing.
        set_floor(block, i, -INFINITY if slack < 1 else INFINITY)
    # Let nothing pass for missing queries in the last tile of four.
    for i in range(count, (count + 3) & ~3):
        block.filled[i] = 0
        set_floor(block, i, INFINITY)


@njit_nogil(error_model="numpy")
def prune_candidates(block: QueryBlock, i: int, spare: int) -> None:
    """Raise a query's floor to just below its k-th best product, and drop the candidates below it.

    The floor may be up to ``spare`` ranks lower, which saves bisections. If too many candidates
    remain, for example ties, the query is abandoned.
    """
    k = block.k
    base = i * block.capacity
    n = block.filled[i]
    floor = block.floor[i]

    # 1. The floor is one slack below the k-th best product so far, and never falls.
    if n > k:
        kth = top_k_threshold(block.product, base, base + n, k, spare)
        floor = max(floor, kth - block.slack[i])

    # 2. Compact the candidates in place without branches: copy each one, and advance if it passes.
    to = base
    for j in range(base, base + n):
        product = block.product[j]
        block.product[to] = product
        block.position[to] = block.position[j]
        to += product >= floor

    # 3. Prune the next time after 16 + k/2 more candidates, or half of the present number. If there
    #    is less room than that, the filter cannot separate the candidates, and the query is searched
    #    exactly. Its candidates are dropped, because the current leaves may add more of them and
    #    would overflow into the next query's space.
    n = to - base
    least = 16 + k // 2
    if block.capacity - n - 32 < least:
        floor = INFINITY
        n = 0
    room = block.capacity - n - 32
    block.filled[i] = n
    block.prune_at[i] = n + min(max(least, n // 2), room)
    set_floor(block, i, floor)


@njit_nogil(error_model="numpy", forceinline=True)
def add_candidates(block: QueryBlock, i: int, products: Register, position: int) -> None:
    """Add those of the 16 keys from ``position`` on whose products reach a query's floor."""
    hits = at_least(products, splat_lanes(block.floor[i]))
    if not hits:
        return
    store_lanes(block.scratch, 0, products)
    to = i * block.capacity + block.filled[i]
    while hits:
        lane = simd.lowest_bit(hits)
        hits &= hits - 1
        block.product[to] = block.scratch[lane]
        block.position[to] = position + lane
        to += 1
    block.filled[i] = to - i * block.capacity
    if block.filled[i] >= block.prune_at[i]:
        prune_candidates(block, i, block.k // 8)


@njit_nogil(error_model="numpy")
def score_candidates(
    block: QueryBlock,
    i: int,
    start: int,
    key_row: Pointer,
    queries: Pointer,
    query: int,
    keys: Pointer,
    dim: int,
) -> None:
    """Replace the products of a query's candidates from ``start`` on by scores of the rule.

    ``queries`` and ``keys`` point to rows; the query is row ``query``.
    """
    base = i * block.capacity
    last = base + block.filled[i] - 1
    # A float64 sum in index order is a chain of dependent additions, so eight candidates share a
    # register.
    for j in range(base + start, last + 1, 8):
        for lane in range(8):
            block.packed[lane] = key_row[block.position[min(j + lane, last)]] * dim
        sums = splat_lanes(0.0)
        for c in range(0, dim, 8):
            at = query * dim + c
            sums = simd.add_products(sums, keys, block.packed, c, queries, at, dim - c)
        store_lanes(block.product, j, simd.round_to_scores(sums))


@njit_nogil(error_model="numpy")
def write_best(
    block: QueryBlock,
    i: int,
    key_row: Pointer,
    scores: Pointer,
    indices: Pointer,
    to: int,
) -> None:
    """Write the k best of a query's scored candidates, the best first, from position ``to`` on."""
    # 1. Pack each score and row into one integer, which orders by score, then by lower row.
    base = i * block.capacity
    count = block.filled[i]
    packed = block.packed
    for j in range(count):
        row = np.int64(key_row[block.position[base + j]])
        packed[j] = (integer_of_float(block.product[base + j]) << 32) | (LOW_32_BITS - row)
    if count > _MIN_SORTED_CANDIDATES:
        carray(packed, (count,)).sort()
        for j in range(block.k):
            best = packed[count - 1 - j]
            scores[to + j] = float_of_integer(best >> 32)
            indices[to + j] = LOW_32_BITS - (best & LOW_32_BITS)
        return

    # 2. The rank of a candidate is the number of better ones; unlike sorting, this needs no branches.
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
            indices[to + rank] = LOW_32_BITS - (value & LOW_32_BITS)
