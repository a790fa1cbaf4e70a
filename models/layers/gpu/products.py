"""Products of edges with a weight in bf16x3: each float32 number as a sum of two of bfloat16.

a · b ≈ a₁ b₁ + a₁ b₂ + a₂ b₁, where a₁ is a to 8 significant bits, |a − a₁| ≤ 2⁻⁸ |a|, and a₂ the rest to as
many, |a − a₁ − a₂| ≤ 2⁻¹⁶ |a|. What is left out, a₂ b₂ and the rests, is at most 3 · 2⁻¹⁶ of |a b|, to first
order. Products of two such numbers are exact in float32, in which tensor cores sum them.
"""

from __future__ import annotations

import os

import torch
import triton
import triton.language as tl
from torch import Tensor

from kmip_data.models.layers.gpu.tiles import OPTIONS

MOST = 128  #: channels; a wider row has more sums than a program's registers hold
ROWS = 64  #: edges of a program
PRECISION = "ieee" if os.environ.get("TRITON_INTERPRET") == "1" else "bf16x3"  # which it does not know


@triton.jit  # type: ignore[untyped-decorator]
def multiply(
    rows: tl.tensor, weight: tl.tensor, addend: tl.tensor, out: tl.tensor, edges: tl.tensor,
    out_stride: tl.tensor, in_stride: tl.tensor,
    D: tl.constexpr, BR: tl.constexpr, MAIN: tl.constexpr, REST: tl.constexpr, ADD: tl.constexpr,
    PRECISION: tl.constexpr,
) -> None:  # fmt: skip
    """``out`` = ``rows`` · weightᵀ, + ``addend`` if ``ADD``; all (E, D) but the weight, which has strides.

    Channels of the result are two tiles side by side, of MAIN and REST (0: none), so that d = 76 takes
    64 + 16 and not 128; those of the rows are taken 16 at a time.
    """
    number = tl.program_id(0).to(tl.int64) * BR + tl.arange(0, BR)
    live = (number < edges)[:, None]
    place = number[:, None] * D
    main = tl.arange(0, MAIN)
    rest = MAIN + tl.arange(0, max(REST, 16))
    sums = tl.zeros((BR, MAIN), tl.float32)
    more = tl.zeros((BR, max(REST, 16)), tl.float32)
    for start in range(0, D, 16):
        channel = start + tl.arange(0, 16)
        of_rows = tl.load(rows + place + channel[None, :], mask=live & (channel < D)[None, :], other=0.0)
        from_ = channel[:, None] * in_stride
        there = (channel < D)[:, None] & (main < D)[None, :]
        of_weight = tl.load(weight + from_ + main[None, :] * out_stride, mask=there, other=0.0)
        sums = tl.dot(of_rows, of_weight, sums, input_precision=PRECISION)
        if REST > 0:
            there = (channel < D)[:, None] & (rest < D)[None, :]
            of_weight = tl.load(weight + from_ + rest[None, :] * out_stride, mask=there, other=0.0)
            more = tl.dot(of_rows, of_weight, more, input_precision=PRECISION)
    mask = live & (main < D)[None, :]
    if ADD:
        sums += tl.load(addend + place + main[None, :], mask=mask, other=0.0)
    tl.store(out + place + main[None, :], sums, mask=mask)
    if REST > 0:
        mask = live & (rest < D)[None, :]
        if ADD:
            more += tl.load(addend + place + rest[None, :], mask=mask, other=0.0)
        tl.store(out + place + rest[None, :], more, mask=mask)


def split_product(rows: Tensor, weight: Tensor, addend: Tensor | None = None) -> Tensor:
    """``rows`` (E, d) · ``weight`` (d, d) transposed, + ``addend`` (E, d); float32, d ≤ :data:`MOST`."""
    edges, d = rows.shape
    out = torch.empty_like(rows)
    with torch.cuda.device_of(rows):  # type: ignore[no-untyped-call]
        multiply[(-(-edges // ROWS),)](
            rows, weight, rows if addend is None else addend, out, edges, *weight.stride(),
            D=d, BR=ROWS, **widths(d), ADD=addend is not None, PRECISION=PRECISION, **OPTIONS,
        )  # fmt: skip
    return out


def widths(d: int) -> dict[str, int]:
    """Channels of the two tiles."""
    padded = -(-d // 16) * 16
    main = min(64, 1 << padded.bit_length() - 1)
    return {"MAIN": main, "REST": triton.next_power_of_2(padded - main) if padded > main else 0}
