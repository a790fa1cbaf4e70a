"""Products of edges with a weight in bfloat16, where float32 numbers are sums of two or three bfloat16.

bf16x3: a · b ≈ a₁ b₁ + a₁ b₂ + a₂ b₁, where a₁ is a to 8 significant bits, |a − a₁| ≤ 2⁻⁸ |a|, and
a₂ the remainder to as many, |a − a₁ − a₂| ≤ 2⁻¹⁶ |a|. The omitted terms, a₂ b₂ and the remainders,
are at most 3 · 2⁻¹⁶ of |a b|, to first order. bf16x6 adds a₂ b₂ + a₁ b₃ + a₃ b₁ and omits 4 · 2⁻²⁴,
as much as roundings of float32. Products of two such numbers are exact in float32, in which tensor
cores sum them.
"""

from __future__ import annotations

import os

import torch
import triton
import triton.language as tl
from torch import Tensor

from kmip_data.models.layers.gpu.norm_kernels import OPTIONS, form, loaded, through_norm
from kmip_data.models.layers.gpu.norms import Dropout

#: z (E, d); its norm's factors, shifts, means (3, d); the dropout after it.
Norming = tuple[Tensor, Tensor, Dropout]
#: Channels; a wider row has more sums than a program's registers hold.
MOST = 128
#: Edges of a program.
ROWS = 64
#: The interpreter has neither of the two splits.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


@triton.jit
def _add(
    sums,
    of_rows,
    weight,
    exists,
    tile,
    out_stride,
    D: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Add 16 channels of the rows to ``sums`` (BR, tile).

    ``weight`` points to these channels, (16, 1).
    """
    mask = exists & (tile < D)[None, :]
    of_weight = tl.load(weight + tile[None, :] * out_stride, mask=mask, other=0.0)
    return tl.dot(of_rows, of_weight.to(of_rows.dtype), sums, input_precision=PRECISION)


@triton.jit
def multiply(
    rows,
    weight,
    addend,
    out,
    edges,
    out_stride,
    in_stride,
    pre,
    norm,
    new,
    parts,
    seed,
    dropped,
    kept_scale,
    D: tl.constexpr,
    BR: tl.constexpr,
    MAIN: tl.constexpr,
    REST: tl.constexpr,
    LAST: tl.constexpr,
    SHARED: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """``out`` = ``rows`` · weightᵀ + ``addend``; all (E, D) but the weight, which has strides.

    An argument that is None is omitted. With ``new`` the rows are these, formed in this pass from
    ``pre`` and the old ones, ``rows``. With ``parts`` (tiles, 2, D) ``out`` is the gradient of rows
    formed from ``pre``, and ``parts`` the sums of :func:`.norm_kernels.sum_gradients` of the two.

    Channels of the result are up to three adjacent tiles, of MAIN, REST and LAST (0: none), so that
    d = 76 takes 64 + 16 and not 128; those of the rows are taken 16 at a time.
    """
    number = tl.program_id(0).to(tl.int64) * BR + tl.arange(0, BR)
    live = (number < edges)[:, None]
    row = number[:, None] * D
    main = tl.arange(0, MAIN)
    rest = MAIN + tl.arange(0, max(REST, 16))
    last = MAIN + REST + tl.arange(0, max(LAST, 16))
    sums = tl.zeros((BR, MAIN), tl.float32)
    sums_rest = tl.zeros((BR, max(REST, 16)), tl.float32)
    sums_last = tl.zeros((BR, max(LAST, 16)), tl.float32)
    for start in range(0, D, 16):
        # 1. 16 channels of the rows, as stored or formed now.
        channel = start + tl.arange(0, 16)
        at = row + channel[None, :]
        mask = live & (channel < D)[None, :]
        if new is not None:
            of_rows = form(
                rows, pre, norm, at, channel, mask, seed, dropped, kept_scale, D, SHARED, True
            )
            of_rows = of_rows.to(new.dtype.element_ty)
            tl.store(new + at, of_rows, mask=mask)
        else:
            of_rows = tl.load(rows + at, mask=mask, other=0.0)
        if PRECISION == "ieee":  # the interpreter multiplies no bfloat16
            of_rows = of_rows.to(tl.float32)
        # 2. Their products, added to each tile of the result.
        of_weight = weight + channel[:, None] * in_stride
        exists = (channel < D)[:, None]
        sums = _add(sums, of_rows, of_weight, exists, main, out_stride, D, PRECISION)
        if REST > 0:
            sums_rest = _add(sums_rest, of_rows, of_weight, exists, rest, out_stride, D, PRECISION)
        if LAST > 0:
            sums_last = _add(sums_last, of_rows, of_weight, exists, last, out_stride, D, PRECISION)
    _finish(sums, addend, out, row, main, live, pre, norm, parts, seed, dropped, kept_scale, D)
    if REST > 0:
        _finish(
            sums_rest, addend, out, row, rest, live, pre, norm, parts, seed, dropped, kept_scale, D
        )
    if LAST > 0:
        _finish(
            sums_last, addend, out, row, last, live, pre, norm, parts, seed, dropped, kept_scale, D
        )


@triton.jit
def _finish(
    sums,
    addend,
    out,
    row,
    channel,
    live,
    pre,
    norm,
    parts,
    seed,
    dropped,
    kept_scale,
    D: tl.constexpr,
):
    """Write one of the tiles of :func:`multiply`."""
    at = row + channel[None, :]
    exists = channel < D
    mask = live & exists[None, :]
    if addend is not None:
        sums += loaded(addend + at, mask)
    stored = tl.where(mask, sums, 0.0).to(out.dtype.element_ty)
    tl.store(out + at, stored, mask=mask)
    if parts is not None:
        z = loaded(pre + at, mask)
        g = stored.to(tl.float32)
        away, g = through_norm(z, g, norm, seed, dropped, kept_scale, at, channel, D, True)
        part = parts + tl.program_id(0).to(tl.int64) * 2 * D + channel
        tl.store(part, tl.sum(g, 0), mask=exists)
        tl.store(part + D, tl.sum(g * away, 0), mask=exists)


def multiplied(
    rows: Tensor,
    weight: Tensor,
    addend: Tensor | None = None,
    *,
    split: str,
    norming: Norming | None = None,
    new: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """``rows`` (E, d) · ``weight`` (d, d) transposed, + ``addend`` (E, d); d ≤ :data:`MOST`.

    With ``norming`` and ``new`` (E, d), ``new`` becomes ``rows`` + dropout(relu(norm(z))), where
    rows may be one for all, and is multiplied instead of them. With ``norming`` alone the product
    is the gradient of new edges formed from z, and its :func:`.norms.sums_by_tiles` are the second
    result, else None. ``split`` is bf16x3 or bf16x6.
    """
    out = torch.empty_like(rows if new is None else new)
    edges, d = out.shape
    tiles = triton.cdiv(edges, ROWS)
    z = None
    constants = None
    drop: Dropout = (None, 0, 1.0)
    parts = None
    if norming is not None:
        z, constants, drop = norming
        if new is None:
            parts = torch.empty(tiles, 2, d, device=out.device)
    with torch.cuda.device_of(rows):
        multiply[(tiles,)](
            rows,
            weight,
            addend,
            out,
            edges,
            *weight.stride(),
            z,
            constants,
            new,
            parts,
            *drop,
            D=d,
            BR=ROWS,
            **widths(d),
            SHARED=len(rows) < edges,
            PRECISION="ieee" if INTERPRETED else split,
            num_stages=1,
            **OPTIONS,
        )
    return out, parts


def widths(d: int) -> dict[str, int]:
    """Channels of the three tiles, together d rounded up to a multiple of 16."""
    left = -(-d // 16) * 16
    sizes = {}
    for name in ("MAIN", "REST", "LAST"):
        size = 0
        if left:
            largest_power = 1 << left.bit_length() - 1
            size = min(64, largest_power)
        sizes[name] = size
        left -= size
    return sizes
