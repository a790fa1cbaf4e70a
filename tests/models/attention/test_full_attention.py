"""Full attention and its estimate: batches, precision, sizes of their networks."""

from __future__ import annotations

import pytest
import torch
from support.cases import check_each
from support.paper_networks import Network, size

from kmip_data.errors import UsageError
from kmip_data.models import ModelConfig, PerformerAttention, TransformerAttention
from kmip_data.models.attention.performer import tiles_of
from kmip_data.models.attention.transformer import equal_sizes

PTR = [0, 4, 4, 5, 17, 21, 23, 40]
DIM, HEADS = 6, 2
LAYERS = {"transformer": TransformerAttention, "performer": PerformerAttention}
#: The widths that upstream's search finds, and the number of parameters of its networks.
UPSTREAM = {
    "transformer": [
        Network("voc", 8, 2, "none", 64, 443_925),  # best of each
        Network("func", 10, 3, "lappe", 60, 498_190),  # best of each
    ],
    "performer": [
        Network("voc", 6, 2, "none", 52, 476_237),
        Network("voc", 6, 1, "none", 52, 473_481),  # best of each
        Network("coco", 6, 1, "rwse", 52, 476_869),
        Network("coco", 8, 2, "none", 40, 454_641),  # where its search began
        Network("func", 8, 2, "none", 40, 458_490),
        Network("func", 6, 2, "lappe", 52, 482_282),  # best of each
        Network("struct", 8, 2, "none", 40, 458_531),
        Network("struct", 6, 3, "rwse", 52, 483_007),  # best of each
        Network("city", 12, 1, "none", 32, 513_642),  # the narrowest that is tried: over the budget
        Network("city", 5, 1, "none", 60, 479_650),  # London, as deep as the paper says
    ],
    "bigbird": [  # widths and counts are computed from upstream's files and rule, which do not state them
        Network("voc", 10, 2, "none", 56, 489_797),
        Network("voc", 10, 1, "lappe", 56, 486_989),  # best of each
        Network("coco", 8, 1, "none", 60, 450_021),
        Network("coco", 10, 1, "lappe", 56, 490_409),  # best of each
        Network("func", 8, 2, "lappe", 60, 457_330),
        Network("func", 6, 1, "lappe", 72, 489_394),  # best of each
        Network("struct", 10, 2, "none", 56, 498_691),
        Network("struct", 10, 3, "lappe", 56, 499_723),  # best of each
        Network("city", 16, 1, "none", 44, 485_726),
    ],
}
#: Widths that a file names, and the number of parameters, counted here where upstream does not say.
FIXED = {
    "transformer": [
        Network("voc", 8, 2, "lappe", 68, 500_613, "batch"),  # Tönshoff et al.: over the budget
        Network("coco", 8, 1, "none", 68, 499_677, "batch"),
        Network("func", 6, 2, "lappe", 76, 479_234, "batch"),
        Network("struct", 8, 2, "lappe", 64, 451_931, "batch"),
        Network("shapenet", 8, 2, "none", 52, 296_190, "batch"),
        Network("s3dis", 8, 2, "none", 52, 294_385, "batch"),
    ],
    "performer": [
        Network("shapenet", 8, 2, "none", 28, 292_566, "batch"),
        Network("s3dis", 8, 2, "none", 28, 291_577, "batch"),
    ],
    "bigbird": [
        Network("s3dis", 8, 2, "none", 48, 289_597, "batch"),
        Network("shapenet", 8, 2, "none", 48, 291_266, "batch"),
    ],
}


@pytest.fixture(params=LAYERS)
def kind(request) -> str:
    torch.manual_seed(7)
    return request.param


def test_networks_of_the_paper_have_their_counts() -> None:
    def holds(case) -> None:
        name, row, budget = case
        with torch.device("meta"):
            assert size(f"gps-{name}", row, budget=budget) == (row.dim, row.count)

    tables = [*UPSTREAM.items(), *FIXED.items()]
    # Each search counts a dozen networks: one of a model, and the sizes of the others.
    searched = [(name, rows[0], 500_000) for name, rows in UPSTREAM.items()]
    check_each(holds, [*searched, *((name, row, None) for name, rows in tables for row in rows)])


def test_half_precision_and_autocast(kind: str) -> None:
    attention, x = LAYERS[kind](DIM, heads=HEADS), torch.randn(40, DIM, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        out = attention(x, PTR)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), attention(x, PTR), atol=5e-2, rtol=5e-2)
    out.float().sum().backward()
    assert bool(x.grad.isfinite().all())


def test_heads_share_the_channels(kind: str) -> None:
    with pytest.raises(UsageError, match="dim cannot be split"):
        LAYERS[kind](9, heads=2)
    with pytest.raises(ValueError, match="hidden_dim = 9 is not a multiple of heads = 4"):
        ModelConfig(name=f"gps-{kind}", hidden_dim=9)


def test_what_inference_remembers_serves_training(kind: str) -> None:
    attention, ptr = LAYERS[kind](DIM, heads=HEADS).double(), [0, 11, 20, 40]  # sizes of no other test
    x = torch.randn(40, DIM, dtype=torch.float64, requires_grad=True)
    with torch.inference_mode():
        expected = attention(x, ptr)
    found = attention(x, ptr)
    torch.testing.assert_close(found, expected)
    found.sum().backward()
    assert x.grad is not None


def test_compiles_once_for_batches_of_any_size(kind: str) -> None:
    attention, x = LAYERS[kind](DIM, heads=HEADS).double(), torch.randn(40, DIM, dtype=torch.float64)
    expected = [attention(x, PTR), attention(x[:23], [0, 9, 23])]
    attention.compile(dynamic=True, backend="eager")
    torch.testing.assert_close(attention(x, torch.tensor(PTR)), expected[0])
    with torch._dynamo.config.patch(error_on_recompile=True):
        torch.testing.assert_close(attention(x[:23], torch.tensor([0, 9, 23])), expected[1])


def test_graphs_of_one_size_go_together_and_none_are_padded() -> None:
    plan = equal_sizes(tuple(PTR), torch.device("cpu"))
    assert plan.groups == ((1, 1), (1, 2), (2, 4), (1, 12), (1, 17))
    assert plan.order is not None
    assert plan.order[plan.inverse].tolist() == list(range(40))
    assert equal_sizes((0, 3, 6, 11), torch.device("cpu")).order is None


@pytest.mark.parametrize(("most", "each"), [(1000, 2), (12, 2), (5, 1), (1, 1)])
def test_tiles_hold_each_row_once_and_no_more_than_they_may(most: int, each: int) -> None:
    groups = tiles_of(tuple(PTR), most, each, torch.device("cpu"))
    rows = []
    for group in groups:
        assert len(group.tiles) == 1 or len(group.graphs) == 1
        for tile in group.tiles:
            assert tile.rows.numel() <= most
            assert len(group.graphs) == 1 or tile.rows.numel() + each * len(group.graphs) <= most
            rows += tile.rows.flatten().tolist() if tile.inside is None else tile.rows[tile.inside].tolist()
    assert sorted(rows) == list(range(40))
