"""The search kernel: a tile of queries against the tiles of keys that its bounds cannot rule out.

A program takes tiles of queries from a common counter until none is left. For each it goes through
the graph's key tiles in groups, in a group from the most promising tile on: a TF32 product on tensor
cores filters, what passes is noted per query, and when a query's notes are full they are scored by
the rule (float64, index order) and merged with the best so far, which raises the filter.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kmip_data.models.search.gpu.keeping import clear, merge, raise_cut, write_attention, write_best

# Scores in the filter's units lie strictly between −4 and 4: |query| < 2 and |key| ≤ 1.
EVERYTHING = tl.constexpr(-4.0)
NOTHING = tl.constexpr(4.0)
DONE = tl.constexpr(-16.0)


@triton.jit  # type: ignore[untyped-decorator]
def _product(
    packed_queries: tl.tensor,
    q: tl.tensor,
    packed: tl.tensor,
    BM: tl.constexpr,
    BN: tl.constexpr,
    D: tl.constexpr,
    CHUNK: tl.constexpr,
) -> tl.tensor:
    """(BM, BN) TF32 products of the query tile with BN packed rows; operands are TF32 already."""
    row = tl.arange(0, BM)
    other = tl.arange(0, BN)
    product = tl.zeros([BM, BN], tl.float32)
    if D == CHUNK:
        column = tl.arange(0, CHUNK)
        block = tl.load(packed + other[None, :] * D + column[:, None])
        product = tl.dot(q, block, product, input_precision="tf32")
    else:
        for start in range(0, D, CHUNK):
            column = start + tl.arange(0, CHUNK)
            part = tl.load(packed_queries + row[:, None] * D + column[None, :])
            block = tl.load(packed + other[None, :] * D + column[:, None])
            product = tl.dot(part, block, product, input_precision="tf32")
    return product


@triton.jit  # type: ignore[untyped-decorator]
def _gaps(
    packed_queries: tl.tensor,
    q: tl.tensor,
    axes: tl.tensor,
    bounds: tl.tensor,
    plane: tl.tensor,
    first: tl.tensor,
    there: tl.tensor,
    norm: tl.tensor,
    cut: tl.tensor,
    slack: tl.tensor,
    BM: tl.constexpr,
    BT: tl.constexpr,
    D: tl.constexpr,
    CHUNK: tl.constexpr,
) -> tl.tensor:
    """(BT,) how far the best bound on a tile's keys is above its query's cut; negative: no key is wanted.

    The bound is R |q| cos(max(0, θ − h)), at least 0, with R the longest key of the tile, θ the
    angle between query and axis and h the cone's half-angle.
    """
    tile = tl.arange(0, BT)
    live = tile < there
    radius = tl.load(bounds + first + tile, live, 0.0)[None, :]
    cosine = tl.load(bounds + plane + first + tile, live, 0.0)[None, :]
    sine = tl.load(bounds + 2 * plane + first + tile, live, 0.0)[None, :]
    length = norm[:, None]
    # |q| cos θ, raised by its own error.
    along = _product(packed_queries, q, axes + first * D, BM, BT, D, CHUNK)
    along = tl.minimum(along + length * slack, length)
    across = tl.sqrt(tl.maximum((length - along) * (length + along), 0.0))
    reach = tl.where(along >= length * cosine, length, along * cosine + across * sine)
    bound = radius * (tl.maximum(reach, 0.0) + length * 2.0**-14) + 2.0**-40
    return tl.where(live, tl.max(bound - cut[:, None], 0), DONE)


# Sizes that change from batch to batch: not specialised for 1 or multiples of 16, so one compilation does.
_SIZES = ["query_count", "key_count", "query_tiles", "key_tiles", "k"]


# Long: a kernel is one function.
@triton.jit(do_not_specialize=_SIZES)  # type: ignore[untyped-decorator]
def search_tiles(
    queries: tl.tensor,
    keys: tl.tensor,
    query_rows: tl.tensor,
    packed_queries: tl.tensor,
    norms: tl.tensor,
    affine: tl.tensor,
    key_rows: tl.tensor,
    packed_keys: tl.tensor,
    axes: tl.tensor,
    bounds: tl.tensor,
    work: tl.tensor,
    ticket: tl.tensor,
    best: tl.tensor,
    noted: tl.tensor,
    noted_counts: tl.tensor,
    scores: tl.tensor,
    indices: tl.tensor,
    values: tl.tensor,
    output: tl.tensor,
    query_count: tl.tensor,
    key_count: tl.tensor,
    query_tiles: tl.tensor,
    key_tiles: tl.tensor,
    heads: tl.tensor,
    dim: tl.tensor,
    k: tl.tensor,
    value_width: tl.tensor,
    softmax_scale: tl.tensor,
    slack: tl.tensor,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BT: tl.constexpr,
    D: tl.constexpr,
    CHUNK: tl.constexpr,
    LOG_K2: tl.constexpr,
    LOG_C: tl.constexpr,
    LOG_RG: tl.constexpr,
    VCHUNK: tl.constexpr,
    SORTED: tl.constexpr,
    FUSED: tl.constexpr,
) -> None:
    """Search for all tiles of queries; see the module.

    Parameters
    ----------
    queries, keys
        (H, query_count, dim) and (H, key_count, dim) float32, as they came.
    query_rows, packed_queries, norms, affine
        As :func:`~kmip_data.models.search.gpu.packing.pack_queries` leaves them.
    key_rows, packed_keys, axes, bounds
        As :func:`~kmip_data.models.search.gpu.packing.pack_keys` leaves them.
    work
        (query_tiles, 3) int32: tile of queries, its graph's first tile of keys, their number; in
        the order in which they are taken.
    ticket
        (1,) int32, 0: the counter.
    best, noted, noted_counts
        Scratch of each program: (BM, K2) int64, (BM, C) int32, (BM,) int32.
    scores, indices
        Out unless FUSED: (H, query_count, k) float32 and int64.
    values, output
        If FUSED: (H, key_count, value_width), and out: (H, query_count, value_width).
    slack
        Error of a TF32 product relative to the norms of its operands.
    BT
        Key tiles in a group.
    LOG_K2, LOG_C, LOG_RG
        Logarithms of K2, slots for the best of a query (≥ k); C, its slots for notes (≥ K2 and
        ≥ BN); RG, queries merged at a time (≤ BM).
    SORTED
        Every group's keys are no longer than those of its graph's groups before it.
    """
    K2: tl.constexpr = 2**LOG_K2
    C: tl.constexpr = 2**LOG_C
    RG: tl.constexpr = 2**LOG_RG
    program = tl.program_id(0).to(tl.int64)
    best += program * BM * K2
    noted += program * BM * C
    noted_counts += program * BM
    lane = tl.arange(0, BM)
    in_tile = tl.arange(0, BN)

    item = tl.atomic_add(ticket, 1)
    while item < query_tiles * heads:
        head = (item % heads).to(tl.int64)
        tile = tl.load(work + (item // heads) * 3)
        first = head * key_tiles + tl.load(work + (item // heads) * 3 + 1)
        there = tl.load(work + (item // heads) * 3 + 2)
        here = head * query_tiles + tile
        my_rows = query_rows + here * BM
        my_packed = packed_queries + here * BM * D
        my_queries = queries + head * query_count * dim
        my_keys = keys + head * key_count * dim
        norm = tl.load(norms + here * BM + lane)
        factor = tl.load(affine + here * BM + lane)
        offset = tl.load(affine + (heads * query_tiles + here) * BM + lane)
        cut = tl.where(tl.load(my_rows + lane) >= 0, EVERYTHING, NOTHING)
        counts = tl.zeros([BM], tl.int32)
        q = tl.load(my_packed + lane[:, None] * D + tl.arange(0, CHUNK)[None, :])
        clear(best, BM, K2, RG)

        group = 0
        while group < there:
            ids = group + tl.arange(0, BT)
            live = ids < there
            longest = tl.max(tl.load(bounds + first + ids, live, 0.0)) * (1 + 2.0**-10) + 2.0**-30
            reachable = tl.max(norm * longest - cut) >= 0
            if reachable:
                gaps = _gaps(
                    my_packed, q, axes, bounds, heads * key_tiles, first + group, there - group,
                    norm, cut, slack, BM, BT, D, CHUNK,
                )  # fmt: skip
                gap, nearest = tl.max(gaps, 0, return_indices=True)
                while gap >= 0:
                    at = first + group + nearest
                    row = tl.load(key_rows + at * BN + in_tile)
                    product = _product(my_packed, q, packed_keys + at * BN * D, BM, BN, D, CHUNK)
                    error = norm * (tl.load(bounds + at) * slack)
                    passed = (product + error[:, None] >= cut[:, None]) & (row >= 0)[None, :]
                    found = tl.sum(passed.to(tl.int32), 1)
                    if tl.max(counts + found) > C:
                        # Make room, and see again which tiles are wanted: this one comes once more if it is.
                        merge(
                            my_queries, my_keys, my_rows, best, noted, noted_counts, counts,
                            dim, BM, LOG_K2, LOG_C, LOG_RG,
                        )  # fmt: skip
                        cut = raise_cut(best, cut, factor, offset, k, BM, K2)
                        counts = tl.zeros([BM], tl.int32)
                        left = _gaps(
                            my_packed, q, axes, bounds, heads * key_tiles, first + group, there - group,
                            norm, cut, slack, BM, BT, D, CHUNK,
                        )  # fmt: skip
                        gaps = tl.where(gaps > DONE, left, DONE)
                    else:
                        if tl.max(found) > 0:
                            place = counts[:, None] + tl.cumsum(passed.to(tl.int32), 1) - 1
                            place = noted + lane[:, None] * C + place
                            tl.store(place, tl.broadcast_to(row[None, :], [BM, BN]), passed)
                            counts += found
                        gaps = tl.where(tl.arange(0, BT) == nearest, DONE, gaps)
                    gap, nearest = tl.max(gaps, 0, return_indices=True)
                if (tl.max(counts) * 4 >= C) & (group + BT < there):
                    merge(
                        my_queries, my_keys, my_rows, best, noted, noted_counts, counts,
                        dim, BM, LOG_K2, LOG_C, LOG_RG,
                    )  # fmt: skip
                    cut = raise_cut(best, cut, factor, offset, k, BM, K2)
                    counts = tl.zeros([BM], tl.int32)
            group += BT
            if SORTED:
                group = tl.where(reachable, group, there)  # later groups reach no further
        merge(my_queries, my_keys, my_rows, best, noted, noted_counts, counts, dim, BM, LOG_K2, LOG_C, LOG_RG)

        if FUSED:
            my_values = values + head * key_count * value_width
            my_output = output + head * query_count * value_width
            write_attention(
                best, my_rows, my_values, my_output, k, value_width, softmax_scale, BM, K2, VCHUNK,
            )  # fmt: skip
        else:
            slot = head * query_count * k
            write_best(best, my_rows, scores + slot, indices + slot, k, BM, K2, RG)
        tl.debug_barrier()  # the next tile clears the scratch that this one has just read
        item = tl.atomic_add(ticket, 1)
