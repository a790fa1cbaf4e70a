"""Tables of molecules: SMILES, targets and parts, with the features of the Open Graph Benchmark."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from kmip_data.errors import DamagedInput
from kmip_data.format.writer import GraphRecord
from kmip_data.pipelines.datasets.graphs.tables import ColumnFacts, GraphParams, read_table
from kmip_data.pipelines.shared.molecules import RefusedSmilesError, check_smiles, read_smiles

WANTS = "a CSV with a column smiles (--set smiles=COLUMN)"
LONGEST = 10_000  #: longest SMILES; RDKit takes minutes for 10⁶ atoms
SMILES = "smiles"  #: columns of a record before its atoms: SMILES and origin


def recognises(heads: Mapping[str, bytes], params: GraphParams) -> bool:
    """True for a single table with a SMILES column, possibly named by the parameters."""
    first = next(iter(heads.values())).partition(b"\n")[0].decode("utf-8", "replace").lower()
    names = re.split('[\t,; "\r\ufeff]', first)
    return len(heads) == 1 and (params.smiles != SMILES or SMILES in names)


def read(folder: Path, files: Sequence[str], facts: ColumnFacts) -> Iterator[GraphRecord]:
    """Yield the molecules in row order, as SMILES without atoms yet."""
    table = read_table(folder / files[0], facts)
    facts.require([table])
    column = facts.params.smiles
    column = next((name for name in table.names if name.lower() == column.lower()), column)
    texts = table.ids(column)
    columns = table.columns("graph", {column}, facts)
    for row, value in enumerate(texts):
        text = str(value)
        if len(text) > LONGEST:
            raise table.fault(row, f"a SMILES of {len(text):,} letters, of at most {LONGEST:,}")
        where = f"{table.name}, line {table.first + row}"
        check_smiles(text, where)
        values = {key: rows[row : row + 1] for key, rows in columns.items()}
        values[SMILES] = np.array([text, where])
        yield GraphRecord(key=f"{row:06d}", num_nodes=0, columns=values)


def finished(graph: GraphRecord) -> GraphRecord:
    """Return a molecule with atoms and bonds; raise ``DamagedInput`` if RDKit refuses it."""
    columns = dict(graph.columns)
    if SMILES not in columns:
        return graph
    text, where = columns.pop(SMILES).tolist()
    try:
        return read_smiles(text).record(graph.key, **columns)
    except RefusedSmilesError as error:
        fault = f"{where}: RDKit makes no molecule of {text[:200]!r}: {error}."
        raise DamagedInput(fault) from error
