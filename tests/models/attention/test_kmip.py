"""k-MIP attention: each graph alone, exact, differentiable, and with published padding."""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import ClassVar

import pytest
import torch
from support.cases import check_each
from support.kernels.allocations import saved_for_backward
from support.oracles.slow_search import slow_padded_attention
from support.raises import raises
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric.nn import Sequential

from kmip_data.errors import Setting, UsageError
from kmip_data.models import (
    BigBirdAttention,
    ExphormerAttention,
    KMIPMultiheadAttention,
    PerformerAttention,
    TransformerAttention,
)
from kmip_data.models.attention import kmip
from kmip_data.models.attention.kmip import KMIPAttention, kmip_attention, set_training_k
from kmip_data.models.attention.reference import attend_by_graph, attend_in_graph

PTR = [0, 4, 4, 5, 17, 40]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(7)


def operands(heads: int = 2, rows: int = 40, key_dim: int = 3, value_dim: int = 5, **options):
    return [torch.randn(heads, rows, d, **options) for d in (key_dim, key_dim, value_dim)]


def test_the_reference_is_algorithm_1() -> None:
    """Query by query: the k largest inner products, of equal ones the lower key, and a softmax over them."""
    q, key, v = operands(rows=9)
    key[:, 5] = key[:, 2]
    out, weights, chosen = attend_in_graph(q, key, v, 4)
    for head, row in itertools.product(range(2), range(9)):
        products = [float(q[head, row] @ one) for one in key[head]]
        best = sorted(range(9), key=lambda j: (-products[j], j))[:4]
        assert chosen[head, row].tolist() == best
        exponentials = [math.exp(products[j] / math.sqrt(3)) for j in best]
        shares = torch.tensor(exponentials) / sum(exponentials)
        torch.testing.assert_close(weights[head, row], shares)
        torch.testing.assert_close(out[head, row], shares @ v[head, best])


def test_every_backend_equals_the_reference() -> None:
    def check_case(case) -> None:
        backend, k = case
        q, key, v = operands()
        attended = kmip.kmip_attention_with_weights(q, key, v, k, query_ptr=PTR, backend=backend)
        out, weights, indices = attend_by_graph(q, key, v, k, PTR, PTR)
        torch.testing.assert_close(attended.out, out)
        torch.testing.assert_close(attended.weights, weights)
        assert torch.equal(attended.indices.long(), indices)

    check_each(check_case, itertools.product(["cpu", "dense", "reference"], [1, 4, 50]))


def test_the_reference_is_a_backend_of_layers() -> None:
    layer, formula = (
        KMIPAttention(8, heads=2, key_dim=3, k=6, backend=name) for name in ("auto", "reference")
    )
    formula.load_state_dict(layer.state_dict())
    x = torch.randn(40, 8)
    for ptr in (PTR, None, torch.tensor([0, 0, 40])):
        torch.testing.assert_close(formula(x, ptr), layer(x, ptr))
    assert formula(x[:0], [0]).shape == (0, 8)
    q, key, v = operands()
    with raises(UsageError, steps=Setting({"model.attention.search": "auto"})):
        kmip_attention(q, key, v, 3, backend="reference", repeat_first_key=True)
    with raises(UsageError, naming="key_ptr"):
        kmip_attention(q, key, v, 3, [0, 3, 40], key_ptr=[0, 40], backend="reference")
    assert not kmip_attention(q, key, v, 3, dropout=1.0, backend="reference").any()


def test_queries_without_keys_get_zero_and_pass_no_gradient() -> None:
    q, key, v = (t.requires_grad_() for t in operands(rows=3))
    out = kmip_attention(q, key[:, :2], v[:, :2], 4, query_ptr=[0, 1, 3], key_ptr=[0, 0, 2])
    assert bool((out[:, 0] == 0).all())
    out.sum().backward()
    assert bool((q.grad[:, 0] == 0).all())
    assert all(bool(t.grad.isfinite().all()) for t in (q, key, v))


def test_gradients_with_dropout_and_repeated_keys() -> None:
    inputs = [t.requires_grad_() for t in operands(rows=7, dtype=torch.float64)]

    def run(*tensors: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(3)  # the same weights dropped at every call
        return kmip_attention(*tensors, 4, query_ptr=[0, 2, 7], dropout=0.4, repeat_first_key=True)

    assert torch.autograd.gradcheck(run, inputs)


def test_backward_saves_one_weight_and_one_index_per_pair() -> None:
    inputs = [t.requires_grad_() for t in operands()]
    with saved_for_backward() as kept:
        kmip_attention(*inputs, 5)
    assert sum(kept.values()) == sum(t.nbytes for t in inputs) + 2 * 40 * 5 * (4 + 4)


def test_dropout_keeps_the_mean() -> None:
    q, key, v = operands(heads=1, rows=20)
    plain = kmip_attention(q, key, v, 10)
    many = kmip_attention(*(t.expand(2000, -1, -1) for t in (q, key, v)), 10, dropout=0.3)
    torch.testing.assert_close(many.mean(0, keepdim=True), plain, atol=0.08, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_near_single_precision(dtype: torch.dtype) -> None:
    inputs = [t.to(dtype).requires_grad_() for t in operands()]
    out = kmip_attention(*inputs, 5, query_ptr=PTR)
    assert out.dtype == dtype
    expected = kmip_attention(*(t.detach().float() for t in inputs), 5, query_ptr=PTR)
    torch.testing.assert_close(out.float(), expected, atol=2e-2, rtol=2e-2)
    out.sum().backward()
    assert all(t.grad.dtype == dtype and bool(t.grad.isfinite().all()) for t in inputs)


@pytest.mark.parametrize(
    "k", [3, 12, 30]
)  # below a small graph, above some, above the longest (23)
def test_legacy_padding_is_the_published_layer(k: int) -> None:
    """Pads are zero rows, so their keys and values are the biases."""
    layer = KMIPAttention(8, heads=2, key_dim=3, k=k, legacy_padding=True)
    x = torch.randn(40, 8)
    rows = (
        part(x).unflatten(1, (2, -1)).transpose(0, 1)
        for part in (layer.query, layer.key, layer.value)
    )
    biases = [part.bias.view(2, -1) for part in (layer.key, layer.value)]
    expected = slow_padded_attention(*rows, k, PTR, biases)
    torch.testing.assert_close(layer(x, PTR), expected.transpose(0, 1).flatten(1))


def test_legacy_padding_caches_the_row_indices_of_earlier_batches() -> None:
    """A CUDA graph of the last batch of an epoch cannot be captured where they would be copied anew."""
    first, device = kmip._padded_positions((0, 3, 7), torch.device("cpu")), torch.device("cpu")
    for ptr in ((0, 2, 7), (0, 1, 7), (0, 4, 7)):
        kmip._padded_positions(ptr, device)
    assert kmip._padded_positions((0, 3, 7), device) is first


def test_mismatched_dimensions_are_refused() -> None:
    for options, width in (({"dim": 9}, 9), ({"dim": 8, "value_dim": 7}, 7)):
        with raises(UsageError, naming=width):
            KMIPAttention(heads=2, key_dim=3, k=4, **options)
    q, key, v = operands()
    with raises(UsageError, naming="(2, 39, 5)"):
        kmip_attention(q, key, v[:, :-1], 3)


def test_channels_heads_and_k_may_be_positional() -> None:
    """As in torch's and PyG's layers, in the order of ``KMIPMultiheadAttention``."""
    for call in (
        lambda: KMIPAttention(32, 4, k=5),
        lambda: KMIPAttention(32, 4, 5),
        lambda: KMIPMultiheadAttention(32, 4, k=5),
        lambda: KMIPMultiheadAttention(32, 4, 5),
    ):
        layer = call()
        assert layer.k == 5
        assert getattr(layer, "num_heads", None) or layer.heads == 4
    for layer_class in (
        TransformerAttention,
        PerformerAttention,
        BigBirdAttention,
        ExphormerAttention,
    ):
        assert str(layer_class(32, 4)) == str(layer_class(32, heads=4))


@pytest.mark.parametrize(("dim", "heads"), [(32, 0), (0, 4), (32, -4), (32, 5)])
def test_heads_must_divide_the_channels(dim, heads) -> None:
    for layer_class in (partial(KMIPAttention, k=4), TransformerAttention, ExphormerAttention):
        with pytest.raises(UsageError):
            layer_class(dim, heads)


def test_layer_uses_train_k_in_training() -> None:
    layer, other = (
        KMIPAttention(8, heads=2, key_dim=3, k=6),
        KMIPAttention(8, heads=2, key_dim=3, k=2),
    )
    other.load_state_dict(layer.state_dict())
    x = torch.randn(40, 8)
    set_training_k(torch.nn.Sequential(layer), 2)
    assert torch.equal(layer(x, PTR), other(x, PTR))
    evaluated = layer.eval()(x, PTR)
    assert not torch.equal(evaluated, other(x, PTR))
    set_training_k(layer, None)
    assert torch.equal(layer.train()(x, PTR), evaluated)


def test_graph_numbers_give_the_same_result_as_pointers() -> None:
    """Graph numbers, as PyG passes them, equal pointers: by position, by name, in Sequential, compiled."""
    sizes = torch.tensor(PTR).diff()
    numbers = torch.arange(len(sizes)).repeat_interleave(sizes)
    x = torch.randn(40, 8)
    for legacy in (False, True):
        layer = KMIPAttention(8, heads=2, key_dim=3, k=6, legacy_padding=legacy)
        expected = layer(x, PTR)
        assert torch.equal(layer(x, numbers), expected)
        assert torch.equal(layer(x, numbers.int()), expected)
        assert torch.equal(layer(x, batch=numbers), expected)

    plain = KMIPAttention(8, heads=2, key_dim=3, k=6)
    model = Sequential("x, batch", [(plain, "x, batch -> x")])
    assert torch.equal(model(x, numbers), plain(x, PTR))
    compiled = torch.compile(plain, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, numbers), plain(x, PTR))


def test_ambiguous_tensors_are_read_as_pointers_by_position() -> None:
    """Numbers that could be either are pointers by position, and graph numbers as ``batch``."""
    layer = KMIPAttention(8, heads=2, key_dim=3, k=6)
    x = torch.randn(2, 8)
    both = torch.tensor([0, 2])
    assert torch.equal(layer(x, both), layer(x))
    alone = torch.cat([layer(x[:1]), layer(x[1:])])
    torch.testing.assert_close(layer(x, batch=both), alone)
    torch.testing.assert_close(layer(x, torch.tensor([0, 1])), alone)
    assert layer(x[:0], torch.tensor([], dtype=torch.int64)).shape == (0, 8)


def test_mismatched_graph_numbers_are_refused() -> None:
    layer, x = KMIPAttention(8, heads=2, key_dim=3, k=6), torch.randn(3, 8)
    numbers = torch.tensor([0, 1, 1])

    def check_case(case) -> None:
        arguments, options, value = case
        with raises(UsageError, naming=value):
            layer(*arguments, **options)

    check_each(
        check_case,
        [
            ((x, torch.tensor([1, 0, 1])), {}, 3),
            ((x,), {"batch": torch.tensor([0, 1])}, 3),
            ((x,), {"batch": torch.tensor([0.0, 1, 1])}, 3),
            ((x,), {"batch": [0, 1, 1]}, "list"),
            ((x, [0, 3]), {"batch": numbers}, "ptr"),
            ((x[None],), {"batch": numbers}, "ptr"),
            ((x, torch.tensor([0, 2])), {}, 2),
        ],
    )


def test_the_search_is_an_operator_that_tools_see():
    class Seen(TorchDispatchMode):
        names: ClassVar[set[str]] = set()

        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            self.names.add(str(operator))
            return operator(*args, **kwargs or {})

    rows = torch.randn(1, 9, 4)
    with Seen():
        kmip_attention(rows, rows, rows, 3)
    assert any("search" in name for name in Seen.names), Seen.names
