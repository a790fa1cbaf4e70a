"""Compiled search with an 8-bit filter, which needs a quarter of the loads and products of float32.

Keys and queries are rounded to 8 bits. A processor with AVX-512 VNNI multiplies and adds 64 pairs
of bytes in one instruction. The lengths of the rounding errors bound the error of a byte product, so
keys below the floor are excluded by proof. The others are immediately scored by the rule (ADR
0320). Keys are sorted by length: once the longest remaining key is too short for a query's floor,
the query is done.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from kmip_data.arrays import F32, F64, I32, I64, U8, Bools
from kmip_data.models.search.cpu import candidates, simd
from kmip_data.models.search.cpu.candidates import INFINITY, QueryBlock
from kmip_data.models.search.cpu.simd import (
    Pointer,
    Register,
    above,
    add_byte_products,
    larger,
    load_lanes,
    maximum,
    multiply_add,
    pointer_to_elements,
    splat_lanes,
    store_lanes,
)
from kmip_data.models.search.cpu.sorted_keys import LEAF, KeysByLength
from kmip_data.runtime.parallel import njit_nogil, run_in_ranges

MAX_DIM = 512  #: largest dimension with sums of products exact in float32
BLOCK = 64  # queries per block, which share the cache
_CACHED_CODES = 2048  # int32 numbers of keys that fit in the L1 cache with the queries
_WARM_UP_LEAVES = 16  # leaves per group, for the initial threshold
_MAX_CODE = 127  # largest magnitude of a code
_MAX_GATE = 2**30  # larger than every sum of products
_ROUNDING_FACTOR = 1 + 1e-6  # makes computed errors upper bounds
_ROUNDING = 2.0**-21  # covers rounding of products and limits to float32
_BANDS = 16

# The error bounds hold for any order of sums.
_vectorised = njit_nogil(fastmath={"reassoc", "contract", "nsz", "nnan"}, error_model="numpy")


class Codes(NamedTuple):
    """Keys as unsigned bytes, with 128 for zero, the longest first.

    A band is a range of leaves whose keys, of similar length, share a quantisation step.
    """

    quads: I32  #: flat (leaves + 1, d / 4, 16), four coordinates of a key in each number
    key_row: I32  #: flat (leaves + 1, 16), row of each key in its graph; −1: none
    sorted_keys: KeysByLength
    shift: int  #: binary logarithm of the leaves per band
    step: F64  #: (bands,) quantisation step, for keys of length at most 1
    error: F64  #: (bands,) bound on the quantisation error of a key


class _ByteBlock(NamedTuple):
    """State of a block of B queries as signed bytes, with pointers to the keys of the graph.

    The score of a pair is ``shift`` + ``length`` · x, where x is the product of the query and the
    shifted key, both scaled to at most length 1. Up to a bounded error, x is (S − ``bias``) times
    the two quantisation steps, where S is the sum of their byte products.
    """

    block: QueryBlock  #: candidates; their products are scores by the rule
    keys: Pointer  #: (M, d) float32
    queries: Pointer  #: (R, d) float32, all queries of the graph
    first: int  #: row of the block's first query
    dim: int
    key_row: Pointer  #: row of the key at each position by length, −1 at padding
    quads: Pointer  #: (B, d / 4) int32, codes of the queries: four signed bytes in each number
    #: (B,) int32, initial value of a query's sums: minus the smallest sum that may reach the limit,
    #: so that the sums of passing keys end at 0 or above
    gate: Pointer
    bias: Pointer  #: (B,) int64, 128 · Σ codes of the query, as the code of zero is 128 in keys
    #: (B,) int64, number of candidates, from the first on, that have scores already
    num_scored: Pointer
    shift: Pointer  #: (B,) float64, product of the query with the mean of the keys
    length: Pointer  #: (B,) float64, length of the query times length of the longest shifted key
    step: Pointer  #: (B,) float64, quantisation step of the query, scaled to length 1
    error: Pointer  #: (B,) float64, bound on the length of that query's quantisation error
    slack: Pointer  #: (B,) float64, bound on the errors of x besides quantisation
    band: Pointer  #: (3,) float64, of the current band: step, quantisation error, length of its longest key


def encode_as_bytes(keys: F32, sorted_keys: KeysByLength) -> Codes:
    """Shift and scale keys (M, d), d ≤ :data:`MAX_DIM`, and round them to bytes."""
    count, dim = keys.shape
    leaves = -(-count // LEAF)
    quads = -(-dim // 4)
    shift = max(1, (leaves // _BANDS).bit_length() - 1)
    bands = ((leaves - 1) >> shift) + 1

    # Align to cache lines: a load across two of them takes twice the time.
    size = (leaves + 1) * quads * 64
    room = np.full(size + 63, 128, np.uint8)
    begin = -room.ctypes.data % 64
    codes = room[begin : begin + size]
    key_row = np.full((leaves + 1) * LEAF, -1, np.int32)
    key_row[:count] = sorted_keys.order
    steps = np.empty(bands)
    errors = np.empty(bands)
    run_in_ranges(
        partial(_encode_bands, keys, sorted_keys, shift, codes, steps, errors),
        bands,
        grain=max(1, 200_000 // (dim * LEAF << shift)),
    )
    return Codes(codes.view(np.int32), key_row, sorted_keys, shift, steps, errors)


@_vectorised
def _encode_bands(
    keys: F32,
    sorted_keys: KeysByLength,
    shift: int,
    codes: U8,
    steps: F64,
    errors: F64,
    start: int,
    stop: int,
) -> None:
    """Encode the keys of the bands ``start:stop``, and write their steps and largest rounding errors."""
    dim = keys.shape[1]
    quads = (dim + 3) // 4
    order = sorted_keys.order
    centre = sorted_keys.centre
    factor = sorted_keys.factor
    line = np.empty(dim)
    points = pointer_to_elements(codes)
    for i in range(start, stop):
        first = i * LEAF << shift
        last = min(first + (LEAF << shift), len(order))
        largest = 0.0
        for j in range(first, last):
            row = order[j]
            for c in range(dim):
                largest = max(largest, abs(keys[row, c] - centre[c]))

        step = max(largest * factor, 2.0**-60) / _MAX_CODE
        inverse = factor / step
        largest = 0.0
        for j in range(first, last):
            row = order[j]
            square = 0.0
            for c in range(dim):
                shifted = keys[row, c] - centre[c]
                code = np.floor(shifted * inverse + 0.5)
                line[c] = code
                square += (shifted * factor - code * step) ** 2
            largest = max(largest, square)
            to = j // LEAF * quads * 64 + j % LEAF * 4
            for c in range(dim):
                points[to + c // 4 * 64 + c % 4] = np.uint8(line[c] + 128)
        steps[i] = step
        errors[i] = np.sqrt(largest) * _ROUNDING_FACTOR


@_vectorised
def _encode_queries(
    byte_block: _ByteBlock,
    signed: Pointer,
    count: int,
    codes: Codes,
) -> None:
    """Round queries to signed bytes, each scaled by its largest coordinate; initially all keys pass."""
    block = byte_block.block
    dim = byte_block.dim
    width = (dim + 3) // 4 * 4
    for i in range(count):
        row = (byte_block.first + i) * dim
        square = 0.0
        shift = 0.0
        largest = 0.0
        for c in range(dim):
            value = np.float64(byte_block.queries[row + c])
            square += value * value
            shift += value * codes.sorted_keys.centre[c]
            largest = max(largest, abs(value))
        if block.floor[i] == INFINITY:
            block.limit[i] = INFINITY
            continue
        length = np.sqrt(square)
        step = largest / length / _MAX_CODE
        inverse = _MAX_CODE / largest
        inverse_length = 1 / length
        total = 0.0
        square = 0.0
        for c in range(dim):
            value = np.float64(byte_block.queries[row + c])
            code = np.floor(value * inverse + 0.5)
            signed[i * width + c] = np.int8(code)
            total += code
            square += (value * inverse_length - code * step) ** 2
        byte_block.error[i] = np.sqrt(square) * _ROUNDING_FACTOR
        byte_block.step[i] = step
        byte_block.bias[i] = 128 * np.int64(total)
        byte_block.shift[i] = shift
        byte_block.length[i] = length * codes.sorted_keys.scale
        byte_block.num_scored[i] = 0
        byte_block.slack[i] = block.slack[i]
        block.slack[i] = 0  # scores are exact
        block.limit[i] = -INFINITY


@njit_nogil(error_model="numpy", forceinline=True)
def _product_error(byte_block: _ByteBlock, i: int) -> float:
    """Return a bound on the error of a query's byte product with a key of the current band.

    With u = q / |q|, its codes v, a key p and its codes w: |u p − v w| ≤ |u| |p − w| + |u − v| |w|.
    """
    of_key: float = byte_block.band[1]
    of_query: float = byte_block.error[i]
    error: float = of_key + of_query * (byte_block.band[2] + of_key) + _ROUNDING
    return error


@njit_nogil(error_model="numpy", forceinline=True)
def _enter_band(byte_block: _ByteBlock, codes: Codes, band: int) -> None:
    """Make ``band`` the current band."""
    byte_block.band[0] = codes.step[band]
    byte_block.band[1] = codes.error[band]
    byte_block.band[2] = codes.sorted_keys.max_length[band << codes.shift]


@njit_nogil(error_model="numpy")
def _update_thresholds_from_floor(byte_block: _ByteBlock, i: int) -> None:
    """Update limit and gate to pass all keys that may reach a query's floor, its k-th best score so far."""
    block = byte_block.block
    # Convert to units of the filter; infinite floors stay infinite.
    block.limit[i] = (block.floor[i] - byte_block.shift[i]) / byte_block.length[
        i
    ] - byte_block.slack[i]
    _set_gate(byte_block, i)


@njit_nogil(error_model="numpy")
def _set_gate(byte_block: _ByteBlock, i: int) -> None:
    """Set the gate to pass all sums of the current band whose product may reach a query's limit."""
    least = byte_block.block.limit[i] - _product_error(byte_block, i)
    total = np.floor(least / (byte_block.step[i] * byte_block.band[0])) + byte_block.bias[i]
    byte_block.gate[i] = -np.int64(min(max(total, -_MAX_GATE), _MAX_GATE))


@njit_nogil(error_model="numpy")
def _score_and_prune_candidates(byte_block: _ByteBlock, i: int, spare: int) -> None:
    """Score new candidates, raise the floor to the k-th best score, and drop the candidates below it."""
    block = byte_block.block
    query = byte_block.first + i
    start = byte_block.num_scored[i]
    candidates.score_candidates(
        block,
        i,
        start,
        byte_block.key_row,
        byte_block.queries,
        query,
        byte_block.keys,
        byte_block.dim,
    )
    candidates.prune_candidates(block, i, spare)
    byte_block.num_scored[i] = block.filled[i]
    _update_thresholds_from_floor(byte_block, i)


@njit_nogil(error_model="numpy", forceinline=True)
def _add_candidate(byte_block: _ByteBlock, query: int, key: int) -> None:
    """Add a key to the candidates of a query."""
    block = byte_block.block
    filled = block.filled[query]
    block.position[query * block.capacity + filled] = key
    # Padding lanes (row −1) are not counted, so the next key overwrites them.
    filled += byte_block.key_row[key] >= 0
    block.filled[query] = filled
    if filled >= block.prune_at[query]:
        _score_and_prune_candidates(byte_block, query, block.k // 8)


@njit_nogil(error_model="numpy")
def _add_passing_keys(byte_block: _ByteBlock, i: int, hits: int, leaf: int) -> int:
    """Add the passing keys of a leaf, given by 16 bits of ``hits`` per query, for four queries; count them."""
    scored = 0
    while hits:
        bit = simd.lowest_bit(hits)
        hits &= hits - 1
        scored += 1
        _add_candidate(byte_block, i + (bit >> 4), leaf * 16 + (bit & 15))
    return scored


@njit_nogil(error_model="numpy", forceinline=True)
def _multiply_pair(
    byte_block: _ByteBlock,
    codes: Pointer,
    quads: int,
    leaf: int,
    i: int,
) -> tuple[Register, ...]:
    """Multiply two leaves by four queries; return the sums of the first leaf, then of the second."""
    left_0 = splat_lanes(byte_block.gate[i])
    left_1 = splat_lanes(byte_block.gate[i + 1])
    left_2 = splat_lanes(byte_block.gate[i + 2])
    left_3 = splat_lanes(byte_block.gate[i + 3])
    right_0 = left_0
    right_1 = left_1
    right_2 = left_2
    right_3 = left_3
    first = leaf * quads * 16
    base = i * quads
    for quad in range(quads):
        left = load_lanes(codes, first + quad * 16)
        right = load_lanes(codes, first + (quads + quad) * 16)
        query = splat_lanes(byte_block.quads[base + quad])
        left_0 = add_byte_products(left_0, left, query)
        right_0 = add_byte_products(right_0, right, query)
        query = splat_lanes(byte_block.quads[base + quads + quad])
        left_1 = add_byte_products(left_1, left, query)
        right_1 = add_byte_products(right_1, right, query)
        query = splat_lanes(byte_block.quads[base + 2 * quads + quad])
        left_2 = add_byte_products(left_2, left, query)
        right_2 = add_byte_products(right_2, right, query)
        query = splat_lanes(byte_block.quads[base + 3 * quads + quad])
        left_3 = add_byte_products(left_3, left, query)
        right_3 = add_byte_products(right_3, right, query)
    return left_0, left_1, left_2, left_3, right_0, right_1, right_2, right_3


@njit_nogil(error_model="numpy", forceinline=True)
def _passing_mask(
    query_0: Register,
    query_1: Register,
    query_2: Register,
    query_3: Register,
) -> int:
    """Return a mask of the sums of four queries that are at least 0, 16 bits each."""
    least = splat_lanes(np.int32(-1))
    first: int = above(query_0, least) | above(query_1, least) << 16
    second: int = above(query_2, least) | above(query_3, least) << 16
    return first | second << 32


@njit_nogil(error_model="numpy", forceinline=True)
def _search_two_leaves(
    byte_block: _ByteBlock,
    codes: Pointer,
    quads: int,
    first_leaf: int,
    i: int,
) -> int:
    """Search two adjacent leaves for four queries; return the number of candidates."""
    sums = _multiply_pair(byte_block, codes, quads, first_leaf, i)
    lefts = larger(larger(sums[0], sums[1]), larger(sums[2], sums[3]))
    rights = larger(larger(sums[4], sums[5]), larger(sums[6], sums[7]))
    # One branch for 128 sums, as few pass.
    if not above(larger(lefts, rights), splat_lanes(np.int32(-1))):
        return 0
    left = _passing_mask(sums[0], sums[1], sums[2], sums[3])
    right = _passing_mask(sums[4], sums[5], sums[6], sums[7])
    return _add_passing_keys(byte_block, i, left, first_leaf) + _add_passing_keys(
        byte_block, i, right, first_leaf + 1
    )


@njit_nogil(error_model="numpy", forceinline=True)
def _store_lower_bounds(
    early: Pointer,
    to: int,
    top: Register,
    left: Register,
    right: Register,
    margins: Pointer,
    i: int,
) -> Register:
    """Convert byte sums of two leaves to lower bounds of products, store them and raise ``top``."""
    factor = splat_lanes(margins[i])
    margin = splat_lanes(margins[i + 4])
    products = multiply_add(simd.floats_of_integers(left), factor, margin)
    store_lanes(early, to, products)
    top = maximum(top, products)
    products = multiply_add(simd.floats_of_integers(right), factor, margin)
    store_lanes(early, to + 16, products)
    return maximum(top, products)


@njit_nogil(error_model="numpy")
def _warm_up(
    byte_block: _ByteBlock,
    codes: Codes,
    quads: int,
    i: int,
    groups: int,
    leaves: int,
    early: Pointer,
    margins: Pointer,
) -> int:
    """Search the first ``leaves`` for four queries, and raise their limits; return the candidates' number."""
    # 1. Compute the scale of sums, and the error bound, of each band.
    block = byte_block.block
    bands = ((leaves - 1) >> codes.shift) + 1
    for band in range(bands):
        _enter_band(byte_block, codes, band)
        for query in range(4):
            margins[band * 8 + query] = byte_block.step[i + query] * byte_block.band[0]
            margins[band * 8 + 4 + query] = -_product_error(byte_block, i + query)
    for query in range(i, i + 4):
        byte_block.gate[query] = -byte_block.bias[query]

    # 2. Compute lower bounds of products, and their maximum per lane in each group of leaves.
    points = pointer_to_elements(codes.quads)
    room = leaves * 16
    for group in range(groups):
        top_0 = splat_lanes(-INFINITY)
        top_1 = top_0
        top_2 = top_0
        top_3 = top_0
        for leaf in range(2 * group, leaves, 2 * groups):
            sums = _multiply_pair(byte_block, points, quads, leaf, i)
            to = leaf * 16
            margin = (leaf >> codes.shift) * 8
            top_0 = _store_lower_bounds(early, to, top_0, sums[0], sums[4], margins, margin)
            to += room
            top_1 = _store_lower_bounds(early, to, top_1, sums[1], sums[5], margins, margin + 1)
            to += room
            top_2 = _store_lower_bounds(early, to, top_2, sums[2], sums[6], margins, margin + 2)
            to += room
            top_3 = _store_lower_bounds(early, to, top_3, sums[3], sums[7], margins, margin + 3)
        to = i * block.capacity + group * 16
        store_lanes(block.product, to, top_0)
        store_lanes(block.product, to + block.capacity, top_1)
        store_lanes(block.product, to + 2 * block.capacity, top_2)
        store_lanes(block.product, to + 3 * block.capacity, top_3)

    scored = 0
    for query in range(i, i + 4):
        if block.floor[query] == INFINITY:
            continue
        # 3. At least k keys reach the k-th of these maxima, as groups are disjoint.
        base = query * block.capacity
        kth = candidates.top_k_threshold(block.product, base, base + groups * 16, block.k, 0)
        block.limit[query] = kth - byte_block.slack[query]
        prune_at = 3 * block.k + 32
        block.prune_at[query] = prune_at
        # 4. Keep the keys whose upper bound reaches it.
        filled = 0
        for band in range(bands):
            error = margins[band * 8 + 4 + query - i]
            least = splat_lanes(np.float32(block.limit[query] + 2 * error))
            for leaf in range(band << codes.shift, min((band + 1) << codes.shift, leaves)):
                products = load_lanes(early, ((query - i) * leaves + leaf) * 16)
                count = simd.store_passing(
                    block.position, base + filled, leaf * 16, products, least
                )
                filled += count
                if filled >= prune_at:
                    block.filled[query] = filled
                    scored += filled
                    _score_and_prune_candidates(byte_block, query, block.k // 8)
                    filled = block.filled[query]
                    scored -= filled
                    prune_at = block.prune_at[query]
        scored += filled
        block.filled[query] = filled
        _score_and_prune_candidates(byte_block, query, 0)
    return scored


@njit_nogil(error_model="numpy")
def _search_band(
    byte_block: _ByteBlock,
    codes: Codes,
    quads: int,
    count: int,
    band: int,
    begin: int,
) -> tuple[int, int]:
    """Search one band of keys from leaf ``begin`` on.

    Returns the numbers of multiplied leaves, 0 if all keys are too short, and of scored candidates.
    """
    _enter_band(byte_block, codes, band)
    for i in range((count + 3) & ~3):
        _set_gate(byte_block, i)

    block = byte_block.block
    points = pointer_to_elements(codes.quads)
    max_length = codes.sorted_keys.max_length
    step = max(2, _CACHED_CODES // (16 * quads)) & ~1  # leaves, in pairs
    end = min((band + 1) << codes.shift, len(max_length))
    visited = 0
    scored = 0
    for leaf in range(max(band << codes.shift, begin), end, step):
        last = min(leaf + step, end)
        for i in range(0, count, 4):
            if max_length[leaf] < candidates.least_passing_length(block, i):
                continue
            visited += min(4, count - i) * (last - leaf)
            # A loop of constant length is unrolled, which saves a tenth of the time for d = 9 to 12.
            if quads == 3:
                for pair in range(leaf, last, 2):
                    scored += _search_two_leaves(byte_block, points, 3, pair, i)
            else:
                for pair in range(leaf, last, 2):
                    scored += _search_two_leaves(byte_block, points, quads, pair, i)
    return visited, scored


@njit_nogil(error_model="numpy")
def search_bytes(
    codes: Codes,
    queries: F32,
    keys: F32,
    scores: F32,
    indices: I64,
    failed: Bools,
    start: int,
    stop: int,
) -> tuple[int, int]:
    """Search for rows ``start:stop`` of a graph's queries (R, d); count multiplied leaves and candidates.

    Takes the arguments of :func:`kmip_data.models.search.cpu.float_scan.search_floats`.
    """
    dim = keys.shape[1]
    quads = (dim + 3) // 4
    k = scores.shape[1]
    block, memory = candidates.new_block(BLOCK, dim, k)
    signed = np.zeros(BLOCK * quads * 4, np.int8)
    halves = np.empty(BLOCK, np.int32)
    wholes = np.empty(2 * BLOCK, np.int64)
    reals = np.zeros(5 * BLOCK + 3)
    to_scores = pointer_to_elements(scores)
    to_indices = pointer_to_elements(indices)
    visited = 0
    scored = 0
    # Warm up with full leaves only, because lanes without a key have a sum, too.
    groups = block.capacity // 16 - 1
    warm = min(_WARM_UP_LEAVES * groups, len(keys) // LEAF) & ~1
    if warm < 2 * groups:
        warm = 0
    products = np.empty(4 * warm * 16, np.float32)
    early = pointer_to_elements(products)
    errors = np.empty(8 * len(codes.step), np.float32)
    margins = pointer_to_elements(errors)

    for first in range(start, stop, BLOCK):
        count = min(BLOCK, stop - first)
        byte_block = _ByteBlock(
            block=block,
            keys=pointer_to_elements(keys),
            queries=pointer_to_elements(queries),
            first=first,
            dim=dim,
            key_row=pointer_to_elements(codes.key_row),
            quads=pointer_to_elements(signed.view(np.int32)),
            gate=pointer_to_elements(halves),
            bias=pointer_to_elements(wholes),
            num_scored=pointer_to_elements(wholes[BLOCK:]),
            shift=pointer_to_elements(reals),
            length=pointer_to_elements(reals[BLOCK:]),
            step=pointer_to_elements(reals[2 * BLOCK :]),
            error=pointer_to_elements(reals[3 * BLOCK :]),
            slack=pointer_to_elements(reals[4 * BLOCK :]),
            band=pointer_to_elements(reals[5 * BLOCK :]),
        )
        candidates.load_queries(block, queries, first, count, codes.sorted_keys)
        _encode_queries(byte_block, pointer_to_elements(signed), count, codes)

        if warm:
            for i in range(0, count, 4):
                scored += _warm_up(byte_block, codes, quads, i, groups, warm, early, margins)
            visited += count * warm
        for band in range(warm >> codes.shift, len(codes.step)):
            leaves, passed = _search_band(byte_block, codes, quads, count, band, warm)
            if not leaves:
                break
            visited += leaves
            scored += passed

        for i in range(count):
            if block.floor[i] != INFINITY:
                _score_and_prune_candidates(byte_block, i, 0)
            failed[first + i] = block.floor[i] == INFINITY
            if block.floor[i] != INFINITY:
                to = (first + i) * k
                candidates.write_best(block, i, byte_block.key_row, to_scores, to_indices, to)

    simd.keep_alive((memory, signed, halves, wholes, reals, products, errors))
    return visited, scored
