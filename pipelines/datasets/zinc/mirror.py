"""ZINC as the Hugging Face hub has it (graphs-datasets/ZINC): a graph a row, JSON lines or Parquet."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kmip_data.arrays import Array
from kmip_data.errors import DamagedInput, require_extra
from kmip_data.pipelines.shared.checks import array_of, check_all, check_edges

_LONGEST = 100_000  #: bytes of a line; the largest molecule takes 3,000
_ROWS = 1_000  #: of Parquet, read at a time


def json_rows(path: Path) -> Iterator[Any]:
    """Yield the objects of a file, one a line."""
    with path.open("rb") as file:
        number = 0
        while line := file.readline(_LONGEST):
            number += 1
            try:
                yield json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DamagedInput(f"{path.name}, line {number} is not JSON: {error}.") from error


def parquet_rows(path: Path) -> Iterator[Any]:
    """Yield the rows of a file as dictionaries."""
    require_extra("parquet", path.name)
    from pyarrow import ArrowException, parquet

    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(_ROWS):
                yield from batch.to_pylist()
    except (ArrowException, OSError, ValueError) as error:  # names that are no UTF-8
        raise DamagedInput(f"{path.name} is not a whole Parquet file: {error}.") from error


def molecule_of(row: Any, where: str, max_nodes: int) -> dict[str, Any]:
    """Return a row as the dictionary that a pickle has: its bonds as a matrix."""
    if not isinstance(row, dict):
        raise DamagedInput(f"{where}: not a molecule, but a {type(row).__name__}.")
    atoms = _numbers(row, "node_feat", where).reshape(-1)
    ends = _numbers(row, "edge_index", where)
    kinds = _numbers(row, "edge_attr", where).reshape(-1)
    count = len(atoms)
    check_all(
        where,
        [
            (count <= max_nodes, f"{count} atoms, {max_nodes} at most"),
            (ends.shape == (2, len(kinds)), f"{len(kinds)} types of bonds for {ends.shape}"),
        ],
    )

    check_edges(ends, count, where)
    bonds = np.zeros((count, count), np.int64)
    bonds[ends[0], ends[1]] = kinds
    check_all(where, [(np.count_nonzero(bonds) == len(kinds), "a bond twice, or of type 0")])
    with np.errstate(over="ignore"):
        target = _numbers(row, "y", where, "fiu").astype(np.float32)
    return {
        "num_atom": row.get("num_nodes", count),
        "atom_type": atoms,
        "bond_type": bonds,
        "logP_SA_cycle_normalized": target,
    }


def _numbers(row: Mapping[str, Any], name: str, where: str, kinds: str = "iu") -> Array:
    try:
        values = np.asarray(row.get(name))
    except ValueError as error:  # lists of several lengths
        raise DamagedInput(f"{where}: {name} is no array: {error}.") from error
    if not values.size:  # no bond: an empty list has no type
        values = values.astype(np.int64)
    return array_of({name: values}, name, kinds, None, where)
