"""Splits of your own data: sizes, groups, labels and seeds of random parts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.raises import raises

from kmip_data.errors import UsageError
from kmip_data.format.schema import GROUP_DOC, PART_DOC, Column
from kmip_data.format.split_files import PART_CODES, PARTS
from kmip_data.graphs.split_rules import scaffold_split, stratified_groups
from kmip_data.manifest import load_manifest
from kmip_data.pipelines.base import RecordTable, load_pipeline
from kmip_data.pipelines.own_split import GraphSplitParams, OwnSplitParams, draw_parts, own_split
from kmip_data.pipelines.units_and_splits import apply_split

LABEL = Column(
    key="graph/y", attribute="y", stored="int8", presented="int64", low=-1, high=1, num_classes=2
)
PART = Column(key="graph/part", attribute="part", stored="uint8", presented="uint8", doc=PART_DOC)
SITE = Column(key="graph/site", attribute="site", stored="int64", presented="int64", doc=GROUP_DOC)


def records(keys: list[str], labels: list[int]) -> RecordTable:
    """Records with a label each, -1 if it is missing."""
    sizes = np.ones(len(keys), np.int64)
    return RecordTable(
        keys,
        sizes,
        sizes,
        np.zeros((len(keys), 2), np.int64),
        None,
        read_column=lambda _: np.array(labels, np.int8),
        label_column=LABEL,
        columns=(LABEL,),
    )


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 6), st.sampled_from([-1, 0, 1])), min_size=3, max_size=60),
    st.sampled_from([0, 0.1, 0.25]),
    st.sampled_from([0, 0.1, 0.3]),
    st.integers(0, 3),
)
def test_random_parts_keep_groups_and_leave_out_items_without_a_label(items, val, test, seed):
    groups = [f"group {group}" for group, _ in items]
    labels = [label for _, label in items]
    table = records([f"{row:03d}" for row in range(len(items))], labels)
    params = OwnSplitParams(val_fraction=val, test_fraction=test, split_seed=0)
    params = params.model_copy(update={"split_seed": seed})
    split = own_split(table, params, groups, "own", divides_nodes=False)
    assert split == own_split(table, params, groups, "own", divides_nodes=False)
    assert split.rule == "random"

    # 1. Each labelled item is in one part, in source order; others are in none.
    labelled = [row for row, label in enumerate(labels) if label >= 0]
    drawn = [row for rows in split.parts.values() for row in rows]
    assert sorted(drawn) == labelled
    assert all(rows == sorted(rows) for rows in split.parts.values())
    assert split.parts["train"] or not labelled
    assert bool(split.parts["val"]) <= bool(val)
    assert bool(split.parts["test"]) <= bool(test)

    # 2. Groups are kept together, unless there is a single one or one for each item.
    groups_of_items = {groups[row] for row in labelled}
    if 1 < len(groups_of_items) < len(labelled):
        parts_of_groups = Counter(
            group for rows in split.parts.values() for group in {groups[row] for row in rows}
        )
        assert set(parts_of_groups.values()) <= {1}
        assert "kept together" in split.note


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(1, 30), min_size=3, max_size=60),
    st.sampled_from([0.1, 0.25, 0.4]),
    st.integers(0, 3),
)
def test_parts_of_groups_miss_their_size_by_less_than_a_group(sizes, fraction, seed):
    groups = [f"group {group}" for group, size in enumerate(sizes) for _ in range(size)]
    codes = draw_parts(len(groups), {"val": fraction, "test": fraction}, seed, groups)
    counts = np.bincount(codes, minlength=len(PARTS))
    assert counts[PART_CODES["train"]]
    assert counts[PART_CODES["test"]]
    for part in ("val", "test"):
        assert abs(counts[PART_CODES[part]] - fraction * len(groups)) <= max(sizes)


@pytest.mark.parametrize("fraction", [0.1, 0.25])
def test_single_items_are_drawn_in_exact_numbers(fraction):
    keys = [f"{row:03d}" for row in range(80)]
    params = OwnSplitParams(val_fraction=fraction, test_fraction=fraction)
    split = own_split(records(keys, [0, 1] * 40), params, keys, "own", divides_nodes=False)
    sizes = {part: len(rows) for part, rows in split.parts.items()}
    assert sizes["val"] == sizes["test"] == 80 * fraction


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=3, max_size=40))
def test_val_is_drawn_from_train_alike_for_a_column_and_folders(items):
    groups = [f"group {group}" for group, _ in items]
    test = [row for row, (_, is_test) in enumerate(items) if is_test]
    train = [row for row, (_, is_test) in enumerate(items) if not is_test]
    codes = np.array([PART_CODES["test" if is_test else "train"] for _, is_test in items], np.uint8)
    arrays = {"graph/y": np.zeros(len(items), np.int8), PART.key: codes}
    plain = records([f"{row:03d}" for row in range(len(items))], [0] * len(items))
    column = replace(plain, read_column=arrays.__getitem__, columns=(LABEL, PART))
    folders = [f"{'Test' if is_test else 'train'}/{row}" for row, (_, is_test) in enumerate(items)]
    by_folder = records(folders, [0] * len(items))
    params = OwnSplitParams()
    given_parts = own_split(column, params, groups, "own", divides_nodes=False).parts
    assert sorted([*given_parts["train"], *given_parts["val"]]) == train
    assert given_parts["test"] == test
    assert bool(given_parts["val"]) == (len(train) > 1 and bool(test))
    assert given_parts["train"] or not train
    if train and test:
        assert own_split(by_folder, params, groups, "own", divides_nodes=False).parts == given_parts


def test_parts_of_another_level_are_refused():
    codes = np.zeros(2, np.uint8)
    table = records(["a", "b"], [0, 1])
    table = RecordTable(**{**vars(table), "given_parts": {"masks": codes}})
    params = GraphSplitParams()
    with raises(UsageError, naming="masks"):
        own_split(table, params, ["a", "b"], "own", divides_nodes=False)


GROUPS_AND_LABELS = st.lists(
    st.tuples(st.integers(-1, 8), st.integers(0, 2)), min_size=3, max_size=60
)


@settings(max_examples=100, deadline=None)
@given(GROUPS_AND_LABELS, st.sampled_from(["random", "stratified"]), st.integers(0, 3))
def test_a_column_of_groups_is_kept_together_and_no_part_is_empty(items, rule, seed):
    groups, labels = np.array(items).T
    table = records([f"{row:03d}" for row in range(len(items))], labels % 2)
    arrays = {"graph/y": labels.astype(np.int8) % 2, "graph/site": groups}
    class_counts = np.eye(2, dtype=np.int64)[labels % 2]
    table = replace(
        table,
        class_counts=class_counts,
        read_column=arrays.__getitem__,
        columns=(LABEL, SITE),
    )
    pipeline = load_pipeline(load_manifest("graphs"))
    params = GraphSplitParams(split_rule=rule, split_seed=seed)
    named = {group for group in groups.tolist() if group >= 0}
    count = len(named) + (groups < 0).sum()
    if count < len(PARTS):
        with raises(UsageError, naming=[count, "site", len(PARTS)]):
            apply_split(pipeline, table, params, None)
        return
    split = apply_split(pipeline, table, params, None)
    assert sorted(row for rows in split.parts.values() for row in rows) == [*range(len(items))]
    assert all(split.parts.values())
    for group in named:
        members = {*np.flatnonzero(groups == group).tolist()}
        assert sum(not members.isdisjoint(rows) for rows in split.parts.values()) == 1


@settings(max_examples=60, deadline=None)
@given(GROUPS_AND_LABELS, st.integers(0, 3))
def test_each_stratified_group_joins_the_part_with_the_smallest_sum_of_squares(items, seed):
    """The formula, summed again over all parts and labels for each candidate."""
    groups, labels = np.array(items).T
    sizes = {"train": len(items) - 2, "val": 1, "test": 1}
    parts = stratified_groups(labels, groups, sizes, seed=seed)
    shares = {part: size / len(items) for part, size in sizes.items()}
    classes, totals = np.unique(labels, return_counts=True)
    values, counts = np.unique(groups, return_counts=True)
    order = np.random.Generator(np.random.PCG64(seed)).permutation(len(values))
    expected = {part: [] for part in sizes}

    def distance(candidate: str, members: list[int]) -> float:
        total = 0.0
        for part, share in shares.items():
            rows = expected[part] + (members if part == candidate else [])
            for label, label_total in zip(classes, totals, strict=True):
                wanted = share * label_total
                total += ((labels[rows] == label).sum() - wanted) ** 2 / wanted
        return total

    for number in sorted(order, key=lambda number: -counts[number]):
        members = np.flatnonzero(groups == values[number]).tolist()
        before = distance("", [])
        change = {part: round(distance(part, members) - before, 9) for part in sizes}
        best = min(sizes, key=change.__getitem__)
        expected[best] += members
    if all(expected.values()):
        assert {part: sorted(rows) for part, rows in expected.items()} == parts


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=60),
    st.sampled_from([(0.8, 0.1), (0.5, 0.25), (0.6, 0.0)]),
)
def test_scaffolds_are_drawn_as_moleculenet_draws_them(scaffolds, fractions):
    train, val = fractions
    members: dict[int, list[int]] = {}
    for row, scaffold in enumerate(scaffolds):
        members.setdefault(scaffold, []).append(row)
    expected: dict[str, list[int]] = {part: [] for part in PARTS}
    for rows in sorted(members.values(), key=lambda rows: (len(rows), rows[0]), reverse=True):
        if len(expected["train"]) + len(rows) > train * len(scaffolds):
            taken = len(expected["train"]) + len(expected["val"])
            fits = taken + len(rows) <= (train + val) * len(scaffolds)
            expected["val" if fits else "test"] += rows
        else:
            expected["train"] += rows
    split = scaffold_split(np.array(scaffolds), train=train, val=val)
    assert split == {part: sorted(rows) for part, rows in expected.items()}
