"""A report as one HTML file that needs no network: tables, learning curves and trade-offs."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from html import escape

from kmip_data.drawing.style import STYLES
from kmip_data.models.reports.drawing import Series, plot
from kmip_data.models.reports.over_k import curves_over_k
from kmip_data.models.reports.runs import Run
from kmip_data.models.reports.tables import Row, Table
from kmip_data.models.reports.writer import Sheet
from kmip_data.models.training.objective.metrics import METRICS
from kmip_data.models.training.run.folder import metrics_columns, title_of

LIGHT, DARK = STYLES["light"], STYLES["dark"]
STYLE = f"""
:root {{ color-scheme: light dark; --ink: {LIGHT.ink}; --ground: {LIGHT.ground}; --line: #8886 }}
@media (prefers-color-scheme: dark) {{ :root {{ --ink: {DARK.ink}; --ground: {DARK.ground} }} }}
body {{ margin: 1rem; font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground) }}
h2 {{ font-size: 1.15rem; overflow-wrap: anywhere }} p {{ max-width: 60rem }}
.wide {{ overflow-x: auto }} table {{ border-collapse: collapse }} .few {{ opacity: .6 }}
td {{ padding: .3em .8em; border-bottom: 1px solid var(--line); white-space: nowrap }}
tr:first-child td {{ font-weight: bold }}
.figures {{ display: flex; flex-wrap: wrap; gap: 1rem }}
figure {{ margin: 0; flex: 1 1 20rem; max-width: 40rem }}
figure > svg {{ width: 100%; height: auto; font-size: 12px; fill: var(--ink) }}
figcaption {{ display: flex; flex-wrap: wrap; gap: 0 1em; font-size: 13px }}
.key {{ width: 24px; height: 12px; margin-right: .4em }}
.grid, .axis {{ stroke: var(--line); fill: none }} .axis {{ stroke: var(--ink) }}
.line, .bar {{ fill: none; stroke-width: 1.8 }} .band {{ stroke: none; fill-opacity: .18 }}
.hollow {{ fill: var(--ground); stroke-width: 1.8 }}
"""


def page_of(title: str, sheets: Sequence[Sheet], tables: Sequence[Table], notices: Sequence[str]) -> str:
    """Return the page; pictures of a table stand below its sheet."""
    parts = [
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<style>{STYLE}</style></head><body>",
    ]
    for number, sheet in enumerate(sheets):
        parts.append(sheet.written("html"))
        if tables:
            parts.append(f'<div class="figures">{"".join(_figures(tables[number]))}</div>')
    return "\n".join([*parts, *(f"<p>{escape(notice)}</p>" for notice in notices), "</body></html>", ""])


def _figures(table: Table) -> Iterator[str]:
    """Yield learning curves, results over hours, and over k if several rows differ in it alone."""
    metric = table.rows[0]["metric"]
    looks = _looks(table.rows)
    names = [f"{row['model']} {row['changes']}".strip() for row in table.rows]
    columns = list(zip(names, looks, table.rows, table.runs, strict=True))
    curves = [Series(name, *_curve(runs), color, dash) for name, (color, dash), _, runs in columns]
    yield plot(curves, "epoch", f"{title_of(metric)} on val")
    times = [_means([row], [row["hours"]], name, color) for name, (color, _), row, _ in columns]
    known = {row["model"]: (row, color) for _, (color, _), row, _ in columns if row["paper_hours"]}
    times += [
        _means([row], [row["paper_hours"]], f"{model}, the paper's", color, "paper")
        for model, (row, color) in known.items()
    ]
    yield plot(times, "hours of a run", f"{title_of(metric)} on test", log=True)
    over_k = [(name, of) for name, of in curves_over_k(table).items() if len(of) > 1]
    lines = [_means([*of.values()], [*of], name, color) for color, (name, of) in enumerate(over_k)]
    yield plot(lines, "k", f"{title_of(metric)} on test", log=True)


def _looks(rows: Sequence[Row]) -> list[tuple[int, int]]:
    """Return the colour and the dashes of each row: a colour a model, dashes for its further rows.

    Rows of one model alone have a colour each.
    """
    models = [*dict.fromkeys(row["model"] for row in rows)]
    if len(models) == 1:
        return [(number, 0) for number in range(len(rows))]
    seen: dict[str, int] = {}
    looks = []
    for row in rows:
        seen[row["model"]] = seen.get(row["model"], -1) + 1
        looks.append((models.index(row["model"]), seen[row["model"]]))
    return looks


def _means(rows: Sequence[Row], x: Sequence[float], name: str, color: int, of: str = "test") -> Series:
    """Return means with their deviations as points."""
    scale = 100 if METRICS[rows[0]["metric"]].percent else 1
    y, spread = ([scale * (row[key] or 0) for row in rows] for key in (of, f"{of}_std"))
    return Series(name, list(x), y, spread, color, points=True, hollow=of == "paper")


def _curve(runs: Sequence[Run]) -> tuple[list[float], list[float], list[float]]:
    """Return epochs, and mean and deviation on val over the seeds that have a value there.

    Epochs count from 1; values that cannot be read are left out.
    """
    metric = runs[0].result.metric
    scale = 100 if METRICS[metric].percent else 1
    found: dict[int, list[float]] = {}
    for run in runs:
        for epoch, value in metrics_columns(run.folder).get(f"val_{metric}", []):
            found.setdefault(epoch, []).append(scale * value)
    epochs = sorted(found)
    means = [statistics.fmean(found[epoch]) for epoch in epochs]
    return list(map(float, epochs)), means, [statistics.pstdev(found[epoch]) for epoch in epochs]
