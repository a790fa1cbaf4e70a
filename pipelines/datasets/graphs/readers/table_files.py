"""Tables of edges, alone or next to tables of nodes and graphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kmip_data.errors import DamagedInput
from kmip_data.format.writer import GraphRecord
from kmip_data.pipelines.datasets.graphs.findings import Findings, Notices
from kmip_data.pipelines.datasets.graphs.graph_format import GraphFormat
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.datasets.graphs.tables.adjacency_matrices import (
    matrix_cells,
    tables_from_matrix,
)
from kmip_data.pipelines.datasets.graphs.tables.graphs_from_tables import graphs_from_tables
from kmip_data.pipelines.datasets.graphs.tables.json_feature_indices import (
    FeatureIndices,
    read_feature_indices,
)
from kmip_data.pipelines.datasets.graphs.tables.read_table import read_table
from kmip_data.pipelines.datasets.graphs.tables.roles.joined_files import (
    ask_about_files,
    join_files,
)
from kmip_data.pipelines.datasets.graphs.tables.roles.table_roles import (
    assign_levels,
    level_from_name,
)
from kmip_data.pipelines.datasets.graphs.tables.table import Table, expand_lists
from kmip_data.pipelines.formats.frames import PARQUET, is_frame_file, read_frame

_EXPECTED = "a table of edges; optionally tables of nodes and graphs"
#: Endings of files that are meant as tables; others may be notes.
_TABLE_SUFFIXES = {".csv", ".tsv", ".tab", ".gz", ".jsonl", ".ndjson", ".parquet", ".xlsx"}


def recognises(heads: Mapping[str, bytes], _: GraphParams) -> bool:
    """True if all files are texts or frames, or one is named after edges."""
    are_texts = all(is_text(head) for head in heads.values())
    return are_texts or any(level_from_name(name) == "edge" for name in heads)


def is_text(head: bytes) -> bool:
    """True if a file with these first bytes may be a table."""
    is_utf16 = head.startswith((b"\xff\xfe", b"\xfe\xff"))
    return (is_utf16 or b"\0" not in head) and not head.startswith(b"<")


def read(
    folder: Path, files: Sequence[str], options: ReadOptions, findings: Findings
) -> Iterator[GraphRecord]:
    """Yield the graphs; all tables are in memory."""
    feature_files: list[FeatureIndices] = []
    tables: list[Table] = []
    names = [name for name in files if not name.lower().endswith(".json")]
    for name in files:
        if name not in names:
            feature_files.append(read_feature_indices(folder / name, options))
            continue
        likely_level = level_from_name(name) if len(names) > 1 else "edge"
        is_only = len(names) == 1
        try:
            tables += tables_of_file(
                folder / name, likely_level or "", options, findings.notices, is_only_table=is_only
            )
        except DamagedInput as error:
            if is_only or likely_level or Path(name).suffix.lower() in _TABLE_SUFFIXES:
                raise
            findings.notices.ignored[name] = f"no table: {error.message}"
    is_only_table = len(tables) == 1
    tables = join_files(tables, options.params)
    levels = assign_levels(tables, options, findings.notices)
    ask_about_files(levels, options.params, findings.notices)
    cells = matrix_cells(levels["edge"]) if is_only_table else None
    if cells is not None:
        levels = tables_from_matrix(levels["edge"], cells)
    yield from graphs_from_tables(
        levels, options, findings, feature_files, is_only_table=is_only_table
    )


def tables_of_file(
    path: Path,
    likely_level: str,
    options: ReadOptions,
    notices: Notices,
    *,
    is_only_table: bool = False,
) -> list[Table]:
    """Return the tables of a file of any format: one, or several of a workbook.

    A text that ``is_only_table`` may have no names of columns. ``likely_level`` is the level of its
    rows that the file's name suggests, which decides an ambiguous first line.
    """
    if not is_frame_file(path.name):
        return [read_table(path, likely_level, options, notices, is_only_table=is_only_table)]
    if is_only_table:
        reason = f"{path.name} names its columns in UTF-8"
        options.refuse_unread(dict.fromkeys(("header", "encoding"), reason))
    frame, blank_lines = read_frame(path, options.check_memory)
    row_word = "row" if path.name.lower().endswith(PARQUET) else "line"
    first = int(row_word == "line")
    frame = expand_lists(frame, notices)
    return [Table(path.name, frame, first, row_word, lines_without_row=blank_lines)]


FORMAT = GraphFormat(
    name="tables of edges",
    expected=_EXPECTED,
    recognises=recognises,
    read=read,
    parameters=frozenset(GraphParams.model_fields) - {"smiles"},
)
