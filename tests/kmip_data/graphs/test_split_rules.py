"""Split rules as functions of positions and groups; the stratified one against scikit-learn's."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import StratifiedShuffleSplit

from kmip_data.graphs.split_rules import (
    count_of_fraction,
    grouped_split,
    majority_classes,
    order_before_draw,
    stratified_draw,
    stratified_parts,
)

PUBLISHED = Fraction(3_294, 20_291)


def test_a_share_is_rounded_to_records_and_leaves_no_part_empty():
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
        assert count_of_fraction(count, share) == expected


@given(
    st.lists(st.integers(1, 40), min_size=2, max_size=9), st.floats(0.01, 0.9), st.integers(0, 5)
)
def test_grouped_split_keeps_groups_whole_and_comes_nearest(sizes, share, seed):
    rooms = [str(room) for room, size in enumerate(sizes) for _ in range(size)]
    groups = dict(enumerate(rooms))
    pool, test = list(groups), [10**6, 10**6 + 1]
    val = count_of_fraction(len(pool), share)
    parts = grouped_split(pool, test, groups, val=val, seed=seed)
    assert sorted(parts["train"] + parts["val"]) == pool
    assert parts["test"] == test
    assert parts["train"] == sorted(parts["train"])
    assert parts["val"] == sorted(parts["val"])
    assert not {groups[i] for i in parts["train"]} & {groups[i] for i in parts["val"]}
    sums = [sum(some) for n in range(1, len(sizes)) for some in itertools.combinations(sizes, n)]
    assert abs(len(parts["val"]) - val) == min(abs(total - val) for total in sums)
    assert parts == grouped_split(pool, test, groups, val=val, seed=seed)


def test_grouped_split_accepts_one_group_or_none():
    one = grouped_split([0, 1], [2], {0: "a", 1: "a"}, val=1, seed=0)
    assert one == {"train": [0, 1], "val": [], "test": [2]}
    assert grouped_split([], [2], {}, val=0, seed=0) == {"train": [], "val": [], "test": [2]}


def by_sklearn(labels, test_size, seed):
    rule = StratifiedShuffleSplit(n_splits=2, test_size=test_size, random_state=seed)
    return list(rule.split(np.zeros(len(labels)), labels))[1]


def labels_of(count, classes, seed):
    rng = np.random.default_rng(seed)
    labels = rng.choice(classes, count, p=rng.dirichlet(np.full(classes, 0.7)))
    return np.concatenate([np.repeat(np.arange(classes), 2), labels])[-count:]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(2, 30), min_size=1, max_size=12), st.data())
def test_a_stratified_draw_equals_scikit_learns(counts, data):
    """Labels in any order, that are no positions, and parts of any size that it takes."""
    labels = np.repeat(np.arange(len(counts)) * 7 - 3, counts)
    labels = np.array(data.draw(st.permutations(labels.tolist())))
    second = data.draw(st.integers(len(counts), len(labels) - len(counts)))
    seed = data.draw(st.integers(0, 2**32 - 1))
    for part, other in zip(
        stratified_draw(labels, second, seed=seed), by_sklearn(labels, second, seed), strict=True
    ):
        np.testing.assert_array_equal(part, other)


@given(st.lists(st.integers(0, 5), max_size=60), st.data())
def test_every_record_once_whatever_the_labels(labels, data):
    """Labels that occur once and empty parts, which scikit-learn refuses, are split, too."""
    labels = np.array(labels, np.int64)
    second = data.draw(st.integers(0, len(labels)))
    parts = stratified_draw(labels, second)
    assert len(parts[1]) == second
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))
    for label in set(labels.tolist()):
        share = (labels == label).sum() * second / len(labels)
        assert abs((labels[parts[1]] == label).sum() - share) <= 1.0


def test_three_parts_keep_the_shares_of_classes():
    labels, sizes = labels_of(1_000, 4, 0), {"train": 700, "val": 120, "test": 180}
    parts = stratified_parts(labels, sizes, seed=5)
    assert {name: len(rows) for name, rows in parts.items()} == sizes
    assert sorted(row for rows in parts.values() for row in rows) == list(range(1_000))
    for name, size in sizes.items():
        shares = np.bincount(labels, minlength=4) * size / 1_000
        assert (abs(np.bincount(labels[parts[name]], minlength=4) - shares) <= 1.5).all()
    assert stratified_parts(labels, sizes, seed=6) != parts
    assert stratified_parts(np.zeros(0, int), {"train": 0, "val": 0}) == {"train": [], "val": []}


def test_a_draw_can_be_undone():
    labels = labels_of(500, 9, 1)
    first, second = stratified_draw(labels, 250)
    order = order_before_draw(labels[first], labels[second])
    before = np.concatenate([first, second])[order]
    again = stratified_draw(labels[before], 250)
    np.testing.assert_array_equal(before[again[0]], first)
    np.testing.assert_array_equal(before[again[1]], second)
    for changed in (first[::-1], np.roll(first, 1)):
        assert order_before_draw(labels[changed], labels[second]) is None
    assert order_before_draw(labels[:0], labels[:0]).tolist() == []


def test_meta_labels_equal_a_loop():
    """LRGB's: the most frequent label but 0, the smallest of those that tie, 0 where there is no other."""
    rng = np.random.default_rng(0)
    nodes = [rng.integers(0, rng.integers(1, 6), rng.integers(1, 9)) for _ in range(300)]
    classes = np.array([np.bincount(labels, minlength=6) for labels in nodes])
    metas = majority_classes(classes, background=0).tolist()
    plain = majority_classes(classes).tolist()
    for labels, meta, most in zip(nodes, metas, plain, strict=True):
        things = [label for label in labels.tolist() if label]
        assert meta == max(sorted(set(things)), key=things.count, default=0)
        assert most == max(sorted(set(labels.tolist())), key=labels.tolist().count)
