"""Adjacency matrices as tables: node names in the first line, and mostly in the first column."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from kmip_data.columns.column_roles import Level
from kmip_data.errors import DamagedInput
from kmip_data.pipelines.datasets.graphs.tables import known_columns
from kmip_data.pipelines.datasets.graphs.tables.table import Table, tables_from_frames
from kmip_data.pipelines.formats.delimited import guess_separator, split_rows
from kmip_data.pipelines.formats.file_heads import decompressed_head

#: Part of the files that is sampled to detect several matrices.
_SAMPLED_FILES = 5
_SAMPLED_BYTES = 2**16
_SAMPLED_LINES = 20


def matrix_cells(table: Table) -> pd.DataFrame | None:
    """Return the cells of an adjacency matrix; ``None`` for another table.

    Rows and columns have the same names. If rows have none, as many numbers as there are columns,
    with zeros for a node and itself, tell a matrix from a list of edges.
    """
    names = table.column_names
    frame = table.frame
    if not table.has_names or not len(frame):
        return None
    if len(frame) == len(names) - 1:
        rows = frame.iloc[:, 0].map(lambda value: str(value).strip())
        return frame.iloc[:, 1:] if tuple(rows) == names[1:] else None
    if len(frame) != len(names) or len(names) < 3 or known_columns.matching_end_pairs(names):
        return None
    if not all(frame[name].dtype.kind in "iufb" for name in frame):
        return None
    return None if np.diagonal(frame.to_numpy(np.float64)).any() else frame


def refuse_matrices(folder: Path, files: Sequence[str]) -> None:
    """Refuse several matrices, with the Python line that converts them to one table of edges."""
    heads = {
        name: decompressed_head(folder / name, _SAMPLED_BYTES) for name in files[:_SAMPLED_FILES]
    }
    matrices = [name for name, head in heads.items() if _looks_like_matrix(head)]
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


def _looks_like_matrix(head: bytes) -> bool:
    """True if the rows begin with the names in the first line, in order."""
    lines = head.decode("latin-1").splitlines()[:_SAMPLED_LINES]
    if len(lines) < 4:
        return False
    lines = lines[:-1]  # the last line may be cut off
    first, *rows = split_rows(lines, guess_separator(lines), strict=False)
    names = [row[0] for row in rows if row]
    return len(first) > 2 and names == first[1 : 1 + len(names)]


def tables_from_matrix(table: Table, cells: pd.DataFrame) -> dict[Level, Table]:
    """Return the nodes and edges of a matrix; edges have weights unless all weights are 1."""
    for name in cells:
        if cells[name].dtype.kind not in "iufb" and cells[name].notna().any():
            raise DamagedInput(
                f"{table.name} is an adjacency matrix, but its column {name!r} has cells that are not numbers.",
                next="put them into a table of edges with source and target",
            )
    weights = cells.fillna(0).to_numpy(np.float64)
    source, target = weights.nonzero()
    names = np.array(list(map(str, cells)), object)
    edges = pd.DataFrame(
        {known_columns.SOURCE_KEY: names[source], known_columns.TARGET_KEY: names[target]}
    )
    values = weights[source, target]
    if (values != 1).any():
        edges["weight"] = values
    nodes = pd.DataFrame({known_columns.NODE_KEY: names})
    return tables_from_frames({"node": nodes, "edge": edges}, table.name, 1)
