"""Results of the GPU command: one JSON line each, flushed immediately in case of a kill."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

FILE, LOG = "results.jsonl", "log.txt"


class Recorder:
    """Appends the results of one section to ``results.jsonl``."""

    def __init__(self, folder: Path, section: int, *, dry: bool) -> None:
        self.folder, self.section, self.dry = folder, section, dry
        self.device = torch.device("cpu" if dry else "cuda")

    def __call__(
        self,
        what: str,
        value: float | str | None = None,
        unit: str = "",
        *,
        target: float | None = None,
        status: str = "ok",
        **more: Any,
    ) -> None:
        """Record a figure with its upper limit ``target``, or a ``status``: ok, failed, skipped."""
        row: dict[str, Any] = {"section": self.section, "what": what, "status": status}
        if isinstance(value, float):
            value = float(f"{value:.4g}")
        row |= {"value": value, "unit": unit, "target": target, **more}
        if self.dry:
            row["dry"] = True
        if target is not None and isinstance(value, float | int):
            row["met"] = value <= target
        append(self.folder, row)

    @contextlib.contextmanager
    def attempt(self, what: str) -> Iterator[None]:
        """Record an exception raised inside the block as a failure, and continue after the block."""
        try:
            yield
        except Exception as error:
            lines = str(error).splitlines() or [""]
            self(what, status="failed", note=f"{type(error).__name__}: {lines[0]}"[:500])
            # After these errors, every later CUDA call of the process fails.
            if re.search("illegal memory access|device-side assert|unspecified launch", str(error)):
                raise

    def show(self, text: str) -> None:
        """Append to the log."""
        with (self.folder / LOG).open("a", encoding="utf-8") as file:
            file.write(f"[{self.section}] {text.rstrip()}\n")


def append(folder: Path, row: dict[str, Any]) -> None:
    """Append a line, and flush it to disk."""
    with (folder / FILE).open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
        file.flush()
        os.fsync(file.fileno())
    sys.stderr.write(f"  {row['section']} {row['what']}: {cell(row)}\n")


def cell(row: dict[str, Any]) -> str:
    """Format a result for the table."""
    note = f" ({row['note']})" if row.get("note") else ""
    if row["status"] != "ok":
        return f"{row['status']}{note}"
    value = "ok" if row.get("value") is None else f"{row['value']} {row['unit']}"
    return f"{value}{'' if row.get('met', True) else ', missed'}{note}"


def read(path: Path) -> list[dict[str, Any]]:
    """Return all rows of a file; skip a truncated last line."""
    rows = []
    for line in path.read_text("utf-8", "replace").splitlines():
        with contextlib.suppress(ValueError):
            rows.append(json.loads(line))
    return rows


def milliseconds(work: Callable[[], object], device: torch.device, *, most: float = 1.0) -> float:
    """Return the median time of a call, without the first; repeat for at most ``most`` seconds."""
    work()
    times: list[float] = []
    until = time.monotonic() + most
    while not times or (time.monotonic() < until and len(times) < 50):
        if device.type == "cuda":
            begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begun.record()
            work()
            ended.record()
            ended.synchronize()
            times.append(float(begun.elapsed_time(ended)))
        else:
            start = time.perf_counter()
            work()
            times.append(1000 * (time.perf_counter() - start))
    return sorted(times)[len(times) // 2]
