"""Rows of the speed table: two things compared in one run, and how they are printed."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from kmip_data.cli.bench import quantity
from kmip_data.cli.shared.output import table

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
        cls, what: str, against: str, times: Times, *, per: int = 1, target: float | None = None, **more: Any
    ) -> Row:
        """Make the row of what :func:`compare` gave, in seconds of each of ``per`` things done."""
        ours, theirs, ratio, spread = times
        more |= {"ratio": ratio, "spread": spread}
        return cls.of(what, against, ours / per, theirs / per, "s", target, **more)

    @classmethod
    def of(
        cls,
        what: str,
        against: str,
        ours: float,
        theirs: float,
        unit: str,
        target: float | None = None,
        **more: Any,
    ) -> Row:
        """Make the row of two figures, of which less is better; ``more`` are fields of it."""
        ratio = more.setdefault("ratio", theirs / ours)
        if target is not None:
            more |= {"target": f"≥ {target:,g}×", "met": ratio >= target}
        return cls(what=what, against=against, ours=ours, theirs=theirs, unit=unit, **more)


def apart(topic: str, call: str) -> Any:
    """Return the value, as JSON, of an expression in a topic's names, in a process of its own."""
    code = f"import json; from benchmarks.{topic} import *; print(json.dumps({call}))"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def grown(run: Callable[[], object]) -> int:
    """Return the bytes that the peak of this process's memory grows by while ``run`` runs."""
    import psutil

    from kmip_data.runtime.memory import peak_host_memory

    before = int(psutil.Process().memory_info().rss)
    run()
    return max(0, peak_host_memory() - before)


def check_equal(same: bool) -> None:
    """Raise AssertionError unless both sides of a row give the same."""
    assert same, "the two sides do not agree"


def bytes_below(folder: Path) -> int:
    """Return the bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


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


def print_rows(found: list[tuple[str, Row]], machine: str, *, quick: bool) -> None:
    """Print (topic, row) pairs as a table."""
    header = ["what", "against", "ours", "theirs", "ratio", "spread", "target", "met", "captured"]
    click.echo(table(header, [[*cells_of(row), quantity(row.captured, row.unit)] for _, row in found]))
    for note in dict.fromkeys(row.note for _, row in found if row.note):
        click.echo(note)
    click.echo(f"{machine}{' (quick: not the figures of a full run)' if quick else ''}")


def cells_of(row: Row) -> list[str]:
    """Return a row as texts."""
    return [
        row.what,
        row.against,
        quantity(row.ours, row.unit),
        quantity(row.theirs, row.unit),
        f"{row.ratio:.2f}×" if row.ratio is not None else "–",
        f"{row.spread[0]:.2f} to {row.spread[1]:.2f}" if row.spread is not None else "–",
        row.target or "–",
        {True: "yes", False: "NO", None: "–"}[row.met],
    ]


def markdown_table(rows: list[tuple[str, Row]], machine: str) -> str:
    """Return the rows as docs/performance.md has them."""
    lines = ["| topic | what | against | target | measured |", "|---|---|---|---|---|"]
    for topic, row in rows:
        ours, theirs, ratio, spread = cells_of(row)[2:6]
        within = f" ({spread})" if row.spread is not None else ""
        measured = f"**{ratio}**{within}; {ours} against {theirs}" if row.ratio is not None else ours
        measured += "" if row.captured is None else f"; captured {quantity(row.captured, row.unit)}"
        lines.append(f"| {topic} | {row.what} | {row.against or '–'} | {row.target or '–'} | {measured} |")
    return "\n".join([*lines, "", f"Machine: {machine}."])
