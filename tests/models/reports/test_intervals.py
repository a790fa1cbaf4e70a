"""Intervals against scipy.stats, which computes them from the numbers themselves."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
from scipy import stats
from support.cases import check_each

from kmip_data.models.reports.intervals import paired, welch

OURS = [0.9352, 0.9401, 0.9288, 0.9377]


def test_welch_is_that_of_scipy_from_the_published_figures():
    """What is published of ``theirs``: mean, deviation with ddof 0 and number."""

    def check(theirs):
        found = welch(OURS, statistics.fmean(theirs), statistics.pstdev(theirs), len(theirs))
        expected = stats.ttest_ind(OURS, theirs, equal_var=False).confidence_interval(0.95)
        assert found == pytest.approx((np.mean(OURS) - np.mean(theirs), *expected), rel=1e-9)

    check_each(check, [[0.95, 0.96, 0.93, 0.94, 0.955], [0.9, 0.95], [0.94, 0.941, 0.942]])


def test_the_published_deviation_is_turned_to_that_of_a_sample():
    _, low, high = welch(OURS, 0.94, 0.005, 4)
    spread = np.var(OURS, ddof=1) / 4 + 0.005**2 * 4 / 3 / 4
    freedom = spread**2 / ((np.var(OURS, ddof=1) / 4) ** 2 / 3 + (0.005**2 / 3) ** 2 / 3)
    assert high - low == pytest.approx(2 * stats.t.ppf(0.975, freedom) * spread**0.5, rel=1e-9)


def test_too_few_runs_have_a_difference_alone():
    def check(case):
        ours, std, runs = case
        value, low, high = welch(ours, 0.5, std, runs)
        assert value == pytest.approx(statistics.fmean(ours) - 0.5)
        assert (low, high) == (None, None)

    check_each(check, [([0.9], 0.01, 4), (OURS, None, 4), (OURS, 0.01, 1)])


def test_no_spread_at_all():
    assert welch([0.5, 0.5], 0.25, 0.0, 3) == (0.25, 0.25, 0.25)


def test_pairs_are_those_of_scipy():
    theirs = [0.93, 0.91, 0.95, 0.92]
    found = paired([one - other for one, other in zip(OURS, theirs, strict=True)])
    expected = stats.ttest_rel(OURS, theirs).confidence_interval(0.95)
    assert found == pytest.approx((np.mean(OURS) - np.mean(theirs), *expected), rel=1e-9)
    assert paired([0.25]) == (0.25, None, None)
