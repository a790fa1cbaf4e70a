"""The explanatory figures of the pages, as SVG that a browser shows on light and dark ground.

Colours stand in attributes, for light ground, and again in a rule for dark ground; letters come from the
reader's machine. The same code writes the same bytes.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kmip_data.drawing.style import STYLES, TEXT_CONTRAST, mix_colors, readable_color, using_style
from kmip_data.text import round_length

LIGHT, NIGHT = STYLES["light"], STYLES["dark"]
INK, QUIET, GROUND = LIGHT.text_color, LIGHT.secondary_color, LIGHT.background_color
PANEL = mix_colors(LIGHT.line_color, LIGHT.background_color, 0.7)
BLUE, ORANGE = LIGHT.palette[:2]
#: Colour -> its colour on dark ground.
DARK = {
    INK: NIGHT.text_color,
    QUIET: NIGHT.secondary_color,
    GROUND: NIGHT.background_color,
    PANEL: mix_colors(NIGHT.line_color, NIGHT.background_color, 0.6),
    **dict(zip(LIGHT.palette[:7], NIGHT.palette[:7], strict=True)),
}


def letter_colours(style: str) -> list[str]:
    """The first hues of a style, in shades that letters are readable in."""
    with using_style(style):
        return [readable_color(colour, TEXT_CONTRAST) for colour in STYLES[style].palette[:7]]


#: Hue -> its shade for letters, and that shade -> its colour on dark ground.
LETTER_SHADES = dict(zip(LIGHT.palette[:7], letter_colours("light"), strict=True))
DARK_LETTERS = dict(zip(LETTER_SHADES.values(), letter_colours("dark"), strict=True))
LETTERS = 'font-family="system-ui, sans-serif" text-anchor="middle"'
ROWS, CHOSEN = 12, 3  #: sizes of the matrices: queries, and keys that each of them attends to


class Figure:
    """Shapes in the order they are drawn in."""

    def __init__(self, width: int, height: int, title: str) -> None:
        size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" {LETTERS}>',
            f"<title>{escape(title)}</title>",
        ]
        self.box(0, 0, width, height, fill=GROUND, radius=6)

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        fill: str,
        radius: float = 0,
        **style: str | float,
    ) -> None:
        """A rectangle; ``style`` are attributes of SVG, with ``_`` for ``-``."""
        rest = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in style.items())
        corner = f' rx="{radius}"' if radius else ""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"{corner} fill="{fill}"{rest}/>'
        )

    def text(
        self,
        x: float,
        y: float,
        lines: str,
        *,
        size: int = 13,
        fill: str = INK,
        bold: bool = False,
        halo: bool = False,
        anchor: str = "middle",
    ) -> None:
        """Lines around ``x``, or from it (``start``) or up to it (``end``), the first with its base at ``y``.

        With a halo, letters on a line can be read.
        """
        fill = LETTER_SHADES.get(fill, fill)
        style = ' font-weight="bold"' if bold else ""
        if halo:
            style += f' stroke="{GROUND}" stroke-width="4" paint-order="stroke"'
        if anchor != "middle":
            style += f' text-anchor="{anchor}"'
        for number, line in enumerate(lines.split("\n")):
            at = y + number * size * 1.3
            self.parts.append(
                f'<text x="{x:.4g}" y="{at:.4g}" font-size="{size}" fill="{fill}"{style}>'
                f"{escape(line)}</text>"
            )

    def arrow(self, *points: tuple[float, float], head: bool = True) -> None:
        """A line through the points, with a head at its end."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self.parts.append(
            f'<polyline points="{path}" fill="none" stroke="{QUIET}" stroke-width="1.6"/>'
        )
        if head:
            (x0, y0), (x, y) = points[-2:]
            dx, dy = np.sign([x - x0, y - y0]).tolist()
            tip = [
                (x, y),
                (x - 7 * dx + 4 * dy, y - 7 * dy + 4 * dx),
                (x - 7 * dx - 4 * dy, y - 7 * dy - 4 * dx),
            ]
            corners = " ".join(f"{px:g},{py:g}" for px, py in tip)
            self.parts.append(f'<polygon points="{corners}" fill="{QUIET}"/>')

    def line(
        self, points: Sequence[tuple[float, float]], colour: str, **style: str | float
    ) -> None:
        """A line through the points; ``style`` are attributes of SVG, with ``_`` for ``-``."""
        path = " ".join(f"{round(x, 1):g},{round(y, 1):g}" for x, y in points)
        rest = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in style.items())
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}"{rest}/>')

    def dot(self, x: float, y: float, colour: str, radius: float) -> None:
        """A disc."""
        self.parts.append(
            f'<circle cx="{round(x, 1):g}" cy="{round(y, 1):g}" r="{radius:g}" fill="{colour}"/>'
        )

    def save(self, path: Path) -> None:
        """Write the file, with the rules for dark ground of the colours that it has."""
        shapes = "\n".join(self.parts)
        rules = ""
        for light, dark in DARK.items():
            for of in ("fill", "stroke"):
                if f'{of}="{light}"' in shapes:
                    rules += f'[{of}="{light}"]{{{of}:{dark}}}'
        for light, dark in DARK_LETTERS.items():
            if light not in DARK and f'fill="{light}"' in shapes:
                rules += f'[fill="{light}"]{{fill:{dark}}}'
            elif re.search(f'<text[^>]*fill="{light}"', shapes) and dark != DARK.get(light):
                rules += f'text[fill="{light}"]{{fill:{dark}}}'
        style = f"<style>@media (prefers-color-scheme: dark){{{rules}}}</style>"
        path.write_text(f"{shapes}\n{style}\n</svg>\n", encoding="utf-8")


def gps_layer(path: Path) -> None:
    """A GPS layer: message passing and k-MIP attention on the same input, their sum, and a perceptron."""
    figure = Figure(
        760, 430, "A GPS layer: message passing and k-MIP attention side by side, then a perceptron"
    )

    def block(x: float, y: float, width: float, text: str, colour: str = PANEL) -> None:
        # A hue is so dark that letters in the colour of the ground can be read on it.
        shade = LETTER_SHADES.get(colour, colour)
        figure.box(x, y, width, 40, fill=shade, radius=5, stroke=QUIET, stroke_width=1)
        figure.text(
            x + width / 2,
            y + 25,
            text,
            fill=GROUND if colour in {BLUE, ORANGE} else INK,
            bold=colour != PANEL,
        )

    figure.text(140, 34, "edge features e")
    figure.text(400, 34, "node features x  (N, d)")
    figure.arrow((400, 44), (400, 70), (230, 70), (230, 92))
    figure.arrow((400, 44), (400, 70), (570, 70), (570, 92))
    figure.arrow((140, 44), (140, 92))
    block(90, 92, 220, "GatedGCN", BLUE)
    block(460, 92, 220, "k-MIP attention", ORANGE)
    figure.text(
        200,
        152,
        "message passing: every node hears\nits neighbours; residual, dropout inside",
        size=12,
        fill=QUIET,
    )
    figure.text(
        570,
        152,
        "each head: every node hears the k nodes\nof its graph with the largest q · key",
        size=12,
        fill=QUIET,
    )
    figure.arrow((90, 112), (50, 112), (50, 400))
    figure.text(66, 420, "e of the next layer", size=12)
    for x in (200, 570):
        figure.arrow((x, 176), (x, 202))
        block(x - 70, 202, 140, "norm" if x == 200 else "+ x, norm")
    figure.arrow((200, 242), (200, 280), (388, 280))
    figure.arrow((570, 242), (570, 280), (412, 280))
    figure.box(388, 268, 24, 24, fill=PANEL, radius=12, stroke=QUIET, stroke_width=1)
    figure.text(400, 286, "+", size=18)
    figure.arrow((400, 292), (400, 318))
    block(290, 318, 220, "W₂ act(W₁ h), + h, norm")
    figure.text(362, 310, "h", size=12, fill=QUIET)
    figure.arrow((400, 358), (400, 400))
    figure.text(400, 420, "x of the next layer  (N, d)")
    figure.save(path)


def attention_matrices(path: Path) -> None:
    """The scores of queries and keys as a dense, a sparse and a symbolic matrix."""
    rng = np.random.Generator(np.random.PCG64(7))
    scores = rng.normal(size=(ROWS, 4)) @ rng.normal(size=(4, ROWS))
    weights = np.exp(scores - scores.max(1, keepdims=True))
    dense = weights / weights.sum(1, keepdims=True)
    largest = scores >= np.sort(scores, axis=1)[:, [-CHOSEN]]
    sparse = np.where(largest, weights, 0)
    figure = Figure(
        760, 325, "Attention weights of 12 nodes as a dense, a sparse and a symbolic matrix"
    )
    notes = (
        ("dense", "full attention:\nN² weights, all in memory"),
        ("sparse", f"k-MIP attention, k = {CHOSEN}:\nN · k weights and indices of keys"),
        (
            "symbolic",
            "what is searched: a formula\nof 2 N · d numbers; an entry exists\nwhile it is looked at",
        ),
    )
    for number, (name, note) in enumerate(notes):
        left, top = 30 + 250 * number, 62
        figure.text(left + 96, 28, name, size=15, bold=True)
        figure.text(left + 96, 286, note, size=12, fill=QUIET)
        if name == "symbolic":
            _symbolic(figure, left, top, largest)
        else:
            _cells(figure, left, top, (dense, sparse / sparse.sum(1, keepdims=True))[number])
    figure.save(path)


def _cells(
    figure: Figure, left: float, top: float, weights: NDArray[np.float64], side: float = 16
) -> None:
    empty = ""  # one path: a shape for each cell would be a third of the file
    for (row, column), weight in np.ndenumerate(weights):
        x, y = left + side * column, top + side * row
        if weight > 0:
            opacity = f"{0.12 + 0.88 * weight**0.5:.2f}"
            figure.box(x, y, side - 1, side - 1, fill=BLUE, fill_opacity=opacity)
        else:
            empty += f"M{x:g},{y:g}h{side - 1:g}v{side - 1:g}h{1 - side:g}z"
    figure.parts.append(f'<path d="{empty}" fill="{PANEL}"/>')


def _symbolic(
    figure: Figure, left: float, top: float, largest: NDArray[np.bool_], side: float = 16
) -> None:
    """Queries left of and keys above an empty matrix, of which one row is being looked at."""
    row, extent = 4, side * ROWS
    figure.box(left, top, extent - 1, extent - 1, fill="none", stroke=QUIET, stroke_dasharray="3 3")
    for place in range(ROWS):
        strong = 0.95 if place == row else 0.35
        figure.box(left - 26, top + side * place, 20, side - 1, fill=ORANGE, fill_opacity=strong)
        figure.box(left + side * place, top - 26, side - 1, 20, fill=ORANGE, fill_opacity=0.35)
        figure.box(left + side * place, top + side * row, side - 1, side - 1, fill=PANEL)
        if largest[row, place]:
            figure.box(left + side * place, top + side * row, side - 1, side - 1, fill=BLUE)
    figure.text(left - 17, top - 11, "q, key", size=11)
    figure.text(left + extent / 2, top + side * (row + 3), "q · key of one row, of which", size=12)
    figure.text(
        left + extent / 2, top + side * (row + 4) + 2, f"the {CHOSEN} largest are kept", size=12
    )


#: Rows of a table that are drawn, with the position of their hue; a build includes the four stages.
COUNTRY = {
    "read and simplify": 2,
    "features": 3,
    "eccentricity": 4,
    "write": 6,
    "build": 0,
    "training batch": 1,
}
SECONDS = {"µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_COST = re.compile(r"([\d.,]+) (\w+), ([\d.,]+) GiB")


def growth_table(page: str) -> tuple[list[int], dict[str, list[tuple[float, float]]]]:
    """Return sizes, and seconds and GiB of each row, of the table in docs/site/growth.txt.

    The last size is the one whose costs are computed from the exponents.
    """
    table = page[page.index("| stage | ") :].split("\n\n", maxsplit=1)[0]
    header, _, *rows = re.findall(r"^\|.*\|$", table, re.MULTILINE)
    sizes = [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*\d", header)]
    costs = {}
    for row in rows:
        stage, cells = row.strip("| ").split(" | ", maxsplit=1)
        costs[stage] = [
            (float(number.replace(",", "")) * SECONDS[unit], float(memory.replace(",", "")))
            for number, unit, memory in _COST.findall(cells)
        ]
    return sizes, costs


def growth(path: Path) -> None:
    """Costs of each stage over the size of a country, from docs/site/growth.txt."""
    sizes, costs = growth_table(Path(__file__).with_name("growth.txt").read_text("utf-8"))
    figure = Figure(
        520, 560, "Seconds and peak memory of each stage over the number of intersections"
    )
    names = ("10⁴", "10⁵", "10⁶", "10⁷")
    ticks = ((0.1, 1, 10, 100), (0.2, 0.5, 1, 2, 4))
    _panels(figure, ticks, dict(zip(sizes, names, strict=False)), costs, COUNTRY)
    figure.text(205, 552, "intersections", fill=QUIET)
    figure.save(path)


def _panels(
    figure: Figure,
    ticks: Sequence[Sequence[float]],
    sizes: dict[int, str],
    costs: dict[str, list[tuple[float, float]]],
    drawn: dict[str, int],
) -> None:
    """Seconds above, memory below."""
    titles = ("seconds", "GiB of memory at the peak")
    for number, (title, top) in enumerate(zip(titles, (40, 320), strict=True)):
        figure.text(54, top - 14, title, bold=True, anchor="start")
        values = {stage: [pair[number] for pair in costs[stage][: len(sizes)]] for stage in drawn}
        _panel(figure, top, ticks[number], sizes, values, drawn)


def _panel(
    figure: Figure,
    top: float,
    ticks: Sequence[float],
    names: dict[int, str],
    values: dict[str, list[float]],
    hues: dict[str, int],
) -> None:
    """Lines of ``values`` over the sizes that ``names`` has, both logarithmic, named at their ends."""
    left, width, height = 54, 300, 190
    sizes = list(names)
    least = min(ticks[0], *map(min, values.values())) / 1.3
    most = max(ticks[-1], *map(max, values.values())) * 1.15

    def at(size: float, value: float) -> tuple[float, float]:
        across = np.log10(size / sizes[0]) / np.log10(sizes[-1] / sizes[0])
        up = np.log10(value / least) / np.log10(most / least)
        return left + 8 + (width - 16) * float(across), top + height * (1 - float(up))

    for tick in ticks:
        y = at(sizes[0], tick)[1]
        figure.line([(left, y), (left + width, y)], PANEL, stroke_width=1)
        figure.text(left - 6, y + 4, f"{tick:,g}", size=12, fill=QUIET, anchor="end")
    for size, name in names.items():
        figure.text(at(size, least)[0], top + height + 18, name, size=12, fill=QUIET)

    below = 0.0  # the names, from the top down, at least a line apart
    for stage in sorted(values, key=lambda stage: -values[stage][-1]):
        colour = LIGHT.palette[hues[stage]]
        stage_of_build = "write" in hues and stage not in {"build", "training batch"}
        points = [at(*pair) for pair in zip(sizes, values[stage], strict=True)]
        figure.line(points, colour, stroke_width=1.4 if stage_of_build else 2.6)
        for x, y in points:
            figure.dot(x, y, colour, 2.2 if stage_of_build else 3.4)
        x, y = points[-1]
        below = max(y, below + 15, top)
        figure.line([(x + 5, y), (left + width + 10, below)], colour, stroke_width=0.8)
        figure.text(
            left + width + 14,
            below + 4,
            stage,
            size=12,
            fill=colour,
            bold=not stage_of_build,
            anchor="start",
        )


#: Name of each bar, and topic and name of its row in the table of docs/performance.md.
COMPARED = {
    "Exact search, d = 10": ("peers", "search, 100,000 nodes, d = 10, k = 10, Gaussian"),
    "Exact search, d = 64": ("peers", "search, 100,000 nodes of one norm, d = 64, k = 10"),
    "Reading a graph at random": ("peers", "one S3DIS-size graph at random"),
    "Shuffled batches of 8": ("peers", "shuffled batches of 8, no workers"),
    "Batches of 128 peptides": ("peers", "shuffled batches of 128 peptides, no workers"),
    "OSM file to labelled graph": ("peers", "620,000 directed edges, CPU seconds"),
    "Neighbour sampling": ("sampling", "the same with 15, 10, 5"),
    "k-NN of 100,000 points": ("knn", "`knn_graph` of 100,000 uniform points, k = 16"),
    "Training step, Helsinki": ("training", "Helsinki, 12 layers: a step of gps-kmip"),
    "First import": ("peers", "`from kmip_data import S3DIS`, CPU seconds"),
}


class Comparison(NamedTuple):
    """One row of the table: ours against what users would pick instead."""

    ours: str
    peer: str
    theirs: str
    ratio: float  #: their time over ours
    target: float | None
    missed: bool


def comparisons(page: str) -> dict[str, Comparison]:
    """Return the rows of the table of docs/performance.md that are drawn, by the names of their bars."""
    rows: dict[tuple[str, str], Comparison] = {}
    peer = ""
    for line in re.findall(r"^\| .* \|$", page, re.MULTILINE):
        cells = line.strip("| ").split(" | ")
        sides = re.match(r"(.+?): ([\d.,]+ (?:µs|ms|s))", cells[3]) if len(cells) == 6 else None
        if sides is None:
            continue
        topic, what, ours, _, result, _ = cells
        peer = peer if sides[1] == "the same" else sides[1]
        row = _comparison(ours, peer, sides[2], result)
        if row is not None:
            rows.setdefault((topic, what), row)
    return {name: rows[row] for name, row in COMPARED.items()}


def _comparison(ours: str, peer: str, theirs: str, result: str) -> Comparison | None:
    """Read the cell of ratio and target: "**3.31×** (3.14 to 3.35), missed ≥ 10×", or shares of time."""
    ratio = re.search(r"\*\*([\d,.]+)×", result)
    target = re.search(r"≥ ([\d,.]+)×", result)
    power = 1
    if ratio is None:
        ratio = re.search(r"([\d.]+) of its time", result)
        target = re.search(r"at most ([\d.]+)", result)
        power = -1
    if ratio is None:
        return None

    def number(match: re.Match[str]) -> float:
        return float(match[1].replace(",", "")) ** power

    return Comparison(
        ours=re.split(", | \\(", ours)[0],
        peer=re.split(", | \\(", peer.replace("`", ""))[0],
        theirs=theirs,
        ratio=number(ratio),
        target=number(target) if target else None,
        missed="missed" in result,
    )


def peers(path: Path) -> None:
    """Ratios of ten rows of docs/performance.md as bars, each with its target as a tick."""
    rows = comparisons((Path(__file__).parents[1] / "performance.md").read_text("utf-8"))
    left, width, top, step = 250, 330, 46, 36
    bottom = top + step * len(rows)
    figure = Figure(760, bottom + 34, "Time of what users would pick instead over ours, ten rows")
    ratios = [1.0]
    for row in rows.values():
        ratios += [row.ratio, row.target or 1.0]
    least, most = min(ratios) / 1.1, 1.3 * max(ratios)

    def at(ratio: float) -> float:
        return left + width * float(np.log(ratio / least) / np.log(most / least))

    figure.text(
        16, 24, "median of theirs over ours; line: target", size=12, fill=QUIET, anchor="start"
    )
    figure.text(744, 24, "ours, theirs", size=12, fill=QUIET, anchor="end")
    for tick in (1, 2, 5, 10, 20, 50, 100, 200):
        if tick < most:
            figure.line([(at(tick), top - 8), (at(tick), bottom)], PANEL)
            figure.text(at(tick), 24, f"{tick}×", size=12, fill=QUIET)
    for number, (name, row) in enumerate(rows.items()):
        _bar(figure, top + step * number, at, name, row)
    figure.save(path)


def _bar(
    figure: Figure, top: float, at: Callable[[float], float], name: str, row: Comparison
) -> None:
    """A bar from 1 to the ratio, orange where ours is slower or the target is missed, between names and times."""
    colour = ORANGE if row.missed or row.ratio < 1 else BLUE
    start, end = sorted((at(1), at(row.ratio)))
    figure.text(16, top + 8, name, anchor="start")
    figure.text(16, top + 22, row.peer, size=11, fill=QUIET, anchor="start")
    figure.box(start, top, end - start, 18, fill=colour)
    if row.target is not None:
        tick = at(row.target)
        end = max(end, tick)
        figure.line([(tick, top - 4), (tick, top + 22)], INK, stroke_width=2)
    ratio = f"{row.ratio:.3g}×" + ", missed" * row.missed + ", slower" * (row.ratio < 1)
    figure.text(end + 6, top + 14, ratio, size=12, fill=colour, bold=True, anchor="start")
    times = f"{row.ours}, {row.theirs}"
    figure.text(744, top + 14, times, size=12, fill=QUIET, anchor="end")


#: Name and position of the hue of each network tested on larger graphs.
SIZE_LEARNERS = {
    "kmip": ("k-MIP attention", 0),
    "full": ("full attention", 1),
    "log-n": ("full attention, logits × log n", 2),
    "none": ("GPS without attention", 3),
}


def larger_graphs(path: Path) -> None:
    """Accuracy over the size of the tested graphs, from docs/site/larger_graphs.toml.

    Error bars are standard deviations over seeds.
    """
    stored = tomllib.loads(Path(__file__).with_name("larger_graphs.toml").read_text("utf-8"))
    nodes = stored["nodes"]
    figure = Figure(770, 250, "Accuracy on larger graphs than those of training, by their size")
    left, width, top, height = 56, 420, 40, 160

    def at(size: float, accuracy: float) -> tuple[float, float]:
        share = np.log(size / nodes[0]) / np.log(nodes[-1] / nodes[0])
        return left + width * float(share), top + height * (1 - accuracy / 100)

    figure.text(left, 22, "accuracy on test", bold=True, anchor="start")
    for tick in (0, 50, 100):
        y = at(nodes[0], tick)[1]
        figure.line([at(nodes[0], tick), at(nodes[-1], tick)], PANEL, stroke_width=1)
        figure.text(left - 6, y + 4, f"{tick} %", size=12, fill=QUIET, anchor="end")
    for size in nodes:
        figure.text(at(size, 0)[0], top + height + 18, f"{size:,}", size=12, fill=QUIET)
    figure.text(left + width / 2, 240, "nodes of a graph, at most", size=12, fill=QUIET)

    for row, (network, (name, hue)) in enumerate(SIZE_LEARNERS.items()):
        colour = LIGHT.palette[hue]
        values = stored[network]
        figure.line(list(map(at, nodes, values["mean"])), colour, stroke_width=2.2)
        for size, mean, std in zip(nodes, values["mean"], values["std"], strict=True):
            figure.line([at(size, mean - std), at(size, mean + std)], colour, stroke_width=1.6)
            figure.dot(*at(size, mean), colour, 3)
        figure.text(500, 54 + 18 * row, name, size=12, fill=colour, anchor="start", bold=True)
    figure.save(path)


#: Name and position of the hue of each network trained on LRIM, in the order of their labels.
SPIN_LEARNERS = {
    "gine": ("GINE", 4),
    "gated-gcn": ("GatedGCN", 2),
    "gps-none": ("GPS without attention", 3),
    "gps-kmip": ("k-MIP attention", 0),
    "gps-transformer": ("full attention", 1),
}


def spins(path: Path) -> None:
    """Error on generated LRIM over epochs and over CPU seconds, from docs/site/lrim.toml."""
    runs = tomllib.loads(Path(__file__).with_name("lrim.toml").read_text("utf-8"))
    figure = Figure(770, 250, "Error on grids generated by LRIM's recipe over training")
    epochs = {model: list(range(1, len(run["error"]) + 1)) for model, run in runs.items()}
    seconds = {model: run["seconds"] for model, run in runs.items()}
    for left, times, unit in ((56, epochs, "epochs"), (356, seconds, "CPU seconds")):
        _error_panel(figure, left, times, {model: run["error"] for model, run in runs.items()})
        figure.text(left + 110, 240, unit, size=12, fill=QUIET)
    figure.text(56, 22, "log₁₀ of the mean squared error on test", bold=True, anchor="start")
    for row, (name, hue) in enumerate(SPIN_LEARNERS.values()):
        below = 54 + 18 * row
        figure.text(592, below, name, size=12, fill=LIGHT.palette[hue], anchor="start", bold=True)
    figure.save(path)


def _error_panel(
    figure: Figure,
    left: float,
    times: dict[str, Sequence[float]],
    errors: dict[str, Sequence[float]],
) -> None:
    """A line with a dot per epoch for each network."""
    top, width, height = 40, 220, 160
    last = max(max(points) for points in times.values())
    lowest = min(map(min, errors.values()))
    ticks = np.arange(0, lowest, -0.5).tolist()

    def at(time: float, error: float) -> tuple[float, float]:
        return left + width * time / last, top + height * error / (lowest - 0.1)

    for tick in ticks:
        figure.line([at(0, tick), at(last, tick)], PANEL, stroke_width=1)
        name = f"{tick:g}".replace("-", "−")
        figure.text(left - 6, at(0, tick)[1] + 4, name, size=12, fill=QUIET, anchor="end")
    step = round_length(last / 2)
    for time in np.arange(0, last + 1, step).tolist():
        figure.text(at(time, 0)[0], top + height + 18, f"{time:,g}", size=12, fill=QUIET)

    for model, (_name, hue) in SPIN_LEARNERS.items():
        points = list(map(at, times[model], errors[model]))
        figure.line(points, LIGHT.palette[hue], stroke_width=2.2)
        for x, y in points:
            figure.dot(x, y, LIGHT.palette[hue], 3)


#: Name and position of the hue of each network trained on Tree-NeighborsMatch.
TREE_LEARNERS = {
    "gps-transformer": ("full attention", 1),
    "gps-kmip": ("k-MIP attention", 0),
    "gps-none": ("GPS without attention", 3),
    "gcn": ("GCN", 5),
}
#: Depth of the name of each published line, and its side: next to few other lines.
PUBLISHED_NAMES = {
    "GGNN": (7, "start"),
    "GAT": (5, "start"),
    "GIN": (5, "start"),
    "GCN": (5, "end"),
}


def trees(path: Path) -> None:
    """Accuracy on train and CPU seconds over the depth of trees, from docs/site/trees.toml.

    Published networks are dashed grey lines. Every second network of ours is thin, and can be seen on
    the one below it.
    """
    stored = tomllib.loads(Path(__file__).with_name("trees.toml").read_text("utf-8"))
    figure = Figure(770, 260, "Tree-NeighborsMatch: accuracy on train over depth of the trees")
    left, width, top, height = 56, 280, 40, 170

    # 1. Accuracy: published lines below ours, then a line with dots for each of our networks.
    def at(depth: float, accuracy: float) -> tuple[float, float]:
        return left + width * (depth - 2) / 6, top + height * (1 - accuracy)

    figure.text(left, 22, "accuracy on train", bold=True, anchor="start")
    for tick in (0, 0.5, 1):
        figure.line([at(2, tick), at(8, tick)], PANEL, stroke_width=1)
        figure.text(left - 6, at(2, tick)[1] + 4, f"{tick:.0%}", size=12, fill=QUIET, anchor="end")
    for accuracies in stored["published"].values():
        points = [at(depth, accuracy) for depth, accuracy in enumerate(accuracies, start=2)]
        figure.line(points, QUIET, stroke_width=1.2, stroke_dasharray="4 3")
    for name, (depth, side) in PUBLISHED_NAMES.items():
        x, y = at(depth, stored["published"][name][depth - 2])
        x, y = (x + 5, y - 2) if side == "start" else (x - 5, y + 9)
        figure.text(x, y, name, size=11, fill=QUIET, halo=True, anchor=side)
    figure.text(left + width / 2, 248, "depth of the tree", size=12, fill=QUIET)

    # 2. Processor seconds until then, on a logarithmic scale.
    def at_time(depth: float, seconds: float) -> tuple[float, float]:
        share = np.log10(seconds / 3) / 3
        return left + 350 + 190 * (depth - 2) / 6, top + height * (1 - float(share))

    figure.text(left + 350, 22, "CPU seconds", bold=True, anchor="start")
    for seconds in (10, 100, 1000):
        figure.line([at_time(2, seconds), at_time(8, seconds)], PANEL, stroke_width=1)
        x, y = at_time(2, seconds)
        figure.text(x - 6, y + 4, f"{seconds:,}", size=12, fill=QUIET, anchor="end")
    figure.text(left + 445, 248, "depth of the tree", size=12, fill=QUIET)

    for depth in range(2, 9):
        figure.text(at(depth, 0)[0], top + height + 18, str(depth), size=12, fill=QUIET)
        figure.text(at_time(depth, 3)[0], top + height + 18, str(depth), size=12, fill=QUIET)
    for row, (model, (name, hue)) in enumerate(TREE_LEARNERS.items()):
        colour = LIGHT.palette[hue]
        below = 0 if row % 2 else 1.2
        runs = [run for run in stored["run"] if run["model"] == model and run["figure"]]
        for column, place in (("accuracy", at), ("seconds", at_time)):
            points = [place(run["depth"], run[column]) for run in runs]
            figure.line(points, colour, stroke_width=2 + 2 * below)
            for x, y in points:
                figure.dot(x, y, colour, 3.5 + below)
        figure.text(608, 54 + 18 * row, name, size=12, fill=colour, anchor="start", bold=True)
    figure.text(608, 54 + 18 * len(TREE_LEARNERS), "published", size=12, fill=QUIET, anchor="start")
    figure.save(path)


def draw(folder: Path) -> Sequence[Path]:
    """Write all of them."""
    named = {
        "gps-layer.svg": gps_layer,
        "attention-matrices.svg": attention_matrices,
        "growth.svg": growth,
        "larger-graphs.svg": larger_graphs,
        "lrim.svg": spins,
        "trees.svg": trees,
        "peers.svg": peers,
    }
    for name, of in named.items():
        of(folder / name)
    return [folder / name for name in named]
