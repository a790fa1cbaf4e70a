"""The rule's two parts: the score of a pair and the order of equal scores."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.slow_models import slow_score

from kmip_data.models.search.rule import largest, score_block, score_candidates

numbers = st.floats(width=32, allow_nan=False, allow_infinity=False)


@settings(deadline=None)
@given(
    st.integers(1, 12).flatmap(
        lambda d: st.lists(st.lists(numbers, min_size=d, max_size=d), min_size=2, max_size=6)
    )
)
def test_scores(rows) -> None:
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
def test_order(scores, random, data) -> None:
    k = data.draw(st.integers(1, len(scores)))
    names = random.sample(range(1000), len(scores))
    ranked = sorted(zip(scores, names, strict=True), key=lambda pair: (-pair[0], pair[1]))[:k]
    found = largest(torch.tensor(scores), k, torch.tensor(names))
    assert list(zip(found[0].tolist(), found[1].tolist(), strict=True)) == ranked


def test_position_is_the_index_by_default() -> None:
    for dtype in (torch.float32, torch.float64):
        scores = torch.tensor([[1.0, 2.0, 2.0, 0.0]], dtype=dtype)
        assert largest(scores, 3)[1].tolist() == [[1, 2, 0]]
