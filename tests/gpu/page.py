"""``python -m tests.gpu.page results.jsonl``: rows of docs/performance.md from what ``make gpu`` found."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Row = dict[str, Any]

DRY = "**A dry run on a CPU, by emulation and in tiny sizes: no figure is a GPU's.**"


def summary(rows: Iterable[Row]) -> str:
    """Return the table that ends a run: every section, and what failed or missed its target."""
    rows = list(rows)
    lines = [*_warning(rows), "| section | | result |", "|---|---|---|"]
    for number, found in _by_section(rows).items():
        done, end = [row for row in found if row.get("kind") != "section"], found[-1]
        bad = [row for row in done if row["status"] == "failed" or row.get("met") is False]
        good = sum(row["status"] == "ok" for row in done) - sum(row.get("met") is False for row in done)
        lines.append(
            f"| {number} | {end['what']} | {end['status']}: {good} good, {len(bad)} not, {end['value']} s |"
        )
        lines += [f"| | {row['what']} | {_cell(row)} |" for row in bad]
    return "\n".join(lines)


def page(rows: Iterable[Row]) -> str:
    """Return rows of the table "On a GPU": what, the target, and the figure."""
    rows = list(rows)
    machine = "; ".join(f"{row['what']} {row['value']}" for row in rows if row.get("kind") == "version")
    lines = [*_warning(rows), f"Measured by `make gpu` on {machine or 'an unknown machine'}.", ""]
    lines += ["| what | target | measured |", "|---|---|---|"]
    for row in rows:
        if row.get("kind") == "figure":
            target = "–" if row.get("target") is None else f"{row['target']:g}"
            lines.append(f"| {row['what']} | {target} | {_cell(row)} |")
    return "\n".join(lines)


def _warning(rows: list[Row]) -> list[str]:
    return [DRY, ""] if any(row.get("dry") for row in rows) else []


def _cell(row: Row) -> str:
    note = f" ({row['note']})" if row.get("note") else ""
    if row["status"] != "ok":
        return f"{row['status']}{note}"
    return f"{row['value']} {row['unit']}{'' if row.get('met', True) else ', missed'}{note}"


def _by_section(rows: Iterable[Row]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = {}
    for row in rows:
        found.setdefault(row["section"], []).append(row)
    return found


if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[1])]
    from gpu.results import read

    print(page(read(Path(sys.argv[1]))))  # noqa: T201 -- its output
