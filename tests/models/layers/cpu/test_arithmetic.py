"""Arithmetic on 16 channels at a time: accuracy of the sigmoid, draws of dropout, short groups."""

from __future__ import annotations

import numba
import numpy as np
import torch
from support.kernels.layer_kernels import draw

from kmip_data.models.layers.cpu.dropout import apply_dropout_mask
from kmip_data.models.layers.cpu.gate_kernels import load_lanes, sigmoid, store_lanes


@numba.njit
def apply_sigmoid(x, y) -> None:
    for i in range(0, len(x), 16):
        count = min(16, len(x) - i)
        store_lanes(y, i, count, sigmoid(load_lanes(x, i, count)))


def test_sigmoid_is_accurate_to_a_few_units_in_the_last_place() -> None:
    x = np.linspace(-86, 100, 20_011).astype(np.float32)
    values = np.empty_like(x)
    apply_sigmoid(x, values)
    expected = 1 / (1 + np.exp(-x.astype(np.float64)))
    assert np.max(np.abs(values - expected) / expected) < 4 * 2.0**-24


def test_sigmoid_handles_infinities_zero_and_nan() -> None:
    x = np.array([-np.inf, -1000, -0.0, 1000, np.inf, np.nan], np.float32)
    values = np.empty_like(x)
    apply_sigmoid(x, values)
    assert np.all(values[:2] < 2e-38)
    assert values[2] == 0.5
    assert np.all(values[3:5] == 1)
    assert np.isnan(values[5])


def test_random_draws_equal_the_dropout_mask() -> None:
    first, drawn = np.empty((2, 1_000), np.float32)
    for seed, start in ((1, 0), (1 + 2**32, 0), (-5, 0), (1, 70)):
        draw(seed, start, round(0.3 * 2**32), drawn)
        expected = apply_dropout_mask(torch.ones(1_000), 0.3, seed, start).numpy() > 0
        assert np.array_equal(drawn > 0, expected), (seed, start)
    draw(1, 0, 2**31, first)
    draw(1, 2**32, 2**31, drawn)  # numbers beyond 2³² are other draws
    assert not np.array_equal(drawn, first)


def test_a_draw_can_be_reproduced_from_any_offset() -> None:
    whole, part = np.empty(100, np.float32), np.empty(40, np.float32)
    draw(77, 0, 2**31, whole)
    draw(77, 30, 2**31, part)  # a short group at the end
    assert np.array_equal(whole[30:70], part)
