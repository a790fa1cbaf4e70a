"""Four datasets of benchmarking-gnns: images as superpixel graphs, and stochastic block graphs.

Raw layout: one file saved by ``torch.save``, a list of three lists (train, val, test) of
dictionaries. ``cifar10`` and ``mnist`` have ``x`` [N, 3] or [N, 1], ``pos`` [N, 2], ``edge_index``
[2, E], ``edge_attr`` [E] and ``y`` [1], the class of the picture; ``pattern`` and ``cluster`` have
``x`` [N, 3] or [N, 7], ``edge_index`` and ``y`` [N], the class of each node. Facts and deviations:
``docs/datasets/benchmark-gnns.md``, ``docs/fidelity.md``.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator

import numpy as np

from kmip_data.errors import DamagedInput
from kmip_data.format.split_files import PARTS
from kmip_data.pipelines.formats.tensors import map_file, read_torch_file, release_pages
from kmip_data.pipelines.graph_arrays.layout_reader import RawGraph, RawReader
from kmip_data.pipelines.layout_pipelines import GraphsInPartsPipeline, PublishedPart

_PAGE_RELEASE_INTERVAL = 1_000  #: graphs read before pages of the file are released


class BenchmarkGNNsPipeline(GraphsInPartsPipeline):
    """Pipeline of ``cifar10``, ``mnist``, ``pattern`` and ``cluster``."""

    records_per_unit = 2_000  #: about 20 MB per shard of CIFAR10, 50 MB of PATTERN

    def read(self, raw: RawReader) -> Iterator[PublishedPart]:
        """Read the memory-mapped file."""
        path = raw.find_path(self.manifest.content.anchor)
        mapping = map_file(path)
        lists = read_torch_file(path, mapping=mapping)
        has_three_parts = isinstance(lists, list | tuple) and len(lists) == len(PARTS)
        if not has_three_parts or not all(type(graphs) is list for graphs in lists):
            raise DamagedInput(f"{path.name} is not three lists of graphs: train, val and test.")
        for part, graphs in zip(PARTS, lists, strict=True):
            yield PublishedPart(part, self._convert_graphs(raw.track_items(part, graphs), mapping))

    def _convert_graphs(self, graphs: Iterable[RawGraph], mapping: mmap.mmap) -> Iterator[RawGraph]:
        is_picture = "graph/y" in self.manifest.layout.columns
        for index, graph in enumerate(graphs):
            yield _picture_graph(graph) if is_picture else graph
            if index % _PAGE_RELEASE_INTERVAL == 0:
                release_pages(mapping)


PIPELINE = BenchmarkGNNsPipeline


def _picture_graph(graph: RawGraph) -> RawGraph:
    return {
        "x": np.concatenate([graph["x"], graph["pos"]], axis=1),
        "edge_index": graph["edge_index"],
        "edge_attr": np.reshape(graph["edge_attr"], (-1, 1)),
        "y": np.reshape(graph["y"], ()),
    }
