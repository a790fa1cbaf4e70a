"""Plot records next to each other: their graphs, and what colours and labels mean."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from kmip_data.drawing.graph_panels import (
    draw_formula,
    draw_graph,
    has_arrows,
    plane_positions,
)
from kmip_data.drawing.layers import Layer, Scale
from kmip_data.drawing.molecules import BOND_LENGTH
from kmip_data.drawing.ordered_layouts import SPRINGS
from kmip_data.drawing.plottable_record import Labels, PlottableRecord, class_name
from kmip_data.drawing.plotted_layers import (
    NOTE_LETTERS,
    Legend,
    class_legend,
    label_legends,
    rank_legend,
    shorten_middle,
    value_legend,
)
from kmip_data.drawing.style import (
    NOTE_FONT_SIZE,
    Axes,
    current_style,
    in_current_style,
    new_figure,
    save_figure,
)
from kmip_data.text import count_with_noun

PAGE_WIDTH = 15.4  #: inches, at most
PAGE_HEIGHT = 7.8  #: inches of graphs, at most
MIN_CELL_WIDTH = 2.2  #: inches
SIDE_WIDTH = 2.75  #: inches of legends at the side
MARGIN = 0.2  #: inches around the page
GAP = 0.25  #: inches between records
VIEW_GAP = 0.08  #: inches between views of a record
SHAPES = (0.3, 2.5)  #: height of a graph relative to its width
MAX_BOND = 0.7  #: inches of a bond
BOND_MARGIN = 1.6  #: bonds around a molecule, for letters
#: Distance of lines relative to the size of letters, and in lines.
LINE_HEIGHT = 1.4
HEADING_LINES = 1.7
TITLE_LINES = 1.2
#: Letters in an inch relative to the body.
HEADING_LETTERS = 0.7
BOLD_LETTERS = 0.88


def plot_records(
    records: Sequence[PlottableRecord],
    path: Path,
    *,
    title: str,
    footer: str,
    class_names: Sequence[str] = (),
    up: Literal["y", "z"] = "z",
    labels: Labels | None = None,
) -> None:
    """Draw graphs into a PNG, SVG or PDF.

    Nodes have the colour of their class or target, or of their number of edges. A graph whose nodes
    also have colours of their own is drawn twice, and a molecule as a formula. ``title`` names the
    data (and marks a sample), ``footer`` has the attribution that the license requires, ``up`` is the
    axis that points up, and ``labels`` has the labels of all graphs. Classes without a name in
    ``class_names`` are shown by number.
    """
    layers = _layers_of(records, class_names)
    legends = _legends_of(records, layers, labels)
    places = [plane_positions(record, up) for record in records]
    extents = np.array([np.ptp(pos[:, :2], axis=0) if len(pos) else (0, 0) for pos in places])
    shape = np.clip((extents[:, 1] / np.maximum(extents[:, 0], 1e-6)).max(), *SHAPES)
    max_width = across = np.inf
    if records[0].is_formula:  # bonds of all molecules have the same length
        across, down = extents.max(axis=0) / BOND_LENGTH + BOND_MARGIN
        shape = down / across
        max_width = MAX_BOND * across
    cells = []
    for number, record in enumerate(records):
        panels = [partial(draw_formula, record=record, bonds_across=across)]
        if not record.is_formula:
            draw = partial(draw_graph, record=record, places=places[number])
            panels = [partial(draw, layer=layer) for layer in layers[number]]
        cells.append(Cell(_name_of(record), _counts(record), panels, legends[number]))
    draw_cells(
        cells,
        path,
        shape=shape,
        max_width=max_width,
        side=label_legends(records, labels),
        title=title,
        notes=_notes(records, layers),
        footer=footer,
    )


# --- What is drawn --------------------------------------------------------------------------------


def _layers_of(records: Sequence[PlottableRecord], class_names: Sequence[str]) -> list[list[Layer]]:
    """Return the layers of each record: own colours, and class, target or number of edges."""
    largest_classes = [record.y.max(initial=-1) for record in records if record.y is not None]
    count = max(len(class_names) - 1, *largest_classes, 0) + 1
    names = [class_name(number, class_names) for number in range(count)]
    layers = []
    for record in records:
        truth = record.truth_layer(names)
        own = None if truth and record.bonds is not None else record.own_colors  # no elements
        degrees = np.sum(record.degrees(), axis=0) // (2 - record.is_directed)
        degree_layer = Scale("number of edges", degrees)
        layers.append([layer for layer in (own, truth) if layer] or [degree_layer])

    scales = [column[-1] for column in layers if isinstance(column[-1], Scale)]
    for column in layers:
        if isinstance(column[-1], Scale):
            values = np.concatenate([scale.values for scale in scales])
            column[-1] = replace(column[-1], limit_values=values)  # of all records
    return layers


def _legends_of(
    records: Sequence[PlottableRecord], layers: list[list[Layer]], labels: Labels | None
) -> list[list[Legend]]:
    """Return the legends of each record: of the colours of its nodes, and of its targets."""
    legends = []
    for record, (*_, layer) in zip(records, layers, strict=True):
        column: list[Legend] = []
        if isinstance(layer, Scale):
            if record.values is not None or layer.limits.least < layer.limits.most:
                column.append(value_legend(layer))
        elif record.y is not None and len(record.y):
            column.append(class_legend(record.label_name or "classes", layer))
        if labels is not None and labels.values is not None:
            column.append(rank_legend(record, labels, labels.values))
        legends.append(column)
    return legends


# --- Texts ----------------------------------------------------------------------------------------


def _name_of(record: PlottableRecord) -> str:
    """Return the label and name of a record; several targets have a legend."""
    name = f"record {record.key}" if record.key.isdigit() else record.key
    label = record.label.replace("\n", ", ")
    title = ": ".join(filter(None, [record.label_name, label]))
    return f"{title} ({name})" if label and "  " not in label else name


def _counts(record: PlottableRecord) -> str:
    """Return the number of nodes and edges, and the sides of a place."""
    noun = "node" if record.bonds is None else "atom"
    text = f"{count_with_noun(len(record.pos), noun)}, {record.edge_text}"
    if record.metres:
        sides = [f"{side:.2g}" for side in np.ptp(record.pos, axis=0)]
        text += f", {' × '.join(sides)} m"
    return text


def _notes(records: Sequence[PlottableRecord], layers: list[list[Layer]]) -> str:
    """Return what holds for all graphs, with ranges where they differ."""
    origins = dict.fromkeys(record.position_source for record in records)
    if len(origins) > 1:  # without details
        origins = dict.fromkeys(origin.partition(";")[0] for origin in origins)
    facts = [", or ".join(filter(None, origins))]
    if any(origin.startswith(SPRINGS) for origin in origins):
        facts.append("larger nodes have more edges")
    if len(layers[0]) > 1:
        facts.append("each graph in its own colours and by class")
    ends = [record.y[record.edge_index] for record in records if record.y is not None]
    joining = [100 * np.mean(sources != targets) for sources, targets in ends if len(sources)]
    if joining and max(joining) > 0 and min(joining) < 100:
        facts.append(f"{_span(joining)} % of edges join two classes and are grey")
    if records[0].is_picture:
        facts.append("each cell is a node")
    directed = [record for record in records if record.is_directed]
    if directed:
        headless = ", without heads where they are many" * (not all(map(has_arrows, directed)))
        facts.append(f"edges are directed{headless}")
    if records[0].ids:
        facts.append("nodes have names where there is room")
    steps = [record.sample_edges()[1] for record in records]
    if max(steps) > 1:
        facts.append(f"one of {_span(steps)} edges is drawn")
    layer = layers[0][-1]
    if isinstance(layer, Scale):
        missing = layer.limits.missing
        if layer.limits.open_ends != "neither":
            facts.append("bars at the ends hold the values beyond")
        if missing:
            facts.append(f"{count_with_noun(missing, 'node')} without a target are grey")
    return "; ".join(filter(None, facts))


def _span(values: Sequence[float]) -> str:
    """Return the smallest and the largest value as text."""
    return " to ".join(dict.fromkeys(f"{value:.3g}" for value in (min(values), max(values))))


# --- The page -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """Drawings of a graph with a title above and legends below."""

    name: str
    facts: str
    panels: Sequence[Callable[..., None]]  #: draw into axes of a ``size`` (2,) in inches
    legends: Sequence[Legend]


@in_current_style()
def draw_cells(
    cells: Sequence[Cell],
    path: Path,
    *,
    shape: float,
    title: str,
    notes: str,
    footer: str,
    max_width: float = np.inf,
    side: Sequence[Legend] = (),
) -> None:
    """Draw graphs in a grid of equal cells, as large as the page permits.

    ``shape`` is the height of a panel relative to its width, ``max_width`` its largest width in
    inches, and ``side`` are the legends of all cells, which stand at the side or in a free cell. So do
    those of a single cell.
    """
    # 1. Arrange them.
    style = current_style()
    line = LINE_HEIGHT * style.body_points / 72
    if len(cells) == 1:
        side = [*cells[0].legends, *side]
        cells = [replace(cells[0], legends=[])]
    above = line * TITLE_LINES * (any(cell.name for cell in cells) + 1)
    below = line * max(sum(legend.height for legend in cell.legends) for cell in cells)
    scale = min(1.0, (style.max_width - 2 * MARGIN) / PAGE_WIDTH)
    side_width = math.sqrt(scale) * SIDE_WIDTH * bool(side)
    views = len(cells[0].panels)
    across = views if shape > 1 else 1
    columns, rows, width = _arrange(
        len(cells), across, shape * views / across, scale, side_width, max_width
    )
    panel = np.array([width, width * shape])
    cell_width = max(across * width, scale * MIN_CELL_WIDTH)
    cell_height = above + views // across * panel[1] + below + GAP
    page_width = columns * (cell_width + GAP) - GAP
    side_left = page_width + GAP
    side_top = 0.0
    if rows * columns > len(cells):
        side_left = len(cells) % columns * (cell_width + GAP)
        side_top = (rows - 1) * cell_height
        side_width = cell_width
    elif side:
        page_width = side_left + side_width

    # 2. Create the page.
    heading = _wrap(title if style.has_title else "", page_width, HEADING_LETTERS)
    notes = notes and f"{notes[0].upper()}{notes[1:]}."
    foot = _wrap(f"{notes}\n{footer}", page_width, NOTE_LETTERS)
    top = MARGIN + line * HEADING_LINES * len(heading)
    side_lines = sum(legend.height for legend in side)
    bottom = max(rows * cell_height, side_top + line * side_lines)
    height = top + bottom + line * len(foot) + MARGIN
    figure = new_figure(page_width + 2 * MARGIN, height)
    figure.set_layout_engine("none")
    page = figure.add_axes((0, 0, 1, 1))  # in inches from the top left of the first cell
    page.axis((-MARGIN, page_width + MARGIN, top - height, top))
    page.set_axis_off()

    # 3. Fill it.
    note = {"color": style.secondary_color, "fontsize": NOTE_FONT_SIZE}
    _write(page, 0, MARGIN - top, "\n".join(heading), fontsize="x-large")
    _write(page, 0, bottom, "\n".join(foot), **note)
    _add_legends(page, side_left, side_top, side_width, line, side)
    for number, cell in enumerate(cells):
        row, column = divmod(number, columns)
        left = column * (cell_width + GAP)
        cell_top = row * cell_height
        name = _shorten(cell.name, cell_width, BOLD_LETTERS)
        facts = _shorten(cell.facts, cell_width, NOTE_LETTERS)
        _write(page, left, cell_top, name, fontweight="bold")
        _write(page, left, cell_top + above - line * TITLE_LINES, facts, **note)
        start = left + (cell_width - across * width) / 2
        for view, draw in enumerate(cell.panels):
            row, column = divmod(view, across)
            corner = (start + column * width, cell_top + above + row * panel[1])
            draw(_add_panel(page, *corner, *panel - VIEW_GAP), size=panel - VIEW_GAP)
        _add_legends(
            page, left, cell_top + cell_height - below - GAP, cell_width, line, cell.legends
        )
    save_figure(figure, path)


def _arrange(
    cells: int, across: int, shape: float, scale: float, side_width: float, max_width: float
) -> tuple[int, int, float]:
    """Return the columns and rows of cells with the largest panels, and the width of a panel in inches.

    A cell has panels ``across``; ``shape`` is its height relative to the width of one panel.
    """
    page_height = math.sqrt(scale) * PAGE_HEIGHT
    arranged = []
    for columns in range(1, cells + 1):
        rows = -(-cells // columns)
        side = side_width + GAP if rows * columns == cells else 0
        width = (scale * PAGE_WIDTH - side) / columns - GAP
        width = min(width / across, page_height / rows / shape, max_width)
        worth = round(width / rows**0.3, 1)  # one row is one glance
        arranged.append((worth, -rows * columns, columns, rows, width))
    return max(arranged)[2:]


def _write(page: Axes, left: float, top: float, text: str, **style: str) -> None:
    page.text(left, -top, text, va="top", linespacing=1.3, **style)


def _add_panel(page: Axes, left: float, top: float, width: float, height: float) -> Axes:
    return page.inset_axes((left, -top - height, width, height), transform=page.transData)


def _add_legends(
    page: Axes, left: float, top: float, width: float, line: float, legends: Sequence[Legend]
) -> None:
    """Add legends below each other; ``line`` is the height of a line of text."""
    for legend in legends:
        heading = _shorten(legend.heading, width, NOTE_LETTERS)
        _write(page, left, top, heading, fontsize=NOTE_FONT_SIZE)
        panel_top = top + TITLE_LINES * line
        legend.draw(_add_panel(page, left, panel_top, width, legend.lines * line))
        top += legend.height * line


def _wrap(text: str, inches: float, letters: float) -> list[str]:
    """Return the lines of a text of the given width; ``letters`` an inch are relative to the body."""
    count = int(inches * current_style().letters_per_inch * letters)
    return [part for line in text.split("\n") for part in textwrap.wrap(line, count)]


def _shorten(text: str, inches: float, letters: float) -> str:
    """Shorten a text in its middle to a line of the given width."""
    return shorten_middle(text, int(inches * current_style().letters_per_inch * letters))
