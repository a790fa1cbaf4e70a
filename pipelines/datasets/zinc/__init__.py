"""ZINC: molecules with penalised logP; all of them, or the 12,000 of the benchmark.

Raw layout: ``train.pickle``, ``val.pickle`` and ``test.pickle``, each a list of dictionaries with
``atom_type`` int8 [N], ``bond_type`` int8 [N, N] (0: none) and ``logP_SA_cycle_normalized`` float32
[1] as torch tensors; ``train.index``, ``val.index`` and ``test.index`` list the positions of the
benchmark's molecules, separated by commas. The mirror has ``.jsonl`` or ``.parquet`` files instead
of pickles. Facts and deviations: ``docs/datasets/zinc.md``, ``docs/fidelity.md``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kmip_data.errors import DamagedInput
from kmip_data.files.small_files import first_problem
from kmip_data.format.split_files import PARTS
from kmip_data.pipelines.formats.tensors import stream_pickled_tensors
from kmip_data.pipelines.formats.text import read_lines
from kmip_data.pipelines.graph_arrays.layout_reader import RawGraph, RawReader
from kmip_data.pipelines.layout_pipelines import GraphsInPartsPipeline, PublishedPart

ATOM_TYPE = "atom_type"
BOND_TYPE = "bond_type"
TARGET = "logP_SA_cycle_normalized"
RawMolecule = Mapping[str, Any]  #: pickled molecule, or row of the mirror


class ZincPipeline(GraphsInPartsPipeline):
    """Pipeline of ``zinc`` and ``zinc-full``."""

    records_per_unit = 20_000  #: about 12 MB per shard

    def read(self, raw: RawReader) -> Iterator[PublishedPart]:
        """Read the molecules of each file; for ``zinc`` only those that the file's index lists."""
        for part in PARTS:
            listed_numbers = None
            if self.manifest.registered_name == "zinc":
                listed_numbers = _read_index(raw, part)
            yield PublishedPart(part, _read_molecules(raw, part, listed_numbers), listed_numbers)


PIPELINE = ZincPipeline


def _read_index(raw: RawReader, part: str) -> list[int]:
    """Return the numbers of the benchmark's molecules in the file of a part."""
    text = ",".join(read_lines(raw.find_path(f"{part}.index"))).removesuffix(",")
    entries = text.split(",") if text else []  # a part of a small sample may be empty
    numbers = [
        int(raw.parse_indices(entry, 10**9, 1)[0]) for entry in raw.track_items("entry", entries, 1)
    ]
    distinct, counts = np.unique(numbers, return_counts=True)
    if len(distinct) < len(numbers):
        raise DamagedInput(f"{raw.current_item} lists molecule {distinct[counts.argmax()]} twice.")
    return numbers


def _read_molecules(
    raw: RawReader, part: str, listed_numbers: list[int] | None
) -> Iterator[RawGraph]:
    """Yield the listed molecules of a part's file, or all of them, in the order of the file."""
    missing = set(listed_numbers or ())
    path = raw.find_path(f"{part}.[jp]*")
    for number, item in enumerate(raw.track_items("molecule", _read_items(path))):
        if listed_numbers is not None and number not in missing:
            continue
        missing.discard(number)
        is_pickle = path.suffix == ".pickle"
        yield (
            graph_from_pickled_molecule(item)
            if is_pickle
            else graph_from_mirror_row(item, raw.current_item)
        )
    if missing:
        raise DamagedInput(
            f"{part}.index lists molecule {max(missing)}, which {path.name} does not have."
        )


def _read_items(path: Path) -> Iterator[RawMolecule]:
    match path.suffix:
        case ".pickle":
            yield from stream_pickled_tensors(path)
        case ".jsonl":
            yield from read_json_rows(path)
        case ".parquet":
            yield from read_parquet_rows(path)
        case _:
            raise DamagedInput(f"{path.name} is not a .pickle, .jsonl or .parquet file.")


def graph_from_pickled_molecule(molecule: RawMolecule) -> RawGraph:
    """Convert a pickled molecule to a graph, with bonds sorted by first and second atom."""
    atoms = molecule[ATOM_TYPE]
    count = len(atoms)
    bonds = np.reshape(molecule[BOND_TYPE], (count, count))
    ends = bonds.nonzero()
    return {
        "x": np.reshape(atoms, (count, 1)),
        "y": np.reshape(molecule[TARGET], ()),
        "edge_index": np.stack(ends),
        "edge_attr": bonds[ends],
    }


# --- The mirror: graphs-datasets/ZINC on the Hugging Face hub -------------------------------------

_MAX_LINE_BYTES = 100_000  #: the largest molecule takes 3,000
_ROWS_PER_BATCH = 1_000  #: Parquet rows read at a time


def read_json_rows(path: Path) -> Iterator[RawMolecule]:
    """Yield the JSON object of each line."""
    with path.open("rb") as file:
        line_number = 0
        while line := file.readline(_MAX_LINE_BYTES):
            line_number += 1
            try:
                yield json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DamagedInput(
                    f"{path.name}, line {line_number} is not JSON: {first_problem(error)}."
                ) from error


def read_parquet_rows(path: Path) -> Iterator[RawMolecule]:
    """Yield the rows of a Parquet file as dictionaries."""
    from pyarrow import ArrowException, parquet

    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(_ROWS_PER_BATCH):
                yield from batch.to_pylist()
    except (ArrowException, OSError, ValueError) as error:  # ValueError for names not in UTF-8
        raise DamagedInput(f"{path.name} is not a complete Parquet file: {error}.") from error


def graph_from_mirror_row(row: RawMolecule, location: str) -> RawGraph:
    """Convert a row of the mirror to a graph, with bonds sorted by first and second atom."""
    atoms = row["node_feat"]
    ends = np.asarray(row["edge_index"])
    if not ends.size:
        ends = np.zeros((2, 0), np.int64)
    order = np.lexsort(ends[::-1])
    ends = ends[:, order]
    if (ends[:, 1:] == ends[:, :-1]).all(axis=0).any():
        raise DamagedInput(f"{location}: a bond occurs twice.")

    y = np.reshape(row["y"], ())
    if y.dtype.kind == "f":
        with np.errstate(over="ignore"):
            y = y.astype(np.float32)
    return {
        "x": np.reshape(atoms, (len(atoms), 1)),
        "y": y,
        "edge_index": ends,
        "edge_attr": np.reshape(row["edge_attr"], -1)[order],
    }
