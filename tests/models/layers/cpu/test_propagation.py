"""GCN's sum in one pass: bit for bit torch's operations."""

from __future__ import annotations

import pytest
import torch

from kmip_data.models.layers.adjacency import EdgeList, neighbor_sum
from kmip_data.models.layers.cpu.propagation import propagated


@pytest.mark.parametrize(
    ("nodes", "count", "d"), [(50, 200, 7), (3_000, 9_000, 35), (4, 0, 3), (1, 1, 1)]
)
def test_values_and_gradients_are_torchs_bit_for_bit(nodes, count, d):
    generator = torch.Generator().manual_seed(nodes)
    source, target = torch.randint(nodes, (2, count), generator=generator)
    edges = EdgeList(source, target, nodes)
    x = torch.randn(nodes, d, generator=generator).requires_grad_()
    others, loops = (number.float() for number in edges.degrees)
    scale, loop = (others + 1).rsqrt(), 1 - loops

    result = propagated(edges, x, scale, loop)
    scaled = scale * x
    expected = scale * (neighbor_sum(edges, scaled) + loop * scaled)
    assert torch.equal(result, expected)

    slope = torch.randn(d, nodes, generator=generator).T  # any layout
    (gradient,) = torch.autograd.grad(result, x, slope)
    (of_torch,) = torch.autograd.grad(expected, x, slope)
    assert torch.equal(gradient, of_torch)
