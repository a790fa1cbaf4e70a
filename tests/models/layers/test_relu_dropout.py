"""ReLU and dropout in one: the same distribution, gradients through what was kept."""

from __future__ import annotations

import pytest
import torch

from kmip_data.models.layers.norms import relu_dropout

X = torch.randn(3, 41, 7, generator=torch.Generator().manual_seed(0))  # 861 elements: no multiple of four


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_keeps_each_positive_value_with_its_chance(p: float) -> None:
    torch.manual_seed(0)
    ones = torch.ones(400_001)
    out = relu_dropout(ones, p, training=True)
    kept = out > 0
    assert abs(float(kept.float().mean()) - (1 - p)) < 4 * (p * (1 - p) / 400_000) ** 0.5
    assert bool((out[kept] == out[kept][0]).all())
    assert abs(float(out[kept][0]) * (1 - p) - 1) < 1e-4
    # Four elements share a draw: their chances must not hang together.
    four = kept[:400_000].view(-1, 4).float()
    together = (four - four.mean()).T @ (four - four.mean()) / len(four)
    off = together - torch.diag(together.diagonal())
    assert float(off.abs().max()) < 5 * p * (1 - p) / 100_000**0.5


def test_gradient_flows_where_the_value_did() -> None:
    x = X.clone().requires_grad_()
    out = relu_dropout(x, 0.3, training=True)
    weight = torch.randn(X.shape)
    (out * weight).sum().backward()
    out = out.detach()
    scale = float(out[out > 0][0] / X[out > 0][0])
    torch.testing.assert_close(out, torch.where(out > 0, X * scale, 0.0))
    torch.testing.assert_close(x.grad, torch.where(out > 0, weight * scale, 0.0))
    assert bool(((out == 0) & (X > 0)).any())
    assert bool((out[X <= 0] == 0).all())


def test_follows_the_global_generator() -> None:
    results = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        results.append(relu_dropout(X, 0.3, training=True))
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


@pytest.mark.parametrize(("p", "training"), [(0.0, True), (0.3, False)])
def test_is_a_relu_otherwise(p: float, training: bool) -> None:
    assert torch.equal(relu_dropout(X, p, training=training), X.relu())


def test_nothing() -> None:
    assert relu_dropout(X[:0], 0.3, training=True).shape == (0, 41, 7)


def test_keeps_one_byte_an_element() -> None:
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.nbytes) or t, lambda t: t):
        relu_dropout(X.clone().requires_grad_(), 0.3, training=True)
    assert sum(kept) == X.numel()
