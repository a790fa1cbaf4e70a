"""A norm of nodes with what stands before and after it: fused on a GPU, in torch operations elsewhere.

Fused are batch norms in training, of float32 and bfloat16, whose statistics are of this process alone. Which
it is depends on the device, the dtypes and the norm; the two draw other chances of dropout.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from kmip_data.models.layers.batch import GraphBatch
from kmip_data.models.layers.norms import ALL, BatchNorm
from kmip_data.models.layers.triton_devices import triton_runs

Activation = Literal["relu", "gelu"]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": nn.functional.relu, "gelu": nn.functional.gelu}


def normed(
    norm: nn.Module,
    rows: Tensor,
    more: Tensor | None = None,
    batch: GraphBatch | None = None,
    *,
    before: float = 0.0,
    activation: Activation | None = None,
    after: float = 0.0,
    residual: Tensor | None = None,
) -> Tensor:
    """``residual`` + dropout(activation(norm(``rows`` + dropout(``more``)))), (N, d) each.

    What is None is left out. ``before`` and ``after`` are the probabilities of the two dropouts, 0 outside
    training; ``norm`` is one of :data:`~.norms.NORMS`, and rows are the nodes of ``batch`` (None: one graph).
    """
    counted = ALL if batch is None else batch.node_rows
    if activation != "gelu" and type(norm) is BatchNorm and norm.uses_batch(len(rows)) and not norm.together:
        kernels = _kernels(rows, more, residual)
        if kernels is not None:
            relu = activation is not None
            options = {"relu": relu, "before": before, "after": after, "counted": counted}
            fused: Tensor = kernels.normed(norm, rows, more, residual, **options)
            return fused
    if more is not None:
        rows = rows + nn.functional.dropout(more, before)
    if isinstance(norm, BatchNorm):
        rows = norm(rows, counted)
    else:
        rows = norm(rows) if batch is None else norm(rows, batch.graph, batch.num_graphs)
    if activation is not None:
        rows = activated(rows, activation, after)
    return rows if residual is None else residual + rows


def relu_then_dropout(rows: Tensor, probability: float) -> Tensor:
    """``dropout(relu(rows))``, any shape, elsewhere by torch's own; the probability is 0 outside training."""
    kernels = _kernels(rows) if probability else None
    if kernels is None:
        return nn.functional.dropout(nn.functional.relu(rows), probability)
    fused: Tensor = kernels.relu_dropout(rows, probability)
    return fused


def _kernels(*tensors: Tensor | None) -> Any:
    """The module of fused passes that take these, or None."""
    given = [tensor for tensor in tensors if tensor is not None]
    if torch.compiler.is_compiling() or not triton_runs(given[0].device):
        return None
    if any(tensor.dtype not in {torch.float32, torch.bfloat16} for tensor in given) or not given[0].numel():
        return None
    return importlib.import_module("kmip_data.models.layers.gpu.norms")


def activated(rows: Tensor, activation: Activation, dropout: float) -> Tensor:
    """``dropout(activation(rows))``; the probability is 0 outside training."""
    if activation == "gelu":
        return nn.functional.dropout(nn.functional.gelu(rows), dropout)
    return relu_dropout(rows, dropout, training=True)


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
