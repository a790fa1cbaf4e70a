"""Prepare a graph for the explorer page: a city, or a record of any other build."""

from __future__ import annotations

import base64
import gzip
import io
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kmip_data.arrays import F64, I64, U8, Array
from kmip_data.builds.home import Build
from kmip_data.drawing.layers import (
    Categories,
    Layer,
    Scale,
    cast_to_smallest_dtype,
    class_layer,
    page_limits,
    rgb_layer,
)
from kmip_data.drawing.maps import (
    ATTRIBUTION,
    MAX_DETOUR,
    city_layers,
    dense_area,
    part_layer,
    prediction_layers,
    read_city_map,
    streets_longer_than_drawn,
)
from kmip_data.drawing.molecules import SYMBOLS, atoms_from_features
from kmip_data.drawing.plottable_record import (
    PlottableRecord,
    Values,
    class_name,
    read_plottable_record,
    up_axis_name,
)
from kmip_data.drawing.run_predictions import (
    class_layers,
    distinguishing_names,
    error_difference,
    layers_of_second_run,
    outcome_layer,
    value_layers,
)
from kmip_data.drawing.style import (
    PALETTE,
    SHADES,
    colors_by_background,
    diverging_colors,
    element_colors,
    sequential_colors,
)
from kmip_data.errors import UsageError
from kmip_data.format.schema import FieldKind
from kmip_data.format.split_files import PART_CODES
from kmip_data.text import count_with_noun, format_parameters

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from kmip_data.reading.dataset import ShardedDataset

Json = dict[str, Any]  #: JSON that the page reads
PAGE_EXTENT = 1_000.0  #: length of a record's longest axis on its page
LATER_LAYERS = ("attention", "influence")  #: layers that the page adds from runs
MAX_CATEGORIES = len(PALETTE) * len(
    SHADES
)  #: distinct colours; with more, codes are coloured as numbers
#: labels of the values 0 and 1 of a mark, if they are not its name
FLAG_LABELS: dict[FieldKind, tuple[str, str]] = {"missing": ("has a value", "missing")}
MAX_EDGES_PER_NODE = 4  #: if exceeded, only the edges of the node under the pointer are drawn
MIN_CROWD = 400  #: edges that are always drawn


class ArrayPacker:
    """Concatenate arrays for a page, and describe where each one is."""

    def __init__(self) -> None:
        self._data = bytearray()

    def add(self, values: Array) -> Json:
        """Append an array (n,); return its type, offset and size for the page."""
        offset = len(self._data)
        data = np.ascontiguousarray(values).tobytes()
        padding = bytes(-len(data) % 8)  # JavaScript's typed arrays must be aligned
        self._data += data + padding
        return {
            "kind": f"{values.dtype.kind}{8 * values.dtype.itemsize}",  # such as u8 or f32
            "at": offset,
            "count": values.size,
        }

    def add_column(self, values: Array, center: float | None = None) -> Json:
        """Append a column (n,) without loss, with the limits of its colour scale about a ``center``.

        A column of few distinct values is stored as codes and a table of values.
        """
        # Identifiers are integers below 2**53, which are exact in float64.
        if values.dtype != np.float32:
            values = values.astype(np.float64)
        header: Json = {"limits": page_limits(values, center)}
        distinct, codes = np.unique(values, return_inverse=True)
        if len(distinct) > min(65_536, len(values) // 2):
            return {**header, "values": self.add(values)}
        return {
            **header,
            "values": self.add(distinct),
            "codes": self.add(cast_to_smallest_dtype(codes, len(distinct))),
        }

    def to_base64(self) -> str:
        """Return all arrays as compressed base64; equal arrays give equal strings."""
        data = gzip.compress(self._data, compresslevel=6, mtime=0)
        return base64.b64encode(data).decode()


@dataclass(frozen=True, kw_only=True)
class PageGraph:
    """One graph, ready for the page."""

    title: str
    credit: str  #: attribution that the license requires
    node_noun: str  #: what a node is, such as intersection or atom
    header: Json  #: texts, and types and offsets of the arrays
    packer: ArrayPacker  #: arrays
    truth: I64 | None  #: (N,) class of each node
    class_names: tuple[str, ...]
    test_mask: Array  #: (N,) bool, True for nodes that a run is evaluated on


def city_graph(
    build: Build,
    classes: I64 | None,
    split: str | None,
    run: str,
    *,
    other: tuple[str, I64] | None = None,
) -> PageGraph:
    """Return a city for the page, with a run's predicted ``classes`` (N,) if any.

    ``split`` is the run's split, if the build has it; ``other`` has the name of another run and its
    classes, for comparison. Raises the errors of :func:`~kmip_data.drawing.maps.read_city_map`.
    """
    city = read_city_map(build)
    packer = ArrayPacker()
    layers = city_layers(city)
    all_test = np.full(len(city.classes), 2)
    test = city.splits.get(split or build.card.default_split, all_test) == 2
    if classes is not None:
        right_or_wrong, *predictions = prediction_layers(city, run, classes, split)
        layers = [right_or_wrong, *layers, *predictions]
    if classes is not None and other is not None:
        run_names = distinguishing_names(run, other[0])
        outcomes = outcome_layer(city.classes, (classes, other[1]), run_names, test)
        second_layers = layers_of_second_run(prediction_layers(city, *other, split), run_names[1])
        layers = [outcomes, *layers, *second_layers]

    header = _page_header(
        city.position,
        city.streets,
        city.columns,
        layers,
        packer,
    )
    nodes = count_with_noun(len(city.position), "intersection")
    header["facts"] = f"{nodes}, {count_with_noun(city.streets.shape[1], 'street')}"
    header["options"] = city.options
    header["metres"] = True
    # The page first shows the dense area; some intersections may lie outside.
    low, high = dense_area(city.position)
    header["mass"] = np.stack([low, high], axis=1).tolist()
    is_detour = streets_longer_than_drawn(city)
    header["longer"] = packer.add(is_detour.astype(np.uint8))
    if is_detour.any():
        header["facts"] += f"; dashed: over {MAX_DETOUR:g} times as long as the line"
    header["degrees"] = list(city.columns)[:2]
    header["explore"] = {"hops": city.hops, "unit": city.unit, "map": True}
    if city.unit == "m":  # the eccentricity adds up lengths; builds have no travel times
        header["explore"]["lengths"] = packer.add(city.lengths)

    return PageGraph(
        title=city.title,
        credit=ATTRIBUTION,
        node_noun="intersection",
        header=header,
        packer=packer,
        truth=city.classes,
        class_names=city.class_labels(),
        test_mask=test,
    )


def graph_of_record(
    dataset: ShardedDataset,
    position: int,
    predicted: Array | None,
    run: str,
    picture: U8 | None = None,
    *,
    other: tuple[str, Array] | None = None,
) -> PageGraph:
    """Return a record for the page, with the classes or values (N,) that a run ``predicted``, if any.

    ``picture`` (H, W, 3) is the image behind its superpixels; ``other`` has the name of another run
    and its predictions, for comparison. Raises ``UsageError`` for an unknown record.
    """
    if not 0 <= position < len(dataset):
        records = count_with_noun(len(dataset), "record")
        raise UsageError(
            f"There is no record {position}.",
            found=f"{records}, numbered from 0",
            next=f"a record from 0 to {len(dataset) - 1}",
        )
    record = read_plottable_record(dataset, position)
    data = dataset[position]
    nodes = len(record.pos)
    card = dataset.card
    columns, kinds = _node_columns(dataset, data)

    # 1. Add the layers. Classes come first, because their colours are visible on any background,
    #    unlike the nodes' own colours.
    names: tuple[str, ...] = ()
    if record.y is not None:
        names = tuple(class_name(i, card.class_names) for i in range(int(dataset.num_classes)))
    test = data.test_mask.numpy() if "test_mask" in data else np.ones(nodes, bool)
    layers = _target_layers(record, names, predicted, run, other, test)
    if "test_mask" in data:
        masks = [data[f"{part}_mask"].numpy() for part in PART_CODES]
        codes = np.select(masks, range(len(masks)), default=len(masks)).astype(np.uint8)
        layers.append(part_layer("split", str(dataset.split_name), codes))
    own_colors = rgb_layer(columns)
    if own_colors is not None:
        layers.append(own_colors)
    layers += atom_layers(columns)
    is_one_way = record.has_no_reverse()
    incoming, outgoing = record.degrees()
    if is_one_way.any():
        layers.append(_degree_layer("outgoing edges", outgoing))
        layers.append(_degree_layer("incoming edges", incoming))
    else:
        layers.append(_degree_layer("edges of a node", outgoing))

    # 2. Draw one line per pair of nodes, however many edges join them; an arrow if all go one way.
    pairs = np.sort(record.edge_index, axis=0)
    lines, first = np.unique(pairs, axis=1, return_index=True)
    is_pair = lines[0] != lines[1]
    first = first[is_pair]
    is_one_way = is_one_way[first]
    lines = np.where(is_one_way, record.edge_index[:, first], lines[:, is_pair])

    # 3. Build the header.
    page_pos, scale, middle = _centre_and_scale(record.pos, up_axis_name(card))
    packer = ArrayPacker()
    header = _page_header(page_pos, lines, columns, layers, packer, kinds)
    if is_one_way.any():
        header["one_way"] = packer.add(is_one_way.astype(np.uint8))
    if record.bonds is not None:
        header["bonds"] = packer.add(record.bonds[first].astype(np.uint8))
    if picture is not None:
        header["picture"] = _pack_picture(picture, scale, middle, packer)
    if record.metres:
        header["metre"] = scale  # page units per metre
    header["key"] = record.key
    header["facts"] = _graph_size_text(record, lines.shape[1])
    header["options"] = format_parameters(card.parameters)
    header["explore"] = {
        "hops": 1,
        "label": record.label,
        "crowded": lines.shape[1] > max(MAX_EDGES_PER_NODE * nodes, MIN_CROWD),
    }
    return PageGraph(
        title=card.heading,
        credit=str(card.license.get("notice", "")),
        node_noun="node",
        header=header,
        packer=packer,
        truth=record.y,
        class_names=names,
        test_mask=test,
    )


def _degree_layer(name: str, degrees: I64) -> Scale:
    return Scale(name, degrees.astype(np.float32), "", "parallel edges and loops count")


def _target_layers(
    record: PlottableRecord,
    names: tuple[str, ...],
    predicted: Array | None,
    run: str,
    other: tuple[str, Array] | None,
    test: Array,
) -> list[Layer]:
    """Return layers of classes or targets, of a run's predictions, and of the comparison of two runs."""
    runs = [] if predicted is None else [(run, predicted)]
    if runs and other:
        runs.append(other)
    layers: list[Layer]
    if record.y is not None:
        truth = record.y
        layers = [class_layer("class", truth, names, "stored labels of the nodes")]
        layers_of_runs = [class_layers(truth, names, values, name, test) for name, values in runs]
    elif record.values is not None:
        targets = record.values
        layers = [Scale("target", targets, record.unit, "stored targets of the nodes")]
        layers_of_runs = [
            value_layers(targets, record.unit, values, name, test) for name, values in runs
        ]
    else:
        return []

    if layers_of_runs:
        layers += layers_of_runs[0]
    if len(runs) == 2:
        run_names = distinguishing_names(runs[0][0], runs[1][0])
        both_predicted = (runs[0][1], runs[1][1])
        layers += layers_of_second_run(layers_of_runs[1], run_names[1])
        if record.y is not None:
            comparison = outcome_layer(record.y, both_predicted, run_names, test)
        else:
            comparison = error_difference(targets, record.unit, both_predicted, run_names)
        layers.insert(0, comparison)
    return layers


def _graph_size_text(record: PlottableRecord, lines: int) -> str:
    nodes = count_with_noun(len(record.pos), "node")
    edges = record.edge_index.shape[1]
    facts = f"{nodes}, {count_with_noun(edges, 'edge')}"
    if lines != edges:
        facts += f" between {count_with_noun(lines, 'pair')}"
    if record.position_source:
        facts += f" ({record.position_source})"
    return facts


def _node_columns(
    dataset: ShardedDataset, data: Data
) -> tuple[dict[str, Array], dict[str, FieldKind]]:
    """Return all node columns by name, one value per node, and the known kinds of columns."""
    stored = [
        column
        for column in dataset.schema.columns
        if column.level == "node" and column.attribute in data
    ]
    # A field may have the name of another column: ShapeNet's y is a coordinate and the class.
    taken = {column.attribute for column in stored if not column.fields}
    columns: dict[str, Array] = {}
    kinds: dict[str, FieldKind] = {}
    for column in stored:
        name = column.attribute
        values = data[name].numpy().reshape(int(data.num_nodes), -1).T
        names = [name]
        if column.fields or len(values) > 1:
            names = []
            for field in column.fields or [f"{name} {i}" for i in range(len(values))]:
                field_name = _distinct_name(field, name, taken)
                taken.add(field_name)
                names.append(field_name)
        columns |= zip(names, values, strict=False)
        kinds |= zip(names, dataset.card.field_kinds(column.key), strict=False)
    return columns, kinds


def _distinct_name(name: str, prefix: str, taken: Collection[str]) -> str:
    """Return the name, behind the prefix if the name is taken.

    >>> _distinct_name("y", "pos", {"y"}), _distinct_name("z", "pos", {"y"})
    ('pos y', 'z')
    """
    while name in taken:
        name = f"{prefix} {name}"
    return name


def _names_next_to_layers(columns: Values, layers: Sequence[Layer]) -> dict[str, str]:
    """Return the columns of the page by name, renamed if a layer with other values has their name."""
    named_layers = {layer.name: layer for layer in layers}
    taken = {*named_layers, *LATER_LAYERS, *columns}
    renamed: dict[str, str] = {}
    for name, values in columns.items():
        if name not in named_layers and name not in LATER_LAYERS:
            renamed[name] = name
            continue
        layer = named_layers.get(name)
        if isinstance(layer, Scale) and np.array_equal(layer.values, values, equal_nan=True):
            continue  # the layer shows it, such as a city's eccentricity
        distinct = _distinct_name(name, "column", taken)
        taken.add(distinct)
        renamed[distinct] = name
    return renamed


def atom_layers(columns: Values) -> list[Layer]:
    """Return a layer of the elements of a molecule's atoms, if the columns describe atoms."""
    if not columns:
        return []
    atoms = atoms_from_features([*columns], np.stack([*columns.values()], axis=1))
    if atoms is None:
        return []
    atomic_numbers = [atom.number for atom in atoms]
    distinct, codes = np.unique(atomic_numbers, return_inverse=True)
    numbers = distinct.tolist()
    return [
        Categories(
            "element",
            codes.astype(np.uint8),
            tuple(SYMBOLS.get(number, f"element {number}") for number in numbers),
            lambda: element_colors(numbers),
            "of the atoms",
        )
    ]


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
    from matplotlib.image import imsave

    jpeg = io.BytesIO()
    imsave(
        jpeg,
        np.ascontiguousarray(picture),
        format="jpeg",
        pil_kwargs={"quality": 80},
    )
    height, width = picture.shape[:2]
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
    columns: Values,
    layers: Sequence[Layer],
    packer: ArrayPacker,
    kinds: Mapping[str, FieldKind] | None = None,
) -> Json:
    """Pack positions (N, 2 or 3), lines (2, S), layers and columns, and return their header.

    ``kinds`` has the kinds of columns that are coloured by flags or categories.
    """
    header: Json = {}
    for axis, values in zip("xyz", position.T.astype(np.float32), strict=False):
        header[axis] = packer.add(values)
    header["streets"] = packer.add(pairs.T.astype(np.uint32))
    header["layers"] = [_pack_layer(layer, packer) for layer in layers]

    # The page finds the values of a layer, and of a stored column, by name.
    scales = [layer for layer in layers if isinstance(layer, Scale)]
    header["columns"] = [
        {"name": layer.name, **packer.add_column(layer.values, layer.center)} for layer in scales
    ]
    for page_name, name in _names_next_to_layers(columns, layers).items():
        kind = (kinds or {}).get(name, "number")
        header["columns"].append(_pack_column(page_name, columns[name], kind, packer))
    header["ramp"] = colors_by_background(lambda: sequential_colors(32))
    header["diverging"] = colors_by_background(lambda: diverging_colors(33))
    return header


def _pack_column(name: str, values: Array, kind: FieldKind, packer: ArrayPacker) -> Json:
    """Pack a column (N,); flags and categories have a label and a colour for each of their values."""
    if kind in {"number", "position"}:
        return {"name": name, **packer.add_column(values)}

    # 1. The possible values; a damaged card may give a kind that the values do not have.
    distinct, codes = np.unique(values, return_inverse=True)
    labels = tuple(f"{value:g}" for value in distinct.tolist())
    has_colors = len(distinct) <= MAX_CATEGORIES
    if kind != "category":
        labels = FLAG_LABELS.get(kind, (f"not {name}", name))
        has_colors = bool(np.isin(distinct, (0, 1)).all())
        distinct = np.arange(2)
        codes = values
    if not has_colors:
        return {"name": name, **packer.add_column(values)}

    # 2. The layer's codes are positions in the values, so that a column is stored once.
    layer = class_layer(name, codes.astype(np.int64), labels)
    return {**_pack_layer(layer, packer), "values": packer.add(distinct.astype(np.float64))}


def _pack_layer(layer: Layer, packer: ArrayPacker) -> Json:
    header: Json = {"name": layer.name, "note": layer.note}
    if isinstance(layer, Scale):
        header["unit"] = layer.unit
        return header
    header["labels"] = layer.labels
    header["colors"] = colors_by_background(layer.color_function)
    header["counts"] = layer.counts
    header["codes"] = packer.add(layer.codes)
    return header
