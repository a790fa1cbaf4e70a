"""Full attention and its estimate by random features.

Their formulas are in test_whole_networks.py.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from support.cases import check_each
from support.kernels.allocations import saved_for_backward
from support.oracles.slow_attention import performer as slow_performer
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from kmip_data.errors import UsageError
from kmip_data.models import PerformerAttention, TransformerAttention
from kmip_data.models.attention import full_attention_cpu, performer, transformer
from kmip_data.models.attention.kinds.performer import PerformerComponent
from kmip_data.models.attention.performer import orthogonal_directions
from kmip_data.models.components import LayerInfo
from kmip_data.models.config import ATTENTION
from kmip_data.models.layers.cpu.dropout import dropout

PTR = [0, 4, 4, 5, 17, 21, 23, 40]
DIM, HEADS, WIDE = 6, 2, 5
LAYERS = {"transformer": TransformerAttention, "performer": PerformerAttention}


@pytest.fixture(params=LAYERS)
def kind(request) -> str:
    return request.param


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(7)


def layer(kind: str, **options) -> nn.Module:
    return LAYERS[kind](DIM, heads=HEADS, **options).double()


def nodes(count: int = 40) -> Tensor:
    return torch.randn(count, DIM, dtype=torch.float64, requires_grad=True)


def test_a_batch_is_its_graphs_alone(kind: str) -> None:
    def check_case(ptr) -> None:
        attention, x = layer(kind), nodes(ptr[-1])
        alone = [attention(x[a:b]) for a, b in itertools.pairwise(ptr)]
        torch.testing.assert_close(attention(x, torch.tensor(ptr)), torch.cat([*alone, x[:0]]))

    check_each(check_case, [PTR, [0, 1], [0, 2], [0, 0], [0], [0, 3, 3, 6]])


def test_half_precision_and_autocast_are_near_single_precision(kind: str) -> None:
    attention, x = layer(kind).float(), nodes().detach().float().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        out = attention(x, PTR)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), attention(x, PTR), atol=5e-2, rtol=5e-2)
    out.float().sum().backward()
    assert bool(x.grad.isfinite().all())


def test_heads_share_the_channels(kind: str) -> None:
    with pytest.raises(UsageError):
        LAYERS[kind](9, heads=2)


def test_caches_filled_in_inference_mode_work_in_training(kind: str) -> None:
    attention, x, ptr = layer(kind), nodes(), [0, 11, 20, 40]  # sizes of no other test
    with torch.inference_mode():
        expected = attention(x, ptr)
    out = attention(x, ptr)
    torch.testing.assert_close(out, expected)
    out.sum().backward()
    assert x.grad is not None


def test_recomputing_draws_the_same_dropout(kind: str) -> None:
    attention, x = layer(kind, dropout=0.5), nodes()
    results = []
    for again in (False, True):
        torch.manual_seed(1)
        out = checkpoint(attention, x, PTR, use_reentrant=False) if again else attention(x, PTR)
        results.append((out, *torch.autograd.grad(out.square().sum(), x)))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    assert not torch.equal(results[0][0], attention.eval()(x, PTR))


def test_weights_and_results_equal_torchs_layer_with_padding() -> None:
    torch.manual_seed(3)
    ours = TransformerAttention(DIM, heads=HEADS)
    torch.manual_seed(3)
    theirs = nn.MultiheadAttention(DIM, HEADS, batch_first=True)
    assert all(
        torch.equal(value, ours.state_dict()[name]) for name, value in theirs.state_dict().items()
    )
    nn.init.normal_(theirs.in_proj_bias)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    ours, theirs, x = ours.double(), theirs.double(), nodes()
    sizes = torch.tensor(PTR).diff()
    mask = torch.arange(17) < sizes[:, None]
    dense = x.new_zeros(len(sizes), 17, DIM)
    dense[mask] = x
    full = [
        graph for graph, count in enumerate(sizes) if count
    ]  # torch gives NaN for a graph of none
    padded = theirs(*[dense[full]] * 3, key_padding_mask=~mask[full], need_weights=False)[0][
        mask[full]
    ]
    torch.testing.assert_close(ours(x, PTR), padded, atol=1e-12, rtol=0)
    gradients = [torch.autograd.grad(out.square().sum(), x)[0] for out in (ours(x, PTR), padded)]
    torch.testing.assert_close(*gradients, atol=1e-10, rtol=0)


@pytest.mark.parametrize("kind", [kind for kind in ATTENTION if ATTENTION[kind].test_keys])
def test_keys_that_change_at_test_fit_the_weights(kind: str) -> None:
    """No graph has more than 17 nodes, so that these values attend to all of them as usual."""
    values = {"k": 17, "search": "dense", "temperature": "log-n:17"}
    attend_to_all = {"k": 40} if kind == "k-mip" else {}
    usual = ATTENTION[kind](heads=1, **attend_to_all).build(LayerInfo(DIM)).double()
    for key in ATTENTION[kind].test_keys:
        options = {"heads": 1, **attend_to_all, key: values[key]}
        changed = ATTENTION[kind](**options).build(LayerInfo(DIM)).double()
        changed.load_state_dict(usual.state_dict(), strict=True)
        x = nodes()
        error = 1e-12 if key == "k" else 0
        torch.testing.assert_close(changed(x, PTR), usual(x, PTR), atol=error, rtol=0)


def test_graphs_are_divided_among_calls_where_dropout_needs_all_weights(monkeypatch) -> None:
    """Two graphs of one size go together, so one draw masks both; the third has the next one."""
    attention, x = layer("transformer", dropout=0.4), nodes(12)
    monkeypatch.setattr(transformer, "MAX_STORED_WEIGHTS", 2 * HEADS * 4**2)
    torch.manual_seed(1)
    out = attention(x, [0, 4, 8, 12])
    torch.manual_seed(1)
    apart = [attention(x[:8], [0, 4, 8]), attention(x[8:])]
    torch.testing.assert_close(out, torch.cat(apart), atol=1e-12, rtol=0)
    assert not torch.allclose(out, attention.eval()(x, [0, 4, 8, 12]))


def test_tiles_of_weights_are_dropped_and_differentiated_as_all_at_once(monkeypatch) -> None:
    """Two graphs of one size, in three tiles of rows each; each head of a graph has a seed."""
    monkeypatch.setattr(full_attention_cpu, "TILE_WEIGHTS", 5 * 13)
    x = torch.randn(26, DIM, requires_grad=True)
    attention = TransformerAttention(DIM, heads=HEADS, dropout=0.4)

    def at_once(queries: Tensor, keys: Tensor, values: Tensor, p: float) -> Tensor:
        done = []
        for query, key, value in zip(
            *(t.flatten(0, 1) for t in (queries, keys, values)), strict=True
        ):
            weights = (query @ key.mT).softmax(-1)
            done.append(dropout(weights, p) @ value)
        return torch.stack(done).view(values.shape)

    def results_of(attended) -> list[Tensor]:
        monkeypatch.setattr(full_attention_cpu, "tiled_attention", attended)
        torch.manual_seed(1)
        out = attention(x, [0, 13, 26])
        loss = (out * torch.arange(DIM)).sum()
        return [out, torch.rand(1), *torch.autograd.grad(loss, [x, *attention.parameters()])]

    monkeypatch.setattr(transformer, "MIN_TILED_NODES", 13)
    calls = []
    in_tiles = full_attention_cpu.tiled_attention
    results = results_of(lambda *args: calls.append(1) or in_tiles(*args))
    torch.testing.assert_close(results, results_of(at_once), atol=1e-5, rtol=1e-5)
    assert len(calls) == 1


def test_random_features_equal_the_formula_however_rows_are_cut(monkeypatch) -> None:
    """``legacy_mask`` pads each graph with zero keys to the largest, as in the published code."""

    def check_case(case) -> None:
        legacy, rows = case
        monkeypatch.setattr(performer, "SCRATCH_BYTES", rows * HEADS * 8 * 8)
        part = PerformerComponent(heads=HEADS, head_dim=WIDE, legacy_mask=legacy)
        attention, ptr = part.build(LayerInfo(DIM)).double(), [0, 3, 4, 4, 6, 11]
        assert attention.fast_attention.projection_matrix.shape == (8, WIDE)  # int(5 · ln 5)
        x, weights = nodes(11), dict(attention.named_parameters()) | dict(attention.named_buffers())
        graphs = [x[a:b] for a, b in itertools.pairwise(ptr) if a < b]
        zeros = [5 - len(graph) if legacy else 0 for graph in graphs]
        slow = [
            slow_performer(part, weights, *inputs)
            for inputs in zip(graphs, [0] * 4, zeros, strict=True)
        ]
        result, expected = attention(x, ptr), torch.cat(slow)
        torch.testing.assert_close(result, expected, atol=1e-10, rtol=0)
        pull, inputs = torch.randn_like(result), [x, *attention.parameters()]
        gradients = [torch.autograd.grad((out * pull).sum(), inputs) for out in (result, expected)]
        for a, b in zip(*gradients, strict=True):
            torch.testing.assert_close(a, b, atol=1e-10, rtol=0)

    check_each(check_case, itertools.product([False, True], [10_000, 4]))


def test_directions_are_orthogonal_gaussians() -> None:
    directions = orthogonal_directions(266, 64).double()
    units = directions / directions.norm(dim=1, keepdim=True)
    for block in units.split(64):
        torch.testing.assert_close(
            block @ block.T, torch.eye(len(block)).double(), atol=1e-5, rtol=0
        )
    lengths = orthogonal_directions(4096, 64).norm(dim=1)
    assert lengths.square().mean() == pytest.approx(64, rel=0.02)
    assert float(lengths.std()) > 0.5


def test_random_features_have_the_names_and_usual_sizes_of_the_published_class() -> None:
    shapes = {
        name: tuple(value.shape) for name, value in PerformerAttention(20).state_dict().items()
    }
    assert shapes == {
        "fast_attention.projection_matrix": (266, 64),
        **dict.fromkeys(("to_q.weight", "to_k.weight", "to_v.weight"), (256, 20)),
        "to_out.weight": (20, 256),
        "to_out.bias": (20,),
    }


def test_random_features_are_not_saved_for_backward() -> None:
    attention, x = PerformerAttention(8), torch.randn(2000, 8)
    with saved_for_backward() as kept:
        attention(x)
    of_weights = {tensor.untyped_storage().data_ptr() for tensor in attention.state_dict().values()}
    rows = 2000 * 256 * 4
    # Queries, keys and values, scaled, and the result; features of both would take 8.4 times that.
    sizes = [size for at, size in kept.items() if at not in of_weights]
    assert sum(sizes) < 5 * rows + 200 * x.numel()
