"""The stratified rule: scikit-learn's, number by number, and what it can be undone to."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import StratifiedShuffleSplit

from kmip_data.graphs.splits import (
    meta_labels,
    order_before_draw,
    stratified_draw,
    stratified_parts,
)


def by_sklearn(labels, test_size, seed):
    rule = StratifiedShuffleSplit(n_splits=2, test_size=test_size, random_state=seed)
    return list(rule.split(np.zeros(len(labels)), labels))[1]


def labels_of(count, classes, seed):
    rng = np.random.default_rng(seed)
    labels = rng.choice(classes, count, p=rng.dirichlet(np.full(classes, 0.7)))
    return np.concatenate([np.repeat(np.arange(classes), 2), labels])[-count:]


def test_equal_to_sklearn_on_the_form_of_voc():
    """2,857 graphs of 21 meta labels: 1,428 and 1,429, disjoint and complete."""
    for seed in [0, 1, 2**32 - 1]:
        labels = np.r_[np.repeat(np.arange(21), 2), labels_of(2_815, 21, seed)]
        labels = np.random.default_rng(3).permutation(labels)
        found = stratified_draw(labels, 1_429, seed=seed)
        for part, other in zip(found, by_sklearn(labels, 0.5, seed), strict=True):
            np.testing.assert_array_equal(part, other)
        assert sorted(np.concatenate(found)) == list(range(2_857))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(2, 30), min_size=1, max_size=12), st.data())
def test_equal_to_sklearn(counts, data):
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
    """Also where a label comes once, or a part is empty, which scikit-learn refuses."""
    labels = np.array(labels, np.int64)
    second = data.draw(st.integers(0, len(labels)))
    parts = stratified_draw(labels, second)
    assert len(parts[1]) == second
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))
    for label in set(labels.tolist()):
        share = (labels == label).sum() * second / len(labels)
        assert abs((labels[parts[1]] == label).sum() - share) <= 1.0


def test_three_parts():
    labels = labels_of(1_000, 4, 0)
    sizes = {"train": 700, "val": 120, "test": 180}
    parts = stratified_parts(labels, sizes, seed=5)
    assert {name: len(rows) for name, rows in parts.items()} == sizes
    assert sorted(row for rows in parts.values() for row in rows) == list(range(1_000))
    counts = {name: np.bincount(labels[rows], minlength=4) for name, rows in parts.items()}
    for name, size in sizes.items():
        assert (abs(counts[name] - np.bincount(labels, minlength=4) * size / 1_000) <= 1.5).all()
    assert stratified_parts(labels, sizes, seed=5) == parts
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


def test_meta_labels_against_a_loop():
    """LRGB's: the most frequent label but 0, the smallest of those that tie, 0 where there is no other."""
    rng = np.random.default_rng(0)
    nodes = [rng.integers(0, rng.integers(1, 6), rng.integers(1, 9)) for _ in range(300)]
    classes = np.array([np.bincount(labels, minlength=6) for labels in nodes])
    found = meta_labels(classes, background=0).tolist()
    plain = meta_labels(classes).tolist()
    for labels, meta, most in zip(nodes, found, plain, strict=True):
        things = [label for label in labels.tolist() if label]
        assert meta == max(sorted(set(things)), key=things.count, default=0)
        assert most == max(sorted(set(labels.tolist())), key=labels.tolist().count)
