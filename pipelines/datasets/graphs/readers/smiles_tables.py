"""Tables of molecules: SMILES, targets and parts, with the features of the Open Graph Benchmark."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kmip_data.columns.column_uses import Use
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.format.schema import Schema
from kmip_data.format.writer import GraphRecord
from kmip_data.pipelines.datasets.graphs.findings import Findings
from kmip_data.pipelines.datasets.graphs.graph_format import GraphFormat
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.datasets.graphs.tables import roles
from kmip_data.pipelines.domains.molecules import (
    RefusedSmilesError,
    check_smiles_characters,
    molecule_columns,
    molecule_from_smiles,
)
from kmip_data.runtime.extras import require_extra

if TYPE_CHECKING:
    from kmip_data.pipelines.datasets.graphs.tables.table import Table

_EXPECTED = "a CSV with a column smiles (--set smiles=COLUMN)"
LONGEST = 10_000  #: longest SMILES; RDKit takes minutes for 10⁶ atoms
_SHOWN = 10  #: rows that an error lists
SMILES = "smiles"  #: columns of a record before its atoms: SMILES and origin; or "" and its problem
BYTES_OF_MOLECULE = 2_048  #: approximate size of a molecule, so that a shard has 30,000
#: Summary of the edges for the card: bonds are not known before a shard is built.
EDGE_SUMMARY = {"directed": "no: a bond joins its atoms both ways"}


def recognises(heads: Mapping[str, bytes], params: GraphParams) -> bool:
    """True for a single table with a SMILES column, possibly named by the parameters, or a ``.smi``."""
    if len(heads) > 1:
        return False
    name, head = next(iter(heads.items()))
    if _is_smi(name) or params.smiles != SMILES:
        return True
    first = head.decode("utf-8", "replace").lower().splitlines()
    return SMILES in re.split('[\t,; "\ufeff]', first[0] if first else "")


def _is_smi(name: str) -> bool:
    return name.lower().removesuffix(".gz").endswith(".smi")


def read(
    folder: Path, files: Sequence[str], options: ReadOptions, findings: Findings
) -> Iterator[GraphRecord]:
    """Yield the molecules in row order, as SMILES without atoms yet."""
    # Tables import pandas, which those who only ask for the other functions need not.
    from kmip_data.pipelines.datasets.graphs.tables.columns import columns_of
    from kmip_data.pipelines.datasets.graphs.tables.table import check_columns
    from kmip_data.pipelines.datasets.graphs.tables.text_tables import read_table

    name = files[0]
    # A line of a .smi has a SMILES and the name of its molecule.
    if _is_smi(name) and options.params.header is None:
        options = options.with_params(header="no")
    params = options.params
    features = [column for column in params.feature if column != "none"]
    if features:
        raise UsageError(
            f"--set feature={features[0]} has no effect: the features of molecules come from SMILES.",
            next=f"leave out --set feature={shlex.quote(features[0])}",
        )
    table = read_table(folder / name, "graph", options, findings.notices, alone=True)
    if table.frame.empty:
        raise DamagedInput(
            f"{name} has no row.",
            found=table.column_list,
            next="write molecules below its first line",
        )
    column = _smiles_column(table, params)
    check_columns([table], options, {column})
    texts = [str(text).strip() for text in table.frame[column].fillna("")]
    key_column = _key_column(table, {column, *params.label}, params.node)
    findings.tables.key_column = key_column
    keys = [f"{row:06d}" for row in range(len(texts))]
    if key_column:
        keys = [str(key) for key in table.ids(key_column)]
    used: dict[str, Use] = {column: "smiles", key_column: "id"}
    columns = columns_of(table, "graph", used, options, findings)
    findings.notices.ask()
    for row, text in enumerate(texts):
        where = table.location(row)
        usable = text
        try:
            _check_smiles(table, row, column, text)
        except DamagedInput as error:
            if params.on_error == "stop":
                raise
            usable = ""
            where = error.message
        values = {key: rows[row : row + 1] for key, rows in columns.items()}
        values[SMILES] = np.array([usable, where])
        yield GraphRecord(key=keys[row], num_nodes=0, columns=values)


def _check_smiles(table: Table, row: int, column: str, text: str) -> None:
    """Refuse a cell that cannot be a SMILES, before RDKit reads it."""
    if not text:
        hint = "fill in the SMILES, remove the line, or leave such rows out: --set on_error=skip"
        raise table.error_at(row, f"{column!r} is empty", hint)
    if len(text) > LONGEST:
        raise table.error_at(row, f"a SMILES of {len(text):,} letters, of at most {LONGEST:,}")
    check_smiles_characters(text, table.location(row))


def _smiles_column(table: Table, params: GraphParams) -> str:
    if not table.has_names:
        return table.names[0]
    for name in table.names:
        if name.lower() == params.smiles.lower():
            return name
    from kmip_data.pipelines.datasets.graphs.tables.table import unknown_column

    # SMILES are longer than names and classes.
    longest_first = sorted(
        table.names, key=lambda name: -table.frame[name].map(str).str.len().mean()
    )
    raise unknown_column([table], "smiles", params.smiles, longest_first)


def _key_column(table: Table, used: Collection[str], chosen: str) -> str:
    """Return the column with the ids of the molecules; empty if the rows count them.

    It has no value twice, and is the ``chosen`` one, or is called id, name or such, or ends in "id";
    the second column of a ``.smi``.
    """
    if chosen == "none":
        return ""
    free = [name for name in table.names if name not in used]
    if chosen and chosen not in free:
        from kmip_data.pipelines.datasets.graphs.tables.table import unknown_column

        raise unknown_column(
            [table], "node", chosen, [*roles.matching_names(free, roles.NODE_IDS), *free]
        )
    named = [
        *roles.matching_names(free, roles.GRAPH_IDS),
        *roles.matching_names(free, roles.NODE_IDS),
        *(name for name in free if roles.normalized_name(name).endswith("id")),
        *(() if table.has_names else free[:1]),
    ]
    for name in [chosen] if chosen else named:
        values = table.frame[name]
        if values.notna().all() and values.is_unique:
            return name
    if chosen:
        raise DamagedInput(
            f"{table.name}: {chosen!r} does not name each molecule: values are missing or occur twice.",
            next="--set node=none, which counts the rows",
        )
    return ""


def without_smiles(graph: GraphRecord) -> tuple[GraphRecord, bool]:
    """Return the columns of a table's row alone; True if it is a molecule without atoms yet."""
    columns = {key: values for key, values in graph.columns.items() if key != SMILES}
    return replace(graph, columns=columns), SMILES in graph.columns


def with_atoms(schema: Schema, dataset: str) -> Schema:
    """Return the schema of molecules with atoms and bonds before the columns of the table."""
    require_extra("chem", dataset)
    columns = (*molecule_columns(), *schema.columns)
    return replace(schema, columns=columns, edges="index", directed=False)


def with_bonds(
    graphs: Iterable[GraphRecord], *, skips: bool
) -> Iterator[tuple[str, GraphRecord | DamagedInput]]:
    """Yield each graph by its key, a molecule with atoms and bonds; or its error if ``skips``.

    Else one error names all rows that are no molecules, after the last graph.
    """
    unusable: list[DamagedInput] = []
    for graph in graphs:
        try:
            finished = _add_atoms(graph)
        except DamagedInput as error:
            if skips:
                yield graph.key, error
            else:
                unusable.append(error)
            continue
        if not unusable:
            yield graph.key, finished
    if unusable:
        raise _no_molecules_error(unusable)


def _add_atoms(graph: GraphRecord) -> GraphRecord:
    """Return a molecule with atoms and bonds; raise ``DamagedInput`` if RDKit refuses it."""
    columns = dict(graph.columns)
    if SMILES not in columns:
        return graph
    text, where = columns.pop(SMILES).tolist()
    if not text:
        raise DamagedInput(where)
    try:
        return molecule_from_smiles(text).record(graph.key, **columns)
    except RefusedSmilesError as error:
        problem = f"{where}: RDKit makes no molecule of {text[:200]!r}: {error}."
        raise DamagedInput(problem) from error


def _no_molecules_error(unusable: Sequence[DamagedInput]) -> DamagedInput:
    """Return the error for the rows of a unit that are no molecules."""
    first = unusable[0]
    rows = "row"
    if len(unusable) > 1:
        rows = "rows"
        shown = [error.message for error in unusable[:_SHOWN]]
        if len(unusable) > _SHOWN:
            shown.append(f"and {len(unusable) - _SHOWN:,} more")
        first = DamagedInput(f"{len(unusable):,} rows are no molecules.", found=" ".join(shown))
    first.next = f"repair or remove the {rows}, or leave such rows out: --set on_error=skip"
    first.located = True
    return first


FORMAT = GraphFormat(_EXPECTED, recognises, read)
