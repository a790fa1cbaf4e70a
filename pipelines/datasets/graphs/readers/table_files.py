"""Tables of edges, alone or next to tables of nodes and graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from kmip_data.errors import DamagedInput, OpenQuestions
from kmip_data.format.writer import GraphRecord
from kmip_data.pipelines.companion_files.legends import MAX_LEGEND_ROWS, legend_of_text, read_legend
from kmip_data.pipelines.datasets.graphs.findings import Findings, Notices
from kmip_data.pipelines.datasets.graphs.graph_format import (
    GraphFormat,
    refuse_several_folders,
)
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.datasets.graphs.tables import known_columns
from kmip_data.pipelines.datasets.graphs.tables.adjacency_matrices import (
    find_matrices,
    levels_of_matrices,
)
from kmip_data.pipelines.datasets.graphs.tables.graphs_from_tables import graphs_from_tables
from kmip_data.pipelines.datasets.graphs.tables.json_feature_indices import (
    FeatureIndices,
    read_feature_indices,
)
from kmip_data.pipelines.datasets.graphs.tables.read_table import read_table
from kmip_data.pipelines.datasets.graphs.tables.roles.id_values import ValuesOfTables
from kmip_data.pipelines.datasets.graphs.tables.roles.joined_files import (
    are_unnamed_edges,
    ask_about_files,
    join_files,
)
from kmip_data.pipelines.datasets.graphs.tables.roles.table_roles import assign_levels
from kmip_data.pipelines.datasets.graphs.tables.table import Table, expand_lists
from kmip_data.pipelines.formats.file_heads import decompressed_head
from kmip_data.pipelines.formats.graph_texts.json_graphs import is_json_table
from kmip_data.pipelines.formats.typed_tables import SHEET_MARK
from kmip_data.pipelines.formats.typed_tables.frames import (
    is_frame_file,
    read_frames,
)

_EXPECTED = "a table of edges; optionally tables of nodes and graphs"
#: Endings of texts that are meant as tables; others may be notes.
TABLE_SUFFIXES = {".csv", ".tsv", ".tab", ".gz", ".json"}


def recognises(heads: Mapping[str, bytes], _: GraphParams) -> bool:
    """True if all files are texts or frames, or one is named after edges."""
    are_texts = all(is_text(head) for head in heads.values())
    return are_texts or any(known_columns.level_from_name(name) == "edge" for name in heads)


def is_text(head: bytes) -> bool:
    """True if a file with these first bytes may be a table."""
    is_utf16 = head.startswith((b"\xff\xfe", b"\xfe\xff"))
    return (is_utf16 or b"\0" not in head) and not head.startswith(b"<")


def read(
    folder: Path, files: Sequence[str], options: ReadOptions, findings: Findings
) -> Iterator[GraphRecord]:
    """Yield the graphs; all tables are in memory."""
    feature_files: list[FeatureIndices] = []
    names = [
        name
        for name in files
        if not name.lower().endswith(".json") or is_json_table(decompressed_head(folder / name))
    ]
    attributes = findings.attributes
    attributes.legends |= legends_in(folder, names if len(names) > 1 else [])
    attributes.legends |= legends_in(folder, [name for name in files if name not in names])
    for name in files:
        if name in names:
            continue
        if name in attributes.legends:
            findings.notices.ignored[name] = "its codes are not those of the classes"
        else:
            feature_files.append(read_feature_indices(folder / name, options))
    tables = _read_tables(folder, names, options, findings.notices)
    is_only_table = len(tables) == 1
    attributes.legends |= legends_of_sheets(tables)
    values = ValuesOfTables()
    matrices = find_matrices(tables, options.params, findings.notices)
    if matrices:
        others = [table for table in tables if table not in matrices]
        levels = levels_of_matrices(matrices, others, options, findings.notices, values)
    else:
        refuse_several_folders(files)
        tables = join_files(tables, options.params)
        levels = assign_levels(tables, options, findings.notices, values)
        ask_about_files(levels, options.params, findings.notices)
    yield from graphs_from_tables(
        levels, options, findings, feature_files, values=values, is_only_table=is_only_table
    )


def _read_tables(
    folder: Path, names: Sequence[str], options: ReadOptions, notices: Notices
) -> list[Table]:
    """Return the tables of files, in order; a text that is no table is noted, unless it is meant as one.

    Next to edges without names of columns, a first line such as 0 1 is an edge, too.
    """
    is_only = len(names) == 1
    tables: dict[str, list[Table]] = {}
    undecided: dict[str, OpenQuestions] = {}
    for name in names:
        level = "edge" if is_only else known_columns.level_from_name(name) or ""
        read_file = partial(tables_of_file, folder / name, level, notices=notices)
        try:
            tables[name] = read_file(options, is_only_table=is_only)
        except DamagedInput as error:
            if isinstance(error, OpenQuestions):
                tables[name] = read_file(options.with_params(header="no"))
                if all(map(are_unnamed_edges, tables[name])):
                    undecided[name] = error
                    continue
                del tables[name]
            is_meant = Path(name).suffix.lower() in TABLE_SUFFIXES or is_frame_file(name, b"")
            if is_only or level or is_meant:
                raise
            notices.ignored[name] = f"no table: {error.message}"

    decided = [table for name in tables.keys() - undecided.keys() for table in tables[name]]
    if undecided and not any(map(are_unnamed_edges, decided)):
        raise next(iter(undecided.values()))
    # Files of one name in several folders are told by their folders.
    stems = Counter(Path(name).name for name in names)
    return [
        replace(table, name=name) if stems[table.name] > 1 else table
        for name, found in tables.items()
        for table in found
    ]


def legends_in(folder: Path, files: Sequence[str]) -> dict[str, Mapping[int, str]]:
    """Return the files that may be legends of classes, with the name of each code.

    A table of nodes may look like one, so it is read as a table, too.
    """
    legends = {name: read_legend(folder / name) for name in files}
    return {name: legend for name, legend in legends.items() if legend is not None}


def legends_of_sheets(tables: Sequence[Table]) -> dict[str, Mapping[int, str]]:
    """Return the sheets of workbooks that may be legends, as the same cells in a text would be."""
    legends = {
        table.name: legend_of_text(table.frame.to_csv(index=False).encode(), "sheet.csv")
        for table in tables
        if SHEET_MARK in table.name and len(table.frame) <= MAX_LEGEND_ROWS
    }
    return {name: legend for name, legend in legends.items() if legend is not None}


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
    if not is_frame_file(path.name, decompressed_head(path)):
        return [read_table(path, likely_level, options, notices, is_only_table=is_only_table)]
    if is_only_table:
        reason = f"{path.name} names its columns in UTF-8"
        options.refuse_unread(dict.fromkeys(("header", "encoding"), reason))
    tables = []
    for file_frame in read_frames(path, options.memory, options.check_memory):
        if file_frame.is_hidden:
            notices.warnings.append(f"{file_frame.name} is hidden, and is read like the others")
        tables.append(
            Table(
                file_frame.name,
                expand_lists(file_frame.frame, notices),
                file_frame.first_number,
                file_frame.row_word,
                lines_without_row=file_frame.numbers_without_row,
            )
        )
    return tables


FORMAT = GraphFormat(
    name="tables of edges",
    expected=_EXPECTED,
    recognises=recognises,
    read=read,
    parameters=frozenset(GraphParams.model_fields) - {"smiles"},
)
