"""Sine, cosine, arcsine, logarithm and normal quantile with the same bits on any CPU.

NumPy, glibc and SVML choose between versions of each function by CPU (FMA, AVX2, AVX-512), and these
differ in the last bit. The functions here only add, multiply, divide and take square roots, one
array operation at a time, so nothing is fused and IEEE 754 defines every rounding. Methods and
coefficients are from fdlibm (Sun Microsystems, 1993), and for the quantile from Cephes (Moshier,
1989). Errors are below 2.5 units in the last place of float64. Builds store the values rounded to
float32.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kmip_data.arrays import F64

#: π / 2 as a sum of three numbers. The first two have 33 bits, so their products with integers
#: below 2²⁰ are exact.
_HALF_PI = (
    1.57079632673412561417, 6.07710050630396597660e-11, 2.02226624879595063154e-21,
)  # fmt: skip
#: Maximum angle that is reduced here. NumPy handles larger ones, which do not occur in builds.
LARGEST_ANGLE = 1e6
# Coefficients of powers of x², lowest first.
_SINE = (
    -1.66666666666666324348e-01, 8.33333333332248946124e-03, -1.98412698298579493134e-04,
    2.75573137070700676789e-06, -2.50507602534068634195e-08, 1.58969099521155010221e-10,
)  # fmt: skip
_COSINE = (
    4.16666666666666019037e-02, -1.38888888888741095749e-03, 2.48015872894767294178e-05,
    -2.75573143513906633035e-07, 2.08757232129817482790e-09, -1.13596475577881948265e-11,
)  # fmt: skip
_ARCSINE = (
    1.66666666666666657415e-01, -3.25565818622400915405e-01, 2.01212532134862925881e-01,
    -4.00555345006794114027e-02, 7.91534994289814532176e-04, 3.47933107596021167570e-05,
)  # fmt: skip
_ARCSINE_DENOMINATOR = (
    1.0, -2.40339491173441421878, 2.02094576023350569471, -6.88283971605453293030e-01,
    7.70381505559019352791e-02,
)  # fmt: skip
_LOGARITHM = (
    6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01, 2.222219843214978396e-01,
    1.818357216161805012e-01, 1.531383769920937332e-01, 1.479819860511658591e-01,
)  # fmt: skip
_LN2 = (6.93147180369123816490e-01, 1.90821492927058770002e-10)
#: Rational functions for the middle of the normal distribution, its tails and its far tails.
_MIDDLE = (
    (
        -1.23916583867381258016, 1.39312609387279679503e1, -5.66762857469070293439e1,
        9.80010754185999661536e1, -5.99633501014107895267e1,
    ), (
        -1.18331621121330003142, 1.59056225126211695515e1, -8.20372256168333339912e1,
        2.00260212380060660359e2, -2.25462687854119370527e2, 8.63602421390890590575e1,
        4.67627912898881538453, 1.95448858338141759834, 1.0,
    ),
)  # fmt: skip
_TAIL = (
    (
        -8.57456785154685413611e-4, -3.50424626827848203418e-2, -1.40256079171354495875e-1,
        2.18663306850790267539, 1.46849561928858024014e1, 4.40805073893200834700e1,
        5.71628192246421288162e1, 3.15251094599893866154e1, 4.05544892305962419923,
    ), (
        -9.33259480895457427372e-4, -3.80806407691578277194e-2, -1.42182922854787788574e-1,
        2.50464946208309415979, 1.50425385692907503408e1, 4.13172038254672030440e1,
        4.53907635128879210584e1, 1.57799883256466749731e1, 1.0,
    ),
)  # fmt: skip
_FAR_TAIL = (
    (
        6.23974539184983293730e-9, 2.65806974686737550832e-6, 3.01581553508235416007e-4,
        1.23716634817820021358e-2, 2.01485389549179081538e-1, 1.33303460815807542389,
        3.93881025292474443415, 6.91522889068984211695, 3.23774891776946035970,
    ), (
        6.79019408009981274425e-9, 2.89247864745380683936e-6, 3.28014464682127739104e-4,
        1.34204006088543189037e-2, 2.16236993594496635890e-1, 1.37702099489081330271,
        3.67983563856160859403, 6.02427039364742014255, 1.0,
    ),
)  # fmt: skip
_ROOT_2_PI = 2.50662827463100050242
_TAIL_PROBABILITY = 0.13533528323661269189  #: exp(-2)


def sine_cosine(angle: F64) -> tuple[F64, F64]:
    """Return sine and cosine of angles in radians, of any shape; NaN for NaN and infinity."""
    angle = np.asarray(angle, np.float64)
    is_large = ~(np.abs(angle) <= LARGEST_ANGLE)
    small_angle = np.where(is_large, 0.0, angle)

    # Subtract the nearest multiple of π / 2 in three steps, two of which are exact.
    quarters = np.rint(small_angle * (2 / np.pi))
    rest = small_angle
    for term in _HALF_PI:
        rest = rest - quarters * term
    square = rest * rest
    odd = rest + rest * (square * _polynomial(_SINE, square))
    even = 1.0 - (0.5 * square - square * (square * _polynomial(_COSINE, square)))

    # A quarter turn swaps sine and cosine, a half turn changes both signs.
    quarter = quarters.astype(np.int64) & 3
    is_swapped = (quarter & 1).astype(bool)
    sine = np.where(is_swapped, even, odd)
    cosine = np.where(is_swapped, odd, even)
    sine = np.where(quarter >= 2, -sine, sine)
    cosine = np.where((quarter == 1) | (quarter == 2), -cosine, cosine)
    if is_large.any():
        with np.errstate(invalid="ignore"):
            sine = np.where(is_large, np.sin(angle), sine)
            cosine = np.where(is_large, np.cos(angle), cosine)
    return sine, cosine


def arcsine(value: F64) -> F64:
    """Return the arcsine, in radians, of values from 0 to 1, of any shape."""
    value = np.asarray(value, np.float64)
    # Above 1/2 use arcsin(x) = π/2 - 2 arcsin(√((1 - x) / 2)), whose argument is below 1/2.
    is_above = value > 0.5
    small = np.where(is_above, np.sqrt((1.0 - np.where(is_above, value, 1.0)) * 0.5), value)
    square = small * small
    quotient = square * _polynomial(_ARCSINE, square) / _polynomial(_ARCSINE_DENOMINATOR, square)
    angle = small + small * quotient
    return np.where(is_above, _HALF_PI[0] - (2.0 * angle - _HALF_PI[1]), angle)


def logarithm(value: F64) -> F64:
    """Return the natural logarithm of positive, finite values of any shape."""
    fraction, exponent = np.frexp(np.asarray(value, np.float64))
    # Write the value as 2ᵏ (1 + f) with 1 + f between √½ and √2.
    is_low = fraction < np.sqrt(0.5)
    fraction = np.where(is_low, 2.0 * fraction, fraction) - 1.0
    power: F64 = (exponent - is_low).astype(np.float64)
    ratio = fraction / (2.0 + fraction)
    square = ratio * ratio
    half = 0.5 * fraction * fraction
    series = square * _polynomial(_LOGARITHM, square)
    remainder = (half - (ratio * (half + series) + power * _LN2[1])) - fraction
    logarithms: F64 = power * _LN2[0] - remainder
    return logarithms


def normal_quantile(probability: F64) -> F64:
    """Return quantiles of the standard normal distribution at probabilities in (0, 1), of any shape."""
    probability = np.asarray(probability, np.float64)
    is_upper = probability > 1.0 - _TAIL_PROBABILITY
    tail = np.where(is_upper, 1.0 - probability, probability)
    # Middle: a function of the distance from the median.
    distance = tail - 0.5
    square = distance * distance
    middle = _ROOT_2_PI * (distance + distance * (square * _rational_function(_MIDDLE, square)))
    # Tails: a function of √(-2 log(tail)).
    root = np.sqrt(-2.0 * logarithm(tail))
    inverse = 1.0 / root
    correction = np.where(
        root < 8.0, _rational_function(_TAIL, inverse), _rational_function(_FAR_TAIL, inverse)
    )
    outer = root - logarithm(root) / root - inverse * correction
    outer = np.where(is_upper, outer, -outer)
    return np.where(tail > _TAIL_PROBABILITY, middle, outer)


def _polynomial(coefficients: Sequence[float], x: F64) -> F64:
    """Evaluate a polynomial by Horner's rule, given its coefficients from the lowest power up."""
    value = np.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value *= x
        value += coefficient
    return value


def _rational_function(coefficients: tuple[Sequence[float], Sequence[float]], x: F64) -> F64:
    numerator, denominator = coefficients
    return _polynomial(numerator, x) / _polynomial(denominator, x)
