"""One graph for the explorer's page: a city, or a record of another build, with its arrays packed."""

from __future__ import annotations

import base64
import gzip
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from kmip_data.arrays import I64, U8
from kmip_data.builds.home import Build
from kmip_data.drawing.layouts import ATOM
from kmip_data.drawing.maps import (
    ATTRIBUTION,
    Categories,
    Layer,
    Scale,
    city_layers,
    part_layer,
    prediction_layers,
    read_city_map,
    right_wrong,
)
from kmip_data.drawing.pictures import Values, class_name, drawing_of, up_axis
from kmip_data.drawing.style import class_colors, element_colors, on_grounds, ramp
from kmip_data.errors import UsageError
from kmip_data.format.splits import NODE_PARTS
from kmip_data.wording import as_values, counted

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from kmip_data.reading.dataset import ShardedDataset

KINDS: Final = {"uint8": "u8", "uint16": "u16", "uint32": "u32", "float32": "f32", "float64": "f64"}
EXTENT: Final = 1_000.0  #: length of the longest axis of a record on its page
COLORS: Final = ("red", "green", "blue")  #: how the fields of a colour begin, whatever follows
TOPS: Final = (1, 255, 65_535)  #: what the brightest shade may be
STEPS: Final = 16  #: shades of a colour channel: all of them together fit any texture
#: Of the elements by their numbers: those that molecules have most.
SYMBOLS: Final = {
    1: "H",
    5: "B",
    6: "C",
    7: "N",
    8: "O",
    9: "F",
    15: "P",
    16: "S",
    17: "Cl",
    35: "Br",
}
CROWDED: Final = 4  #: edges a node from which only those of the node pointed at are drawn


class Packer:
    """Arrays one after another, and where each begins."""

    def __init__(self) -> None:
        self._data = bytearray()

    def add(self, values: NDArray[Any]) -> dict[str, Any]:
        """Append an array; return what the page needs to find it."""
        found = {"kind": KINDS[values.dtype.name], "at": len(self._data), "count": values.size}
        data = np.ascontiguousarray(values).tobytes()
        self._data += data + bytes(
            -len(data) % 8
        )  # typed arrays begin at a multiple of their width
        return found

    def add_column(self, values: NDArray[Any]) -> dict[str, Any]:
        """Append a column without loss; one of few distinct values as codes into a table of them."""
        # Identifiers are whole numbers below 2**53, which float64 holds exactly.
        numbers = values if values.dtype == np.float32 else values.astype(np.float64)
        distinct, codes = np.unique(numbers, return_inverse=True)
        if len(distinct) > min(65_536, len(numbers) // 2):
            return {"values": self.add(numbers)}
        narrow = np.uint8 if len(distinct) <= 256 else np.uint16
        return {"values": self.add(distinct), "codes": self.add(codes.astype(narrow))}

    def text(self) -> str:
        """All of it, compressed, as base64; equal arrays give equal text."""
        return base64.b64encode(gzip.compress(self._data, compresslevel=6, mtime=0)).decode()


@dataclass(frozen=True, kw_only=True)
class Graph:
    """One graph, ready for its page."""

    title: str
    credit: str
    thing: str  #: what a node is called
    header: dict[str, Any]  #: what the page says, and where it finds its arrays
    packer: Packer  #: the arrays
    truth: I64 | None  #: (N,) class of each node
    names: tuple[str, ...]  #: of the classes
    test: NDArray[np.bool_]  #: (N,) nodes that a run is measured on


def city_graph(build: Build, classes: I64 | None, split: str | None, run: str) -> Graph:
    """Return a city, with a run's predicted ``classes`` (N,) where there are any.

    ``split`` is the one that the run learned from, if it is one of the build's. Raises as
    :func:`~kmip_data.drawing.maps.read_city_map` does.
    """
    city = read_city_map(build)
    packer = Packer()
    layers = city_layers(city)
    if classes is not None:
        drawn, *said = prediction_layers(city, run, classes, split)
        layers = [drawn, *layers, *said]
    facts = (
        f"{counted(len(city.position), 'intersection')}, {counted(city.streets.shape[1], 'street')}"
    )
    header = _page_header(city.position, city.streets, city.columns, layers, packer)
    header |= {
        "facts": facts,
        "options": city.options,
        "metres": True,
        "degrees": list(city.columns)[:2],
    }
    header["explore"] = {"hops": city.hops, "unit": city.unit, "map": True}
    if city.unit == "m":  # the eccentricity adds up lengths; a build keeps no travel times
        header["explore"]["lengths"] = packer.add(city.lengths)
    codes = city.splits.get(split or build.card.default_split, np.full(len(city.classes), 2))
    names = tuple(f"{number}: {extent}" for number, extent in enumerate(city.class_ranges()))
    shown: Any = {"title": city.title, "credit": ATTRIBUTION, "thing": "intersection"}
    return Graph(
        **shown, header=header, packer=packer, truth=city.classes, names=names, test=codes == 2
    )


def record_graph(
    dataset: ShardedDataset,
    position: int,
    predicted: NDArray[Any] | None,
    run: str,
    picture: U8 | None = None,
) -> Graph:
    """Return a record of a build, with the classes or values (N,) that a run ``predicted``, if any.

    ``picture`` (H, W, 3) is what its superpixels were cut from; the page shows it below them.

    Raises ``UsageError`` where there is no such record.
    """
    if not 0 <= position < len(dataset):
        expected = f"0 to {len(dataset) - 1}" if len(dataset) else "a part with records"
        raise UsageError(f"There is no record {position}.", expected=expected)
    drawing = drawing_of(dataset, position)
    data = dataset[position]
    packer = Packer()
    card = dataset.card
    columns = _columns(dataset, data)
    names: tuple[str, ...] = ()
    layers = list[Layer]()
    if drawing.y is not None:
        names = tuple(class_name(i, card.class_names) for i in range(int(dataset.num_classes)))
        layers.append(_classes("class", drawing.y, names, "of the nodes, as labelled"))
        if predicted is not None:
            code = (drawing.y != predicted).astype(np.uint8)
            named = ("right", "wrong")
            note = f"{run}: {(drawing.y == predicted).mean():.1%} right"
            layers.append(Categories("right or wrong", code, named, lambda: right_wrong(2), note))
            layers.append(_classes("predicted class", predicted, names, f"by {run}"))
    elif drawing.values is not None:
        layers.append(Scale("target", drawing.values, drawing.unit, "of the nodes, as given"))
        if predicted is not None:
            error = np.abs(predicted - drawing.values)
            layers.append(
                Scale("absolute error", error, drawing.unit, f"{run}: mean {error.mean():.3g}")
            )
            layers.append(Scale("prediction", predicted, drawing.unit, f"by {run}"))
    if "test_mask" in data:
        known = [data[f"{part}_mask"].numpy() for part in NODE_PARTS]
        codes = np.select(known, range(len(known)), default=len(known)).astype(np.uint8)
        layers.append(part_layer("split", str(dataset.split_name), codes))
    # Classes come first: their colours are seen on any ground, those of the nodes themselves may be pale.
    layers += [*own_colors(columns), *elements(columns)]
    layers.append(
        Scale("edges of a node", drawing.degrees()[1].astype(np.float32), "", "that leave it")
    )
    lines, first = np.unique(np.sort(drawing.edge_index, axis=0), axis=1, return_index=True)
    joins_two = lines[0] != lines[1]
    lines = lines[:, joins_two]
    first = first[joins_two]
    edges = counted(drawing.edge_index.shape[1], "edge")
    facts = f"{counted(len(drawing.pos), 'node')}, {edges}"
    if lines.shape[1] != drawing.edge_index.shape[1]:
        facts += f" between {counted(lines.shape[1], 'pair')}"
    place = f" ({drawing.place})" if drawing.place else ""
    fitted, scale, middle = _fitted(drawing.pos, up_axis(card))
    header = _page_header(fitted, lines, columns, layers, packer)
    if drawing.bonds is not None:
        header["bonds"] = packer.add(drawing.bonds[first].astype(np.uint8))
    if picture is not None:
        header["picture"] = _packed_picture(picture, scale, middle, packer)
    test = data.test_mask.numpy() if "test_mask" in data else np.ones(len(drawing.pos), bool)
    header |= {"key": drawing.key, "facts": facts + place}
    header["options"] = as_values(card.parameters)
    crowded = lines.shape[1] > CROWDED * len(drawing.pos)
    header["explore"] = {"hops": 1, "label": drawing.label, "crowded": crowded}
    shown: Any = {
        "title": card.heading,
        "credit": str(card.license.get("notice", "")),
        "thing": "node",
    }
    return Graph(**shown, header=header, packer=packer, truth=drawing.y, names=names, test=test)


def _classes(name: str, codes: I64, names: tuple[str, ...], note: str) -> Categories:
    narrow = np.uint8 if len(names) <= 256 else np.uint16
    return Categories(
        name, codes.astype(narrow), names, lambda: class_colors(len(names), names), note
    )


def _columns(dataset: ShardedDataset, data: Data) -> dict[str, NDArray[Any]]:
    """Every number of a node by its name."""
    found: dict[str, NDArray[Any]] = {}
    for column in dataset.schema.columns:
        if column.level == "node" and (name := column.attribute) in data:
            values = data[name].numpy().reshape(int(data.num_nodes), -1).T
            several = [f"{name} {i}" for i in range(len(values))]
            names = column.fields or ([name] if len(values) == 1 else several)
            found |= dict(zip(names, values, strict=False))
    return found


def own_colors(columns: Values) -> list[Layer]:
    """The colours of the nodes themselves, where the features have them, of one, eight or sixteen bits."""
    names = [
        next((name for name in columns if name.removeprefix("mean ").startswith(color)), "")
        for color in COLORS
    ]
    if "" in names:
        return []
    shades = np.stack([columns[name] for name in names], axis=1)
    shades = (shades / next((top for top in TOPS if shades.max(initial=0) <= top), TOPS[-1])).clip(
        0, 1
    )
    steps = np.rint(shades * (STEPS - 1)).astype(np.int64)
    distinct, codes = np.unique(steps, axis=0, return_inverse=True)
    colors = [
        "#" + "".join(f"{step * 255 // (STEPS - 1):02x}" for step in row)
        for row in distinct.tolist()
    ]
    note = "the nodes' own, in 16 shades a channel"
    codes = codes.reshape(-1).astype(np.uint16)
    return [Categories("colour", codes, tuple(colors), lambda: colors, note)]


def elements(columns: Values) -> list[Layer]:
    """The elements of a molecule's atoms."""
    if ATOM not in columns:
        return []
    found, codes = np.unique(columns[ATOM].astype(np.int64) + 1, return_inverse=True)
    numbers = found.tolist()
    names = tuple(SYMBOLS.get(number, f"element {number}") for number in numbers)
    codes = codes.astype(np.uint8)
    return [Categories("element", codes, names, lambda: element_colors(numbers), "of the atoms")]


def _fitted(pos: NDArray[Any], up: str) -> tuple[NDArray[np.float64], float, NDArray[np.float64]]:
    """Places about the middle, the longest axis :data:`EXTENT` long; what is up in a cloud is last.

    Also the scale, and what the middle was.
    """
    if pos.shape[1] == 3 and up == "y":
        pos = pos[:, [0, 2, 1]] * (1, -1, 1)
    low = pos.min(axis=0)
    high = pos.max(axis=0)
    scale = EXTENT / max(float((high - low).max()), 1e-9)
    middle = (low + high) / 2
    return (pos - middle) * scale, scale, middle


def _packed_picture(
    picture: U8, scale: float, middle: NDArray[Any], packer: Packer
) -> dict[str, Any]:
    """Pack a picture as JPEG, with its corners on the page: its first pixel is the origin, rows go down."""
    from matplotlib.image import imsave

    packed = io.BytesIO()
    imsave(packed, np.ascontiguousarray(picture), format="jpeg", pil_kwargs={"quality": 80})
    height, width = picture.shape[:2]
    ends = np.array([(-0.5, 0.5), (width - 0.5, 0.5 - height)])
    (left, top), (right, bottom) = (ends - middle) * scale
    corners = {"left": left, "top": top, "right": right, "bottom": bottom}
    return {**corners, "bytes": packer.add(np.frombuffer(packed.getvalue(), np.uint8))}


def _page_header(
    position: NDArray[Any], pairs: I64, columns: Values, layers: Sequence[Layer], packer: Packer
) -> dict[str, Any]:
    """Return what any graph's page has: (N, 2 or 3) places, (2, S) lines, numbers of nodes, colours."""
    scales = {layer.name: layer.values for layer in layers if isinstance(layer, Scale)}
    axes = dict(zip("xyz", position.T.astype(np.float32), strict=False))
    return {
        **{axis: packer.add(values) for axis, values in axes.items()},
        "streets": packer.add(pairs.T.astype(np.uint32)),
        "layers": [_layer(layer, packer) for layer in layers],
        "columns": [
            {"name": name, **packer.add_column(of)} for name, of in {**scales, **columns}.items()
        ],
        "ramp": on_grounds(lambda: ramp(32)),
    }


def _layer(layer: Layer, packer: Packer) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": layer.name, "note": layer.note}
    if isinstance(layer, Scale):
        return {**shown, "unit": layer.unit}
    labels = {"labels": layer.labels, "colors": on_grounds(layer.paint), "counts": layer.counts}
    return {**shown, **labels, "codes": packer.add(layer.codes)}
