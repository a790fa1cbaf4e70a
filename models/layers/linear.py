"""Linear maps that use oneDNN for large float32 products on a CPU.

PyTorch uses MKL, which on AMD processors has half of oneDNN's speed or less: 12,950 × 72 by 72 × 72
takes 1.6 ms of a Zen 5 core with MKL and 0.7 ms with oneDNN; 30,000 × 235 by 235 × 235 takes 47 and
17 ms. oneDNN rounds sums in a different order. MKL still computes small products, which would gain
less than the call costs, and gradients of weights, which are equally fast.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn

from kmip_data.models.kernel_availability import can_use_cpu_kernels

MIN_ONEDNN_PRODUCTS = 2**22  #: fewest multiplications for oneDNN; they take MKL 0.1 ms


class Linear(nn.Linear):
    """``torch.nn.Linear`` computed by :func:`linear`."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 -- torch's name
        """(…, in) → (…, out)."""
        return linear(input, self.weight, self.bias)


def build_distance_gate(dim: int) -> nn.Module:
    """Build a perceptron 1 → ``dim`` → 1 that maps a squared distance to a number between 0 and 1."""
    return nn.Sequential(Linear(1, dim), nn.ReLU(), Linear(dim, 1), nn.Sigmoid())


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return ``x`` (…, in) · ``weight``ᵀ (out, in) + ``bias`` (out,): (…, out)."""
    if not prefers_onednn(x, weight):
        return nn.functional.linear(x, weight, bias)
    rows = x.reshape(-1, x.shape[-1])
    out: Tensor = _Linear.apply(rows, weight, bias)  # type: ignore[no-untyped-call]
    return out.view(*x.shape[:-1], len(weight))


def prefers_onednn(x: Tensor, weight: Tensor) -> bool:
    """True if oneDNN multiplies x (N, d) and weight (v, d) faster than MKL."""
    if not can_use_onednn(x, weight):  # first: torch.compile cannot trace the comparison of sizes
        return False
    return x.numel() * len(weight) >= MIN_ONEDNN_PRODUCTS


def can_use_onednn(*operands: Tensor) -> bool:
    """True if :func:`onednn_linear` supports the operands: float32 on a CPU, without autocast."""
    if not can_use_cpu_kernels(*operands) or torch.is_autocast_enabled("cpu"):
        return False
    return bool(torch.backends.mkldnn.enabled) and _has_onednn()


@functools.cache
def _has_onednn() -> bool:
    available = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return available and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def onednn_linear(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return ``a`` · ``b``ᵀ + ``bias`` by oneDNN: (n, k), (m, k), (m,) → (n, m)."""
    multiply = torch.ops.mkldnn._linear_pointwise  # noqa: SLF001
    result: Tensor = multiply(a, b, bias, "none", [], "")
    return result


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return onednn_linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        wants_x, wants_weight, wants_bias = ctx.needs_input_grad
        grad_x = None
        grad_weight = None
        if torch.is_grad_enabled():  # create_graph=True: the gradient must be differentiable
            grad_x = grad @ weight
        elif wants_x:
            grad_x = onednn_linear(grad, weight.t())
        if wants_weight:
            grad_weight = grad.t() @ x
        return grad_x, grad_weight, grad.sum(0) if wants_bias else None
