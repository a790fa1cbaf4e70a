"""Maps of a city: arrays, layers, and plots with one map per layer."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kmip_data.arrays import F32, F64, I64, U8, Array
from kmip_data.builds.home import Build
from kmip_data.drawing.layers import Categories, Layer, Scale, class_layer, draw_legend, node_colors
from kmip_data.drawing.run_predictions import right_wrong_colors
from kmip_data.drawing.style import (
    NOTE,
    Axes,
    class_colors,
    current_style,
    in_current_style,
    new_figure,
    readable_color,
    save_figure,
    sequential_colors,
)
from kmip_data.errors import UsageError
from kmip_data.format.card import SplitEntry
from kmip_data.format.reader import check_values
from kmip_data.format.schema import COORDINATES, EDGE_INDEX
from kmip_data.format.split_files import NO_PART, NODE_PARTS
from kmip_data.graphs.city_columns import city_vocabulary, is_city
from kmip_data.reading.store import ShardStore, shared_store
from kmip_data.text import count_with_noun, format_parameters

EARTH_RADIUS = 6_371_009.0  #: metres
ATTRIBUTION = "© OpenStreetMap contributors, ODbL 1.0"
PART_NAMES = (*NODE_PARTS, "no part")  #: names by the codes of :attr:`CityMap.splits`
RIGHT_WRONG = ("right (test)", "wrong (test)", "right (train, val)", "wrong (train, val)")
LONGEST_SIDE = 8.0  #: inches of a map
OUTLIERS = 0.002  #: share of the intersections at each side that may lie outside a map
CROPPED = 0.8  #: largest share of the longest side that is drawn where outliers are left out
LONGER = 1.25  #: times the straight line from which a street is drawn dashed
MAX_POINTS = 1_000_000  #: most intersections drawn; of more, every second, third … is drawn


@dataclass(frozen=True, kw_only=True)
class CityMap:
    """A city as arrays, ready to be drawn."""

    title: str  #: name of the city, marked if a sample
    options: str  #: build options
    position: F64  #: (N, 2), metres east and north of the middle of the map
    #: (2, S), endpoints of each street, every pair once, as builds have no geometry
    streets: I64
    lengths: F32  #: (S,) metres
    hops: int | None  #: radius of the eccentricity in hops; None: unknown
    classes: I64  #: (N,) labels
    num_classes: int  #: number of classes
    class_names: Sequence[str]  #: range of eccentricity of each
    eccentricity: F32  #: (N,)
    unit: str  #: unit of the eccentricity, ``m`` or ``s``
    splits: Mapping[str, U8]  #: name on the card -> (N,) position in :data:`PART_NAMES`
    columns: Mapping[str, Array]  #: name with unit -> (N,), all other columns except sinusoids

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
            f"{card.dataset} is not a city: it is not a single street graph.",
            next="kmip-data list",
        )

    # Check values before drawing: shards may be untrusted.
    store = shared_store(build)
    shard = store.shards[0]
    check_values(shard)
    shard.release_pages()

    def node_rows(key: str) -> Array:
        mapped = shard.mapped_view(key)
        if mapped is None:
            return shard.read(key, 0, shard.nodes)
        return mapped

    # Keep every street once, as edges are stored in both directions.
    features = node_rows("node/x")
    source, target = shard.read(EDGE_INDEX, 0, shard.edges).astype(np.int64)
    names = category_names(schema.column("node/x").fields, city_vocabulary(card))
    columns = dict(zip(names, features.T, strict=False))
    shown = {"node/x", "node/y", "node/eccentricity", COORDINATES}
    for column in schema.columns:
        if column.level == "node" and column.key not in shown and not column.shape:
            columns[column.attribute] = node_rows(column.key)
    hops = card.parameters.get("hops")
    return CityMap(
        title=card.heading,
        options=format_parameters(card.parameters),
        position=project_to_metres(features[:, :2]),
        streets=np.stack([source, target])[:, source < target],
        lengths=shard.read("edge/length", 0, shard.edges)[source < target],
        hops=hops if isinstance(hops, int) else None,
        classes=node_rows("node/y").astype(np.int64),
        num_classes=int(schema.column("node/y").num_classes or 0),
        class_names=card.class_names,
        eccentricity=node_rows("node/eccentricity"),
        unit=schema.column("node/eccentricity").unit,
        splits={name: _read_part_codes(store, entry) for name, entry in card.splits.items()},
        columns=columns,
    )


def project_to_metres(lon_lat: Array) -> F64:
    """Return metres east and north of the middle, (N, 2) float64, of (N, 2) degrees.

    An equirectangular projection: a city spans so little of the globe that distances and directions
    are right to about a thousandth (50 km across at 60° north: 0.7 % at the northern and southern
    ends). A city on the antimeridian stays in one piece.
    """
    lon, lat = lon_lat.astype(np.float64).T
    # Measure from the first intersection, to keep a city on the antimeridian in one piece.
    lon = (lon - lon[0] + 180) % 360 - 180
    middle_lon = (lon.min() + lon.max()) / 2
    middle_lat = (lat.min() + lat.max()) / 2
    east = np.radians(lon - middle_lon) * np.cos(np.radians(middle_lat))
    north = np.radians(lat - middle_lat)
    return EARTH_RADIUS * np.stack([east, north], axis=1)


def category_names(
    fields: tuple[str, ...], categories: Mapping[str, Sequence[str]] | None
) -> list[str]:
    """Name one-hot columns by their categories, if the card has them.

    A value may be a list, for a street merged from several.

    >>> category_names(("length [m]", "highway_0"), {"highway": ["footway"]})
    ['length [m]', 'highway footway']
    >>> category_names(("lanes_0", "reversed [False, True]"), {"lanes": ["['2', '3']"]})
    ['lanes 2 and 3', 'reversed no and yes']
    >>> category_names(("lanes_0", "lanes_1"), {"lanes": ["nan"]})
    ['lanes not stated', 'lanes unused (1)']
    """
    words = {"False": "no", "True": "yes", "nan": "not stated"}
    names = []
    for field in fields:
        name = field
        match = re.fullmatch(r"([a-z]+)_(\d+)", field)
        if match and categories and match[1] in categories:
            values = categories[match[1]]
            position = int(match[2])
            value = values[position] if position < len(values) else f"unused ({position})"
            name = f"{match[1]} {value}"
        key, _, value = name.partition(" ")
        if re.fullmatch(r"True|False|nan|\[.*[,'].*\]", value):
            single = re.findall(r"[^\[\]', ][^\[\]',]*", value)
            name = f"{key} {' and '.join(words.get(value, value) for value in single)}"
        names.append(name)
    return names


def _read_part_codes(store: ShardStore, entry: SplitEntry) -> U8:
    code = store.read_split(entry).node_code
    if code is None:  # splits of graphs would put all nodes into one part
        return np.full(store.shards[0].nodes, len(NODE_PARTS), np.uint8)
    return np.where(code == NO_PART, len(NODE_PARTS), code).astype(np.uint8)


def city_layers(city: CityMap) -> list[Layer]:
    """Class, eccentricity and every split."""
    classes = _class_layer(
        city,
        "class",
        city.classes,
        "equally large chunks by eccentricity",
    )
    eccentricity = Scale(
        "eccentricity",
        city.eccentricity,
        city.unit,
        "longest shortest path around the intersection",
    )
    layers: list[Layer] = [classes, eccentricity]
    for name, codes in city.splits.items():
        title = f"split {name}" if len(city.splits) > 1 else "split"
        layers.append(part_layer(title, name, codes))
    return layers


def part_layer(title: str, split: str, codes: U8) -> Categories:
    """Return the map of a split, by positions (N,) in :data:`PART_NAMES`."""
    # "no part" only where an intersection is in none.
    names = PART_NAMES[: max(len(NODE_PARTS), int(codes.max(initial=0)) + 1)]
    return Categories(
        title,
        codes,
        names,
        lambda: _part_colors(len(names)),
        split,
    )


def prediction_layers(
    city: CityMap,
    run: str,
    classes: I64,
    split: str | None,
) -> list[Layer]:
    """Return maps of a run's predicted ``classes`` (N,): correctness, class, and error.

    ``split`` of the card has the train and val nodes that the run has seen; None: no nodes.
    """
    # Even codes are right, odd ones wrong, plus two for nodes that the run has seen.
    right = classes == city.classes
    code = np.where(right, 0, 1).astype(np.uint8)
    note = f"{run}: {right.mean():.1%} right"
    labels: tuple[str, ...] = ("right", "wrong")
    if split is not None:
        labels = RIGHT_WRONG
        parts = city.splits[split]
        none = len(NODE_PARTS)
        code[parts < NODE_PARTS["test"]] += 2
        if (parts == none).any():
            code[parts == none] = len(labels)
            labels = (*labels, PART_NAMES[none])

        shares = []
        for number, part in enumerate(PART_NAMES[:none]):
            members = right[parts == number]
            if len(members):
                shares.append(f"{part} {members.mean():.1%}")
        note = f"{run}: right in {', '.join(shares)}"

    steps = ["1 class", *(f"{number} classes" for number in range(2, city.num_classes))]
    return [
        Categories(
            "right or wrong",
            code,
            labels,
            lambda: right_wrong_colors(len(labels)),
            note,
        ),
        _class_layer(city, "predicted class", classes, f"by {run}"),
        Categories(
            "error",
            np.abs(classes - city.classes).astype(np.uint8),
            ("none", *steps)[: city.num_classes],
            lambda: sequential_colors(city.num_classes),
            f"distance of the predicted class from the true one, by {run}",
        ),
    ]


def _class_layer(city: CityMap, name: str, classes: I64, note: str) -> Categories:
    # Classes are ordered like the eccentricities behind them.
    return class_layer(
        name,
        classes,
        city.class_labels(),
        note,
        lambda: sequential_colors(city.num_classes),
    )


def _part_colors(count: int) -> list[str]:
    hues = class_colors(4)
    return [hues[1], hues[0], readable_color("#b4b4b4"), hues[3]][:count]


@in_current_style()
def draw_map(city: CityMap, layers: Sequence[Layer], path: Path) -> None:
    """Draw streets as lines and intersections as points, once for each of ``layers``.

    Every map has its legend, and a scale bar; north is up.
    """
    # 1. The figure: maps in rows, each with space for its legend.
    low, high = _map_corners(city.position)
    width, height = LONGEST_SIDE * (high - low) / (high - low).max()
    legend = 2.6
    rows = -(-len(layers) // 3)  # rows of three maps at most
    columns = -(-len(layers) // rows)
    wide = columns * (width + legend)
    high_in_all = rows * (height + 0.7) + 1.0
    step = -(-len(city.position) // MAX_POINTS)
    footer = f"{city.options}\n{ATTRIBUTION}"
    if step > 1:
        footer += f"; one of {step} intersections and streets is drawn"
    outside = int(((city.position < low) | (city.position > high)).any(axis=1).sum())
    if outside:
        footer += f"; {count_with_noun(outside, 'intersection')} outside of the map"
    longer = streets_longer_than_drawn(city)
    if longer.any():
        footer += f"; dashed: streets over {LONGER:g} times as long as the line"
    figure = new_figure(
        wide,
        high_in_all,
        title=city.title,
        footer=footer,
        layout="compressed",
    )
    shrunk = figure.get_figwidth() / wide

    # 2. Points that nearly touch in a city of even density.
    position = city.position[::step]
    points = 72.0**2 * width * height / len(position)
    area = min(14.0, max(0.8, 0.3 * points)) * shrunk**2
    straight, detours = (
        broken_edge_lines(city.position, city.streets[:, chosen][:, ::step])
        for chosen in (~longer, longer)
    )
    thin = min(0.7, 0.35 * math.sqrt(area))

    # 3. One panel for each layer: streets below, points above, legend beside them.
    for number, layer in enumerate(layers):
        axes = figure.add_subplot(rows, columns, number + 1)
        axes.set(
            xlim=(low[0], high[0]),
            ylim=(low[1], high[1]),
            aspect="equal",
        )
        axes.set_axis_off()
        axes.set_title(f"{layer.name}\n{layer.note}")
        style = {"color": current_style().faint, "linewidth": thin, "zorder": 1}
        axes.plot(*straight, **style)
        axes.plot(*detours, dashes=(4, 3), **style)
        colors = node_colors(layer)[::step]
        axes.scatter(*position.T, c=colors, s=area, linewidths=0, zorder=2)
        draw_legend(axes, layer)
        _draw_scale_bar(axes, high[0] - low[0])
    margin = min(0.2, max(0.0, (current_style().widest - figure.get_figwidth()) / 2))
    save_figure(figure, path, bbox_inches="tight", pad_inches=margin)


def broken_edge_lines(pos: Array, edges: I64) -> Array:
    """``(D, 3E)``: source, target, gap of every edge.

    One broken line is drawn faster than many lines.
    """
    line = np.full((edges.shape[1], 3, pos.shape[1]), np.nan, dtype=pos.dtype)
    line[:, :2] = pos[edges.T]
    return line.reshape(-1, pos.shape[1]).T


def nice_length(longest: float) -> float:
    """Return the largest 1, 2 or 5 times a power of ten that is not longer.

    >>> nice_length(730.0), nice_length(1_000.0)
    (500.0, 1000.0)
    """
    power = 10.0 ** math.floor(math.log10(longest))
    return max(step * power for step in (1, 2, 5) if step * power <= longest)


def length_text(metres: float) -> str:
    """Return a length in metres or kilometres.

    >>> length_text(500.0), length_text(2_000.0)
    ('500 m', '2 km')
    """
    return f"{metres / 1000:g} km" if metres >= 1000 else f"{metres:g} m"


def dense_area(position: F64) -> tuple[F64, F64]:
    """Return corners (2,) of the box of positions (N, 2) without outliers, if that shows the others larger."""
    low = position.min(axis=0)
    high = position.max(axis=0)
    inner_low, inner_high = np.quantile(position, [OUTLIERS, 1 - OUTLIERS], axis=0)
    around = 0.05 * (inner_high - inner_low)
    inner_low = np.maximum(low, inner_low - around)
    inner_high = np.minimum(high, inner_high + around)
    if (inner_high - inner_low).max() > CROPPED * (high - low).max():
        return low, high
    return inner_low, inner_high


def streets_longer_than_drawn(city: CityMap) -> Array:
    """Return where a street is clearly longer than the straight line that is drawn for it: (S,) bool."""
    starts, ends = city.position[city.streets]
    straight = np.linalg.norm(ends - starts, axis=1)
    return np.asarray(city.lengths > LONGER * straight + 1)


def _map_corners(position: F64) -> tuple[F64, F64]:
    """Return the corners of the map, with a margin that has room for the scale bar below."""
    low, high = dense_area(position)
    longest = max(float((high - low).max()), 1.0)
    # A village along one street still needs a map of some height.
    lacking = np.maximum(0.25 * longest - (high - low), 0) / 2
    margin = 0.02 * longest
    return low - lacking - [margin, margin + 0.06 * longest], high + lacking + margin


def _draw_scale_bar(axes: Axes, across: float) -> None:
    from mpl_toolkits.axes_grid1.anchored_artists import AnchoredSizeBar

    # The longest round length up to a third of the map's width.
    length = nice_length(across / 3)
    bar = AnchoredSizeBar(
        axes.transData,
        length,
        length_text(length),
        "lower left",
        color=current_style().ink,
        frameon=False,
        label_top=True,
        fontproperties={"size": NOTE},
    )
    axes.add_artist(bar)
