"""Picture of README: influence on one intersection of Helsinki, in a GCN and in GPS with k-MIP attention.

One SVG that a browser shows on light and dark ground, of the two runs of ``docs/gallery.md``:
``kmip-data explore RUN RUN`` opens with the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import dijkstra

from kmip_data.builds.home import Home
from kmip_data.drawing.maps import ATTRIBUTION, CityMap, read_city_map
from kmip_data.drawing.style import STYLES, sequential_colors, using_style
from kmip_data.models.analysis.explanations import influence_of
from kmip_data.models.training.run.finished_run import open_run

RUNS = {"GCN": "helsinki/gcn/influence", "GPS with k-MIP attention": "helsinki/gps-kmip/influence"}
LEVELS = 6  #: colours, of equal ratios
SCALE = 2  #: units of the drawing in a pixel: whole numbers are short
#: Pixels of a pane, its map, titles, legend, rim.
PANE, HIGH, TOP, LOW, MARGIN = (400, 600, 52, 34, 14)


def draw_influence(home: Home, path: Path) -> None:
    """Draw the two runs of the home next to each other."""
    panes = []
    for name, run in RUNS.items():
        opened = open_run(run, home=home, device="cpu")
        city, influence = read_city_map(opened.data.build), influence_of(opened)
        assert influence is not None, "Helsinki is small enough"
        panes.append((name, city, influence.nodes, influence.log_levels()))
    path.write_text(picture(panes), "utf-8")


def picture(panes: Sequence[tuple[str, CityMap, NDArray[np.int64], NDArray[np.uint8]]]) -> str:
    """Return the SVG of names, maps, (S,) nodes and (S, N) levels of influence on them."""
    groups = []
    for number, (name, city, nodes, levels) in enumerate(panes):
        # The node nearest to the middle of the map.
        held = int(np.argmin((city.position[nodes] ** 2).sum(1)))
        pane = _pane(name, city, levels[held], int(nodes[held]))
        groups.append(f'<g transform="translate({number * PANE * SCALE} 0)">{pane}</g>')
    wide, high = SCALE * PANE * len(panes), SCALE * (TOP + HIGH + LOW)
    size = f'viewBox="0 0 {wide} {high}" width="{wide // SCALE}" height="{high // SCALE}"'
    title = (
        "Influence of all intersections of Helsinki on one: a GCN's reach ends, k-MIP's does not"
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="system-ui, sans-serif" role="img">',
        f"<title>{escape(title)}</title><style>{_rules()}</style>",
        f'<rect width="{wide}" height="{high}" rx="12" class="ground"/>',
        *groups,
        _legend(high - 22),
        f'<text x="{wide - 24}" y="{high - 22}" class="small" text-anchor="end">{ATTRIBUTION}</text></svg>',
    ]
    return "\n".join(parts) + "\n"


def _rules() -> str:
    """Style sheet: on light ground the strongest is the darkest, as in the explorer."""

    def rules(name: str) -> str:
        style = STYLES[name]
        with using_style(name):
            colors = sequential_colors(LEVELS)
        inks = {
            ".ground": f"fill:{style.background_color}",
            "text": f"fill:{style.text_color}",
            ".small": f"fill:{style.secondary_color}",
        }
        inks |= {
            ".none": f"stroke:{style.line_color}",
            ".held": f"stroke:{style.text_color};fill:none",
        }
        for level, color in enumerate(colors if name == "dark" else reversed(colors)):
            inks[f".l{level}"] = f"stroke:{color}"
        return "".join(f"{what}{{{how}}}" for what, how in inks.items())

    fixed = "path{fill:none;stroke-linecap:round}text{font-size:26px}.name{font-size:34px;font-weight:600}"
    sizes = ".small{font-size:22px}.glow{opacity:.25}"
    return f"{fixed}{sizes}{rules('light')}@media (prefers-color-scheme: dark){{{rules('dark')}}}"


def _pane(name: str, city: CityMap, levels: NDArray[np.uint8], node: int) -> str:
    low, high = city.position.min(0), city.position.max(0)
    scale = SCALE * min((PANE - 2 * MARGIN) / (high - low)[0], (HIGH - MARGIN) / (high - low)[1])
    offset = (SCALE * PANE - scale * (high - low)[0]) / 2
    across = np.rint((city.position[:, 0] - low[0]) * scale + offset).astype(int)
    down = np.rint((high[1] - city.position[:, 1]) * scale + SCALE * TOP).astype(int)
    places = np.stack([across, down], axis=1)
    # Strength of a street is the strength of its weaker end; -1: none.
    level = np.where(levels > 0, levels.astype(int) * LEVELS // 256, -1)
    street = level[city.streets].min(0)
    lines = []
    for number in range(-1, LEVELS):
        course = _course(places[city.streets[:, street == number]])
        kind, wide = ("none", 2) if number < 0 else (f"l{number}", 2 + 0.8 * number)
        lines.append(f'<path class="{kind}" stroke-width="{wide:g}" d="{course}"/>')
    for number in range(LEVELS // 2, LEVELS):
        dots = "".join(f"M{across[i]} {down[i]}h0" for i in np.flatnonzero(level == number))
        lines.append(f'<path class="l{number} glow" stroke-width="{8 * number - 6}" d="{dots}"/>')
    hops = dijkstra(_graph(city), indices=node, unweighted=True)
    count, far = int((levels > 0).sum()), int(hops[(levels > 0) & np.isfinite(hops)].max())
    total = f"{len(levels):,} intersections"
    reach = (
        f"influence of all {total}"
        if count == len(levels)
        else f"influence of {count:,} of {total}, up to {far} edges away"
    )
    words = (
        f'<text x="28" y="42" class="name">{escape(name)}</text><text x="28" y="78">{reach}</text>'
    )
    ring = f'<circle class="held" cx="{across[node]}" cy="{down[node]}" r="16" stroke-width="4"/>'
    return "\n".join([words, *lines, ring])


def _course(places: NDArray[np.int64]) -> str:
    """Write lines between (2, S, 2) places as a path, each begun in the shorter of two ways."""
    here, parts = np.zeros(2, int), []
    for start, end in places.transpose(1, 0, 2):
        steps = [
            f"{mark}{x} {y}"
            for mark, (x, y) in zip("Mml", (start, start - here, end - start), strict=True)
        ]
        absolute, relative, line = (step.replace(" -", "-") for step in steps)
        parts += [min(absolute, relative, key=len), line]
        here = end
    return "".join(parts)


def _graph(city: CityMap) -> coo_array:
    source, target = city.streets
    ends = (np.concatenate([source, target]), np.concatenate([target, source]))
    return coo_array((np.ones(2 * len(source)), ends), (len(city.classes),) * 2).tocsr()


def _legend(y: int) -> str:
    marks = "".join(
        f'<path class="l{i}" stroke-width="14" d="M{222 + 34 * i} {y - 8}h16"/>'
        for i in range(LEVELS)
    )
    start = f'<text x="28" y="{y}" class="small">influence: weak</text>'
    end = f'<text x="{238 + 34 * LEVELS}" y="{y}" class="small">strong (grey: none)</text>'
    return f"{start}{marks}{end}"
