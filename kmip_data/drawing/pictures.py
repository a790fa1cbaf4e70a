"""Plot records: the graph, its degrees, and its classes or label among all graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from kmip_data.arrays import F64, I64, Array
from kmip_data.drawing.layers import Categories, Layer, Scale
from kmip_data.drawing.molecules import BOND_LENGTH, IMAGE_SIZE
from kmip_data.drawing.ordered_layouts import LATTICE, stubs_beyond_borders
from kmip_data.drawing.plottable_record import Labels, PlottableRecord, class_name
from kmip_data.drawing.plotted_layers import (
    add_names,
    draw_color_bar,
    node_colors,
    set_wrapped_title,
    shorten_middle,
)
from kmip_data.drawing.style import (
    NOTE_FONT_SIZE,
    PLAIN_NUMBER,
    Axes,
    Figure,
    current_style,
    format_percent,
    in_current_style,
    new_figure,
    save_figure,
)
from kmip_data.text import count_with_noun

MAX_SHARED_PANEL_NODES = 1_000  #: graphs with fewer nodes show nodes and edges in one panel
ELEVATION = 22.0  #: viewing direction of 3D records, in degrees
AZIMUTH = -58.0
PANEL_WIDTH = 4.4  #: inches of nodes or edges alone
DEGREES_WIDTH = 3.3  #: inches
LABELS_WIDTH = 3.9  #: inches of classes, values or labels
FIGURE_WIDTH = 2 * PANEL_WIDTH + DEGREES_WIDTH + LABELS_WIDTH
ROW_HEIGHT = 4.1  #: inches
MAX_POINT_AREA = 200  #: square points of a node
MAX_NAMES = 40  #: names of nodes, where there is room
MAX_ARROWS = 300  #: of more edges, the title alone says that they are directed
CELL_PIXELS = 300  #: width and height of a picture of cells
TITLE_WIDTH = 0.22  #: width of a title above one panel relative to the figure
DEGREE_BINS = 40  #: bars of degrees
MIN_DEGREE_AXIS = 5  #: three degrees alone would be three huge bars
VALUE_BINS = 20  #: bars of a histogram; a pointed end of a colour bar is as wide as one of 20
PERCENTILES = (5, 50, 95)  #: percentiles of a target that are drawn


@in_current_style()
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
    """Draw a row of panels per record into a PNG, SVG or PDF.

    The panels are the graph, the degrees of its nodes if they differ, and its classes or label. A picture, or a
    graph with :data:`MAX_SHARED_PANEL_NODES` nodes or more whose nodes have colours, has separate
    panels for nodes and edges; a molecule is drawn as a formula. ``title`` names the
    data (and marks a sample), ``footer`` has the attribution that the license requires, ``up`` is
    the axis that points up, and ``labels`` has the labels of all graphs. Classes without a name in
    ``class_names`` are shown by number.
    """
    largest_classes = [record.y.max(initial=-1) for record in records if record.y is not None]
    classes = max(len(class_names) - 1, *largest_classes, 0) + 1
    names = [class_name(number, class_names) for number in range(classes)]
    layers = [record.truth_layer(names) for record in records]
    has_labels = any(layers) or labels is not None
    graph_width = max(map(_graph_width, records))
    has_degrees = not all(record.is_regular for record in records)
    widths = [graph_width / 2] * 2 + [DEGREES_WIDTH] * has_degrees + [LABELS_WIDTH] * has_labels
    height = 1.3 + ROW_HEIGHT * len(records)
    figure = new_figure(sum(widths), height, title=title, footer=footer)
    grid = figure.add_gridspec(len(records), len(widths), width_ratios=widths)
    values = [record.values for record in records if record.values is not None]
    bins, least_share = _degree_axes(records)
    shared: dict[str, Axes] = {}
    named: list[tuple[Axes, PlottableRecord]] = []

    for row, record in enumerate(records):
        projection = {"projection": "3d"} if record.pos.shape[1] == 3 else {}
        layer = layers[row]
        if isinstance(layer, Scale):  # all rows have the same limits
            layer = replace(layer, limit_values=np.concatenate(values))
        degrees = record.degree_layers()[0]
        shown = layer or record.own_colors or degrees
        if record.is_formula:
            _draw_molecule(figure.add_subplot(grid[row, :2]), record, graph_width)
        elif _has_two_panels(record):
            panel = figure.add_subplot(grid[row, 0], **projection)
            _draw_nodes(panel, record, record.own_colors or layer or degrees, up)
            edges = figure.add_subplot(grid[row, 1], **projection)
            _draw_edges(edges, record, layer, up)
        else:
            panel = figure.add_subplot(grid[row, :2], **projection)
            _draw_graph(panel, record, shown, up)
            if record.ids and not projection:
                named.append((panel, record))
        if has_degrees:
            panel = _add_panel(figure, grid[row, 2], "degrees", shared)
            is_legend = shown is degrees
            _draw_degrees(panel, record, bins, is_legend=is_legend, log=least_share > 0)
        if isinstance(layer, Categories):
            panel = _add_panel(figure, grid[row, -1], "classes", shared)
            _draw_classes(panel, layer, record.label_name or "classes")
        elif isinstance(layer, Scale):
            _draw_values(_add_panel(figure, grid[row, -1], "values", shared), layer)
        elif labels is not None:
            _draw_label(figure.add_subplot(grid[row, -1]), record, labels)
    if has_degrees:
        shared["degrees"].set_ylim(bottom=least_share)  # ends automatic limits
    if named:
        figure.draw_without_rendering()  # computes the layout
    for panel, record in named:
        order = np.argsort(-sum(record.degrees()), kind="stable")
        names = [record.ids[node] for node in order[:MAX_NAMES]]
        add_names(panel, record.pos[order], names, np.sqrt(_point_area(record)) / 2 + 2)
    save_figure(figure, path)


def _add_panel(figure: Figure, cell: object, kind: str, shared: dict[str, Axes]) -> Axes:
    """Add a panel that shares the axes of the first panel of its kind."""
    first = shared.get(kind)
    # Records have different classes, and so different rows.
    axes = figure.add_subplot(cell, sharex=first, sharey=None if kind == "classes" else first)
    shared.setdefault(kind, axes)
    return axes


# --- The graph ------------------------------------------------------------------------------------


def _has_two_panels(record: PlottableRecord) -> bool:
    has_targets = record.y is not None or record.values is not None
    is_colored = has_targets or record.own_colors is not None
    return record.is_picture or (is_colored and len(record.pos) >= MAX_SHARED_PANEL_NODES)


def _graph_width(record: PlottableRecord) -> float:
    """Return the inches of the panels of a graph: twice as wide as high, unless the graph is narrower."""
    if record.is_formula:  # positions are pixels of its picture; letters need room
        share = (np.ptp(record.pos[:, 0]) + 2 * BOND_LENGTH) / IMAGE_SIZE[0]
        return 2 * PANEL_WIDTH * float(np.clip(share, 0.5, 1))
    if _has_two_panels(record) or not len(record.pos):
        return 2 * PANEL_WIDTH
    sides = np.ptp(record.pos, axis=0)
    return PANEL_WIDTH * float(np.clip(sides[0] / max(sides[1], 1e-6), 1.2, 2))


def _draw_molecule(axes: Axes, record: PlottableRecord, width: float) -> None:
    """Show the formula of a molecule in the middle of its picture, ``width`` inches wide."""
    _set_title(axes, *_title_lines(record))
    axes.imshow(record.picture)
    middle = IMAGE_SIZE[0] / 2
    half = middle * width / (2 * PANEL_WIDTH)
    axes.set_xlim(middle - half, middle + half)
    axes.set_axis_off()


def _draw_graph(axes: Axes, record: PlottableRecord, layer: Layer, up: str) -> None:
    """Draw nodes over edges, which are arrows if few are directed."""
    from matplotlib.patches import FancyArrowPatch

    _set_title(axes, *_title_lines(record))
    _set_limits(axes, record.pos, up)
    style = current_style()
    # The nodes' own colours may be white.
    outline = style.secondary_color if layer is record.own_colors else style.background_color
    _add_points(axes, record, node_colors(layer, len(record.pos)), outline)
    is_few = record.edge_index.shape[1] <= MAX_ARROWS
    if record.pos.shape[1] != 2 or not (record.is_directed and is_few):
        _add_lines(axes, record, record.sample_edges()[0], style.missing)
        return

    radius = np.sqrt(_point_area(record)) / 2
    style_of_arrows = {
        "arrowstyle": "-|>",
        "connectionstyle": "arc3,rad=0.06",  # long edges bend around nodes in a row
        "mutation_scale": radius + 4,
        "shrinkA": 0,
        "shrinkB": radius,
        "linewidth": _print_scale(),
        "color": style.missing,
    }
    for source, target in record.edge_index.T:
        if source != target:
            places = (record.pos[source], record.pos[target])
            axes.add_patch(FancyArrowPatch(*places, **style_of_arrows))


def _draw_nodes(axes: Axes, record: PlottableRecord, layer: Layer, up: str) -> None:
    """Draw the nodes over their picture, if there is one."""
    lines = _title_lines(record, edges=False)
    if record.own_colors is not None:
        lines[1] += ", in their own colours"
    _set_title(axes, *lines)
    _set_limits(axes, record.pos, up)
    _add_picture(axes, record)
    outline = current_style().background_color if record.is_picture else "none"
    _add_points(axes, record, node_colors(layer, len(record.pos)), outline)


def _point_area(record: PlottableRecord) -> float:
    """Return the square points of a node, more if there are few."""
    largest = MAX_POINT_AREA / 5 if record.is_picture else MAX_POINT_AREA
    nodes = max(1, len(record.pos))
    # Some tens of nodes lie in rows or touch; many thousands are a cloud.
    area = min(400 / np.sqrt(nodes), 16_000 / nodes)
    return float(np.clip(area, 3, largest)) * _print_scale() ** 2


def _add_points(axes: Axes, record: PlottableRecord, colors: F64, outline: str) -> None:
    # Classes keep their colours: in S3DIS, a paler floor would be a window.
    style = {"depthshade": False} if record.pos.shape[1] == 3 else {}
    axes.scatter(
        *record.pos.T,
        c=colors,
        s=_point_area(record),
        linewidths=0.6 * _print_scale(),
        edgecolors=outline,
        clip_on=False,
        zorder=3,
        **style,
    )


def _draw_edges(axes: Axes, record: PlottableRecord, layer: Layer | None, up: str) -> None:
    """Draw edges in the colour of their targets, or grey; those between classes are pale."""
    from matplotlib.colors import to_rgba

    _set_limits(axes, record.pos, up)
    _add_picture(axes, record, alpha=0.35)
    edges, fraction = record.sample_edges()
    colors = node_colors(layer, len(record.pos))[edges[1]]
    lines = _title_lines(record, nodes=False)
    if fraction < 1:
        lines[1] += f", {format_percent(round(fraction, 2))} drawn"
    if record.y is not None:
        lines[-1] += ", drawn pale"
        sources, targets = record.y[edges]
        colors[sources != targets] = to_rgba(current_style().line_color)
        # Pale ones are below, where they would hide the others.
        order = np.argsort(sources == targets, kind="stable")
        edges = edges[:, order]
        colors = colors[order]
    _add_lines(axes, record, edges, colors)
    _set_title(axes, *lines)


def _add_lines(axes: Axes, record: PlottableRecord, edges: I64, colors: object) -> None:
    """Add the lines of edges (2, E), thinner if there are many."""
    from matplotlib.collections import LineCollection
    from mpl_toolkits.mplot3d.art3d import Line3DCollection

    segments = record.pos[edges.T]
    if record.position_source.startswith(LATTICE):
        segments = stubs_beyond_borders(segments)
    lines: Any = Line3DCollection if segments.shape[-1] == 3 else LineCollection
    width = float(np.clip(25 / np.sqrt(max(1, len(segments))), 0.3, 1)) * _print_scale()
    axes.add_collection(lines(segments, colors=colors, clip_on=False, linewidths=width))


def _title_lines(record: PlottableRecord, *, nodes: bool = True, edges: bool = True) -> list[str]:
    """Return the lines of a title: the record's name, counts, and facts that follow from them."""
    name = ""
    counts = []
    facts = []
    if nodes:
        key = shorten_middle(record.key)
        name = f"record {key}" if key.isdigit() else key
        if record.label and "\n" not in record.label:
            name += f": {record.label}"
        counts.append(count_with_noun(len(record.pos), "node"))
        facts.append(record.position_source)
        if record.metres:
            sides = [f"{side:.2g}" for side in np.ptp(record.pos, axis=0)]
            facts.append(f"{' × '.join(sides)} m")
    if edges:
        counts.append(record.edge_text)
        if record.is_directed:
            counts.append("directed")
        if record.is_regular:
            facts.append(f"{count_with_noun(int(record.degrees()[0][0]), 'edge')} at each node")
        if record.y is not None:
            sources, targets = record.y[record.edge_index]
            fraction = (sources != targets).sum() / max(len(sources), 1)
            facts.append(f"{format_percent(round(fraction, 3))} join two classes")
    return [name, ", ".join(counts), *facts]


def _set_title(axes: Axes, *lines: str) -> None:
    """Set the title of a panel, wrapped to its width."""
    columns = len(axes.get_subplotspec().colspan)
    set_wrapped_title(axes, TITLE_WIDTH * axes.figure.get_figwidth() * columns, *lines)


def _print_scale() -> float:
    """Return the scale of points and lines: that of a figure of the default width."""
    return min(1.0, current_style().max_width / FIGURE_WIDTH)


def _add_picture(axes: Axes, record: PlottableRecord, alpha: float = 1.0) -> None:
    """Draw the picture behind the nodes, or without one cells in the colours of the nearest nodes."""
    if not record.is_picture:
        return
    picture: Array | None = record.picture
    if picture is None:
        box = (*axes.get_xlim(), *axes.get_ylim())
        picture = _cells(record, box)
    else:
        height, width = picture.shape[:2]
        box = (-0.5, width - 0.5, 0.5 - height, 0.5)  # the centre of the first pixel is the origin
    axes.imshow(picture, extent=box, alpha=alpha)
    axes.axis(box)


def _cells(record: PlottableRecord, box: tuple[float, ...]) -> F64:
    """Return a picture (H, W, 4) with the colour of the nearest node, transparent far from all."""
    from scipy.spatial import KDTree

    x = np.linspace(box[0], box[1], CELL_PIXELS)
    y = np.linspace(box[3], box[2], CELL_PIXELS)
    spacing = np.sqrt(np.ptp(x) * np.ptp(y) / len(record.pos))
    places = np.stack(np.meshgrid(x, y), axis=-1)
    nearest: I64 = KDTree(record.pos).query(places, distance_upper_bound=2 * spacing)[1]
    colors = node_colors(record.own_colors, len(record.pos))
    return np.vstack([colors, np.zeros(4)])[nearest]


def _set_limits(axes: Axes, pos: Array, up: str) -> None:
    """Set equal scales on all axes and the limits of the data; hide the axes."""
    corners = pos if len(pos) else np.zeros((1, pos.shape[1]))
    low = corners.min(axis=0)
    high = corners.max(axis=0)
    extent = np.maximum(high - low, 1e-6 + 0.02 * (high - low).max())
    is_2d = pos.shape[1] == 2
    if is_2d:
        extent = extent + 0.04 * extent.max()  # space for points at the border

    low = (low + high - extent) / 2
    high = low + extent
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    axes.set_axis_off()
    if is_2d:
        axes.set_aspect("equal", anchor="N")  # aligns the titles of a row
        return
    axes.set_zlim(low[2], high[2])
    axes.view_init(elev=ELEVATION, azim=AZIMUTH, vertical_axis=up)
    # Set the aspect last, because setting the vertical axis rotates it.
    axes.set_box_aspect(extent, zoom=0.95)


# --- Degrees, classes and labels ------------------------------------------------------------------


def _degree_axes(records: Sequence[PlottableRecord]) -> tuple[F64, float]:
    """Return the bins for the degrees of all records, and the lower end of a logarithmic axis.

    Hubs need a logarithmic axis, which shows a single node, and bins that grow by a factor; 0 stands
    for a linear axis.
    """
    max_degrees = []
    least_share = 0.0
    for record in records:
        degrees = np.concatenate(record.degrees())
        max_degrees.append(int(degrees.max(initial=0)))
        if max_degrees[-1] > 10 * max(1, len(record.edge_index[0]) / max(1, len(record.pos))):
            least_share = 0.7 / max(len(other.pos) for other in records)
    max_degree = max(MIN_DEGREE_AXIS, *max_degrees)
    if least_share:
        grown = np.unique(np.rint(np.geomspace(1, max_degree + 1, DEGREE_BINS)))
        return np.concatenate([[0], grown]) - 0.5, least_share
    step = -(-(max_degree + 1) // DEGREE_BINS)
    return np.arange(0, max_degree + step + 1, step, dtype=np.float64) - 0.5, least_share


def _draw_degrees(
    axes: Axes, record: PlottableRecord, bins: F64, *, is_legend: bool, log: bool
) -> None:
    """Draw a histogram of the degrees, with the colours of nodes if it is their legend."""
    incoming, outgoing = record.degrees()
    color = current_style().palette[0]
    weights = np.full(len(outgoing), 1 / max(1, len(outgoing)))
    style = {"bins": bins, "log": log, "weights": weights}
    is_equal = np.array_equal(incoming, outgoing)
    label = "in- and out-degree" if is_equal else "out-degree"
    _, _, bars = axes.hist(outgoing, color=color, label=label, **style)
    if is_legend:
        middle = Scale("", (bins[:-1] + bins[1:]) / 2, limit_values=outgoing)  # degree of each bar
        for bar, bar_color in zip(bars, node_colors(middle, len(bars)), strict=True):
            bar.set_facecolor(bar_color)
    if not is_equal:
        outline = {"color": current_style().text_color, "linewidth": 1.2}
        if incoming.min() == incoming.max():
            axes.axvline(incoming[0], label=f"in-degree (all {incoming[0]})", **outline)
        else:
            axes.hist(incoming, label="in-degree", histtype="step", **outline, **style)
    axes.set(xlabel="edges of a node", ylabel="share of nodes")
    # The legend stands in place of a title, above the bars.
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), borderaxespad=0)
    if log:  # and yet with 0
        axes.set_xscale("symlog", linthresh=1, linscale=0.3)
        axes.xaxis.set_major_formatter(PLAIN_NUMBER)
    else:
        _label_whole_numbers(axes.xaxis, bins=8)
    axes.yaxis.set_major_formatter(format_percent)


def _draw_values(axes: Axes, layer: Scale) -> None:
    """Draw a histogram of the nodes' targets on their colour bar.

    Pointed ends of the bar are one bin each, with the values beyond its limits.
    """
    from matplotlib.ticker import NullLocator

    limits = layer.limits
    bar = draw_color_bar(axes.inset_axes((0, -0.1, 1, 0.06)), layer)
    ends = np.arange(-1, VALUE_BINS + 2) / VALUE_BINS  # fractions of the bar
    edges = np.asarray(bar.norm.inverse(ends))
    finite = layer.values[np.isfinite(layer.values)]
    counts, _ = np.histogram(finite.clip(edges[0], edges[-1]), edges)
    axes.bar(
        edges[:-1],
        counts / max(1, len(layer.values)),
        width=np.diff(edges),
        align="edge",
        color=bar.cmap((ends[:-1] + ends[1:]) / 2),
    )
    if limits.is_log:
        axes.set_xscale("log")
    first = int(limits.least >= limits.low)
    last = -1 - int(limits.most <= limits.high)
    axes.set(ylabel="share of nodes", xticks=[], xlim=(edges[first], edges[last]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(format_percent)
    lines = ["target of the nodes"]
    missing = int((~np.isfinite(layer.values)).sum())
    if missing:
        lines.append(f"{count_with_noun(missing, 'node')} without a target, drawn grey")
    _set_title(axes, *lines)


def _draw_classes(axes: Axes, layer: Categories, title: str) -> None:
    all_counts = np.array(layer.counts)
    shown = np.flatnonzero(all_counts)
    names = np.array(layer.labels)[shown].tolist()
    colors = np.array(layer.colors)[shown]
    _draw_bars(axes, names, all_counts[shown], colors, total=all_counts.sum())
    axes.set(title=title, xlabel="share of nodes")
    axes.xaxis.set_major_formatter(format_percent)


def _draw_bars(
    axes: Axes,
    names: Sequence[str],
    counts: I64,
    colors: object,
    total: int = 1,
) -> None:
    """Draw a named horizontal bar for each count, as a share of ``total``, and its number."""
    rows = range(len(names))
    height = min(0.8, len(names) / 6)
    bars = axes.barh(rows, np.divide(counts, total), height=height, color=colors)
    numbers = [f"{count:,}" for count in counts]
    axes.bar_label(bars, numbers, padding=3, fontsize=NOTE_FONT_SIZE)
    axes.set_yticks(rows, map(shorten_middle, names))
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.margins(x=0.15)
    axes.locator_params("x", nbins=4)


def _draw_label(axes: Axes, record: PlottableRecord, labels: Labels) -> None:
    """Draw the label of the graph in comparison with the labels of all graphs."""
    if labels.counts is not None:
        _draw_counts(axes, record, labels.names, labels.counts)
    elif labels.values is not None and labels.values.shape[1] == 1:
        _draw_target(axes, record, labels.values[:, 0], labels.unit)
    elif labels.values is not None:
        _draw_target_ranges(axes, record, labels.names, labels.values)


def _draw_counts(axes: Axes, record: PlottableRecord, names: Sequence[str], counts: I64) -> None:
    """Draw the number of graphs with each class or label, and highlight this record's."""
    value = np.asarray(record.label_value)
    is_label = np.arange(len(names)) == value if not value.shape else value.reshape(-1) == 1
    colors = np.where(is_label, current_style().palette[0], current_style().line_color)
    _draw_bars(axes, names, counts, colors)
    name = record.label_name or "labels"
    _set_title(axes, f"{name} of all graphs", "coloured: this graph")
    axes.set_xlabel("graphs")
    _label_whole_numbers(axes.xaxis, bins=4)


def _draw_target(axes: Axes, record: PlottableRecord, values: Array, unit: str) -> None:
    """Draw a histogram of the target over all graphs, with a line for this record."""
    axes.hist(values[np.isfinite(values)], bins=30, color=current_style().line_color)
    axes.axvline(float(np.asarray(record.label_value).item()), color=current_style().palette[1])
    text = f"{record.label} {unit}".strip()
    name = record.label_name or "label"
    _set_title(axes, f"{name} of this graph: {text}")
    axes.set(xlabel=unit or name, ylabel="graphs")
    axes.xaxis.set_major_formatter(PLAIN_NUMBER)
    _label_whole_numbers(axes.yaxis)


def _draw_target_ranges(
    axes: Axes, record: PlottableRecord, names: Sequence[str], values: Array
) -> None:
    """Draw the 5 to 95 % range and the median of each target, with a point for this record."""
    record_label = np.asarray(record.label_value).reshape(-1).astype(np.float64)
    low, median, high = np.nanpercentile(values, PERCENTILES, axis=0)
    width = np.where(high > low, high - low, 1.0)
    rows = np.arange(len(names))
    axes.barh(
        rows, np.ones(len(rows)), height=min(0.5, len(names) / 10), color=current_style().line_color
    )
    axes.plot((median - low) / width, rows, "|", color=current_style().text_color, markersize=9)
    positions = ((record_label - low) / width).clip(-0.06, 1.06)
    axes.plot(positions, rows, "o", color=current_style().palette[1])
    texts = [line.replace("  ", ": ") for line in record.label.split("\n")]
    axes.set_yticks(rows, texts)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set(xlim=(-0.1, 1.1), xticks=[0, 1], xticklabels=["5 %", "95 %"])
    axes.set(title="labels of this graph", xlabel="among all graphs; |: median")


def _label_whole_numbers(axis: Any, bins: int = 6) -> None:
    """Label an axis of counts with whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=bins, integer=True, min_n_ticks=1))
    axis.set_major_formatter("{x:,.0f}")
