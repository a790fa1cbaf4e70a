"""ECHO (ICLR 2026): three tasks on 10,080 generated graphs, two on molecules, all of 17 to 40 edges across.

Raw layout of each task: ``train_data.pt``, ``val_data.pt`` and ``test_data.pt``, each a list of
PyTorch Geometric's ``Data`` by ``torch.save``. ``sssp``, ``ecc`` and ``diam`` have the same graphs:
``x`` [N, 2] and ``y`` [N, 3], whose columns are eccentricity, diameter and distance from the
source. Molecules have ``x`` [N, 2], ``edge_attr`` [E, 2] and, in column 0 of ``y``, each atom's
charge or the logarithm of the energy. Facts and deviations: ``docs/datasets/echo.md``,
``docs/fidelity.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kmip_data.arrays import Array
from kmip_data.errors import DamagedInput
from kmip_data.format.schema import LOG10, Column, Schema
from kmip_data.format.splits import PARTS
from kmip_data.format.writer import GraphRecord
from kmip_data.manifest import Manifest
from kmip_data.pipelines.base import Params, RawFolder
from kmip_data.pipelines.formats.tensors import stream_graphs
from kmip_data.pipelines.shared.checks import array_of, check_edges
from kmip_data.pipelines.shared.pieces import PiecesPipeline
from kmip_data.pipelines.shared.records import feature_column

WIDTH = 2  #: columns of x, and of edge_attr


class Task(NamedTuple):
    """Place and meaning of a task's target in the raw files."""

    column: int  #: of y
    columns: int  #: least number of columns of y
    unit: str
    doc: str
    of_graph: bool = False
    molecules: bool = False


TASKS = {
    "ecc": Task(0, 3, "edges", "largest distance from the node"),
    "diam": Task(
        1,
        3,
        "edges",
        "largest distance in the graph",
        of_graph=True,
    ),
    "sssp": Task(2, 3, "edges", "distance from the source"),
    "charge": Task(
        0,
        1,
        "e",
        "partial charge of the atom by density functional theory",
        molecules=True,
    ),
    "energy": Task(
        0,
        1,
        LOG10,
        "logarithm of the energy by density functional theory",
        of_graph=True,
        molecules=True,
    ),
}
GRAPH_FIELDS = ("source", "random number [0-1]")
ATOM_FIELDS = ("atomic number", "distance to the centroid")
BOND_FIELDS = ("bond type", "bond length")


class EchoPipeline(PiecesPipeline[Params]):
    """Pipeline of ``echo-*``."""

    records_per_unit = 10_000
    digits = 7
    split_note = "the published files, in their order"

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        name = manifest.file.removeprefix("echo-")
        self.task = TASKS[name]
        self.sample_arguments = {"task": name}

    def schema(self, params: Params) -> Schema:
        """Features, those of bonds where there are molecules, and the target."""
        task = self.task
        fields = ATOM_FIELDS if task.molecules else GRAPH_FIELDS
        columns = [feature_column("node/x", fields, "features of the task")]
        if task.molecules:
            columns.append(feature_column("edge/attr", BOND_FIELDS, "features of the bond"))
        columns.append(Column(
            key="graph/y" if task.of_graph else "node/y", attribute="y", stored="float32",
            presented="float32", shape=(1,), unit=task.unit, doc=task.doc,
        ))  # fmt: skip
        return Schema(
            columns=tuple(columns),
            max_nodes=self.manifest.max_nodes,
            directed=False,
            key_length=16,
        )

    def parts(self, raw: RawFolder) -> Iterator[tuple[str, Iterable[Mapping[str, Array]]]]:
        """Check the graphs of each file as they are read."""
        for part in PARTS:
            path = next(path for path in raw.path.iterdir() if part in path.name)
            yield part, self._graphs(path)

    def _graphs(self, path: Path) -> Iterator[Mapping[str, Array]]:
        for row, graph in enumerate(stream_graphs(path)):
            yield self._checked(graph, f"{path.name}, graph {row}")

    def _checked(self, graph: Mapping[str, Any], where: str) -> dict[str, Array]:
        """Return the arrays of a graph as they are stored.

        Raises ``DamagedInput`` for another layout.
        """
        task = self.task
        names = ["x", "y", "edge_index"]
        if task.molecules:
            names.append("edge_attr")
        raw = {}
        for name in names:
            kinds = "iu" if name == "edge_index" else "fiu"
            raw[name] = array_of(graph, name, kinds, (None, None), where)

        x = raw["x"]
        y = raw["y"]
        edges = raw["edge_index"]
        # The energy is one number of a molecule; diameters stand at every node.
        rows = 1 if task.of_graph and task.molecules else len(x)
        # All shapes at once: the error shows which layout the file has.
        shapes = {name: array.shape for name, array in raw.items()}
        fits = x.shape[1] == WIDTH and len(edges) == 2
        fits = fits and len(y) == rows and y.shape[1] >= task.columns
        if task.molecules:
            fits = fits and shapes["edge_attr"] == (edges.shape[1], WIDTH)
        if not fits or not 1 <= len(x) <= self.manifest.max_nodes:
            raise DamagedInput(
                f"{where}: the shapes are not those of {self.manifest.name}: {shapes}.",
                expected=f"x [N, {WIDTH}], y [{'1' if rows == 1 else 'N'}, {task.columns} or more]",
                next="the files of this task; the layout of other versions is unknown",
            )
        check_edges(edges, len(x), where)

        target = y[:, task.column, None]
        if task.of_graph:
            target = target[:1]
        attr = raw.get("edge_attr", np.empty(0))
        arrays = {"x": x, "edges": edges.T, "y": target, "attr": attr}
        stored = {}
        for name, dtype in _DTYPES.items():
            stored[name] = np.ascontiguousarray(arrays[name], dtype)
            if not np.isfinite(stored[name]).all():
                raise DamagedInput(f"{where}: NaN or infinity.")
        return stored

    def record(self, key: str, graph: Mapping[str, Array]) -> GraphRecord:
        """Return the record of one graph."""
        columns = {"node/x": graph["x"]}
        if self.task.of_graph:
            columns["graph/y"] = graph["y"][0]
        else:
            columns["node/y"] = graph["y"]
        if self.task.molecules:
            columns["edge/attr"] = graph["attr"]
        return GraphRecord(
            key=key,
            num_nodes=len(graph["x"]),
            columns=columns,
            edge_index=np.ascontiguousarray(graph["edges"].T),
        )


PIPELINE = EchoPipeline
#: Array -> type in which it is stored, node after node or edge after edge.
_DTYPES = {"x": "<f4", "y": "<f4", "edges": "<u2", "attr": "<f4"}
