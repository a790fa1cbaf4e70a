"""Candidates of a block of queries: collected by a float32 filter, then ranked by the rule.

The filter's products err by less than a proven bound, so a key whose product stays that far below the k-th
best product cannot be among the k best by the rule (ADR 0100). Arrays of a block are seen through
pointers, see :func:`kmip_data.models.search.cpu.lanes.pointer`.

The k-th largest number is found by counting: how many numbers reach a trial value takes a comparison for 16
of them and no branch, so halving the range of trial values beats partitioning (measured: ADR 0100). A
result is one int64, the score's bits above its row counted backwards: their order is the rule's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kmip_data.models.search.cpu import lanes
from kmip_data.models.search.cpu.lanes import at_least, count_bits, load, pointer, splat, store
from kmip_data.runtime.threads import njit_nogil

LAST = 0xFFFFFFFF
_FLIP = 0x7FFFFFFF
_EMPTY = np.int64(-(2**63))
_LONG = 256  # results beyond which sorting beats counting for each
_HALVINGS = 16  # of the range of values, before halving that of bits, which always ends


@njit_nogil(error_model="numpy")
def ordered(value: Any) -> Any:
    """A float32 as an integer of the same order (−0 below +0)."""
    bits = lanes.float_bits(value)
    return bits ^ _FLIP if bits < 0 else bits


@njit_nogil(error_model="numpy")
def unordered(rank: Any) -> Any:
    """The float32 of that :func:`ordered` integer."""
    return lanes.bits_float(rank ^ _FLIP if rank < 0 else rank)


@njit_nogil(error_model="numpy")
def kth_largest(values: Any, start: int, stop: int, k: int, spare: int) -> Any:
    """Enclose the k-th largest of more than k float32 numbers, none NaN, ``start`` to ``stop`` of a pointer.

    16 more may be overwritten, and up to ``spare`` more than k reach ``low``. Gives ``low``, which at least k
    numbers reach; ``high``, which fewer do; how many reach each. With ``spare = 0`` either exactly k reach
    ``low`` or nothing lies between the two.
    """
    store(values, stop, splat(np.float32(np.nan)))  # reaches nothing
    least = splat(values[start])
    most = least
    for i in range(start, stop, 16):
        least = lanes.minimum(load(values, i), least)
        most = lanes.maximum(load(values, i), most)
    low = ordered(lanes.smallest_lane(least))
    high = ordered(lanes.largest_lane(most)) + 1
    reach_low = stop - start
    reach_high = 0
    halvings = 0
    while reach_low > k + spare and high - low > 1:
        middle = (low + high) >> 1
        if halvings < _HALVINGS:
            halvings += 1
            near = ordered(np.float32(0.5) * unordered(low) + np.float32(0.5) * unordered(high))
            if low < near < high:
                middle = near
        reach = 0
        limit = splat(unordered(middle))
        for i in range(start, stop, 16):
            reach += count_bits(at_least(load(values, i), limit))
        if reach >= k:
            low = middle
            reach_low = reach
        else:
            high = middle
            reach_high = reach
    return unordered(low), unordered(high), reach_low, reach_high


@njit_nogil(error_model="numpy")
def pack(score: Any, row: Any) -> Any:
    """One integer that orders as (score, lower row first)."""
    return (ordered(score) << 32) | (LAST - row)


@njit_nogil(error_model="numpy")
def write_sorted(
    packed: Any, count: int, k: int, low: int, scores: Any, indices: Any, to: int
) -> None:
    """Write the k ≤ ``count`` best of ``packed[:count]`` to places ``to`` … behind two pointers, best first.

    The int64 of ``packed`` are distinct, see :func:`pack`; they are overwritten, and so are 8 after
    ``count``. ``low`` is added to each row.
    """
    if count > _LONG:
        packed[:count].sort()
        for i in range(k):
            best = packed[count - 1 - i]
            scores[to + i] = unordered(best >> 32)
            indices[to + i] = LAST - (best & LAST) + low
        return
    numbers = pointer(packed)
    store(numbers, count, splat(_EMPTY))
    for i in range(count):
        value = numbers[i]
        place = 0
        limit = splat(value)
        for j in range(0, count, 8):  # how many are better: no branch to guess, unlike sorting
            place += count_bits(lanes.above(load(numbers, j), limit))
        if place < k:
            scores[to + place] = unordered(value >> 32)
            indices[to + place] = LAST - (value & LAST) + low
    lanes.hold(packed)


OUT = np.float32(np.inf)  #: floor of a query that is given up: nothing reaches it
UNIT = 2.0**-24  #: largest relative error of rounding to float32
ROOM = 192  #: for candidates that the filter cannot separate from the k-th best, besides 3 k


class Block(NamedTuple):
    """Pointers to what is known of each of B queries."""

    unit: Any  #: (B, d) float32, queries of length 1
    near: Any  #: (B, space) float32, products of the candidates
    place: Any  #: (B, space) int32, where they are in the tree
    filled: Any  #: (B,) int64, how many there are
    due: Any  #: (B,) int64, when to drop those that are out
    floor: Any  #: (B,) float32, a product below it is out
    limit: Any  #: (B,) float32, a cone that reaches less is out
    slack: Any  #: (B,) float32, how far below the k-th best product the floor is
    line: Any  #: (16,) float32, scratch
    packed: Any  #: array of int64, scratch of :func:`finish`
    query: Any  #: (d,) float64, scratch of it
    k: int
    space: int
    margin: np.float32  #: how far a cone may reach beyond what is computed for it


@njit_nogil(error_model="numpy")
def new_block(rows: int, dim: int, k: int) -> tuple[Block, Any]:
    """A block of ``rows`` queries, and the arrays that it points to, to be held as long as it is used."""
    space = 3 * k + ROOM
    reals = np.zeros(
        rows * (dim + space + 3) + 32, np.float32
    )  # zero: rows without a query reach nothing
    wholes = np.empty(rows * 2, np.int64)
    places = np.empty(rows * space, np.int32)
    packed = np.empty(space + 8, np.int64)
    query = np.empty(dim)
    state = reals[rows * space + 16 :]
    block = Block(
        pointer(state[rows * 3 + 16 :]), pointer(reals), pointer(places), pointer(wholes),
        pointer(wholes[rows:]), pointer(state), pointer(state[rows:]), pointer(state[rows * 2 :]),
        pointer(state[rows * 3 :]), packed, pointer(query), k, space, np.float32(4 * error_of_cones(dim)),
    )  # fmt: skip
    return block, (reals, wholes, places, query)


@njit_nogil(error_model="numpy")
def error_of_cones(dim: int) -> float:
    """Bound on the error of a product of two rows of length 1 and of a reach computed from it."""
    return (dim + 8) * 2 * UNIT


@njit_nogil(error_model="numpy")
def _slack(length: float, dim: int, scale: float, longest: float) -> float:
    """Bound on the gap of two filter products whose keys the rule ranks the other way round (ADR 0100).

    In the filter a query and the longest key have length 1. Rounding both to float32 and summing costs a
    product (d + 2) · 2⁻²⁴ (2 more for good measure); rounding a score of the rule costs 2⁻²⁴ of it, or half
    of the least subnormal.
    """
    # 1. Scores may overflow to equal infinities, which no filter can rank: give the query up.
    if length * longest > 3e38:
        return np.inf
    # 2. E1, the error of a filter product: d roundings of the sum and 2 of the operands, 2 more for good
    #    measure.
    filtered = (dim + 4) * UNIT * 1.1
    # 3. E2, the rounding of a score of the rule, in units of the filter, where |q| = |longest key| = 1.
    ruled = (1.1 * UNIT * length * longest + 2.0**-148) / (length * scale)
    # 4. k products reach tau, so k scores reach tau - E; a key below tau - 2 E scores less than each of them.
    return 2.2 * (filtered + ruled)


@njit_nogil(error_model="numpy", forceinline=True)
def set_floor(block: Block, i: int, value: Any) -> None:
    """Products below ``value`` are out."""
    block.floor[i] = value
    # A cone that points away reaches 0 at most, whatever was computed for it.
    block.limit[i] = value - block.margin if value > block.margin else -OUT


@njit_nogil(error_model="numpy")
def begin(block: Block, queries: Any, first: int, count: int, scale: float, longest: float) -> None:
    """Load the queries ``first`` … of (R, d) into a block; give up those that no filter can rank."""
    dim = queries.shape[1]
    for i in range(count):
        total = 0.0
        for c in range(dim):
            total += np.float64(queries[first + i, c]) ** 2
        length = np.sqrt(total)
        slack = _slack(length, dim, scale, longest) if length > 0 and scale > 0 else np.inf
        for c in range(dim):
            block.unit[i * dim + c] = queries[first + i, c] / length if length > 0 else 0.0
        block.slack[i], block.filled[i], block.due[i] = slack, 0, block.k + 1
        set_floor(block, i, -OUT if slack < 1 else OUT)


@njit_nogil(error_model="numpy", forceinline=True)
def append(block: Block, i: int, products: Any, hits: int, place: int) -> bool:
    """Add the lanes ``hits`` of 16 products, of keys at ``place`` …; returns whether to :func:`cut`."""
    store(block.line, 0, products)
    to = i * block.space + block.filled[i]
    while hits:
        lane = lanes.lowest_bit(hits)
        hits &= hits - 1
        block.near[to] = block.line[lane]
        block.place[to] = place + lane
        to += 1
    block.filled[i] = to - i * block.space
    return bool(block.filled[i] >= block.due[i])


@njit_nogil(error_model="numpy")
def cut(block: Block, i: int, spare: int) -> None:
    """Raise a query's floor to below its k-th best product, and drop the candidates under it.

    With ``spare`` the k-th best may be one of as many that follow it. Where too many candidates are left,
    such as equal ones, the query is given up.
    """
    k = block.k
    base = i * block.space
    n = block.filled[i]
    floor = block.floor[i]
    # 1. The floor lies one slack below the k-th best product so far, and only ever rises.
    if n > k:
        floor = max(floor, kth_largest(block.near, base, base + n, k, spare)[0] - block.slack[i])
    # 2. Compact the candidates in place without a branch: each is copied, and counted only if it stays.
    kept = base
    for j in range(base, base + n):
        block.near[kept], block.place[kept] = block.near[j], block.place[j]
        kept += block.near[j] >= floor
    # 3. Cut again after 16 + k/2 further candidates (or half as many as there are). Less room than that, of
    #    3 k + 192 places, means that the filter cannot separate the rest: the query is searched exactly.
    n = kept - base
    room = block.space - n - 32
    block.filled[i], block.due[i] = n, n + min(max(16 + k // 2, n // 2), room)
    set_floor(block, i, floor if room >= 16 + k // 2 else OUT)


@njit_nogil(error_model="numpy", forceinline=True)
def offer(block: Block, i: int, products: Any, place: int) -> None:
    """Take those of 16 products, whose keys are at ``place`` …, that a query's floor lets pass."""
    hits = at_least(products, splat(block.floor[i]))
    if hits and append(block, i, products, hits, place):
        cut(block, i, block.k // 8)


@njit_nogil(error_model="numpy")
def finish(
    block: Block, count: int, number: Any, queries: Any, keys: Any, first: int, low: int,
    scores: Any, indices: Any, failed: Any
) -> None:  # fmt: skip
    """Rank the candidates of each query by the rule and write the k best, or note that it was given up."""
    k = block.k
    dim = queries.shape[1]
    rows = pointer(keys)
    for i in range(count):
        if block.floor[i] != OUT:
            cut(block, i, 0)
        failed[first + i] = block.floor[i] == OUT
        if block.floor[i] == OUT:
            continue
        base = i * block.space
        n = block.filled[i]
        for c in range(dim):
            block.query[c] = queries[first + i, c]
        # Float64 sums in index order are one chain of dependent additions: four candidates hide its latency.
        for j in range(0, n, 4):
            u = base + j
            v = base + min(j + 1, n - 1)
            w = base + min(j + 2, n - 1)
            x = base + min(j + 3, n - 1)
            p = number[block.place[u]]
            q = number[block.place[v]]
            r = number[block.place[w]]
            s = number[block.place[x]]
            one = 0.0
            two = 0.0
            three = 0.0
            four = 0.0
            for c in range(dim):
                factor = block.query[c]
                one += factor * rows[p * dim + c]
                two += factor * rows[q * dim + c]
                three += factor * rows[r * dim + c]
                four += factor * rows[s * dim + c]
            _rank(block, j, one, p), _rank(block, j + 1, two, q)
            _rank(block, j + 2, three, r), _rank(block, j + 3, four, s)
        write_sorted(block.packed, n, k, low, scores, indices, (first + i) * k)


@njit_nogil(error_model="numpy", forceinline=True)
def _rank(block: Block, j: int, total: float, row: Any) -> None:
    """Note the score by the rule of candidate j."""
    block.packed[j] = pack(np.float32(total) + np.float32(0), np.int64(row))  # + 0: no −0
