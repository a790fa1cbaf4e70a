"""Attention by random features: performer-pytorch's layer on each graph alone; its draws; its networks."""

from __future__ import annotations

import itertools

import pytest
import torch
from support.allocations import saved_for_backward
from support.cases import check_each
from torch import nn

from kmip_data.models import PerformerAttention
from kmip_data.models.attention import performer
from kmip_data.models.attention.performer import orthogonal_directions
from kmip_data.models.config import ATTENTION
from kmip_data.models.parts import Place

PTR = [0, 4, 4, 5, 17, 21, 23, 40]
DIM, HEADS, WIDE = 6, 2, 5


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(7)


def layer(**options) -> PerformerAttention:
    return PerformerAttention(DIM, **{"heads": HEADS, "head_dim": WIDE, **options}).double()


def nodes(count: int = 40) -> torch.Tensor:
    return torch.randn(count, DIM, dtype=torch.float64, requires_grad=True)


def feature(row: torch.Tensor, direction: torch.Tensor, largest: torch.Tensor) -> torch.Tensor:
    """One feature of one query or key; its maximum is no function of the input (release 1.1.4)."""
    scaled = row / len(row) ** 0.25
    return torch.exp(direction @ scaled - scaled @ scaled / 2 - largest.detach()) + 1e-4


def oracle(
    attention: PerformerAttention, x: torch.Tensor, ptr: list[int], *, pads: bool = False
) -> torch.Tensor:
    """Graph by graph, head by head, node by node; ``pads``: with zero rows up to the largest graph."""
    directions = attention.fast_attention.projection_matrix
    longest = max(b - a for a, b in itertools.pairwise(ptr))
    rows = []
    for start, stop in itertools.pairwise(ptr):
        padded = nn.functional.pad(x[start:stop], (0, 0, 0, longest - (stop - start) if pads else 0))
        q, k, v = (
            to(padded).view(len(padded), HEADS, WIDE)
            for to in (attention.to_q, attention.to_k, attention.to_v)
        )
        for node in range(stop - start):
            parts = []
            for head in range(HEADS):
                exponents = [w @ row / WIDE**0.25 for w in directions for row in k[:, head]]
                top = torch.stack(exponents).max()
                own = torch.stack([w @ q[node, head] / WIDE**0.25 for w in directions]).max()
                query = [feature(q[node, head], w, own) for w in directions]
                above, below = 0, 0
                for other in range(len(padded)):
                    key = [feature(k[other, head], w, top) for w in directions]
                    weight = sum(a * b for a, b in zip(query, key, strict=True))
                    above = above + weight * (v[other, head] if other < stop - start else 0)
                    below = below + weight
                parts.append(above / below)
            rows.append(attention.to_out(torch.cat(parts)))
    return torch.stack(rows)


SMALL = [0, 3, 4, 4, 6, 11]


def test_equals_the_oracle_with_its_gradients(monkeypatch) -> None:
    def holds(case) -> None:
        training, legacy, rows = case
        monkeypatch.setattr(performer, "SCRATCH", rows * HEADS * 8 * 8)
        attention, x = layer(legacy_mask=legacy).train(training), nodes(SMALL[-1])
        assert attention.fast_attention.projection_matrix.shape == (8, WIDE)  # int(5 · ln 5)
        found, expected = attention(x, SMALL), oracle(attention, x, SMALL, pads=legacy)
        torch.testing.assert_close(found, expected, atol=1e-10, rtol=0)
        weight, inputs = torch.randn_like(found), [x, *attention.parameters()]
        gradients = [torch.autograd.grad((out * weight).sum(), inputs) for out in (found, expected)]
        for a, b in zip(*gradients, strict=True):
            torch.testing.assert_close(a, b, atol=1e-10, rtol=0)

    check_each(holds, itertools.product([False, True], [False, True], [10_000, 4]))


def test_dropout_follows_the_output_layer() -> None:
    attention, x = layer(dropout=0.4), nodes()
    plain = attention.eval()(x, PTR)
    torch.manual_seed(2)
    found = attention.train()(x, PTR)
    torch.manual_seed(2)
    torch.testing.assert_close(found, nn.functional.dropout(plain, 0.4))


@torch.no_grad()
def test_more_features_come_closer_to_full_attention() -> None:
    attention, x, gaps = layer(), nodes() / 2, []
    projections = attention.to_q, attention.to_k, attention.to_v
    q, k, v = (to(x).unflatten(1, (HEADS, WIDE)).transpose(0, 1) for to in projections)
    full = nn.functional.scaled_dot_product_attention(q, k, v).transpose(0, 1).flatten(1)
    for features in (5, 100, 5000):  # Gaussian: few channels show the signs of the orthogonal ones
        attention.fast_attention.projection_matrix = torch.randn(features, WIDE, dtype=torch.float64)
        gaps.append(float((attention(x) - attention.to_out(full)).norm()))
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 0.1 * gaps[0]


def test_a_batch_is_its_graphs_alone() -> None:
    def holds(ptr) -> None:
        attention, x = layer(), nodes(ptr[-1])
        alone = [attention(x[a:b]) for a, b in itertools.pairwise(ptr)]
        torch.testing.assert_close(attention(x, torch.tensor(ptr)), torch.cat([*alone, x[:0]]))

    check_each(holds, [PTR, [0, 1], [0, 2], [0, 0], [0], [0, 3, 3, 6]])


def test_directions_are_orthogonal_gaussians() -> None:
    directions = orthogonal_directions(266, 64).double()
    units = directions / directions.norm(dim=1, keepdim=True)
    for block in units.split(64):
        torch.testing.assert_close(block @ block.T, torch.eye(len(block)).double(), atol=1e-5, rtol=0)
    lengths = orthogonal_directions(4096, 64).norm(dim=1)
    assert lengths.square().mean() == pytest.approx(64, rel=0.02)
    assert float(lengths.std()) > 0.5


def test_it_has_the_names_and_the_usual_sizes_of_the_published_class() -> None:
    shapes = {name: tuple(value.shape) for name, value in PerformerAttention(20).state_dict().items()}
    assert shapes == {
        "fast_attention.projection_matrix": (266, 64),
        "to_q.weight": (256, 20),
        "to_k.weight": (256, 20),
        "to_v.weight": (256, 20),
        "to_out.weight": (20, 256),
        "to_out.bias": (20,),
    }


def test_no_features_are_kept() -> None:
    attention, x = PerformerAttention(8), torch.randn(2000, 8)
    with saved_for_backward() as kept:
        attention(x)
    given = {tensor.untyped_storage().data_ptr() for tensor in attention.state_dict().values()}
    rows = 2000 * 256 * 4
    # Queries, keys, values and the result; features would take 4.2 times that.
    assert sum(size for at, size in kept.items() if at not in given) < 4 * rows + x.numel() * 4 + 1000


def test_keys_reach_the_layer() -> None:
    part = ATTENTION["performer"](heads=2, head_dim=16, features=7, legacy_mask=True, dropout=0.2)
    made = part.build(Place(DIM))
    assert made.fast_attention.projection_matrix.shape == (7, 16)
    assert (made.legacy_mask, made.dropout.p) == (True, 0.2)
