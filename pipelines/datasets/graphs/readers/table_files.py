"""Tables of edges, alone or next to tables of nodes and graphs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

from kmip_data.errors import DamagedInput, OpenQuestions
from kmip_data.format.graph_record import GraphRecord
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
from kmip_data.pipelines.datasets.graphs.tables.read_table import read_table
from kmip_data.pipelines.datasets.graphs.tables.roles.id_values import ValuesOfTables
from kmip_data.pipelines.datasets.graphs.tables.roles.joined_files import (
    are_unnamed_edges,
    ask_about_files,
    join_files,
)
from kmip_data.pipelines.datasets.graphs.tables.roles.table_roles import assign_levels
from kmip_data.pipelines.datasets.graphs.tables.table import Table, table_of_frame
from kmip_data.pipelines.formats.file_heads import decompressed_head
from kmip_data.pipelines.formats.graph_texts.json_graphs import is_json_table
from kmip_data.pipelines.formats.typed_tables.frames import (
    is_frame_file,
    read_frames,
)

_EXPECTED = (
    "a table of edges, or a text with a matrix of them; optionally tables of nodes and graphs"
)
#: Endings of texts that are meant as tables; others may be notes.
TABLE_SUFFIXES = {".csv", ".tsv", ".tab", ".gz", ".json"}
#: Beginning of an object of JSON whose first value is a list.
_LISTS = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"[^"]*"\s*:\s*\[')
_ONE_LINE = "no table: it has one line"  #: reason to ignore a text


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
    names = [
        name
        for name in files
        if not name.lower().endswith(".json") or is_json_table(decompressed_head(folder / name))
    ]
    for name in files:
        if name not in names:
            _refuse_lists(name, decompressed_head(folder / name))
            findings.notices.ignored[name] = "JSON, but no list of objects"
    tables = _read_tables(folder, names, options, findings.notices)
    is_only_table = len(tables) == 1
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
        levels, options, findings, values=values, is_only_table=is_only_table
    )


def _refuse_lists(name: str, head: bytes) -> None:
    """Refuse JSON with a list for each node, such as MUSAE's features, given its first bytes."""
    if _LISTS.match(head):
        raise DamagedInput(
            f"{name} is JSON with a list for each name, which is not read.",
            steps=f"join its values to the table of nodes: value = json.load(open({name!r})); "
            "pandas.get_dummies(pandas.Series(value).explode()).groupby(level=0).max()",
        )


def _read_tables(
    folder: Path, names: Sequence[str], options: ReadOptions, notices: Notices
) -> list[Table]:
    """Return the tables of files, in order; a text that is no table is noted, unless it is meant as one.

    A first line that may be names of columns or data is data if it has ids of another table, as the
    lines below, and names if it has none. Next to edges without names, one such as 0 1 is an edge.
    """
    is_only = len(names) == 1
    tables: dict[str, list[Table]] = {}
    questions: dict[str, OpenQuestions] = {}
    meant: set[str] = set()  # as tables
    readers = {}
    for name in names:
        level = "edge" if is_only else known_columns.level_from_name(name) or ""
        readers[name] = partial(tables_of_file, folder / name, level, notices=notices)
        if level or Path(name).suffix.lower() in TABLE_SUFFIXES or is_frame_file(name, b""):
            meant.add(name)
        try:
            tables[name] = readers[name](options, is_only_table=is_only)
        except OpenQuestions as error:
            questions[name] = error
        except DamagedInput as error:
            if name in meant:
                raise
            note_no_table(notices, name, error)
        else:
            if name not in meant and all(table.frame.empty for table in tables[name]):
                notices.ignored[name] = _ONE_LINE
                del tables[name]

    decided = [*chain.from_iterable(tables.values())]
    values = ValuesOfTables()
    for name, question in questions.items():
        without_names = readers[name](options.with_params(header="no"))
        has_ids = values.first_row_has_ids(without_names[0], decided)
        if has_ids is False:
            tables[name] = readers[name](options.with_params(header="yes"))
        elif has_ids or (
            are_unnamed_edges(without_names[0]) and any(map(are_unnamed_edges, decided))
        ):
            tables[name] = without_names
        elif name in meant or are_unnamed_edges(without_names[0]):
            raise question
        elif len(without_names[0].frame) == 1:
            notices.ignored[name] = _ONE_LINE
        else:
            note_no_table(notices, name, question)
    # Files of one name in several folders are told by their folders.
    stems = Counter(Path(name).name for name in names)
    return [
        replace(table, name=name) if stems[table.name] > 1 else table
        for name in names
        for table in tables.get(name, ())
    ]


def note_no_table(notices: Notices, name: str, error: DamagedInput) -> None:
    """Note a file that is no table, and the reason."""
    notices.ignored[name] = f"no table: {error.message}"


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
    frames = read_frames(path, options.memory, options.check_memory)
    return [table_of_frame(frame, notices) for frame in frames]


FORMAT = GraphFormat(
    name="tables of edges",
    expected=_EXPECTED,
    recognises=recognises,
    read=read,
    parameters=frozenset(GraphParams.model_fields) - {"smiles"},
)
