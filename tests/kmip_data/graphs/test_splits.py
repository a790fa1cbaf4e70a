"""Split rules as functions of positions and groups."""

from __future__ import annotations

import itertools
import random

from hypothesis import given
from hypothesis import strategies as st

from kmip_data.graphs.splits import grouped_split, share_of, shuffled_split

PUBLISHED = (3_294, 20_291)


def test_share():
    for count, share, expected in [
        (20_291, PUBLISHED, 3_294),
        (39, PUBLISHED, 6),
        (40, 0.1, 4),
        (45, 0.1, 5),  # 4.5: halves up
        (2, PUBLISHED, 1),  # neither part empty
        (3, 0.99, 2),
        (1, PUBLISHED, 0),
        (0, PUBLISHED, 0),
    ]:
        assert share_of(count, share) == expected


def test_shuffled_split_is_the_recipe_with_the_global_generator():
    state, pool, test = random.getstate(), list(range(500)), list(range(500, 620))
    try:
        random.seed(12345)
        train, tested = list(pool), list(test)
        random.shuffle(train)
        random.shuffle(tested)
    finally:
        random.setstate(state)
    parts = shuffled_split(pool, test, val=80, seed=12345)
    assert parts == {"train": train[80:], "val": train[:80], "test": tested}
    assert (pool, test) == (list(range(500)), list(range(500, 620)))


@given(st.lists(st.integers(1, 40), min_size=2, max_size=9), st.floats(0.01, 0.9), st.integers(0, 5))
def test_grouped_split_keeps_groups_whole_and_comes_nearest(sizes, share, seed):
    rooms = [str(room) for room, size in enumerate(sizes) for _ in range(size)]
    groups = dict(enumerate(rooms))
    pool, test = list(groups), [10**6, 10**6 + 1]
    val = share_of(len(pool), share)
    parts = grouped_split(pool, test, groups, val=val, seed=seed)
    assert sorted(parts["train"] + parts["val"]) == pool
    assert parts["test"] == test
    assert parts["train"] == sorted(parts["train"])
    assert parts["val"] == sorted(parts["val"])
    assert not {groups[i] for i in parts["train"]} & {groups[i] for i in parts["val"]}
    sums = [sum(some) for n in range(1, len(sizes)) for some in itertools.combinations(sizes, n)]
    assert abs(len(parts["val"]) - val) == min(abs(total - val) for total in sums)
    assert parts == grouped_split(pool, test, groups, val=val, seed=seed)


def test_grouped_split_depends_on_the_seed():
    groups = {i: str(i // 7) for i in range(700)}
    draws = [grouped_split(list(groups), [], groups, val=100, seed=seed)["val"] for seed in range(4)]
    assert len({tuple(draw) for draw in draws}) == 4
    assert {len(draw) for draw in draws} == {98}  # 14 groups of 7


def test_grouped_split_of_one_group_or_none():
    one = grouped_split([0, 1], [2], {0: "a", 1: "a"}, val=1, seed=0)
    assert one == {"train": [0, 1], "val": [], "test": [2]}
    assert grouped_split([], [2], {}, val=0, seed=0) == {"train": [], "val": [], "test": [2]}
