"""Batch norms on a GPU: statistics and gradients from sums of tiles, and the norm of nodes as one function.

With the operations around it, ``residual`` + dropout(relu(norm(rows + dropout(more)))), a norm of n
rows keeps one (n, d) tensor until the backward pass: its input.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from triton import cdiv

from kmip_data.models.layers.gpu import norm_kernels
from kmip_data.models.layers.gpu.norm_kernels import OPTIONS, channels_of_a_tile, programs

if TYPE_CHECKING:
    from kmip_data.models.layers.norms import BatchNorm

#: Steps of a program that sums over rows.
STEPS = 8
#: Elements of a step.
ROWS = 1024
#: Tiles and channels that a program adds up at a time.
FINISH: dict[str, Any] = {**OPTIONS, "BP": 512, "BC": 4, "num_warps": 8}

#: Seed (1,) int64 on the device, or None: no dropout; chance of 2³²; factor of kept elements.
Dropout = tuple[Tensor | None, int, float]


def dropout_of(probability: float, device: torch.device) -> Dropout:
    """Draw a seed, which stays on the device; the host does not wait for it."""
    dropped = round(probability * 2**32)
    seed = None
    if dropped:
        seed = torch.empty(1, dtype=torch.int64, device=device).random_()
    return seed, dropped, 1 / (1 - probability)


def constants_by_tiles(norm: BatchNorm, parts: Tensor) -> tuple[Tensor, Tensor]:
    """Compute :func:`.norms.constants_of` from number, mean and squares of tiles (tiles, 3, d)."""
    tiles, _, d = parts.shape
    constants = torch.empty(3, d, device=parts.device)
    deviation = torch.empty(d, dtype=torch.float64, device=parts.device)
    norm_kernels.finish[(cdiv(d, FINISH["BC"]),)](
        parts,
        tiles,
        norm.weight,
        norm.bias,
        norm.running_mean,
        norm.running_var,
        norm.num_batches_tracked,
        constants,
        deviation,
        D=d,
        EPS=norm.eps,
        MOMENTUM=norm.momentum,
        NOTE=True,
        **FINISH,
    )
    return constants, deviation


def sums_by_tiles(
    z: Tensor, grad: Tensor, constants: Tensor, drop: Dropout, *, relu: bool
) -> Tensor:
    """Σ g and Σ g · (z − mean) of tiles, (tiles, 2, d), g the gradient of a norm's output of z (E, d).

    ``grad`` is that of dropout(relu(norm(z))); ``relu`` False: without ReLU.
    """
    count, d = z.shape
    block = channels_of_a_tile(d)
    rows = ROWS // block
    parts = torch.empty(cdiv(count, rows * STEPS), 2, d, device=z.device)
    norm_kernels.sum_gradients[programs(count, rows * STEPS, d)](
        z,
        grad,
        constants,
        parts,
        *drop,
        count,
        D=d,
        STEPS=STEPS,
        BE=rows,
        BC=block,
        RELU=relu,
        **OPTIONS,
    )
    return parts


def gradients_by_tiles(
    parts: Tensor,
    constants: Tensor,
    deviation: Tensor,
    share: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute :func:`.norms.gradients_of` from the sums of :func:`sums_by_tiles`."""
    tiles, _, d = parts.shape
    out = torch.empty(7, d, device=parts.device)
    norm_kernels.finish_gradients[(cdiv(d, FINISH["BC"]),)](
        parts, tiles, constants, deviation, out, share, D=d, **FINISH
    )
    return out[5], out[6], out[:5]


def normed(
    norm: BatchNorm,
    rows: Tensor,
    more: Tensor | None,
    residual: Tensor | None,
    *,
    relu: bool,
    before: float,
    after: float,
) -> Tensor:
    """``residual`` + dropout(relu(norm(``rows`` + dropout(``more``)))) in training, (N, d) each, N > 1.

    Arguments that are None or False are omitted; ``before`` and ``after`` are the probabilities of
    dropout. Any of the tensors may be float32 or bfloat16, sums have the wider type.
    """
    normalised: Tensor = _Normed.apply(  # type: ignore[no-untyped-call]
        rows.contiguous(),
        None if more is None else more.contiguous(),
        None if residual is None else residual.contiguous(),
        norm.weight,
        norm.bias,
        norm,
        relu,
        dropout_of(before, rows.device),
        dropout_of(after, rows.device),
    )
    return normalised


class _Normed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        more: Tensor | None,
        residual: Tensor | None,
        _scale: Tensor,
        _shift: Tensor,
        norm: BatchNorm,
        relu: bool,
        before: Dropout,
        after: Dropout,
    ) -> Tensor:
        count, d = rows.shape
        block = channels_of_a_tile(d)
        z = rows
        if more is not None:
            z = torch.empty_like(rows, dtype=torch.promote_types(rows.dtype, more.dtype))
        dtype = z.dtype if residual is None else torch.promote_types(z.dtype, residual.dtype)
        out = torch.empty_like(rows, dtype=dtype)
        tile = ROWS // block
        parts = torch.empty(cdiv(count, tile * STEPS), 3, d, device=rows.device)
        with torch.cuda.device_of(rows):  # type: ignore[no-untyped-call]
            norm_kernels.add_and_count[programs(count, tile * STEPS, d)](
                rows,
                more,
                z,
                parts,
                *before,
                count,
                D=d,
                STEPS=STEPS,
                BE=tile,
                BC=block,
                **OPTIONS,
            )
            constants, deviation = constants_by_tiles(norm, parts)
            norm_kernels.update[programs(count, tile, d)](
                residual,
                z,
                constants,
                out,
                *after,
                count,
                D=d,
                BE=tile,
                BC=block,
                SHARED=False,
                RELU=relu,
                **OPTIONS,
            )
        ctx.save_for_backward(z, constants, deviation)
        ctx.around = relu, before, after
        ctx.dtypes = rows.dtype, None if more is None else more.dtype
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        z, constants, deviation = ctx.saved_tensors
        relu, before, after = ctx.around
        count, d = z.shape
        block = channels_of_a_tile(d)
        tile = ROWS // block
        dense = grad.contiguous()

        # Both summands have the same gradient unless one is dropped or of another type.
        rows_dtype, more_dtype = ctx.dtypes
        of_rows = torch.empty_like(z, dtype=rows_dtype)
        of_more = None
        shared = rows_dtype == more_dtype and not before[1]
        if more_dtype is not None and not shared:
            of_more = torch.empty_like(z, dtype=more_dtype)
        with torch.cuda.device_of(z):  # type: ignore[no-untyped-call]
            parts = sums_by_tiles(z, dense, constants, after, relu=relu)
            of_scale, of_shift, norm = gradients_by_tiles(parts, constants, deviation, 1 / count)
            norm_kernels.spread_gradients[programs(count, tile, d)](
                z,
                dense,
                norm,
                of_rows,
                of_more,
                *after,
                *before,
                count,
                D=d,
                BE=tile,
                BC=block,
                RELU=relu,
                **OPTIONS,
            )
        if shared:
            of_more = of_rows
        of_residual = grad if ctx.needs_input_grad[2] else None
        return of_rows, of_more, of_residual, of_scale, of_shift, *(None,) * 4
