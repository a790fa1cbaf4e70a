"""Draw maps of a city, one per layer."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np

from kmip_data.arrays import F32, F64, I64, U8, Array
from kmip_data.builds.home import Build
from kmip_data.drawing.graph_panels import set_limits
from kmip_data.drawing.layers import Categories, Layer, Scale, class_layer, part_layer
from kmip_data.drawing.pictures import Cell, draw_cells
from kmip_data.drawing.plotted_layers import class_legend, node_colors
from kmip_data.drawing.style import (
    NOTE_FONT_SIZE,
    Axes,
    current_style,
    sequential_colors,
)
from kmip_data.errors import UsageError
from kmip_data.format.build_facts import field_names
from kmip_data.format.card import SplitEntry
from kmip_data.format.reader import check_values
from kmip_data.format.schema import COORDINATE_ENCODING, EDGE_INDEX
from kmip_data.format.split_files import NO_PART, PART_CODES
from kmip_data.graphs.city_columns import is_city, project_to_metres
from kmip_data.reading.store import ShardStore, shared_store
from kmip_data.text import count_with_noun, format_length, format_parameters, round_length

ATTRIBUTION = "© OpenStreetMap contributors, ODbL 1.0"
OUTLIER_FRACTION = 0.002  #: fraction of the intersections on each side that may lie outside a map
MAX_DETOUR = 1.25  #: street length relative to the straight line above which a street is dashed
MAX_CROPPED_FRACTION = 0.8  #: a map is cropped if at most this fraction of its longest side remains


@dataclass(frozen=True, kw_only=True)
class CityMap:
    """A city as arrays, ready to be drawn."""

    title: str  #: name of the city, marked if it is a sample
    options: str  #: build options
    credit: str  #: attribution of the map data; empty for a sample
    position: F64  #: (N, 2), metres east and north of the centre of the map
    streets: I64  #: (2, S), endpoints of each street, every pair once; builds have no geometry
    lengths: F32  #: (S,) metres
    hops: int | None  #: radius of the eccentricity in hops; None if unknown
    classes: I64  #: (N,) labels
    num_classes: int
    class_names: Sequence[str]  #: range of eccentricity of each class
    eccentricity: F32  #: (N,)
    unit: str  #: unit of the eccentricity, ``m`` or ``s``
    splits: Mapping[str, U8]  #: name on the card -> (N,) position in :data:`.layers.PART_NAMES`
    columns: Mapping[str, Array]  #: name with unit -> (N,), all other columns but the sinusoids

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
            next=f"its columns: kmip-data info {shlex.quote(str(build.path))}",
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

    # Keep every street once: edges are stored in both directions.
    features = node_rows("node/x")
    source, target = shard.read(EDGE_INDEX, 0, shard.edges).astype(np.int64)
    names = field_names(card, schema.column("node/x"))
    columns = dict(zip(names, features.T, strict=False))
    used_keys = {"node/x", "node/y", "node/eccentricity", COORDINATE_ENCODING}
    for column in schema.columns:
        if column.level == "node" and column.key not in used_keys and not column.shape:
            columns[column.attribute] = node_rows(column.key)
    hops = card.parameters.get("hops")
    return CityMap(
        title=card.heading,
        options=format_parameters(card.parameters),
        credit=ATTRIBUTION if card.credit else "",
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


def _read_part_codes(store: ShardStore, entry: SplitEntry) -> U8:
    code = store.read_split(entry).part_codes
    if code is None:  # a split of graphs has no part of nodes
        return np.full(store.shards[0].nodes, len(PART_CODES), np.uint8)
    return np.where(code == NO_PART, len(PART_CODES), code).astype(np.uint8)


def city_layers(city: CityMap) -> list[Layer]:
    """Return layers of the class, the eccentricity and every split."""
    reach = f" within {city.hops} streets" if city.hops else ""
    way = f"way to the farthest intersection{reach}"
    classes = class_layer(
        "class",
        city.classes,
        city.class_labels(),
        f"by the {way}",
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
    low, high = dense_area(city.position)
    across, up = np.maximum(high - low, 0.25 * (high - low).max())  # a village along one street
    facts = [
        count_with_noun(len(city.position), "intersection"),
        count_with_noun(city.streets.shape[1], "street"),
    ]
    outside = int(((city.position < low) | (city.position > high)).any(axis=1).sum())
    if outside:
        facts.append(f"{count_with_noun(outside, 'intersection')} outside the map")
    middles = city.position[city.streets].mean(axis=0)
    places = np.vstack([city.position, middles])
    middle_places = len(city.position) + np.tile(np.arange(len(middles)), 2)
    halves = np.stack([city.streets.ravel(), middle_places])
    is_bent = np.tile(streets_longer_than_drawn(city), 2)
    facts.append("each half of a street has the colour of its end, and bent streets are dashed")

    def draw(axes: Axes, layer: Categories, size: F64) -> None:
        set_limits(axes, np.array([low, high]), size)
        area = float(np.clip(0.08 * 72**2 * np.prod(size) / len(city.position), 0.5, 9))
        for code, is_dashed in product(range(len(layer.labels)), (False, True)):
            shown = halves[:, (layer.codes[halves[0]] == code) & (is_bent == is_dashed)]
            line = edge_line_with_gaps(places, shown)
            style = "--" if is_dashed else "-"
            width = 0.5 * math.sqrt(area)
            axes.plot(*line, linestyle=style, color=layer.colors[code], linewidth=width, zorder=1)
        colors = node_colors(layer, len(city.position))
        axes.scatter(*city.position.T, c=colors, s=area, linewidths=0, zorder=2)
        _draw_scale_bar(axes, across)

    cells = [
        Cell(
            layer.name,
            layer.note,
            {"": partial(draw, layer=layer)},
            [class_legend("intersections", layer)],
            (1.0, up / across),
        )
        for layer in layers
    ]
    draw_cells(
        cells,
        path,
        title=city.title,
        summary=summary,
        footer=f"{'; '.join(facts)}.\n{city.credit}",
    )


def edge_line_with_gaps(pos: Array, edges: I64) -> Array:
    """Return one line ``(D, 3E)``: source, target and a gap for every edge.

    One line with gaps is faster to draw than many lines.
    """
    line = np.full((edges.shape[1], 3, pos.shape[1]), np.nan, dtype=pos.dtype)
    line[:, :2] = pos[edges.T]
    return line.reshape(-1, pos.shape[1]).T


def dense_area(position: F64) -> tuple[F64, F64]:
    """Return the corners (2,) of the positions' box, without outliers if they would shrink the map."""
    low = position.min(axis=0)
    high = position.max(axis=0)
    fractions = [OUTLIER_FRACTION, 1 - OUTLIER_FRACTION]
    inner_low, inner_high = np.quantile(position, fractions, axis=0)
    margin = 0.05 * (inner_high - inner_low)
    inner_low = np.maximum(low, inner_low - margin)
    inner_high = np.minimum(high, inner_high + margin)
    if (inner_high - inner_low).max() > MAX_CROPPED_FRACTION * (high - low).max():
        return low, high
    return inner_low, inner_high


def streets_longer_than_drawn(city: CityMap) -> Array:
    """Return a mask (S,) of streets that are clearly longer than the line that represents them."""
    starts, ends = city.position[city.streets]
    straight = np.linalg.norm(ends - starts, axis=1)
    return np.asarray(city.lengths > MAX_DETOUR * straight + 1)


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
    )
    axes.add_artist(bar)
