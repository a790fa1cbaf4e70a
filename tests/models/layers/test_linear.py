"""Linear maps by oneDNN: float64 as the oracle, and where PyTorch's product stays."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from kmip_data.models.layers import linear
from kmip_data.models.layers.linear import Linear


def _with_gradients(layer: nn.Module, x: Tensor, slope: Tensor) -> list[Tensor]:
    x = x.detach().requires_grad_()
    out = layer(x)
    out.backward(slope)
    return [out.detach(), x.grad, *(parameter.grad for parameter in layer.parameters())]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(3000, 35), (60, 50, 35)])
def test_value_and_gradients_agree_with_float64(monkeypatch, bias, shape):
    monkeypatch.setattr(linear, "MIN_ONEDNN_PRODUCTS", 1)
    generator = torch.Generator().manual_seed(0)
    layer = Linear(35, 23, bias=bias)
    exact = nn.Linear(35, 23, bias=bias).double()
    exact.load_state_dict(layer.state_dict())
    x = torch.randn(shape, generator=generator)
    slope = torch.randn(*shape[:-1], 23, generator=generator)

    results = _with_gradients(layer, x, slope)
    expected = _with_gradients(exact, x.double(), slope.double())
    for result, value in zip(results, expected, strict=True):
        assert result.dtype == torch.float32
        torch.testing.assert_close(result.double(), value, rtol=1e-5, atol=1e-4)


def test_only_large_float32_products_use_onednn(monkeypatch):
    calls = []
    product = linear.onednn_linear
    monkeypatch.setattr(linear, "onednn_linear", lambda *args: calls.append(1) or product(*args))
    monkeypatch.setattr(linear, "MIN_ONEDNN_PRODUCTS", 100 * 8 * 8)
    layer, x = Linear(8, 8), torch.randn(100, 8)
    layer(x)
    assert calls == [1]
    calls.clear()

    assert torch.equal(layer(x[:99]), nn.functional.linear(x[:99], layer.weight, layer.bias))
    Linear(8, 8).double()(x.double())
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
    with torch.backends.mkldnn.flags(enabled=False):
        layer(x)
    assert not calls


def test_unneeded_gradients_are_not_computed(monkeypatch):
    monkeypatch.setattr(linear, "MIN_ONEDNN_PRODUCTS", 1)
    layer, x = Linear(8, 8), torch.randn(100, 8)
    shapes = []
    product = linear.onednn_linear
    monkeypatch.setattr(
        linear, "onednn_linear", lambda a, *b: shapes.append(a.shape) or product(a, *b)
    )
    layer(x).sum().backward()
    assert shapes == [(100, 8)]
    assert layer.weight.grad is not None


def test_the_second_derivative_agrees_with_float64(monkeypatch):
    monkeypatch.setattr(linear, "MIN_ONEDNN_PRODUCTS", 1)
    layer = Linear(7, 6)
    exact = nn.Linear(7, 6).double()
    exact.load_state_dict(layer.state_dict())

    def second(layer: nn.Module, x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
        slope.square().sum().backward()
        return layer.weight.grad

    x = torch.randn(50, 7)
    result = second(layer, x).double()
    torch.testing.assert_close(result, second(exact, x.double()), rtol=1e-4, atol=1e-3)
