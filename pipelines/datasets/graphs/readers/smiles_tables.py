"""Tables with a column of SMILES, a molecule in each row."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from kmip_data.columns.column_roles import Use
from kmip_data.errors import DamagedInput, Setting, UsageError
from kmip_data.format.graph_record import GraphRecord
from kmip_data.pipelines import known_names
from kmip_data.pipelines.datasets.graphs.findings import Findings, Notices
from kmip_data.pipelines.datasets.graphs.graph_format import COMMON_PARAMETERS, GraphFormat
from kmip_data.pipelines.datasets.graphs.molecules import LOCATION, SKIP, SMILES
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.domains.molecules import check_smiles_characters
from kmip_data.pipelines.own import names
from kmip_data.pipelines.own.columns.values import read_columns
from kmip_data.pipelines.own.files import read_tables
from kmip_data.pipelines.own.format import check_named_columns, unknown_column_error
from kmip_data.pipelines.own.ids import Ids
from kmip_data.pipelines.own.table import Table

_EXPECTED = "a CSV with a column smiles, or one that the parameter smiles names"
_MAX_CHARACTERS = 10_000  #: longest SMILES; RDKit takes minutes for 10⁶ atoms
_DEFAULT_COLUMN = "smiles"


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
    tables = read_tables(folder, files, options, findings.notices)
    table = _table_of_molecules(tables, params, findings.notices)
    if not table.rows:
        raise DamagedInput(
            f"{name} has no row.",
            found=table.column_list,
            steps="write molecules below its first line",
        )
    smiles_column = _find_smiles_column(table, params)
    check_named_columns([table], options, findings)
    if smiles_column in {*params.label, *params.ignore, params.group}:
        raise UsageError(
            f"{smiles_column!r} is the column of SMILES, which has no other use.",
            steps="name another column, or leave the option out",
        )
    smiles = table.texts(smiles_column)
    key_column = _find_key_column(table, {smiles_column, *params.label}, params.node)
    findings.tables.key_column = key_column
    keys = [f"{row:06d}" for row in range(table.rows)]
    if key_column:
        keys = [str(key) for key in Ids(table, key_column).cells.to_pylist()]
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
        values[SMILES] = np.frombuffer(cell.encode(), np.uint8)
        values[LOCATION] = np.frombuffer(location.encode(), np.uint8)
        yield GraphRecord(key=keys[row], num_nodes=0, columns=values)


def _table_of_molecules(tables: Sequence[Table], params: GraphParams, notices: Notices) -> Table:
    """Return the table with a column of SMILES: of a workbook, the first such sheet."""
    name = params.smiles.lower()
    with_smiles = [table for table in tables if name in map(str.lower, table.column_names)]
    chosen = (with_smiles or tables)[0]
    if with_smiles:
        notices.questions.clear()  # about the names of other sheets
    for table in tables:
        if table is not chosen:
            notices.ignored[table.name] = "another sheet has the molecules"
    return chosen


def _check_smiles(table: Table, row: int, column: str, smiles: str) -> None:
    """Refuse a cell that cannot be a SMILES, before RDKit reads it."""
    if not smiles:
        remedy = "fill in the SMILES, remove the line, or leave such rows out"
        raise table.error_at(row, f"{column!r} is empty", [remedy, SKIP])
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

    # SMILES are longer than names and classes.
    longest_first = sorted(table.column_names, key=lambda name: -sum(map(len, table.texts(name))))
    raise unknown_column_error([table], "smiles", params.smiles, longest_first)


def _find_key_column(table: Table, excluded: Collection[str], given_column: str) -> str:
    """Return the column with the ids of the molecules; empty if rows number them.

    Ids are distinct. Their column is ``given_column``, named like an id, or the second of a ``.smi``.
    """
    if given_column == "none":
        return ""
    existing = [name for name in table.column_names if name not in excluded]
    named_like_ids = names.matching(existing, known_names.NODE_ID_NAMES)
    if given_column and given_column not in existing:
        raise unknown_column_error([table], "node", given_column, [*named_like_ids, *existing])
    candidates = [
        *names.matching(existing, known_names.GRAPH_ID_NAMES),
        *named_like_ids,
        *(name for name in existing if names.normalized(name).endswith("id")),
        *(() if table.has_names else existing[:1]),
    ]
    for name in [given_column] if given_column else candidates:
        if Ids(table, name).is_key:
            return name
    if given_column:
        raise DamagedInput(
            f"{table.name}: {given_column!r} does not name each molecule: values are missing or occur twice.",
            steps=Setting(node="none"),
        )
    return ""


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
