"""Choice of the fused norm of nodes, and its equality to torch operations."""

from __future__ import annotations

import importlib.util

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from kmip_data.models.layers import norms as layers
from kmip_data.models.layers.norms import BatchNorm, NoNorm, relu_dropout

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed (Linux only)"
)


def chosen(device: str, norm: torch.nn.Module, dtypes=(torch.float32,) * 2, rows: int = 4, **options) -> str:
    """Return the choice; tensors are fake, so that no GPU is needed."""
    kernels = importlib.import_module("kmip_data.models.layers.gpu.norms")
    with FakeTensorMode(), torch.device(device), pytest.MonkeyPatch.context() as patch:
        patch.setattr(layers, "triton_runs", lambda device: device.type == "cuda")
        patch.setattr(kernels, "normed", lambda *_, **__: "kernels")
        patch.setattr(layers.nn.functional, "dropout", lambda rows, _: rows)
        patch.setattr(type(norm), "forward", lambda _, rows, *__: rows)
        found = layers.normed(norm, *(torch.empty(rows, 5, dtype=dtype) for dtype in dtypes), **options)
    return found if isinstance(found, str) else "torch"


@needs_triton
def test_who_takes_a_norm() -> None:
    norm, half = BatchNorm(5), torch.bfloat16
    assert chosen("cpu", norm) == "torch"
    assert chosen("cuda", norm) == chosen("cuda", norm, (torch.float32, half)) == "kernels"
    assert chosen("cuda", norm, activation="relu") == "kernels"
    assert chosen("cuda", norm, activation="gelu") == "torch"
    for odd in (torch.float64, torch.float16):
        assert chosen("cuda", norm, (odd, odd)) == "torch"
    assert (
        chosen("cuda", NoNorm(5)) == chosen("cuda", norm, rows=1) == chosen("cuda", norm, rows=0) == "torch"
    )
    assert chosen("cuda", norm.eval()) == "torch"
    with pytest.MonkeyPatch.context() as patch:  # several processes share the statistics
        patch.setattr(BatchNorm, "together", True)
        assert chosen("cuda", norm.train()) == "torch"


@pytest.mark.parametrize("activation", ["relu", "gelu", None])
def test_on_the_cpu_it_is_what_it_says(activation) -> None:
    rows, more, residual = torch.randn(3, 9, 5).unbind()
    torch.manual_seed(1)
    found = layers.normed(
        BatchNorm(5), rows, more, before=0.3, activation=activation, after=0.2, residual=residual
    )
    torch.manual_seed(1)
    expected = BatchNorm(5)(rows + torch.nn.functional.dropout(more, 0.3))
    if activation == "relu":
        expected = relu_dropout(expected, 0.2, training=True)
    elif activation == "gelu":
        expected = torch.nn.functional.dropout(torch.nn.functional.gelu(expected), 0.2)
    assert torch.equal(found, residual + expected)
    assert torch.equal(layers.normed(NoNorm(5), rows), rows)
