"""Attention as operators: compiled kernels against torch operations, threads, compiled graphs, vmap."""

from __future__ import annotations

import pytest
import torch
from support.raises import raises

from kmip_data.errors import Setting, UsageError
from kmip_data.models.attention import cpu_kernels, operators, torch_kernels
from kmip_data.models.attention.kmip import KMIPAttention, kmip_attention
from kmip_data.models.search import topk
from kmip_data.models.search.topk import topk_inner_product
from kmip_data.runtime import parallel


def problem(*, heads=2, rows=50, keys=30, dim=3, value_dim=5, k=4, dtype=torch.float32, seed=0):
    """Operands, scores and indices with some slots missing and two rows without any key."""
    g = torch.Generator().manual_seed(seed)
    q, key, v = (
        torch.randn(heads, n, d, generator=g, dtype=dtype)
        for n, d in ((rows, dim), (keys, dim), (keys, value_dim))
    )
    indices = torch.randint(0, keys, (heads, rows, k), generator=g, dtype=torch.int32)
    indices[:, :7, 2:] = -1
    indices[:, 3:5] = -1
    scores = (q[:, :, None] * key[torch.arange(heads)[:, None, None], indices.long()]).sum(-1)
    scores[indices < 0] = -torch.inf
    return q, key, v, scores, indices


def run(arguments, dropout_mask=None, kept_scale=1.0):
    """Output, weights and the three gradients of the operator."""
    q, key, v, scores, indices = arguments
    inputs = [t.detach().clone().requires_grad_() for t in (q, key, v)]
    out, weights = operators.attend(*inputs, scores, indices, 0.6, dropout_mask, kept_scale)
    return [out, weights, *torch.autograd.grad(out.sin().sum(), inputs)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("dropped", [False, True])
def test_kernels_equal_torch_operations(dtype: torch.dtype, dropped: bool, monkeypatch) -> None:
    arguments = problem(dtype=dtype)
    dropout_mask = (
        torch.rand(2, 50, 4, generator=torch.Generator().manual_seed(1)) > 0.4 if dropped else None
    )
    results = run(arguments, dropout_mask, 1.7)
    monkeypatch.setattr(operators, "_uses_cpu_kernels", lambda tensor: False)
    monkeypatch.setattr(torch_kernels, "SCRATCH_BYTES", 1000)  # many parts
    for a, b in zip(results, run(arguments, dropout_mask, 1.7), strict=True):
        assert a.dtype == b.dtype
        loose = dict(atol=0.03, rtol=0.03) if dtype == torch.bfloat16 else {}
        torch.testing.assert_close(a, b, **loose)


@pytest.mark.parametrize("heads", [1, 3])
def test_same_bits_for_any_number_of_threads(heads: int, monkeypatch) -> None:
    monkeypatch.setattr(cpu_kernels, "MIN_PAIRS_PER_RANGE", 1)
    arguments = problem(heads=heads, rows=400, keys=37, k=9)
    results = []
    for count in (1, 2, 5):
        parallel.set_num_threads(count)
        try:
            results.append(run(arguments))
        finally:
            parallel.set_num_threads(None)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_operators_keep_the_rules_of_torch(dtype: torch.dtype) -> None:
    q, key, v, scores, indices = problem(dtype=dtype)
    inputs = [t.requires_grad_() for t in (q, key, v)]
    checks = ("test_schema", "test_faketensor", "test_autograd_registration")
    scores = scores.detach()
    torch.library.opcheck(
        operators.attend, (*inputs, scores, indices, 0.6, None, 1.0), test_utils=checks
    )
    ptr = torch.tensor([0, 10, 30])
    plain = [t.detach() for t in (key, key)]
    torch.library.opcheck(topk.search_op, (*plain, 4, ptr, None, "auto"), test_utils=checks)


def test_operators_compile_to_one_graph() -> None:
    layer = KMIPAttention(8, heads=2, key_dim=3, k=6, dropout=0.2)
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend="aot_eager")
    for rows, ptr in ((40, [0, 4, 40]), (31, [0, 10, 20, 31])):
        x = torch.randn(rows, 8)
        results = []
        for call in (layer, compiled):
            torch.manual_seed(1)
            out = call(x, torch.tensor(ptr))
            grads = torch.autograd.grad(out.square().sum(), list(layer.parameters()))
            results.append([out, *grads])
        for a, b in zip(*results, strict=True):
            torch.testing.assert_close(a, b)


def test_the_search_compiles_within_one_graph() -> None:
    compiled = torch.compile(topk_inner_product, fullgraph=True, dynamic=True, backend="aot_eager")
    for rows, ptr in ((30, torch.tensor([0, 3, 30])), (41, [0, 20, 41]), (12, None)):
        x = torch.randn(2, rows, 4, requires_grad=True)
        expected = topk_inner_product(x, x, 5, query_ptr=ptr)
        result = compiled(x, x, 5, query_ptr=ptr)
        for a, b in zip(result, expected, strict=True):
            assert a.dtype == b.dtype
            assert torch.equal(a, b)


def test_transforms_are_refused_and_the_remedy_gives_the_same_gradients() -> None:
    rows = torch.randn(2, 9, 4, dtype=torch.float64)

    def loss(x: torch.Tensor, backend: str = "reference") -> torch.Tensor:
        return kmip_attention(x, x, x, 3, [0, 2, 9], backend=backend).square().sum()

    for transform, x in (
        (torch.func.grad, rows),
        (torch.func.jacrev, rows),
        (torch.func.jacfwd, rows),
        (torch.func.vmap, rows[:, None]),
    ):
        with pytest.raises(UsageError) as caught:
            transform(lambda x: loss(x, "auto"))(x)
        assert caught.value.steps[0] == Setting(backend="reference")

    x = rows.clone().requires_grad_()
    (expected,) = torch.autograd.grad(loss(x, "auto"), x)
    for transform in (torch.func.grad, torch.func.jacrev):
        torch.testing.assert_close(transform(loss)(rows), expected)
    tangent = torch.randn_like(rows)
    _, forward = torch.func.jvp(loss, (rows,), (tangent,))
    torch.testing.assert_close(forward, (expected * tangent).sum())
    assert torch.autograd.gradgradcheck(loss, x)


@pytest.mark.parametrize("where", [cpu_kernels, torch_kernels])
def test_one_key_has_no_gradient_in_queries_and_keys(where, monkeypatch) -> None:
    """Its weight is 1 whatever the score: exactly 0, not what rounding leaves."""
    monkeypatch.setattr(operators, "_uses_cpu_kernels", lambda _: where is cpu_kernels)
    q, key, v = (torch.randn(2, 40, width, requires_grad=True) for width in (4, 4, 7))
    kmip_attention(q, key, v, 1, [0, 40]).square().sum().backward()
    assert not q.grad.any()
    assert not key.grad.any()
    assert v.grad.any()


def test_second_derivatives_are_refused() -> None:
    q, key, v, scores, indices = problem(dtype=torch.float64)
    q.requires_grad_()
    out, _ = operators.attend(q, key, v, scores, indices, 0.6, None, 1.0)
    (grad,) = torch.autograd.grad(out.square().sum(), q, create_graph=True)
    with raises(UsageError, naming="create_graph"):
        grad.sum().backward()
