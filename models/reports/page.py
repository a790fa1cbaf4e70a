"""A report as one HTML file that needs no network: each table with its learning curves as inline SVG."""

from __future__ import annotations

import io
import statistics
from collections.abc import Sequence
from functools import partial
from html import escape

from kmip_data.drawing.colors import class_colors, on_grounds
from kmip_data.drawing.style import KINDS, STYLES, look, new_figure, styled
from kmip_data.models.reports.sheets import Sheet, short_name
from kmip_data.models.reports.tables import MOST, Run, Table
from kmip_data.models.training.run.folder import is_share, metrics_columns, title_of

STYLE = f"""
:root {{ color-scheme: light dark; --ink: {STYLES["light"].ink}; --ground: {STYLES["light"].ground} }}
@media (prefers-color-scheme: dark) {{
:root {{ --ink: {STYLES["dark"].ink}; --ground: {STYLES["dark"].ground} }} }}
body {{ margin: 1rem; font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground) }}
h2 {{ font-size: 1.15rem; overflow-wrap: anywhere }} p {{ max-width: 60rem }}
.wide {{ overflow-x: auto }} table {{ border-collapse: collapse }}
td {{ padding: .3em .8em; border-bottom: 1px solid #8886; white-space: nowrap }}
tr:first-child td {{ font-weight: bold }} .number {{ text-align: right }}
svg {{ width: 100%; max-width: 40rem; height: auto }} svg text {{ font-family: system-ui, sans-serif }}
"""


def page_of(title: str, sheets: Sequence[Sheet], tables: Sequence[Table], notices: Sequence[str]) -> str:
    """Return the page: each sheet, and below it the learning curves of its table."""
    parts = [
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<style>{STYLE}</style></head><body>",
    ]
    for sheet, table in zip(sheets, tables, strict=True):
        picture = io.StringIO()
        draw_curves(table, picture)
        # Letters and axes take the colour of the page, so that one picture is read on light and dark ground.
        svg = picture.getvalue().replace(look().ink, "currentColor")
        for one, other in zip(*on_grounds(partial(class_colors, len(table.rows))), strict=True):
            svg = svg.replace(one, f"light-dark({one}, {other})")
        parts += [sheet.written("html"), svg[svg.index("<svg") :]]
    return "\n".join([*parts, *(f"<p>{escape(notice)}</p>" for notice in notices), "</body></html>", ""])


@styled
def draw_curves(table: Table, file: io.StringIO) -> None:
    """Write the metric on val over epochs as SVG: a line of its own colour for each row, its mean over seeds.

    A band is as wide as the standard deviation.
    """
    import matplotlib as mpl

    metric = table.rows[0]["metric"]
    figure = new_figure(6, 4)  # letters are as large as those of the page, also on a phone
    axes = figure.subplots()
    for row, runs, color in zip(table.rows, table.runs, class_colors(len(table.rows)), strict=True):
        epochs, mean, spread = _over_seeds(runs, f"val_{metric}", 100 if is_share(metric) else 1)
        axes.plot(epochs, mean, color=color, label=short_name(row), marker="o" if len(epochs) == 1 else None)
        low, high = ([m + side * s for m, s in zip(mean, spread, strict=True)] for side in (-1, 1))
        axes.fill_between(epochs, low, high, color=color, alpha=0.15, linewidth=0)
    axes.set(xlabel="epoch", ylabel=f"{title_of(metric)} on val")
    axes.grid()
    figure.legend(loc="outside lower center", ncols=2)
    with mpl.rc_context({"svg.fonttype": "none"}):  # letters stay letters
        figure.savefig(file, format="svg", transparent=True, metadata=KINDS[".svg"])


def _over_seeds(runs: Sequence[Run], column: str, scale: float) -> tuple[list[int], list[float], list[float]]:
    """Return epochs, from 1, and mean and deviation over the seeds that have a value there."""
    found: dict[int, list[float]] = {}
    for run in runs:
        for epoch, value in metrics_columns(run.folder).get(column, []):
            if abs(value) < MOST:
                found.setdefault(epoch, []).append(scale * value)
    values = [found[epoch] for epoch in sorted(found)]
    return sorted(found), [*map(statistics.fmean, values)], [*map(statistics.pstdev, values)]
