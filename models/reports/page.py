"""A report as one HTML file that needs no network: tables, learning curves and trade-offs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from kmip_data.drawing.style import GRID, STYLES, plotly_template
from kmip_data.models.reports.over_k import curves_over_k
from kmip_data.models.reports.runs import Run
from kmip_data.models.reports.sheets import Sheet
from kmip_data.models.reports.tables import Row, Table
from kmip_data.models.training.objective.metrics import METRICS
from kmip_data.models.training.run.folders import metrics_columns
from kmip_data.models.training.run.result import title_of

LIGHT, DARK = STYLES["light"], STYLES["dark"]
STYLE = f"""body {{ margin: 2em; font: 14px {LIGHT.font}, sans-serif }}
body {{ color: {LIGHT.ink}; background: {LIGHT.ground} }} td:first-child {{ white-space: nowrap }}
table {{ border-collapse: collapse; display: block; overflow-x: auto }}
th, td {{ padding: .3em .8em; text-align: left; border-bottom: 1px solid {GRID} }} .few {{ opacity: .6 }}
@media (prefers-color-scheme: dark) {{ body {{ color: {DARK.ink}; background: {DARK.ground} }} }}"""
#: Figures as light or dark as the page.
SCRIPT = """<script>
const dark = matchMedia("(prefers-color-scheme: dark)"), looks = LOOKS
const restyle = () => document.querySelectorAll(".plotly-graph-div").forEach(
  figure => Plotly.relayout(figure, {template: looks[Number(dark.matches)]}))
dark.onchange = restyle
addEventListener("load", restyle)
</script>""".replace("LOOKS", json.dumps([plotly_template(LIGHT), plotly_template(DARK)]))
#: Names are long: they stand above what is drawn.
LEGEND = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "maxheight": 0.3}


def page_of(title: str, sheets: Sequence[Sheet], tables: Sequence[Table], notices: Sequence[str]) -> str:
    """Return the page; pictures stand below the sheet of their table, and bring plotly along, about 5 MB."""
    from plotly.io import to_html

    parts = [f'<!doctype html><meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style>']
    library = True
    for number, sheet in enumerate(sheets):
        parts.append(sheet.written("html"))
        for figure in _figures(tables[number]) if tables else ():
            options = {"default_height": 420, "config": {"displaylogo": False}}
            parts.append(to_html(figure, full_html=False, include_plotlyjs=library, **options))
            library = False
    if not library:
        parts.append(SCRIPT)
    return "\n".join([*parts, *(f"<p>{escape(notice)}</p>" for notice in notices), ""])


def _figures(table: Table) -> Iterator[dict[str, Any]]:
    """Learning curves, means over hours, and over k where that alone differs."""
    metric = table.rows[0]["metric"]
    names = [f"{row['model']} {row['changes']}".strip() for row in table.rows]
    curves = [
        {"x": epochs, "y": values, "name": escape(f"{name}, seed {run.result.seed}")}
        for name, runs in zip(names, table.runs, strict=True)
        for run in runs
        for epochs, values in [_curve(run, f"val_{metric}")]
    ]
    yield _figure(curves, "epoch", f"{title_of(metric)} on val")
    times = [_means([row], [row["hours"]], name) for row, name in zip(table.rows, names, strict=True)]
    known = {f"{row['model']}, the paper's": row for row in table.rows if row["paper_hours"]}
    times += [_means([row], [row["paper_hours"]], name, "paper") for name, row in known.items()]
    yield _figure(times, "hours of a run", f"{title_of(metric)} on test", "log")
    lines = [_means([*of.values()], [*of], name) for name, of in curves_over_k(table).items() if len(of) > 1]
    if lines:
        yield _figure(lines, "k", f"{title_of(metric)} on test", "log")


def _figure(traces: Sequence[dict[str, Any]], x: str, y: str, scale: str = "linear") -> dict[str, Any]:
    across = {"title": {"text": x}, "type": scale, "tickangle": 0, "nticks": 10}
    axes = {"xaxis": across, "yaxis": {"title": {"text": y}}, "margin": {"t": 40}}
    look = {"template": plotly_template(LIGHT), "legend": LEGEND, "showlegend": True}
    return {"data": traces, "layout": {**axes, **look}}


def _means(rows: Sequence[Row], x: Sequence[float], name: str, of: str = "test") -> dict[str, Any]:
    """Means with their deviations; a line where there are several."""
    scale = 100 if METRICS[rows[0]["metric"]].percent else 1
    y, spread = ([scale * (row[key] or 0) for row in rows] for key in (of, f"{of}_std"))
    marker = {"size": 9, "symbol": "circle" if of == "test" else "circle-open"}
    bars = {"type": "data", "array": spread}
    mode = "lines+markers" if len(rows) > 1 else "markers"
    return {"x": list(x), "y": y, "error_y": bars, "mode": mode, "name": escape(name), "marker": marker}


def _curve(run: Run, column: str) -> tuple[list[int], list[float]]:
    """Epochs, from 1, and a column of ``metrics.csv``; nothing where that cannot be read."""
    scale = 100 if METRICS[run.result.metric].percent else 1
    points = metrics_columns(run.folder).get(column, [])
    return [epoch for epoch, _ in points], [scale * value for _, value in points]
