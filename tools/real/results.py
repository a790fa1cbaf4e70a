"""Results of ``make real``: one JSON line per step, and a summary table."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

FILE = "results.jsonl"
STEPS = ("fetch", "build", "counts", "verify", "epoch")
DRY = "**A dry run: generated samples from servers on this machine. No real file was touched.**"
Row = dict[str, Any]


def append(folder: Path, row: Row) -> None:
    """Append a line, and flush it to disk."""
    with (folder / FILE).open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
        file.flush()
        os.fsync(file.fileno())


def read(folder: Path) -> dict[tuple[str, str], Row]:
    """Return the last row of each step, by dataset and step; skip a truncated line."""
    rows: dict[tuple[str, str], Row] = {}
    with contextlib.suppress(FileNotFoundError):
        for line in (folder / FILE).read_text("utf-8", "replace").splitlines():
            with contextlib.suppress(ValueError, KeyError):
                row = json.loads(line)
                rows[row["dataset"], row["step"]] = row
    return rows


def table(rows: list[Row], *, dry: bool) -> str:
    """Return a table with a row per dataset, and below it the note of each step."""
    lines = [DRY, ""] if dry else []
    lines.append(f"| dataset | mirrors | {' | '.join(STEPS)} |")
    lines.append("|---" * (len(STEPS) + 2) + "|")
    for dataset in dict.fromkeys(row["dataset"] for row in rows):
        steps = {row["step"]: row for row in rows if row["dataset"] == dataset}
        mirrors = [row for step, row in steps.items() if step.startswith("mirror ")]
        good = sum(row["status"] == "ok" for row in mirrors)
        cells = [f"{good} of {len(mirrors)}" if mirrors else "–"]
        cells += [_cell(steps.get(step)) for step in STEPS]
        lines.append(f"| {dataset} | {' | '.join(cells)} |")
    lines.append("")
    lines += [f"- {row['dataset']}, {row['step']}: {row['status']}, {row['note']}" for row in rows]
    return "\n".join(lines)


def _cell(row: Row | None) -> str:
    if row is None:
        return "–"
    return f"{row['seconds']:.0f} s" if row["status"] == "ok" else str(row["status"])
