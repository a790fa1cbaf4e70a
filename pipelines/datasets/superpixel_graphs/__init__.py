"""PascalVOC-SP and COCO-SP (LRGB): images as graphs of about 480 superpixels, each with a class.

Raw layout: ``train.pickle``, ``val.pickle`` and ``test.pickle``, each a list of tuples ``(x,
edge_attr, edge_index, y)``: float16 [N, 14], [E, 2] and int64 [2, E] as torch tensors, [N] as a
numpy array; or the mirrors' processed ``.pt`` files, ``(Data, slices)``. Facts and
deviations: ``docs/datasets/superpixel-graphs.md``, ``docs/fidelity.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from kmip_data.arrays import I64, Array
from kmip_data.errors import DamagedInput
from kmip_data.format.split_files import PARTS
from kmip_data.graphs.split_rules import order_before_draw
from kmip_data.manifest import Manifest
from kmip_data.pipelines.base import CardAdditions, Prepared
from kmip_data.pipelines.formats.tensors import (
    PYG_GLOBALS,
    PickledData,
    map_file,
    read_torch_file,
    separate_graphs,
    stream_pickled_tensors,
)
from kmip_data.pipelines.graph_arrays.layout_reader import RawGraph, RawReader
from kmip_data.pipelines.layout_pipelines import GraphsInPartsPipeline, PublishedPart
from kmip_data.pipelines.parameters import BuildParams

#: COCO's category ids, including background; a class is the rank of its id.
COCO_IDS = tuple(sorted({*range(91)} - {12, 26, 29, 30, 45, 66, 68, 69, 71, 83}))


class LRGBSuperpixelPipeline(GraphsInPartsPipeline):
    """Pipeline of ``pascalvoc-sp`` and ``coco-sp``."""

    records_per_unit = 1_000  #: about 46 MB per shard
    background_class = 0

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self.is_coco = manifest.registered_name == "coco-sp"
        # Parts drawn from the same pictures.
        self.redrawn_parts = ("train", "val") if self.is_coco else ("val", "test")

    def read(self, raw: RawReader) -> Iterator[PublishedPart]:
        """Read the graphs of each part from a memory-mapped file of up to 9 GB."""
        existing_files = sorted(path.name for path in raw.folder.glob("*") if path.stem in PARTS)
        suffix = ".pickle" if "train.pickle" in existing_files else ".pt"
        names = {part: f"{part}{suffix}" for part in PARTS}
        if existing_files != sorted(names.values()):
            listed = ", ".join(existing_files) or "none"
            raise DamagedInput(
                f"Of train, val and test there are {listed}, not all as .pickle or all as .pt."
            )
        read = stream_pickled_tensors if suffix == ".pickle" else _read_collated_graphs
        has_ids = self.is_coco and suffix == ".pickle"
        for part, name in names.items():
            graphs = raw.track_items("graph", read(raw.find_path(name)))
            yield PublishedPart(part, self._convert_graphs(raw, graphs, has_ids=has_ids))

    def _convert_graphs(
        self, raw: RawReader, graphs: Iterable[Sequence[Array]], *, has_ids: bool
    ) -> Iterator[RawGraph]:
        for x, edge_attr, edge_index, y in graphs:
            yield {
                "x": x,
                "edge_attr": np.asarray(edge_attr, np.float32),
                "edge_index": edge_index,
                "y": classes_from_ids(y, raw.current_item) if has_ids else y,
            }

    def order_for_stratified(self, parts: Sequence[Sequence[int]], labels: I64) -> list[int]:
        """Restore the order before LRGB's rule drew PascalVOC-SP's val and test, by labels (G,).

        The published files keep the order of the draw, so it can be undone, and the rule with
        seed 0 reproduces the published parts. For partial or other data return the source order.
        """
        if self.is_coco:
            return super().order_for_stratified(parts, labels)
        first, second = (np.asarray(part, np.int64) for part in parts)
        order = order_before_draw(labels[first], labels[second])
        if order is None or not len(order):
            return super().order_for_stratified(parts, labels)
        joined: list[int] = np.concatenate([first, second])[order].tolist()
        return joined

    def card_additions(self, prepared: Prepared, params: BuildParams) -> CardAdditions:
        """Return the mean and deviation of each column, for standardisation by class or encoder."""
        constants = {
            key: value.model_dump() for key, value in self.manifest.standardisation.items()
        }
        return CardAdditions({"standardisation": constants})


PIPELINE = LRGBSuperpixelPipeline


def classes_from_ids(labels: Array, location: str) -> Array:
    """Return the class of each COCO category id (n,), its rank among the ids."""
    unknown = labels[~np.isin(labels, COCO_IDS)]
    if unknown.size:
        raise DamagedInput(f"{location}: the label {unknown[0]} is not a COCO category.")
    return np.searchsorted(COCO_IDS, labels)


def _read_collated_graphs(path: Path) -> Iterator[Sequence[Array]]:
    """Yield the graphs of PyTorch Geometric's collated ``(Data, slices)``."""
    content = read_torch_file(path, PYG_GLOBALS, mapping=map_file(path))
    data, slices = content[:2] if isinstance(content, tuple) else (None, None)
    if isinstance(data, PickledData):
        data = data.mapping
    if not isinstance(data, Mapping) or not isinstance(slices, Mapping):
        raise DamagedInput(f"{path.name} does not have collated graphs and their slices.")

    for graph in separate_graphs(data, slices, path.name):
        yield [graph[name] for name in ("x", "edge_attr", "edge_index", "y")]
