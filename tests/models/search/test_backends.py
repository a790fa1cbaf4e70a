"""Every backend gives the rule's answer, bit for bit."""

from __future__ import annotations

import threading

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.slow_models import slow_search

from kmip_data.models.search import topk_inner_product
from kmip_data.models.search.backends import dense, keops
from kmip_data.threads import set_num_threads

KEOPS_DIM, KEOPS_K = 3, 2  # one pair: KeOps compiles a kernel for each

needs_keops = pytest.mark.skipif(keops.unusable("cpu") is not None, reason=str(keops.unusable("cpu")))


def assert_same(
    found: tuple[torch.Tensor, torch.Tensor], expected: tuple[torch.Tensor, torch.Tensor]
) -> None:
    torch.testing.assert_close(found[1], expected[1], rtol=0, atol=0)
    # Bits, but −0 and +0 are one score.
    assert torch.equal((found[0] + 0.0).view(torch.int32), (expected[0] + 0.0).view(torch.int32))


near_one = st.integers(0, 3).map(lambda step: 1 + step * 2.0**-23)
coarse = st.integers(-4, 4).map(lambda step: step / 4)
extreme = st.sampled_from([0.0, -0.0, 2.0**-149, -(2.0**-149), 1e-30, -1e-30, 1e19, -1e19, 3e38, -3e38])
anything = st.floats(width=32, allow_nan=False, allow_infinity=False)


@st.composite
def problems(draw: st.DrawFn, *, dim: int | None = None, k: int | None = None, most: int = 14):
    """Ragged queries and keys, of one kind of number or of all."""
    dim = draw(st.integers(1, 9)) if dim is None else dim
    k = draw(st.integers(1, 12)) if k is None else k
    heads = draw(st.integers(1, 2))
    sizes = draw(st.lists(st.tuples(st.integers(0, 6), st.integers(0, most)), min_size=1, max_size=4))
    query_ptr, key_ptr = [0], [0]
    for queries, keys in sizes:
        query_ptr.append(query_ptr[-1] + queries)
        key_ptr.append(key_ptr[-1] + keys)
    numbers = draw(
        st.sampled_from([coarse, near_one, extreme, anything, st.one_of(coarse, near_one, extreme)])
    )

    def rows(count: int) -> torch.Tensor:
        values = draw(st.lists(numbers, min_size=heads * count * dim, max_size=heads * count * dim))
        return torch.tensor(values, dtype=torch.float32).view(heads, count, dim)

    return rows(query_ptr[-1]), rows(key_ptr[-1]), k, query_ptr, key_ptr


def check(problem, backend: str) -> None:
    queries, keys, k, query_ptr, key_ptr = problem
    found = topk_inner_product(queries, keys, k, query_ptr=query_ptr, key_ptr=key_ptr, backend=backend)
    assert found[0].dtype == torch.float32
    assert found[1].dtype == torch.int64
    assert_same(found, slow_search(queries, keys, k, query_ptr, key_ptr))


@settings(deadline=None, max_examples=150)
@given(problems())
def test_cpu(problem) -> None:
    check(problem, "cpu")


@settings(deadline=None, max_examples=100)
@given(problems())
def test_dense_padding_small_graphs(problem) -> None:
    check(problem, "dense")


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(problems(most=24))
def test_dense_filtering_large_graphs(monkeypatch, problem) -> None:
    monkeypatch.setattr(dense, "_SMALL", 0)
    check(problem, "dense")


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(problems(most=24))
def test_dense_in_tiny_tiles(monkeypatch, problem) -> None:
    monkeypatch.setattr(dense, "_SMALL", 4)
    monkeypatch.setitem(dense.MEMORY_LIMIT, "cpu", dense._BYTES_PER_PAIR * 7)
    check(problem, "dense")


@needs_keops
@settings(deadline=None, max_examples=60)
@given(problems(dim=KEOPS_DIM, k=KEOPS_K, most=24))
def test_keops(problem) -> None:
    check(problem, "keops")


def blocks(*, tied: bool, dim: int = KEOPS_DIM) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
    """Three graphs, large enough for every path; ``tied``: each key many times over."""
    generator = torch.Generator().manual_seed(5)
    queries = torch.randn(2, 1500, dim, generator=generator)
    keys = torch.randn(2, 1500, dim, generator=generator)
    if tied:
        keys = keys[:, torch.arange(1500) % 40]
    return queries, keys, [0, 700, 800, 1500]


@needs_keops
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("backend", ["cpu", "keops"])
def test_backends_agree_on_large_graphs(backend: str, tied: bool) -> None:
    queries, keys, ptr = blocks(tied=tied)
    expected = topk_inner_product(queries, keys, KEOPS_K, query_ptr=ptr, backend="dense")
    assert_same(topk_inner_product(queries, keys, KEOPS_K, query_ptr=ptr, backend=backend), expected)


@pytest.mark.parametrize("k", [1, 33, 300, 2000])
@pytest.mark.parametrize("dim", [1, 7, 40])
def test_cpu_and_dense_agree_on_other_sizes(k: int, dim: int) -> None:
    queries, keys, ptr = blocks(tied=dim == 7, dim=dim)
    expected = topk_inner_product(queries, keys, k, query_ptr=ptr, backend="dense")
    assert_same(topk_inner_product(queries, keys, k, query_ptr=ptr, backend="cpu"), expected)


def test_float32_sums_would_rank_otherwise() -> None:
    """The grid of near ties does what it is for: plain float32 products choose other keys."""
    generator = torch.Generator().manual_seed(0)
    steps = torch.randint(0, 4, (1, 200, 8), generator=generator)
    rows = 1 + steps * 2.0**-23
    exact = topk_inner_product(rows, rows, 5)[1]
    assert not torch.equal(
        (rows @ rows.mT).sort(dim=-1, descending=True, stable=True).indices[..., :5], exact
    )


def test_one_and_two_threads_agree() -> None:
    queries, keys, ptr = blocks(tied=False)
    try:
        set_num_threads(1)
        one = topk_inner_product(queries, keys, 9, query_ptr=ptr, backend="cpu")
        set_num_threads(2)
        two = topk_inner_product(queries, keys, 9, query_ptr=ptr, backend="cpu")
    finally:
        set_num_threads(None)
    assert_same(two, one)


def test_two_python_threads_search_at_once() -> None:
    queries, keys, ptr = blocks(tied=False)
    expected = topk_inner_product(queries, keys, 9, query_ptr=ptr, backend="cpu")
    found: list[tuple[torch.Tensor, torch.Tensor]] = []

    def search() -> None:
        found.extend(topk_inner_product(queries, keys, 9, query_ptr=ptr, backend="cpu") for _ in range(5))

    threads = [threading.Thread(target=search) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 10
    for result in found:
        assert_same(result, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("backend", ["cpu", "dense"])
def test_half_precision_is_widened(dtype: torch.dtype, backend: str) -> None:
    queries, keys, ptr = blocks(tied=False)
    queries, keys = queries.to(dtype), keys.to(dtype)
    expected = topk_inner_product(queries.float(), keys.float(), 4, query_ptr=ptr, backend="cpu")
    assert_same(topk_inner_product(queries, keys, 4, query_ptr=ptr, backend=backend), expected)


@pytest.mark.parametrize("backend", ["cpu", "dense"])
def test_autocast_and_reduced_matmul_precision_change_nothing(backend: str) -> None:
    queries, keys, ptr = blocks(tied=False)
    expected = topk_inner_product(queries, keys, 4, query_ptr=ptr, backend="cpu")
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        with torch.autocast("cpu", torch.bfloat16):
            assert_same(topk_inner_product(queries, keys, 4, query_ptr=ptr, backend=backend), expected)
    finally:
        torch.set_float32_matmul_precision(before)


def test_float64_scores_stay_float64() -> None:
    rows = torch.randn(1, 20, 3, dtype=torch.float64)
    scores, indices = topk_inner_product(rows, rows, 4)
    assert scores.dtype == torch.float64
    products = rows @ rows.mT
    torch.testing.assert_close(scores, products.gather(-1, indices))
    torch.testing.assert_close(scores, products.sort(dim=-1, descending=True).values[..., :4])


def test_results_carry_no_gradient_and_inputs_stay() -> None:
    rows = torch.randn(1, 30, 3, requires_grad=True)
    before = rows.detach().clone()
    scores, indices = topk_inner_product(rows, rows, 2)
    assert not scores.requires_grad
    assert not indices.requires_grad
    assert torch.equal(rows.detach(), before)


@pytest.mark.parametrize("backend", ["cpu", "dense"])
def test_rows_that_are_no_contiguous_block(backend: str) -> None:
    wide = torch.randn(50, 2, 8)
    rows = wide[:, :, ::2].transpose(0, 1)
    assert_same(
        topk_inner_product(rows, rows, 3, backend=backend),
        topk_inner_product(rows.contiguous(), rows.contiguous(), 3, backend="cpu"),
    )
