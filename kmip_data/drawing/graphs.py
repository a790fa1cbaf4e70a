"""One graph for the explorer page: a city, or a record of another build, with packed arrays."""

from __future__ import annotations

import base64
import gzip
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass
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
    limits_of_scale,
)
from kmip_data.drawing.maps import (
    ATTRIBUTION,
    LONGER,
    city_layers,
    dense_area,
    part_layer,
    prediction_layers,
    read_city_map,
    streets_longer_than_drawn,
)
from kmip_data.drawing.molecules import SYMBOLS, atoms_from_features
from kmip_data.drawing.records import Drawing, Values, class_name, read_drawing, up_axis_name
from kmip_data.drawing.run_predictions import (
    class_layers,
    distinguishing_names,
    error_difference,
    layers_of_second_run,
    outcome_layer,
    value_layers,
)
from kmip_data.drawing.style import colors_by_background, element_colors, sequential_colors
from kmip_data.errors import UsageError
from kmip_data.format.split_files import NODE_PARTS
from kmip_data.text import count_with_noun, format_parameters

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from kmip_data.reading.dataset import ShardedDataset

Json = dict[str, Any]  #: JSON that the page reads
EXTENT = 1_000.0  #: length of a record's longest axis on its page
COLORS = ("red", "green", "blue")  #: prefixes of the fields of a colour
TOPS = (1, 255, 65_535)  #: possible values of the brightest shade
STEPS = 16  #: shades per colour channel: all combinations fit any texture
CROWDED = 4  #: edges per node above which only the edges of the node under the pointer are drawn


class Packer:
    """Concatenated arrays, with their offsets."""

    def __init__(self) -> None:
        self._data = bytearray()

    def add(self, values: Array) -> Json:
        """Append an array (n,); return its offset and type for the page."""
        offset = len(self._data)
        data = np.ascontiguousarray(values).tobytes()
        padding = bytes(-len(data) % 8)  # typed arrays begin at a multiple of their width
        self._data += data + padding
        return {
            "kind": f"{values.dtype.kind}{8 * values.dtype.itemsize}",  # such as u8 or f32
            "at": offset,
            "count": values.size,
        }

    def add_column(self, values: Array) -> Json:
        """Append a column (n,) without loss, with the limits of its scale of colours.

        A column of few distinct values becomes codes into a table of them.
        """
        # Identifiers are integers below 2**53, which float64 holds exactly.
        if values.dtype != np.float32:
            values = values.astype(np.float64)
        facts = {"limits": asdict(limits_of_scale(values))}
        distinct, codes = np.unique(values, return_inverse=True)
        if len(distinct) > min(65_536, len(values) // 2):
            return {**facts, "values": self.add(values)}
        return {
            **facts,
            "values": self.add(distinct),
            "codes": self.add(cast_to_smallest_dtype(codes, len(distinct))),
        }

    def to_base64(self) -> str:
        """Return all arrays, compressed, as base64; equal arrays give equal text."""
        data = gzip.compress(self._data, compresslevel=6, mtime=0)
        return base64.b64encode(data).decode()


@dataclass(frozen=True, kw_only=True)
class PageGraph:
    """One graph, ready for its page."""

    title: str
    credit: str
    thing: str  #: name of a node, such as intersection or atom
    header: Json  #: texts of the page, and offsets of its arrays
    packer: Packer  #: the arrays
    truth: I64 | None  #: (N,) class of each node
    names: tuple[str, ...]  #: class names
    test: Array  #: (N,) bool, nodes that a run is evaluated on


def city_graph(
    build: Build,
    classes: I64 | None,
    split: str | None,
    run: str,
    *,
    other: tuple[str, I64] | None = None,
) -> PageGraph:
    """Return a city, with a run's predicted ``classes`` (N,) if any.

    ``split`` is the run's split, if it is one of the build's; ``other`` the name of another run and
    its classes, to be compared. Raises as :func:`~kmip_data.drawing.maps.read_city_map` does.
    """
    city = read_city_map(build)
    packer = Packer()
    layers = city_layers(city)
    all_test = np.full(len(city.classes), 2)
    test = city.splits.get(split or build.card.default_split, all_test) == 2
    if classes is not None:
        right_or_wrong, *others = prediction_layers(city, run, classes, split)
        layers = [right_or_wrong, *layers, *others]
    if classes is not None and other is not None:
        both = distinguishing_names(run, other[0])
        outcomes = outcome_layer(city.classes, (classes, other[1]), both, test)
        more = layers_of_second_run(prediction_layers(city, *other, split), both[1])
        layers = [outcomes, *layers, *more]

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
    # The page begins with the mass; some intersections may lie outside.
    low, high = dense_area(city.position)
    header["mass"] = np.stack([low, high], axis=1).tolist()
    longer = streets_longer_than_drawn(city)
    header["longer"] = packer.add(longer.astype(np.uint8))
    if longer.any():
        header["facts"] += f"; dashed: over {LONGER:g} times as long as the line"
    header["degrees"] = list(city.columns)[:2]
    header["explore"] = {"hops": city.hops, "unit": city.unit, "map": True}
    if city.unit == "m":  # the eccentricity sums lengths; a build has no travel times
        header["explore"]["lengths"] = packer.add(city.lengths)

    return PageGraph(
        title=city.title,
        credit=ATTRIBUTION,
        thing="intersection",
        header=header,
        packer=packer,
        truth=city.classes,
        names=city.class_labels(),
        test=test,
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
    """Return a record of a build, with the classes or values (N,) that a run ``predicted``, if any.

    ``picture`` (H, W, 3) is the image of its superpixels, shown below them; ``other`` the name of
    another run and what it predicted, to be compared.

    Raises ``UsageError`` for an unknown record.
    """
    if not 0 <= position < len(dataset):
        records = count_with_noun(len(dataset), "record")
        raise UsageError(
            f"There is no record {position}.",
            found=f"{records}, numbered from 0",
            next=f"a record from 0 to {len(dataset) - 1}",
        )
    drawing = read_drawing(dataset, position)
    data = dataset[position]
    nodes = len(drawing.pos)
    card = dataset.card
    columns = _node_columns(dataset, data)

    # 1. Layers of colour. Classes come first, as their colours are visible on any background,
    # unlike the nodes' own.
    names: tuple[str, ...] = ()
    if drawing.y is not None:
        names = tuple(class_name(i, card.class_names) for i in range(int(dataset.num_classes)))
    test = data.test_mask.numpy() if "test_mask" in data else np.ones(nodes, bool)
    layers = _target_layers(drawing, names, predicted, run, other, test)
    if "test_mask" in data:
        masks = [data[f"{part}_mask"].numpy() for part in NODE_PARTS]
        codes = np.select(masks, range(len(masks)), default=len(masks)).astype(np.uint8)
        layers.append(part_layer("split", str(dataset.split_name), codes))
    layers += [*rgb_layers(columns), *atom_layers(columns)]
    outgoing = drawing.degrees()[1].astype(np.float32)
    layers.append(Scale("edges of a node", outgoing, "", "number of edges that leave each node"))

    # 2. Lines: a pair of nodes once, however many edges join them.
    pairs = np.sort(drawing.edge_index, axis=0)
    lines, first = np.unique(pairs, axis=1, return_index=True)
    joins_two = lines[0] != lines[1]
    lines = lines[:, joins_two]
    first = first[joins_two]

    # 3. The header.
    fitted, scale, middle = _centre_and_scale(drawing.pos, up_axis_name(card))
    packer = Packer()
    header = _page_header(fitted, lines, columns, layers, packer)
    if drawing.bonds is not None:
        header["bonds"] = packer.add(drawing.bonds[first].astype(np.uint8))
    if picture is not None:
        header["picture"] = _pack_picture(picture, scale, middle, packer)
    if drawing.metres:
        header["metre"] = scale  # units of the page in a metre
    header["key"] = drawing.key
    header["facts"] = _record_facts(drawing, lines.shape[1])
    header["options"] = format_parameters(card.parameters)
    header["explore"] = {
        "hops": 1,
        "label": drawing.label,
        "crowded": lines.shape[1] > CROWDED * nodes,
    }
    return PageGraph(
        title=card.heading,
        credit=str(card.license.get("notice", "")),
        thing="node",
        header=header,
        packer=packer,
        truth=drawing.y,
        names=names,
        test=test,
    )


def _target_layers(
    drawing: Drawing,
    names: tuple[str, ...],
    predicted: Array | None,
    run: str,
    other: tuple[str, Array] | None,
    test: Array,
) -> list[Layer]:
    """Return layers of classes or targets, of a run's predictions, and of two runs compared."""
    compared = None if predicted is None or other is None else (predicted, other[1])
    names_of_runs = distinguishing_names(run, other[0]) if other else ("", "")
    layers: list[Layer] = []
    if drawing.y is not None:
        truth = drawing.y
        if compared:
            layers.append(outcome_layer(truth, compared, names_of_runs, test))
        layers.append(class_layer("class", truth, names, "of the nodes, as labelled"))
        if predicted is not None:
            layers += class_layers(truth, names, predicted, run)
        if compared and other:
            layers += layers_of_second_run(
                class_layers(truth, names, other[1], other[0]), names_of_runs[1]
            )
    elif drawing.values is not None:
        values = drawing.values
        unit = drawing.unit
        if compared:
            layers.append(error_difference(values, unit, compared, names_of_runs))
        layers.append(Scale("target", values, unit, "of the nodes, as given"))
        if predicted is not None:
            layers += value_layers(values, unit, predicted, run)
        if compared and other:
            layers += layers_of_second_run(
                value_layers(values, unit, other[1], other[0]), names_of_runs[1]
            )
    return layers


def _record_facts(drawing: Drawing, lines: int) -> str:
    nodes = count_with_noun(len(drawing.pos), "node")
    edges = drawing.edge_index.shape[1]
    facts = f"{nodes}, {count_with_noun(edges, 'edge')}"
    if lines != edges:
        facts += f" between {count_with_noun(lines, 'pair')}"
    if drawing.position_source:
        facts += f" ({drawing.position_source})"
    return facts


def _node_columns(dataset: ShardedDataset, data: Data) -> dict[str, Array]:
    """Return all numbers of nodes by name."""
    columns: dict[str, Array] = {}
    for column in dataset.schema.columns:
        name = column.attribute
        if column.level != "node" or name not in data:
            continue
        values = data[name].numpy().reshape(int(data.num_nodes), -1).T
        names: Sequence[str] = [name]
        if column.fields:
            names = column.fields
        elif len(values) != 1:
            names = [f"{name} {i}" for i in range(len(values))]
        columns.update(zip(names, values, strict=False))
    return columns


def rgb_layers(columns: Values) -> list[Layer]:
    """Return the colours of the nodes if features contain them, of 1, 8 or 16 bits."""
    channels = []
    for color in COLORS:
        names = [name for name in columns if name.removeprefix("mean ").startswith(color)]
        if not names:
            return []
        channels.append(columns[names[0]])

    shades = np.stack(channels, axis=1)
    brightest = shades.max(initial=0)
    top = next((top for top in TOPS if brightest <= top), TOPS[-1])
    steps = np.rint((shades / top).clip(0, 1) * (STEPS - 1)).astype(np.int64)
    distinct, codes = np.unique(steps, axis=0, return_inverse=True)
    brightness = (distinct * 255 // (STEPS - 1)).tolist()
    colors = [f"#{bytes(color).hex()}" for color in brightness]
    return [
        Categories(
            "colour",
            codes.reshape(-1).astype(np.uint16),
            tuple(colors),
            lambda: colors,
            "the nodes' own, in 16 shades a channel",
        )
    ]


def atom_layers(columns: Values) -> list[Layer]:
    """Return the elements of a molecule's atoms as a layer, if there are any."""
    atoms = (
        atoms_from_features([*columns], np.stack([*columns.values()], axis=1)) if columns else None
    )
    if atoms is None:
        return []
    numbers_of_atoms = [atom.number for atom in atoms]
    distinct, codes = np.unique(numbers_of_atoms, return_inverse=True)
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
    """Return positions about their middle, the longest axis :data:`EXTENT` long, the upward axis last.

    Also return the scale and the original middle.
    """
    if pos.shape[1] == 3 and up == "y":
        pos = pos[:, [0, 2, 1]] * (1, -1, 1)
    low = pos.min(axis=0)
    high = pos.max(axis=0)
    scale = EXTENT / max(float((high - low).max()), 1e-9)
    middle = (low + high) / 2
    return (pos - middle) * scale, scale, middle


def _pack_picture(picture: U8, scale: float, middle: Array, packer: Packer) -> Json:
    """Pack a picture as JPEG, with its corners on the page: its first pixel is the origin, rows go down."""
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
    packer: Packer,
) -> Json:
    """Return the common header of a page: (N, 2 or 3) positions, (2, S) lines, numbers of nodes, colours."""
    header: Json = {}
    for axis, values in zip("xyz", position.T.astype(np.float32), strict=False):
        header[axis] = packer.add(values)
    header["streets"] = packer.add(pairs.T.astype(np.uint32))
    header["layers"] = [_pack_layer(layer, packer) for layer in layers]

    scales = {layer.name: layer.values for layer in layers if isinstance(layer, Scale)}
    header["columns"] = [
        {"name": name, **packer.add_column(values)}
        for name, values in {**scales, **columns}.items()
    ]
    header["ramp"] = colors_by_background(lambda: sequential_colors(32))
    return header


def _pack_layer(layer: Layer, packer: Packer) -> Json:
    shown: Json = {"name": layer.name, "note": layer.note}
    if isinstance(layer, Scale):
        shown["unit"] = layer.unit
        return shown
    shown["labels"] = layer.labels
    shown["colors"] = colors_by_background(layer.paint)
    shown["counts"] = layer.counts
    shown["codes"] = packer.add(layer.codes)
    return shown
