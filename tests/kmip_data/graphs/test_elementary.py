"""Elementary functions against the C library's in extended precision, and against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtri

from kmip_data.graphs.elementary_functions import (
    LARGEST_ANGLE,
    arcsine,
    logarithm,
    normal_quantile,
    sine_cosine,
)

RNG = np.random.default_rng(3)
ANGLES = np.concatenate(
    [
        RNG.uniform(-400, 400, 100_000),
        RNG.uniform(-LARGEST_ANGLE, LARGEST_ANGLE, 20_000),
        RNG.normal(size=20_000) * 1e-6,
        np.arange(-2_000, 2_000) * np.pi / 4,  # zeros of sine and cosine, nearly
        [0.0, -0.0, LARGEST_ANGLE, 2 * LARGEST_ANGLE, 1e15],
    ]
)
SHARES = np.concatenate([RNG.random(50_000), 10.0 ** RNG.uniform(-16, 0, 50_000)])


def units_off(values, exact) -> float:
    """Return the largest error in units in the last place of float64."""
    if np.finfo(np.longdouble).nmant < 63:
        pytest.skip("long double has no more digits than double here")
    last_place = np.spacing(np.abs(exact).astype(np.float64))
    return float(np.max(np.abs(values - exact) / last_place))


def test_functions_are_nearly_exact() -> None:
    extended = ANGLES.astype(np.longdouble)
    sine, cosine = sine_cosine(ANGLES)
    assert units_off(sine, np.sin(extended)) < 2.5
    assert units_off(cosine, np.cos(extended)) < 2.5
    # Between 0 and 1, both ends included.
    values = np.concatenate([SHARES, [0.0, 0.5, 1.0]])
    assert units_off(arcsine(values), np.arcsin(values.astype(np.longdouble))) < 2.5
    values = np.concatenate([SHARES, 1 / SHARES, RNG.uniform(0.9, 1.1, 50_000)])
    assert units_off(logarithm(values), np.log(values.astype(np.longdouble))) < 2.5


def test_quantiles_equal_scipy() -> None:
    shares = np.concatenate([SHARES, 1 - SHARES])
    shares = shares[(shares > 0) & (shares < 1)]
    quantiles = normal_quantile(shares)
    np.testing.assert_allclose(quantiles, ndtri(shares), rtol=4e-15, atol=1e-16)
    assert np.array_equal(quantiles.astype(np.float32), ndtri(shares).astype(np.float32))


def test_invalid_shapes_and_angles_are_refused() -> None:
    sine, cosine = sine_cosine(np.array([[np.nan, np.inf], [0.0, 1e9]]))
    assert sine.shape == cosine.shape == (2, 2)
    assert np.isnan(sine[0]).all()
    assert np.isnan(cosine[0]).all()
    assert cosine[1, 0] == 1
    assert sine[1, 1] == np.sin(1e9)
    assert sine_cosine(0.0)[1].shape == ()
