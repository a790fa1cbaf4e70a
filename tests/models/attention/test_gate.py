"""The gate of an attention's heads; test_whole_networks.py has the formula of every kind with it."""

from __future__ import annotations

import itertools

import pytest
import torch

from kmip_data.models import KMIPAttention
from kmip_data.models.components import LayerInfo, MultiHeadComponent
from kmip_data.models.config import ATTENTION

KINDS = [kind for kind, component in ATTENTION.items() if issubclass(component, MultiHeadComponent)]
DIM, HEADS = 12, 2
PTR = [0, 4, 5, 9]


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_draws_the_same_weights_with_and_without_a_gate(kind: str) -> None:
    def weights_of(gate: str) -> dict[str, torch.Tensor]:
        torch.manual_seed(3)
        component = ATTENTION[kind](
            heads=HEADS, gate=gate, **({"key_dim": 3} if kind == "k-mip" else {})
        )
        layers = [component.build(LayerInfo(DIM)) for _ in range(2)]
        return torch.nn.ModuleList(layers).state_dict()

    without, gated = weights_of("none"), weights_of("output")
    added = [f"{layer}.gate.{name}" for layer in range(2) for name in ("weight", "bias")]
    message = f"{kind} ignores its key gate: scale the heads by build_gate and apply_gate"
    assert sorted(gated) == sorted([*without, *added]), message
    assert all(torch.equal(gated[name], value) for name, value in without.items())
    for name in added:
        start = 0.5 if name.endswith("bias") else 0.0
        assert gated[name].shape == ((HEADS,) if name.endswith("bias") else (HEADS, DIM))
        assert (gated[name] == start).all()


@pytest.mark.parametrize("projected", [True, False])
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_each_head_is_multiplied_by_its_number(projected: bool, backend: str) -> None:
    options = {"heads": HEADS, "k": 3, "output_projection": projected, "backend": backend}
    without, gated = KMIPAttention(DIM, **options), KMIPAttention(DIM, **options, gate="output")
    gated.load_state_dict(without.state_dict(), strict=False)
    with torch.no_grad():
        gated.gate.weight.normal_()
        gated.gate.bias.normal_()
    x = torch.randn(9, DIM)
    project, without.output = without.output, torch.nn.Identity()

    numbers = 1 / (1 + torch.exp(-(x @ gated.gate.weight.T + gated.gate.bias)))
    first, second = without(x, PTR).split(DIM // HEADS, dim=1)
    expected = project(torch.cat([first * numbers[:, :1], second * numbers[:, 1:]], dim=1))
    torch.testing.assert_close(gated(x, PTR), expected)

    # A shut gate leaves the bias of the output alone.
    with torch.no_grad():
        gated.gate.weight.zero_()
        gated.gate.bias.fill_(-1e4)
    nothing = project(torch.zeros(1, DIM))
    torch.testing.assert_close(gated(x, PTR), nothing.expand(9, -1))


def test_padding_leaves_real_rows_unchanged() -> None:
    attention = KMIPAttention(DIM, HEADS, k=3, output_projection=True, gate="output")
    torch.nn.init.normal_(attention.gate.weight)
    x = torch.randn(9, DIM)
    mask = torch.zeros(3, 6, dtype=torch.bool)
    padded = torch.full((3, 6, DIM), 1e6)
    for graph, (start, stop) in enumerate(itertools.pairwise(PTR)):
        mask[graph, : stop - start] = True
        padded[graph, : stop - start] = x[start:stop]
    out = attention(padded, mask)
    assert torch.equal(out[mask], attention(x, PTR))
    assert not out[~mask].any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_near_single_precision(dtype: torch.dtype) -> None:
    attention = KMIPAttention(DIM, HEADS, k=9, output_projection=True, gate="output")
    torch.nn.init.normal_(attention.gate.weight)
    x = torch.randn(9, DIM)
    expected = attention(x)
    with torch.autocast("cpu", dtype):
        torch.testing.assert_close(attention(x).float(), expected, atol=0.05, rtol=0.05)
    half = attention.to(dtype)(x.to(dtype))
    assert half.dtype == dtype
    torch.testing.assert_close(half.float(), expected, atol=0.05, rtol=0.05)
