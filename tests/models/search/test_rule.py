"""The rule: the score of a pair, the order of equal scores, and what is proved from a filter that errs."""

from __future__ import annotations

import itertools

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import check_each
from support.oracles.slow_search import slow_score

from kmip_data.models.search.rule import (
    float32_sum_error,
    float64_sum_error,
    largest_scores,
    prove_or_rescore,
    score_block,
    score_candidates,
)

GENERATOR = torch.Generator().manual_seed(3)
numbers = st.floats(width=32, allow_nan=False, allow_infinity=False)


@settings(deadline=None)
@given(
    st.integers(1, 12).flatmap(
        lambda d: st.lists(st.lists(numbers, min_size=d, max_size=d), min_size=2, max_size=6)
    )
)
def test_scores_of_blocks_and_candidates_equal_a_loop(rows) -> None:
    block = torch.tensor(rows, dtype=torch.float32)[None]
    expected = torch.tensor([[[slow_score(a, b) for b in block[0]] for a in block[0]]])
    everything = torch.arange(len(rows)).expand(1, len(rows), len(rows))
    assert torch.equal(score_block(block, block), expected)
    assert torch.equal(score_candidates(block, block, everything), expected)


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from([-torch.inf, -1.0, -(2.0**-149), -0.0, 0.0, 2.0**-149, 1.0, torch.inf]),
        min_size=1,
        max_size=12,
    ),
    st.randoms(use_true_random=False),
    st.data(),
)
def test_equal_scores_are_ranked_by_index(scores, random, data) -> None:
    k = data.draw(st.integers(1, len(scores)))
    names = random.sample(range(1000), len(scores))
    ranked = sorted(zip(scores, names, strict=True), key=lambda pair: (-pair[0], pair[1]))[:k]
    ordered = largest_scores(torch.tensor(scores), k, torch.tensor(names))
    assert list(zip(ordered[0].tolist(), ordered[1].tolist(), strict=True)) == ranked
    wide = largest_scores(torch.tensor(scores, dtype=torch.float64), k)[
        1
    ]  # the position is the index by default
    assert torch.equal(wide, largest_scores(torch.tensor(scores), k)[1])


def test_settle_survives_a_filter_that_errs_by_its_bound() -> None:
    def check_case(error) -> None:
        queries = torch.randn(2, 50, 4, generator=GENERATOR)
        keys = torch.randn(2, 200, 4, generator=GENERATOR)
        exact = score_block(queries, keys)
        noise = (2 * torch.rand(exact.shape, generator=GENERATOR) - 1) * min(error, 1e6)
        candidates = (exact.double() + noise).topk(9, sorted=False).indices
        result = prove_or_rescore(
            queries,
            keys,
            candidates,
            5,
            torch.full((2, 50), error, dtype=torch.float64),
            max_scored_pairs=1000,
        )
        expected = largest_scores(exact, 5)
        assert torch.equal(result[0], expected[0])
        assert torch.equal(result[1], expected[1])

    check_each(check_case, [0.0, 1e-3, 0.1, 1.0, torch.inf])


def test_a_proven_query_is_not_scored_whole() -> None:
    """A better key that the filter, against its bound, left out stays unseen."""
    keys = torch.tensor([[[1.5], [1.0], [9.0]]])
    error = torch.zeros(1, 1, dtype=torch.float64)
    candidates = torch.tensor([[[0, 1]]])
    scores, rows = prove_or_rescore(
        torch.ones(1, 1, 1), keys, candidates, 1, error, max_scored_pairs=10
    )
    assert (scores.item(), rows.item()) == (1.5, 0)


def test_error_bounds_of_scores_hold() -> None:
    def check_case(case) -> None:
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

    check_each(check_case, itertools.product([1e-25, 1.0, 1e15], [1, 10, 200]))
    rows = torch.full((1, 1, 2), 2e19)  # a partial sum could overflow
    assert float(float32_sum_error(rows, rows)) == torch.inf
