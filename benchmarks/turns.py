"""Time two functions in turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

#: Median seconds of our side and theirs, median ratio theirs / ours, minimum and maximum ratio.
Times = tuple[float, float, float, tuple[float, float]]


def compare(
    ours: Callable[[], object],
    theirs: Callable[[], object],
    *,
    repeats: int = 7,
    warmup: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> Times:
    """Time both in turn (A B A B …), so that other load affects both sides of a ratio.

    ``warmup`` turns do not count. A CPU-time ``clock`` excludes other processes.
    """
    our_seconds = []
    their_seconds = []
    ratios = []
    for turn in range(warmup + repeats):
        our_time = seconds(ours, clock)
        their_time = seconds(theirs, clock)
        if turn >= warmup:
            our_seconds.append(our_time)
            their_seconds.append(their_time)
            ratios.append(their_time / our_time)
    return (
        statistics.median(our_seconds),
        statistics.median(their_seconds),
        statistics.median(ratios),
        (min(ratios), max(ratios)),
    )


def seconds(
    function: Callable[[], object],
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Return the seconds of one call."""
    start = clock()
    function()
    return clock() - start
