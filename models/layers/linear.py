"""Linear maps whose large float32 products on a CPU are oneDNN's.

PyTorch leaves these products to MKL, which on AMD processors runs them at a third of oneDNN's
speed: 30,000 × 235 by 235 × 235 takes 47 ms of a Zen 5 core with MKL and 17 ms with oneDNN, the
gradient of the weight 40 and 24 ms. Sums are rounded in a different order, so small products, which
gain little, stay MKL's.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

#: Multiplications from which a product is oneDNN's, two milliseconds of MKL. Helsinki's networks
#: stay below.
LARGE = 2**27


class Linear(nn.Linear):
    """``torch.nn.Linear`` by :func:`linear`."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 -- torch's name
        """(…, in) → (…, out)."""
        return linear(input, self.weight, self.bias)


def closeness(dim: int) -> nn.Module:
    """A number between 0 and 1 of a squared distance, by a perceptron 1 → ``dim`` → 1."""
    return nn.Sequential(Linear(1, dim), nn.ReLU(), Linear(dim, 1), nn.Sigmoid())


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Multiply ``x`` (…, in) by the transposed ``weight`` (out, in) and add ``bias`` (out,): (…, out)."""
    if torch.compiler.is_compiling() or not _is_large(x, weight):
        return nn.functional.linear(x, weight, bias)
    rows = x.reshape(-1, x.shape[-1])
    out: Tensor = _Linear.apply(rows, weight, bias)  # type: ignore[no-untyped-call]
    return out.view(*x.shape[:-1], len(weight))


def _is_large(x: Tensor, weight: Tensor) -> bool:
    """True if oneDNN takes the product: on a CPU, float32 on both sides, at least ``LARGE``."""
    if x.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
        return False
    if x.dtype != torch.float32 or weight.dtype != torch.float32:
        return False
    multiplications = x.numel() * len(weight)
    return multiplications >= LARGE and bool(torch.backends.mkldnn.enabled) and _has_onednn()


@functools.cache
def _has_onednn() -> bool:
    available = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return available and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _product(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """``a`` · ``b``ᵀ + ``bias``: (n, k), (m, k), (m,) → (n, m)."""
    multiply = torch.ops.mkldnn._linear_pointwise  # noqa: SLF001
    product: Tensor = multiply(a, b, bias, "none", [], "")
    return product


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        wants_x, wants_weight, wants_bias = ctx.needs_input_grad
        grad_x = _product(grad, weight.t()) if wants_x else None
        grad_weight = _product(grad.t(), x.t()) if wants_weight else None
        grad_bias = grad.sum(0) if wants_bias else None
        return grad_x, grad_weight, grad_bias
