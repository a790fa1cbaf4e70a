"""Kernels that lay queries and keys out for the search: one tile after another, scaled, rounded, bounded.

Everything here only prepares the filter, whose margin covers it (``docs/triton.md``); scores are
taken from the rows as they came.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kmip_data.models.search.gpu.arithmetic import to_tf32, unit_power

_SIZES = ["count", "tile_count", "graph_count"]  # change from batch to batch: one compilation serves all


@triton.jit  # type: ignore[untyped-decorator]
def _centred(
    rows: tl.tensor, source: tl.tensor, valid: tl.tensor, centre: tl.tensor, column: tl.tensor, dim: tl.tensor
) -> tl.tensor:
    """(rows − centre) of some columns, float64; zero where there is no row or column."""
    inside = column < dim
    x = tl.load(rows + source[:, None] * dim + column[None, :], valid[:, None] & inside[None, :], 0.0)
    middle = tl.load(centre + column, inside, 0.0).to(tl.float64)
    return tl.where(valid[:, None], x.to(tl.float64) - middle[None, :], 0.0)


# Long: a kernel is one function.
@triton.jit(do_not_specialize=_SIZES)  # type: ignore[untyped-decorator]
def pack_keys(
    keys: tl.tensor,
    order: tl.tensor,
    tiles: tl.tensor,
    centres: tl.tensor,
    key_scale: tl.tensor,
    packed: tl.tensor,
    rows: tl.tensor,
    axes: tl.tensor,
    bounds: tl.tensor,
    count: tl.tensor,
    tile_count: tl.tensor,
    graph_count: tl.tensor,
    dim: tl.tensor,
    BN: tl.constexpr,
    D: tl.constexpr,
    CHUNK: tl.constexpr,
    ORDERED: tl.constexpr,
) -> None:
    """Pack one tile of keys and bound it by a norm and a cone; program (tile, head).

    Parameters
    ----------
    keys
        (H, count, dim) float32.
    order
        (H, count) int32: which key stands at each place; unused unless ORDERED.
    tiles
        (tile_count, 3) int32: first place, number of keys, graph.
    centres
        (H, graph_count, dim) float32, subtracted.
    key_scale
        (H,) float64 power of two; |key| and |key − centre| are at most 1 after it.
    packed
        Out: (H, tile_count, BN, D) float32 in TF32.
    rows
        Out: (H, tile_count, BN) int32 rows of ``keys``, −1 in the rest.
    axes
        Out: (H, tile_count, D) float32 in TF32: axis of the cone, length 1, or 0 where there is none.
    bounds
        Out: (3, H, tile_count) float32: largest norm, cosine and sine of the cone's half-angle,
        each rounded outwards.
    """
    tile, head = tl.program_id(0), tl.program_id(1).to(tl.int64)
    first = tl.load(tiles + tile * 3)
    size = tl.load(tiles + tile * 3 + 1)
    graph = tl.load(tiles + tile * 3 + 2)
    keys += head * count * dim
    centres += (head * graph_count + graph) * dim
    scale = tl.load(key_scale + head)
    out = head * tile_count + tile

    lane = tl.arange(0, BN)
    valid = lane < size
    source = first + lane
    if ORDERED:
        source = tl.load(order + head * count + source, valid, 0)
    tl.store(rows + out * BN + lane, tl.where(valid, source, -1))
    source = source.to(tl.int64)

    square = tl.zeros([BN], tl.float64)
    for start in range(0, D, CHUNK):
        x = _centred(keys, source, valid, centres, start + tl.arange(0, CHUNK), dim) * scale
        square += tl.sum(x * x, 1)
    norm = tl.sqrt(square)
    some = square > 0
    inverse = tl.where(some, 1 / tl.where(some, norm, 1.0), 0.0)

    length = tl.sum(tl.zeros([CHUNK], tl.float64))
    for start in range(0, D, CHUNK):
        x = _centred(keys, source, valid, centres, start + tl.arange(0, CHUNK), dim) * scale
        axis = tl.sum(x * inverse[:, None], 0)
        length += tl.sum(axis * axis)
    has_axis = length > 1e-12
    shrink = tl.where(has_axis, 1 / tl.sqrt(tl.where(has_axis, length, 1.0)), 0.0)

    cosine = tl.zeros([BN], tl.float64)
    for start in range(0, D, CHUNK):
        column = start + tl.arange(0, CHUNK)
        x = _centred(keys, source, valid, centres, column, dim) * scale
        axis = tl.sum(x * inverse[:, None], 0) * shrink
        cosine += tl.sum(x * inverse[:, None] * axis[None, :], 1)
        tl.store(axes + out * D + column, to_tf32(axis))
        tl.store(packed + (out * BN + lane[:, None]) * D + column[None, :], to_tf32(x))
    lowest = tl.min(tl.where(some, cosine, 1.0))
    lowest = tl.where(has_axis, tl.maximum(lowest - 2.0**-18, -1.0), -1.0)
    sine = tl.sqrt(1 - lowest * lowest)
    heads = tl.num_programs(1)
    tl.store(bounds + out, (tl.max(norm) * (1 + 2.0**-20)).to(tl.float32))
    tl.store(bounds + heads * tile_count + out, lowest.to(tl.float32))
    tl.store(bounds + 2 * heads * tile_count + out, (sine * (1 + 2.0**-20)).to(tl.float32))


@triton.jit(do_not_specialize=_SIZES)  # type: ignore[untyped-decorator]
def pack_queries(
    queries: tl.tensor,
    order: tl.tensor,
    tiles: tl.tensor,
    centres: tl.tensor,
    key_scale: tl.tensor,
    packed: tl.tensor,
    rows: tl.tensor,
    norms: tl.tensor,
    affine: tl.tensor,
    count: tl.tensor,
    tile_count: tl.tensor,
    graph_count: tl.tensor,
    dim: tl.tensor,
    BM: tl.constexpr,
    D: tl.constexpr,
    CHUNK: tl.constexpr,
    ORDERED: tl.constexpr,
) -> None:
    """Pack one tile of queries, each scaled to a norm in [1, 2); program (tile, head).

    Parameters as those of :func:`pack_keys`, and

    norms
        Out: (H, tile_count, BM) float32 norm after scaling, rounded up; 0 for a zero query.
    affine
        Out: (2, H, tile_count, BM) float64: factor and offset that bring a score into the filter's
        units: score · factor − offset.
    """
    tile, head = tl.program_id(0), tl.program_id(1).to(tl.int64)
    first = tl.load(tiles + tile * 3)
    size = tl.load(tiles + tile * 3 + 1)
    graph = tl.load(tiles + tile * 3 + 2)
    queries += head * count * dim
    centres += (head * graph_count + graph) * dim
    out = head * tile_count + tile

    lane = tl.arange(0, BM)
    valid = lane < size
    source = first + lane
    if ORDERED:
        source = tl.load(order + head * count + source, valid, 0)
    tl.store(rows + out * BM + lane, tl.where(valid, source, -1))
    source = source.to(tl.int64)

    square = tl.zeros([BM], tl.float64)
    offset = tl.zeros([BM], tl.float64)
    for start in range(0, D, CHUNK):
        column = start + tl.arange(0, CHUNK)
        inside = column < dim
        x = tl.load(queries + source[:, None] * dim + column[None, :], valid[:, None] & inside[None, :], 0.0)
        x = x.to(tl.float64)
        middle = tl.load(centres + column, inside, 0.0).to(tl.float64)
        square += tl.sum(x * x, 1)
        offset += tl.sum(x * middle[None, :], 1)
    norm = tl.sqrt(square)
    scale = unit_power(norm)
    for start in range(0, D, CHUNK):
        column = start + tl.arange(0, CHUNK)
        inside = valid[:, None] & (column < dim)[None, :]
        x = tl.load(queries + source[:, None] * dim + column[None, :], inside, 0.0).to(tl.float64)
        tl.store(packed + (out * BM + lane[:, None]) * D + column[None, :], to_tf32(x * scale[:, None]))
    factor = scale * tl.load(key_scale + head)
    heads = tl.num_programs(1)
    tl.store(norms + out * BM + lane, (norm * scale * (1 + 2.0**-20)).to(tl.float32))
    tl.store(affine + out * BM + lane, factor)
    tl.store(affine + (heads * tile_count + out) * BM + lane, offset * factor)
