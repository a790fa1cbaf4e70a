"""Confusion and errors by eccentricity, against counting one by one."""

from __future__ import annotations

import numpy as np

from kmip_data.drawing.explorer.answer import BINS, confusion, error_by


def test_confusion_counts_each_pair():
    rng = np.random.default_rng(0)
    truth, predicted = rng.integers(0, 5, (2, 300))
    found = confusion(truth, predicted, 6)
    for i in range(6):
        for j in range(6):
            assert found[i, j] == sum(t == i and p == j for t, p in zip(truth, predicted, strict=True))


def test_errors_by_value_are_of_tenths():
    values = np.array([3, 1, 2, 2, 5, 4, 9, 8, 7, 6, 0, 2], np.float32)
    wrong = values > 4
    found = error_by(values, wrong)
    assert len(found) == BINS
    assert sum(each["count"] for each in found) == len(values)
    assert sum(each["wrong"] for each in found) == wrong.sum()
    assert [each["low"] for each in found] == sorted(each["low"] for each in found)
    assert (found[0]["low"], found[-1]["high"]) == (0, 9)
    assert error_by(values[:0], wrong[:0]) == []
