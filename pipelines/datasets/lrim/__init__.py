"""LRIM (ICLR 2026): spins of a long-range Ising model on periodic grids, and flip energies.

Raw layout: ``lrim_{L}_{sigma}_10k.pt``, a list of PyTorch Geometric's ``Data`` saved by
``torch.save``, with ``x`` [N, 1], one value of ``y`` per node, and one direction of each edge. Facts
and deviations: ``docs/datasets/lrim.md``, ``docs/fidelity.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from math import ceil

import numpy as np

from kmip_data.format.split_files import PARTS
from kmip_data.pipelines.formats.tensors import stream_graphs
from kmip_data.pipelines.graph_arrays.layout_reader import RawGraph, RawReader
from kmip_data.pipelines.layout_pipelines import GraphsInPartsPipeline, PublishedPart


class LRIMPipeline(GraphsInPartsPipeline):
    """Pipeline of the published ``lrim-*``."""

    records_per_unit = 64

    def read(self, raw: RawReader) -> Iterator[PublishedPart]:
        """Read the graphs of the only file, which the authors split by position."""
        path = raw.find_path("lrim_*.pt")
        total = sum(1 for _ in stream_graphs(path))
        graphs = map(_convert_graph, raw.track_items("graph", stream_graphs(path)))
        sizes = (ceil(0.8 * total), int(0.1 * total), total)
        for part, size in zip(PARTS, sizes, strict=True):
            yield PublishedPart(part, islice(graphs, size))


PIPELINE = LRIMPipeline


def _convert_graph(graph: RawGraph) -> RawGraph:
    # Targets may have shape (N,) or (N, 1).
    y = np.asarray(graph["y"]).reshape(len(graph["x"]), 1)
    return {"x": graph["x"], "edge_index": graph["edge_index"], "y": y.astype(np.float32)}
