"""Benchmarks: each compares two things in one run and gives rows with the ratio."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the speed table: ours against theirs.

    ``ours`` and ``theirs`` are medians in ``unit``; ``spread`` is (min, max) of the pairwise ratio.
    ``ratio`` is theirs / ours, so more is better; ``target`` is the least ratio aimed at.
    """

    what: str
    against: str
    ours: float
    theirs: float | None
    unit: str
    ratio: float | None
    spread: tuple[float, float] | None = None
    target: str = ""
    met: bool | None = None
    note: str = ""

    def as_dict(self) -> dict[str, object]:
        """For ``--json``."""
        return asdict(self)


def compare(
    ours: Callable[[], object], theirs: Callable[[], object], *, repeats: int = 7, warmup: int = 1
) -> tuple[float, float, float, tuple[float, float]]:
    """Time both in turn (A B A B …) and return median seconds of each, median ratio, its spread."""
    for _ in range(warmup):
        ours()
        theirs()
    a, b = [], []
    for _ in range(repeats):
        a.append(_seconds(ours))
        b.append(_seconds(theirs))
    ratios = [y / x for x, y in zip(a, b, strict=True)]
    return statistics.median(a), statistics.median(b), statistics.median(ratios), (min(ratios), max(ratios))


@contextmanager
def thread_count(count: int) -> Iterator[None]:
    """So many threads for torch and for compiled kernels, while inside."""
    import torch

    from kmip_data.runtime.threads import limit_restored, set_num_threads

    before = torch.get_num_threads()
    with limit_restored():
        torch.set_num_threads(count)
        set_num_threads(count)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def _seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start
