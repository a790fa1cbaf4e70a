"""ReLU and dropout in one step that keeps a mask of one byte per element for the backward pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


def relu_dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """``dropout(relu(x), p)``, any shape and floating dtype.

    On edges this is a large part of a training step: PyTorch draws a float64 number per element on
    one core and keeps two tensors of the size of ``x``. Here one 64-bit number gives four elements
    their chance, so ``p`` is taken to the nearest 1/65,536 (and the scale made to match), and a
    boolean mask is kept. Numbers come from torch's global generator, as those of ``nn.Dropout``.
    """
    if not training or p == 0:
        return nn.functional.relu(x)
    if torch.compiler.is_compiling():  # fuses torch's own, and could not follow what draws the numbers here
        return nn.functional.dropout(nn.functional.relu(x), p)
    out: Tensor = _ReLUDropout.apply(x, round(p * 2**16))  # type: ignore[no-untyped-call]
    return out


class _ReLUDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dropped: int) -> Tensor:
        drawn = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device=x.device).random_(-(2**63), None)
        mask = drawn.view(torch.int16)[: x.numel()].view(x.shape) >= dropped - 2**15
        mask &= x > 0
        ctx.save_for_backward(mask)
        ctx.scale = 2**16 / max(1, 2**16 - dropped)
        out: Tensor = x * ctx.scale
        return out.mul_(mask)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return (grad * ctx.scale).mul_(mask), None
