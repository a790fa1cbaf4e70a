"""Node classification benchmarks of Platonov et al.: a graph with ten splits in one ``.npz``.

Raw layout: ``node_features`` [N, F], ``node_labels`` [N], ``edges`` [E, 2], each edge once, and
``train_masks``, ``val_masks``, ``test_masks`` [10, N].
"""

from __future__ import annotations

from kmip_data.arrays import Array
from kmip_data.format.split_files import PARTS
from kmip_data.pipelines.graph_arrays.layout_reader import RawReader
from kmip_data.pipelines.layout_pipelines import FoldParams, GraphWithMasksPipeline


class HeterophilousPipeline(GraphWithMasksPipeline[FoldParams]):
    """Pipeline of ``minesweeper``, ``tolokers``, ``chameleon-filtered`` and the others."""

    def read(self, raw: RawReader) -> dict[str, Array]:
        """Read the arrays of the graph."""
        arrays = raw.open_npz("*.npz")
        return {
            "x": arrays.read_array("node_features"),
            "y": arrays.read_array("node_labels"),
            "edge_index": arrays.read_array("edges").T,
        }

    def masks(self, raw: RawReader, fold: int) -> list[Array]:
        """Read the train, val and test masks (N,) of a fold."""
        arrays = raw.open_npz("*.npz")
        return [arrays.read_array(f"{part}_masks")[fold] for part in PARTS]


PIPELINE = HeterophilousPipeline
