"""CIFAR10 superpixels (benchmarking-gnns): pictures as graphs of up to 150 superpixels.

Raw layout: one file written by ``torch.save``, a list of three lists (train, val, test) of
dictionaries with ``x`` [N, 3], ``pos`` [N, 2], ``edge_index`` [2, E], ``edge_attr`` [E] and ``y``
[1]. Facts and deviations: ``docs/datasets/cifar10.md``, ``docs/fidelity.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from kmip_data.arrays import Array
from kmip_data.errors import DamagedInput
from kmip_data.format.schema import Schema, View
from kmip_data.format.splits import PARTS
from kmip_data.format.writer import GraphRecord
from kmip_data.pipelines.base import (
    Params,
    Pipeline,
    Prepared,
    PublishedSplitParams,
    RawFolder,
    Unit,
)
from kmip_data.pipelines.formats.tensors import read_torch_file
from kmip_data.pipelines.shared.checks import array_of, check_all, check_edges, in_range
from kmip_data.pipelines.shared.records import class_column, feature_column, units_of_parts

FILE: Final = "CIFAR10_v2.pt"
NUM_CLASSES: Final = 10
RECORDS_PER_UNIT: Final = 2_000  #: about 20 MB per shard
_PIECES: Final = ("x", "edge_index", "edge_attr", "y", "node_ptr", "edge_ptr")


class CIFAR10Pipeline(Pipeline[Params, PublishedSplitParams]):
    """Pipeline of ``cifar10``."""

    version = 1
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

    def prepare(self, raw: RawFolder, params: Params, workdir: Path) -> Prepared:
        """Cut the file, which must be read as a whole, into arrays that workers map."""
        lists = read_torch_file(raw.path / FILE)
        is_lists = isinstance(lists, list | tuple) and len(lists) == len(PARTS)
        if not is_lists or not all(type(graphs) is list for graphs in lists):
            raise DamagedInput(f"{FILE} is not three lists of graphs: the parts of CIFAR10.")
        sizes = {}
        most = self.manifest.max_nodes
        for part, graphs in zip(PARTS, lists, strict=True):
            checked = []
            for i, graph in enumerate(graphs):
                checked.append(check_graph(graph, f"{FILE}, {part} {i}", most))
            write_pieces(workdir / part, checked)
            sizes[part] = len(checked)
        return Prepared(workdir, {"sizes": sizes})

    def units(self, prepared: Prepared, params: Params) -> list[Unit]:
        """Deal the graphs of each part."""
        return units_of_parts(prepared.plan["sizes"], params, RECORDS_PER_UNIT)

    def records(self, prepared: Prepared, unit: Unit, params: Params) -> Iterator[GraphRecord]:
        """Yield the graphs of one unit in the order of the file."""
        part = unit.items["part"]
        folder = prepared.path / part
        pieces = {
            name: np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
            for name in _PIECES
        }
        for row in unit.items["rows"]:
            nodes = slice(*pieces["node_ptr"][row : row + 2].tolist())
            edges = slice(*pieces["edge_ptr"][row : row + 2].tolist())
            yield GraphRecord(
                key=f"{part}/{row:06d}",
                num_nodes=nodes.stop - nodes.start,
                columns={
                    "node/x": np.array(pieces["x"][nodes]),
                    "edge/attr": np.array(pieces["edge_attr"][edges]),
                    "graph/y": np.array(pieces["y"][row]),
                },
                edge_index=np.array(pieces["edge_index"][:, edges]),
            )


PIPELINE = CIFAR10Pipeline


def check_graph(graph: Any, where: str, max_nodes: int) -> dict[str, Array]:
    """Return the arrays of one graph, checked and as they are stored.

    ``x`` float32 (N, 5), ``edge_index`` uint16 (2, E), ``edge_attr`` float32 (E, 1), ``y`` uint8
    ().
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
        "edge_index": edges.astype(np.uint16),
        "edge_attr": attr.astype(np.float32),
        "y": y[0].astype(np.uint8),
    }


def write_pieces(folder: Path, graphs: Sequence[Mapping[str, Array]]) -> None:
    """Join the arrays of graphs into one file each, with the first row of every graph."""
    folder.mkdir()

    def joined(name: str, empty: tuple[int, int], dtype: type[np.generic]) -> Array:
        # The empty array first, so that a part without graphs has arrays, too.
        arrays = [np.empty(empty, dtype), *(graph[name] for graph in graphs)]
        return np.concatenate(arrays, axis=empty.index(0))

    nodes = [len(graph["x"]) for graph in graphs]
    edges = [len(graph["edge_attr"]) for graph in graphs]
    arrays = {
        "node_ptr": np.cumsum([0, *nodes], dtype=np.int64),
        "edge_ptr": np.cumsum([0, *edges], dtype=np.int64),
        "x": joined("x", (0, 5), np.float32),
        "edge_index": joined("edge_index", (2, 0), np.uint16),
        "edge_attr": joined("edge_attr", (0, 1), np.float32),
        "y": np.array([graph["y"] for graph in graphs], np.uint8),
    }
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
