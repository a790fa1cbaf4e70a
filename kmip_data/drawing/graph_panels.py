"""Draw one graph: nodes over edges, the cells of a picture, or the formula of a molecule."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any, Literal

import numpy as np

from kmip_data.arrays import F64, I64, Array
from kmip_data.drawing.layers import Categories, Layer
from kmip_data.drawing.molecules import PIXELS_PER_INCH, draw_molecule
from kmip_data.drawing.ordered_layouts import LATTICE, LAYERS, SPRINGS, stubs_beyond_borders
from kmip_data.drawing.plottable_record import PlottableRecord
from kmip_data.drawing.plotted_layers import node_colors
from kmip_data.drawing.style import (
    NOTE_FONT_SIZE,
    TEXT_CONTRAST,
    Axes,
    current_style,
    readable_color,
)
from kmip_data.text import shorten_middle

#: Directions to the right, up and to the viewer of 3D records, 22° above and 58° from the x axis.
VIEW = ((0.848, 0.53, 0), (-0.199, 0.318, 0.927), (0.491, -0.786, 0.375))
COVERED = 0.1  #: fraction of a panel that its nodes cover
COVERED_BY_LATTICE = 0.3
COVERED_BY_CLOUD = 1.1  #: points of a surface overlap
POINT_AREAS = (1.0, 130.0)  #: least and largest square points of a node
#: Least and largest area of nodes with few and many edges relative to that of most nodes, by layout.
GROWTH = {SPRINGS: (0.64, 9.0), LAYERS: (0.64, 2.25)}
MIN_OUTLINED_AREA = 12.0  #: square points of a node; smaller ones would be all outline
MAX_NAMES = 100  #: names of nodes, where there is room
MAX_EDGES = {2: 40_000, 3: 2_000}  #: in a plane and in space; more would hide the nodes
LEAST_WIDTH = 0.6  #: of edges that are as wide as their numbers, relative to others
MOST_WIDTH = 2.6
MAX_ARROWS = 300  #: more directed edges are lines
MAX_FADE = 0.5  #: of the farthest points into the ground, and of their width
RIMS = ("#ffffff", "#707070")  #: of nodes in dark and light cells, and their edges
LIGHT = 0.75  #: mean of the channels of a light colour
EDGE_ON_PICTURE = (0.4, 0.22)  #: points of width, and opacity
VICINITY = 0.1  #: of the width of a graph, in which the members of a class are counted
UNKNOWN = 0.6  #: opacity of a question mark
MARKED_ROWS = 20  #: rows and columns of a field that are also drawn enlarged
CELL_PIXELS = 300  #: width and height of a picture of cells
BORDER = 0.04  #: around the positions, relative to the width of a panel
#: Right, left, above and below a point, then at its corners.
NAME_SIDES = np.array([[1, 0], [-1, 0], [0, 1], [0, -1], [1, 1], [1, -1], [-1, 1], [-1, -1]])
NAME_GAP = 5  #: points between two names
NAME_DISTANCES = (2, 8)  #: points between a name and its own node, and at least any other node
BENDS = (0, 0.06, -0.06, 0.12, -0.12, 0.2, -0.2, 0.3, -0.3)  #: of edges, relative to their length
CLEARANCE = 2.0  #: of arrows from the middle of other nodes, relative to their radius
CURVE_POINTS = 129  #: of an arrow, at which it may enter the box of a node
LINE_POINTS = 33  #: of an edge, at which it may enter the box of a name


def plane_positions(record: PlottableRecord, up: Literal["y", "z"]) -> F64:
    """Return the places of nodes in the plane of the picture and their order, (N, 3).

    Nodes are drawn in the order of the last column: near points over far ones, and hubs over others.
    """
    if record.pos.shape[1] == 2:
        return np.column_stack([record.pos, np.sum(record.degrees(), axis=0)])
    pos: F64 = record.pos if up == "z" else record.pos[:, [2, 0, 1]]
    if len(pos):
        pos = pos - (pos.max(axis=0) + pos.min(axis=0)) / 2
    turns = [pos, pos * (-1, -1, 1)]
    turns += [turned[:, [1, 0, 2]] * (-1, 1, 1) for turned in turns]
    views = [turned @ np.transpose(VIEW) for turned in turns]
    return np.asarray(min(views, key=lambda view: view[:, 2].sum()))  # walls are behind the room


def has_arrows(record: PlottableRecord) -> bool:
    """True if edges are drawn as arrows: they are directed and few."""
    edges = record.edge_index.shape[1]
    return record.is_directed and edges <= MAX_ARROWS and not record.is_picture


def has_edges(record: PlottableRecord) -> bool:
    """True if edges are drawn: they are not too many."""
    return len(record.edge_index[0]) <= MAX_EDGES[record.pos.shape[1]]


def drawn_edges(record: PlottableRecord) -> I64:
    """Return the positions of the edges that are drawn, (D,): arrows, or one line for each pair."""
    if has_arrows(record):
        return np.flatnonzero(record.edge_index[0] != record.edge_index[1])
    return record.first_edges()


def edge_strength(count: int) -> float:
    """Return the opacity of ``count`` edges, also their width in points unless nodes are small."""
    return float(np.clip(30 / np.sqrt(max(1, count)), 0.3, 0.9))


def is_field(record: PlottableRecord) -> bool:
    """True for a lattice whose nodes are drawn as the cells of a field, without edges."""
    return record.position_source.startswith(LATTICE) and not has_edges(record)


def draw_formula(axes: Axes, record: PlottableRecord, bonds_across: float, size: F64) -> None:
    """Show the formula of a molecule in a panel of a ``size`` (2,) in inches, ``bonds_across`` wide."""
    axes.set_axis_off()
    bond = round(size[0] / bonds_across * PIXELS_PER_INCH)
    drawn = draw_molecule(record.atoms, record.edge_index, np.asarray(record.bonds), bond)
    if drawn is not None:
        height, width = drawn[0].shape[:2]
        box = (-width / 2, width / 2, -height / 2, height / 2)
        axes.imshow(drawn[0], extent=box, aspect="auto", clip_on=False)
        right, top = size * PIXELS_PER_INCH / 2
        axes.axis((-right, right, -top, top))


def draw_field(
    axes: Axes, record: PlottableRecord, layer: Layer, size: F64, is_part: bool = False
) -> None:
    """Draw the nodes of a lattice as cells, in a panel of a ``size`` (2,) in inches.

    If nodes have marks, a rectangle shows where the part is, the nodes in the middle with their marks.
    """
    from matplotlib.patches import Rectangle

    pos = record.pos
    is_marked = (abs(pos - pos.mean(axis=0)) < MARKED_ROWS / 2).all(axis=1)
    nodes = np.flatnonzero(is_marked | (not is_part))
    columns = np.unique(pos[nodes, 0])
    rows = np.unique(pos[nodes, 1])[::-1]
    set_limits(axes, np.vstack([pos[nodes] - 0.5, pos[nodes] + 0.5]), size)
    axes.pcolormesh(
        columns,
        rows,
        node_colors(layer, len(pos))[nodes].reshape(len(rows), len(columns), 4),
        edgecolors=current_style().background_color,
        linewidth=is_part,
    )
    if is_part and record.symbols:
        for node in nodes:
            axes.text(
                *pos[node],
                record.symbols[1][node],
                ha="center",
                va="center_baseline",
                alpha=UNKNOWN if record.symbols[1][node] == "?" else 1,
                fontsize=NOTE_FONT_SIZE,
            )
    if record.symbols:
        corner = pos[is_marked].min(axis=0) - 0.5
        sides = np.ptp(pos[is_marked], axis=0) + 1
        axes.add_patch(
            Rectangle(
                corner, *sides, fill=False, edgecolor=current_style().text_color, clip_on=False
            )
        )


def draw_graph(
    axes: Axes, number: int, sheet: Sequence[tuple[PlottableRecord, F64]], layer: Layer, size: F64
) -> None:
    """Draw nodes in the colours of ``layer`` over edges, in a panel of a ``size`` (2,) in inches.

    The record and its :func:`plane_positions` (N, 3) are the ``number``-th of the ``sheet``,
    where panels have this size, and nodes one size.
    """
    from matplotlib.colors import to_rgb

    record, places = sheet[number]
    style = current_style()
    is_own = layer is record.own_colors
    set_limits(axes, np.vstack([places[:, :2], *_curves(record).values()]), size)
    if record.metres and record.pos.shape[1] == 3:
        _draw_box(axes, number, sheet, size)
    colors = node_colors(layer, len(places))
    areas = np.full(len(places), min(_node_area(*other, size) for other in sheet))
    layout = record.position_source.partition(",")[0]
    if layout in GROWTH:  # hubs are larger
        pairs = record.edge_index[:, record.first_edges()]
        neighbors = np.bincount(pairs.ravel(), minlength=len(areas))
        areas *= (neighbors / max(1, neighbors.mean())).clip(*GROWTH[layout])
    outlines = np.where(areas < MIN_OUTLINED_AREA, "none", style.background_color)
    if record.is_picture:
        _add_picture(axes, record, alpha=1 if is_own else 0.3)
        if is_own:
            areas /= 4
    if is_own:  # colours may be those of the ground
        outlines = np.where(colors[:, :3].mean(axis=1) < LIGHT, *RIMS)
    if record.pos.shape[1] == 3:  # far points are paler and smaller
        outlines[outlines != RIMS[1]] = "none"
        depth = places[:, 2].max(initial=0) - places[:, 2]
        fade = MAX_FADE * depth / max(depth.max(initial=0), 1e-6)
        areas *= (1 - fade) ** 2
        colors[:, :3] += fade[:, None] * (to_rgb(style.background_color) - colors[:, :3])

    order = np.argsort(places[:, 2], kind="stable")
    pos = places[order, :2]
    _add_names(axes, record, order, pos, np.sqrt(areas[order]) / 2)
    has_communities = record.position_source.startswith(SPRINGS) and record.y is not None
    if has_communities and isinstance(layer, Categories) and not record.ids:
        _add_class_names(axes, layer, places[:, :2])
    if record.edge_index.size and has_edges(record):
        _add_edges(axes, record, layer, colors, outlines, places[:, :2], np.sqrt(areas) / 2)
    markers: dict[str, Any] = {"o": slice(None)}
    if record.symbols and "▲" in record.symbols[1]:
        is_up = record.symbols[1][order] == "▲"
        markers = {"^": is_up, "v": ~is_up}
    for marker, drawn in markers.items():
        axes.scatter(
            *pos[drawn].T,
            marker=marker,
            c=colors[order][drawn],
            s=areas[order][drawn],
            linewidths=0.6,
            edgecolors=list(outlines[order][drawn]),
            clip_on=False,
            zorder=3,
        )


def _draw_box(
    axes: Axes, number: int, sheet: Sequence[tuple[PlottableRecord, F64]], size: F64
) -> None:
    """Draw the box around a cloud in metres; the floors of a ``sheet`` have one height, and one scale."""
    boxes = [_box_corners(record.pos, places) for record, places in sheet]
    corners = boxes[number]
    if not len(corners):
        return
    low = corners.min(axis=0)
    extents = np.max([np.ptp(box, axis=0) for box in boxes if len(box)], axis=0)
    set_limits(axes, np.vstack([low, low + extents]), size)
    # Join the corners that differ in one coordinate.
    for first, second in combinations(range(len(corners)), 2):
        if (first ^ second).bit_count() == 1:
            ends = corners[[first, second]]
            axes.plot(*ends.T, color=current_style().line_color, linewidth=1, zorder=1)


def _box_corners(pos: F64, places: F64) -> F64:
    """Return the corners of the box around positions (N, 3), which have ``places`` (N, 3) in the view.

    They are (8, 2), or (0, 2) for points of one plane.
    """
    if pos.shape[1] < 3:
        return np.empty((0, 2))
    # The view turns and moves positions; points of one plane do not determine it.
    view, _, rank, _ = np.linalg.lstsq(np.insert(pos, 3, 1, axis=1), places)
    if rank < 4:
        return np.empty((0, 2))
    corners = np.array(list(product(*np.stack([pos.min(axis=0), pos.max(axis=0)], axis=1))))
    return np.asarray(np.insert(corners, 3, 1, axis=1) @ view)[:, :2]


def set_limits(axes: Axes, pos: F64, size: F64) -> None:
    """Fit positions (N, 2) into a panel of a ``size`` (2,) in inches."""
    axes.set_axis_off()
    corners = pos if len(pos) else np.zeros((1, 2))
    low = corners.min(axis=0)
    high = corners.max(axis=0)
    inches_per_unit = ((size - 2 * BORDER * size[0]) / np.maximum(high - low, 1e-6)).min()
    left, bottom = (low + high - size / inches_per_unit) / 2
    right, top = (low + high + size / inches_per_unit) / 2
    axes.axis((left, right, bottom, top))


def _node_area(record: PlottableRecord, places: F64, size: F64) -> float:
    """Return the square points of most nodes of a graph in a panel of a ``size`` (2,) in inches."""
    covered = COVERED
    if record.pos.shape[1] == 3:
        covered = COVERED_BY_CLOUD
    elif record.position_source.startswith(LATTICE):
        covered = COVERED_BY_LATTICE
    nodes = len(record.pos)
    area = np.clip(covered * 72**2 * np.prod(size) / max(1, nodes), *POINT_AREAS)
    if record.position_source.startswith(LAYERS):  # nodes of a layer are one apart
        points_per_unit = 72 * size[0] / (np.ptp(places[:, 0]) + 2)
        area = min(area, (0.6 * points_per_unit) ** 2)
    return float(area)


def _add_edges(
    axes: Axes,
    record: PlottableRecord,
    layer: Layer,
    colors: F64,
    outlines: Array,
    pos: F64,
    radius: F64,
) -> None:
    """Draw edges within a class in its colour and others grey; few directed ones are arrows."""
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgba, to_rgba_array
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    drawn = drawn_edges(record)
    edges = record.edge_index[:, drawn]
    edge_color = current_style().missing
    is_lattice = record.position_source.startswith(LATTICE)
    if is_lattice:  # an edge across the border leaves it at both ends
        edges = np.hstack([edges, edges[::-1]])
        edge_color = current_style().line_color
    count = edges.shape[1]
    strength = edge_strength(count)
    widths = np.full(count, min(strength, np.median(radius) / 2))
    if record.edge_widths is not None:
        _, values = record.edge_widths
        shares = (values - values.min()) / np.ptp(values)
        widths *= LEAST_WIDTH + (MOST_WIDTH - LEAST_WIDTH) * shares[np.resize(drawn, count)]
    shades = np.tile(to_rgba(edge_color, strength), (count, 1))
    if isinstance(layer, Categories) and record.y is not None:
        is_within = record.y[edges[0]] == record.y[edges[1]]
        shades[is_within, :3] = colors[edges[0, is_within], :3]
        shades[is_within, 3] *= 0.7

    if not has_arrows(record):
        segments = pos[edges.T]
        if is_lattice:
            segments = stubs_beyond_borders(segments)
        if layer is record.own_colors and record.is_picture:
            widths[:], opacity = EDGE_ON_PICTURE
            shades = to_rgba_array(outlines[edges[0]], opacity)
        axes.add_collection(
            LineCollection([*segments], colors=shades, linewidths=widths, clip_on=False)
        )
        return
    has_reverse = ~record.has_no_reverse()[drawn]
    pixels = axes.transData.transform(pos)
    half = CLEARANCE * radius[:, None] * axes.figure.dpi / 72
    dots = np.hstack([pixels - half, pixels + half])
    curves = _curves(record)
    for edge, (source, target), is_double, shade, width in zip(
        drawn.tolist(), edges.T, has_reverse, shades, widths, strict=True
    ):
        if edge in curves:  # up to the rim of the target
            curve = curves[edge]
            away = np.hypot(*(axes.transData.transform(curve) - pixels[target]).T)
            visible = curve[away > radius[target] * axes.figure.dpi / 72]
            line: dict[str, Any] = {"path": Path(visible)}
        else:
            bend = _free_bend(pixels[source], pixels[target], dots, BENDS[int(is_double) :])
            line = {"posA": pos[source], "posB": pos[target], "connectionstyle": bend}
        arrow = FancyArrowPatch(
            **line,
            arrowstyle="-|>",
            mutation_scale=radius[target] + 2,
            shrinkA=0,
            shrinkB=radius[target],
            linewidth=width,
            color=shade,
            clip_on=False,
        )
        axes.add_patch(arrow)


def _curves(record: PlottableRecord) -> dict[int, F64]:
    """Return the curves (P, 2) of arrows that pass layers which they skip, by position of the edge."""
    if not has_arrows(record):
        return {}
    ends = record.pos[record.edge_index]
    return {
        edge: _smooth_curve(np.vstack([ends[0, edge], places, ends[1, edge]]))
        for edge, places in record.routes().items()
    }


def _smooth_curve(places: F64) -> F64:
    """Return points (P, 2) of a curve through places that lie below each other."""
    from scipy.interpolate import CubicHermiteSpline

    across, up = places[::-1].T
    heights = np.linspace(up[-1], up[0], CURVE_POINTS)
    curve = CubicHermiteSpline(up, across, np.gradient(across, up))
    return np.column_stack([curve(heights), heights])


def _free_bend(start: F64, end: F64, boxes: Array, bends: Sequence[float]) -> str:
    """Return the first bend between two places (2,) that touches the fewest ``boxes`` (B, 4)."""
    from matplotlib.bezier import BezierSegment

    across, up = end - start
    costs = []
    for bend in bends:
        corner = (start + end) / 2 + bend * np.array([up, -across])  # as matplotlib bends arrows
        curve = BezierSegment([start, corner, end])(np.linspace(0, 1, CURVE_POINTS))[:, None]
        is_inside = (curve >= boxes[:, :2]) & (curve <= boxes[:, 2:])
        costs.append(is_inside.all(axis=2).any(axis=0).sum())
    return f"arc3,rad={bends[int(np.argmin(costs))]}"


def _add_picture(axes: Axes, record: PlottableRecord, alpha: float) -> None:
    """Draw the picture behind the nodes, or without one cells in the colours of the nearest nodes."""
    from scipy.spatial import KDTree

    picture: Array | None = record.picture
    if picture is None:
        box = (*axes.get_xlim(), *axes.get_ylim())
        x = np.linspace(box[0], box[1], CELL_PIXELS)
        y = np.linspace(box[3], box[2], CELL_PIXELS)
        colors = node_colors(record.own_colors, len(record.pos))
        picture = colors[KDTree(record.pos).query(np.dstack(np.meshgrid(x, y)))[1]]
    else:
        height, width = picture.shape[:2]
        box = (-0.5, width - 0.5, 0.5 - height, 0.5)  # the centre of the first pixel is the origin
    axes.imshow(picture, extent=box, alpha=alpha)
    axes.axis(box)


def _add_names(axes: Axes, record: PlottableRecord, order: I64, places: F64, radius: F64) -> None:
    """Write names where the own node is clearly the nearest, those of the last in ``order`` first.

    Of the sides of a node, a name takes the one that the fewest edges cross. ``places`` (N, 2) and
    ``radius`` (N,), in points, have that order.
    """
    from matplotlib.patheffects import withStroke

    points = 72 / axes.figure.dpi
    nodes = points * axes.transData.transform(places)
    room = points * axes.get_window_extent().get_points()
    source, target = np.argsort(order)[record.edge_index]
    lines = np.linspace(nodes[source], nodes[target], LINE_POINTS)
    taken = np.empty((0, 4))
    for number in range(len(record.ids))[::-1][:MAX_NAMES]:
        text = axes.annotate(
            shorten_middle(record.ids[order[number]]),
            places[number],
            xytext=(0, 0),
            textcoords="offset points",
            fontsize=NOTE_FONT_SIZE,
            path_effects=[withStroke(linewidth=2, foreground=current_style().background_color)],
            ha="center",
            va="center",
            zorder=4,
        )
        half = points * text.get_window_extent().size / 2
        gaps = (radius[number] + NAME_DISTANCES[0]) / np.hypot(*NAME_SIDES.T)
        offsets = NAME_SIDES * (gaps[:, None] + half)
        middles = nodes[number] + offsets
        boxes = np.hstack([middles - half, middles + half])
        away = np.maximum(abs(np.delete(nodes, number, 0) - middles[:, None]) - half, 0)
        distances = np.hypot(*away.T).T - np.delete(radius, number)
        is_taken = (distances < NAME_DISTANCES[1]).any(axis=1)
        is_below = (taken[:, :2] < boxes[:, None, 2:]).all(axis=2)
        is_above = (taken[:, 2:] > boxes[:, None, :2]).all(axis=2)
        is_taken |= np.any(is_below & is_above, axis=1)
        is_taken |= (boxes[:, :2] < room[0]).any(axis=1) | (boxes[:, 2:] > room[1]).any(axis=1)
        is_crossed = np.all(abs(lines - middles[:, None, None]) < half, axis=3).any(axis=1)
        costs = np.where(is_taken, np.inf, is_crossed.sum(axis=1))
        side = costs.argmin()
        if costs[side] < np.inf:
            text.set_position(offsets[side])
            taken = np.vstack([taken, boxes[side] + np.repeat([-NAME_GAP, NAME_GAP], 2)])
        else:
            text.remove()


def _add_class_names(axes: Axes, layer: Categories, places: F64) -> None:
    """Write the name of each class where most of its nodes' ``places`` (N, 2) lie together."""
    from matplotlib.patheffects import withStroke
    from scipy.spatial import KDTree

    for code in set(layer.codes):
        members = places[layer.codes == code]
        near = KDTree(members).query_ball_point(
            members, VICINITY * np.ptp(places), return_length=True
        )
        axes.text(
            *members[near.argmax()],
            layer.labels[code],
            color=readable_color(layer.colors[code], TEXT_CONTRAST),
            fontweight="bold",
            path_effects=[withStroke(linewidth=3, foreground=current_style().background_color)],
            ha="center",
            va="center",
            zorder=4,
        )
