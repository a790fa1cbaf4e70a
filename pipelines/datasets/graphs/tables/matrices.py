"""Tables that are the adjacency matrix of a graph: names of nodes in the first line and in the first column."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from kmip_data.columns.column_uses import Level
from kmip_data.errors import DamagedInput
from kmip_data.pipelines.datasets.graphs.tables import roles
from kmip_data.pipelines.datasets.graphs.tables.table import Table, tables_of_levels
from kmip_data.pipelines.datasets.graphs.tables.text_tables import separator_of
from kmip_data.pipelines.formats.file_heads import decompressed_head

_HEAD = 2**16  #: first bytes of a file
_FILES_LOOKED_AT = 5
_LINES_LOOKED_AT = 20  #: first lines of a file, which tell whether it is a matrix


def is_matrix(table: Table) -> bool:
    """True if rows and columns have the same names."""
    names = table.names[1:]
    if not table.has_names or len(table.frame) != len(names) or not names:
        return False
    rows = table.frame.iloc[:, 0].map(lambda value: str(value).strip())
    return tuple(rows) == names


def refuse_matrices(folder: Path, files: Sequence[str]) -> None:
    """Raise ``DamagedInput`` for several files of which each is a matrix, with the line that converts them."""
    heads = {name: decompressed_head(folder / name, _HEAD) for name in files[:_FILES_LOOKED_AT]}
    matrices = [name for name, head in heads.items() if _begins_matrix(head)]
    if len(matrices) < 2:
        return
    reversed_suffix = os.path.commonprefix([name[::-1] for name in matrices])  # noqa: RUF071 -- of texts
    suffix = reversed_suffix[::-1].rpartition("/")[2]
    raise DamagedInput(
        f"{matrices[0]} and other files are adjacency matrices, and only one matrix can be read.",
        expected="edges.csv with the columns graph, source, target and weight; optionally graphs.csv",
        next="write them as one table: import pandas, pathlib; tables = {file.stem: pandas.read_csv(file, "
        f"index_col=0, sep=None, engine='python') for file in sorted(pathlib.Path().glob('*{suffix}'))}}; "
        "edges = pandas.concat({graph: table.rename_axis(index='source', columns='target').stack().dropna() "
        "for graph, table in tables.items()}, names=['graph']); edges[edges != 0].rename('weight').reset_index()"
        ".to_csv('edges.csv', index=False); then --archive edges.csv",
    )


def _begins_matrix(head: bytes) -> bool:
    """True if the rows of a file begin with the names in its first line, in their order."""
    lines = head.decode("latin-1").splitlines()[:_LINES_LOOKED_AT]
    if len(lines) < 4:
        return False
    separator = separator_of(lines[:-1])  # the last line may be cut off
    first, *rows = [line.split(separator) for line in lines[:-1]]
    names = [row[0] for row in rows]
    return len(first) > 2 and names == first[1 : 1 + len(names)]


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
    return tables_of_levels({"node": nodes, "edge": edges}, table.name, 1)
