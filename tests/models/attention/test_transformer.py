"""Full attention: PyTorch's layer without padding, each graph alone, exact; its networks and its memory."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from support.cases import check_each
from support.training_data import learnable_build, tiny_config
from torch import nn
from torch.utils.checkpoint import checkpoint

from kmip_data.builds.home import Home
from kmip_data.errors import OutOfResources
from kmip_data.models import TransformerAttention
from kmip_data.models.attention import transformer
from kmip_data.models.layers.batch import BatchSize
from kmip_data.models.training import memory
from kmip_data.models.training.config.overrides import apply_overrides
from kmip_data.models.training.data.graphs import open_data
from kmip_data.models.training.machine import Device

PTR = [0, 4, 4, 5, 17, 21, 23, 40]
DIM, HEADS = 6, 2


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(7)


def layer(**options) -> TransformerAttention:
    made = TransformerAttention(DIM, heads=HEADS, **options).double()
    nn.init.normal_(made.in_proj_bias)
    return made


def nodes(count: int = 40) -> torch.Tensor:
    return torch.randn(count, DIM, dtype=torch.float64, requires_grad=True)


def dropped(n: int, graphs: int, rate: float) -> torch.Tensor:
    """Factors (graphs, heads, n, n) of the attention weights in the next call of PyTorch's attention.

    Equal weights on the rows of a unit matrix show them; the generator is left as it was.
    """
    before = torch.get_rng_state()
    zero = torch.zeros(graphs, HEADS, n, 1, dtype=torch.float64)
    unit = torch.eye(n, dtype=torch.float64).expand(graphs, HEADS, n, n)
    found = nn.functional.scaled_dot_product_attention(zero, zero, unit, dropout_p=rate) * n
    torch.set_rng_state(before)
    return found


def oracle(attention: nn.Module, x: torch.Tensor, ptr: list[int], masks=None) -> torch.Tensor:
    """Graph by graph, node by node, head by head; ``masks``: graph -> factors (heads, n, n) of weights."""
    d = DIM // HEADS
    q, k, v = (x @ attention.in_proj_weight.T + attention.in_proj_bias).split(DIM, 1)
    rows = []
    for graph, (start, stop) in enumerate(itertools.pairwise(ptr)):
        for node in range(start, stop):
            parts = []
            for head in range(HEADS):
                own = slice(head * d, (head + 1) * d)
                scores = [q[node, own] @ k[other, own] / math.sqrt(d) for other in range(start, stop)]
                weights = [score.exp() / sum(s.exp() for s in scores) for score in scores]
                if masks is not None:
                    factors = masks[graph][head, node - start]
                    weights = [weight * factor for weight, factor in zip(weights, factors, strict=True)]
                parts.append(sum(w * v[start + place, own] for place, w in enumerate(weights)))
            rows.append(attention.out_proj(torch.cat(parts)))
    return torch.stack(rows)


def assert_equal_with_gradients(attention, x, found, expected) -> None:
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=0)
    weight = torch.randn_like(found)
    inputs = [x, *attention.parameters()]
    ours, theirs = (torch.autograd.grad((out * weight).sum(), inputs) for out in (found, expected))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=1e-10, rtol=0)


@pytest.mark.parametrize("training", [False, True])
def test_equals_the_oracle_with_its_gradients(training: bool) -> None:
    attention, x = layer().train(training), nodes()
    assert_equal_with_gradients(attention, x, attention(x, PTR), oracle(attention, x, PTR))


def test_equals_the_oracle_with_dropout() -> None:
    """Two graphs of one size go together, so one draw masks both."""
    attention, x, ptr = layer(dropout=0.4), nodes(8), [0, 4, 8]
    masks = dropped(4, 2, 0.4)
    assert set(masks.unique().tolist()) == {0.0, 1 / 0.6}
    assert_equal_with_gradients(attention, x, attention(x, ptr), oracle(attention, x, ptr, masks))


def test_weights_and_results_are_those_of_torchs_layer_with_padding() -> None:
    torch.manual_seed(3)
    ours = TransformerAttention(DIM, heads=HEADS)
    torch.manual_seed(3)
    theirs = nn.MultiheadAttention(DIM, HEADS, batch_first=True)
    assert all(torch.equal(value, ours.state_dict()[name]) for name, value in theirs.state_dict().items())
    nn.init.normal_(theirs.in_proj_bias)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    ours, theirs, x = ours.double(), theirs.double(), nodes()
    sizes = torch.tensor(PTR).diff()
    mask = torch.arange(17) < sizes[:, None]
    dense = x.new_zeros(len(sizes), 17, DIM)
    dense[mask] = x
    full = [graph for graph, count in enumerate(sizes) if count]  # torch gives NaN for a graph of none
    padded = theirs(*[dense[full]] * 3, key_padding_mask=~mask[full], need_weights=False)[0][mask[full]]
    assert_close = torch.testing.assert_close
    assert_close(ours(x, PTR), padded, atol=1e-12, rtol=0)
    gradients = [torch.autograd.grad(out.square().sum(), x)[0] for out in (ours(x, PTR), padded)]
    assert_close(*gradients, atol=1e-10, rtol=0)


def test_graphs_are_divided_among_calls_where_dropout_needs_all_weights(monkeypatch) -> None:
    attention, x, ptr = layer(dropout=0.4), nodes(12), [0, 4, 8, 12]
    monkeypatch.setattr(transformer, "WEIGHTS", 2 * HEADS * 4**2)
    torch.manual_seed(1)
    masks = [*dropped(4, 2, 0.4)]
    found = attention(x[:8], ptr[:3])  # what the first call draws
    masks += [*dropped(4, 1, 0.4)]
    torch.manual_seed(1)
    torch.testing.assert_close(attention(x, ptr), oracle(attention, x, ptr, masks), atol=1e-10, rtol=0)
    assert found.shape == (8, DIM)


def test_a_batch_is_its_graphs_alone() -> None:
    def holds(ptr) -> None:
        attention, x = layer(), nodes(ptr[-1])
        alone = [attention(x[a:b]) for a, b in itertools.pairwise(ptr)]
        torch.testing.assert_close(attention(x, torch.tensor(ptr)), torch.cat([*alone, x[:0]]))

    check_each(holds, [PTR, [0, 1], [0, 2], [0, 0], [0], [0, 3, 3, 6]])


def test_recomputing_draws_the_same_dropout() -> None:
    attention, x = layer(dropout=0.5), nodes()
    results = []
    for again in (False, True):
        torch.manual_seed(1)
        out = checkpoint(attention, x, PTR, use_reentrant=False) if again else attention(x, PTR)
        results.append((out, *torch.autograd.grad(out.square().sum(), x)))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_a_city_with_attention_dropout_is_refused_before_any_work(tmp_path, monkeypatch) -> None:
    """Paris has 114,000 nodes: 13 billion pairs."""
    data = open_data(tiny_config(learnable_build(tmp_path / "build")), home=Home(tmp_path))
    monkeypatch.setattr(data.__class__, "largest_batch", BatchSize(1, 114_000, 366_000, 114_000**2))
    monkeypatch.setattr(memory, "free_host_memory", lambda: 64 * 2**30)
    config = apply_overrides(data.config, ["model.attention.kind=transformer"])
    cpu = Device("cpu", "cpu", "asked for")
    assert not memory.plan_memory(config, data, cpu).recompute
    with pytest.raises(OutOfResources) as caught:
        memory.plan_memory(apply_overrides(config, ["model.attention.dropout=0.5"]), data, cpu)
    text = str(caught.value)
    assert "A training step on " in text
    assert "1 graph, 114,000 nodes" in text
    assert "--set model.attention.dropout=0 " in text
