"""A report as one HTML file that needs no network: tables, learning curves and trade-offs as inline SVG."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from kmip_data.drawing.style import STYLES
from kmip_data.models.reports.sheets import Sheet
from kmip_data.models.reports.tables import Row, Run, Table, curves_over_k
from kmip_data.models.training.run.folder import is_share, metrics_columns, title_of

LIGHT, DARK = STYLES["light"], STYLES["dark"]
STYLE = f"""
:root {{ color-scheme: light dark; --ink: {LIGHT.ink}; --ground: {LIGHT.ground}; --line: #8886 }}
@media (prefers-color-scheme: dark) {{ :root {{ --ink: {DARK.ink}; --ground: {DARK.ground} }} }}
body {{ margin: 1rem; font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground) }}
h2 {{ font-size: 1.15rem; overflow-wrap: anywhere }} p {{ max-width: 60rem }}
.wide {{ overflow-x: auto }} table {{ border-collapse: collapse }} .few {{ opacity: .6 }}
td {{ padding: .3em .8em; border-bottom: 1px solid var(--line); white-space: nowrap }}
tr:first-child td {{ font-weight: bold }} .number {{ text-align: right }}
.figures {{ display: flex; flex-wrap: wrap; gap: 1rem }}
figure {{ margin: 0; flex: 1 1 20rem; max-width: 40rem }}
figure > svg {{ width: 100%; height: auto; font-size: 12px; fill: var(--ink) }}
figcaption {{ display: flex; flex-wrap: wrap; gap: 0 1em; font-size: 13px }}
.key {{ width: 24px; height: 12px; margin-right: .4em }}
.grid, .axis {{ stroke: var(--line); fill: none }} .axis {{ stroke: var(--ink) }}
.line, .bar {{ fill: none; stroke-width: 1.8 }} .band {{ stroke: none; fill-opacity: .18 }}
.hollow {{ fill: var(--ground); stroke-width: 1.8 }}
"""
#: One colour a model: twelve hues, each with a contrast of at least 3 : 1 to the light and the dark ground.
COLORS: Final = (
    "#0072b2", "#d55e00", "#009e73", "#b8559b", "#8c6d46", "#7b61d6",
    "#c2872b", "#3a9fb8", "#d1365a", "#5d8a1c", "#77818c", "#a05cc9",
)  # fmt: skip
DASHES: Final = ("none", "6 3", "2 3", "8 3 2 3", "12 4", "1 4")  #: of further rows of one model
WIDTH, HEIGHT = 400, 280  #: of the view box: about the pixels of a phone, so that letters keep their size
LEFT, RIGHT, TOP, BOTTOM = 52, WIDTH - 12, 10, HEIGHT - 40  #: of the axes


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
    metric = title_of(table.rows[0]["metric"])
    columns = list(zip(_looks(table.rows), table.rows, table.runs, strict=True))
    names = [f"{row['model']} {row['changes']}".strip() for row in table.rows]
    curves = [
        Series(name, *_curve(runs), *look) for name, (look, _, runs) in zip(names, columns, strict=True)
    ]
    yield plot(curves, "epoch", f"{metric} on val")
    times = [
        _means([row], [row["hours"]], n, look[0]) for n, (look, row, _) in zip(names, columns, strict=True)
    ]
    known = {row["model"]: (row, color) for (color, _), row, _ in columns if row["paper_hours"]}
    times += [
        _means([row], [row["paper_hours"]], f"{model}, the paper's", color, "paper")
        for model, (row, color) in known.items()
    ]
    yield plot(times, "hours of a run", f"{metric} on test", log=True)
    over_k = [(name, of) for name, of in curves_over_k(table).items() if len(of) > 1]
    lines = [_means([*of.values()], [*of], name, color) for color, (name, of) in enumerate(over_k)]
    yield plot(lines, "k", f"{metric} on test", log=True)


def _looks(rows: Sequence[Row]) -> list[tuple[int, int]]:
    """Return the colour and the dashes of each row: a colour a model, dashes for its further rows.

    Rows of one model alone have a colour each.
    """
    models = [row["model"] for row in rows]
    order = [*dict.fromkeys(models)]
    if len(order) == 1:
        return [(number, 0) for number in range(len(rows))]
    return [(order.index(model), models[:n].count(model)) for n, model in enumerate(models)]


def _means(rows: Sequence[Row], x: Sequence[float], name: str, color: int, of: str = "test") -> Series:
    """Return means with their deviations as points."""
    scale = 100 if is_share(rows[0]["metric"]) else 1
    y, spread = ([scale * (row[key] or 0) for row in rows] for key in (of, f"{of}_std"))
    return Series(name, list(x), y, spread, color, points=True, hollow=of == "paper")


def _curve(runs: Sequence[Run]) -> tuple[list[float], list[float], list[float]]:
    """Return epochs, and mean and deviation on val over the seeds that have a value there.

    Epochs count from 1; values that cannot be read are left out.
    """
    metric = runs[0].result.metric
    scale = 100 if is_share(metric) else 1
    found: dict[int, list[float]] = {}
    for run in runs:
        for epoch, value in metrics_columns(run.folder).get(f"val_{metric}", []):
            found.setdefault(epoch, []).append(scale * value)
    epochs = sorted(found)
    means = [statistics.fmean(found[epoch]) for epoch in epochs]
    return list(map(float, epochs)), means, [statistics.pstdev(found[epoch]) for epoch in epochs]


@dataclass(frozen=True)
class Series:
    """One line or set of points."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float]  #: deviation at each point
    color: int = 0
    dash: int = 0
    points: bool = False  #: draw points with error bars; else a line with a band
    hollow: bool = False  #: draw open circles

    def line(self, path: str) -> str:
        """Return a line of this look."""
        return f'<path class="line" stroke-dasharray="{DASHES[self.dash % len(DASHES)]}" d="{path}"/>'

    def dot(self, x: float, y: float) -> str:
        """Return a point of this look."""
        return f'<circle class="{"hollow" if self.hollow else "dot"}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>'

    @property
    def paint(self) -> str:
        """Attributes for the colour."""
        color = COLORS[self.color % len(COLORS)]
        return f'stroke="{color}" fill="{color}"'


def plot(series: Sequence[Series], x: str, y: str, *, log: bool = False) -> str:
    """Return a figure as HTML: an SVG picture that scales with the page, and a legend below it.

    ``x`` and ``y`` are the titles of the axes; with ``log`` the x axis is logarithmic. Empty without points.
    """
    series = [each for each in series if each.x]
    if not series:
        return ""
    across = _Axis([value for each in series for value in each.x], LEFT, RIGHT, log)
    ends = [y + s for of in series for y, s in zip(of.y, of.spread, strict=True)]
    ends += [y - s for of in series for y, s in zip(of.y, of.spread, strict=True)]
    up = _Axis(ends, BOTTOM, TOP)
    parts = [*_grid(across, up), *(part for each in series for part in _drawn(each, across, up))]
    parts.append(f'<text x="{(LEFT + RIGHT) // 2}" y="{HEIGHT - 4}" text-anchor="middle">{escape(x)}</text>')
    turned = f'transform="translate(12 {(BOTTOM + TOP) // 2}) rotate(-90)"'
    parts.append(f'<text {turned} text-anchor="middle">{escape(y)}</text>')
    picture = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(y)} over {escape(x)}">'
    legend = "".join(
        f'<span><svg class="key" viewBox="0 0 24 12" {each.paint}>'
        f"{each.dot(12, 6) if each.points else each.line('M0 6H24')}</svg>{escape(each.name)}</span>"
        for each in series
    )
    return f"<figure>{picture}{''.join(parts)}</svg><figcaption>{legend}</figcaption></figure>"


class _Axis:
    """A scale from values to coordinates of the picture, with round ticks."""

    def __init__(self, values: Sequence[float], begin: float, end: float, log: bool = False) -> None:
        self.begin, self.end = begin, end
        self.log = log and min(values) > 0
        self.least = 1.0 if all(float(value).is_integer() for value in values) else 0.0  #: of a step
        low, high = self._scaled(min(values)), self._scaled(max(values))
        room = 0.04 * (high - low) or max(abs(low), 1.0) * 0.05
        self.low, self.high = low - room, high + room

    def _scaled(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def at(self, value: float) -> float:
        """Return the coordinate of a value."""
        share = (self._scaled(value) - self.low) / (self.high - self.low)
        return self.begin + share * (self.end - self.begin)

    def ticks(self) -> list[float]:
        """Return at most seven round values within the axis."""
        if self.log:
            powers = range(math.floor(self.low), math.ceil(self.high) + 1)
            fine = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
            inside = [value for value in fine if self.low <= math.log10(value) <= self.high]
            if len(inside) > 7:
                inside = [value for value in inside if math.log10(value).is_integer()]
            if len(inside) > 1:
                return inside[:: math.ceil(len(inside) / 7)]
        low, high = (10**self.low, 10**self.high) if self.log else (self.low, self.high)
        rough = max((high - low) / 6, self.least)
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
        return [number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _grid(across: _Axis, up: _Axis) -> Iterator[str]:
    for value in up.ticks():
        at = f"{up.at(value):.1f}"
        yield f'<path class="grid" d="M{LEFT} {at}H{RIGHT}"/>'
        yield f'<text x="{LEFT - 6}" y="{at}" dy=".35em" text-anchor="end">{value:.6g}</text>'
    for value in across.ticks():
        at = f"{across.at(value):.1f}"
        yield f'<path class="grid" d="M{at} {TOP}V{BOTTOM}"/>'
        yield f'<text x="{at}" y="{BOTTOM + 15}" text-anchor="middle">{value:.6g}</text>'
    yield f'<path class="axis" d="M{LEFT} {TOP}V{BOTTOM}H{RIGHT}"/>'


def _drawn(series: Series, across: _Axis, up: _Axis) -> Iterator[str]:
    xs = [across.at(x) for x in series.x]
    upper, middle, lower = (
        [(x, up.at(y + sign * half)) for x, y, half in zip(xs, series.y, series.spread, strict=True)]
        for sign in (1, 0, -1)
    )
    yield f"<g {series.paint}><title>{escape(series.name)}</title>"
    if series.points:
        ends = zip(upper, lower, strict=True)
        yield "".join(
            f'<path class="bar" d="M{x:.1f} {y:.1f}V{y2:.1f}"/>' for (x, y), (_, y2) in ends if y != y2
        )
    elif any(series.spread):
        yield f'<path class="band" d="{_path([*upper, *reversed(lower)])}Z"/>'
    if not series.points or len(middle) > 1:
        yield series.line(_path(middle))
    if series.points or len(middle) == 1:
        yield "".join(series.dot(x, y) for x, y in middle)
    yield "</g>"


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
