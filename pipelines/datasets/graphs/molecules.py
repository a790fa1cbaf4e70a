"""Molecules from rows with SMILES; atoms and bonds get the features of the Open Graph Benchmark."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from kmip_data.arrays import I64
from kmip_data.columns.conform_to_schema import conform_block
from kmip_data.columns.graph_block import GraphBlock
from kmip_data.columns.labels import InferredTarget
from kmip_data.errors import DamagedInput, Setting
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import MOLECULE_DOC, SCAFFOLD_DOC, Column, Schema
from kmip_data.pipelines.domains.molecules import (
    RefusedSmilesError,
    canonical_smiles,
    mol_from_smiles,
    molecule_columns,
    molecule_from_mol,
)
from kmip_data.runtime.extras import require_extra

_LISTED_ROWS = 10  #: rows that an error lists
SKIP = Setting(on_error="skip")
#: Columns of a record without atoms yet, as bytes: its SMILES and location, or "" and an error.
SMILES = "text/smiles"
LOCATION = "text/location"
#: Columns that splits read: equal digests are the same molecule, or the same scaffold.
_DIGEST_COLUMNS = tuple(
    Column(key=f"graph/{name}", attribute=name, stored="int64", presented="int64", doc=doc)
    for name, doc in (("molecule_digest", MOLECULE_DOC), ("scaffold_digest", SCAFFOLD_DOC))
)
BYTES_PER_MOLECULE = 2_048  #: approximate size of a molecule in a shard; a shard has 30,000
#: Edge summary for the card; bonds are unknown until shards are built.
EDGE_SUMMARY = {"directed": "no: a bond joins its atoms both ways"}


def drop_smiles(block: GraphBlock) -> tuple[GraphBlock, bool]:
    """Return graphs without their SMILES; True if they are molecules without atoms yet."""
    columns = {key: rows for key, rows in block.columns.items() if key not in {SMILES, LOCATION}}
    return replace(block, columns=columns), len(columns) < len(block.columns)


def molecule_schema(schema: Schema, dataset: str) -> Schema:
    """Return the schema of the table with columns of atoms and bonds in front."""
    require_extra("chem", dataset)
    columns = (*molecule_columns(), *_DIGEST_COLUMNS, *schema.columns)
    return replace(schema, columns=columns, edges="index", directed=False)


def build_molecules(
    blocks: Iterable[GraphBlock],
    schema: Schema,
    target: InferredTarget | None,
    *,
    skip_errors: bool,
) -> Iterator[tuple[str, GraphRecord | DamagedInput]]:
    """Yield each molecule by its key, with its atoms and bonds and the columns of its table.

    With ``skip_errors``, yield the error of a row that is not a molecule. Otherwise, raise one error
    for all such rows after the last graph.
    """
    errors: list[DamagedInput] = []
    columns = tuple(
        column
        for column in schema.columns
        if column.level == "graph" and column not in _DIGEST_COLUMNS
    )
    table_schema = replace(schema, columns=columns)
    for block in blocks:
        rows = conform_block(block, table_schema, target)
        texts = (block.text(SMILES), block.text(LOCATION))
        for row, smiles, location in zip(rows, *texts, strict=True):
            try:
                molecule = _molecule(row, smiles, location)
            except DamagedInput as error:
                if skip_errors:
                    yield row.key, error
                else:
                    errors.append(error)
                continue
            if not errors:
                yield row.key, molecule
    if errors:
        raise _join_errors(errors)


def _molecule(row: GraphRecord, smiles: str, location: str) -> GraphRecord:
    """Return the molecule of a table's row; raise ``DamagedInput`` if RDKit refuses it."""
    if not smiles:
        raise DamagedInput(location)
    try:
        mol = mol_from_smiles(smiles)
        digests = {
            column.key: _digest(text)
            for column, text in zip(_DIGEST_COLUMNS, canonical_smiles(mol), strict=True)
        }
        return molecule_from_mol(mol).record(row.key, **row.columns, **digests)
    except RefusedSmilesError as error:
        problem = f"{location}: RDKit refuses {smiles[:200]!r}: {error}."
        raise DamagedInput(problem) from error


def _digest(text: str) -> I64:
    """Return a digest of 64 bits as the row () of a graph."""
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return np.frombuffer(digest, np.int64).reshape(())


def _join_errors(errors: Sequence[DamagedInput]) -> DamagedInput:
    """Return one error for all rows that are not molecules."""
    joined = errors[0]
    rows = "row"
    if len(errors) > 1:
        rows = "rows"
        listed = [error.message for error in errors[:_LISTED_ROWS]]
        if len(errors) > _LISTED_ROWS:
            listed.append(f"and {len(errors) - _LISTED_ROWS:,} more")
        joined = DamagedInput(f"{len(errors):,} rows are not molecules.", found=" ".join(listed))
    joined.steps = [f"repair or remove the {rows}, or leave such rows out", SKIP]
    joined.has_location = True
    return joined
