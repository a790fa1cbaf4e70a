"""Plot records next to each other: their graphs, and what colours and labels mean."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from kmip_data.arrays import F64
from kmip_data.drawing.graph_panels import (
    BORDER,
    GROWTH,
    LEAST_WIDTH,
    MOST_WIDTH,
    draw_field,
    draw_formula,
    draw_graph,
    drawn_edges,
    edge_strength,
    has_arrows,
    has_edges,
    is_field,
    plane_positions,
)
from kmip_data.drawing.layers import Categories, Layer, Scale
from kmip_data.drawing.molecules import AROMATIC, BOND_LENGTH
from kmip_data.drawing.plottable_record import Labels, PlottableRecord
from kmip_data.drawing.plotted_layers import (
    NOTE_LETTERS,
    Legend,
    class_key,
    class_legend,
    label_legends,
    value_legend,
    width_legend,
    with_quiet_majority,
)
from kmip_data.drawing.style import (
    BODY_POINTS,
    LETTERS_PER_INCH,
    NOTE_FONT_SIZE,
    Axes,
    current_style,
    in_current_style,
    new_figure,
)
from kmip_data.saving.image_files import save_figure
from kmip_data.text import class_name, count_with_noun, shorten_middle

PAGE_SIZE = 9.6  #: inches of a page's width, and of the height of its graphs, at most
MIN_CELL_WIDTH = 1.6  #: inches
MIN_PAGE_WIDTH = 5.0  #: inches, for texts
HIGH = 1.3  #: height relative to the width of a single graph from which texts stand next to it
SIDE_WIDTH = 2.7  #: inches of their column
MARGIN = 0.2  #: inches around the page
GAP = 0.25  #: inches between records
VIEW_GAP = 0.08  #: inches between views of a record
SHAPES = (0.3, 2.5)  #: height of a graph relative to its width
MAX_PANELS = 4  #: in a single row
MAX_BOND = 0.7  #: inches of a bond
BOND_MARGINS = (1.6, 1.0)  #: bonds next to and above a molecule, for letters
#: Distance of lines relative to the size of letters, and in lines.
LINE_HEIGHT = 1.4
BASELINE = 0.75  #: distance from the top of a line
HEADING_LINES = 1.7
TITLE_LINES = 1.2
KEY_LETTERS = 14  #: of a key next to counts, at most
#: Letters in an inch relative to the body.
HEADING_LETTERS = 0.78
BOLD_LETTERS = 0.88


def plot_records(
    records: Sequence[PlottableRecord],
    path: Path,
    *,
    title: str,
    footer: str,
    summary: str = "",
    class_names: Sequence[str] = (),
    up: Literal["y", "z"] = "z",
    labels: Labels | None = None,
) -> None:
    """Draw graphs into a PNG, SVG or PDF.

    Nodes have the colour of their class or target, or their own, or of the direction of their edges. A
    picture whose nodes also have classes is drawn twice, and a molecule as a formula. ``title`` names the
    data (and marks a sample), ``summary`` says what they are, ``footer`` has the attribution that the
    license requires, ``up`` is the axis that points up, and ``labels`` has the labels of all graphs.
    Classes without a name in ``class_names`` are shown by number.
    """
    layers = _layers_of(records, class_names)
    band, legends = _legends_of(records, layers, labels)
    places = [plane_positions(record, up) for record in records]
    extents = np.array([np.ptp(pos[:, :2], axis=0) if len(pos) else (0, 0) for pos in places])
    max_unit = np.inf
    if records[0].is_formula:  # bonds of all molecules have the same length
        sizes = extents / BOND_LENGTH + BOND_MARGINS
        max_unit = MAX_BOND
    else:
        shape = (extents[:, 1] / np.maximum(extents[:, 0], 1e-6)).max()
        shape = np.clip(2 * BORDER + (1 - 2 * BORDER) * shape, *SHAPES)
        sizes = np.tile([1.0, shape], (len(records), 1))
    cells = []
    for number, record in enumerate(records):
        panels = {"": partial(draw_formula, record=record, bonds_across=sizes[number, 0])}
        if is_field(record):
            draw = partial(draw_field, record=record, layer=layers[number][-1])
            panels = {"": draw}
            if record.symbols:
                panels[f"the marked part: {record.symbols[0]}"] = partial(draw, is_part=True)
        elif not record.is_formula:
            draw = partial(draw_graph, number=number, sheet=[*zip(records, places, strict=True)])
            views = layers[number]
            panels = {
                f"by {layer.name}" * (len(views) > 1): partial(draw, layer=layer) for layer in views
            }
        cells.append(Cell(*_texts_of(record), panels, legends[number], sizes[number]))
    draw_cells(
        cells,
        path,
        max_unit=max_unit,
        band=band,
        title=title,
        summary=summary,
        footer=f"{_notes(records, layers, labels)}\n{footer}",
    )


# --- What is drawn --------------------------------------------------------------------------------


def _layers_of(records: Sequence[PlottableRecord], class_names: Sequence[str]) -> list[list[Layer]]:
    """Return the layers of each record: own colours, and class, target or edges."""
    largest_classes = [record.y.max(initial=-1) for record in records if record.y is not None]
    count = max(len(class_names) - 1, *largest_classes, 0) + 1
    names = [class_name(number, class_names) for number in range(count)]
    layers = []
    for record in records:
        truth = record.truth_layer(names)
        if is_field(record) and isinstance(truth, Categories):
            truth = with_quiet_majority(truth)
        own = record.own_colors if record.is_picture or not truth else None
        layers.append([layer for layer in (own, truth) if layer] or [record.direction_layer()])

    scales = [column[-1] for column in layers if isinstance(column[-1], Scale)]
    for column in layers:
        if isinstance(column[-1], Scale):
            values = np.concatenate([scale.values for scale in scales])
            column[-1] = replace(column[-1], limit_values=values)  # of all records
    return layers


def _legends_of(
    records: Sequence[PlottableRecord], layers: list[list[Layer]], labels: Labels | None
) -> tuple[list[Legend], list[list[Legend]]]:
    """Return the legends of all records, and those of each; a single record has all that it needs."""
    sheet = [column[-1] for column in layers]
    shared = label_legends(records, labels)
    classes = [
        layer
        for record, layer in zip(records, sheet, strict=True)
        if isinstance(layer, Categories) and layer.codes.size and layer is not record.own_colors
    ]
    has_classes = any(record.y is not None and record.y.size for record in records)
    if not has_classes and all(len(np.unique(layer.codes)) == 1 for layer in classes):
        classes = []  # all nodes have edges of the same direction
    heading = records[0].label_name or "classes" if has_classes else "nodes"
    if len(classes) == 1:
        shared.append(class_legend(heading, classes[0]))
    elif classes:
        shared.append(class_key(heading, classes))
    legends = []
    for record, layer in zip(records, sheet, strict=True):
        column: list[Legend] = []
        if record.edge_widths is not None and has_edges(record):
            widths = edge_strength(len(drawn_edges(record))) * np.array([LEAST_WIDTH, MOST_WIDTH])
            legend = width_legend(*record.edge_widths, widths)
            (shared if len(records) == 1 else column).append(legend)
        if isinstance(layer, Scale):
            column.append(value_legend(layer, sheet))
        legends.append(column)
    return shared, legends


# --- Texts ----------------------------------------------------------------------------------------


def _texts_of(record: PlottableRecord) -> tuple[str, str]:
    """Return the label of a record as a headline, and its name and numbers of nodes and edges.

    Without a label, or with several targets, the name is the headline.
    """
    counts = f"{count_with_noun(len(record.pos), record.noun)}, {record.edge_text}"
    if record.metres and len(record.pos):
        sides = [f"{side:.2g}" for side in np.ptp(record.pos, axis=0)]
        counts += f", {' × '.join(sides)} m"
    label = re.sub(r"\B-(?=\d)", "−", record.label.replace("\n", ", ").replace("_", " "))
    name, _, value = label.rpartition("  ")
    if not label or (name and np.size(np.asarray(record.label_value)) > 1):
        return record.key, counts
    is_class = np.asarray(record.label_value).dtype.kind in "iu" and label.isdigit()
    if kind := record.label_name or name or "class" * is_class:
        label = f"{kind}: {value}"
    return label, f"{shorten_middle(record.key, KEY_LETTERS)} · {counts}"


def _notes(
    records: Sequence[PlottableRecord], layers: list[list[Layer]], labels: Labels | None
) -> str:
    """Return what holds for all graphs, with ranges where they differ."""
    origins = dict.fromkeys(record.position_source for record in records)
    texts = [text for text in origins if not any(one.startswith(f"{text},") for one in origins)]
    facts = [_shown_classes(records, labels), ", or ".join(filter(None, texts))]
    if any(origin.startswith(tuple(GROWTH)) for origin in origins):
        facts.append("larger nodes have more neighbours")
    with_edges = [record for record in records if has_edges(record)]
    if not with_edges:
        facts.append("edges are not drawn")
    ends = [record.y[record.edge_index] for record in with_edges if record.y is not None]
    if any((sources != targets).any() for sources, targets in ends):
        facts.append("grey edges join two classes")
    if records[0].is_picture:
        facts.append(
            "each node lies in its region of the picture"
            if records[0].picture is not None
            else "each cell is the region nearest to a node, in the node's colour"
        )
        if any(record.edge_index.size for record in with_edges):
            facts.append("lines are edges")
    if records[0].pos.shape[1] == 3:
        facts.append("far points are paler and smaller")
    if any(map(has_arrows, with_edges)):
        facts.append(f"arrows go from {records[0].ends_of_edges}")
    if any(record.is_formula and AROMATIC in np.asarray(record.bonds) for record in records):
        facts.append("dashed: aromatic")
    if any(record.is_formula for record in records):
        facts.append("carbon has no letter")
    if records[0].symbols and "▲" in records[0].symbols[1]:
        facts.append(records[0].symbols[0])
    layer = layers[0][-1]
    if isinstance(layer, Scale):
        if layer.note:
            facts.append(f"{layer.name}: {layer.note}")
        missing = layer.limits.missing
        if missing:
            facts.append(f"{count_with_noun(missing, 'node')} without a target are grey")
    notes = "; ".join(filter(None, dict.fromkeys(facts)))
    return f"{notes[0].upper()}{notes[1:]}." if notes else ""


def _shown_classes(records: Sequence[PlottableRecord], labels: Labels | None) -> str:
    """Return how many of the classes of graphs are drawn, if not all are."""
    shown = {record.label for record in records}
    if labels is None or not shown < set(labels.names):
        return ""
    return f"graphs of {len(shown)} of the {len(labels.names)} classes"


# --- The page -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """Drawings of a graph with a title above and legends below."""

    name: str
    facts: str
    panels: Mapping[str, Callable[..., None]]  #: draw into axes of a ``size`` (2,) in inches
    legends: Sequence[Legend]
    size: tuple[float, float] | F64  #: width and height of a panel, in a unit of all cells


@in_current_style()
def draw_cells(
    cells: Sequence[Cell],
    path: Path,
    *,
    title: str,
    summary: str,
    footer: str,
    max_unit: float = np.inf,
    band: Sequence[Legend] = (),
) -> None:
    """Draw graphs in rows of cells, as large as the page permits.

    The unit of their sizes has at most ``max_unit`` inches. The legends of all cells, ``band``, stand
    next to each other above them; so do those of a single cell. Next to a high graph, texts and legends
    have a column of their own.
    """
    # 1. Arrange them.
    line = LINE_HEIGHT * BODY_POINTS / 72
    if len(cells) == 1:
        cell, band, summary = _move_texts_above(cells[0], band, summary)
        cells = [cell]
    sizes = np.array([cell.size for cell in cells])
    views = len(cells[0].panels)
    columns, unit = _arrange(sizes, views, max_unit)
    panels = unit * sizes
    widths = np.maximum(views * panels[:, 0], MIN_CELL_WIDTH)
    rows = [range(len(cells))[first : first + columns] for first in range(0, len(cells), columns)]
    page_width = max(sum(widths[row]) + GAP * (len(row) - 1) for row in rows)
    side = 0.0  # width of a column of texts
    if is_high(len(cells), panels[0, 1] / widths[0]):
        side = SIDE_WIDTH + GAP
    page_width = max(page_width + side, MIN_PAGE_WIDTH)
    text_width = side - GAP if side else page_width
    band_columns = 1 if side else max(1, len(band))
    band_width = (text_width + GAP) / band_columns - GAP
    if len(cells) == 1:
        widths[:] = page_width - side

    # 2. Create the page.
    heading = _wrap(title, page_width, HEADING_LETTERS)
    heading_height = line * HEADING_LINES * len(heading)
    introduction = _wrap(summary, text_width, NOTE_LETTERS)
    foot = _wrap(footer, text_width, NOTE_LETTERS)
    above = line * TITLE_LINES * (bool(cells[0].name) + bool(cells[0].facts))
    top_of_panels = above + line * TITLE_LINES * any(cells[0].panels)
    legend_width = min(widths)  # one for all, so that bars have one scale
    below = np.zeros(len(cells))
    for number, cell in enumerate(cells):
        below[number] = line * sum(legend.height(legend_width) for legend in cell.legends)
    heights = [top_of_panels + max(panels[row, 1]) + max(below[row]) + GAP for row in rows]
    band_top = heading_height + line * (len(introduction) + 0.5 * bool(introduction))
    band_heights = [line * legend.height(band_width) for legend in band]
    if side:
        band_bottom = band_top + sum(band_heights)
        height = max(heading_height + sum(heights), band_bottom + line * len(foot))
        bottom = height - line * len(foot)
        top = heading_height
    else:
        top = band_top + max(band_heights, default=0)
        bottom = top + sum(heights)
        height = bottom + line * len(foot)
    figure = new_figure(page_width + 2 * MARGIN, height + 2 * MARGIN)
    figure.set_layout_engine("none")
    page = figure.add_axes((0, 0, 1, 1))  # in inches from the top left
    page.axis((-MARGIN, page_width + MARGIN, -height - MARGIN, MARGIN))
    page.set_axis_off()

    # 3. Fill it.
    note = _note_style()
    _write(page, 0, 0, *heading, step=HEADING_LINES, fontsize="x-large")
    _write(page, 0, heading_height, *introduction, **note)
    _write(page, 0, bottom, *foot, **note)
    for column in range(band_columns):
        left = column * (band_width + GAP)
        _add_legends(page, left, band_top, band_width, line, band[column::band_columns])
    for row, row_height in zip(rows, heights, strict=True):
        left = side
        for number in row:
            cell = cells[number]
            width = widths[number]
            facts = _shorten(cell.facts, width, NOTE_LETTERS)
            name = _shorten(cell.name, width, BOLD_LETTERS)
            _write(page, left, top, name, fontweight="bold")
            _write(page, left, top + above - line * TITLE_LINES, facts, **note)
            start = left + (width - views * panels[number, 0]) / 2
            _add_panels(page, start, top + above, top + top_of_panels, panels[number], cell.panels)
            legend_top = top + top_of_panels + max(panels[row, 1])
            _add_legends(page, left, legend_top, legend_width, line, cell.legends)
            left += width + GAP
        top += row_height
    save_figure(figure, path)


def _move_texts_above(
    cell: Cell, band: Sequence[Legend], summary: str
) -> tuple[Cell, Sequence[Legend], str]:
    """Return the only cell without its legends, and without facts that have no name above them."""
    band = [*cell.legends, *band]
    cell = replace(cell, legends=[])
    if not cell.name:
        summary = f"{summary} {cell.facts}.".lstrip()
        cell = replace(cell, facts="")
    return cell, band, summary


def is_high(cells: int, shape: float) -> bool:
    """True if texts stand next to the drawing: it is the only one and high, by ``shape``, height over width."""
    return cells == 1 and shape > HIGH


def _arrange(sizes: F64, views: int, max_unit: float) -> tuple[int, float]:
    """Return the number of cells in a row, and the inches of a unit of their ``sizes`` (C, 2)."""
    columns = len(sizes)
    if sizes[:, 0].mean() > 3 * sizes[:, 1].mean():  # wide ones are larger above each other
        columns = 1
    elif columns * views > MAX_PANELS:  # one row is one glance
        columns = math.ceil(math.sqrt(columns))
    rows = [sizes[first : first + columns] for first in range(0, len(sizes), columns)]
    width = views * max(row[:, 0].sum() for row in rows)
    height = sum(row[:, 1].max() for row in rows)
    room = PAGE_SIZE - GAP * (columns - 1)
    return columns, min(room / width, PAGE_SIZE / height, max_unit)


def _write(page: Axes, left: float, top: float, *texts: str, step: float = 1, **style: Any) -> None:
    """Write lines, whose baselines, unlike their ink, have the same distance from the top."""
    line = LINE_HEIGHT * BODY_POINTS / 72
    for number, text in enumerate(texts):
        page.text(left, -top - line * (BASELINE + step * number), text, **style)


def _note_style() -> dict[str, Any]:
    return {"color": current_style().secondary_color, "fontsize": NOTE_FONT_SIZE}


def _add_panels(
    page: Axes,
    left: float,
    top_of_names: float,
    top: float,
    size: F64,
    panels: Mapping[str, Callable[..., None]],
) -> None:
    """Draw the views of a record next to each other, each in ``size`` (2,) inches with its gap."""
    for name, draw in panels.items():
        _write(page, left, top_of_names, name, **_note_style())
        draw(_add_panel(page, left, top, *(size - VIEW_GAP)), size=size - VIEW_GAP)
        left += size[0]


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
        legend.draw(_add_panel(page, left, panel_top, width, legend.lines(width) * line))
        top += legend.height(width) * line


def _wrap(text: str, inches: float, letters: float) -> list[str]:
    """Return the lines of a text of the given width; ``letters`` an inch are relative to the body."""
    count = int(inches * LETTERS_PER_INCH * letters)
    return [part for line in text.split("\n") for part in textwrap.wrap(line, count)]


def _shorten(text: str, inches: float, letters: float) -> str:
    """Shorten a text in its middle to a line of the given width."""
    return shorten_middle(text, int(inches * LETTERS_PER_INCH * letters))
