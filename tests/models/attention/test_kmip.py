"""k-MIP attention: each graph alone, exact, differentiable; and the published padding on request."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support.cases import check_each
from support.slow_models import full_attention, slow_attention, slow_padded_attention

from kmip_data.errors import UsageError
from kmip_data.models.attention import kmip, operators
from kmip_data.models.attention.kmip import KMIPAttention, kmip_attention, set_training_k

PTR = [0, 4, 4, 5, 17, 40]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(7)


def operands(heads: int = 2, rows: int = 40, key_dim: int = 3, value_dim: int = 5, **options):
    return [torch.randn(heads, rows, d, **options) for d in (key_dim, key_dim, value_dim)]


def test_equals_the_slow_oracle() -> None:
    def holds(case) -> None:
        backend, k = case
        q, key, v = operands()
        found = kmip_attention(q, key, v, k, query_ptr=PTR, backend=backend)
        torch.testing.assert_close(found, slow_attention(q, key, v, k, PTR))

    check_each(holds, itertools.product(["cpu", "dense"], [1, 4, 50]))


def test_all_keys_is_full_attention() -> None:
    q, key, v = operands()
    torch.testing.assert_close(kmip_attention(q, key, v, 40), full_attention(q, key, v))


def test_a_batch_is_its_graphs_alone() -> None:
    layer = KMIPAttention(8, heads=2, key_dim=3, k=6)
    x = torch.randn(40, 8)
    alone = [layer(x[a:b]) for a, b in itertools.pairwise(PTR)]
    torch.testing.assert_close(layer(x, torch.tensor(PTR)), torch.cat(alone))


def test_queries_without_keys_get_zero_and_pass_no_gradient() -> None:
    q, key, v = (t.requires_grad_() for t in operands(rows=3))
    out = kmip_attention(q, key[:, :2], v[:, :2], 4, query_ptr=[0, 1, 3], key_ptr=[0, 0, 2])
    assert bool((out[:, 0] == 0).all())
    out.sum().backward()
    assert bool((q.grad[:, 0] == 0).all())
    assert all(bool(t.grad.isfinite().all()) for t in (q, key, v))


def test_gradients() -> None:
    def holds(case) -> None:
        k, ptr = case
        inputs = [t.requires_grad_() for t in operands(rows=9, dtype=torch.float64)]
        assert torch.autograd.gradcheck(
            lambda *t: kmip_attention(*t, k, query_ptr=ptr, backend="dense"), inputs
        )

    check_each(holds, itertools.product([2, 6], [[0, 9], [0, 1, 1, 5, 9]]))


def test_gradients_with_dropout_and_repeated_keys() -> None:
    inputs = [t.requires_grad_() for t in operands(rows=7, dtype=torch.float64)]

    def run(*tensors: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(3)  # the same weights dropped at every call
        return kmip_attention(*tensors, 4, query_ptr=[0, 2, 7], dropout=0.4, repeat_first_key=True)

    assert torch.autograd.gradcheck(run, inputs)


def test_no_gathered_tensor_is_kept() -> None:
    kept: list[torch.Size] = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor.shape)
        return tensor

    inputs = [t.requires_grad_() for t in operands()]
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        kmip_attention(*inputs, 5)
    assert max(len(shape) for shape in kept) == 3
    assert sum(shape.numel() for shape in kept) == sum(t.numel() for t in inputs) + 2 * 2 * 40 * 5


MEMORY = """
import re, torch
from pathlib import Path
from kmip_data.models import kmip_attention

def step(graphs):
    ptr = torch.arange(graphs + 1) * 100
    inputs = [torch.randn(1, graphs * 100, 10, requires_grad=True) for _ in range(3)]
    kmip_attention(*inputs, 10, ptr).sum().backward()

def resident(name):
    return int(re.search(name + r":\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024

step(10)  # compiles
Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
before = resident("VmRSS")
step(1000)
print((resident("VmHWM") - before) / 100_000)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_training_step_takes_less_than_a_kilobyte_a_node() -> None:
    root = Path(__file__).parents[3]
    found = subprocess.run(
        [sys.executable, "-c", MEMORY],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(root)},
        timeout=600,
    )
    assert 300 < float(found.stdout) < 1000  # 10 wide operands, their gradients and 10 pairs: > 300 bytes


def test_dropout_keeps_the_mean() -> None:
    q, key, v = operands(heads=1, rows=20)
    plain = kmip_attention(q, key, v, 10)
    many = kmip_attention(*(t.expand(2000, -1, -1) for t in (q, key, v)), 10, dropout=0.3)
    torch.testing.assert_close(many.mean(0, keepdim=True), plain, atol=0.08, rtol=0)


def test_pointers_may_be_the_fifth_argument() -> None:
    q, key, v = operands()
    assert torch.equal(kmip_attention(q, key, v, 3, PTR), kmip_attention(q, key, v, 3, query_ptr=PTR))


def test_dropout_is_off_in_eval() -> None:
    layer = KMIPAttention(8, heads=2, key_dim=3, k=6, dropout=0.5)
    x = torch.randn(20, 8)
    assert not torch.equal(layer(x), layer(x))
    layer.eval()
    assert torch.equal(layer(x), layer(x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype: torch.dtype) -> None:
    inputs = [t.to(dtype).requires_grad_() for t in operands()]
    out = kmip_attention(*inputs, 5, query_ptr=PTR)
    assert out.dtype == dtype
    expected = kmip_attention(*(t.detach().float() for t in inputs), 5, query_ptr=PTR)
    torch.testing.assert_close(out.float(), expected, atol=2e-2, rtol=2e-2)
    out.sum().backward()
    assert all(t.grad.dtype == dtype and bool(t.grad.isfinite().all()) for t in inputs)


def test_autocast() -> None:
    layer = KMIPAttention(8, heads=2, key_dim=3, k=40)  # all keys: rounded queries may choose others
    x = torch.randn(40, 8, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        out = layer(x, PTR)
    torch.testing.assert_close(out.float(), layer(x, PTR), atol=5e-2, rtol=5e-2)
    out.float().sum().backward()
    assert bool(x.grad.isfinite().all())


def split_heads(layer: KMIPAttention, rows: torch.Tensor) -> torch.Tensor:
    return rows.view(-1, layer.heads, rows.shape[-1] // layer.heads).transpose(0, 1)


@pytest.mark.parametrize("k", [3, 12, 30])  # below a small graph, above some, above the longest (23)
def test_legacy_padding_is_the_published_layer(k: int) -> None:
    layer = KMIPAttention(8, heads=2, key_dim=3, k=k, legacy_padding=True)
    x = torch.randn(40, 8)
    expected = slow_padded_attention(
        *(split_heads(layer, part(x)) for part in (layer.query, layer.key, layer.value)),
        split_heads(layer, layer.key.bias[None])[:, 0],
        split_heads(layer, layer.value.bias[None])[:, 0],
        k,
        PTR,
    )
    torch.testing.assert_close(layer(x, PTR), expected.transpose(0, 1).flatten(1))


def test_legacy_padding_finds_the_places_of_a_batch_again_after_others() -> None:
    """A CUDA graph of the last batch of an epoch cannot be recorded where they would be copied anew."""
    first, device = kmip._places((0, 3, 7), torch.device("cpu")), torch.device("cpu")
    for ptr in ((0, 2, 7), (0, 1, 7), (0, 4, 7)):
        kmip._places(ptr, device)
    assert kmip._places((0, 3, 7), device) is first


def test_output_projection_and_value_dim() -> None:
    layer = KMIPAttention(8, heads=2, key_dim=3, k=4, value_dim=7, output_projection=True)
    assert layer(torch.randn(10, 8)).shape == (10, 8)
    assert layer.output.weight.shape == (8, 14)
    assert (
        sum(p.numel() for p in KMIPAttention(8, heads=2, key_dim=3, k=4).parameters()) == 3 * 54 - 2 * 27 + 72
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (dict(dim=9, heads=2, key_dim=3, k=4), ["dim = 9", "heads = 2"]),
        (dict(dim=8, heads=2, key_dim=3, k=4, value_dim=7), ["2 · 7 = 14", "output_projection"]),
    ],
)
def test_dimensions_that_do_not_fit(arguments, words) -> None:
    with pytest.raises(UsageError) as caught:
        KMIPAttention(**arguments)
    assert all(word in str(caught.value) for word in words)


def test_values_that_do_not_fit() -> None:
    q, key, v = operands()
    with pytest.raises(ValueError, match="values") as caught:
        kmip_attention(q, key, v[:, :-1], 3)
    assert "(2, 40, v)" in str(caught.value)


def test_one_product_makes_queries_keys_and_values() -> None:
    """On devices other than a CPU; ``meta`` stands for them, and its shapes for their strides."""
    layer, x = KMIPAttention(8, heads=2, key_dim=3, k=6).to("meta"), torch.empty(9, 8, device="meta")
    queries, keys, values = layer.project(x)
    assert (queries.shape, keys.shape, values.shape) == ((2, 9, 3), (2, 9, 3), (2, 9, 4))
    assert queries.stride() == keys.stride() == (3, 20, 1)
    assert [each.storage_offset() for each in (queries, keys, values)] == [0, 6, 12]
    sum(each.sum() for each in (queries, keys, values)).backward()
    assert all(parameter.grad.shape == parameter.shape for parameter in layer.parameters())


def test_another_k_in_training() -> None:
    layer, other = KMIPAttention(8, heads=2, key_dim=3, k=6), KMIPAttention(8, heads=2, key_dim=3, k=2)
    other.load_state_dict(layer.state_dict())
    x = torch.randn(40, 8)
    set_training_k(torch.nn.Sequential(layer), 2)
    assert torch.equal(layer(x, PTR), other(x, PTR))
    evaluated = layer.eval()(x, PTR)
    assert not torch.equal(evaluated, other(x, PTR))
    set_training_k(layer, None)
    assert torch.equal(layer.train()(x, PTR), evaluated)


def test_a_warm_start_changes_nothing(monkeypatch) -> None:
    hints = []
    ranked = operators.ranked

    def noting(problem, backend):
        hints.append(None if problem.hint is None else tuple(problem.hint.shape))
        return ranked(problem, backend)

    monkeypatch.setattr(operators, "ranked", noting)
    cold, warm = (KMIPAttention(8, heads=2, key_dim=3, k=6, warm_start=start) for start in (False, True))
    warm.load_state_dict(cold.state_dict())
    x = torch.randn(400, 8)
    for step, rows in enumerate((400, 400, 300, 300)):
        moved = x[:rows] + 0.01 * step
        warm.training_k = cold.training_k = 6 - step
        assert torch.equal(warm(moved), cold(moved))
    assert hints[0::2] == [None, (2, 400, 6), None, (2, 300, 4)]
    where = warm._last.data_ptr()
    warm.eval()(moved)  # with k = 6
    assert warm._last.data_ptr() == where
    assert warm._last.shape == (2, 300, 3)
    assert warm.state_dict().keys() == cold.state_dict().keys()
