"""Tables that are the adjacency matrix of a graph: names of nodes in the first line and in the first column."""

from __future__ import annotations

import numpy as np
import pandas as pd

from kmip_data.columns.column_uses import Level
from kmip_data.errors import DamagedInput
from kmip_data.pipelines.datasets.graphs.tables import roles
from kmip_data.pipelines.datasets.graphs.tables.table import Table


def is_matrix(table: Table) -> bool:
    """True if rows and columns have the same names."""
    names = table.names[1:]
    if not table.has_names or len(table.frame) != len(names) or not names:
        return False
    rows = table.frame.iloc[:, 0].map(lambda value: str(value).strip())
    return tuple(rows) == names


def tables_of_matrix(table: Table) -> dict[Level, Table]:
    """Return nodes and edges: one where the cell is neither empty nor 0, with its weight unless all are 1."""
    cells = table.frame.iloc[:, 1:]
    for name in cells:
        if cells[name].dtype.kind not in "iufb" and cells[name].notna().any():
            raise DamagedInput(
                f"{table.name} is an adjacency matrix, but its column {name!r} has other cells than numbers.",
                next="put them into a table of edges with source and target",
            )
    weights = cells.fillna(0).to_numpy(np.float64)
    source, target = weights.nonzero()
    names = np.array(table.names[1:], object)
    edges = pd.DataFrame({roles.SOURCE: names[source], roles.TARGET: names[target]})
    values = weights[source, target]
    if (values != 1).any():
        edges["weight"] = values
    nodes = pd.DataFrame({roles.NODE: names})
    return {
        "node": Table(f"{table.name}, nodes", nodes, 1, "number"),
        "edge": Table(f"{table.name}, edges", edges, 1, "number"),
    }
