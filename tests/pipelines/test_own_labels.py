"""Codes of labels: positions in a list of classes, for numbers, strings and arrays of any shape."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kmip_data.columns.labels import MAX_CLASSES, class_codes, classes_option

INTEGERS = st.integers(-3, 300)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(INTEGERS, min_size=1, max_size=9, unique=True),
    st.lists(INTEGERS | st.just(None), min_size=1, max_size=12),
    st.sampled_from(["integers", "floats", "rows", "strings", "names"]),
)
def test_codes_are_positions_in_the_classes(classes, labels, form):
    """As names, classes are strings, and labels the numbers that they write."""
    given_classes = classes
    values = [np.nan if label is None else label for label in labels]
    array = np.array(values, np.float64)
    if form == "integers":
        labels = [label for label in labels if label is not None] or [classes[0]]
        array = np.array(labels)
    elif form == "rows":
        array = array.reshape(-1, 1)
    elif form == "strings":
        array = np.array([None if label is None else str(label) for label in labels], object)
        given_classes = [str(label) for label in classes]
    elif form == "names":
        given_classes = [str(label) for label in classes]
    codes = class_codes(array, given_classes)
    expected = [classes.index(label) if label in classes else -1 for label in labels]
    assert codes.shape == array.shape
    assert codes.reshape(-1).tolist() == expected


@pytest.mark.parametrize(
    ("values", "option"),
    [
        ([0, 1, 2], "3"),
        ([0, 2], "0,2"),
        ([5, 2, 2], "2,5"),
        ([-1, 1], "-1,1"),
        ([0], "2"),
        ([*range(1, 40)], "40"),
    ],
)
def test_an_option_that_makes_integers_classes_is_short(values, option):
    assert str(classes_option(values, MAX_CLASSES).values["classes"]) == option
