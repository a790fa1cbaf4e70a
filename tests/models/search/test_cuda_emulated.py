"""The CUDA search without a GPU: its kernels, compiled for the CPU, against ``dense``; bit for bit.

Emulation runs one thread after another: races, speed, and what a GPU's own arithmetic does it
cannot see.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from support.cases import check_each
from support.kernels.cuda_emulator import COMPILER, EmulatedDevice
from support.raises import raises
from torch import Tensor

from kmip_data.models.search import topk_inner_product
from kmip_data.models.search.gpu import launch, plan
from kmip_data.models.search.gpu.launch import KERNELS, search_on_gpu
from kmip_data.models.search.problem import NotFinite, make_problem
from tools.gpu import fuzz

needs_compiler = pytest.mark.skipif(
    COMPILER is None, reason="no g++: the kernels cannot be emulated"
)
pytestmark = [needs_compiler, pytest.mark.slow]
GENERATOR = torch.Generator().manual_seed(7)


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=GENERATOR)


def long(*values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.torture)


@pytest.fixture(scope="session")
def device(tmp_path_factory: pytest.TempPathFactory) -> EmulatedDevice:
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # one for all processes
    return EmulatedDevice(folder)


@pytest.fixture
def shapes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Set when keys are ordered and warps share them, so that few rows do what otherwise many do."""

    def choose(ordered: bool, tiles: int, staged: int = 0) -> None:
        monkeypatch.setattr(plan, "_MIN_ORDERED_KEYS", 1 if ordered else 10**9)
        monkeypatch.setattr(plan, "_MAX_BUCKETS_PER_ROW", 10**9)
        monkeypatch.setattr(plan, "_choose_tiles", lambda *_, **__: (tiles, staged))
        plan.make_search_plan.cache_clear()

    yield choose
    plan.make_search_plan.cache_clear()


def assert_dense(
    result: tuple[Tensor, Tensor], queries: Tensor, keys: Tensor, k: int, *ptrs: Any
) -> None:
    """The bits of ``dense``."""
    pointers = dict(zip(("query_ptr", "key_ptr"), ptrs, strict=False))
    expected = topk_inner_product(queries, keys, k, **pointers, backend="dense")
    torch.testing.assert_close(result[1], expected[1], rtol=0, atol=0)
    assert torch.equal(result[0].view(torch.int32), expected[0].view(torch.int32))


def check(
    device: EmulatedDevice,
    queries: Tensor,
    keys: Tensor,
    k: int,
    ptrs: Any = (None, None),
) -> None:
    device.launched.clear()
    result = search_on_gpu(make_problem(queries, keys, k, *ptrs), device)
    assert len(device.launched) <= 11
    assert_dense(result, queries, keys, k, *ptrs)


SHAPES = [(False, 1, 0), (True, 4, 1), (True, 1, 0), (True, 2, 0), (False, 4, 0)]
CASES = [
    [(shape, 10) for shape in SHAPES[:2]],
    [*((shape, 10) for shape in SHAPES[2:]), (SHAPES[1], 1)],
]
RAGGED = (
    (0, 3, 3, 50, 50, 90),
    (0, 7, 7, 150, 300, 300),
)  # queries without keys, keys without, neither


@pytest.mark.parametrize("cases", [CASES[0], long(CASES[1])])
def test_batches_of_unequal_graphs_equal_the_rule(device, shapes, cases) -> None:
    def check_case(case) -> None:
        shape, k = case
        shapes(*shape)
        check(device, normal(2, 90, 10), normal(2, 300, 10), k, RAGGED)
        check(device, normal(2, 90, 10).round(), normal(2, 300, 10).round(), k, RAGGED)
        check(device, normal(1, 70, 10), normal(1, 900, 10), k, ((0, 70), (0, 900)))
        queries, keys = normal(2, 210, 10), normal(2, 210, 10)
        for ptr in ((0, 3, 50, 150, 210), (0, 0, 210, 210, 210), (0, 1, 2, 209, 210)):
            check(device, queries, keys, k, (ptr, ptr))

    check_each(check_case, cases)


def test_more_graphs_than_warps_of_a_block_equal_the_rule(device) -> None:
    cuts = torch.randint(0, 500, (69,), generator=torch.Generator().manual_seed(3)).sort().values
    ptr, rows = (0, *cuts.tolist(), 500), normal(1, 500, 10)
    check(device, rows, rows, 5, (ptr, ptr))


def test_single_and_missing_rows_are_searched(device) -> None:
    one = normal(1, 1, 10)
    check(device, one, one, 1)
    check(device, one, one, 3)
    check(device, normal(3, 4, 10), normal(3, 5, 10), 2, ((0, 0, 4), (0, 5, 5)))
    check(device, normal(1, 0, 10), normal(1, 5, 10), 2, ((0, 0), (0, 5)))
    check(device, normal(1, 5, 10), normal(1, 0, 10), 2, ((0, 5), (0, 0)))
    assert not device.launched


@pytest.mark.parametrize("dim", [8, 19, *map(long, (1, 3, 5, 7, 16, 33, 64, 100, 256))])
def test_shifted_queries_and_keys_equal_the_rule(
    device, dim: int
) -> None:  # 8, 64: no column to spare for margins
    ptrs, k = ((0, 40), (0, 400)), 5 if dim < 100 else 30
    check(device, normal(1, 40, dim), normal(1, 400, dim), k, ptrs)
    check(device, normal(1, 40, dim) + 3, normal(1, 400, dim) - 100, k, ptrs)


@pytest.mark.parametrize(("staged", "k"), [(0, 100), long(1, 50), long(1, plan.MAX_K)])
def test_large_k_equals_the_rule(device, shapes, staged: int, k: int) -> None:
    shapes(ordered=True, tiles=4, staged=staged)
    check(device, normal(2, 30, 10), normal(2, 500, 10), k, ((0, 10, 30), (0, 100, 500)))
    check(device, normal(1, 9, 10).round(), normal(1, 700, 10).round(), k, ((0, 9), (0, 700)))


def test_ties_and_shifted_keys_equal_the_rule(device, shapes) -> None:
    """Lists overflow again and again; the work for a query stays linear in its keys."""
    for ordered in (False, True):
        shapes(ordered=ordered, tiles=1)
        check(device, normal(1, 20, 10), torch.ones(1, 700, 10), 10, ((0, 20), (0, 700)))
        check(device, torch.zeros(1, 20, 10), normal(1, 300, 10), 24, ((0, 20), (0, 300)))
        keys = torch.randint(0, 2, (1, 900, 10), generator=GENERATOR).float()
        check(device, normal(1, 30, 10), keys, 24, ((0, 30), (0, 900)))
        for shift in (100.0, 1e6, 3e38):
            check(device, normal(1, 40, 10), normal(1, 400, 10) + shift, 10, ((0, 40), (0, 400)))


def test_scores_that_overflow_or_vanish_tie(device, shapes) -> None:
    """Scores that overflow to infinity, or are flushed to 0, tie: no filter may tell them apart."""

    def check_case(case) -> None:
        scale, other = case
        queries = (torch.rand(1, 20, 10, generator=GENERATOR) - 0.5) * other
        keys = (torch.rand(1, 300, 10, generator=GENERATOR) - 0.5) * scale
        check(device, queries, keys, 10, ((0, 20), (0, 300)))
        keys[:, ::7] *= 1e-3
        keys[:, 5] = 3.4e38
        check(device, queries, keys, 10, ((0, 20), (0, 300)))
        check(device, queries, keys.clamp_min(0), 10, ((0, 20), (0, 300)))

    shapes(ordered=True, tiles=1)
    check_each(check_case, itertools.product([1e-44, 1e-20, 1e18, 3.4e38], [1e-30, 1.0, 3e38]))


def test_indices_can_be_int32(device) -> None:
    queries, keys, ptrs = normal(2, 60, 10), normal(2, 500, 10), ((0, 20, 60), (0, 100, 500))
    best = topk_inner_product(queries, keys, 10, query_ptr=ptrs[0], key_ptr=ptrs[1])[1]
    _, indices = search_on_gpu(
        make_problem(queries, keys, 10, *ptrs, has_int32_indices=True), device
    )
    assert indices.dtype == torch.int32
    assert torch.equal(indices, best.int())


def circle(_: int) -> tuple[Tensor, Tensor]:
    """Keys that differ by less than FP16 does."""
    angle, keys = torch.rand(1000, generator=GENERATOR) * 2 * torch.pi, torch.zeros(1, 1000, 10)
    keys[0, :, 0], keys[0, :, 1] = angle.cos(), angle.sin()
    return normal(1, 100, 10), keys


def outliers(size: float) -> tuple[Tensor, Tensor]:
    """Two keys a graph, orthogonal to all queries and so long that products of others vanish beside 64."""
    queries, keys = normal(1, 100, 10), normal(1, 1000, 10)
    queries[..., 3] = 0
    keys[:, [10, 500], 3], keys[:, [20, 510], 3] = size, -size
    return queries, keys


def test_bounds_are_wide_enough_and_none_is_idle(device, shapes, tmp_path) -> None:
    """A tensor core that errs as far as its specification allows gives wrong results without a bound."""
    shapes(ordered=False, tiles=1)
    graphs = (0, 50, 100), (0, 400, 1000)
    for make in (circle, outliers):
        for k, size in ((1, 1e4), (5, 3e4), (10, 1e5)):
            check(device, *make(size), k, graphs)
    bounds = {
        "FP16": (circle, "common.cuh", "1.0 / 1024 + "),
        "sums": (outliers, "queries.cuh", " - (WIDTH + 4) * 128.0 / (1 << 22)"),
    }
    for name, (make, file, bound) in bounds.items():
        shutil.copytree(KERNELS, tmp_path / name)
        source = (tmp_path / name / file).read_text("utf-8")
        assert source.count(bound) == 1
        (tmp_path / name / file).write_text(source.replace(bound, ""), "utf-8")
        broken = EmulatedDevice(tmp_path / name, kernels=tmp_path / name)
        GENERATOR.manual_seed(1)  # 20 and 6 of 100 queries are wrong
        with pytest.raises(AssertionError):
            check(broken, *make(3e4), 1, graphs)


@pytest.mark.parametrize("cases", [CASES[0], long(CASES[1])])
def test_rows_without_a_rank_find_nothing_and_the_next_search_raises(
    device, shapes, monkeypatch, cases
) -> None:
    """NaN among the queries: those. Among the keys: all queries of that graph and head."""
    monkeypatch.setattr("kmip_data.models.search.problem.check_finite", lambda *_: None)
    graphs = (0, 20, 50), (0, 100, 300)

    def check_case(case) -> None:
        bad, (shape, k) = case
        shapes(*shape)
        queries, keys = normal(2, 50, 10), normal(2, 300, 10)
        expected = topk_inner_product(
            queries, keys, k, query_ptr=graphs[0], key_ptr=graphs[1], backend="dense"
        )
        good = make_problem(queries.clone(), keys.clone(), k, *graphs)
        queries[0, [3, 31]] = bad
        keys[1, 7, 2] = bad
        scores, indices = search_on_gpu(make_problem(queries, keys, k, *graphs), device)
        lost = torch.zeros(2, 50, dtype=torch.bool)
        lost[0, [3, 31]] = lost[1, :20] = True
        assert torch.equal(indices[~lost], expected[1][~lost])
        assert torch.equal(scores[~lost], expected[0][~lost])
        assert bool((indices[lost] == -1).all())
        assert bool((scores[lost] == -torch.inf).all())
        with pytest.raises(NotFinite):
            search_on_gpu(good, device)
        search_on_gpu(good, device)

    check_each(check_case, itertools.product([torch.nan, torch.inf, -torch.inf], cases))


def test_unaligned_and_half_precision_rows_equal_rule(device) -> None:
    rows = normal(1 + 50 * 10)[1:].view(1, 50, 10)
    assert rows.data_ptr() % 8
    check(device, rows, rows, 3)
    for dtype in (torch.float16, torch.bfloat16):
        check(
            device,
            normal(1, 30, 10).to(dtype),
            normal(1, 200, 10).to(dtype),
            10,
            ((0, 30), (0, 200)),
        )


def test_errors_found_in_inference_are_raised_in_training(device) -> None:
    """A new run clears the errors of the previous run."""
    one = make_problem(normal(1, 30, 10), normal(1, 30, 10), 10)
    launch._flag_of_device.cache_clear()
    with torch.inference_mode():
        search_on_gpu(one, device)
    launch._flag_of_device(one.device).fill_(1)
    with pytest.raises(NotFinite):
        search_on_gpu(one, device)
    launch._flag_of_device(one.device).fill_(1)
    launch.reset_not_finite_flags(one.device)
    search_on_gpu(one, device)


def test_plan_tables_are_computed_once(device, monkeypatch) -> None:
    rows, ptr = normal(1, 60, 10), (0, 20, 60)
    plan.make_search_plan.cache_clear()
    for times in (1, 2):
        check(device, rows, rows, 5, (ptr, ptr))
        assert ("lay_out" in device.launched) == (times == 1)
    # A recording would only copy them when it is replayed: no plan is remembered.
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with raises(RuntimeError, naming="plan"):
        plan._copy_to_device(torch.device("cuda"), np.zeros(6, np.int64))


@pytest.mark.torture
def test_random_problems_equal_the_rule(device, shapes) -> None:
    """The problems of ``make gpu``: numbers that tie, overflow or vanish, empty graphs."""
    for number, shape in enumerate(SHAPES):
        shapes(*shape)
        drawn = fuzz.problems(number, torch.device("cpu"), most=150, dims=(8, 10))
        wrong = [
            name
            for name, each in itertools.islice(drawn, 20)
            if fuzz.differs(each, lambda p: search_on_gpu(p, device))
        ]
        assert wrong == []


def test_kernel_struct_matches_host_layout() -> None:
    text = (KERNELS / "common.cuh").read_text("utf-8")
    body = re.sub(
        r"//.*", "", text[text.index("struct Search {") :].partition("{")[2].partition("};")[0]
    )
    assert tuple(re.findall(r"(\w+)(?=[,;])", body)) == (
        *plan.STRUCT_POINTERS,
        *plan.STRUCT_NUMBERS,
    )
    for name, value in {
        "KEY_BUCKETS": plan._KEY_BUCKETS,
        "QUERY_BUCKETS": plan._QUERY_BUCKETS,
    }.items():
        assert re.search(rf"#define {name} +{value}\b", text)


def test_scratch_memory_stays_below_its_bound() -> None:
    """A query and head take at most 2 d + 200 bytes (k > 56: 340) on a device of 132 processors.

    Few rows also need lists for the programs running at a time: 520 (k > 24: 2,080) bytes a query,
    at most 280 MB.
    """

    def check_case(case) -> None:
        heads, rows, graphs, dim, k = case
        many = heads * rows >= 10**6
        ptr = tuple(rows * graph // graphs for graph in range(graphs + 1))
        whole = plan.make_search_plan(
            (heads, rows, rows, dim), k, (ptr, ptr), torch.device("cpu"), 132
        )
        placed = dict(zip(plan.STRUCT_POINTERS, whole.members.tolist(), strict=False))
        starts = sorted({placed[name] for name in plan.STRUCT_POINTERS[plan.SCRATCH_MEMBERS]})
        assert all(
            second - first >= plan._ALIGNMENT_BYTES for first, second in itertools.pairwise(starts)
        )
        assert len(whole.launches) <= 12
        lists = starts[starts.index(placed["list"]) + 1] - placed["list"]
        rest = whole.scratch_bytes + whole.tables.nbytes - lists
        assert rest + lists * many <= (2 * dim + (200 if k <= 56 else 340)) * heads * rows
        assert many or lists <= min(
            280e6, (520 if k <= 24 else 2080) * (heads * rows + 64 * graphs)
        )

    cases = [
        (1, 10**6, 1, 10, 10),
        (1, 10**6, 1, 10, 100),
        (1, 10**6, 1, 3, 24),
        (1, 10**7, 1, 64, 10),
    ]
    cases += [
        (4, 570_000, 1, 10, 15),
        (4, 570_000, 1, 19, 10),
        (1, 10**3, 1, 10, 10),
        (1, 10**5, 1, 10, 100),
    ]
    cases += [(4, 8 * 4096, 8, 5, 10), (4, 128 * 150, 128, 10, 15), (4, 40_000, 10_000, 10, 15)]
    check_each(check_case, [*cases, (1, 100_000, 1, 256, 120)])
