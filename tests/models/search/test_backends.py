"""Every backend (on a CPU exact_scan, byte_scan, float_scan) gives the answer of the rule, bit for bit."""

from __future__ import annotations

import itertools
import logging
import threading

import numpy as np
import psutil
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.cases import check_each
from support.oracles.slow_search import slow_search

from kmip_data.models.precision import autocast
from kmip_data.models.search import rule, topk_inner_product
from kmip_data.models.search.backends import cpu, dense, keops
from kmip_data.models.search.cpu import byte_scan, candidates, equal_rows, simd, sorted_keys
from kmip_data.runtime.parallel import set_num_threads
from tools.gpu.fuzz import numbers

KEOPS_DIM, KEOPS_K = 3, 2  # one pair: KeOps compiles a kernel for each

needs_keops = pytest.mark.skipif(
    keops.why_unusable("cpu") is not None, reason=str(keops.why_unusable("cpu"))
)


def assert_same(
    result: tuple[torch.Tensor, torch.Tensor], expected: tuple[torch.Tensor, torch.Tensor]
) -> None:
    torch.testing.assert_close(result[1], expected[1], rtol=0, atol=0)
    assert torch.equal(result[0].view(torch.int32), expected[0].view(torch.int32))


@st.composite
def problems(
    draw: st.DrawFn,
    *,
    dim: int | None = None,
    k: int | None = None,
    most: int = 14,
    queries=(0, 1, 2, 3, 5),
):
    """Ragged queries and keys of one kind of number."""
    dim = draw(st.integers(1, 9)) if dim is None else dim
    k = draw(st.integers(1, 12)) if k is None else k
    heads = draw(st.integers(1, 2))
    sizes = draw(
        st.lists(st.tuples(st.sampled_from(queries), st.integers(0, most)), min_size=1, max_size=4)
    )
    query_ptr, key_ptr = ([0, *itertools.accumulate(column)] for column in zip(*sizes, strict=True))
    kind = draw(st.sampled_from(["coarse", "near one", "extreme", "any bits", "mixed"]))
    generator = np.random.default_rng(draw(st.integers(0, 10**6)))
    queries, keys = (
        torch.from_numpy(numbers(kind, generator, (heads, ptr[-1], dim)))
        for ptr in (query_ptr, key_ptr)
    )
    return queries, keys, k, query_ptr, key_ptr


def check(problem, backend: str) -> None:
    queries, keys, k, query_ptr, key_ptr = problem
    result = topk_inner_product(
        queries, keys, k, query_ptr=query_ptr, key_ptr=key_ptr, backend=backend
    )
    assert result[0].dtype == torch.float32
    assert result[1].dtype == torch.int64
    assert_same(result, slow_search(queries, keys, k, query_ptr, key_ptr))


WAYS = ["exact", "byte", "float", "distinct"]


def force(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """Let the ``cpu`` backend go that way wherever it can, however small the graph."""
    if way == "distinct":
        monkeypatch.setattr(cpu, "_MIN_GROUPED_KEYS", 0)
        monkeypatch.setattr(cpu, "_MAX_DISTINCT_FRACTION", 1.0)
        monkeypatch.setattr(cpu, "_MIN_FILTER_QUERIES", 0)
        return
    monkeypatch.setattr(cpu, "_MIN_GROUPED_KEYS", 2**60)
    if way == "exact":
        monkeypatch.setattr(cpu, "_MIN_FILTER_QUERIES", 2**60)
        return
    monkeypatch.setattr(cpu, "_MIN_FLOAT_KEYS", 0)
    for name in ("_MIN_FILTER_QUERIES", "_MIN_FLOAT_KEYS_PER_K"):
        monkeypatch.setattr(cpu, name, 1)
    monkeypatch.setattr(
        cpu, "_MAX_TIED_FRACTION", 1.0
    )  # rows that fail are searched exactly, one by one
    monkeypatch.setattr(cpu, "_BYTE_LEAF_COST", -1e18 if way == "byte" else np.inf)


at_random = settings(
    deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.parametrize("way", WAYS)
@at_random
@given(problem=problems(most=30))
def test_the_cpu_search_equals_the_rule_by_every_way(monkeypatch, way: str, problem) -> None:
    force(monkeypatch, way)
    check(problem, "cpu")


def test_the_exact_scan_equals_the_rule_across_blocks(monkeypatch) -> None:
    """Networks of every size, keys of several blocks, tiles that are not full, and ties throughout."""

    def check_case(case) -> None:
        k, dim = case
        generator = np.random.default_rng(k)
        sizes = [(1, 700), (7, 129), (9, 64), (40, 15), (270, 300)]
        ptrs = [[0, *itertools.accumulate(column)] for column in zip(*sizes, strict=True)]
        rows = [torch.from_numpy(numbers("coarse", generator, (2, ptr[-1], dim))) for ptr in ptrs]
        result = topk_inner_product(*rows, k, query_ptr=ptrs[0], key_ptr=ptrs[1], backend="cpu")
        expected = topk_inner_product(*rows, k, query_ptr=ptrs[0], key_ptr=ptrs[1], backend="dense")
        assert_same(result, expected)

    force(monkeypatch, "exact")
    check_each(check_case, itertools.product([1, 16, 17, 130, 600], [3, 256]))


#: Keys of a graph that is filtered, and pairs of a tile.
@pytest.mark.parametrize(("small", "pairs"), [(512, 2**20), (0, 2**20), (4, 7)])
@at_random
@given(problem=problems(most=24))
def test_the_dense_search_equals_the_rule_whole_and_in_blocks(
    monkeypatch, small: int, pairs: int, problem
) -> None:
    monkeypatch.setattr(dense, "_MAX_SMALL_ROWS", small)
    monkeypatch.setitem(dense.SCRATCH_BYTES, "cpu", dense._BYTES_PER_PAIR * pairs)
    check(problem, "dense")


@pytest.fixture
def refined(monkeypatch) -> list[int]:
    """Rows that each float64 product of ``dense`` is given: those that float32 did not prove."""
    rows = []
    product = dense._best_by_float64

    def counted(queries, keys, count):
        rows.append(queries.shape[0] * queries.shape[1])
        return product(queries, keys, count)

    monkeypatch.setattr(dense, "_best_by_float64", counted)
    return rows


def test_the_dense_search_of_wide_rows_equals_the_rule(monkeypatch, refined) -> None:
    """Ties, near ties and numbers of any size in sums of up to 1,024 products."""
    monkeypatch.setattr(dense, "_MAX_SMALL_ROWS", 0)

    def check_case(case) -> None:
        kind, dim, scale = case
        generator = np.random.default_rng(dim)
        sides = [numbers(kind, generator, (1, rows, dim)) if kind != "normal" else
                 generator.standard_normal((1, rows, dim), np.float32) for rows in (6, 40)]  # fmt: skip
        queries, keys = (torch.from_numpy(side) * scale for side in sides)
        check((queries, keys, 3, [0, 6], [0, 40]), "dense")

    kinds = ["coarse", "near one", "extreme", "mixed", "normal"]
    check_each(check_case, itertools.product(kinds, [64, 257, 1024], [1.0]))
    check_each(
        check_case, itertools.product(["normal", "near one"], [300], [1e-22, 1e-19, 1e15, 1e18])
    )
    assert refined, "of near ties, float32 proves nothing"


def test_dense_proves_near_ties_in_float64(monkeypatch, refined) -> None:
    """Scores that differ by more than float32's rounding and less than its bound are not scored whole."""
    monkeypatch.setattr(dense, "_MAX_SMALL_ROWS", 0)
    scored = []
    monkeypatch.setattr(rule, "score_block", lambda *operands: scored.append(operands))
    keys = torch.ones(1, 100, 256)
    keys[0, :, 0] += torch.arange(100).flip(0) * 2.0**-12
    result = topk_inner_product(torch.ones(1, 20, 256), keys, 4, backend="dense")
    assert result[1].tolist() == [[[0, 1, 2, 3]] * 20]
    assert (refined, scored) == ([20], [])


@pytest.mark.parametrize("dim", [10, 64, 1024])
def test_dense_search_rescores_at_most_one_row_in_100_in_float64(refined, dim: int) -> None:
    generator = torch.Generator().manual_seed(dim)
    queries, keys = (torch.randn(2, 4000, dim, generator=generator) for _ in range(2))
    topk_inner_product(queries[:, :400], keys, 10, backend="dense")
    assert sum(refined) / 800 <= 0.01, "share of rows that float32 does not prove"


class Products(torch.overrides.TorchFunctionMode):
    """Records the dtype and PyTorch's precision of each matrix product."""

    def __init__(self) -> None:
        self.seen = set()

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if getattr(function, "__name__", "") in {"matmul", "__matmul__"}:
            self.seen.add((args[0].dtype, torch.get_float32_matmul_precision()))
        return function(*args, **kwargs or {})


@pytest.mark.parametrize("precision", ["tf32", "bf16-mixed"])
def test_dense_multiplies_in_full_float32(precision: str) -> None:
    """The caller's precision setting is ignored and restored afterwards."""
    queries = torch.randn(1, 8, 32, generator=torch.Generator().manual_seed(0))
    keys = torch.randn(1, 600, 32, generator=torch.Generator().manual_seed(1))
    with autocast(precision, "cpu"), Products() as products:
        before = torch.get_float32_matmul_precision()
        result = topk_inner_product(queries, keys, 5, backend="dense")
        assert torch.get_float32_matmul_precision() == before
    assert products.seen == {(torch.float32, "highest")}
    assert_same(result, slow_search(queries, keys, 5, [0, 8], [0, 600]))


@needs_keops
@settings(deadline=None, max_examples=30)
@given(
    problems(dim=KEOPS_DIM, k=KEOPS_K, most=24, queries=(0, 2, 3, 5))
)  # one would be a kernel more
def test_the_keops_search_equals_the_rule(problem) -> None:
    check(problem, "keops")


def blocks() -> tuple[torch.Tensor, torch.Tensor, list[int]]:
    """Three graphs, large enough for every path."""
    queries, keys = torch.randn(2, 2, 1500, KEOPS_DIM, generator=torch.Generator().manual_seed(5))
    return queries, keys, [0, 700, 800, 1500]


def adversary(name: str, count: int, dim: int) -> torch.Tensor:
    """Keys laid out against bounds and filters."""
    generator = torch.Generator().manual_seed(8)
    rows = torch.randn(2, count, dim, generator=generator)
    if name == "one giant":
        rows[:, count // 2] *= 1e6
    elif name == "two clusters":
        rows *= 1e-3
        rows[:, ::2] += 1
    elif name == "tight clusters":  # directions nearer than a float32 axis is to length 1
        centres = torch.nn.functional.normalize(rows[:, :3], dim=2)
        rows = centres[:, torch.arange(count) % 3] + 5e-5 * rows
    elif name == "tied":  # each key many times over
        rows = rows[:, torch.arange(count) % 40]
    change = {
        "equal norms": lambda: rows / rows.norm(dim=2, keepdim=True),
        "shortest first": lambda: torch.stack([head[head.norm(dim=1).argsort()] for head in rows]),
        "far from the origin": lambda: rows + 1e4,
        "constant": lambda: torch.full_like(rows, 0.1),
        "one line": lambda: rows[..., :1] * torch.ones(dim),
        "subnormal": lambda: rows * 1e-39,
        "overflowing": lambda: (rows * 1e38).clamp(-3e38, 3e38),
    }
    return change.get(name, lambda: rows)()


LAYOUTS = """equal norms, one giant, two clusters, tight clusters, tied, shortest first, far from the origin,
constant, one line, subnormal, overflowing""".replace("\n", " ").split(", ")


def test_equal_rows_are_searched_once(caplog) -> None:
    """Every node occurs five times, in graphs of several sizes; one is too small to deduplicate."""
    generator = torch.Generator().manual_seed(4)
    ptr = [0, 1800, 2000, 3800]
    twins = torch.cat(
        [torch.randint(low, low + 300, (high - low,)) for low, high in itertools.pairwise(ptr)]
    )
    queries, keys = torch.randn(2, 3, ptr[-1], 5, generator=generator)[:, :, twins]
    expected = topk_inner_product(queries, keys, 9, query_ptr=ptr, backend="dense")
    with caplog.at_level(logging.DEBUG, logger=cpu.__name__):
        assert_same(topk_inner_product(queries, keys, 9, query_ptr=ptr, backend="cpu"), expected)
    pieces = np.array(
        [[head, low, high] for head in range(3) for low, high in itertools.pairwise(ptr)]
    )
    groups = equal_rows.group_rows(keys.numpy(), pieces)
    distinct = [len(np.unique(keys[head, low:high], axis=0)) for head, low, high in pieces]
    assert groups.group_counts.tolist() == distinct
    searched = sum(distinct) - sum(distinct[1::3])
    assert f"2 graphs have {searched} distinct queries and {searched} distinct keys" in caplog.text


def test_colliding_rows_do_not_change_the_result(monkeypatch) -> None:
    """Rows made to collide are compared with a few; equal ones that miss each other count twice."""
    force(monkeypatch, "distinct")
    values = np.linspace(1, 2, 100_000, dtype=np.float32)
    mixed = values.view(np.int32) * equal_rows._hash_factors(1)
    colliding = values[mixed >> 56 == 3][:100]
    rows = torch.from_numpy(np.concatenate([colliding, colliding[::-1]]))[None, :, None]
    groups = equal_rows.group_rows(rows.numpy(), np.array([[0, 0, 200]]))
    assert 100 < groups.group_counts[0] <= 200
    problem = (rows, rows, 5, [0, 200], [0, 200])
    check(problem, "cpu")


def test_queries_that_are_given_up_leave_their_neighbours_alone(monkeypatch) -> None:
    """More equal keys than a query has room for, in a block with queries that the filter ranks.

    So are the functions of an app in MalNet-Tiny without features of their own.
    """
    generator = torch.Generator().manual_seed(0)
    distinct = torch.randn(2, 150, 16, generator=generator)
    # Row i is there about 1,500 / i times.
    shares = 1 / torch.arange(1, 151)
    rows = torch.multinomial(shares, 1500, replacement=True, generator=generator)
    keys = 0.1 * distinct[:, rows] + 0.3
    queries = torch.randn(2, 150, 16, generator=generator)[:, rows]
    expected = topk_inner_product(queries, keys, 10, backend="dense")
    for way in ("byte", "float"):
        with monkeypatch.context() as patch:
            force(patch, way)
            assert_same(topk_inner_product(queries, keys, 10, backend="cpu"), expected)


def test_adversarial_layouts_and_extreme_sizes_equal_the_dense_search(monkeypatch, caplog) -> None:
    def check_case(case) -> None:
        layout, k, dim = case
        keys = adversary(layout, 4500, dim)
        queries = torch.randn(2, 70, dim, generator=torch.Generator().manual_seed(9))
        queries[:, 3] = 0
        expected = topk_inner_product(queries, keys, k, backend="dense")
        for way in WAYS:
            with monkeypatch.context() as patch:
                force(patch, way)
                assert_same(topk_inner_product(queries, keys, k, backend="cpu"), expected)

    sizes = [(1, 1), (100, 10), (1024, 2), (33, 40), (17, 256)]
    cases = [*((layout, 7, 3) for layout in LAYOUTS), *(("plain", *each) for each in sizes)]
    with caplog.at_level(logging.DEBUG, logger=cpu.__name__):
        check_each(check_case, cases)
    assert "float scan of 4500 keys" in caplog.text
    assert not simd.multiplies_bytes() or "byte scan of 4500 keys" in caplog.text


def test_the_smallest_byte_filtered_graphs_equal_the_dense_search(caplog) -> None:
    """Covers every automatic search path in graphs of fewer than a hundred leaves."""
    if not simd.multiplies_bytes():
        pytest.skip("this processor does not multiply bytes")

    def check_case(case) -> None:
        layout, count, k = case
        keys = adversary(layout, count, 64)
        queries = torch.cat([keys[:, :70], torch.randn(2, 30, 64)], 1)
        queries[:, 3] = 0
        expected = topk_inner_product(queries, keys, k, backend="dense")
        assert_same(topk_inner_product(queries, keys, k, backend="cpu"), expected)

    cases = [*((layout, 1101, 10) for layout in LAYOUTS), ("plain", 1500, 40), ("plain", 1063, 1)]
    with caplog.at_level(logging.DEBUG, logger=cpu.__name__):
        check_each(check_case, cases)
    assert "byte scan of 1101 keys" in caplog.text
    assert "byte scan of 1500 keys" in caplog.text
    assert "exact scan of 1101 keys" in caplog.text


@pytest.mark.parametrize("way", ["float", "byte"])
def test_keys_that_are_longer_by_less_than_rounding_do_not_hide_the_first(monkeypatch, way) -> None:
    """Keys are searched by falling length; of equal scores the first four win, which are shorter by 8e-6."""
    force(monkeypatch, way)
    keys = torch.zeros(1, 4_096, 10)
    keys[:, :16, 0] = 1
    keys[:, 4:16, 1] = 2**-8  # longer, with the same score
    keys[:, 16:32, 0] = -1
    keys[:, 32::2, 2] = 1 + 3e-6  # between them in length, and without a score
    keys[:, 33::2, 2] = -1 - 3e-6
    queries = torch.zeros(1, 8, 10)
    queries[..., 0] = 1
    _, indices = topk_inner_product(queries, keys, 4, backend="cpu")
    assert (indices == torch.arange(4)).all()


def test_bytes_lose_no_key_to_rounding(monkeypatch) -> None:
    """Half of the best keys round to products of bytes below the k-th best: the bound keeps them."""
    if not simd.multiplies_bytes():
        pytest.skip("this processor does not multiply bytes")
    keys = adversary("plain", 6000, 10)[0].numpy()
    ordered = sorted_keys.sort_by_length(keys)
    codes = byte_scan.encode_as_bytes(keys, ordered)

    # 1. Keys differ from their bytes by at most the bound.
    scaled = ((keys - ordered.centre) * ordered.factor)[ordered.order]
    unsigned = codes.quads.view(np.uint8).reshape(-1, 3, 16, 4).transpose(0, 2, 1, 3)
    band = np.arange(6000) // 16 >> codes.shift
    whole = unsigned.reshape(-1, 12)[:6000, :10].astype(float) - 128
    differences = np.linalg.norm(scaled - whole * codes.step[band, None], axis=1)
    largest = np.array([differences[band == i].max() for i in range(len(codes.error))])
    assert (codes.error * 0.999 < largest).all()
    assert (largest <= codes.error).all()
    lengths = np.linalg.norm(scaled, axis=1)
    assert (lengths <= np.repeat(codes.sorted_keys.max_length, 16)[:6000]).all()

    # 2. The search finds what the rule finds; without the bound it does not.
    force(monkeypatch, "byte")
    queries = adversary("plain", 4500, 10)[1:, :500]
    operands = queries, torch.from_numpy(keys)[None], 10
    expected = topk_inner_product(*operands, backend="dense")
    assert_same(topk_inner_product(*operands, backend="cpu"), expected)
    wrong = codes._replace(error=codes.error - 0.02)
    monkeypatch.setattr(byte_scan, "encode_as_bytes", lambda *_: wrong)
    lost = topk_inner_product(*operands, backend="cpu")
    assert not torch.equal(lost[1], expected[1])


def test_repeated_searches_keep_no_memory() -> None:
    rows, process = torch.randn(1, 2000, 4), psutil.Process()
    for count in (50, 450):
        for _ in range(count):
            topk_inner_product(rows, rows, 3, backend="cpu")
        if count == 50:
            before = process.memory_info().rss
    assert process.memory_info().rss - before < 16 * 2**20


def test_threads_give_equal_results() -> None:
    """One, two, and two of Python that search at the same time."""
    queries, keys, ptr = blocks()
    results: list[tuple[torch.Tensor, torch.Tensor]] = []

    def search(times: int = 1) -> None:
        results.extend(
            topk_inner_product(queries, keys, 9, query_ptr=ptr, backend="cpu") for _ in range(times)
        )

    try:
        for count in (1, 2):
            set_num_threads(count)
            search()
    finally:
        set_num_threads(None)
    threads = [threading.Thread(target=search, args=(5,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 12
    for result in results:
        assert_same(result, results[0])


def test_half_precision_autocast_and_strides_change_nothing() -> None:
    queries, keys, ptr = blocks()
    before = torch.get_float32_matmul_precision()

    def check_case(case) -> None:
        dtype, backend = case
        rows = queries.to(dtype), keys.to(dtype)
        expected = topk_inner_product(
            *(each.float() for each in rows), 4, query_ptr=ptr, backend="cpu"
        )
        apart = [each.mT.contiguous().mT for each in rows]
        try:
            torch.set_float32_matmul_precision("medium")
            with torch.autocast("cpu", torch.bfloat16):
                assert_same(topk_inner_product(*apart, 4, query_ptr=ptr, backend=backend), expected)
        finally:
            torch.set_float32_matmul_precision(before)

    check_each(
        check_case,
        itertools.product([torch.float16, torch.bfloat16, torch.float32], ["cpu", "dense"]),
    )


def test_float64_scores_stay_float64() -> None:
    rows = torch.randn(1, 20, 3, dtype=torch.float64)
    scores, indices = topk_inner_product(rows, rows, 4)
    assert scores.dtype == torch.float64
    products = rows @ rows.mT
    torch.testing.assert_close(scores, products.gather(-1, indices))
    torch.testing.assert_close(scores, products.sort(dim=-1, descending=True).values[..., :4])


def test_bounds_of_the_filter_are_those_of_their_proof() -> None:
    """ADR 0100: (d + 4) roundings of a product, one of a score."""
    unit, scale, length, longest = 2.0**-24, 0.5, 2.0, 3.0
    filtered = (5 + 4) * unit * 1.1
    ruled = (1.1 * unit * length * longest + 2.0**-148) / (length * scale)
    assert candidates._rule_slack(length, 5, scale, longest) == pytest.approx(
        2.2 * (filtered + ruled), rel=1e-12
    )
    assert candidates._rule_slack(2e19, 5, scale, 2e19) == np.inf
