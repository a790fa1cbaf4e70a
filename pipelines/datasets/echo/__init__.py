"""ECHO (ICLR 2026): three tasks on 10,080 generated graphs, two on molecules, of diameter 17 to 40.

Raw layout of each task: ``train_data.pt``, ``val_data.pt`` and ``test_data.pt``, each a list of
PyTorch Geometric's ``Data`` saved by ``torch.save``. ``sssp``, ``ecc`` and ``diam`` share their
graphs: ``x`` [N, 2] and ``y`` [N, 3], with the columns eccentricity, diameter and distance from the
source. Molecules have ``x`` [N, 2], ``edge_attr`` [E, 2] and, in column 0 of ``y``, each atom's
charge or the logarithm of the energy. Facts and deviations: ``docs/datasets/echo.md``,
``docs/fidelity.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from kmip_data.errors import DamagedInput
from kmip_data.format.split_files import PARTS
from kmip_data.pipelines.formats.tensors import stream_graphs
from kmip_data.pipelines.graph_arrays.layout_reader import RawGraph, RawReader
from kmip_data.pipelines.layout_pipelines import GraphsInPartsPipeline, PublishedPart

#: Dataset -> target column of y, by default 0.
_TARGET_COLUMNS = {"echo-diam": 1, "echo-sssp": 2}


class EchoPipeline(GraphsInPartsPipeline):
    """Pipeline of ``echo-*``."""

    records_per_unit = 10_000
    key = "{part}/{number:07d}"

    def read(self, raw: RawReader) -> Iterator[PublishedPart]:
        """Read the graphs of each file."""
        for part in PARTS:
            path = raw.find_path(f"*{part}*.pt")
            yield PublishedPart(
                part, self._convert_graphs(raw, raw.track_items("graph", stream_graphs(path)))
            )

    def _convert_graphs(self, raw: RawReader, graphs: Iterable[RawGraph]) -> Iterator[RawGraph]:
        column = _TARGET_COLUMNS.get(self.manifest.registered_name, 0)
        is_graph_task = "graph/y" in self.manifest.layout.columns
        for graph in graphs:
            # Convert float64 to float32, like the authors' class.
            floats = {"edge_index": graph["edge_index"]}
            with np.errstate(over="ignore"):
                for name in ("x", "y", "edge_attr"):
                    if name in graph:
                        floats[name] = np.asarray(graph[name], np.float32)
            y = floats["y"][:, column, None]
            # There is one energy per molecule; diameters are repeated for every node.
            num_rows = 1 if is_graph_task and column == 0 else len(floats["x"])
            if len(y) != num_rows:
                raise DamagedInput(
                    f"{raw.current_item}: y has {len(y)} rows: not {self.manifest.title}."
                )
            yield {**floats, "y": y[0] if is_graph_task else y}


PIPELINE = EchoPipeline
