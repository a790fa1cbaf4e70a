"""ZINC on the Hugging Face hub (graphs-datasets/ZINC): one graph per row of JSON lines or Parquet."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from kmip_data.errors import DamagedInput, require_extra
from kmip_data.pipelines.short import Graph

_LONGEST = 100_000  #: bytes of a line; the largest molecule takes 3,000
_ROWS = 1_000  #: of Parquet, read at a time


def json_rows(path: Path) -> Iterator[Graph]:
    """Yield the objects of a file, one per line."""
    with path.open("rb") as file:
        number = 0
        while line := file.readline(_LONGEST):
            number += 1
            try:
                yield json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DamagedInput(f"{path.name}, line {number} is not JSON: {error}.") from error


def parquet_rows(path: Path) -> Iterator[Graph]:
    """Yield the rows of a file as dictionaries."""
    require_extra("parquet", path.name)
    from pyarrow import ArrowException, parquet

    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(_ROWS):
                yield from batch.to_pylist()
    except (ArrowException, OSError, ValueError) as error:  # names that are no UTF-8
        raise DamagedInput(f"{path.name} is not a whole Parquet file: {error}.") from error


def graph_of_row(row: Graph, where: str) -> Graph:
    """Return a row as a graph: bonds by first, then second atom."""
    atoms = row["node_feat"]
    count = len(atoms)
    if row.get("num_nodes", count) != count:
        raise DamagedInput(f"{where}: {count} atoms, but num_nodes is {row['num_nodes']!r}.")
    ends = np.asarray(row["edge_index"])
    if not ends.size:  # an empty list has no type
        ends = np.zeros((2, 0), np.int64)
    order = np.lexsort(ends[::-1])
    ends = ends[:, order]
    if (ends[:, 1:] == ends[:, :-1]).all(axis=0).any():
        raise DamagedInput(f"{where}: a bond twice.")

    y = np.reshape(row["y"], ())
    if y.dtype.kind == "f":
        with np.errstate(over="ignore"):
            y = y.astype(np.float32)
    return {
        "x": np.reshape(atoms, (count, 1)),
        "y": y,
        "edge_index": ends,
        "edge_attr": np.reshape(row["edge_attr"], -1)[order],
    }
