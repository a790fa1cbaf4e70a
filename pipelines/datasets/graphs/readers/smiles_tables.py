"""Tables of molecules as SMILES; atoms and bonds get the features of the Open Graph Benchmark."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kmip_data.arrays import I64
from kmip_data.columns.column_roles import Use
from kmip_data.columns.conform_to_schema import conform_block
from kmip_data.columns.graph_block import GraphBlock
from kmip_data.columns.labels import InferredTarget
from kmip_data.errors import DamagedInput, Setting, UsageError
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import MOLECULE_DOC, SCAFFOLD_DOC, Column, Schema
from kmip_data.pipelines import known_names
from kmip_data.pipelines.datasets.graphs.findings import Findings, Notices
from kmip_data.pipelines.datasets.graphs.graph_format import COMMON_PARAMETERS, GraphFormat
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.datasets.graphs.tables import known_columns
from kmip_data.pipelines.domains.molecules import (
    RefusedSmilesError,
    canonical_smiles,
    check_smiles_characters,
    mol_from_smiles,
    molecule_columns,
    molecule_from_mol,
)
from kmip_data.runtime.extras import require_extra

if TYPE_CHECKING:
    from kmip_data.pipelines.datasets.graphs.tables.table import Table

_EXPECTED = "a CSV with a column smiles, or one that the parameter smiles names"
_MAX_CHARACTERS = 10_000  #: longest SMILES; RDKit takes minutes for 10⁶ atoms
_LISTED_ROWS = 10  #: rows that an error lists
_DEFAULT_COLUMN = "smiles"
_SKIP = Setting(on_error="skip")
#: Columns of a record without atoms yet, as bytes: its SMILES and location, or "" and an error.
_SMILES = "text/smiles"
_LOCATION = "text/location"
#: Columns that splits read: equal digests are the same molecule, or the same scaffold.
_DIGEST_COLUMNS = tuple(
    Column(key=f"graph/{name}", attribute=name, stored="int64", presented="int64", doc=doc)
    for name, doc in (("molecule_digest", MOLECULE_DOC), ("scaffold_digest", SCAFFOLD_DOC))
)
BYTES_PER_MOLECULE = 2_048  #: approximate size of a molecule in a shard; a shard has 30,000
#: Edge summary for the card; bonds are unknown until shards are built.
EDGE_SUMMARY = {"directed": "no: a bond joins its atoms both ways"}


def recognises(heads: Mapping[str, bytes], params: GraphParams) -> bool:
    """True for a single table with a column of SMILES, possibly named by a parameter, or a ``.smi``."""
    if len(heads) > 1:
        return False
    name, head = next(iter(heads.items()))
    if _is_smi(name) or params.smiles != _DEFAULT_COLUMN:
        return True
    lines = head.decode("utf-8", "replace").lower().splitlines()
    return _DEFAULT_COLUMN in re.split('[\t,; "\ufeff]', lines[0] if lines else "")


def _is_smi(name: str) -> bool:
    return name.lower().removesuffix(".gz").endswith(".smi")


def read(
    folder: Path, files: Sequence[str], options: ReadOptions, findings: Findings
) -> Iterator[GraphRecord]:
    """Yield the molecules in row order, as SMILES without atoms yet."""
    # Imported late: tables import pandas, which the other functions of this module do not need.
    from kmip_data.pipelines.datasets.graphs.readers.table_files import tables_of_file
    from kmip_data.pipelines.datasets.graphs.tables.columns import read_columns
    from kmip_data.pipelines.datasets.graphs.tables.table import check_column_options

    # 1. Read the table and find its columns.
    name = files[0]
    # A .smi has a SMILES and a molecule name in each line, and no header.
    if _is_smi(name) and options.params.header is None:
        options = options.with_params(header="no")
    params = options.params
    features = [column for column in params.feature if column != "none"]
    if features:
        raise UsageError(
            f"feature={features[0]} has no effect: the features of molecules come from SMILES.",
            steps=Setting(feature=None),
        )
    tables = tables_of_file(folder / name, "graph", options, findings.notices, is_only_table=True)
    table = _table_of_molecules(tables, params, findings.notices)
    if table.frame.empty:
        raise DamagedInput(
            f"{name} has no row.",
            found=table.column_list,
            steps="write molecules below its first line",
        )
    smiles_column = _find_smiles_column(table, params)
    check_column_options([table], options, {smiles_column})
    smiles = [str(cell).strip() for cell in table.frame[smiles_column].fillna("")]
    key_column = _find_key_column(table, {smiles_column, *params.label}, params.node)
    findings.tables.key_column = key_column
    keys = [f"{row:06d}" for row in range(len(smiles))]
    if key_column:
        keys = [str(key) for key in table.ids(key_column)]
    id_uses: dict[str, Use] = {smiles_column: "smiles", key_column: "id"}
    columns = read_columns(table, "graph", id_uses, options, findings)
    findings.notices.raise_questions()

    # 2. Yield the rows.
    for row, cell in enumerate(smiles):
        values = {key: rows[row : row + 1] for key, rows in columns.items()}
        location = table.location(row)
        try:
            _check_smiles(table, row, smiles_column, cell)
        except DamagedInput as error:
            if params.on_error == "stop":
                raise
            cell = ""  # noqa: PLW2901 -- a row that is skipped
            location = error.message
        values[_SMILES] = np.frombuffer(cell.encode(), np.uint8)
        values[_LOCATION] = np.frombuffer(location.encode(), np.uint8)
        yield GraphRecord(key=keys[row], num_nodes=0, columns=values)


def _table_of_molecules(tables: Sequence[Table], params: GraphParams, notices: Notices) -> Table:
    """Return the table with a column of SMILES: of a workbook, the first such sheet."""
    name = params.smiles.lower()
    with_smiles = [table for table in tables if name in map(str.lower, table.column_names)]
    chosen = (with_smiles or tables)[0]
    for table in tables:
        if table is not chosen:
            notices.ignored[table.name] = "another sheet has the molecules"
    return chosen


def _check_smiles(table: Table, row: int, column: str, smiles: str) -> None:
    """Refuse a cell that cannot be a SMILES, before RDKit reads it."""
    if not smiles:
        remedy = "fill in the SMILES, remove the line, or leave such rows out"
        raise table.error_at(row, f"{column!r} is empty", [remedy, _SKIP])
    if len(smiles) > _MAX_CHARACTERS:
        raise table.error_at(
            row, f"a SMILES of {len(smiles):,} characters, of at most {_MAX_CHARACTERS:,}"
        )
    check_smiles_characters(smiles, table.location(row))


def _find_smiles_column(table: Table, params: GraphParams) -> str:
    """Return the column of SMILES; by default the first one if columns have no names."""
    if not table.has_names and params.smiles == _DEFAULT_COLUMN:
        return table.column_names[0]
    for name in table.column_names:
        if name.lower() == params.smiles.lower():
            return name
    from kmip_data.pipelines.datasets.graphs.tables.table import unknown_column_error

    # SMILES are longer than names and classes.
    longest_first = sorted(
        table.column_names, key=lambda name: -table.frame[name].map(str).str.len().mean()
    )
    raise unknown_column_error([table], "smiles", params.smiles, longest_first)


def _find_key_column(table: Table, excluded: Collection[str], given_column: str) -> str:
    """Return the column with the ids of the molecules; empty if rows number them.

    Ids are distinct. Their column is ``given_column``, named like an id, or the second of a ``.smi``.
    """
    if given_column == "none":
        return ""
    names = [name for name in table.column_names if name not in excluded]
    named_like_ids = known_columns.matching_names(names, known_names.NODE_ID_NAMES)
    if given_column and given_column not in names:
        from kmip_data.pipelines.datasets.graphs.tables.table import unknown_column_error

        raise unknown_column_error([table], "node", given_column, [*named_like_ids, *names])
    candidates = [
        *known_columns.matching_names(names, known_names.GRAPH_ID_NAMES),
        *named_like_ids,
        *(name for name in names if known_columns.normalized_name(name).endswith("id")),
        *(() if table.has_names else names[:1]),
    ]
    for name in [given_column] if given_column else candidates:
        values = table.frame[name]
        if values.notna().all() and values.is_unique:
            return name
    if given_column:
        raise DamagedInput(
            f"{table.name}: {given_column!r} does not name each molecule: values are missing or occur twice.",
            steps=Setting(node="none"),
        )
    return ""


def drop_smiles(block: GraphBlock) -> tuple[GraphBlock, bool]:
    """Return graphs without their SMILES; True if they are molecules without atoms yet."""
    columns = {key: rows for key, rows in block.columns.items() if key not in {_SMILES, _LOCATION}}
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
        texts = (block.text(_SMILES), block.text(_LOCATION))
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
    joined.steps = [f"repair or remove the {rows}, or leave such rows out", _SKIP]
    joined.has_location = True
    return joined


FORMAT = GraphFormat(
    name="tables of SMILES",
    expected=_EXPECTED,
    recognises=recognises,
    read=read,
    parameters=COMMON_PARAMETERS
    | {
        "decimal",
        "encoding",
        "feature",
        "group",
        "header",
        "ignore",
        "missing",
        "node",
        "on_error",
        "smiles",
    },
)
