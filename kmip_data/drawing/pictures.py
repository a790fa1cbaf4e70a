"""Plot records: the graph, its degrees, and its classes or label among all graphs."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from kmip_data.arrays import F64, I64, U8, Array
from kmip_data.drawing.layers import Categories, Layer, Scale
from kmip_data.drawing.maps import format_length, round_length
from kmip_data.drawing.ordered_layouts import LATTICE, stubs_beyond_borders
from kmip_data.drawing.plottable_record import Labels, PlottableRecord, class_name
from kmip_data.drawing.plotted_layers import draw_color_bar, node_colors, shorten_middle
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
HAZE = 0.55  #: fraction of the background mixed into the colours of the farthest nodes
FIGURE_WIDTH = 16.0  #: inches of four panels
ROW_HEIGHT = 4.1  #: inches
MAX_POINT_AREA = 200  #: square points of a node
MARGIN = 16  #: pixels around the picture of a molecule
TITLE_WIDTH = 0.2  #: width of a title above one panel relative to the figure
LABEL_DISTANCE = 6  #: points below a scale bar
DEGREE_BINS = 40  #: bars of degrees
DEGREE_TICKS = (0, 1, 3, *(factor * 10**power for power in range(1, 7) for factor in (1, 3)))
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

    The panels are the graph, the degrees of its nodes, and its classes or label. A graph with
    :data:`MAX_SHARED_PANEL_NODES` nodes or more, or with an image, has separate panels for points
    and edges (grey if they join two classes), where points have their own colours if there are any;
    a molecule is drawn as a formula. ``title`` names the data (and marks a sample), ``footer`` has
    the attribution that the license requires, ``up`` is the axis that points up, and ``labels`` has
    the labels of all graphs. Classes without a name in ``class_names`` are shown by number.
    """
    rows = len(records)
    figure = new_figure(FIGURE_WIDTH, 1.3 + ROW_HEIGHT * rows, title=title, footer=footer)
    grid = figure.add_gridspec(rows, 4, width_ratios=[1.15, 1.15, 0.85, 1.0])
    last_classes = [int(record.y.max(initial=-1)) for record in records if record.y is not None]
    classes = max([len(class_names), *(last + 1 for last in last_classes)])
    names = [class_name(number, class_names) for number in range(classes)]
    values = [record.values for record in records if record.values is not None]
    bins, least_share = _degree_axes(records)
    shared: dict[str, Axes] = {}

    for row, record in enumerate(records):
        projection = {"projection": "3d"} if record.pos.shape[1] == 3 else {}
        layer = record.truth_layer(names)
        if isinstance(layer, Scale):  # all rows have the same limits
            layer = replace(layer, limit_values=np.concatenate(values))
        degrees = record.degree_layers()[0]
        shown = layer or record.own_colors or degrees
        if record.bonds is not None and record.y is None:  # a formula shows everything
            _draw_molecule(figure.add_subplot(grid[row, :2]), record)
        elif len(record.pos) < MAX_SHARED_PANEL_NODES and record.picture is None:
            panel = figure.add_subplot(grid[row, :2], **projection)
            _draw_graph(panel, record, shown, up)
        else:
            panel = figure.add_subplot(grid[row, 0], **projection)
            _draw_points(panel, record, record.own_colors or layer or degrees, up)
            edges = figure.add_subplot(grid[row, 1], **projection)
            _draw_edges(edges, record, layer or degrees, up)
        has_label = layer is not None or bool(record.label)
        cell = grid[row, 2] if has_label else grid[row, 2:]
        panel = _add_panel(figure, cell, "degrees", shared)
        is_legend = shown is degrees
        _draw_degrees(panel, record, bins, is_legend=is_legend, log=least_share > 0)
        if isinstance(layer, Categories):
            panel = _add_panel(figure, grid[row, 3], "classes", shared)
            _draw_classes(panel, layer)
        elif isinstance(layer, Scale):
            _draw_values(_add_panel(figure, grid[row, 3], "values", shared), layer)
        elif has_label:
            _draw_label(figure.add_subplot(grid[row, 3]), record, labels)
    shared["degrees"].set_ylim(bottom=least_share)  # ends automatic limits
    save_figure(figure, path)


def _add_panel(figure: Figure, cell: object, kind: str, shared: dict[str, Axes]) -> Axes:
    """Add a panel that shares the axes of the first panel of its kind."""
    first = shared.get(kind)
    # Records have different classes, and so different rows.
    axes = figure.add_subplot(cell, sharex=first, sharey=None if kind == "classes" else first)
    shared.setdefault(kind, axes)
    return axes


# --- The graph ------------------------------------------------------------------------------------


def _draw_molecule(axes: Axes, record: PlottableRecord) -> None:
    """Show the cropped image of a molecule."""
    _set_title(axes, *_record_lines(record, edges=True))
    axes.imshow(_crop_margins(record), interpolation="antialiased")
    axes.set_anchor("N")  # aligns the titles of a row
    axes.set_axis_off()


def _crop_margins(record: PlottableRecord) -> U8:
    """Crop a molecule's image (H, W, 3) to its content and a margin."""
    picture = record.picture
    assert picture is not None, "a record with bonds has RDKit's picture"
    rows, columns = np.nonzero((picture != picture[0, 0]).any(axis=2))
    if not len(rows):
        return picture
    top = max(rows.min() - MARGIN, 0)
    left = max(columns.min() - MARGIN, 0)
    return picture[top : rows.max() + MARGIN, left : columns.max() + MARGIN]


def _draw_graph(axes: Axes, record: PlottableRecord, layer: Layer | None, up: str) -> None:
    """Draw nodes over edges, with arrows if an edge has no reverse; paler below the nodes' own colours."""
    lines = _record_lines(record, edges=True)
    if record.y is not None:
        lines[-1] += f"; {_class_joining_text(record)}"
    _set_title(axes, *lines)
    _set_limits(axes, record.pos, up)
    width = 1.0 if len(record.edge_index[0]) <= 2 * MAX_SHARED_PANEL_NODES else 0.5
    has_own_colors = layer is record.own_colors
    style = current_style()
    line_color = style.line_color if has_own_colors else style.secondary_color
    _add_lines(axes, _segments(record, record.edge_index), line_color, width)
    if record.is_directed and record.pos.shape[1] == 2:
        _add_arrows(axes, record, line_color)
    colors = node_colors(layer, len(record.pos))
    outline = style.secondary_color if has_own_colors else style.background_color
    _add_points(axes, record, colors, outline)


def _add_arrows(axes: Axes, record: PlottableRecord, color: str) -> None:
    """Add an arrowhead in the middle of each edge."""
    starts, ends = record.pos[record.edge_index]
    along = ends - starts
    length = np.linalg.norm(along, axis=1)
    has_direction = length > 0  # False for self loops
    middle = (starts + 0.6 * along)[has_direction]
    direction = along[has_direction] / length[has_direction, None]
    crowding = min(1.0, (200 / max(1, len(along))) ** 0.5)
    size = 0.16 * _relative_figure_size(axes) * crowding  # inches
    axes.quiver(
        *middle.T,
        *direction.T,
        color=color,
        alpha=0.65,
        angles="xy",
        units="inches",
        scale_units="inches",
        scale=1 / size,
        width=0.02 * size,
        headwidth=30,
        headlength=40,
        headaxislength=40,
        pivot="tip",
        zorder=1,
    )


def _draw_points(axes: Axes, record: PlottableRecord, layer: Layer | None, up: str) -> None:
    lines = _record_lines(record)
    if record.own_colors is not None:
        lines[-1] += ", in their own colours"
    _set_title(axes, *lines)
    _set_limits(axes, record.pos, up)
    outline = "none"
    if record.picture is not None:
        _draw_picture(axes, record.picture)
        outline = current_style().background_color
    _add_points(axes, record, node_colors(layer, len(record.pos)), outline)
    if record.metres:
        _add_metre_bar(axes, record)


def _add_points(axes: Axes, record: PlottableRecord, colors: F64, outline: str) -> None:
    """Draw the nodes, larger if there are few, and in 3D paler with distance."""
    count = max(1, len(record.pos))
    style: dict[str, object] = {
        "s": float(np.clip(14_000 / count, 3, MAX_POINT_AREA)) * _relative_figure_size(axes) ** 2,
        "linewidths": 0.6 * _relative_figure_size(axes),
        "edgecolors": outline,
        "clip_on": False,
        "zorder": 3,
    }
    if record.pos.shape[1] == 3:
        style["depthshade"] = False  # matplotlib's depth shading makes points transparent
        colors = _fade_by_distance(axes, record.pos, colors)
    axes.scatter(*record.pos.T, c=colors, **style)


def _fade_by_distance(axes: Axes, points: Array, colors: F64) -> F64:
    """Mix the background into colours (N, 4) of points (N, 3) by their distance from the viewer."""
    from matplotlib.colors import to_rgba
    from mpl_toolkits.mplot3d.proj3d import proj_transform

    _, _, depth = proj_transform(*points.T, axes.get_proj())
    depth = np.asarray(depth)
    depth_range = float(np.ptp(depth)) if len(depth) else 0.0
    relative_depth = (depth - depth.min(initial=0)) / max(depth_range, 1e-9)
    fraction = HAZE * relative_depth[:, None]
    ground = np.array(to_rgba(current_style().background_color))
    return np.asarray(colors + fraction * (ground - colors), np.float64)


def _draw_edges(axes: Axes, record: PlottableRecord, layer: Layer | None, up: str) -> None:
    _set_limits(axes, record.pos, up)
    if record.picture is not None:
        _draw_picture(axes, record.picture, alpha=0.35)

    edges = record.sample_edges()
    count = edges.shape[1]
    segments = _segments(record, edges)
    joins_classes = np.zeros(count, bool)
    width = 0.8 if count <= 2 * MAX_SHARED_PANEL_NODES else 0.35
    if record.y is not None:
        sources, targets = record.y[edges]
        joins_classes = sources != targets
    colors = node_colors(layer, len(record.pos))[edges[1]]
    # Pale and below, where they would hide the others. These are opaque and not paler with distance:
    # the floor's blue would become the window's.
    _add_lines(axes, segments[joins_classes], current_style().line_color, width / 2, alpha=1)
    _add_lines(axes, segments[~joins_classes], colors[~joins_classes], width, alpha=1)

    total = record.edge_index.shape[1]
    lines = [count_with_noun(total, "edge")]
    if count < total:
        lines = [f"{count:,} of {total:,} edges"]
    if record.y is not None:
        lines.append(f"{_class_joining_text(record)}, drawn grey")
    _set_title(axes, *lines)


def _segments(record: PlottableRecord, edges: I64) -> Array:
    """Return the ends (E, 2, 2 or 3) of the lines of edges (2, E)."""
    segments = record.pos[edges.T]
    if record.position_source.startswith(LATTICE):
        return stubs_beyond_borders(segments)
    return segments


def _add_lines(
    axes: Axes, segments: Array, colors: object, width: float, alpha: float = 0.65
) -> None:
    """Add lines (E, 2, 2 or 3) with a width in points."""
    from matplotlib.collections import LineCollection
    from mpl_toolkits.mplot3d.art3d import Line3DCollection

    lines: Any = Line3DCollection if segments.shape[-1] == 3 else LineCollection
    style = {"alpha": alpha, "clip_on": False, "linewidths": width * _relative_figure_size(axes)}
    axes.add_collection(lines(segments, colors=colors, **style))


def _class_joining_text(record: PlottableRecord) -> str:
    assert record.y is not None
    sources, targets = record.y[record.edge_index]
    fraction = (sources != targets).sum() / max(len(sources), 1)
    return f"{fraction:.1%} join two classes"


def _record_lines(record: PlottableRecord, *, edges: bool = False) -> list[str]:
    """Return key and counts of a record, the lines of its title."""
    facts = count_with_noun(len(record.pos), "node")
    if edges:
        facts += f", {count_with_noun(record.edge_index.shape[1], 'edge')}"
        if record.is_directed:
            facts += ", directed"
    if record.position_source:
        facts += f" ({record.position_source})"
    name = f"record {record.key}" if record.key.isdigit() else record.key
    return [name, facts]


def _set_title(axes: Axes, *lines: str) -> None:
    """Set the title of a panel, wrapped to its width."""
    inches = TITLE_WIDTH * axes.figure.get_figwidth() * len(axes.get_subplotspec().colspan)
    letters = int(inches * current_style().letters_per_inch)
    axes.set_title("\n".join(textwrap.fill(line, letters) for line in lines), linespacing=1.1)


def _relative_figure_size(axes: Axes) -> float:
    """Return the width of the figure relative to the default, to scale points and lines."""
    return float(axes.figure.get_figwidth() / FIGURE_WIDTH)


def _draw_picture(axes: Axes, picture: U8, alpha: float = 1.0) -> None:
    """Draw an image behind the nodes; the centre of its first pixel is the origin."""
    height, width = picture.shape[:2]
    box = (-0.5, width - 0.5, 0.5 - height, 0.5)
    axes.imshow(
        picture,
        extent=box,
        alpha=alpha,
        zorder=0,
        interpolation="antialiased",
    )
    axes.axis(box)


def _set_limits(axes: Axes, pos: Array, up: str) -> None:
    """Set equal scales on all axes and the limits of the data; hide the axes."""
    low = np.zeros(3)
    high = np.ones(3)
    if len(pos):
        low = pos.min(axis=0)
        high = pos.max(axis=0)
    longest = float((high - low).max(initial=0))
    extent = np.maximum(high - low, 1e-6 + 0.02 * longest)
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


def _add_metre_bar(axes: Axes, record: PlottableRecord) -> None:
    """Add a scale bar of a round length along the lower edge of a point cloud."""
    from mpl_toolkits.mplot3d.proj3d import proj_transform

    low = record.pos.min(axis=0)
    across = float(np.ptp(record.pos[:, 0]))
    if across <= 0:
        return
    length = round_length(across)
    start = low - np.eye(3)[1] * 0.15 * across  # in front of the cloud
    end = start + np.eye(3)[0] * length
    (bar,) = axes.plot(
        *np.stack([start, end]).T, color=current_style().text_color, linewidth=2, clip_on=False
    )
    bar.set_in_layout(False)  # its 3D bounding box would distort the layout
    x, y, _ = proj_transform(*(start + end) / 2, axes.get_proj())
    text = axes.annotate(
        format_length(length),
        (x, y),
        xytext=(0, -LABEL_DISTANCE),
        textcoords="offset points",
        ha="center",
        va="top",
        fontsize=NOTE_FONT_SIZE,
    )
    text.set_in_layout(False)


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
    max_degree = max(max_degrees)
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
        axes.set_xscale("function", functions=(lambda x: np.log(x + 1), lambda x: np.exp(x) - 1))
        axes.set_xticks([tick for tick in DEGREE_TICKS if tick < bins[-1]])
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
    place = {"cax": axes.inset_axes((0, -0.1, 1, 0.06)), "orientation": "horizontal"}
    bar = draw_color_bar(axes, layer, **place)
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


def _draw_classes(axes: Axes, layer: Categories) -> None:
    all_counts = np.array(layer.counts)
    shown = np.flatnonzero(all_counts)
    names = np.array(layer.labels)[shown].tolist()
    colors = np.array(layer.colors)[shown]
    _draw_bars(axes, names, all_counts[shown], colors, total=all_counts.sum())
    axes.set(title="classes", xlabel="share of nodes")
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
    bars = axes.barh(rows, np.divide(counts, total), color=colors)
    numbers = [f"{count:,}" for count in counts]
    axes.bar_label(bars, numbers, padding=3, fontsize=NOTE_FONT_SIZE)
    axes.set_yticks(rows, map(shorten_middle, names))
    axes.set_ylim(max(len(rows), 5) - 0.4, -0.6)
    axes.margins(x=0.15)
    axes.locator_params("x", nbins=4)


def _draw_label(axes: Axes, record: PlottableRecord, labels: Labels | None) -> None:
    """Draw the label of the graph in comparison with the labels of all graphs."""
    if labels is None or record.label_value is None:
        axes.set_title("label of the graph")
        alignment = {"ha": "center", "va": "center", "transform": axes.transAxes}
        axes.text(0.5, 0.5, record.label, **alignment)
        axes.set_axis_off()
    elif labels.counts is not None:
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
    _set_title(axes, "labels of all graphs", "coloured: this graph")
    axes.set_xlabel("graphs")
    _label_whole_numbers(axes.xaxis, bins=4)


def _draw_target(axes: Axes, record: PlottableRecord, values: Array, unit: str) -> None:
    """Draw a histogram of the target over all graphs, with a line for this record."""
    axes.hist(values[np.isfinite(values)], bins=30, color=current_style().line_color)
    axes.axvline(float(np.asarray(record.label_value).item()), color=current_style().palette[1])
    text = f"{record.label} {unit}".strip()
    _set_title(axes, f"label of this graph: {text}")
    axes.set(xlabel=unit or "label", ylabel="graphs")
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
    axes.barh(rows, np.ones(len(rows)), height=0.5, color=current_style().line_color)
    axes.plot((median - low) / width, rows, "|", color=current_style().text_color, markersize=9)
    positions = ((record_label - low) / width).clip(-0.06, 1.06)
    axes.plot(positions, rows, "o", color=current_style().palette[1])
    texts = [line.replace("  ", ": ") for line in record.label.split("\n")]
    axes.set_yticks(rows, texts)
    axes.set_ylim(max(len(rows), 5) - 0.4, -0.6)
    axes.set(xlim=(-0.1, 1.1), xticks=[0, 1], xticklabels=["5 %", "95 %"])
    axes.set(title="labels of this graph", xlabel="among all graphs; |: median")


def _label_whole_numbers(axis: Any, bins: int = 6) -> None:
    """Label an axis of counts with whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=bins, integer=True, min_n_ticks=1))
    axis.set_major_formatter("{x:,.0f}")
