"""Finite inputs whose scores overflow: refused by every attention, and right as long as they do not."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from kmip_data.models import (
    BigBirdAttention,
    ExphormerAttention,
    ExphormerInitialState,
    KMIPAttention,
    PerformerAttention,
    TransformerAttention,
    read_batch,
)
from kmip_data.models.attention import operators
from kmip_data.models.attention.kmip import kmip_attention
from kmip_data.models.search.problem import NotFinite

DIM, HEADS, NODES = 8, 2, 12
PATHS = ["cpu kernels", "torch", "reference"]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(3)


def attended(path: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tensor]:
    """k-MIP attention by one of its paths."""
    if path == "torch":
        monkeypatch.setattr(operators, "_uses_cpu_kernels", lambda _: False)
    return partial(kmip_attention, backend=path if path == "reference" else "auto")


@pytest.mark.parametrize("path", PATHS)
def test_kmip_equals_float64_or_is_refused(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call = attended(path, monkeypatch)
    queries, keys, values = torch.randn(3, HEADS, NODES, 4)
    for factor in (1.0, 1e9, 1e18):
        rows = queries * factor, keys * factor, values
        exact = kmip_attention(*(x.double() for x in rows), 3)
        torch.testing.assert_close(call(*rows, 3).double(), exact, rtol=1e-5, atol=1e-5)

    for sign in (1, -1):  # all largest scores +∞, and all −∞
        longest = torch.full_like(queries, 1e20)
        with pytest.raises(NotFinite):
            call(longest, sign * longest, values, 3)
        torch.testing.assert_close(
            kmip_attention(longest.double(), sign * longest.double(), values.double(), 3),
            values[:, :3].double().mean(1, keepdim=True).expand_as(values),
        )


@pytest.mark.parametrize("path", PATHS)
def test_kmip_keeps_scores_of_minus_infinity_below_a_finite_one(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = attended(path, monkeypatch)
    queries = torch.full((1, 2, 1), 1e20)
    keys = torch.tensor([1.0, -1e20, -2e20]).view(1, 3, 1)
    values = torch.randn(1, 3, 5)
    expected = values[:, :1].expand(1, 2, 5)
    assert torch.equal(call(queries, keys, values, 3), expected)
    exact = kmip_attention(queries.double(), keys.double(), values.double(), 3)
    assert torch.equal(exact, expected.double())


class Exphormer(nn.Module):
    """Exphormer's attention along a ring and to virtual nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.begin = ExphormerInitialState(DIM, expander=False)
        self.attention = ExphormerAttention(DIM, heads=HEADS)

    def forward(self, x: Tensor) -> Tensor:
        """Attend."""
        nodes = torch.arange(len(x))
        batch = read_batch(Data(x=x, edge_index=torch.stack([nodes, nodes.roll(1)])))
        (carried,) = self.begin(torch.ones(1, DIM, dtype=x.dtype), batch)
        return self.attention(x, batch, carried)[0]


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "k-mip": lambda: KMIPAttention(DIM, heads=HEADS, key_dim=4, k=3),
    "transformer": lambda: TransformerAttention(DIM, heads=HEADS),
    "transformer with dropout": lambda: TransformerAttention(DIM, heads=HEADS, dropout=0.5),
    "bigbird": lambda: BigBirdAttention(DIM, heads=HEADS),
    "performer": lambda: PerformerAttention(DIM, heads=HEADS),
    "exphormer": Exphormer,
}
#: Nodes from which on a layer may refuse: Performer's scores are products with fixed directions.
REFUSED = dict.fromkeys(LAYERS, 1e25) | {"performer": 3e38}


@pytest.mark.parametrize(
    ("kind", "compiled"),
    [
        *((kind, False) for kind in LAYERS),
        ("k-mip", True),
        *(pytest.param(k, True, marks=pytest.mark.torture) for k in LAYERS if k != "k-mip"),
    ],
)
def test_a_layer_equals_float64_or_refuses(kind: str, compiled: bool) -> None:
    layer = LAYERS[kind]()
    x = torch.randn(NODES, DIM).clamp(-1, 1)
    large = 1e9 * x
    exact = copy.deepcopy(layer).double().eval()(large.double())
    if compiled:
        layer.compile(backend="aot_eager")
    out = layer.eval()(large)
    scale = float(exact.detach().abs().max())
    torch.testing.assert_close(out.double() / scale, exact / scale, rtol=1e-3, atol=1e-3)
    with pytest.raises(NotFinite):
        layer.train()(REFUSED[kind] * x)


def test_rows_that_would_be_zero_are_refused() -> None:
    """PyTorch's attention gives zeros where all scores of a query are −∞."""
    layer = TransformerAttention(1, heads=1)
    with torch.no_grad():
        layer.in_proj_weight.copy_(torch.tensor([[1.0], [-1.0], [1.0]]))
    with pytest.raises(NotFinite):
        layer(torch.full((5, 1), 1e20))
