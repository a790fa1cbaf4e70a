"""Tables of edges, nodes and graphs as a format of your own graphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kmip_data.errors import DamagedInput, Setting, UsageError
from kmip_data.format.graph_record import GraphRecord
from kmip_data.pipelines.datasets.graphs.findings import Findings
from kmip_data.pipelines.datasets.graphs.graph_format import GraphFormat, refuse_several_folders
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.known_names import NO_LABEL
from kmip_data.pipelines.own.files import READERS, join_tables, read_files
from kmip_data.pipelines.own.graphs import graphs_of_tables
from kmip_data.pipelines.own.matrices import find_matrices, roles_of_matrices
from kmip_data.pipelines.own.readings import ROWS_FROM_0, ROWS_FROM_1
from kmip_data.pipelines.own.roles import find_roles
from kmip_data.pipelines.own.table import Table
from kmip_data.text import is_likely_typo, list_names, nearest_name

#: Parameters that name columns, and words that are none.
_NAMING_PARAMETERS = {
    "label": {NO_LABEL},
    "feature": {"none"},
    "ignore": {"none"},
    "rounded": set[str](),
    "group": set[str](),
    "source": set[str](),
    "target": set[str](),
    "node": {ROWS_FROM_0, ROWS_FROM_1},
    "graph": {"file", "none"},
}


def recognises(heads: Mapping[str, bytes], _: GraphParams) -> bool:
    """True if all files may be texts, or one has a suffix of tables."""
    are_texts = all(b"\0" not in head and not head.startswith(b"<") for head in heads.values())
    names = (name.lower().removesuffix(".gz") for name in heads)
    return are_texts or any(Path(name).suffix in READERS for name in names)


def read(
    folder: Path, files: Sequence[str], options: ReadOptions, findings: Findings
) -> Iterator[GraphRecord]:
    """Yield the graphs of tables, which are in memory as a whole."""
    files_of_tables = read_files(folder, files, options, findings.notices)
    matrices = find_matrices(files_of_tables, options.params, findings.notices)
    tables = join_tables({k: t for k, t in files_of_tables.items() if k not in matrices})
    if matrices:
        roles = [roles_of_matrices(matrices, tables, options, findings)]
        tables += roles[0].tables.values()
    else:
        refuse_several_folders(files)
    check_named_columns(tables, options, findings)
    if not matrices:
        roles = [find_roles(tables, options, findings)]
    del tables, files_of_tables, matrices  # which are freed once their columns are read
    yield from graphs_of_tables(roles.pop(), options, findings)


def check_named_columns(tables: Sequence[Table], options: ReadOptions, findings: Findings) -> None:
    """Refuse parameters that name a column that no table has.

    Labels and groups of a description may be missing, and columns that are left out anyway ignored.
    """
    existing = [name for table in tables for name in table.column_names]
    described = {} if options.described is None else options.described.parameters()
    for key, words in _NAMING_PARAMETERS.items():
        given = getattr(options.params, key)
        for name in filter(None, [given] if isinstance(given, str) else given):
            is_left_out = key == "ignore" and name in findings.notices.ignored
            if name in words or name in existing or is_left_out:
                continue
            if name in _as_list(described.get(key)):
                if key in {"label", "group"}:
                    continue
                raise DamagedInput(
                    f"No table has the column {name!r} of the description.",
                    found=list_names(existing, 1_000),
                    steps="add the column: a model needs it",
                )
            raise unknown_column_error(tables, key, name, existing)


def _as_list(value: object) -> Sequence[str]:
    return [value] if isinstance(value, str) else value or ()  # type: ignore[return-value]


def unknown_column_error(
    tables: Sequence[Table], key: str, name: str, existing: Sequence[str]
) -> UsageError:
    """Return the error for a column that no table has; it names the nearest one."""
    close = nearest_name(name, existing)
    where = f"{tables[0].name} has" if len(tables) == 1 else "No table has"
    error = UsageError(
        f"{where} no column {name!r}." if len(tables) == 1 else f"{where} a column {name!r}.",
        found="; ".join(f"{table.name}: {table.column_list}" for table in tables)[:2_000],
        steps=Setting({key: close or [*existing, "none"][0]}),
    )
    listed = name.split(",")
    if len(listed) > 1 and {*listed} <= {*existing}:
        error.steps = [Setting({key: listed})]
    elif close and is_likely_typo(name, close):
        error.correction = (name, close)
    return error


FORMAT = GraphFormat(
    name="tables of edges",
    expected="a table of edges, alone or with tables of nodes and graphs, as CSV, Excel, Parquet or JSON",
    recognises=recognises,
    read=read,
    parameters=frozenset(GraphParams.model_fields) - {"smiles"},
)
