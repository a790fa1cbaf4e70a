"""What ``kmip-data bench attention`` prints and saves."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from kmip_data.cli.bench import quantity
from kmip_data.cli.benchmarks.attention.asked import Asked
from kmip_data.cli.shared.output import print_json, table
from kmip_data.files.changes import csv_bytes, write_output
from kmip_data.models.profiling.drawing import draw_breakdown, draw_sweep
from kmip_data.models.profiling.measuring import STAGES
from kmip_data.models.profiling.results import Cell, growth_exponent, published
from kmip_data.models.profiling.sweep import sweep
from kmip_data.wording import counted

PAPER_BREAKDOWN = 31_622  #: nodes of the paper's stage plot


def show_sweep(asked: Asked, *, as_json: bool, quiet: bool) -> None:
    """Measure the sweep, print it, save it; the CSV file grows cell by cell."""
    cells: list[Cell] = []
    saved: list[Path] = []

    def tell(cell: Cell) -> None:
        cells.append(cell)
        if asked.save is not None:
            rows = [cell.as_dict() for cell in cells]
            write_output(asked.file(".csv"), csv_bytes([*rows[0]], (row.values() for row in rows)))
        if not quiet:
            click.echo(f"{cell.method}, {cell.setting}, {cell.n:,} nodes: {_time(cell)}", err=True)

    sweep(
        asked.methods,
        asked.sizes,
        shape=asked.shape,
        protocol=asked.protocol,
        settings=asked.settings,
        tell=tell,
    )
    if asked.save is not None:
        saved = [asked.file(".csv"), asked.file(".png")]
        paper = published() if asked.as_the_paper else None
        draw_sweep(cells, saved[1], title=f"{asked.what}\n{asked.machine}", paper=paper)
    if as_json:
        found = {
            "protocol": "published" if asked.protocol.published else "corrected",
            "cells": [cell.as_dict() for cell in cells],
            "growth": {setting: _growth(cells, setting) for setting in asked.settings},
        }
        print_json({"machine": asked.machine, "what": asked.what, **found, "saved": saved})
        return
    for setting in asked.settings:
        click.echo(setting_table(asked, setting, cells))
        click.echo("")
    for note in dict.fromkeys(
        f"{cell.method}: {cell.note}"
        for cell in cells
        if cell.status in {"failed", "unavailable", "oom"} and not cell.note.startswith("not tried")
    ):
        click.echo(note)
    protocol = asked.protocol
    runs = f"{'mean' if protocol.published else 'median'} of {protocol.repeats} runs or fewer"
    notes = [f"{asked.what}; {runs}, {protocol.time_limit:g} s at most"]
    if asked.as_the_paper:
        notes.append(f"A100: figures of the paper, not of this machine ({published().source})")
    _print_end(asked, notes, saved)


def setting_table(asked: Asked, setting: str, cells: list[Cell]) -> str:
    """Methods against sizes, with growth, memory per node and recall; the paper's figures below."""
    header = [setting, *(f"{n:,}" for n in asked.sizes), "growth", "bytes per node", "recall"]
    growth = _growth(cells, setting)
    rows: list[list[Any]] = []
    for method in asked.methods:
        of_it = [cell for cell in cells if (cell.method, cell.setting) == (method, setting)]
        last = next((cell for cell in reversed(of_it) if cell.status == "ok"), None)
        peak, recall = (last.peak_bytes, last.recall) if last else (None, None)
        memory = "–" if last is None or peak is None else f"{peak / last.n:,.0f}"
        share = "–" if recall is None else f"{recall:.3f}"
        rows.append([method, *map(_time, of_it), _power(growth[method]), memory, share])
    for curve in published().curve if asked.as_the_paper else ():
        if curve.setting == setting:
            seconds = {n: ms / 1e3 for n, ms in zip(curve.n, curve.milliseconds, strict=True)}
            times = [quantity(seconds.get(n), "s") for n in asked.sizes]
            memory = f"{curve.megabytes[-1] * 2**20 / curve.n[-1]:,.0f}" if curve.megabytes else "–"
            exponent = _power(growth_exponent(seconds.items()))
            rows.append([f"A100: {curve.method}", *times, exponent, memory, "–"])
    return table(header, rows)


def _time(cell: Cell) -> str:
    return cell.status if cell.seconds is None else quantity(cell.seconds, "s")


def _power(exponent: float | None) -> str:
    return "–" if exponent is None else f"n^{exponent:.2f}"


def _growth(cells: list[Cell], setting: str) -> dict[str, float | None]:
    """Exponent of n over the last decade of sizes, for each method."""
    points: dict[str, list[tuple[float, float]]] = {cell.method: [] for cell in cells}
    for cell in cells:
        if cell.setting == setting and cell.seconds:
            points[cell.method].append((cell.n, cell.seconds))
    return {method: growth_exponent(found) for method, found in points.items()}


def show_breakdown(asked: Asked, *, as_json: bool, quiet: bool) -> None:
    """Measure the stages of one training step, print and save them."""
    n = asked.sizes[-1] if asked.shape.graph_sizes else min(PAPER_BREAKDOWN, asked.sizes[-1])
    cells = sweep(
        asked.methods,
        [n],
        shape=asked.shape,
        protocol=asked.protocol,
        settings=["training"],
        by_stage=True,
        tell=None if quiet else lambda cell: click.echo(f"{cell.method}, stages: {cell.status}", err=True),
    )
    found = {cell.method: cell.stages for cell in cells if cell.stages}
    missing = [cell for cell in cells if not cell.stages]
    saved: list[Path] = []
    if asked.save is not None:
        saved = [asked.file("-breakdown.csv"), asked.file("-breakdown.png")]
        lines = ((name, *stage) for name, stages in found.items() for stage in stages.items())
        write_output(saved[0], csv_bytes(["method", "stage", "seconds"], lines))
        draw_breakdown(found, saved[1], title=f"{asked.what}, {n:,} nodes\n{asked.machine}")
    if as_json:
        why = {cell.method: cell.as_dict() for cell in missing}
        about = {"machine": asked.machine, "what": asked.what, "n": n}
        print_json({**about, "stages": found, "missing": why, "saved": saved})
        return
    used = [stage for stage in STAGES if any(stage in stages for stages in found.values())]
    rows = [
        [name, *(quantity(seconds, "s") for seconds in (*map(stages.get, used), sum(stages.values())))]
        for name, stages in found.items()
    ]
    rows += [[cell.method, *("–" for _ in used), cell.status] for cell in missing]
    click.echo(table([f"{n:,} nodes", *used, "total"], rows))
    notes = [f"{cell.method}: {cell.note}" for cell in missing]
    notes.append(f"{asked.what}; one training step, median of {counted(asked.protocol.repeats, 'run')}")
    _print_end(asked, notes, saved)


def _print_end(asked: Asked, notes: Iterable[str], saved: list[Path]) -> None:
    for line in [*notes, asked.machine, *(["saved  " + "  ".join(map(str, saved))] if saved else [])]:
        click.echo(line)
