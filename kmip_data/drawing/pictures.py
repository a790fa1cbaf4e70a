"""Plots of records: nodes by class over their image, edges, degrees and classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from kmip_data.arrays import F32, I64, U8, Array
from kmip_data.drawing.style import NOTE, Axes, class_colors, look, new_figure, save, styled
from kmip_data.format.card import Card
from kmip_data.format.schema import Column, Schema
from kmip_data.manifest import dataset_names, load_manifest
from kmip_data.wording import counted

if TYPE_CHECKING:
    from kmip_data.reading.dataset import ShardedDataset

Values = Mapping[str, Array]  #: attributes of an item as arrays

MAX_EDGES = 20_000  #: most edges drawn, a fixed sample stated in the title
FEW = 1_000  #: most nodes of a 2D record drawn as larger dots
ELEVATION = 22.0  #: viewing direction of 3D records, in degrees
AZIMUTH = -58.0
NO_CLASS = "nodes have no class"
BY_RDKIT = "drawn by RDKit from the features"
_LINE = {"alpha": 0.65, "clip_on": False}
WIDTH = 16.0  #: inches of four panels
HIGH = 4.1  #: inches of a row
RIM = 16  #: pixels around the picture of a molecule
BONDS = ("single", "double", "triple", "aromatic")  #: as Open Graph Benchmark numbers them


@dataclass(frozen=True)
class Drawing:
    """One graph as arrays."""

    key: str  #: upstream key, shown as the title
    pos: Array  #: (N, 2) or (N, 3), positions of the nodes
    y: I64 | None  #: (N,), class of each node; None where nodes have none
    edge_index: I64  #: (2, E), row 0 sources and row 1 targets
    picture: U8 | None = None  #: (H, W, 3), image below the nodes; ``pos`` is column and minus row
    position_source: str = ""  #: origin of computed positions
    label: str = ""  #: label of the graph in words, or empty
    values: F32 | None = None  #: (N,), numeric target of each node
    unit: str = ""  #: unit of ``values``
    bonds: I64 | None = None  #: (E,) kind of each edge of a molecule, a position in :data:`BONDS`

    def degrees(self) -> tuple[I64, I64]:
        """Return in-degree and out-degree of each node, int64 ``(N,)``."""
        sources, targets = self.edge_index
        nodes = len(self.pos)
        return np.bincount(targets, minlength=nodes), np.bincount(sources, minlength=nodes)

    def some_edges(self, limit: int = MAX_EDGES) -> I64:
        """Return all edges, or a fixed sample of ``limit``: int64 ``(2, ≤ limit)``."""
        edges = self.edge_index.shape[1]
        if edges <= limit:
            return self.edge_index
        generator = np.random.Generator(np.random.PCG64(0))
        chosen = generator.choice(edges, size=limit, replace=False)
        return self.edge_index[:, np.sort(chosen)]


def drawing_of(dataset: ShardedDataset, position: int) -> Drawing:
    """Return a record as arrays.

    Missing positions come from RDKit's drawing, or from springs.
    """
    data = dataset[position]
    schema = dataset.schema
    values = {}
    for name, value in data.to_dict().items():
        if hasattr(value, "numpy"):
            values[name] = value.numpy()
    edge_index = values.get("edge_index", np.zeros((2, 0), dtype=np.int64))

    y = None
    label = ""
    target = None
    labels = schema.labels
    if labels is not None and labels.level == "node":
        label_values = values[labels.attribute]
        if labels.num_classes and not labels.shape:
            y = label_values.astype(np.int64)
        elif labels.shape in {(), (1,)}:
            target = label_values.reshape(-1).astype(np.float32)
    elif labels is not None and labels.level == "graph":
        label = label_text(labels, values[labels.attribute][0], dataset.class_names)

    pos, picture, source = _placed(
        schema,
        values,
        edge_index,
        int(data.num_nodes),
    )
    bonds = None
    if source == BY_RDKIT:
        bonds = values["edge_attr"][:, 0].astype(np.int64)
    return Drawing(
        key=dataset.keys[position],
        pos=pos.astype(np.float64),
        y=y,
        edge_index=edge_index,
        picture=picture,
        position_source=source,
        label=label,
        values=target,
        unit="" if labels is None else labels.unit,
        bonds=bonds,
    )


def _placed(
    schema: Schema,
    values: Values,
    edge_index: I64,
    nodes: int,
) -> tuple[Array, U8 | None, str]:
    """Return positions, their image, and the origin of computed positions."""
    from kmip_data.drawing.layouts import draw_molecule, is_molecule, layout

    # 1. Row and column of a superpixel; rows of a picture go down.
    fields_of_x: tuple[str, ...] = ()
    for column in schema.columns:
        if column.attribute == "x":
            fields_of_x = column.fields
        if column.level != "node":
            continue
        for number, (field, following) in enumerate(pairwise(column.fields)):
            if field.startswith("row") and following.startswith("column"):
                pair = values[column.attribute][:, number : number + 2]
                row, across = pair.astype(np.float64).T
                return np.column_stack([across, -row]), None, ""

    # 2. Positions in the plane or in space.
    pos = values.get("pos")
    if pos is not None and pos.shape in {(nodes, 2), (nodes, 3)}:
        return pos, None, ""

    # 3. None: those of RDKit, or of springs.
    if "edge_attr" in values and is_molecule(fields_of_x):
        drawn = draw_molecule(values["x"], edge_index, values["edge_attr"])
        if drawn is not None:
            picture, on_picture = drawn
            return on_picture * (1, -1), picture, BY_RDKIT
    return layout(edge_index, nodes), None, "places by springs, not of the data"


def label_text(column: Column, value: Array, names: Sequence[str]) -> str:
    """Format the label of a graph: class, positive labels, or targets."""
    if column.num_classes and not column.shape:
        return class_name(int(value), names)
    fields = column.fields or tuple(map(str, range(value.size)))
    named = zip(fields, value.ravel(), strict=True)
    if column.num_classes:
        holding = [name for name, holds in named if holds == 1]  # NaN: not known
        return "\n".join(holding) or "none holds"
    if value.size == 1 and not column.fields:
        return f"{value.item():.3g}"
    return "\n".join(f"{name}  {number:.3g}" for name, number in named)


@styled()
def draw_png(
    drawings: Sequence[Drawing],
    path: Path,
    *,
    title: str,
    footer: str,
    class_names: Sequence[str] = (),
    up: Literal["y", "z"] = "z",
) -> None:
    """Draw a row of panels per record into a PNG, SVG or PDF.

    The panels are the points by class, the edges (dark where they join two classes), the
    out-degrees with the in-degree, and the classes with their names and colours. The atoms and
    bonds of a molecule are one panel, as wide as two. ``title`` names the data (and marks a
    sample), ``footer`` has the attribution that the license requires, ``up`` is the axis that
    points up. Classes missing in ``class_names`` appear by number.
    """
    rows = len(drawings)
    figure = new_figure(WIDTH, 1.3 + HIGH * rows, title=title, footer=footer)
    grid = figure.add_gridspec(rows, 4, width_ratios=[1.15, 1.15, 0.85, 1.0])

    classes = len(class_names)
    for drawing in drawings:
        if drawing.y is not None:
            classes = max(classes, int(drawing.y.max(initial=-1)) + 1)
    colors = class_colors(classes, class_names)

    for row, drawing in enumerate(drawings):
        if _is_formula(drawing):
            _draw_molecule(figure.add_subplot(grid[row, :2]), drawing)
        else:
            spatial = {"projection": "3d"} if drawing.pos.shape[1] == 3 else {}
            points = figure.add_subplot(grid[row, 0], **spatial)
            _draw_points(points, drawing, colors, up)
            edges = figure.add_subplot(grid[row, 1], **spatial)
            _draw_edges(edges, drawing, colors, up)
        _draw_degrees(figure.add_subplot(grid[row, 2]), drawing)
        _draw_classes(
            figure.add_subplot(grid[row, 3]),
            drawing,
            colors,
            class_names,
        )
    save(figure, path)


def up_axis(card: Card) -> Literal["y", "z"]:
    """Return the upward axis of a dataset's clouds."""
    if card.dataset not in dataset_names():
        return "z"
    return load_manifest(card.dataset).up_axis


def class_name(number: int, names: Sequence[str]) -> str:
    """Return the name of a class, or its number."""
    return names[number] if number < len(names) else f"class {number}"


def broken_line(pos: Array, edges: I64) -> Array:
    """``(D, 3E)``: source, target, gap of every edge.

    One broken line is drawn faster than many lines.
    """
    line = np.full((edges.shape[1], 3, pos.shape[1]), np.nan, dtype=pos.dtype)
    line[:, :2] = pos[edges.T]
    return line.reshape(-1, pos.shape[1]).T


def _draw_molecule(axes: Axes, drawing: Drawing) -> None:
    """Show the cropped image of a molecule."""
    atoms = counted(len(drawing.pos), "node")
    edges = counted(drawing.edge_index.shape[1], "edge")
    axes.set_title(f"{drawing.key}\n{atoms}, {edges} ({drawing.position_source})")
    axes.imshow(_without_margins(drawing), interpolation="antialiased")
    axes.set_anchor("N")  # titles of a row on one line
    axes.set_axis_off()


def _is_formula(drawing: Drawing) -> bool:
    """Return True for a molecule whose nodes have no classes: its picture shows all of it."""
    return drawing.bonds is not None and drawing.y is None


def _without_margins(drawing: Drawing) -> U8:
    """Crop a molecule's image (H, W, 3) to its drawing and some pixels around it."""
    picture = drawing.picture
    assert picture is not None, "bonds are known where RDKit drew"
    rows, columns = np.nonzero((picture != picture[0, 0]).any(axis=2))
    if not len(rows):
        return picture
    top = max(rows.min() - RIM, 0)
    left = max(columns.min() - RIM, 0)
    return picture[top : rows.max() + RIM, left : columns.max() + RIM]


def _draw_points(axes: Axes, drawing: Drawing, colors: Sequence[str], up: str) -> None:
    key = drawing.key
    most = int(44 * _scale(axes) ** 0.5)
    if len(key) > most:  # wider than its panel
        key = f"{key[: most // 2]}…{key[-most // 2 + 1 :]}"
    title = f"{key}\n{counted(len(drawing.pos), 'node')}"
    if drawing.position_source:
        title += f" ({drawing.position_source})"
    axes.set_title(title)
    _frame(axes, drawing.pos, up)

    in_space = drawing.pos.shape[1] == 3
    few = not in_space and len(drawing.pos) <= FEW
    size = 14.0 if few else 3.0
    edge = 0.0
    if drawing.picture is not None:
        _draw_picture(axes, drawing.picture)
        size = 14.0
        edge = 0.5
    color: object = look().palette[0]
    if drawing.y is not None:
        color = np.array(colors)[drawing.y]
    elif drawing.values is not None:
        color = drawing.values
    style: dict[str, object] = {
        "s": size * _scale(axes) ** 2,
        "linewidths": edge,
        "edgecolors": "white",
        "clip_on": False,
    }
    if in_space:
        style["depthshade"] = False  # points far away would be pale
    axes.scatter(*drawing.pos.T, c=color, **style)


def _draw_edges(axes: Axes, drawing: Drawing, colors: Sequence[str], up: str) -> None:
    from matplotlib.collections import LineCollection
    from mpl_toolkits.mplot3d.art3d import Line3DCollection

    _frame(axes, drawing.pos, up)
    if drawing.picture is not None and drawing.y is not None:
        _draw_picture(axes, drawing.picture, alpha=0.35)

    shown = drawing.some_edges()
    segments = drawing.pos[shown.T]
    crossing = np.zeros(shown.shape[1], bool)  # edges between two classes
    width = 0.8 if shown.shape[1] <= 2 * FEW else 0.35
    line = {**_LINE, "linewidths": width * _scale(axes)}
    lines: Any = Line3DCollection if drawing.pos.shape[1] == 3 else LineCollection
    inside: object = look().palette[0]
    if drawing.y is not None:
        sources, targets = drawing.y[shown]
        crossing = sources != targets
        inside = [colors[number] for number in targets[~crossing]]
    axes.add_collection(lines(segments[~crossing], colors=inside, **line))
    axes.add_collection(lines(segments[crossing], colors=look().ink, **line))

    total = drawing.edge_index.shape[1]
    title = counted(total, "edge")
    if shown.shape[1] < total:
        title = f"{shown.shape[1]:,} of {total:,} edges"
    if drawing.y is not None:
        sources, targets = drawing.y[drawing.edge_index]
        share = (sources != targets).sum() / max(total, 1)
        title += f"\nhighlighted: {share:.1%} join two classes"
    axes.set_title(title)


def _scale(axes: Axes) -> float:
    """Return the size of the figure relative to the usual one, by which dots and lines shrink."""
    return float(axes.figure.get_figwidth() / WIDTH)


def _draw_picture(axes: Axes, picture: U8, alpha: float = 1.0) -> None:
    """Draw an image below the nodes; the centre of its first pixel is the origin."""
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


def _frame(axes: Axes, pos: Array, up: str) -> None:
    """Set equal scales on all axes, no ticks, and the limits of the data."""
    low = np.zeros(3)
    high = np.ones(3)
    if len(pos):
        low = pos.min(axis=0)
        high = pos.max(axis=0)
    longest = float((high - low).max(initial=0))
    extent = np.maximum(high - low, 1e-6 + 0.02 * longest)
    flat = pos.shape[1] == 2
    if flat:
        extent = extent + 0.04 * extent.max()  # whole dots at the border

    low = (low + high - extent) / 2
    high = low + extent
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    axes.set_axis_off()
    if flat:
        axes.set_aspect("equal", anchor="N")  # titles of a row on one line
        return
    axes.set_zlim(low[2], high[2])
    axes.view_init(elev=ELEVATION, azim=AZIMUTH, vertical_axis=up)
    # After setting the vertical axis, which rotates the aspect.
    axes.set_box_aspect(extent, zoom=0.95)  # a tall box fills its panel


def _draw_degrees(axes: Axes, drawing: Drawing) -> None:
    from matplotlib.ticker import MaxNLocator

    incoming, outgoing = drawing.degrees()
    constant = len(incoming) > 0 and incoming.min() == incoming.max()
    last = int(max(outgoing.max(initial=0), incoming.max(initial=0)))
    step = -(-(last + 1) // 40)
    bins = np.arange(0, last + step + 1, step) - 0.5
    room = 0.3 / _scale(axes)  # for the legend above the bars
    mean = len(drawing.edge_index[0]) / max(1, len(drawing.pos))
    log = last > 10 * max(1, mean)  # few hubs, one tall bar

    axes.hist(
        outgoing,
        bins=bins,
        color=look().palette[0],
        label="out-degree",
        log=log,
    )
    if constant:
        axes.axvline(
            incoming[0],
            ymax=1 / (1 + room),
            color=look().ink,
            linewidth=1.2,
            label=f"in-degree (all {incoming[0]})",
        )
    else:
        axes.hist(
            incoming,
            bins=bins,
            histtype="step",
            color=look().ink,
            label="in-degree",
            log=log,
        )
    axes.set(title="degrees", xlabel="edges of a node", ylabel="nodes")
    axes.margins(y=room)
    axes.legend(loc="upper left")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if not log:
        axes.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.yaxis.set_major_formatter("{x:,.0f}")


def _draw_classes(
    axes: Axes,
    drawing: Drawing,
    colors: Sequence[str],
    names: Sequence[str],
) -> None:
    from matplotlib.ticker import MaxNLocator

    if drawing.values is not None:
        axes.hist(drawing.values, bins=20, color=look().palette[0])
        axes.set(title="targets", xlabel=drawing.unit or "target", ylabel="nodes")
        return
    if drawing.y is None:
        axes.set_title("label of the graph" if drawing.label else "")
        axes.text(
            0.5,
            0.5,
            drawing.label or NO_CLASS,
            ha="center",
            va="center",
            transform=axes.transAxes,
        )
        axes.set_axis_off()
        return
    axes.set_title("classes")
    present, counts = np.unique(drawing.y, return_counts=True)
    numbers = present.tolist()
    rows = np.arange(len(numbers))
    bars = axes.barh(rows, counts, color=[colors[number] for number in numbers])
    axes.bar_label(bars, fmt="{:,.0f}", padding=3, fontsize=NOTE)
    axes.set_yticks(rows, [class_name(number, names) for number in numbers])
    axes.set_ylim(max(len(present), 5) - 0.4, -0.6)
    axes.margins(x=0.15)
    axes.set_xlabel("nodes")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    axes.xaxis.set_major_formatter("{x:,.0f}")
