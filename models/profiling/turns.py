"""Time two things in turn, and format the figures of `make bench` and `kmip-data bench`."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
import statistics
import time
from collections.abc import Callable

#: Median seconds of our side and theirs, median ratio theirs / ours, and the least and the largest
#: ratio.
Times = tuple[float, float, float, tuple[float, float]]


def compare(
    ours: Callable[[], object],
    theirs: Callable[[], object],
    *,
    repeats: int = 7,
    warmup: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> Times:
    """Time both in turn (A B A B …), so that a busy machine slows both.

    ``warmup`` turns do not count. A ``clock`` of processor time leaves out what others do.
    """
    our_seconds = []
    their_seconds = []
    ratios = []
    # Ratios are taken within a turn: what slows the machine slows both.
    for number in range(warmup + repeats):
        our_time = seconds(ours, clock)
        their_time = seconds(theirs, clock)
        if number >= warmup:
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
    """Time one call in seconds."""
    start = clock()
    function()
    return clock() - start


def quantity(value: float | None, unit: str) -> str:
    """Format a figure with a suitable unit.

    >>> quantity(0.00042, "s")
    '420 µs'
    """
    if value is None:
        return "–"
    if unit == "s" and value < 1e-3:
        return f"{value * 1e6:.3g} µs"
    if unit == "s" and value < 1:
        return f"{value * 1e3:.3g} ms"
    if value >= 1000:
        return f"{value:,.0f} {unit}"
    return f"{value:.3g} {unit}".rstrip()


@functools.cache
def machine_line() -> str:
    """Describe the machine: processor, usable cores, memory, system, versions and load."""
    import psutil

    from kmip_data.models.training.machine import processor
    from kmip_data.runtime.threads import available_cores

    facts = [
        processor(),
        f"{available_cores()} cores",
        f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        f"{platform.system()} {platform.machine()}",
        f"Python {platform.python_version()}",
        f"numpy {importlib.metadata.version('numpy')}",
        f"torch {importlib.metadata.version('torch')}",
        f"load {psutil.getloadavg()[0]:.1f}",
    ]
    return ", ".join(facts)
