"""What the Triton kernels compute, interpreted; ``test_triton.py`` runs it in a process of its own."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.slow_models import slow_search
from torch import Tensor

from kmip_data.models.search import backend_status, topk_inner_product
from kmip_data.models.search.backends import triton as backend
from kmip_data.models.search.gpu import launch, tiling
from kmip_data.models.search.gpu.ordering import order_rows
from kmip_data.models.search.problem import check_problem

GENERATOR = torch.Generator().manual_seed(7)
LIKELY = {"suppress_health_check": [HealthCheck.too_slow], "deadline": None}


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=GENERATOR)


def assert_same(found: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> None:
    torch.testing.assert_close(found[1], expected[1], rtol=0, atol=0)
    # Bits, but −0 and +0 are one score.
    assert torch.equal((found[0] + 0.0).view(torch.int32), (expected[0] + 0.0).view(torch.int32))


def check(queries: Tensor, keys: Tensor, k: int, query_ptr=None, key_ptr=None, *, slow: bool = True) -> None:
    found = topk_inner_product(queries, keys, k, query_ptr=query_ptr, key_ptr=key_ptr, backend="triton")
    if slow:
        query_ptr = [0, queries.shape[1]] if query_ptr is None else query_ptr
        key_ptr = [0, keys.shape[1]] if key_ptr is None else key_ptr
        expected = slow_search(queries, keys, k, query_ptr, key_ptr)
    else:  # dense is itself checked against the slow one
        expected = topk_inner_product(queries, keys, k, query_ptr=query_ptr, key_ptr=key_ptr, backend="dense")
    assert_same(found, expected)


near_one = st.integers(0, 3).map(lambda step: 1 + step * 2.0**-23)
coarse = st.integers(-4, 4).map(lambda step: step / 4)
extreme = st.sampled_from([0.0, -0.0, 2.0**-149, -(2.0**-149), 1e-30, -1e-30, 1e18, -1e18, 3e38])
anything = st.floats(width=32, allow_nan=False, allow_infinity=False)


@st.composite
def problems(draw: st.DrawFn):
    """Ragged queries and keys, of one kind of number or of all."""
    dim, k, heads = draw(st.integers(1, 5)), draw(st.integers(1, 12)), draw(st.integers(1, 2))
    sizes = draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), min_size=1, max_size=3))
    query_ptr, key_ptr = (
        list(itertools.accumulate(column, initial=0)) for column in zip(*sizes, strict=True)
    )
    numbers = draw(
        st.sampled_from([coarse, near_one, extreme, anything, st.one_of(coarse, near_one, extreme)])
    )

    def rows(count: int) -> Tensor:
        values = draw(st.lists(numbers, min_size=heads * count * dim, max_size=heads * count * dim))
        return torch.tensor(values, dtype=torch.float32).view(heads, count, dim)

    return rows(query_ptr[-1]), rows(key_ptr[-1]), k, query_ptr, key_ptr


@settings(max_examples=12, **LIKELY)
@given(problems())
def test_the_slow_oracle(problem) -> None:
    check(*problem)


def in_small_tiles(monkeypatch) -> None:
    """16 keys a tile and 16 tiles a group, so that a few hundred keys have several groups."""

    def shape_for(*arguments: int) -> tiling.Shape:
        shape = tiling.shape_for(*arguments)
        return dataclasses.replace(shape, BN=16, BT=16)

    monkeypatch.setattr(launch, "ORDERED_FROM", 1)
    monkeypatch.setattr(launch, "shape_for", shape_for)


@pytest.mark.parametrize(
    "kind", ["gaussian", "near ties", "duplicates", "constant", "offset", "one giant key"]
)
def test_every_kind_of_data_ordered_and_pruned(monkeypatch, kind: str) -> None:
    """Several key tiles and groups: skipping, merging and the early end are all used."""
    in_small_tiles(monkeypatch)
    queries, keys = normal(1, 20, 3), normal(1, 400, 3)
    if kind == "near ties":
        queries, keys = (
            1 + torch.randint(0, 4, x.shape, generator=GENERATOR) * 2.0**-23 for x in (queries, keys)
        )
    elif kind == "duplicates":
        keys = keys[:, torch.arange(400) % 30]
    elif kind == "constant":
        keys = keys[:, :1].expand(-1, 130, -1)
    elif kind == "offset":
        keys = keys * 1e-3 + 5
    elif kind == "one giant key":
        keys[0, 77] = 1e9
    check(queries, keys, 7, slow=False)


@pytest.mark.parametrize("dim", [1, 17, 40])
def test_row_lengths(dim: int) -> None:
    """Padded columns, and products of several chunks of columns (40 → 64 in two)."""
    check(normal(1, 5, dim), normal(1, 30, dim), 3)


@pytest.mark.parametrize("k", [1, 16, 17, 70])
def test_more_results_than_a_tile_has_keys(k: int) -> None:
    check(normal(1, 3, 2), normal(1, 90, 2), k)


@pytest.mark.parametrize("size", [1e-42, 1e-25, 1e18])
def test_every_magnitude(size: float) -> None:
    check(normal(1, 4, 3) * size, normal(1, 40, 3) * size, 3)
    check(normal(1, 4, 3), normal(1, 40, 3) * size, 3)


def test_k_beyond_the_graph_and_empty_graphs() -> None:
    rows = torch.tensor([[[1.0], [2.0], [3.0]]])
    scores, indices = topk_inner_product(
        rows, rows, 2, query_ptr=[0, 0, 1, 3, 3], key_ptr=[0, 2, 2, 3, 3], backend="triton"
    )
    assert indices.tolist() == [[[-1, -1], [2, -1], [2, -1]]]
    assert scores.tolist() == [[[-torch.inf, -torch.inf], [6.0, -torch.inf], [9.0, -torch.inf]]]
    nothing = topk_inner_product(torch.ones(2, 0, 3), torch.ones(2, 0, 3), 4, query_ptr=[0], backend="triton")
    assert nothing[0].shape == nothing[1].shape == (2, 0, 4)


def test_the_bounds_rule_tiles_out(monkeypatch) -> None:
    """Two far clusters: a query of one has no need of the other's tiles, so damage there is not seen."""
    monkeypatch.setattr(launch, "ORDERED_FROM", 1)
    queries = normal(1, 16, 3) * 0.01 + torch.tensor([1.0, 0, 0])
    keys = normal(1, 256, 3) * 0.01 + torch.tensor([1.0, 0, 0])
    keys[:, 128:] *= -1
    visited = []
    kernel = launch.search_tiles

    class Damaging:
        def __getitem__(self, grid):
            def call(*arguments, **options):
                packed, rows = arguments[7], arguments[6]
                away = rows >= 128
                visited.append(int(away.sum()))
                packed[away] = 1e6  # would pass any filter
                arguments[6][away] = 0  # and be scored as key 0, twice in the result
                return kernel[grid](*arguments, **options)

            return call

    expected = topk_inner_product(queries, keys, 4, backend="dense")
    monkeypatch.setattr(launch, "search_tiles", Damaging())
    assert_same(topk_inner_product(queries, keys, 4, backend="triton"), expected)
    assert visited == [128]


def test_margin_of_the_filter_holds() -> None:
    """|product of packed rows − centred, scaled score| ≤ slack · norms, and no bound is below a score."""
    queries, keys = normal(2, 40, 12), normal(2, 90, 12) * torch.logspace(-3, 1, 90)[:, None] + 0.3
    seen = {}

    class Recording:
        def __getitem__(self, grid):
            return lambda *arguments, **options: seen.update(arguments=arguments, options=options)

    before, launch.search_tiles = launch.search_tiles, Recording()
    try:
        launch.run(check_problem(queries, keys, 3))
    finally:
        launch.search_tiles = before
    rows, packed, norms, affine, key_rows, packed_keys, axes, bounds = seen["arguments"][2:10]
    tile, width = seen["options"]["BN"], seen["options"]["D"]
    for head in range(2):
        mine = slice(head * len(rows) // 2, (head + 1) * len(rows) // 2)
        real = rows[mine] >= 0
        q, place = packed[mine][real], rows[mine][real].long()
        factor, offset = (part[mine][real] for part in affine)
        key_part = slice(head * len(key_rows) // 2, (head + 1) * len(key_rows) // 2)
        place_k = key_rows[key_part].long()
        exact = queries[head].double()[place] @ keys[head].double()[place_k.clamp_min(0)].T
        exact = exact * factor[:, None] - offset[:, None]
        found = (q @ packed_keys[key_part].T).double()
        radius = bounds[0, head].repeat_interleave(tile)
        allowed = launch.slack_of(width) * norms[mine][real, None].double() * radius + 2.0**-40
        there = place_k >= 0
        assert bool(((found - exact).abs() <= allowed)[:, there].all())
        assert float(norms[mine][real].min()) >= 1
        assert float(norms[mine][real].max()) <= 2.001
        # The bound, in float64 and from its definition.
        axis = axes[head * bounds.shape[2] : (head + 1) * bounds.shape[2], :12].double()
        unit = torch.nn.functional.normalize(queries[head].double()[place], dim=1)
        cosine = (unit @ axis.T).clamp(-1, 1)
        half = torch.arccos(bounds[1, head].double().clamp(-1, 1))
        reach = torch.cos((torch.arccos(cosine) - half).clamp_min(0)).clamp_min(0) + 2.0**-10
        highest = exact.masked_fill(~there, -torch.inf).view(len(q), -1, tile).amax(2)
        assert bool((highest <= bounds[0, head] * norms[mine][real, None] * reach + 1e-12).all())


def test_orders_are_permutations_of_each_graph() -> None:
    rows, ptr = normal(2, 300, 4), torch.tensor([0, 100, 100, 290, 300])
    order = order_rows(rows, ptr, [256, 128, 64], None, by_norm=True)
    for head in range(2):
        for start, stop in itertools.pairwise(ptr.tolist()):
            assert sorted(order[head, start:stop].tolist()) == list(range(start, stop))
    assert launch._spans(4096, 64) == [4096, 2048, 1024, 512, 256, 128]
    assert launch._spans(65, 64) == [128]
    assert launch._spans(64, 64) == []


def test_scores_that_overflow_go_to_dense() -> None:
    rows = torch.full((1, 3, 2), 2e19)
    assert not launch.fits_range(check_problem(rows, rows, 2))
    check(rows, rows, 2)
    check(torch.zeros(1, 2, 2), torch.full((1, 9, 2), 3e38), 3)  # no score overflows, but their mean would
    check(torch.zeros(1, 2, 2), torch.full((1, 9, 2), 9e29), 3)


def test_status_in_the_interpreter() -> None:
    (row,) = (row for row in backend_status(("cpu",)) if row.name == "triton")
    assert row.usable
    assert "cpu" not in backend.RANK


def test_sizes_of_tiles() -> None:
    shape = tiling.shape_for(10, 100, 10**5, 10**5)
    assert (shape.BM, shape.BN, shape.D, 1 << shape.LOG_K2, 1 << shape.LOG_C) == (64, 64, 16, 128, 128)
