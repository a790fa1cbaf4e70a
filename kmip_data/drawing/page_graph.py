"""Prepare a graph for the explorer page: a city, or a record of any other build."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kmip_data.arrays import F64, I64, U8, Array
from kmip_data.builds.home import Build
from kmip_data.drawing.layers import Layer, part_layer
from kmip_data.drawing.maps import (
    MAX_DETOUR,
    city_layers,
    read_city_map,
    streets_longer_than_drawn,
)
from kmip_data.drawing.neighborhoods import NeighborhoodDataset
from kmip_data.drawing.page_layers import ArrayPacker, Json, NamedColumn, column_layers
from kmip_data.drawing.plottable_record import PlottableRecord, read_plottable_record
from kmip_data.drawing.run_predictions import layers_of_runs
from kmip_data.errors import UsageError
from kmip_data.format.schema import NODE_ID, node_id_texts
from kmip_data.format.split_files import PART_CODES
from kmip_data.graphs.molecule_fields import SHIFTED_FIELDS
from kmip_data.manifest import up_axis_name
from kmip_data.text import class_name, count_with_noun, format_parameters

if TYPE_CHECKING:
    from shapely import Geometry
    from torch_geometric.data import Data

    from kmip_data.reading.dataset import ShardedDataset

PAGE_EXTENT = 1_000.0  #: length of a record's longest axis on its page
PAGE_UNIT = 1 / 64  #: least distance between positions on a page; of a city in metres


@dataclass(frozen=True, kw_only=True)
class PageGraph:
    """One graph, ready for the page."""

    title: str
    credit: str  #: attribution that the license requires
    header: Json  #: texts, and types and offsets of the arrays
    packer: ArrayPacker  #: arrays


def city_graph(
    build: Build, runs: Sequence[tuple[str, I64]] = (), split: str | None = None
) -> PageGraph:
    """Return a city for the page, with the name and predicted classes (N,) of up to two ``runs``.

    ``split`` is the runs' split, if the build has it. Raises the errors of
    :func:`~kmip_data.drawing.maps.read_city_map`.
    """
    city = read_city_map(build)
    packer = ArrayPacker()
    classes, *other_layers = city_layers(city)
    parts = None if split is None else part_layer("split", split, city.splits[split])
    layers = [*layers_of_runs(classes, runs, parts), classes, *other_layers]
    columns: list[NamedColumn] = [
        (name, "column", values, "number") for name, values in city.columns.items()
    ]
    header = _page_header(
        city.position,
        city.streets,
        layers,
        column_layers(columns, layers),
        packer,
    )
    header["about"] = build.card.about
    header["options"] = city.options
    header["metres"] = True
    header["node_noun"] = "intersection"
    header["places"] = [(name, *place.tolist()) for name, place in city.places]
    header["ground"] = {
        kind: [packer.add(axis.astype(np.float32)) for axis in triangles_of(shape).T]
        for kind, shape in city.ground.items()
    }
    header["routes"] = {street: bends.round(1).tolist() for street, bends in city.bends.items()}
    header["max_detour"] = MAX_DETOUR
    header["longer"] = packer.add(streets_longer_than_drawn(city).astype(np.uint8))
    header["explore"] = {"hops": city.hops, "unit": city.unit}
    if city.unit == "m":  # the eccentricity adds up lengths; builds have no travel times
        header["explore"]["lengths"] = packer.add(city.lengths)

    return PageGraph(
        title=build.card.caption_title,
        credit=city.credit,
        header=header,
        packer=packer,
    )


def triangles_of(shape: Geometry) -> F64:
    """Return the corners of triangles that cover polygons, three each, (3 T, 2)."""
    import shapely

    triangles = shapely.get_parts(shapely.constrained_delaunay_triangles(shape))
    corners: F64 = shapely.get_coordinates(triangles).reshape(-1, 4, 2)[:, :3]
    return corners.reshape(-1, 2)


def graph_of_record(
    dataset: ShardedDataset,
    position: int,
    runs: Sequence[tuple[str, Array]] = (),
    picture: U8 | None = None,
) -> PageGraph:
    """Return a record for the page, with the name and predictions (N,) of up to two ``runs``.

    ``picture`` (H, W, 3) is the image behind its superpixels. Raises ``UsageError`` for an unknown
    record.
    """
    if not 0 <= position < len(dataset):
        records = count_with_noun(len(dataset), "record")
        raise UsageError(
            f"There is no record {position}.",
            found=f"{records}, numbered from 0",
            steps=f"a record from 0 to {len(dataset) - 1}",
        )
    record = read_plottable_record(dataset, position)
    data = dataset[position]
    card = dataset.card

    # 1. Add the layers. Classes come first, because their colours are visible on any background,
    #    unlike the nodes' own colours.
    classes = range(0 if record.y is None else int(dataset.num_classes))
    truth = record.truth_layer([class_name(i, card.class_names) for i in classes])
    layers = [truth] if truth else []
    parts = None
    if "test_mask" in data:
        masks = [data[f"{part}_mask"].numpy() for part in PART_CODES]
        codes = np.select(masks, range(len(masks)), default=len(masks)).astype(np.uint8)
        split = str(dataset.split_name)
        is_drawn = card.splits[split].rule not in {"given", "upstream"}
        parts = part_layer("split (drawn)" if is_drawn else "split", split, codes)
        layers.append(parts)
    if record.own_colors is not None:
        layers.append(record.own_colors)
    if record.is_directed:
        layers.append(record.direction_layer())
    layers = [*layers_of_runs(truth, runs, parts), *layers, *record.degree_layers()]

    # 2. Draw one line per pair of nodes, however many edges join them; an arrow if all go one way.
    first = record.first_edges()
    is_one_way = record.has_no_reverse()[first]
    ends = record.edge_index[:, first]
    lines = np.where(is_one_way, ends, np.sort(ends, axis=0))

    # 3. Build the header.
    page_pos, scale, middle = _centre_and_scale(record.pos, up_axis_name(card.dataset))
    packer = ArrayPacker()
    labels = dataset.schema.y_column
    shown = NODE_ID, labels.key if truth and labels else ""  # ids are texts, labels have a layer
    others = _record_columns(dataset, data, "node", shown)
    columns = column_layers(others, layers)
    header = _page_header(page_pos, lines, layers, columns, packer)
    if record.bonds is None and len(first):
        of_edges = _record_columns(dataset, data, "edge", ())
        of_lines = (
            (name, prefix, record.values_of_pairs(row, kind), kind)
            for name, prefix, row, kind in of_edges
        )
        header["of_edges"] = [packer.add_layer(layer) for layer in column_layers(of_lines, ())]
    if any(column.key == NODE_ID for column in dataset.schema.columns):
        header["ids"] = node_id_texts(data.node_id.numpy())
    if isinstance(dataset, NeighborhoodDataset):
        _describe_neighborhood(header, dataset, record)
    routes = record.routes()
    header["routes"] = {
        line: ((routes[edge] - middle) * scale).round(1).tolist()
        for line, edge in enumerate(first.tolist())
        if edge in routes
    }
    if record.symbols is not None:
        header["symbols"] = _pack_symbols(*record.symbols, packer)
    if is_one_way.any():
        header["one_way"] = packer.add(is_one_way.astype(np.uint8))
        header["ends"] = record.ends_of_edges
    if record.bonds is not None:
        header["bonds"] = packer.add(record.bonds[first].astype(np.uint8))
    if picture is not None:
        header["picture"] = _pack_picture(picture, scale, middle, packer)
    if record.metres:
        header["metre"] = scale  # page units per metre
    header["key"] = record.key if len(dataset) > 1 and record.numbers is None else ""
    header |= {"edges": record.edge_text, "target": record.label_name, "node_noun": record.noun}
    options = format_parameters(card.parameters)
    header |= {"origin": record.position_source, "about": card.about, "options": options}
    header["docs"] = {
        column.attribute: column.doc
        for column in dataset.schema.columns
        if column.shape and not column.fields
    }
    are_classes = bool(labels and labels.num_classes and not labels.shape)
    header["explore"] = {"hops": 1, "label": record.label, "is_class": are_classes}
    return PageGraph(title=card.caption_title, credit=card.credit, header=header, packer=packer)


def _pack_symbols(meaning: str, symbols: Array, packer: ArrayPacker) -> Json:
    """Pack the letters (N,) in nodes."""
    labels, codes = np.unique(symbols, return_inverse=True)
    packed = packer.add(codes.astype(np.uint8))
    return {"meaning": meaning, "labels": labels.tolist(), "codes": packed}


def _describe_neighborhood(
    header: Json, dataset: NeighborhoodDataset, record: PlottableRecord
) -> None:
    """Add the numbers of the nodes in the whole graph, and how much of it is shown."""
    numbers = np.asarray(record.numbers).tolist()
    header["numbers"] = numbers
    ids = header.setdefault("ids", list(map(str, numbers)))
    nodes = count_with_noun(dataset.degrees.shape[1], record.noun)
    edges = record.count_edges(dataset.edge_count, dataset.loop_count)
    header["size"] = f"{nodes}, {edges}; shown: {len(ids)} around {record.noun} {ids[0]}"


def _record_columns(
    dataset: ShardedDataset, data: Data, level: str, left_out: Sequence[str]
) -> Iterator[NamedColumn]:
    """Yield each field of the stored columns of the nodes or edges of a record, without some keys."""
    stored = [
        column
        for column in dataset.schema.columns
        if column.level == level and column.attribute in data and column.key not in left_out
    ]
    # A field may have the name of another column, which keeps it: ShapeNet's y is a coordinate
    # and the class.
    for column in sorted(stored, key=lambda column: bool(column.fields)):
        attribute = column.attribute
        values = data[attribute].numpy()
        values = values.reshape(len(values), -1).T
        names = column.fields or [f"{attribute} {i}" for i in range(len(values))]
        prefix = attribute
        if not column.fields and len(values) == 1:
            names = [attribute]
            prefix = "column"
        kinds = dict(enumerate(dataset.card.field_kinds(column.key)))
        for number, (name, row) in enumerate(zip(names, values, strict=False)):
            true_name, shift = SHIFTED_FIELDS.get(name, (name, 0))
            yield true_name, prefix, row + shift, kinds.get(number, "number")


def _centre_and_scale(pos: Array, up: str) -> tuple[F64, float, F64]:
    """Centre positions and scale their longest axis to :data:`PAGE_EXTENT`, with the upward axis last.

    Returns the positions, the scale and the original centre.
    """
    if pos.shape[1] == 3 and up == "y":
        pos = pos[:, [0, 2, 1]] * (1, -1, 1)
    low = pos.min(axis=0)
    high = pos.max(axis=0)
    scale = PAGE_EXTENT / max(float((high - low).max()), 1e-9)
    middle = (low + high) / 2
    return (pos - middle) * scale, scale, middle


def _pack_picture(picture: U8, scale: float, middle: Array, packer: ArrayPacker) -> Json:
    """Pack an image as JPEG with its corners on the page; its first pixel is the origin."""
    from PIL import Image

    jpeg = io.BytesIO()
    Image.fromarray(picture).save(jpeg, "jpeg", quality=80)
    height, width, _ = picture.shape
    corners = np.array([(-0.5, 0.5), (width - 0.5, 0.5 - height)])
    (left, top), (right, bottom) = (corners - middle) * scale
    return {
        "left": left,
        "top": top,
        "right": right,
        "bottom": bottom,
        "bytes": packer.add(np.frombuffer(jpeg.getvalue(), np.uint8)),
    }


def _page_header(
    position: Array,
    pairs: I64,
    layers: Sequence[Layer],
    columns: Sequence[Layer],
    packer: ArrayPacker,
) -> Json:
    """Pack positions (N, 2 or 3), lines (2, S), layers and columns, and return their header."""
    header: Json = {}
    # Digits that no zoom shows would only be bytes that do not compress.
    rounded = (np.rint(position / PAGE_UNIT) * PAGE_UNIT).astype(np.float32)
    for axis, values in zip("xyz", rounded.T, strict=False):
        header[axis] = packer.add(values)
    # All first ends, then all second ones, as narrow as they can be: half the bytes when compressed.
    header["streets"] = packer.add(pairs.astype(np.min_scalar_type(len(position))))
    header["layers"] = [packer.add_layer(layer) for layer in layers]
    header["columns"] = [packer.add_layer(column) for column in columns]
    return header
