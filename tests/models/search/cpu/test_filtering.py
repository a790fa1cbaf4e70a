"""A filter may be as wrong as its bound says, and the answer stays the rule's."""

from __future__ import annotations

import itertools

import torch
from support.cases import check_each

from kmip_data.models.search.rule import float32_sum_error, float64_sum_error, largest, score_block, settle

GENERATOR = torch.Generator().manual_seed(3)


def test_settle_survives_a_filter_that_errs_by_its_bound() -> None:
    def holds(error) -> None:
        queries = torch.randn(2, 50, 4, generator=GENERATOR)
        keys = torch.randn(2, 200, 4, generator=GENERATOR)
        exact = score_block(queries, keys)
        noise = (2 * torch.rand(exact.shape, generator=GENERATOR) - 1) * min(error, 1e6)
        candidates = (exact.double() + noise).topk(9, sorted=False).indices
        found = settle(
            queries, keys, candidates, 5, torch.full((2, 50), error, dtype=torch.float64), pairs=1000
        )
        expected = largest(exact, 5)
        assert torch.equal(found[0], expected[0])
        assert torch.equal(found[1], expected[1])

    check_each(holds, [0.0, 1e-3, 0.1, 1.0, torch.inf])


def test_settle_trusts_the_bound() -> None:
    """Told that the filter does not err it scores nothing else: the check above can fail."""
    queries, keys = torch.ones(1, 1, 1), torch.arange(10.0).view(1, 10, 1)
    wrong = torch.tensor([[[9, 5, 0]]])
    scores, _ = settle(queries, keys, wrong, 2, torch.zeros(1, 1, dtype=torch.float64), pairs=100)
    assert scores.tolist() == [[[9.0, 5.0]]]


def test_bounds_hold() -> None:
    def holds(case) -> None:
        scale, dim = case
        queries = torch.randn(1, 60, dim, generator=GENERATOR) * scale
        keys = torch.randn(1, 90, dim, generator=GENERATOR) * scale
        exact = queries.double() @ keys.double().mT
        in_float32 = ((queries @ keys.mT).double() - exact).abs()
        assert bool((in_float32 <= float32_sum_error(queries, keys)[..., None]).all())
        rounded = (exact.float().double() - exact).abs()
        assert bool((rounded <= float64_sum_error(queries, keys)[..., None]).all())
        if scale == 1.0:  # and not by being absurdly wide
            assert float(float32_sum_error(queries, keys).max()) < 1e-4 * dim

    check_each(holds, itertools.product([1e-25, 1.0, 1e15], [1, 10, 200]))


def test_no_bound_where_a_partial_sum_could_overflow() -> None:
    rows = torch.full((1, 1, 2), 2e19)
    assert float(float32_sum_error(rows, rows)) == torch.inf
