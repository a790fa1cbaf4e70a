"""Six graphs of Geom-GCN: linked web pages and actors, with a class per node.

Raw layout: ``out1_node_feature_label.txt`` has a header, then tab-separated node number, features
and label; the features are 0 and 1 separated by commas, in ``actor`` the positions of the ones.
``out1_graph_edges.txt`` has a header, then two node numbers per line. Ten published splits,
``NAME_split_0.6_0.2_{0…9}.npz``, have the arrays ``train_mask``, ``val_mask`` and ``test_mask``
[N]. Facts and deviations: ``docs/datasets/geom-gcn.md``, ``docs/fidelity.md``.
"""

from __future__ import annotations

import numpy as np

from kmip_data.arrays import Array
from kmip_data.errors import DamagedInput
from kmip_data.format.split_files import PARTS
from kmip_data.pipelines.formats.text import read_lines
from kmip_data.pipelines.graph_arrays.layout_reader import RawReader
from kmip_data.pipelines.layout_pipelines import FoldParams, GraphWithMasksPipeline

NODE_FILE = "out1_node_feature_label.txt"
EDGE_FILE = "out1_graph_edges.txt"


class GeomGCNPipeline(GraphWithMasksPipeline[FoldParams]):
    """Pipeline of ``actor``, ``cornell``, ``texas``, ``wisconsin``, ``chameleon``, ``squirrel``."""

    def read(self, raw: RawReader) -> dict[str, Array]:
        """Read nodes by number, and distinct edges sorted by first and second node."""
        columns = self.manifest.layout.columns
        (width,) = columns["node/x"].shape
        nodes = len(read_lines(raw.find_path(NODE_FILE))) - 1
        x = np.zeros((nodes, width), np.uint8)
        y = np.full(nodes, -1)
        for line in raw.lines(NODE_FILE, header=1):
            number, features, label = line.split("\t")
            (node,) = raw.parse_indices(number, nodes, 1)
            if y[node] >= 0:
                raise DamagedInput(f"{raw.current_item}: node {node} occurs a second time.")
            (y[node],) = raw.parse_indices(label, columns["node/y"].classes or 0, 1)
            if self.manifest.registered_name == "actor":
                x[node, raw.parse_indices(features, width)] = 1
            else:
                x[node] = raw.parse_indices(features, 256, width)

        pairs = [
            raw.parse_indices(line.replace("\t", ","), nodes, 2)
            for line in raw.lines(EDGE_FILE, header=1)
        ]
        edges = np.array(pairs, np.int64).reshape(-1, 2)
        return {"x": x, "y": y, "edge_index": np.unique(edges, axis=0).T}

    def masks(self, raw: RawReader, fold: int) -> list[Array]:
        """Read the train, val and test masks (N,) of a fold."""
        arrays = raw.open_npz(f"*_split_0.6_0.2_{fold}.npz")
        return [arrays.read_array(f"{part}_mask") for part in PARTS]


PIPELINE = GeomGCNPipeline
