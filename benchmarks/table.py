"""Rows of the speed table: two things compared in one run, and how they are printed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.turns import Times, seconds
from kmip_data.models.profiling.number_format import format_quantity

#: Seconds before each turn: threads of OpenMP hold a core for about 10 ms after their work.
REST = 0.05


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the speed table: ours against theirs.

    ``ours`` and ``theirs`` are medians in ``unit``; ``None``: not measured. ``spread`` is (min,
    max) of the pairwise ratio. ``ratio`` is theirs / ours, so more is better; ``target`` is the
    least ratio aimed at.
    """

    what: str
    against: str
    ours: float
    theirs: float | None = None
    unit: str
    ratio: float | None = None
    spread: tuple[float, float] | None = None
    target: str = ""
    met: bool | None = None
    note: str = ""

    @classmethod
    def compared(cls, what: str, against: str, times: Times, *, per: int = 1, **more: Any) -> Row:
        """Make the row of what :func:`compare` gave, in seconds of each of ``per`` things done."""
        ours, theirs, ratio, spread = times
        return cls.of(
            what, against, ours / per, theirs / per, "s", ratio=ratio, spread=spread, **more
        )

    @classmethod
    def of(
        cls, what: str, against: str, ours: float, theirs: float, unit: str, *, target: float | None = None,
        **more: Any,
    ) -> Row:  # fmt: skip
        """Make the row of two figures, of which less is better; ``more`` are fields of it."""
        ratio = more.setdefault("ratio", theirs / ours)
        if target is not None:
            more |= {"target": f"≥ {target:,g}×", "met": ratio >= target}
        return cls(what=what, against=against, ours=ours, theirs=theirs, unit=unit, **more)

    def markdown(self, topic: str) -> str:
        """Return the row as docs/performance.md has it, without its date."""
        ours = format_quantity(self.ours, self.unit)
        peer = self.against
        if self.theirs is not None:
            peer += f": {format_quantity(self.theirs, self.unit)}"

        parts = []
        if self.ratio is not None:
            within = "" if self.spread is None else " ({:.2f} to {:.2f})".format(*self.spread)
            parts.append(f"**{self.ratio:.2f}×**{within}")
        if self.target:
            parts.append(f"missed {self.target}" if self.met is False else self.target)
        return f"| {topic} | {self.what} | {ours} | {peer} | {', '.join(parts) or '–'} |"


def bytes_below(folder: Path) -> int:
    """Return the bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@contextmanager
def thread_count(count: int) -> Iterator[None]:
    """Give torch, the compiled kernels and FAISS this many threads, while inside."""
    import torch

    from kmip_data.runtime.parallel import restore_thread_limit, set_num_threads

    before = torch.get_num_threads()
    with restore_thread_limit():
        torch.set_num_threads(count)
        set_num_threads(count)
        with suppress(ImportError):
            import faiss

            faiss.omp_set_num_threads(count)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def in_turns(
    ours: Callable[[], object],
    peers: dict[str, Callable[[], object]],
    *,
    repeats: int = 5,
    warmup: int = 1,
) -> dict[str, Times]:
    """Time ours and all peers in turn (A B C A B C …); a ratio is of one turn.

    ``warmup`` turns do not count.
    """
    sides = {"ours": ours, **peers}
    times: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(warmup + repeats):
        for name, side in sides.items():
            time.sleep(REST)
            duration = seconds(side)
            # A first call wakes threads; the threads of a training step are awake.
            if duration < REST:
                duration = seconds(side)
            if turn >= warmup:
                times[name].append(duration)

    compared = {}
    for name in peers:
        ratios = [theirs / mine for theirs, mine in zip(times[name], times["ours"], strict=True)]
        compared[name] = (
            statistics.median(times["ours"]),
            statistics.median(times[name]),
            statistics.median(ratios),
            (min(ratios), max(ratios)),
        )
    return compared
