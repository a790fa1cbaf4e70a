"""Delimited text as a table of texts, and the texts that are none."""

from __future__ import annotations

import csv
import re
from ast import literal_eval
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from kmip_data.errors import DamagedInput
from kmip_data.pipelines.datasets.graphs.findings import Notices
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.formats.graph_texts.line_formats import REMEDIES, line_format
from kmip_data.pipelines.own.headers import NoTable, TopRow
from kmip_data.pipelines.own.table import Table, table_of_rows
from kmip_data.pipelines.own.texts.cells import quote_whole_cells, read_with_arrow, read_with_python
from kmip_data.pipelines.own.texts.lines import Rows, read_rows
from kmip_data.pipelines.own.texts.separators import BLANKS, NO_SEPARATOR, Quoting, find_separator
from kmip_data.text import count_with_noun

MAX_COLUMNS = 65_536
_BYTES_IN_PYTHON = 25  #: peak memory of a byte, measured with 10⁶ edges
_IN_BLANKS = re.compile(r"[^\t;,|]+ [^\t;,|]+|(?i:dl)")  #: row of several cells, or a format's name
#: Edge as ``networkx.write_edgelist`` writes it.
_WITH_DICTIONARY = re.compile(r"(\S+)[ \t]+(\S+)[ \t]+(\{.*\})\s*")


def read_text(
    path: Path, name: str, options: ReadOptions, notices: Notices
) -> Sequence[Table | TopRow]:
    """Return the table of a text, whose first row may have the names of its columns.

    Raises ``NoTable`` if it is none, and ``DamagedInput`` with the line for another number of cells
    than in the first row, or an open quote.
    """
    rows = read_rows(path, name, options)
    sample = rows.sample()
    if all(map(_WITH_DICTIONARY.fullmatch, sample)):
        return [_read_edge_dictionaries(rows, options, notices)]
    _refuse_other_formats(rows, sample)
    return [table_of_lines(rows, options, notices)]


def table_of_lines(rows: Rows, options: ReadOptions, notices: Notices) -> TopRow:
    """Return the table of lines (R,); errors are those of :func:`read_text`."""
    name = rows.name
    sample = rows.sample()
    separator = rows.separator or find_separator(sample, name)
    _refuse_rows_like_comments(rows, separator, sample[0])
    if rows.comments:
        example = next(iter(rows.comments.values()))[:40]
        lines = count_with_noun(len(rows.comments), "line")
        notices.ignored[f"comments in {name}"] = f"{lines}, such as {example!r}"

    if sample[0].count(separator) >= MAX_COLUMNS:
        raise DamagedInput(f"{name} has more than {MAX_COLUMNS:,} columns.")
    is_csv = quote_whole_cells(rows.data, separator)
    quoting: Quoting = csv.QUOTE_NONE if separator == "\t" and not is_csv else csv.QUOTE_MINIMAL
    cells = (
        read_with_arrow(rows, separator, quoting, options.workdir) if is_csv or quoting else None
    )
    if cells is None:
        options.check_memory(_BYTES_IN_PYTHON * len(rows.data), name)
        cells = read_with_python(rows, separator, quoting)
    columns, numbers = cells
    # Spreadsheets write lines of separators below the last row.
    end = len(columns[0])
    if not any(column[-1].is_valid for column in columns):
        end = 1 + max(
            [0, *(np.flatnonzero(c.is_valid())[-1] for c in columns if c.null_count < end)]
        )
    table = Table(
        name,
        {str(i): column[:end] for i, column in enumerate(columns)},
        has_names=False,
        lines=numbers.start if isinstance(numbers, range) else np.asarray(numbers)[:end],
        separator=separator.strip(NO_SEPARATOR),
    )
    below = replace(
        table,
        columns={key: column[1:] for key, column in table.columns.items()},
        lines=table.lines + 1 if isinstance(table.lines, int) else table.lines[1:],
    )
    first = [column[0].as_py() or "" for column in columns]
    comment = _cells_of_comment(rows, separator, len(columns))
    return TopRow(first, below, lambda: table, comment)


def _refuse_rows_like_comments(rows: Rows, separator: str, first: str) -> None:
    """Refuse a comment below the first row that has its separators: it may be a row."""
    count = first.count(separator)
    for line, comment in rows.comments.items():
        is_like_row = separator != BLANKS and comment.count(separator) == count > 0
        if is_like_row and line > rows.numbers[0]:
            raise DamagedInput(
                f"{rows.name}, line {line}: a comment with as many cells as a row.",
                found=comment[:80],
                steps="quote its first cell if it is a row, or remove the line",
            )


def _refuse_other_formats(rows: Rows, sample: Sequence[str]) -> None:
    """Refuse lists of neighbours and other texts of graphs whose cells are separated by blanks."""
    if not _IN_BLANKS.fullmatch(sample[0]):
        return
    characters = np.frombuffer(rows.data, np.uint8)
    is_blank = np.isin(np.arange(256), list(b" \t\n"))[characters]
    cells = int(np.count_nonzero(is_blank[1:] & ~is_blank[:-1]))
    count = int(np.count_nonzero(characters == ord("\n")))
    found = line_format(sample, cells, count, [*rows.comments.values()], rows.name)
    if found:
        raise NoTable(
            f"{rows.name} may be {found}, which is no table of edges.",
            steps=REMEDIES[found].format(file=rows.name),
        )


def _cells_of_comment(rows: Rows, separator: str, width: int) -> list[str]:
    """Return the cells of the last comment above the rows with one for each column; empty if none has."""
    above = [comment for line, comment in rows.comments.items() if line < rows.numbers[0]]
    for comment in reversed(above):
        line = comment.lstrip("#%/ \t")
        for cells in (line.split(separator), line.split()):
            if len(cells) == width:
                return [cell.strip().strip("\"'") for cell in cells]
    return []


def _read_edge_dictionaries(rows: Rows, options: ReadOptions, notices: Notices) -> Table:
    """Return the table of edges whose attributes are a dictionary."""
    options.check_memory(_BYTES_IN_PYTHON * len(rows.data), rows.name)
    edges = []
    for number, line in zip(rows.numbers, rows.data[:].decode().split("\n")[:-1], strict=False):
        try:
            source, target, text = _WITH_DICTIONARY.fullmatch(line).groups()  # type: ignore[union-attr]
            edge = {"source": source, "target": target}
            attributes = dict(literal_eval(text))
        except (
            AttributeError,
            MemoryError,
            RecursionError,
            SyntaxError,
            TypeError,
            ValueError,
        ) as error:
            raise DamagedInput(
                f"{rows.name}, line {number}: no edge as networkx.write_edgelist writes it.",
                found=line[:80],
                steps="write it again: networkx.write_edgelist(graph, 'edges.txt')",
            ) from error
        if not edge.keys().isdisjoint(attributes):
            raise DamagedInput(
                f"{rows.name}, line {number}: an attribute is called source or target, as an end is.",
                found=line[:80],
                steps="rename the attribute in networkx, and write the file again",
            )
        edges.append(edge | attributes)
    lines = rows.numbers.start if isinstance(rows.numbers, range) else np.asarray(rows.numbers)
    return table_of_rows(rows.name, edges, options, notices.ignored, lines=lines)
