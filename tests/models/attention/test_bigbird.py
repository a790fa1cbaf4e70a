"""BigBird: equal to an obvious loop and to the published code, each graph alone, differentiable, trained."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from support.allocations import saved_for_backward
from support.cases import check_each
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from kmip_data.errors import UsageError
from kmip_data.models import BigBirdAttention, GPSLayer, ModelConfig, build_model, read_batch
from kmip_data.models.attention.bigbird import Pattern, draw_random_blocks, plan_blocks
from kmip_data.models.attention.configuration import BigBirdPart

SIZES = [20, 1, 45, 2, 0, 9, 10, 31]
PTR = [0, *itertools.accumulate(SIZES)]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(7)


def made(dim: int = 8, heads: int = 2, **options) -> BigBirdAttention:
    return BigBirdAttention(dim, heads=heads, **options).double()


def slow_attention(layer: BigBirdAttention, x: Tensor, longest: int = 0) -> Tensor:
    """One graph (n, d), padded with zero rows to whole blocks, and to those of ``longest`` nodes.

    Head by head and node by node; a padded key has the score −10000 added, as in the published code.
    """
    heads, size, count, seed = (
        getattr(layer.pattern, name) for name in ("heads", "block_size", "random_blocks", "seed")
    )
    n, width = len(x), x.shape[1] // heads
    blocks = -(-max(n, longest) // size)
    padded = torch.cat([x, x.new_zeros(blocks * size - n, x.shape[1])])
    masked = torch.tensor([0.0 if row < n else -10_000.0 for row in range(blocks * size)], dtype=x.dtype)
    random = draw_random_blocks(blocks, heads, count, seed) if blocks >= 4 else None
    rows = []
    for row in range(n):
        b, parts = row // size, []
        for head in range(heads):
            channels = slice(head * width, (head + 1) * width)
            query, keys, values = (
                padded @ linear.weight[channels].t() for linear in (layer.query, layer.key, layer.value)
            )
            if random is None or b in {0, blocks - 1}:
                among = list(range(blocks))
            elif b == 1:
                among = [0, 1, 2, blocks - 1]
            elif b == blocks - 2:
                among = [0, b - 1, b, blocks - 1]
            else:
                among = [0, b - 1, b, b + 1, blocks - 1]
            if random is not None and b not in {0, blocks - 1}:
                among += random[head, b].tolist()
            chosen = [key * size + i for key in among for i in range(size)]
            scores = keys[chosen] @ query[row] / math.sqrt(width) + masked[chosen]
            parts.append(torch.softmax(scores, 0) @ values[chosen])
        rows.append(torch.cat(parts))
    return torch.stack(rows) if rows else x


def slow_norm(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    centred = x - x.mean(1, keepdim=True)
    return centred / (centred.square().mean(1, keepdim=True) + norm.eps).sqrt() * norm.weight + norm.bias


def slow_layer(
    layer: BigBirdAttention, x: Tensor, ptr: Sequence[int], masks: Sequence[Tensor | float] = (1.0, 1.0)
) -> Tensor:
    """The whole encoder layer; ``masks`` stand for dropout."""
    longest = max(b - a for a, b in itertools.pairwise(ptr)) if layer.pattern.legacy_padding else 0
    attended = torch.cat([slow_attention(layer, x[a:b], longest) for a, b in itertools.pairwise(ptr)])
    h = slow_norm(layer.norm_attention, x + masks[0] * layer.output(attended))
    return slow_norm(layer.norm_out, h + masks[1] * layer.feed_out(torch.relu(layer.feed_in(h))))


class Masks(nn.Module):
    """Dropout whose masks are given."""

    def __init__(self, masks: Sequence[Tensor]) -> None:
        super().__init__()
        self.masks = itertools.cycle(masks)

    def forward(self, x: Tensor) -> Tensor:
        return x * next(self.masks)


def gradients(layer: nn.Module, x: Tensor, out: Tensor) -> list[Tensor]:
    weight = torch.sin(torch.arange(out.numel(), dtype=out.dtype)).view(out.shape)
    return list(torch.autograd.grad((out * weight).sum(), [x, *layer.parameters()]))


OPTIONS = [
    {},
    {"legacy_padding": True},
    {"block_size": 2, "random_blocks": 1, "seed": 5},
    {"block_size": 1, "heads": 4, "norm_eps": 1e-3},
    {"random_blocks": 0, "legacy_padding": True},
]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("mode", ["eval", "train", "dropout"])
def test_equals_the_slow_oracle_with_all_gradients(mode: str, options: dict[str, object]) -> None:
    layer, masks = made(**options).train(mode != "eval"), [torch.ones(()), torch.ones(())]
    x = torch.randn(PTR[-1], 8, dtype=torch.float64, requires_grad=True)
    if mode == "dropout":
        masks = [(torch.rand_like(x) > 0.3) / 0.7 for _ in range(2)]
        layer.dropout = Masks(masks)
    found, expected = layer(x, PTR), slow_layer(layer, x, PTR, masks)
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=0)
    for a, b in zip(gradients(layer, x, found), gradients(layer, x, expected), strict=True):
        torch.testing.assert_close(a, b, atol=1e-10, rtol=0)


#: Sizes -> five values and a weighted sum that upstream's ``SingleBigBirdLayer`` gave in float64.
PUBLISHED = {
    (40,): (
        (
            -1.1864419500979209,
            0.9357550761449088,
            -0.35220591835258125,
            -0.901974230944096,
            -0.8869369979087846,
        ),
        1.0553363576869395,
    ),
    (20, 45, 7, 1): (
        (
            -1.1864619510779444,
            0.9354806501350751,
            -0.3562339099467702,
            -0.9482032982359891,
            -0.35959736633581635,
        ),
        0.41465291994716663,
    ),
}


@pytest.mark.parametrize("sizes", PUBLISHED)
def test_equals_what_the_published_code_gave(sizes: tuple[int, ...]) -> None:
    """A graph alone by default, a batch with ``legacy_padding``."""
    layer, filled = made(legacy_padding=len(sizes) > 1), 0
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


def test_a_batch_is_its_graphs_alone_but_not_with_the_published_padding() -> None:
    layer, x = made(), torch.randn(PTR[-1], 8, dtype=torch.float64)
    alone = torch.cat([layer(x[a:b]) for a, b in itertools.pairwise(PTR)])
    torch.testing.assert_close(layer(x, PTR), alone, atol=1e-12, rtol=0)
    padded = made(legacy_padding=True)
    padded.load_state_dict(layer.state_dict())
    assert not torch.allclose(padded(x, PTR), alone, atol=1e-3)
    torch.testing.assert_close(padded(x[:20]), alone[:20], atol=1e-12, rtol=0)


def test_nothing_at_all_is_no_error() -> None:
    assert made()(torch.zeros(0, 8, dtype=torch.float64), [0]).shape == (0, 8)
    assert made(legacy_padding=True)(torch.zeros(0, 8, dtype=torch.float64), [0, 0]).shape == (0, 8)


def graphs(channels: int = 5) -> Batch:
    batch = []
    for n in SIZES:
        edges = torch.randint(0, max(n, 1), (2, 3 * n))
        batch.append(Data(x=torch.randn(n, channels), edge_index=edges))
    return Batch.from_data_list(batch)


def test_layers_share_the_plan_of_a_batch() -> None:
    data = graphs(8)
    batch = read_batch(data)
    layers = [GPSLayer(None, BigBirdAttention(8, heads=2), dim=8) for _ in range(3)]
    x = data.x
    for layer in layers:
        x, _ = layer(x, None, batch)
    assert len(batch.plans) == 1


def test_a_plain_batch_of_pyg_will_do() -> None:
    data = graphs(8)
    layer = GPSLayer(None, BigBirdAttention(8, heads=2), dim=8).eval()
    assert torch.equal(layer(data.x, None, data)[0], layer(data.x, None, read_batch(data))[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_half_precision_comes_close(dtype: torch.dtype) -> None:
    layer, x = made().float(), torch.randn(PTR[-1], 8)
    with torch.autocast("cpu", torch.bfloat16):
        out = layer(x, PTR)
    out.sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in layer.parameters())
    torch.testing.assert_close(out.float(), layer(x, PTR), atol=0.1, rtol=0.1)
    half = made().to(dtype)
    assert half(x.to(dtype), PTR).dtype == dtype


def test_no_gathered_row_is_kept() -> None:
    layer, x = BigBirdAttention(32), torch.randn(3000, 32)
    with saved_for_backward() as kept:
        layer(x)
    weights = 3000 * 4 * (8 * 3 + 2 * 3) * 4  # 8 blocks of keys a node, and 6 nodes that see all
    assert sum(kept.values()) < weights + 16 * x.numel() * 4


def network(**options) -> nn.Module:
    torch.manual_seed(0)
    model = {"name": "gps-bigbird", "layers": 2, "hidden_dim": 8, "attention": {"heads": 2}}
    return build_model(ModelConfig(**{**model, **options}), in_channels=5, num_classes=4)


def test_options_that_make_no_sense() -> None:
    with pytest.raises(ValidationError, match="hidden_dim = 9 is not a multiple of heads = 2"):
        network(hidden_dim=9)
    with pytest.raises(UsageError, match="cannot be split"):
        BigBirdAttention(9, heads=2)
    with pytest.raises(ValidationError, match="block_size"):
        BigBirdPart(block_size=0)


#: Blocks of 3 nodes -> what upstream's ``_bigbird_block_rand_mask_with_head`` gave for 4 heads, 3 random
#: blocks and ``numpy.random.seed(0)``: rows 1 and 2 of the first head, the last two of the last, the sum of
#: all, and the sum of all times 1, 2, 3 ….
DRAWN = {
    4: ([[2, 3, 1], [1, 2, 3]], [[1, 0, 2], [0, 2, 3]], 36, 425),
    8: ([[6, 2, 1], [4, 5, 1]], [[5, 1, 0], [1, 6, 4]], 257, 9_490),
    9: ([[6, 8, 8], [4, 8, 8]], [[1, 8, 8], [2, 8, 8]], 549, 23_340),
    11: ([[6, 10, 8], [4, 8, 10]], [[4, 10, 9], [2, 8, 9]], 783, 42_497),
    12: ([[4, 9, 2], [8, 9, 5]], [[1, 3, 8], [8, 3, 4]], 586, 37_415),
    40: ([[4, 9, 2], [8, 9, 5]], [[6, 1, 10], [8, 6, 10]], 2_306, 537_871),
}


def test_random_blocks_are_those_of_the_published_code() -> None:
    def holds(blocks) -> None:
        found = draw_random_blocks(blocks, 4, 3, 0)[:, 1:-1]
        first, last, total, weighted = DRAWN[blocks]
        assert (found[0, :2].tolist(), found[3, -2:].tolist()) == (first, last)
        assert (int(found.sum()), int((found.ravel() * np.arange(1, found.size + 1)).sum())) == (
            total,
            weighted,
        )

    check_each(holds, DRAWN)


def test_the_draw_leaves_numpys_generator_alone() -> None:
    np.random.seed(3)  # noqa: NPY002 -- the one that must be left alone
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    draw_random_blocks.cache_clear()
    draw_random_blocks(30, 2, 3, 0)
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


def test_any_number_of_random_blocks_lies_within_the_graph() -> None:
    """Also where there are fewer blocks than random ones, for which the published code fails."""

    def holds(case) -> None:
        count, blocks = case
        drawn = draw_random_blocks(blocks, 2, count, 0)
        assert drawn.shape == (2, blocks, count)
        assert count == 0 or (drawn.min() >= 0 and drawn.max() < blocks)

    check_each(holds, itertools.product([0, 1, 2, 5, 9], [4, 6, 7, 9, 12, 16, 30]))


def attended(sizes: list[int], pattern: Pattern) -> list[list[list[int]]]:
    """For each head and node: the nodes that it attends to, sorted, some of them more than once."""
    ptr = torch.tensor([0, *np.cumsum(sizes).tolist()])
    plan = plan_blocks(ptr, pattern)
    node = torch.full(plan.filled.shape, -1)
    node.view(-1)[plan.rows] = torch.arange(sum(sizes))
    assert torch.equal(node >= 0, plan.filled)
    found: list[list[list[int]]] = [[[] for _ in range(sum(sizes))] for _ in range(pattern.heads)]
    for group in plan.groups:
        for head in range(pattern.heads):
            for block, keys in zip(group.queries, group.keys[head % len(group.keys)], strict=True):
                for row in node[block][node[block] >= 0].tolist():
                    assert found[head][row] == []  # no block is in two groups
                    found[head][row] = sorted(node[keys][node[keys] >= 0].tolist())
    return found


def test_a_block_attends_to_global_window_and_random_ones() -> None:
    def holds(case) -> None:
        legacy, block_size = case
        sizes = [1, 2, 9, 10, 0, 13, 40, 29, 64]
        pattern = Pattern(2, block_size, 3, 0, legacy)
        found = attended(sizes, pattern)
        padded = [-(-(max(sizes) if legacy else size) // block_size) for size in sizes]
        for head in range(2):
            for graph, (size, blocks) in enumerate(zip(sizes, padded, strict=True)):
                start = sum(sizes[:graph])
                for row in range(size):
                    b = row // block_size
                    if blocks < 4 or b in {0, blocks - 1}:
                        keys = list(range(blocks))
                    else:
                        keys = [0, blocks - 1, *range(max(b - 1, 1), min(b + 2, blocks - 1))]
                        keys += draw_random_blocks(blocks, 2, 3, 0)[head, b].tolist()
                    nodes = [key * block_size + i for key in keys for i in range(block_size)]
                    assert found[head][start + row] == sorted(start + node for node in nodes if node < size)

    check_each(holds, itertools.product([False, True], [1, 3, 4]))
