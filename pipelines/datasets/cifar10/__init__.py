"""CIFAR10 superpixels (benchmarking-gnns): pictures as graphs of up to 150 superpixels.

Raw layout: one file written by ``torch.save``, a list of three lists (train, val, test) of
dictionaries with ``x`` [N, 3], ``pos`` [N, 2], ``edge_index`` [2, E], ``edge_attr`` [E] and ``y``
[1]. Facts and deviations: ``docs/datasets/cifar10.md``, ``docs/fidelity.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from kmip_data.arrays import Array
from kmip_data.errors import DamagedInput
from kmip_data.format.schema import Schema, View
from kmip_data.format.splits import PARTS
from kmip_data.format.writer import GraphRecord
from kmip_data.pipelines.base import Params, RawFolder
from kmip_data.pipelines.formats.tensors import read_torch_file
from kmip_data.pipelines.shared.checks import array_of, check_all, check_edges, in_range
from kmip_data.pipelines.shared.pieces import PiecesPipeline
from kmip_data.pipelines.shared.records import class_column, feature_column

FILE: Final = "CIFAR10_v2.pt"
NUM_CLASSES: Final = 10


class CIFAR10Pipeline(PiecesPipeline[Params]):
    """Pipeline of ``cifar10``."""

    records_per_unit = 2_000  #: about 20 MB per shard
    split_note = "the lists of the raw file, in their order"

    def schema(self, params: Params) -> Schema:
        """Colour and position as one feature, similarities, and the class of the picture."""
        fields = ("red [0-1]", "green [0-1]", "blue [0-1]", "row / 32", "column / 32")
        features = feature_column(
            "node/x", fields, "mean colour of the superpixel, then its centre"
        )
        doc = "exp(-(distance of the centres / width)²): near superpixels have large values"
        similarity = feature_column("edge/attr", ("similarity",), doc)
        label = class_column("graph/y", NUM_CLASSES, "class of the picture")
        columns = (features, similarity, label)
        most = self.manifest.max_nodes
        pos = View(attribute="pos", source="node/x", start=3, stop=5)
        return Schema(
            columns=columns,
            views=(pos,),
            edges="index",
            max_nodes=most,
            key_length=16,
        )

    def parts(self, raw: RawFolder) -> Iterator[tuple[str, Iterable[Mapping[str, Array]]]]:
        """Read the file, which is one pickle, as a whole; check its graphs one by one."""
        lists = read_torch_file(raw.path / FILE)
        is_lists = isinstance(lists, list | tuple) and len(lists) == len(PARTS)
        if not is_lists or not all(type(graphs) is list for graphs in lists):
            raise DamagedInput(f"{FILE} is not three lists of graphs: the parts of CIFAR10.")
        most = self.manifest.max_nodes
        for part, graphs in zip(PARTS, lists, strict=True):
            yield (
                part,
                (check_graph(graph, f"{FILE}, {part} {i}", most) for i, graph in enumerate(graphs)),
            )

    def record(self, key: str, graph: Mapping[str, Array]) -> GraphRecord:
        """Return the record of one picture."""
        return GraphRecord(
            key=key,
            num_nodes=len(graph["x"]),
            columns={
                "node/x": graph["x"],
                "edge/attr": graph["edge_attr"],
                "graph/y": graph["y"].reshape(()),
            },
            edge_index=np.ascontiguousarray(graph["edges"].T),
        )


PIPELINE = CIFAR10Pipeline


def check_graph(graph: Any, where: str, max_nodes: int) -> dict[str, Array]:
    """Return the arrays of one graph, checked and as they are stored.

    ``x`` float32 (N, 5), ``edges`` uint16 (E, 2), ``edge_attr`` float32 (E, 1), ``y`` uint8 (1,).
    """
    if not isinstance(graph, Mapping):
        raise DamagedInput(f"{where}: not a graph, but a {type(graph).__name__}.")
    x = array_of(graph, "x", "f", (None, 3), where)
    pos = array_of(graph, "pos", "f", (len(x), 2), where)
    edges = array_of(graph, "edge_index", "iu", (2, None), where)
    attr = array_of(graph, "edge_attr", "f", None, where).reshape(-1, 1)
    y = array_of(graph, "y", "iu", None, where).reshape(-1)
    check_edges(edges, len(x), where)
    check_all(
        where,
        [
            (len(x) <= max_nodes, f"{len(x)} nodes, {max_nodes} at most"),
            (len(attr) == edges.shape[1], f"{len(attr)} similarities of {edges.shape[1]} edges"),
            (len(y) == 1 and in_range(y, NUM_CLASSES), f"the class {y[:4]}, not one from 0 to 9"),
            (all(np.isfinite(values).all() for values in (x, pos, attr)), "NaN or infinity"),
        ],
    )
    return {
        "x": np.concatenate([x, pos], axis=1, dtype=np.float32),
        "edges": edges.T.astype(np.uint16),
        "edge_attr": attr.astype(np.float32),
        "y": y.astype(np.uint8),
    }
