"""Four sets of benchmarking-gnns: pictures as graphs of superpixels, and graphs of stochastic blocks.

Raw layout: one file written by ``torch.save``, a list of three lists (train, val, test) of
dictionaries. ``cifar10`` and ``mnist`` have ``x`` [N, 3] or [N, 1], ``pos`` [N, 2], ``edge_index``
[2, E], ``edge_attr`` [E] and ``y`` [1], the class of the picture; ``pattern`` and ``cluster`` have
``x`` [N, 3] or [N, 7], ``edge_index`` and ``y`` [N], the class of each node. Facts and deviations:
``docs/datasets/benchmark-gnns.md``, ``docs/fidelity.md``.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from kmip_data.arrays import Array
from kmip_data.errors import DamagedInput
from kmip_data.format.schema import Schema, View
from kmip_data.format.splits import PARTS
from kmip_data.format.writer import GraphRecord
from kmip_data.manifest import Manifest
from kmip_data.pipelines.base import Params, RawFolder
from kmip_data.pipelines.formats.tensors import forget, mapped, read_torch_file
from kmip_data.pipelines.shared.checks import array_of, check_all, check_edges, in_range
from kmip_data.pipelines.shared.pieces import PiecesPipeline
from kmip_data.pipelines.shared.records import class_column, feature_column

_FORGOTTEN = 1_000  #: graphs after which the pages of the file leave memory


class Layout(NamedTuple):
    """Features of the nodes of a dataset."""

    fields: tuple[str, ...]  #: columns of x
    doc: str
    size: int | None = None  #: pixels of a side of the pictures; None: stochastic blocks


_COLOURS = ("red [0-1]", "green [0-1]", "blue [0-1]")
_SEEDS = tuple(f"the one known node of class {number}" for number in range(6))
LAYOUTS = {
    "cifar10": Layout(_COLOURS, "mean colour of the superpixel, then its centre", 32),
    "mnist": Layout(("grey [0-1]",), "mean grey of the superpixel, then its centre", 28),
    "pattern": Layout(("signal 0", "signal 1", "signal 2"), "one of three signals, at random"),
    "cluster": Layout(("unknown", *_SEEDS), "whether the class of the node is given, and which"),
}


class BenchmarkPipeline(PiecesPipeline[Params]):
    """Pipeline of ``cifar10``, ``mnist``, ``pattern`` and ``cluster``."""

    records_per_unit = 2_000  #: about 20 MB per shard of CIFAR10, 50 MB of PATTERN
    split_note = "the lists of the raw file, in their order"

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self.layout = LAYOUTS[manifest.file]
        self.classes = manifest.expected.classes or 0
        self.sample_arguments = {"name": manifest.file}

    def schema(self, params: Params) -> Schema:
        """Features, of pictures with positions and similarities, and the class."""
        layout = self.layout
        if layout.size is None:
            label = class_column("node/y", self.classes, "class of the node")
            return Schema(
                columns=(feature_column("node/x", layout.fields, layout.doc), label),
                edges="index",
                max_nodes=self.manifest.max_nodes,
                directed=False,
                key_length=16,
            )

        fields = (*layout.fields, f"row / {layout.size}", f"column / {layout.size}")
        features = feature_column("node/x", fields, layout.doc)
        doc = "exp(-(distance of the centres / width)²): near superpixels have large values"
        similarity = feature_column("edge/attr", ("similarity",), doc)
        label = class_column("graph/y", self.classes, "class of the picture")
        channels = len(layout.fields)
        pos = View(attribute="pos", source="node/x", start=channels, stop=channels + 2)
        return Schema(
            columns=(features, similarity, label),
            views=(pos,),
            edges="index",
            max_nodes=self.manifest.max_nodes,
            key_length=16,
        )

    def parts(self, raw: RawFolder) -> Iterator[tuple[str, Iterable[Mapping[str, Array]]]]:
        """Read the file, which is one pickle, through a map; check its graphs one by one."""
        path = raw.path / self.manifest.content.anchor
        mapping = mapped(path)
        lists = read_torch_file(path, mapping=mapping)
        is_lists = isinstance(lists, list | tuple) and len(lists) == len(PARTS)
        if not is_lists or not all(type(graphs) is list for graphs in lists):
            raise DamagedInput(f"{path.name} is not three lists of graphs: train, val and test.")
        for part, graphs in zip(PARTS, lists, strict=True):
            yield part, self._checked(graphs, f"{path.name}, {part}", mapping)

    def _checked(
        self, graphs: list[Any], where: str, mapping: mmap.mmap
    ) -> Iterator[Mapping[str, Array]]:
        for number, graph in enumerate(graphs):
            yield self.check(graph, f"{where} {number}")
            if number % _FORGOTTEN == 0:
                forget(mapping)

    def check(self, graph: Any, where: str) -> dict[str, Array]:
        """Return the arrays of one graph, checked and as they are stored.

        ``x`` float32 (N, columns), ``source`` and ``target`` uint16 (E,), ``y`` uint8 (1,), of each
        node (N,); of pictures ``similarity`` float32 (E, 1), and the position in ``x``.
        """
        if not isinstance(graph, Mapping):
            raise DamagedInput(f"{where}: not a graph, but a {type(graph).__name__}.")
        pictures = self.layout.size is not None
        x = array_of(graph, "x", "f", (None, len(self.layout.fields)), where)
        edges = array_of(graph, "edge_index", "iu", (2, None), where)
        y = array_of(graph, "y", "iu", None, where).reshape(-1)
        most = self.manifest.max_nodes
        labelled = 1 if pictures else len(x)
        check_edges(edges, len(x), where)
        check_all(
            where,
            [
                (len(x) <= most, f"{len(x)} nodes, {most} at most"),
                (len(y) == labelled, f"{len(y)} classes, {labelled} expected"),
                (in_range(y, self.classes), f"a class that is not 0 to {self.classes - 1}"),
            ],
        )

        source, target = edges.astype(np.uint16)
        arrays = {"x": x, "source": source, "target": target, "y": y.astype(np.uint8)}
        if pictures:
            pos = array_of(graph, "pos", "f", (len(x), 2), where)
            similarity = array_of(graph, "edge_attr", "f", None, where).reshape(-1, 1)
            ends = edges.shape[1]
            same = len(similarity) == ends
            check_all(where, [(same, f"{len(similarity)} similarities of {ends} edges")])
            arrays["x"] = np.concatenate([x, pos], axis=1)
            arrays["similarity"] = similarity.astype(np.float32)
        arrays["x"] = arrays["x"].astype(np.float32)
        floats = [array for array in arrays.values() if array.dtype.kind == "f"]
        finite = all(np.isfinite(array).all() for array in floats)
        check_all(where, [(finite, "NaN or infinity")])
        return arrays

    def record(self, key: str, graph: Mapping[str, Array]) -> GraphRecord:
        """Return the record of one graph."""
        columns = {"node/x": graph["x"]}
        if self.layout.size is None:
            columns["node/y"] = graph["y"]
        else:
            columns["edge/attr"] = graph["similarity"]
            columns["graph/y"] = graph["y"][0]
        return GraphRecord(
            key=key,
            num_nodes=len(graph["x"]),
            columns=columns,
            edge_index=np.stack([graph["source"], graph["target"]]),
        )


PIPELINE = BenchmarkPipeline
