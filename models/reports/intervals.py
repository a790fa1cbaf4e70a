"""95 % intervals of differences of means, by Student's t."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

Interval = tuple[float, float | None, float | None]  #: the difference and its bounds; None for too few runs


def welch(ours: Sequence[float], mean: float, std: float | None, runs: int) -> Interval:
    """Return the mean of ``ours`` minus a published mean, with the interval for unequal variances.

    ``std`` is published with ddof 0; its variance is converted to ``runs − 1`` first.
    """
    value = statistics.fmean(ours) - mean
    if len(ours) < 2 or runs < 2 or std is None:
        return value, None, None
    # Squared standard errors of the two means; std² n / (n − 1) over n.
    own, published = statistics.variance(ours) / len(ours), std**2 / (runs - 1)
    spread = own**2 / (len(ours) - 1) + published**2 / (runs - 1)
    return _around(value, own + published, (own + published) ** 2 / spread if spread else 1.0)


def paired(differences: Sequence[float]) -> Interval:
    """Return the mean of paired differences, and its interval."""
    value = statistics.fmean(differences)
    if (runs := len(differences)) < 2:
        return value, None, None
    return _around(value, statistics.variance(differences) / runs, runs - 1)


def _around(value: float, variance: float, freedom: float) -> Interval:
    from scipy.special import stdtrit

    half = float(stdtrit(freedom, 0.975)) * math.sqrt(variance)
    return value, value - half, value + half
