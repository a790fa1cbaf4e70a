"""Benchmarks: each compares two things in one run and gives rows with the ratio."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

Times = tuple[float, float, float, tuple[float, float]]  #: ours, theirs, ratio, its smallest and largest


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the speed table: ours against theirs.

    ``ours`` and ``theirs`` are medians in ``unit``, ``captured`` is ours as a CUDA graph; ``None``: it was
    not measured. ``spread`` is (min, max) of the pairwise ratio. ``ratio`` is theirs / ours, so more is
    better; ``target`` is the least ratio aimed at.
    """

    what: str
    against: str
    ours: float | None
    captured: float | None = None
    theirs: float | None = None
    unit: str
    ratio: float | None = None
    spread: tuple[float, float] | None = None
    target: str = ""
    met: bool | None = None
    note: str = ""

    @classmethod
    def compared(
        cls,
        what: str,
        against: str,
        times: Times,
        *,
        per: int = 1,
        target: float | None = None,
        note: str = "",
    ) -> Row:
        """Make the row of what :func:`compare` gave, in seconds of each of ``per`` things done."""
        ours, theirs, ratio, spread = times
        return cls(
            what=what,
            against=against,
            ours=ours / per,
            theirs=theirs / per,
            unit="s",
            ratio=ratio,
            spread=spread,
            target="" if target is None else f"≥ {target:g}×",
            met=None if target is None else ratio >= target,
            note=note,
        )


def compare(
    ours: Callable[[], object], theirs: Callable[[], object], *, repeats: int = 7, warmup: int = 1
) -> Times:
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
    """Give torch, the compiled kernels and FAISS this many threads, while inside."""
    import torch

    from kmip_data.runtime.threads import limit_restored, set_num_threads

    before = torch.get_num_threads()
    with limit_restored():
        torch.set_num_threads(count)
        set_num_threads(count)
        with suppress(ImportError):
            import faiss

            faiss.omp_set_num_threads(count)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def _seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start
