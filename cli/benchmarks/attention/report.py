"""What ``kmip-data bench attention`` prints and saves."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.shared.output import print_json, table
from kmip_data.files.changes import write_output
from kmip_data.models.profiling.breakdown import STAGES
from kmip_data.models.profiling.cells import Cell, duration, growth_exponent, to_csv
from kmip_data.models.profiling.drawing import draw_breakdown, draw_sweep
from kmip_data.models.profiling.published import PublishedCurve, published
from kmip_data.models.profiling.sweep import breakdown, sweep

if TYPE_CHECKING:
    from kmip_data.cli.benchmarks.attention.command import Asked


def show_sweep(asked: Asked, *, as_json: bool, quiet: bool) -> None:
    """Measure the sweep, print it, save it; the CSV file grows cell by cell."""
    cells: list[Cell] = []

    def tell(cell: Cell) -> None:
        cells.append(cell)
        if asked.save is not None:
            write_output(_beside(asked.save, ".csv"), to_csv(cells).encode())
        if not quiet:
            click.echo(f"{cell.method}, {cell.setting}, {cell.n:,} nodes: {cell.text()}", err=True)

    sweep(
        asked.methods,
        asked.sizes,
        shape=asked.shape,
        protocol=asked.protocol,
        settings=asked.settings,
        device=asked.device,
        threads=asked.threads,
        tell=tell,
    )
    saved = []
    if asked.save is not None:
        picture = _beside(asked.save, ".png")
        paper = published() if comparable(asked) else None
        draw_sweep(cells, picture, title=f"{_what(asked)}\n{asked.title}", paper=paper)
        saved = [_beside(asked.save, ".csv"), picture]
    if as_json:
        print_json(
            {
                "machine": asked.title,
                "what": _what(asked),
                "protocol": "published" if asked.protocol.published else "corrected",
                "cells": [cell.as_dict() for cell in cells],
                "growth": {setting: _growth(cells, setting) for setting in asked.settings},
                "saved": [str(path) for path in saved],
            }
        )
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
    centre = "mean" if asked.protocol.published else "median"
    runs = f"{centre} of {asked.protocol.repeats} runs or fewer"
    click.echo(f"{_what(asked)}; {runs}, {asked.protocol.time_limit:g} s at most")
    if comparable(asked):
        click.echo(f"A100: figures of the paper, not of this machine ({published().source})")
    click.echo(asked.title)
    if saved:
        click.echo("saved  " + "  ".join(map(str, saved)))


def comparable(asked: Asked) -> bool:
    """Whether the paper's figures are of the same task."""
    shape = asked.shape
    same = (shape.heads, shape.d, shape.k, shape.data) == (1, 10, 10, "gaussian")
    return same and shape.graph_sizes is None


def setting_table(asked: Asked, setting: str, cells: list[Cell]) -> str:
    """Methods against sizes, with growth, memory a node and recall; the paper's figures below."""
    header = [setting, *(f"{n:,}" for n in asked.sizes), "growth", "bytes a node", "recall"]
    growth = _growth(cells, setting)
    rows: list[list[Any]] = []
    for method in asked.methods:
        of_it = [cell for cell in cells if (cell.method, cell.setting) == (method, setting)]
        done = [cell for cell in of_it if cell.status == "ok"]
        last = done[-1] if done else None
        exponent = growth[method]
        rows.append(
            [
                method,
                *(cell.text() for cell in of_it),
                "–" if exponent is None else f"n^{exponent:.2f}",
                "–" if last is None or last.peak_bytes is None else f"{last.peak_bytes / last.n:,.0f}",
                "–" if last is None or last.recall is None else f"{last.recall:.3f}",
            ]
        )
    if comparable(asked):
        rows += [_paper_row(curve, asked.sizes) for curve in published().curve if curve.setting == setting]
    return table(header, rows)


def _paper_row(curve: PublishedCurve, sizes: list[int]) -> list[Any]:
    seconds = {n: ms / 1e3 for n, ms in zip(curve.n, curve.milliseconds, strict=True)}
    exponent = growth_exponent(seconds.items())
    return [
        f"A100: {curve.method}",
        *(duration(seconds.get(n)) for n in sizes),
        "–" if exponent is None else f"n^{exponent:.2f}",
        f"{curve.megabytes[-1] * 2**20 / curve.n[-1]:,.0f}" if curve.megabytes else "–",
        "–",
    ]


def _growth(cells: list[Cell], setting: str) -> dict[str, float | None]:
    """Exponent of n over the last decade of sizes, for each method."""
    return {
        method: growth_exponent(
            (cell.n, cell.seconds)
            for cell in cells
            if (cell.method, cell.setting) == (method, setting) and cell.seconds
        )
        for method in dict.fromkeys(cell.method for cell in cells)
    }


def show_breakdown(asked: Asked, *, as_json: bool, quiet: bool) -> None:
    """Measure the stages of one training step, print and save them."""
    from kmip_data.cli.benchmarks.attention.command import PAPER_BREAKDOWN

    n = asked.sizes[-1] if asked.shape.graph_sizes else min(PAPER_BREAKDOWN, asked.sizes[-1])
    answers = breakdown(
        asked.methods,
        n,
        shape=asked.shape,
        protocol=asked.protocol,
        device=asked.device,
        threads=asked.threads,
        tell=None if quiet else lambda line: click.echo(line, err=True),
    )
    found = {name: stages for name, stages in answers.items() if isinstance(stages, dict)}
    missing = {name: cell for name, cell in answers.items() if isinstance(cell, Cell)}
    used = [stage for stage in STAGES if any(stage in stages for stages in found.values())]
    saved = []
    if asked.save is not None:
        saved = [_beside(asked.save, suffix) for suffix in ("-breakdown.csv", "-breakdown.png")]
        write_output(saved[0], _stages_csv(found).encode())
        draw_breakdown(found, saved[1], title=f"{_what(asked)}, {n:,} nodes\n{asked.title}")
    if as_json:
        print_json(
            {
                "machine": asked.title,
                "what": _what(asked),
                "n": n,
                "stages": found,
                "missing": {name: cell.as_dict() for name, cell in missing.items()},
                "saved": [str(path) for path in saved],
            }
        )
        return
    rows = [
        [name, *(duration(stages.get(stage)) for stage in used), duration(sum(stages.values()))]
        for name, stages in found.items()
    ]
    rows += [[name, *("–" for _ in used), cell.status] for name, cell in missing.items()]
    click.echo(table([f"{n:,} nodes", *used, "together"], rows))
    for name, cell in missing.items():
        click.echo(f"{name}: {cell.note}")
    click.echo(f"{_what(asked)}; one training step, median of {asked.protocol.repeats} runs")
    click.echo(asked.title)
    if saved:
        click.echo("saved  " + "  ".join(map(str, saved)))


def _stages_csv(found: dict[str, dict[str, float]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["method", "stage", "seconds"])
    for name, stages in found.items():
        writer.writerows([name, stage, seconds] for stage, seconds in stages.items())
    return text.getvalue()


def _what(asked: Asked) -> str:
    """One line that says what was measured."""
    shape = asked.shape
    parts = [f"H = {shape.heads}, d = {shape.d}, v = {shape.value_dim}, k = {shape.k}", shape.data]
    if shape.graph_sizes is not None:
        sizes = shape.graph_sizes
        parts.append(f"{len(sizes):,} graphs of {min(sizes)} to {max(sizes)} nodes")
    parts.append(f"{asked.device}, {asked.threads} threads")
    return ", ".join(parts)


def _beside(prefix: Path, suffix: str) -> Path:
    return prefix.with_name(prefix.name + suffix)
