"""Triton's attention kernels, interpreted.

``tests/models/test_kernels_without_a_gpu.py`` runs this.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from support.oracles.gathered_attention import attend_to_pairs
from torch import Tensor

from kmip_data.models import kernel_availability
from kmip_data.models.attention import operators, torch_kernels
from kmip_data.models.attention.gpu import launch
from kmip_data.models.attention.kmip import kmip_attention
from kmip_data.models.search import topk_inner_product
from kmip_data.models.search.problem import NotFinite

RAGGED = [0, 1, 1, 4, 20, 24]  # one node, none, fewer than k, many


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(5)


@pytest.fixture
def _on_kernels(monkeypatch) -> None:
    """Attention goes to the kernels, although its tensors are on the CPU."""
    monkeypatch.setattr(operators, "_uses_cpu_kernels", lambda rows: False)
    monkeypatch.setattr(kernel_availability, "is_triton_available", lambda device: True)


def problem(dim: int, width: int, k: int, ptr: list[int], *, heads: int = 2) -> tuple[Tensor, ...]:
    """Float32 operands with their scores and indices.

    Key 2 is chosen by all queries of its graph.
    """
    queries, keys, values = (torch.randn(heads, ptr[-1], size) for size in (dim, dim, width))
    keys[:, 2] = 6
    queries.abs_()
    return (
        queries,
        keys,
        values,
        *topk_inner_product(queries, keys, k, query_ptr=ptr, backend="dense"),
    )


def assert_exact(operands: tuple[Tensor, ...], dropout_mask: Tensor | None = None) -> None:
    """Output and gradients of the kernels, of operands of any strides, equal float64's by autograd."""
    queries, keys, values, scores, indices = operands
    scale = 0.3
    exact = [rows.double().requires_grad_() for rows in (queries, keys, values)]
    expected, _ = attend_to_pairs(*exact, scores, indices, scale, dropout_mask, kept_scale=1.0)
    grad = (
        torch.randn(expected.shape).transpose(0, 1).contiguous().transpose(0, 1)
    )  # rows of all heads
    out, weights = launch.forward(values, scores, indices.int(), dropout_mask, scale)
    tolerance = dict(rtol=1e-5, atol=2e-6)
    torch.testing.assert_close(out.double(), expected.detach(), **tolerance)
    slopes = launch.backward(
        grad, queries, keys, values, indices.int(), weights, dropout_mask, scale
    )
    gradients = torch.autograd.grad(expected, exact, grad.double())
    for mine, theirs in zip(slopes, gradients, strict=True):
        size = max([1.0, *theirs.abs().flatten().tolist()])
        torch.testing.assert_close(mine.double() / size, theirs / size, **tolerance)
    again = launch.backward(
        grad, queries, keys, values, indices.int(), weights, dropout_mask, scale
    )
    assert all(torch.equal(a, b) for a, b in zip(slopes, again, strict=True))


LONG = itertools.product([(5, 14, 10), (14, 5, 1), (19, 19, 3), (76, 76, 15)], [False, True])


@pytest.mark.parametrize(
    ("dim", "width", "k", "dropped"),
    [
        (5, 14, 6, True),
        *(pytest.param(*each, drop, marks=pytest.mark.torture) for each, drop in LONG),
    ],
)
def test_kernels_equal_the_formula(
    dim: int, width: int, k: int, dropped: bool, monkeypatch
) -> None:
    monkeypatch.setattr(launch, "SEGMENT", 16)  # the key that all chose is cut
    operands = problem(dim, width, k, RAGGED, heads=1 if dim == 76 else 2)
    assert_exact(operands, torch.rand(operands[3].shape) < 0.6 if dropped else None)


@pytest.mark.parametrize("k", [1, 4])
def test_graphs_of_one_node_and_of_none_equal_the_formula(k: int) -> None:
    queries, keys, values = (torch.randn(1, 1, size) for size in (3, 3, 2))
    best = topk_inner_product(queries, keys, k, query_ptr=[0, 0, 1, 1], backend="dense")
    assert_exact((queries, keys, values, *best))


def test_queries_without_keys_attend_to_nothing() -> None:
    queries, no_keys, no_values = torch.randn(2, 3, 4), torch.randn(2, 0, 4), torch.randn(2, 0, 5)
    scores, indices = torch.full((2, 3, 6), -torch.inf), torch.full((2, 3, 6), -1)
    out, weights = launch.forward(no_values, scores, indices, None, 1.0)
    assert not out.any()
    grads = launch.backward(out, queries, no_keys, no_values, indices, weights, None, 1.0)
    assert [tuple(grad.shape) for grad in grads] == [(2, 3, 4), (2, 0, 4), (2, 0, 5)]
    assert not grads[0].any()
    none = torch.zeros(2, 0, 6, dtype=torch.int64)
    assert_exact((queries[:, :0], torch.randn(2, 3, 4), torch.randn(2, 3, 5), none.float(), none))


@pytest.mark.torture
def test_queries_with_many_keys_equal_the_formula(monkeypatch) -> None:
    assert_exact(problem(3, 20, 70, [0, 75], heads=1))
    monkeypatch.setattr(kernel_availability, "is_triton_available", lambda device: True)
    values = torch.ones(1, 1, 1)
    assert operators.triton_or_torch_kernels(values, operators.MAX_TRITON_K) is launch
    assert operators.triton_or_torch_kernels(values, operators.MAX_TRITON_K + 1) is torch_kernels


@pytest.mark.parametrize(
    "segment", [3, *(pytest.param(s, marks=pytest.mark.torture) for s in (1, 2, 8, 64))]
)
def test_lists_of_pairs_may_be_cut_anywhere(segment: int, monkeypatch) -> None:
    """Lists that begin, end or stop short at a cut, also where all pairs after it are without a key."""
    monkeypatch.setattr(launch, "SEGMENT", segment)
    monkeypatch.setattr(launch, "_PARALLEL_PAIRS", 2)
    indices = torch.randint(-1, 3, (2, 8, 2))
    indices[torch.rand(indices.shape) < 0.3] = 1
    grad_scores, weights = torch.randn(2, *indices.shape)
    queries, grad = torch.randn(2, 8, 3), torch.randn(2, 8, 5)
    pairs = launch.sort_pairs_by_key(indices, 3, segment)
    sums_of = launch._key_gradients(pairs, 3, grad_scores, queries, weights, None, grad)
    for sums, coefficients, source in (
        (sums_of[0], grad_scores, queries),
        (sums_of[1], weights, grad),
    ):
        expected = torch.zeros(2, 4, source.shape[2])  # the last key for those without one
        for head, row, slot in itertools.product(range(2), range(8), range(2)):
            expected[head, indices[head, row, slot]] += (
                coefficients[head, row, slot] * source[head, row]
            )
        torch.testing.assert_close(sums, expected[:, :3])


@pytest.mark.usefixtures("_on_kernels")
@pytest.mark.parametrize("sign", [1, -1])
def test_best_scores_that_overflow_are_refused_by_the_next_call(sign: int) -> None:
    queries, values = torch.full((1, 5, 4), 1e20), torch.randn(1, 5, 3)
    kmip_attention(queries, sign * queries, values, 2)
    with pytest.raises(NotFinite):
        kmip_attention(values, values, values, 2)
    kmip_attention(values, values, values, 2)


@pytest.mark.usefixtures("_on_kernels")
def test_scores_of_minus_infinity_below_a_finite_one_have_no_weight() -> None:
    queries, values = torch.full((1, 2, 1), 1e20), torch.randn(1, 3, 5)
    keys = torch.tensor([1.0, -1e20, -2e20]).view(1, 3, 1)
    for _ in range(2):
        out = kmip_attention(queries, keys, values, 3)
        assert torch.equal(out, values[:, :1].expand(1, 2, 5))


@pytest.mark.usefixtures("_on_kernels")
def test_one_key_has_no_gradient_in_queries_and_keys() -> None:
    queries, keys, values = (torch.randn(2, 20, size, requires_grad=True) for size in (4, 4, 7))
    kmip_attention(queries, keys, values, 1).square().sum().backward()
    assert not queries.grad.any()
    assert not keys.grad.any()
    assert values.grad.any()
