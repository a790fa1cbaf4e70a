"""Node features of MUSAE's graphs: JSON with a list of indices for each node, next to a table of edges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from kmip_data.arrays import Array
from kmip_data.errors import DamagedInput
from kmip_data.files.small_files import first_problem, parse_json
from kmip_data.pipelines.datasets.graphs.findings import Findings
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.tables.table import ids_as_strings


@dataclass(frozen=True)
class FeatureIndices:
    """Binary features: for each node, the indices of those that are 1."""

    name: str  #: file name
    lists: Mapping[str, list[int]]  #: node id -> indices

    def add_features(
        self, values: dict[str, Array], ids: Array, options: ReadOptions, findings: Findings
    ) -> dict[str, Array]:
        """Return the columns of a graph with these features (N, F) appended to its node features.

        Raises ``DamagedInput`` if a list belongs to an unknown node.
        """
        index = pd.Index(ids_as_strings(ids))
        positions = index.get_indexer(pd.Index(list(self.lists)))
        if (positions < 0).any():
            unknown = list(self.lists)[int((positions < 0).argmax())]
            raise DamagedInput(
                f"{self.name} has features of {unknown!r}, which is not one of the {len(ids):,} nodes.",
                steps="name the column of the ids as node, or leave the file out of the folder",
            )
        width = 1 + max((max(indices) for indices in self.lists.values() if indices), default=-1)
        options.check_memory(8 * len(ids) * width, self.name)
        features = np.zeros((len(ids), width), np.float32)
        for position, indices in zip(positions, self.lists.values(), strict=True):
            features[position, indices] = 1
        missing = len(ids) - len(self.lists)
        if missing:
            findings.notices.missing[f"list of {self.name}"] = missing

        component_names = findings.attributes.component_names
        names = component_names.get("x", ())
        if "node/x" in values:
            features = np.concatenate([values["node/x"], features], axis=1)
        component_names["x"] = (*names, *(f"index {number}" for number in range(width)))
        return {**values, "node/x": features}

    def many_graphs_error(self) -> DamagedInput:
        """Return the error for tables of several graphs."""
        return DamagedInput(
            f"{self.name} has features of the nodes of one graph, and there are several.",
            steps="leave the file out, or put its values into the table of nodes",
        )


def read_feature_indices(path: Path, options: ReadOptions) -> FeatureIndices | None:
    """Read a file such as ``{"node": [index, …], …}``; ``None`` for an object without any list."""
    options.check_memory(20 * path.stat().st_size, path.name)
    try:
        lists = parse_json(path.read_bytes().decode("utf-8-sig"))
    except ValueError as error:
        raise DamagedInput(
            f"{path.name} is not JSON: {first_problem(error)}.",
            steps="correct the file, or move it out of the folder",
        ) from error
    if isinstance(lists, dict) and not any(isinstance(value, list) for value in lists.values()):
        return None  # such as the descriptions of columns next to a table of BIDS
    if not isinstance(lists, dict) or not all(map(_are_indices, lists.values())):
        raise DamagedInput(
            f"{path.name} does not have a list of indices for each node.",
            expected='{"node": [0, 7, …], …}: for each node, the indices of the features that are 1',
            steps="leave the file out of the folder, or put its values into the table of nodes",
        )
    return FeatureIndices(path.name, lists)


def _are_indices(value: object) -> bool:
    return isinstance(value, list) and all(
        type(item) is int and 0 <= item < 2**24 for item in value
    )
