"""Rows of the speed table: comparisons, and their formatting with the machine's description."""

from __future__ import annotations

import importlib.metadata
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.turns import Times, seconds

#: Pause before each turn: OpenMP threads hold a core for about 10 ms after their work.
PAUSE_SECONDS = 0.05


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of the speed table, ours against theirs.

    ``ours`` and ``theirs`` are medians in ``unit``, None if not measured. ``ratio`` is
    theirs / ours, so higher is better; ``spread`` is its minimum and maximum, ``target`` the
    minimum to reach. ``graphs`` are those of one measurement, for graphs per second.
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
    graphs: int = 0

    @classmethod
    def from_times(cls, what: str, against: str, times: Times, *, per: int = 1, **more: Any) -> Row:
        """Return a row of :func:`~benchmarks.turns.compare`, in seconds per each of ``per`` items."""
        ours, theirs, ratio, spread = times
        return cls.from_figures(
            what, against, ours / per, theirs / per, "s", ratio=ratio, spread=spread, **more
        )

    @classmethod
    def from_figures(
        cls, what: str, against: str, ours: float, theirs: float, unit: str, *, target: float | None = None,
        **more: Any,
    ) -> Row:  # fmt: skip
        """Return a row of two figures where less is better; ``more`` are other fields."""
        ratio = more.setdefault("ratio", theirs / ours)
        if target is not None:
            more |= {"target": f"≥ {target:,g}×", "met": ratio >= target}
        return cls(what=what, against=against, ours=ours, theirs=theirs, unit=unit, **more)

    def markdown(self, topic: str) -> str:
        """Format the row for docs/performance.md, without its date."""
        ours = format_quantity(self.ours, self.unit)
        if self.graphs:
            graphs_per_second = float(f"{self.graphs / self.ours:.3g}")
            ours += f", {graphs_per_second:,.0f} graphs/s"
        peer = self.against
        if self.theirs is not None:
            peer += f": {format_quantity(self.theirs, self.unit)}"

        parts = []
        if self.ratio is not None:
            spread = "" if self.spread is None else " ({:.2f} to {:.2f})".format(*self.spread)
            parts.append(f"**{self.ratio:.2f}×**{spread}")
        if self.target:
            parts.append(f"missed {self.target}" if self.met is False else self.target)
        return f"| {topic} | {self.what} | {ours} | {peer} | {', '.join(parts) or '–'} |"


def format_quantity(value: float | None, unit: str) -> str:
    """Format a value with a suitable unit, such as ``420 µs``."""
    if value is None:
        return "–"
    if unit == "s" and value < 1e-3:
        return f"{value * 1e6:.3g} µs"
    if unit == "s" and value < 1:
        return f"{value * 1e3:.3g} ms"
    if value >= 1000:
        return f"{value:,.0f} {unit}"
    return f"{value:.3g} {unit}".rstrip()


def describe_machine() -> str:
    """Describe the machine: processor, usable cores, memory, system, versions and load."""
    from kmip_data.models.training.devices import processor_model
    from kmip_data.runtime.parallel import available_cores

    facts = [
        processor_model(),
        f"{available_cores()} cores",
        f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        f"{platform.system()} {platform.machine()}",
        f"Python {platform.python_version()}",
        f"numpy {importlib.metadata.version('numpy')}",
        f"torch {importlib.metadata.version('torch')}",
        f"load {psutil.getloadavg()[0]:.1f}",
    ]
    return ", ".join(facts)


def bytes_below(folder: Path) -> int:
    """Return the total bytes of the files in a folder tree."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@contextmanager
def thread_count(count: int) -> Iterator[None]:
    """Limit torch, the compiled kernels and FAISS to this many threads."""
    import torch

    from kmip_data.runtime.parallel import restore_thread_limit, set_num_threads

    previous = torch.get_num_threads()
    with restore_thread_limit():
        torch.set_num_threads(count)
        set_num_threads(count)
        with suppress(ImportError):
            import faiss

            faiss.omp_set_num_threads(count)
        try:
            yield
        finally:
            torch.set_num_threads(previous)


def compare_all(
    ours: Callable[[], object],
    peers: dict[str, Callable[[], object]],
    *,
    repeats: int = 5,
    warmup: int = 1,
) -> dict[str, Times]:
    """Time ours and all peers in turn (A B C A B C …), with ratios per turn.

    ``warmup`` turns do not count.
    """
    sides = {"ours": ours, **peers}
    times: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(warmup + repeats):
        for name, side in sides.items():
            time.sleep(PAUSE_SECONDS)
            duration = seconds(side)
            # Discard a first short call, which wakes threads that a training step keeps awake.
            if duration < PAUSE_SECONDS:
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
