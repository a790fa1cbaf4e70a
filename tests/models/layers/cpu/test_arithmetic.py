"""Arithmetic on 16 channels at a time: accuracy of the sigmoid, chances of dropout, short groups."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from support.kernels.layer_kernels import draw

from kmip_data.models.layers.cpu.gate_kernels import load, sigmoid, store


@numba.njit
def apply_sigmoid(x, y) -> None:
    for i in range(0, len(x), 16):
        count = min(16, len(x) - i)
        store(y, i, count, sigmoid(load(x, i, count)))


def test_sigmoid_to_a_few_units_in_the_last_place() -> None:
    x = np.linspace(-86, 100, 20_011).astype(np.float32)
    found = np.empty_like(x)
    apply_sigmoid(x, found)
    expected = 1 / (1 + np.exp(-x.astype(np.float64)))
    assert np.max(np.abs(found - expected) / expected) < 4 * 2.0**-24


def test_sigmoid_at_the_ends() -> None:
    x = np.array([-np.inf, -1000, -0.0, 1000, np.inf, np.nan], np.float32)
    found = np.empty_like(x)
    apply_sigmoid(x, found)
    assert np.all(found[:2] < 2e-38)
    assert found[2] == 0.5
    assert np.all(found[3:5] == 1)
    assert np.isnan(found[5])


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_chances_of_dropout(p: float) -> None:
    n = 400_000
    dropped = round(p * 2**32)
    kept = {}
    # Other seeds and numbers beyond 2³² are other draws.
    for seed, start in ((1, 0), (2, 0), (1 + 2**32, 0), (-5, 0), (1, 2**32)):
        kept[seed, start] = np.empty(n, np.float32)
        draw(seed, start, dropped, kept[seed, start])
    spread = 4.5 * (p * (1 - p) / n) ** 0.5
    first = kept[1, 0]
    assert all(abs(values.mean() - (1 - p)) < spread for values in kept.values())
    for values in list(kept.values())[1:]:
        assert abs(np.corrcoef(first, values)[0, 1]) < 5 / n**0.5
    for lag in (1, 2, 3, 16, 56, 1792):
        assert abs(np.corrcoef(first[:-lag], first[lag:])[0, 1]) < 5 / n**0.5


def test_a_draw_can_be_asked_for_again_from_anywhere() -> None:
    whole, part = np.empty(100, np.float32), np.empty(40, np.float32)
    draw(77, 0, 2**31, whole)
    draw(77, 30, 2**31, part)  # a short group at the end
    assert np.array_equal(whole[30:70], part)
