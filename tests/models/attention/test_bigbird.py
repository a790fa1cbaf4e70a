"""BigBird: equal to the published code, its draws and its layout.

Whole layers: test_whole_networks.py.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import Data

from kmip_data.models import BigBirdAttention, read_batch
from kmip_data.models.attention.bigbird import (
    WINDOW_BLOCKS,
    BlockPattern,
    draw_random_blocks,
    plan_blocks,
)

SIZES = [20, 1, 45, 2, 0, 9, 10, 31]
PTR = [0, *itertools.accumulate(SIZES)]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(7)


def make_layer(**options) -> BigBirdAttention:
    return BigBirdAttention(8, heads=2, **options).double()


#: Sizes -> five values and a weighted sum that upstream's ``SingleBigBirdLayer`` gave in float64.
PUBLISHED = {
    (40,): (
        [-1.186441950098, 0.935755076145, -0.352205918353, -0.901974230944, -0.886936997909],
        1.0553363576869395,
    ),
    (20, 45, 7, 1): (
        [-1.186461951078, 0.935480650135, -0.356233909947, -0.948203298236, -0.359597366336],
        0.41465291994716663,
    ),
}


@pytest.mark.parametrize("sizes", PUBLISHED)
def test_bigbird_equals_the_recorded_output_of_the_published_code(sizes: tuple[int, ...]) -> None:
    """A graph alone by default, a batch with ``legacy_padding``."""
    layer, filled = make_layer(legacy_padding=len(sizes) > 1), 0
    parts = ["query", "key", "value", "output", "norm_attention", "feed_in", "feed_out", "norm_out"]
    with torch.no_grad():
        for parameter in (p for name in parts for p in getattr(layer, name).parameters()):
            index = torch.arange(filled, filled + parameter.numel(), dtype=torch.float64)
            parameter.copy_(torch.sin(index * 1.7).view(parameter.shape))
            filled += parameter.numel()
    n = sum(sizes)
    x = torch.cos(torch.arange(n * 8, dtype=torch.float64) * 0.37).view(n, 8)
    out = layer(x, [0, *itertools.accumulate(sizes)])
    values, total = PUBLISHED[sizes]
    chosen = [out[r, c].item() for r, c in ((0, 0), (4, 1), (17, 2), (n // 2, 3), (n - 1, 7))]
    assert chosen == pytest.approx(values, abs=1e-10)
    weight = torch.sin(torch.arange(n * 8, dtype=torch.float64)).view(n, 8)
    assert (out * weight).sum().item() == pytest.approx(total, abs=1e-9)


def test_batching_changes_nothing_without_the_published_padding() -> None:
    layer, x = make_layer(), torch.randn(PTR[-1], 8, dtype=torch.float64)
    alone = torch.cat([layer(x[a:b]) for a, b in itertools.pairwise(PTR)])
    torch.testing.assert_close(layer(x, PTR), alone, atol=1e-12, rtol=0)
    padded = make_layer(legacy_padding=True)
    padded.load_state_dict(layer.state_dict())
    assert not torch.allclose(padded(x, PTR), alone, atol=1e-3)
    torch.testing.assert_close(padded(x[:20]), alone[:20], atol=1e-12, rtol=0)
    assert padded(x[:0], [0, 0]).shape == (0, 8)


def test_dropout_comes_before_both_residual_connections() -> None:
    layer, x = make_layer(dropout=0.3), torch.randn(20, 8, dtype=torch.float64)
    assert not torch.equal(layer(x), layer(x))
    layer.dropout = nn.Threshold(1e9, 0)  # drops everything
    torch.testing.assert_close(layer(x), layer.norm_out(layer.norm_attention(x)))


def test_layers_share_the_plan_of_a_batch() -> None:
    batch = read_batch(Data(x=torch.randn(20, 8), edge_index=torch.zeros(2, 0, dtype=torch.int64)))
    for _ in range(3):
        BigBirdAttention(8, heads=2)(batch.x, batch)
    assert len(batch.layer_cache) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_half_precision_comes_close(dtype: torch.dtype) -> None:
    layer, x = make_layer().float(), torch.randn(PTR[-1], 8)
    with torch.autocast("cpu", torch.bfloat16):
        out = layer(x, PTR)
    out.sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in layer.parameters())
    torch.testing.assert_close(out.float(), layer(x, PTR), atol=0.1, rtol=0.1)
    assert make_layer().to(dtype)(x.to(dtype), PTR).dtype == dtype


def test_autocast_leaves_scores_in_float32() -> None:
    layer = make_layer().float()
    x = torch.randn(PTR[-1], 8)
    for linear in (layer.query, layer.key, layer.value):
        nn.init.eye_(linear.weight)
    x = x.bfloat16().float()  # the projections round nothing
    with torch.autocast("cpu", torch.bfloat16):
        inside = layer._attend(x, PTR)
    assert torch.equal(inside, layer._attend(x, PTR))


#: Blocks of 3 nodes -> what upstream's ``_bigbird_block_rand_mask_with_head`` gave for 4 heads, 3
#: random blocks and ``numpy.random.seed(0)``: rows 1 and 2 of the first head, the last two of the
#: last, the sum of all, and the sum of all times 1, 2, 3 ….
DRAWN = {
    4: ([[2, 3, 1], [1, 2, 3]], [[1, 0, 2], [0, 2, 3]], 36, 425),
    8: ([[6, 2, 1], [4, 5, 1]], [[5, 1, 0], [1, 6, 4]], 257, 9_490),
    9: ([[6, 8, 8], [4, 8, 8]], [[1, 8, 8], [2, 8, 8]], 549, 23_340),
    11: ([[6, 10, 8], [4, 8, 10]], [[4, 10, 9], [2, 8, 9]], 783, 42_497),
    12: ([[4, 9, 2], [8, 9, 5]], [[1, 3, 8], [8, 3, 4]], 586, 37_415),
    40: ([[4, 9, 2], [8, 9, 5]], [[6, 1, 10], [8, 6, 10]], 2_306, 537_871),
}


def test_random_blocks_equal_the_published_code() -> None:
    np.random.seed(3)  # noqa: NPY002 -- the generator that must be left alone
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    draw_random_blocks.cache_clear()
    for blocks, expected in DRAWN.items():
        drawn = draw_random_blocks(blocks, 4, 3, 0)[:, 1:-1]
        weighted = (drawn.ravel() * np.arange(1, drawn.size + 1)).sum()
        assert (drawn[0, :2].tolist(), drawn[3, -2:].tolist(), drawn.sum(), weighted) == expected, (
            blocks
        )
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


def test_any_number_of_random_blocks_lies_within_the_graph() -> None:
    """Fewer blocks than random ones, for which the published code fails, are allowed."""
    for count, blocks in itertools.product([0, 1, 2, 5, 9], [4, 6, 7, 9, 12, 16, 30]):
        drawn = draw_random_blocks(blocks, 2, count, 0)
        assert drawn.shape == (2, blocks, count)
        assert count == 0 or (drawn.min() >= 0 and drawn.max() < blocks)


@pytest.mark.parametrize("legacy_padding", [False, True])
def test_lengths_at_which_the_published_code_fails_have_the_plan_of_other_lengths(
    legacy_padding: bool,
) -> None:
    """It has another plan for 1,024, 3,072 and 4,096 padded nodes, with rows for 128 of them."""
    for length, block_size in ((1024, 4), (3072, 3), (4096, 8)):
        pattern = BlockPattern(4, block_size, 3, 0, legacy_padding)
        cpu = torch.device("cpu")
        same, longer = (
            plan_blocks(torch.tensor([0, nodes]), pattern, cpu).groups[-1]
            for nodes in (length, length + block_size)
        )
        random_blocks = same.keys[:, :, WINDOW_BLOCKS:]
        assert random_blocks.shape == (4, length // block_size - 2, 3)
        assert torch.equal(random_blocks, longer.keys[:, :-1, WINDOW_BLOCKS:])
