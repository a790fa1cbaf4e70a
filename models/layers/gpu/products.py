"""Products of edges with a weight in bfloat16, of float32 numbers as sums of two or three of it.

bf16x3: a · b ≈ a₁ b₁ + a₁ b₂ + a₂ b₁, where a₁ is a to 8 significant bits, |a − a₁| ≤ 2⁻⁸ |a|, and a₂ the
rest to as many, |a − a₁ − a₂| ≤ 2⁻¹⁶ |a|. What is left out, a₂ b₂ and the rests, is at most 3 · 2⁻¹⁶ of
|a b|, to first order. bf16x6 takes a₂ b₂ + a₁ b₃ + a₃ b₁ besides and leaves out 4 · 2⁻²⁴, as much as
roundings of float32. Products of two such numbers are exact in float32, in which tensor cores sum them.
"""

from __future__ import annotations

import os

import torch
import triton
import triton.language as tl
from torch import Tensor

from kmip_data.models.layers.gpu.norm_kernels import OPTIONS, form, through_norm
from kmip_data.models.layers.gpu.norms import Dropout

Norming = tuple[
    Tensor, Tensor, Dropout
]  #: z (E, d); its norm's factors, shifts, means (3, d); what follows
MOST = 128  #: channels; a wider row has more sums than a program's registers hold
ROWS = 64  #: edges of a program
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # by what knows neither of the two


@triton.jit
def _add(sums, of_rows, weight, there, tile, out_stride, D: tl.constexpr, PRECISION: tl.constexpr):
    """``sums`` (BR, tile) and what 16 channels of the rows add; ``weight`` points to these, (16, 1)."""
    mask = there & (tile < D)[None, :]
    of_weight = tl.load(weight + tile[None, :] * out_stride, mask=mask, other=0.0)
    return tl.dot(of_rows, of_weight.to(of_rows.dtype), sums, input_precision=PRECISION)


@triton.jit
def multiply(
    rows, weight, addend, out, edges, out_stride, in_stride, pre, norm, new, parts, seed, dropped, kept_scale,
    D: tl.constexpr, BR: tl.constexpr, MAIN: tl.constexpr, REST: tl.constexpr, LAST: tl.constexpr,
    SHARED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """``out`` = ``rows`` · weightᵀ + ``addend``; all (E, D) but the weight, which has strides.

    What is None is left out. With ``new`` the rows are these, made on the way of ``pre`` and the old ones,
    ``rows``. With ``parts`` (tiles, 2, D) ``out`` is the gradient of rows made of ``pre``, and ``parts`` what
    :func:`.norm_kernels.sum_gradients` sums of the two.

    Channels of the result are up to three tiles side by side, of MAIN, REST and LAST (0: none), so that
    d = 76 takes 64 + 16 and not 128; those of the rows are taken 16 at a time.
    """
    number = tl.program_id(0).to(tl.int64) * BR + tl.arange(0, BR)
    live = (number < edges)[:, None]
    place = number[:, None] * D
    main = tl.arange(0, MAIN)
    rest = MAIN + tl.arange(0, max(REST, 16))
    last = MAIN + REST + tl.arange(0, max(LAST, 16))
    sums = tl.zeros((BR, MAIN), tl.float32)
    sums_rest = tl.zeros((BR, max(REST, 16)), tl.float32)
    sums_last = tl.zeros((BR, max(LAST, 16)), tl.float32)
    for start in range(0, D, 16):
        channel = start + tl.arange(0, 16)
        at = place + channel[None, :]
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
        at = weight + channel[:, None] * in_stride
        there = (channel < D)[:, None]
        sums = _add(sums, of_rows, at, there, main, out_stride, D, PRECISION)
        if REST > 0:
            sums_rest = _add(sums_rest, of_rows, at, there, rest, out_stride, D, PRECISION)
        if LAST > 0:
            sums_last = _add(sums_last, of_rows, at, there, last, out_stride, D, PRECISION)
    _finish(sums, addend, out, place, main, live, pre, norm, parts, seed, dropped, kept_scale, D)
    if REST > 0:
        _finish(
            sums_rest,
            addend,
            out,
            place,
            rest,
            live,
            pre,
            norm,
            parts,
            seed,
            dropped,
            kept_scale,
            D,
        )
    if LAST > 0:
        _finish(
            sums_last,
            addend,
            out,
            place,
            last,
            live,
            pre,
            norm,
            parts,
            seed,
            dropped,
            kept_scale,
            D,
        )


@triton.jit
def _finish(
    sums,
    addend,
    out,
    place,
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
    at = place + channel[None, :]
    mask = live & (channel < D)[None, :]
    if addend is not None:
        sums += tl.load(addend + at, mask=mask, other=0.0).to(tl.float32)
    stored = tl.where(mask, sums, 0.0).to(out.dtype.element_ty)
    tl.store(out + at, stored, mask=mask)
    if parts is not None:
        z = tl.load(pre + at, mask=mask, other=0.0).to(tl.float32)
        g = stored.to(tl.float32)
        away, g = through_norm(z, g, norm, seed, dropped, kept_scale, at, channel, D, True)
        part = parts + tl.program_id(0).to(tl.int64) * 2 * D + channel
        tl.store(part, tl.sum(g, 0), mask=channel < D)
        tl.store(part + D, tl.sum(g * away, 0), mask=channel < D)


def multiplied(
    rows: Tensor, weight: Tensor, addend: Tensor | None = None, *, split: str, of: Norming | None = None,
    new: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """``rows`` (E, d) · ``weight`` (d, d) transposed, + ``addend`` (E, d); d ≤ :data:`MOST`.

    With ``of`` and ``new`` (E, d), ``new`` becomes ``rows`` + dropout(relu(norm(z))), rows perhaps being one
    for all, and is multiplied in their place. With ``of`` alone the product is the gradient of what was made
    of z, and :func:`.norms.sums_by_tiles` of it comes second, else None. ``split`` is bf16x3 or bf16x6.
    """
    out = torch.empty_like(rows if new is None else new)
    (edges, d), tiles = out.shape, triton.cdiv(len(out), ROWS)
    z, constants, drop = of or (None, None, (None, 0, 1.0))
    parts = torch.empty(tiles, 2, d, device=out.device) if of is not None and new is None else None
    with torch.cuda.device_of(rows):
        multiply[(tiles,)](
            rows, weight, addend, out, edges, *weight.stride(), z, constants, new, parts, *drop,
            D=d, BR=ROWS, **widths(d), SHARED=len(rows) < edges,
            PRECISION="ieee" if INTERPRETED else split, num_stages=1, **OPTIONS,
        )  # fmt: skip
    return out, parts


def widths(d: int) -> dict[str, int]:
    """Channels of the three tiles, together d rounded up to a multiple of 16."""
    left = -(-d // 16) * 16
    found = {}
    for name in ("MAIN", "REST", "LAST"):
        found[name] = min(64, 1 << left.bit_length() - 1) if left else 0
        left -= found[name]
    return found
