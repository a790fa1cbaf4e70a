"""PascalVOC-SP and COCO-SP (LRGB): pictures as graphs of about 480 superpixels, a class for each superpixel.

Raw layout: ``train.pickle``, ``val.pickle`` and ``test.pickle``, each a list of tuples ``(x,
edge_attr, edge_index, y)``: float16 [N, 14], [E, 2] and int64 [2, E] as torch tensors, [N] as a
numpy array; or the processed ``.pt`` files of the mirrors, ``(Data, slices)``. Facts and
deviations: ``docs/datasets/superpixel-graphs.md``, ``docs/fidelity.md``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from kmip_data.arrays import I64, U8
from kmip_data.errors import DamagedInput
from kmip_data.format.schema import Schema
from kmip_data.format.splits import PARTS
from kmip_data.format.writer import GraphRecord
from kmip_data.graphs.splits import order_before_draw
from kmip_data.manifest import Manifest
from kmip_data.pipelines.base import (
    About,
    Params,
    Pipeline,
    Prepared,
    PublishedSplitParams,
    RawFolder,
    Unit,
)
from kmip_data.pipelines.datasets.superpixel_graphs.pieces import (
    Piece,
    index_pickle,
    index_torch_file,
    read_pieces,
)
from kmip_data.pipelines.shared.records import (
    class_column,
    feature_column,
    in_order,
    units_of_parts,
)

RECORDS_PER_UNIT = 1_000  #: about 46 MB per shard
_OF_A_COLOUR = ("mean", "deviation of", "largest", "least")
FIELDS = (
    *(f"{what} {colour} [0-1]" for what in _OF_A_COLOUR for colour in ("red", "green", "blue")),
    "row of the centroid [px]",
    "column of the centroid [px]",
)
EDGE_FIELDS = ("mean edge strength along the boundary", "length of the boundary [px]")
#: Category ids of COCO that exist, and background; a class is the rank of its id.
COCO_IDS = tuple(sorted({*range(91)} - {12, 26, 29, 30, 45, 66, 68, 69, 71, 83}))
_NO_CLASS = 255


class SuperpixelPipeline(Pipeline[Params, PublishedSplitParams]):
    """Pipeline of ``pascalvoc-sp`` and ``coco-sp.toml``."""

    version = 1
    background = 0

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self.is_coco = manifest.file == "coco-sp"  #: labels are category ids of COCO, not classes
        # The parts that were drawn from one set of pictures.
        self.stratified_parts = ("train", "val") if self.is_coco else ("val", "test")

    def schema(self, params: Params) -> Schema:
        """Colour and place of each superpixel, strength and length of each boundary, and the class."""
        doc = "colour of the superpixel over its pixels, then its centre"
        features = feature_column("node/x", FIELDS, doc, stored="float16")
        doc = "the boundary of two superpixels; strength by the Sobel filter"
        boundary = feature_column("edge/attr", EDGE_FIELDS, doc)
        classes = len(self.manifest.class_names)
        label = class_column("node/y", classes, "class of the pixel at the rounded centre")
        columns = (features, boundary, label)
        return Schema(
            columns=columns,
            max_nodes=self.manifest.max_nodes,
            directed=False,
            key_length=16,
        )

    def prepare(self, raw: RawFolder, params: Params, workdir: Path) -> Prepared:
        """Note in one pass over each file where its graphs lie; nothing of the file is copied."""
        existing_files = sorted(path.name for path in raw.path.glob("*") if path.stem in PARTS)
        ending = ".pickle" if "train.pickle" in existing_files else ".pt"
        names = {part: f"{part}{ending}" for part in PARTS}
        if existing_files != sorted(names.values()):
            listed = ", ".join(existing_files) or "none"
            raise DamagedInput(
                f"Of train, val and test there are {listed}, not all as .pickle or all as .pt."
            )
        index = index_pickle if ending == ".pickle" else index_torch_file
        most = self.manifest.max_nodes
        sizes = {part: index(raw.path / name, workdir, most) for part, name in names.items()}
        # Relative, so that an unfinished build resumes where its home was moved to.
        folder = os.path.relpath(raw.path, workdir)
        return Prepared(
            workdir,
            {
                "raw": folder,
                "ending": ending,
                "sizes": sizes,
            },
        )

    def units(self, prepared: Prepared, params: Params) -> list[Unit]:
        """Deal the graphs of each part."""
        sizes = {part: prepared.plan["sizes"][part] for part in PARTS}
        return units_of_parts(sizes, params, RECORDS_PER_UNIT)

    def records(self, prepared: Prepared, unit: Unit, params: Params) -> Iterator[GraphRecord]:
        """Yield the graphs of one unit in the order of the file."""
        part = unit.items["part"]
        rows = unit.items["rows"]
        ending = prepared.plan["ending"]
        path = prepared.path / prepared.plan["raw"] / f"{part}{ending}"
        table = label_table(
            len(self.manifest.class_names), coco_ids=self.is_coco and ending == ".pickle"
        )
        for row, piece in zip(rows, read_pieces(path, prepared.path, rows), strict=True):
            yield make_record(piece, f"{part}/{row:06d}", f"{part}{ending}, graph {row}", table)

    def pool_order(self, parts: Sequence[Sequence[int]], labels: I64) -> Sequence[int]:
        """Val and test of PascalVOC-SP as they lay before LRGB's rule drew them with seed 0.

        The published files have them in the order of the draw, so it can be undone, and the rule
        with seed 0 gives the published parts again. Where it cannot (a part of the data, other
        data), the source order.
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


def label_table(classes: int, *, coco_ids: bool) -> U8:
    """Return the class of each label of the raw file, (256,); 255 where a label is none."""
    table = np.full(256, _NO_CLASS, np.uint8)
    labels = COCO_IDS if coco_ids else range(classes)
    table[list(labels)] = np.arange(classes)
    return table


def make_record(
    piece: Piece,
    key: str,
    where: str,
    table: U8,
) -> GraphRecord:
    """Check the values of one graph, one by one, and give them their stored types."""
    nodes = len(piece.y)
    x = np.array(piece.x, np.float16)
    if piece.x.dtype != np.float16 and not np.array_equal(x, piece.x):
        raise _wrong(where, "features that float16 does not hold")
    edge_attr = np.array(piece.edge_attr, np.float32)
    if not np.isfinite(x).all() or not np.isfinite(edge_attr).all():
        raise _wrong(where, "NaN or infinity")

    edge_index = np.empty((2, len(piece.source)), np.uint16)
    for row, ends in enumerate((piece.source, piece.target)):
        # A negative number is a very large one without its sign.
        numbers = np.array(ends, np.int64).view(np.uint64)
        if numbers.size and numbers.max() >= nodes:
            raise _wrong(where, f"edges of nodes {ends.min()} to {ends.max()}, of {nodes}")
        edge_index[row] = numbers

    labels = np.array(piece.y, np.int64)
    known = (labels >= 0) & (labels < len(table))
    y = table[np.where(known, labels, _NO_CLASS)]
    if y.max() == _NO_CLASS:
        raise _wrong(where, f"the label {labels[y == _NO_CLASS][0]}, which is no class")
    return GraphRecord(
        key=key,
        num_nodes=nodes,
        columns={"node/x": x, "edge/attr": edge_attr, "node/y": y},
        edge_index=edge_index,
    )


def _wrong(where: str, fault: str) -> DamagedInput:
    return DamagedInput(f"{where}: not a graph of superpixels: {fault}.")
