"""Time two functions in turn, or measure the peak memory of one."""

from __future__ import annotations

import ctypes
import gc
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from kmip_data.runtime.memory import peak_host_memory

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


def peak_bytes(function: Callable[[], object]) -> int:
    """Return the growth of this process's resident set during a call, on Linux."""
    gc.collect()
    # Return free memory to the system, so that new allocations raise the peak; then reset it.
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", "ascii")
    before = psutil.Process().memory_info().rss
    function()
    return max(0, peak_host_memory() - before)
