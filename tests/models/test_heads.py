"""The node head: GraphGym's perceptron with its hidden row normalisation."""

from __future__ import annotations

import pytest
import torch

from kmip_data.models.heads import NodeHead

X = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("l2norm", [True, False])
def test_equals_its_formula(layers: int, l2norm: bool) -> None:
    head = NodeHead(5, 4, layers=layers, l2norm=l2norm)
    rows = X
    for linear in head.hidden:
        rows = torch.relu(rows @ linear.weight.T + linear.bias)
        if l2norm:
            rows = rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-12)
    torch.testing.assert_close(head(X), rows @ head.out.weight.T + head.out.bias)
    assert len(head.hidden) == layers - 1


def test_a_row_of_zeros_stays_finite() -> None:
    head = NodeHead(5, 4, layers=2, l2norm=True)
    with torch.no_grad():
        head.hidden[0].weight.zero_()
        head.hidden[0].bias.fill_(-1)
    out = head(X.requires_grad_())
    out.sum().backward()
    assert bool(out.isfinite().all())
    assert bool(X.grad.isfinite().all())
