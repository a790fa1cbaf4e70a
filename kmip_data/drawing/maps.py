"""Draw maps of a city, one per layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kmip_data.arrays import F32, F64, I64, U8, Array
from kmip_data.builds.home import Build
from kmip_data.drawing.graph_panels import BORDER, set_limits
from kmip_data.drawing.layers import Categories, Layer, Scale, class_layer, part_layer
from kmip_data.drawing.pictures import Cell, draw_cells
from kmip_data.drawing.plotted_layers import (
    Legend,
    class_key,
    class_legend,
    node_colors,
)
from kmip_data.drawing.style import (
    NOTE_FONT_SIZE,
    Axes,
    current_style,
    sequential_colors,
)
from kmip_data.errors import Command, UsageError
from kmip_data.format.build_facts import field_names
from kmip_data.format.card import SplitEntry
from kmip_data.format.reader import check_values
from kmip_data.format.schema import COORDINATE_ENCODING, EDGE_INDEX
from kmip_data.format.split_files import NO_PART, PART_CODES
from kmip_data.graphs.city_columns import is_city, project_to_metres
from kmip_data.reading.store import ShardStore, shared_store
from kmip_data.text import count_with_noun, format_length, format_parameters, round_length

if TYPE_CHECKING:
    from shapely import Geometry

ATTRIBUTION = "© OpenStreetMap contributors, ODbL 1.0"
GROUND_KINDS = ("green", "water")  #: from the lowest to the highest
#: Points of a kind of ground that is drawn: a city has 1,000, and the time grows with the square.
MAX_GROUND_POINTS = 10_000
#: Points of polygons that cross themselves and are mended; the time grows faster still.
MAX_MENDED_POINTS = 200
MAX_DETOUR = 1.25  #: street length relative to the straight line above which a street is dashed
DASHES = (2.6, (2.0, 1.2))  #: offset and pattern in line widths; begins in the middle of a gap
SAMPLE_WIDTH = 0.4  #: inches of a sample of a line or area
MIN_DOT, MAX_DOT = 0.7, 3.0  #: points across an intersection


@dataclass(frozen=True, kw_only=True)
class CityMap:
    """A city as arrays, ready to be drawn."""

    title: str  #: name of the city, marked if it is a sample
    options: str  #: build options
    credit: str  #: attribution of the map data; empty for a sample
    position: F64  #: (N, 2), metres east and north of the centre of the map
    streets: I64  #: (2, S), endpoints of each street, every pair once
    lengths: F32  #: (S,) metres
    hops: int | None  #: radius of the eccentricity in hops; None if unknown
    classes: I64  #: (N,) labels
    num_classes: int
    class_names: Sequence[str]  #: range of eccentricity of each class
    eccentricity: F32  #: (N,)
    unit: str  #: unit of the eccentricity, ``m`` or ``s``
    splits: Mapping[str, U8]  #: name on the card -> (N,) position in :data:`.layers.PART_NAMES`
    columns: Mapping[str, Array]  #: name with unit -> (N,), all other columns but the sinusoids
    warnings: Sequence[str] = ()  #: what the build says about the map
    places: Sequence[tuple[str, F64]] = ()  #: names of districts, and ``position`` (2,) of each
    #: kind of ground -> polygons in metres, as far as the source has them
    ground: Mapping[str, Geometry] = field(default_factory=dict)
    #: number of a street -> ``position`` (n, 2) of its bends, from its first end on
    bends: Mapping[int, F64] = field(default_factory=dict)
    has_bends: bool = False  #: True if streets without bends are straight

    def path(self, street: int) -> F64:
        """Return the points of a street from its first end to its last, (n, 2) metres."""
        first, last = self.position[self.streets[:, street]]
        return np.vstack([first, self.bends.get(street, np.empty((0, 2))), last])

    def class_labels(self) -> tuple[str, ...]:
        """Return number and name of each class, such as ``0: 310–904 m``."""
        named = dict(enumerate(self.class_names))
        return tuple(f"{number}: {named.get(number, '')}" for number in range(self.num_classes))


def read_city_map(build: Build) -> CityMap:
    """Read the streets, classes and splits of a city's build.

    Raises ``UsageError`` for any other build; ``DamagedInput`` for a missing or damaged shard or
    split.
    """
    card = build.card
    schema = card.schema_
    keys = {column.key for column in schema.columns}
    has_columns = keys >= {"node/y", "node/eccentricity", "edge/length"}
    is_single = card.counts["graphs"] == len(card.shards) == 1
    if not (is_city(card) and is_single and has_columns and schema.edges == "index"):
        raise UsageError(
            f"{card.dataset} cannot be drawn as a map: it is not a street graph with y, eccentricity and"
            " edge_length.",
            steps=Command("kmip-data info", build.path),
        )

    # Check values before drawing: shards may be untrusted.
    store = shared_store(build)
    shard = store.shards[0]
    check_values(shard)
    shard.release_pages()

    # Keep every street once: edges are stored in both directions.
    features = shard.mapped_view("node/x")
    source, target = shard.read(EDGE_INDEX, 0, shard.edges).astype(np.int64)
    names = field_names(card, schema.column("node/x"))
    columns = dict(zip(names, features.T, strict=False))
    used_keys = {"node/x", "node/y", "node/eccentricity", COORDINATE_ENCODING}
    for column in schema.columns:
        if column.level == "node" and column.key not in used_keys and not column.shape:
            columns[column.attribute] = shard.mapped_view(column.key)
    hops = card.parameters.get("hops")
    facts = card.statistics.get("city", {})
    lon_lat = features[:, :2]
    streets = np.stack([source, target])[:, source < target]
    project = partial(project_to_metres, city=lon_lat)
    return CityMap(
        title=card.heading,
        options=format_parameters(card.parameters),
        credit=ATTRIBUTION if card.credit else "",
        position=project(lon_lat),
        streets=streets,
        lengths=shard.read("edge/length", 0, shard.edges)[source < target],
        hops=hops if isinstance(hops, int) else None,
        classes=shard.mapped_view("node/y").astype(np.int64),
        num_classes=int(schema.column("node/y").num_classes or 0),
        class_names=card.class_names,
        eccentricity=shard.mapped_view("node/eccentricity"),
        unit=schema.column("node/eccentricity").unit,
        splits={name: _read_part_codes(store, entry) for name, entry in card.splits.items()},
        columns=columns,
        warnings=facts.get("warnings", ()),
        places=[
            (name, place)
            for name, place in _read_places(facts.get("places", ()), lon_lat, project)
            if name not in card.heading  # the title has it
        ],
        ground=_read_ground(facts.get("ground", {}), project),
        bends=_read_bends(facts.get("bends", {}), streets, project),
        has_bends="bends" in facts,
    )


def _read_places(
    places: Iterable[Sequence[Any]], lon_lat: Array, project: Callable[[Array], F64]
) -> Iterator[tuple[str, F64]]:
    """Yield names and positions of places in the box of the intersections (N, 2)."""
    low = lon_lat.min(axis=0)
    high = lon_lat.max(axis=0)
    for name, *place in places:
        if (low <= place).all() and (place <= high).all():
            yield name, project(np.array([place]))[0]


def _read_ground(texts: Mapping[str, str], project: Callable[[Array], F64]) -> dict[str, Geometry]:
    """Return polygons in metres from well-known text, without those that cannot be drawn."""
    import shapely

    ground = {}
    for kind in GROUND_KINDS:
        shape = shapely.from_wkt(texts.get(kind, ""), on_invalid="ignore")
        points = shapely.get_coordinates(shape)
        if len(points) > MAX_GROUND_POINTS or not np.isfinite(points).all():
            continue
        parts = shapely.get_parts(shapely.transform(shape, project))
        crossed = ~shapely.is_valid(parts)
        if shapely.get_num_coordinates(parts[crossed]).sum() > MAX_MENDED_POINTS:
            continue
        parts[crossed] = shapely.make_valid(parts[crossed], method="structure")
        parts = shapely.get_parts(parts)
        polygons = parts[shapely.area(parts) > 0]
        if len(polygons):
            ground[kind] = shapely.multipolygons(polygons)
    return ground


def _read_bends(
    texts: Mapping[str, str], streets: I64, project: Callable[[Array], F64]
) -> dict[int, F64]:
    """Return bends in metres by position of the street in ``streets`` (2, S)."""
    import shapely

    if not texts:
        return {}
    shapes = shapely.from_wkt([*texts.values()], on_invalid="ignore")
    points, text = shapely.get_coordinates(shapes, return_index=True)
    is_damaged = np.isin(text, text[~np.isfinite(points).all(axis=1)])
    text = text[~is_damaged]
    starts = np.flatnonzero(np.diff(text, prepend=-1))
    pieces = np.split(project(points[~is_damaged]), starts[1:]) if len(starts) else []

    names = [*texts]
    number = {f"{first} {last}": i for i, (first, last) in enumerate(streets.T.tolist())}
    bends = {}
    for position, piece in zip(text[starts].tolist(), pieces, strict=True):
        if names[position] in number:
            bends[number[names[position]]] = piece
    return bends


def _read_part_codes(store: ShardStore, entry: SplitEntry) -> U8:
    code = store.read_split(entry).part_codes
    if code is None:  # a split of graphs has no part of nodes
        return np.full(store.shards[0].nodes, len(PART_CODES), np.uint8)
    return np.where(code == NO_PART, len(PART_CODES), code).astype(np.uint8)


def city_layers(city: CityMap) -> list[Layer]:
    """Return layers of the class, the eccentricity and every split."""
    reach = f" up to {city.hops} streets away" if city.hops else ""
    way = f"distance to the farthest intersection{reach}"
    sizes = np.bincount(city.classes, minlength=city.num_classes)
    classes = class_layer(
        "class",
        city.classes,
        city.class_labels(),
        f"{sizes.min():,} to {sizes.max():,} intersections each, by the {way}",
        lambda: sequential_colors(city.num_classes),
    )
    layers: list[Layer] = [
        replace(classes, is_ordered=True),
        Scale(
            "eccentricity",
            city.eccentricity,
            city.unit,
            way,
        ),
    ]
    for name, codes in city.splits.items():
        title = f"split {name}" if len(city.splits) > 1 else "split"
        layers.append(part_layer(title, name, codes))
    return layers


def draw_map(city: CityMap, layers: Sequence[Categories], path: Path, summary: str = "") -> None:
    """Draw a map of streets (lines) and intersections (points) for each of ``layers``.

    Every map has a legend and a scale bar; north is up.
    """
    extent = np.ptp(city.position, axis=0)
    across, up = np.maximum(extent, 0.25 * extent.max())  # a village along one street
    facts = [
        count_with_noun(len(city.position), "intersection"),
        count_with_noun(city.streets.shape[1], "street"),
    ]
    if not city.has_bends:
        facts.append("bends of streets are not drawn")
    is_longer = np.tile(streets_longer_than_drawn(city), 2)
    line, half = _half_streets(city)
    ends = city.streets.ravel()
    lengths = np.tile(_distances_of_ends(city), 2)
    shortest = np.full(len(city.position), np.inf)
    np.minimum.at(shortest, ends, lengths)

    def draw(axes: Axes, layer: Categories, size: F64) -> None:
        set_limits(axes, city.position, size)
        _add_ground(axes, city)
        points_per_metre = 72 * size[0] / np.ptp(axes.get_xlim())
        widest = min(MAX_DOT, math.sqrt(0.08 * 72**2 * np.prod(size) / len(city.position)))
        # Dots and lines are small where streets are short, so that these remain visible.
        dots = np.clip(0.6 * points_per_metre * shortest, MIN_DOT, widest)
        tenths = np.ceil(2 * points_per_metre * lengths / widest).clip(1, 4)
        codes = layer.codes[ends]
        for code, tenth, is_dashed in product(np.unique(codes), np.unique(tenths), (False, True)):
            is_shown = (codes == code) & (tenths == tenth) & (is_longer == is_dashed)
            axes.plot(
                *line[is_shown[half]].T,
                linestyle=DASHES if is_dashed else "-",
                color=layer.colors[code],
                linewidth=0.1 * tenth * widest,
                zorder=1,
            )
        colors = node_colors(layer, len(city.position))
        axes.scatter(*city.position.T, c=colors, s=dots**2, linewidths=0, zorder=2)
        _draw_scale_bar(axes, across)
        _add_place_names(axes, city)

    # Above a single map, its key comes last, so the introduction says what the colours mean.
    titles = [(layer.name, layer.note) for layer in layers]
    footer = [f"{'; '.join(facts)}.", *city.warnings, city.credit]
    if len(layers) == 1:
        notes = [warning.rstrip(".") for warning in city.warnings]
        titles = [("", ". ".join([f"Colour: {layers[0].name}, {layers[0].note}", *notes]))]
        footer = [footer[0], city.credit]
    shape = 2 * BORDER + (1 - 2 * BORDER) * up / across
    cells = [
        Cell(
            *title,
            {"": partial(draw, layer=layer)},
            [
                class_key("classes", [layer])
                if layer.is_ordered
                else class_legend("intersections", layer)
            ],
            (1.0, shape),
        )
        for layer, title in zip(layers, titles, strict=True)
    ]
    draw_cells(
        cells,
        path,
        title=city.title,
        summary=summary,
        footer="\n".join(footer),
        band=[_key_of_marks(city, layers[0], has_dashes=bool(is_longer.any()))],
    )


def _half_streets(city: CityMap) -> tuple[F64, I64]:
    """Return the halves of all streets as one line with gaps, (P, 2), and the half of each point.

    Halves begin at the middle of their street, so that the dashes of both are one pattern. First
    halves come first, in the order of ``streets``.
    """
    # 1. Straight streets: from the middle to each end.
    count = city.streets.shape[1]
    middles = city.position[city.streets].mean(axis=0)
    places = np.vstack([city.position, middles])
    pairs = np.stack([len(city.position) + np.tile(np.arange(count), 2), city.streets.ravel()])
    half = np.repeat(np.arange(2 * count), 3)
    is_straight = ~np.isin(half % count, [*city.bends])
    lines = [edge_line_with_gaps(places, pairs).T[is_straight]]
    halves = [half[is_straight]]

    # 2. Bent streets: the middle lies halfway along them.
    gap = np.full(2, np.nan)
    for street in city.bends:
        path = city.path(street)
        reached = np.append(0, np.cumsum(np.linalg.norm(np.diff(path, axis=0), axis=1)))
        middle = [np.interp(reached[-1] / 2, reached, axis) for axis in path.T]
        is_before = reached < reached[-1] / 2
        for number, part in ((street, path[is_before][::-1]), (street + count, path[~is_before])):
            lines.append(np.vstack([middle, part, gap]))
            halves.append(np.full(len(part) + 2, number))
    return np.concatenate(lines), np.concatenate(halves)


def _add_ground(axes: Axes, city: CityMap) -> None:
    """Draw the frame of a map, and water and green areas in it."""
    from matplotlib.patches import Rectangle
    from shapely.plotting import patch_from_polygon

    style = current_style()
    colors = {"green": style.green_color, "water": style.water_color}
    for kind, shape in city.ground.items():
        axes.add_patch(patch_from_polygon(shape, facecolor=colors[kind], linewidth=0, zorder=0))
    low = city.position.min(axis=0)
    extent = city.position.max(axis=0) - low
    frame = Rectangle(low, *extent, fill=False, edgecolor=style.line_color, linewidth=0.5, zorder=0)
    axes.add_patch(frame)


def edge_line_with_gaps(pos: Array, edges: I64) -> Array:
    """Return one line ``(D, 3E)``: source, target and a gap for every edge.

    One line with gaps is faster to draw than many lines.
    """
    line = np.full((edges.shape[1], 3, pos.shape[1]), np.nan, dtype=pos.dtype)
    line[:, :2] = pos[edges.T]
    return line.reshape(-1, pos.shape[1]).T


def _key_of_marks(city: CityMap, layer: Categories, has_dashes: bool) -> Legend:
    """Return samples of the lines and areas of a map."""
    style = current_style()
    first = layer.colors[len(layer.colors) // 3]
    last = layer.colors[-1]
    halves = ("each half: colour of its end", [first, last], "-")
    dashes = (f"over {MAX_DETOUR} × its drawn length", [first, first], DASHES)
    lines = [halves, dashes] if has_dashes else [halves]
    areas = {}
    if "water" in city.ground:
        areas["water"] = style.water_color
    if "green" in city.ground:
        areas["parks and other green"] = style.green_color
    names = [*(name for name, *_ in lines), *areas]

    def draw(axes: Axes) -> None:
        axes.set_axis_off()
        inches = axes.get_window_extent().width / axes.figure.dpi
        axes.set(xlim=(0, inches), ylim=(len(names) - 0.5, -0.5))
        for row, (_, colors, pattern) in enumerate(lines):
            for half, color in enumerate(colors):
                ends = np.array([half, half + 1]) * SAMPLE_WIDTH / 2
                axes.plot(ends, [row, row], color=color, linestyle=pattern, linewidth=2)
        for row, name in enumerate(names):
            if name in areas:
                axes.barh(row, SAMPLE_WIDTH, 0.6, color=areas[name])
            text_style = {"va": "center_baseline", "fontsize": NOTE_FONT_SIZE}
            axes.text(1.25 * SAMPLE_WIDTH, row, name, **text_style)

    return Legend("streets" + " and ground" * bool(areas), draw, fixed_lines=1.2 * len(names))


def _distances_of_ends(city: CityMap) -> F64:
    """Return the straight distance between the ends of each street, (S,) metres."""
    starts, ends = city.position[city.streets]
    return np.asarray(np.linalg.norm(ends - starts, axis=1))


def _drawn_lengths(city: CityMap) -> F64:
    """Return the length of the line of each street, (S,) metres."""
    lengths = _distances_of_ends(city)
    for street in city.bends:
        lengths[street] = np.linalg.norm(np.diff(city.path(street), axis=0), axis=1).sum()
    return lengths


def streets_longer_than_drawn(city: CityMap) -> Array:
    """Return a mask (S,) of streets that are clearly longer than the line that represents them."""
    return np.asarray(city.lengths > MAX_DETOUR * _drawn_lengths(city) + 1)


def _add_place_names(axes: Axes, city: CityMap) -> None:
    """Write the names of places inside the map where neither a larger one nor the scale bar is."""
    from matplotlib.patheffects import withStroke

    frame = axes.get_window_extent()
    boxes = [bar.get_window_extent() for bar in axes.artists]
    for name, place in city.places:
        text = axes.text(
            *place,
            name,
            path_effects=[withStroke(linewidth=3, foreground=current_style().background_color)],
            ha="center",
            va="center",
            zorder=3,
        )
        box = text.get_window_extent()
        if box.count_overlaps(boxes) or frame.count_contains(box.corners()) < 4:
            text.remove()
        else:
            boxes.append(box)


def _draw_scale_bar(axes: Axes, across: float) -> None:
    from mpl_toolkits.axes_grid1.anchored_artists import AnchoredSizeBar

    # Use the largest round length up to a third of the map's width.
    length = round_length(across / 3)
    bar = AnchoredSizeBar(
        axes.transData,
        length,
        format_length(length),
        "lower left",
        color=current_style().text_color,
        frameon=False,
        label_top=True,
        fontproperties={"size": NOTE_FONT_SIZE},
        pad=0,
        borderpad=0,
        bbox_to_anchor=(BORDER, 0, 1, 1),
        bbox_transform=axes.transAxes,
    )
    axes.add_artist(bar)
