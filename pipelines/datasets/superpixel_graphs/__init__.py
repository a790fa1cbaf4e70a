"""PascalVOC-SP and COCO-SP (LRGB): images as graphs of about 480 superpixels, with a class per superpixel.

Raw layout: ``train.pickle``, ``val.pickle`` and ``test.pickle``, each a list of tuples ``(x,
edge_attr, edge_index, y)``: float16 [N, 14], [E, 2] and int64 [2, E] as torch tensors, [N] as a
numpy array; or the processed ``.pt`` files of the mirrors, ``(Data, slices)``. Facts and
deviations: ``docs/datasets/superpixel-graphs.md``, ``docs/fidelity.md``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from kmip_data.arrays import F32, I64, Array
from kmip_data.errors import DamagedInput
from kmip_data.format.splits import PARTS
from kmip_data.graphs.splits import meta_labels, order_before_draw, stratified_draw
from kmip_data.manifest import Manifest
from kmip_data.pipelines.base import About, Params, Prepared
from kmip_data.pipelines.formats.pickles import Value, stream_list
from kmip_data.pipelines.formats.tensors import (
    NUMPY,
    PICKLED_TENSORS,
    PYG,
    PickledData,
    forget,
    mapped,
    read_torch_file,
)
from kmip_data.pipelines.shared.edges import both_ways
from kmip_data.pipelines.shared.records import in_order
from kmip_data.pipelines.shared.sample_files import write_pickled_list
from kmip_data.pipelines.short import Graph, GraphsPipeline, Raw

#: Category ids of COCO that exist, and background; a class is the rank of its id.
COCO_IDS = tuple(sorted({*range(91)} - {12, 26, 29, 30, 45, 66, 68, 69, 71, 83}))


class SuperpixelPipeline(GraphsPipeline):
    """Pipeline of ``pascalvoc-sp`` and ``coco-sp.toml``."""

    records_per_unit = 1_000  #: about 46 MB per shard
    background = 0

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self.is_coco = manifest.file == "coco-sp"  #: labels are category ids of COCO, not classes
        # The parts that were drawn from one set of pictures.
        self.stratified_parts = ("train", "val") if self.is_coco else ("val", "test")

    def read(self, raw: Raw) -> Iterator[tuple[str, Iterable[Graph]]]:
        """Read the graphs of each memory-mapped file, of up to 9 GB."""
        existing_files = sorted(path.name for path in raw.folder.glob("*") if path.stem in PARTS)
        ending = ".pickle" if "train.pickle" in existing_files else ".pt"
        names = {part: f"{part}{ending}" for part in PARTS}
        if existing_files != sorted(names.values()):
            listed = ", ".join(existing_files) or "none"
            raise DamagedInput(
                f"Of train, val and test there are {listed}, not all as .pickle or all as .pt."
            )
        read = _pickled if ending == ".pickle" else _joined
        has_ids = self.is_coco and ending == ".pickle"
        for part, name in names.items():
            path = raw.path(name)
            yield part, self._graphs(raw, raw.each("graph", read(path)), has_ids=has_ids)

    def _graphs(
        self, raw: Raw, graphs: Iterable[Sequence[Array]], *, has_ids: bool
    ) -> Iterator[Graph]:
        for x, edge_attr, edge_index, y in graphs:
            yield {
                "x": x,
                "edge_attr": np.asarray(edge_attr, np.float32),
                "edge_index": edge_index,
                "y": classes_of(y, raw.place) if has_ids else y,
            }

    def pool_order(self, parts: Sequence[Sequence[int]], labels: I64) -> Sequence[int]:
        """Return val and test of PascalVOC-SP in the order before LRGB's rule drew them with seed 0.

        The published files have them in the order of the draw, so it can be undone, and the rule
        with seed 0 gives the published parts again. If it cannot (partial or other data), return
        the source order.
        """
        if self.is_coco:
            return in_order(parts, labels)
        first, second = (np.asarray(part, np.int64) for part in parts)
        order = order_before_draw(labels[first], labels[second])
        if order is None or not len(order):
            return in_order(parts, labels)
        joined: list[int] = np.concatenate([first, second])[order].tolist()
        return joined

    def about(self, prepared: Prepared, params: Params) -> About:
        """Mean and deviation of each column, which the class (or a model's encoder) standardises with."""
        constants = {
            key: value.model_dump() for key, value in self.manifest.standardisation.items()
        }
        return About({"standardisation": constants})


PIPELINE = SuperpixelPipeline


def classes_of(labels: Array, where: str) -> Array:
    """Return the class of each label that is an id of COCO's categories: its rank."""
    unknown = labels[~np.isin(labels, COCO_IDS)]
    if unknown.size:
        raise DamagedInput(f"{where}: the label {unknown[0]} is no category of COCO.")
    return np.searchsorted(COCO_IDS, labels)


def _pickled(path: Path) -> Iterator[Sequence[Array]]:
    """Yield the tuples of a pickle."""
    mapping = mapped(path)
    for graphs, _ in stream_list(mapping, {**NUMPY, **PICKLED_TENSORS}, name=path.name):
        yield from graphs
        forget(mapping)  # pages are read once


def _joined(path: Path) -> Iterator[Sequence[Array]]:
    """Yield the graphs of PyTorch Geometric's ``(Data, slices)``, or its newer form."""
    mapping = mapped(path)
    content = read_torch_file(path, PYG, mapping=mapping)
    data, slices = content[:2] if isinstance(content, tuple) else (None, None)
    if isinstance(data, PickledData):
        data = data.mapping
    if not isinstance(data, Mapping) or not isinstance(slices, Mapping):
        raise DamagedInput(f"{path.name} is not the joined graphs and where each begins.")

    axes = {"x": 0, "edge_attr": 0, "edge_index": 1, "y": 0}
    parts = [
        _cut(path, name, data.get(name), slices.get(name), axis) for name, axis in axes.items()
    ]
    yield from zip(*parts, strict=True)
    forget(mapping)


def _cut(path: Path, name: str, array: Value, ends: Value, axis: int) -> Iterator[Array]:
    """Yield the slices of an array: each begins where the one before ends, the last at its end."""
    is_cut = isinstance(array, np.ndarray) and isinstance(ends, np.ndarray)
    if is_cut and array.ndim > axis and ends.ndim == 1 and ends.dtype.kind == "i" and ends.size:
        rows = np.moveaxis(array, axis, 0)
        if ends[0] == 0 and ends[-1] == len(rows) and (np.diff(ends) >= 0).all():
            for first, last in itertools.pairwise(ends.tolist()):
                yield np.moveaxis(rows[first:last], 0, axis)
            return
    raise DamagedInput(
        f"{path.name}: {name} is no array of all graphs with slices that rise to its end."
    )


# --- Sample ---------------------------------------------------------------------------------------

# Sample superpixel graphs in the layout of PascalVOC-SP and COCO-SP: generated, never the real data.
#
# A picture has one or two things in front of a background; it is cut into the cells of a jittered
# grid, which are described and joined as upstream describes and joins superpixels. What a thing is
# decides its colour.

DEFAULT_PICTURES = 90
SIZES = (500, 375)  #: columns and rows of a picture in pixels
_VOC_CLASSES = 21

Picture = tuple[NDArray[np.float16], F32, I64, I64]


def write_sample(
    folder: Path,
    manifest: Manifest,
    limit: int | None,
    seed: int,
) -> None:
    """Write ``train.pickle`` (3/5 of the pictures), and two halves of the rest as ``val`` and ``test``.

    The halves of a Pascal VOC sample are drawn by the stratified rule, as upstream's are.
    """
    count = limit or DEFAULT_PICTURES
    coco = manifest.file == "coco-sp"
    rng = Generator(PCG64(seed))
    ids = np.array(COCO_IDS) if coco else np.arange(_VOC_CLASSES)
    pictures = [make_picture(i, len(ids), rng, side=(6, 11)) for i in range(count)]
    held = 2 * count // 5
    pool = pictures[count - held :]
    val_size = held - held // 2
    if coco:
        val = np.arange(val_size)
        test = np.arange(val_size, held)
    else:
        classes = np.zeros((held, len(ids)), np.int64)
        for row, (*_, y) in enumerate(pool):
            classes[row] = np.bincount(y, minlength=len(ids))
        val, test = stratified_draw(meta_labels(classes, 0), val_size)

    # Labels are those of the raw file: ids of COCO in one byte, classes of Pascal VOC in four.
    parts = {
        "train": pictures[: count - held],
        "val": [pool[i] for i in val],
        "test": [pool[i] for i in test],
    }
    dtype = np.uint8 if coco else np.int32
    for name, chosen in parts.items():
        graphs = ((x, attr, edges, ids[y].astype(dtype)) for x, attr, edges, y in chosen)
        write_pickled_list(folder / f"{name}.pickle", graphs)


def make_picture(
    number: int,
    classes: int,
    rng: Generator,
    *,
    side: tuple[int, int],
) -> Picture:
    """Return features, edge features, edges and classes of one picture.

    Picture number 1 is a single superpixel.

    ``side`` is the least and the largest number of cells along a side of the grid.
    """
    columns = 1
    rows = 1
    if number != 1:
        columns, rows = rng.integers(*side, 2, endpoint=True).tolist()
    cells = np.column_stack(np.divmod(np.arange(rows * columns), columns))
    shift = rng.uniform(-0.2, 0.2, cells.shape)
    height_width = np.array(SIZES[::-1])
    # Centres in pixels, off the middle of their cell by up to a fifth of it.
    centre = (cells + 0.5 + shift) * height_width / (rows, columns)

    # Things are discs; the number of the picture is the class of the first, so that all occur.
    y = np.zeros(len(cells), np.int64)
    for thing in range(1 + int(rng.random() < 0.3)):
        kind = number if thing == 0 else int(rng.integers(classes))
        middle = rng.uniform(0.3, 0.7, 2) * SIZES[::-1]
        distance = np.linalg.norm((centre - middle) / SIZES[::-1], axis=1)
        radius = rng.uniform(0.15, 0.3)
        y[distance < radius] = kind % (classes - 1) + 1

    hue = 2 * np.pi * y[:, None] / classes + np.array([0.0, 2.1, 4.2])
    colour = 0.35 * np.cos(hue) * (y > 0)[:, None]  # the background is grey
    noise = rng.normal(0, 0.05, hue.shape)
    mean = np.clip(0.5 + colour + noise, 0, 1)
    spread = rng.uniform(0.01, 0.1, mean.shape)
    brightest = np.clip(mean + 3 * spread, 0, 1)
    darkest = np.clip(mean - 3 * spread, 0, 1)
    x = np.hstack([mean, spread, brightest, darkest, centre])

    single = len(cells) == 1
    # A single superpixel has an edge to itself, without features.
    edges = np.zeros((2, 1), np.int64) if single else _grid_edges(rows, columns)
    difference = mean[edges[0]] - mean[edges[1]]
    strength = np.linalg.norm(difference, axis=1) / 4
    # Both directions of a pair have one length: that of the smaller end.
    lengths = rng.integers(1, 60, len(cells))
    length = lengths[edges.min(axis=0)]
    attr = np.stack([strength, length], axis=1) * (not single)
    return x.astype(np.float16), attr.astype(np.float32), edges, y


def _grid_edges(rows: int, columns: int) -> I64:
    """Cells that touch, also at a corner from the upper left.

    Both directions are listed, by source and target.
    """
    number = np.arange(rows * columns).reshape(rows, columns)
    pairs = [
        (number[:, :-1], number[:, 1:]),
        (number[:-1], number[1:]),
        (number[:-1, :-1], number[1:, 1:]),
    ]
    sides = [np.stack([first.reshape(-1), second.reshape(-1)]) for first, second in pairs]
    both = both_ways(np.concatenate(sides, axis=1))
    order = np.lexsort(both[::-1])
    return both[:, order]
