"""``python -m tools.gpu.page results.jsonl``: print results of ``make gpu`` as rows of docs/performance.md."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tools.gpu.results import cell, read

Row = dict[str, Any]

DRY = "**A dry run on a CPU, by emulation and in tiny sizes: no figure is a GPU's.**"


def summary(rows: Iterable[Row]) -> str:
    """Return the summary of a run: every section, with failures and missed targets."""
    rows = list(rows)
    lines = [*_warning(rows), "| section | | result |", "|---|---|---|"]
    for number in dict.fromkeys(row["section"] for row in rows):
        section_rows = [row for row in rows if row["section"] == number]
        done = [row for row in section_rows if row.get("kind") != "section"]
        end = section_rows[-1]
        bad = [row for row in done if row["status"] == "failed" or row.get("met") is False]
        good = sum(row["status"] == "ok" and row.get("met") is not False for row in done)
        counts = f"{good} good, {len(bad)} not, {end['value']} s"
        lines.append(f"| {number} | {end['what']} | {end['status']}: {counts} |")
        lines += [f"| | {row['what']} | {cell(row)} |" for row in bad]
    return "\n".join(lines)


def page(rows: Iterable[Row]) -> str:
    """Return the table "On a GPU": name, target and figure."""
    rows = list(rows)
    machine = "; ".join(
        f"{row['what']} {row['value']}" for row in rows if row.get("kind") == "version"
    )
    lines = [*_warning(rows), f"Measured by `make gpu` on {machine or 'an unknown machine'}.", ""]
    lines += ["| what | target | measured |", "|---|---|---|"]
    for row in rows:
        if row.get("kind") == "figure":
            target = "–" if row.get("target") is None else f"{row['target']:g}"
            lines.append(f"| {row['what']} | {target} | {cell(row)} |")
    return "\n".join(lines)


def _warning(rows: list[Row]) -> list[str]:
    return [DRY, ""] if any(row.get("dry") for row in rows) else []


if __name__ == "__main__":
    print(page(read(Path(sys.argv[1]))))  # noqa: T201 -- its output
