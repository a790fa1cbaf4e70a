"""Splits of your own data: sizes, groups, labels and seeds of random parts."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kmip_data.format.schema import Column
from kmip_data.format.split_files import PART_CODES, PARTS
from kmip_data.pipelines.base import RecordTable
from kmip_data.pipelines.own_split import GraphSplitParams, OwnSplitParams, draw_parts, own_split

LABEL = Column(
    key="graph/y", attribute="y", stored="int8", presented="int64", low=-1, high=1, num_classes=2
)


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


def test_parts_of_another_level_are_refused():
    from kmip_data.errors import UsageError

    codes = np.zeros(2, np.uint8)
    table = records(["a", "b"], [0, 1])
    table = RecordTable(**{**vars(table), "given_parts": {"masks": codes}})
    params = GraphSplitParams()
    with pytest.raises(UsageError, match="'masks' divides nodes, but graphs are to be divided"):
        own_split(table, params, ["a", "b"], "own", divides_nodes=False)
