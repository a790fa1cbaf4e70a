"""Line plots as inline SVG: means with bands or error bars, for the page of a report."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

#: One colour a model: twelve hues, each with a contrast of at least 3 : 1 to the light and the dark ground.
COLORS: Final = (
    "#0072b2", "#d55e00", "#009e73", "#b8559b", "#8c6d46", "#7b61d6",
    "#c2872b", "#3a9fb8", "#d1365a", "#5d8a1c", "#77818c", "#a05cc9",
)  # fmt: skip
DASHES: Final = ("", "6 3", "2 3", "8 3 2 3", "12 4", "1 4")  #: of further rows of one model
WIDTH, HEIGHT = 400, 280  #: of the view box: about the pixels of a phone, so that letters keep their size
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 10, 40  #: margins around the axes


@dataclass(frozen=True)
class Series:
    """One line or set of points."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float] = ()  #: deviation at each point; empty: none
    color: int = 0
    dash: int = 0
    points: bool = False  #: draw points with error bars; else a line with a band
    hollow: bool = False  #: draw open circles


def plot(series: Sequence[Series], x: str, y: str, *, log: bool = False) -> str:
    """Return a figure as HTML: an SVG picture that scales with the page, and a legend below it.

    ``x`` and ``y`` are the titles of the axes; with ``log`` the x axis is logarithmic. Empty without points.
    """
    series = [each for each in series if each.x]
    if not series:
        return ""
    spreads = [each.spread or [0.0] * len(each.x) for each in series]
    across = _Axis([value for each in series for value in each.x], LEFT, WIDTH - RIGHT, log)
    ends = [
        value + sign * spread
        for each, of in zip(series, spreads, strict=True)
        for value, spread in zip(each.y, of, strict=True)
        for sign in (-1, 1)
    ]
    up = _Axis(ends, HEIGHT - BOTTOM, TOP)
    parts = [*_grid(across, up), *(part for each in series for part in _drawn(each, across, up))]
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle:.0f}" y="{HEIGHT - 4}" text-anchor="middle">{escape(x)}</text>')
    turned = f'transform="translate(12 {(HEIGHT - BOTTOM + TOP) / 2:.0f}) rotate(-90)"'
    parts.append(f'<text {turned} text-anchor="middle">{escape(y)}</text>')
    picture = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(y)} over {escape(x)}">'
    legend = "".join(map(_entry, series))
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
        return self.begin + (self._scaled(value) - self.low) / (self.high - self.low) * (
            self.end - self.begin
        )

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
    left, right, bottom, top = LEFT, WIDTH - RIGHT, HEIGHT - BOTTOM, TOP
    for value in up.ticks():
        at = f"{up.at(value):.1f}"
        yield f'<path class="grid" d="M{left} {at}H{right}"/>'
        yield f'<text x="{left - 6}" y="{at}" dy=".35em" text-anchor="end">{value:.6g}</text>'
    for value in across.ticks():
        at = f"{across.at(value):.1f}"
        yield f'<path class="grid" d="M{at} {top}V{bottom}"/>'
        yield f'<text x="{at}" y="{bottom + 15}" text-anchor="middle">{value:.6g}</text>'
    yield f'<path class="axis" d="M{left} {top}V{bottom}H{right}"/>'


def _drawn(series: Series, across: _Axis, up: _Axis) -> Iterator[str]:
    color = COLORS[series.color % len(COLORS)]
    dash = DASHES[series.dash % len(DASHES)]
    at = [(across.at(x), y) for x, y in zip(series.x, series.y, strict=True)]
    spread = series.spread or [0.0] * len(at)
    upper = [(x, up.at(y + half)) for (x, y), half in zip(at, spread, strict=True)]
    lower = [(x, up.at(y - half)) for (x, y), half in zip(at, spread, strict=True)]
    middle = [(x, up.at(y)) for x, y in at]
    title = f"<title>{escape(series.name)}</title>"
    yield f'<g stroke="{color}" fill="{color}">{title}'
    if series.points:
        bars = zip(upper, lower, strict=True)
        yield "".join(
            f'<path class="bar" d="M{x:.1f} {y:.1f}V{end:.1f}"/>' for (x, y), (_, end) in bars if y != end
        )
    elif any(spread):
        yield f'<path class="band" d="{_path([*upper, *reversed(lower)])}Z"/>'
    if not series.points or len(middle) > 1:
        yield f'<path class="line" stroke-dasharray="{dash or "none"}" d="{_path(middle)}"/>'
    if series.points or len(middle) == 1:
        kind = "hollow" if series.hollow else "dot"
        yield "".join(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>' for x, y in middle)
    yield "</g>"


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _entry(series: Series) -> str:
    """Return a line of the legend."""
    color, dash = COLORS[series.color % len(COLORS)], DASHES[series.dash % len(DASHES)]
    if series.points:
        mark = f'<circle class="{"hollow" if series.hollow else "dot"}" cx="12" cy="6" r="3.5"/>'
    else:
        mark = f'<path class="line" stroke-dasharray="{dash or "none"}" d="M0 6H24"/>'
    sample = f'<svg class="key" viewBox="0 0 24 12" stroke="{color}" fill="{color}">{mark}</svg>'
    return f"<span>{sample}{escape(series.name)}</span>"
