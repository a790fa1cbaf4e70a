"""Tables of edges, alone or next to tables of nodes and graphs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kmip_data.columns.column_roles import Level
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
from kmip_data.pipelines.datasets.graphs.tables.table import Table, expand_lists
from kmip_data.pipelines.formats.frames import PARQUET, is_frame_file, read_frame

_EXPECTED = "a table of edges; optionally tables with nodes and graphs in their names"
#: Level of the rows -> words in the file name. The first existing level gives the order of graphs.
_LEVEL_WORDS: dict[Level, set[str]] = {
    "graph": {"graph", "graphs", "molecule", "molecules", "mols"},
    "node": {"node", "nodes", "vertex", "vertices", "atom", "atoms", "target", "targets"},
    "edge": {"edge", "edges", "edgelist", "link", "links", "bond", "bonds", "arcs", "relations"},
}


def recognises(heads: Mapping[str, bytes], _: GraphParams) -> bool:
    """True for a single table, or several files with one named after edges."""
    if len(heads) == 1:
        return all(is_text(head) for head in heads.values())
    return any(_level_from_name(name) == "edge" for name in heads)


def is_text(head: bytes) -> bool:
    """True if a file with these first bytes may be a table."""
    is_utf16 = head.startswith((b"\xff\xfe", b"\xfe\xff"))
    return (is_utf16 or b"\0" not in head) and not head.startswith(b"<")


def _level_from_name(name: str) -> Level | None:
    """Return the level of a table by its file name; edges take precedence, as in ``graph-edges``."""
    words = {*re.split(r"[^a-z]+", Path(name).name.partition(".")[0].lower())}
    for level in reversed(_LEVEL_WORDS):
        if words & _LEVEL_WORDS[level]:
            return level
    return None


def read(
    folder: Path, files: Sequence[str], options: ReadOptions, findings: Findings
) -> Iterator[GraphRecord]:
    """Yield the graphs; all tables are in memory."""
    by_level: dict[Level, list[str]] = {level: [] for level in _LEVEL_WORDS}
    feature_files: list[FeatureIndices] = []
    for name in files:
        level = _level_from_name(name) if len(files) > 1 else "edge"
        if options.described is not None and len(files) > 1:
            level = options.described.tables.get(name, level)
        if name.lower().endswith(".json"):
            feature_files.append(read_feature_indices(folder / name, options))
        elif level:
            by_level[level].append(name)
        else:
            findings.notices.ignored[name] = (
                "its name has none of the words nodes, edges and graphs"
            )
    is_only_table = sum(map(len, by_level.values())) == 1
    tables = {}
    for level, names in by_level.items():
        if len(names) > 1:
            raise DamagedInput(
                f"Two files may be the table of {level}s: {', '.join(names)}.",
                next="copy the files of one graph into a folder, and pass it with --archive; several "
                f"types of {level}s are one table, with the type in a column and before each id: user:0",
            )
        if names:
            (tables[level],) = tables_of_file(
                folder / names[0], level, options, findings.notices, is_only_table=is_only_table
            )
    cells = matrix_cells(tables["edge"]) if is_only_table else None
    if cells is not None:
        tables = tables_from_matrix(tables["edge"], cells)
    yield from graphs_from_tables(
        tables, options, findings, feature_files, is_only_table=is_only_table
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
