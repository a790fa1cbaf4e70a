"""Delimited text as a table of texts: its encoding, comments, separator and cells."""

from __future__ import annotations

import codecs
import csv
import mmap
import re
import statistics
import sys
import tempfile
from ast import literal_eval
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv
from pyarrow import ipc

from kmip_data.arrays import I64
from kmip_data.errors import DamagedInput
from kmip_data.pipelines.datasets.graphs.findings import Notices
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.formats.graph_texts.line_formats import REMEDIES, line_format
from kmip_data.pipelines.formats.text import decode_text
from kmip_data.pipelines.own.headers import NoTable, TopRow
from kmip_data.pipelines.own.table import Table, table_of_rows
from kmip_data.text import count_with_noun

BLANKS = " "  #: separator: any number of blanks and tabs
SEPARATORS = ("\t", ";", ",", "|", BLANKS)  #: in order of preference
SAMPLED_LINES = 100  #: first lines, which determine the separator
MAX_COLUMNS = 65_536
_NO_SEPARATOR = "\x1f"  #: separator of a text with one column
_BLOCK_BYTES = 2**22  #: bytes that are parsed at once, and the length of the longest row
#: Peak memory of a byte, measured with 10⁶ edges: of UTF-8 that is mapped, of a copy, and of texts in Python.
_BYTES_READ, _BYTES_DECODED, _BYTES_IN_PYTHON = 3, 5, 25
_BYTES_PER_CELL = 16  #: of an id or a number, once it is read
_HEAD_BYTES = 2**16  #: first bytes, in which cells are counted
_SEPARATOR_LINE = re.compile(rb'"?sep=(.)"?\n', re.IGNORECASE)  #: first line that Excel writes
_COMMENT_OR_BLANK = re.compile(rb"^[ \t]*(?:(?:[#%]|//)[^\n]*)?\n", re.MULTILINE)
_MAY_BEGIN_COMMENT = np.isin(np.arange(256), list(b"#%/ \t\n"))
_IN_BLANKS = re.compile(r"[^\t;,|]+ [^\t;,|]+|(?i:dl)")  #: row of several cells, or a format's name
#: Edge as ``networkx.write_edgelist`` writes it.
_WITH_DICTIONARY = re.compile(r"(\S+)[ \t]+(\S+)[ \t]+(\{.*\})\s*")
_NUMBER = re.compile(r"[+-]?\d+(?:[.,]\d+)?(?:[eE][+-]?\d+)?")

Buffer = bytes | mmap.mmap
Quoting = Literal[
    0, 3
]  #: ``csv.QUOTE_MINIMAL``, or ``csv.QUOTE_NONE`` if quotes are characters like others
Cells = tuple[list[pa.Array], Sequence[int] | I64]  #: columns, and the number of each row's line


@dataclass(frozen=True)
class Rows:
    """Lines of a text that are rows, as UTF-8 that ends with a line break."""

    name: str  #: name of the file, for messages
    data: Buffer
    numbers: Sequence[int] | I64  #: number of each line in the file
    comments: Mapping[int, str]  #: number of a line that is left out -> its comment

    def sample(self) -> list[str]:
        """Return the first lines."""
        end = 0
        for _ in range(SAMPLED_LINES):
            end = self.data.find(b"\n", end) + 1 or end
        return self.data[:end].decode("utf-8", "replace").split("\n")[:-1]


def read_text(
    path: Path, name: str, options: ReadOptions, notices: Notices
) -> Sequence[Table | TopRow]:
    """Return the table of a text, whose first row may have the names of its columns.

    Raises ``NoTable`` if it is none, and ``DamagedInput`` with the line for another number of cells
    than in the first row, or an open quote.
    """
    rows, separator = _read_rows(path, name, options)
    sample = rows.sample()
    if not sample:
        raise NoTable(f"{name} has no row.", steps="write a table into it")
    if all(map(_WITH_DICTIONARY.fullmatch, sample)):
        return [_read_edge_dictionaries(rows, options, notices)]
    _refuse_other_formats(rows, sample)
    separator = separator or _find_separator(sample, name)
    _refuse_rows_like_comments(rows, separator, sample[0])
    if rows.comments:
        example = next(iter(rows.comments.values()))[:40]
        lines = count_with_noun(len(rows.comments), "line")
        notices.ignored[f"comments in {name}"] = f"{lines}, such as {example!r}"

    if sample[0].count(separator) >= MAX_COLUMNS:
        raise DamagedInput(f"{name} has more than {MAX_COLUMNS:,} columns.")
    is_csv = _quote_whole_cells(rows.data, separator)
    quoting: Quoting = csv.QUOTE_NONE if separator == "\t" and not is_csv else csv.QUOTE_MINIMAL
    cells = (
        _read_with_arrow(rows, separator, quoting, options.workdir) if is_csv or quoting else None
    )
    if cells is None:
        options.check_memory(_BYTES_IN_PYTHON * len(rows.data), name)
        cells = _read_with_python(rows, separator, quoting)
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
        separator=separator.strip(_NO_SEPARATOR),
    )
    below = replace(
        table,
        columns={key: column[1:] for key, column in table.columns.items()},
        lines=table.lines + 1 if isinstance(table.lines, int) else table.lines[1:],
    )
    first = [column[0].as_py() or "" for column in columns]
    comment = _cells_of_comment(rows, separator, len(columns))
    return [TopRow(first, below, lambda: table, comment)]


# 1. The lines that are rows.
def _read_rows(path: Path, name: str, options: ReadOptions) -> tuple[Rows, str]:
    """Return the rows of a file, and the separator that its first line may name."""
    size = path.stat().st_size
    if not size:
        raise NoTable(f"{name} is empty.", steps="write a table into it")
    data: Buffer
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    head = data[:_HEAD_BYTES]
    separators = max(head.count(mark.encode()) for mark in SEPARATORS)
    cells = size * (head.count(b"\n") + separators) // len(head)
    options.check_memory(_BYTES_READ * size + _BYTES_PER_CELL * cells, name)
    is_utf16 = data[:2] in {codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE}
    if data[:1] == b"<" or (b"\0" in data[:4096] and not is_utf16):
        raise NoTable(f"{name} is no delimited text.", steps="leave it out")
    if not _is_utf8_with_lf(data):
        options.check_memory(_BYTES_DECODED * size, name)
        data = decode_text(data[:], name, options.params.encoding).encode()
    if data[-1:] != b"\n":
        data = data[:] + b"\n"
    separator = ""
    first = 1
    if match := _SEPARATOR_LINE.match(data):
        separator = match[1].decode("latin-1")
        data = data[match.end() :]
        first = 2
    characters = np.frombuffer(data, np.uint8)
    beginnings = characters[1:][characters[:-1] == ord("\n")]
    if _MAY_BEGIN_COMMENT[characters[:1]].any() or _MAY_BEGIN_COMMENT[beginnings].any():
        options.check_memory(_BYTES_DECODED * size, name)
        return _without_comments(name, data[:], first), separator
    return Rows(name, data, range(first, sys.maxsize), {}), separator


def _is_utf8_with_lf(data: Buffer) -> bool:
    ends = pa.py_buffer(np.array([0, len(data)]))
    text = pa.LargeStringArray.from_buffers(1, ends, pa.py_buffer(data))
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return data.find(b"\r") < 0 and data[:3] != codecs.BOM_UTF8


def _without_comments(name: str, data: bytes, first: int) -> Rows:
    """Return the lines that are neither blank nor a comment; inside quotes, a line is part of a cell."""
    pieces: list[bytes] = []
    removed: list[int] = []
    comments: dict[int, str] = {}
    start = 0
    line = 0
    quotes = 0
    for match in _COMMENT_OR_BLANK.finditer(data):
        piece = data[start : match.start()]
        pieces.append(piece)
        quotes += piece.count(b'"')
        line += piece.count(b"\n")
        start = match.start()
        if quotes % 2 == 0:
            if comment := match[0].decode().strip():
                comments[first + line] = comment
            removed.append(line)
            line += 1
            start = match.end()
    rest = data[start:]
    pieces.append(rest)
    numbers = np.arange(first, first + line + rest.count(b"\n"))
    return Rows(name, b"".join(pieces), np.delete(numbers, removed), comments)


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
    """Return the cells of the last comment above the rows; empty if it has not one for each column."""
    above = [comment for line, comment in rows.comments.items() if line < rows.numbers[0]]
    line = above[-1].lstrip("#%/ \t") if above else ""
    for cells in (line.split(separator), line.split()):
        if len(cells) == width:
            return [cell.strip().strip("\"'") for cell in cells]
    return []


# 2. The separator.
def _find_separator(lines: Sequence[str], name: str) -> str:
    """Return the separator that splits all rows into one number of cells.

    Of several, it is the first. Blanks are before commas if all cells between them are numbers, such
    as ``1,5 2,5``, and a text whose first line is one cell has one column.
    """
    widths: dict[str, list[int]] = {}
    fitting: dict[str, list[list[str]]] = {}
    layouts: list[tuple[str, Quoting]] = [
        (separator, csv.QUOTE_MINIMAL) for separator in SEPARATORS
    ]
    for separator, quoting in [*layouts, ("\t", csv.QUOTE_NONE)]:
        try:
            rows = [record for record, _ in _records(lines, separator, quoting)]
        except csv.Error:
            widths[separator] = [line.count(separator) + 1 for line in lines]
            continue
        if len(lines) == SAMPLED_LINES:
            del rows[-1:]  # a quoted cell may continue
        widths[separator] = [*map(len, rows)]
        if len(rows[0]) > 1 and not any(_is_ragged(row, rows[0]) for row in rows):
            fitting[separator] = rows
    below = [cell for row in fitting.get(BLANKS, [])[1:] for cell in row]
    if [*fitting] == [",", BLANKS] and below and all(map(_NUMBER.fullmatch, below)):
        return BLANKS
    if {"\t", BLANKS} <= fitting.keys() and {*map(len, fitting["\t"])} == {2}:
        weights = all(_NUMBER.fullmatch(row[1]) for row in fitting["\t"])
        if weights and len(fitting[BLANKS][0]) > 2:
            raise DamagedInput(
                f"{name}: a number behind a tab, and several cells with blanks between them before it.",
                found=lines[0][:80],
                steps="replace the blanks by tabs, or those of a name by another character",
            )
    for separator in SEPARATORS:
        if separator in fitting:
            return separator

    if all(counts[0] == 1 for counts in widths.values()):
        return _NO_SEPARATOR
    regular = {}
    for separator, counts in widths.items():
        width = statistics.mode(counts)
        regular[separator] = counts.count(width) if width > 1 else 0
    best = max(regular, key=regular.__getitem__)
    if 2 * regular[best] < len(lines):
        raise NoTable(
            f"{name}: its lines have different numbers of cells, whatever separates them.",
            found=lines[0][:80],
            steps="separate the cells of each line by tabs, semicolons, commas or blanks",
        )
    return best


def _records(
    lines: Iterable[str], separator: str, quoting: Quoting
) -> Iterator[tuple[list[str], int]]:
    """Yield the cells of each row, and the number of lines up to its end."""
    if separator == BLANKS:
        lines = (line.replace("\t", BLANKS).strip(BLANKS) for line in lines)
    reader = csv.reader(
        (f"{line}\n" for line in lines),
        delimiter=separator,
        quoting=quoting,
        skipinitialspace=True,
        strict=True,
    )
    limit = csv.field_size_limit(sys.maxsize)
    try:
        for record in reader:
            yield record, reader.line_num
    finally:
        csv.field_size_limit(limit)


def _is_ragged(row: Sequence[str], first: Sequence[str]) -> bool:
    """True if a row has more or fewer cells than the first; empty cells at the end do not count."""
    return any(row[len(first) :]) or any(first[len(row) :])


# 3. The cells.
def _read_edge_dictionaries(rows: Rows, options: ReadOptions, notices: Notices) -> Table:
    """Return the table of edges whose attributes are a dictionary."""
    options.check_memory(_BYTES_IN_PYTHON * len(rows.data), rows.name)
    edges = []
    for number, line in zip(rows.numbers, rows.data[:].decode().split("\n")[:-1], strict=False):
        try:
            source, target, attributes = _WITH_DICTIONARY.fullmatch(line).groups()  # type: ignore[union-attr]
            edges.append({"source": source, "target": target, **literal_eval(attributes)})
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
    lines = rows.numbers.start if isinstance(rows.numbers, range) else np.asarray(rows.numbers)
    return table_of_rows(rows.name, edges, options, notices.ignored, lines=lines)


def _read_with_arrow(
    rows: Rows, separator: str, quoting: Quoting, folder: Path | None = None
) -> Cells | None:
    """Return the cells of rows whose quotes are as in CSV; None for what only ``csv`` reads."""
    data = rows.data
    runs = (b"  ", b"\t", b" \n", b"\n ")
    if separator == BLANKS and (any(data.find(run) >= 0 for run in runs) or data[:1] == b" "):
        return None
    has_quotes = quoting == csv.QUOTE_MINIMAL and data.find(b'"') >= 0
    try:
        first, _ = next(_records(rows.sample(), separator, quoting))
        names = [*map(str, range(len(first)))]
        table = arrow_csv.read_csv(
            pa.BufferReader(pa.py_buffer(data)),
            arrow_csv.ReadOptions(column_names=names, block_size=_BLOCK_BYTES),
            arrow_csv.ParseOptions(
                delimiter=separator,
                quote_char='"' if has_quotes else False,
                newlines_in_values=has_quotes,
                ignore_empty_lines=False,
            ),
            arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                strings_can_be_null=True,
                null_values=[""],
            ),
        )
    except (pa.ArrowInvalid, csv.Error):  # another number of cells, or a row longer than a block
        return None
    if has_quotes and table.num_rows != np.count_nonzero(
        np.frombuffer(data, np.uint8) == ord("\n")
    ):
        return None
    has_blanks = any(data.find(blank) >= 0 for blank in (b" ", b"\t"))
    columns = table.columns
    del table  # so that the parts of a column are freed once they are joined
    for i, column in enumerate(columns):
        texts = column.combine_chunks()
        if has_blanks:
            texts = pc.utf8_trim_whitespace(texts)
            texts = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
        columns[i] = _paged(texts, folder)
        del column, texts
    pa.default_memory_pool().release_unused()
    return columns, rows.numbers


def _paged(column: pa.Array, folder: Path | None) -> pa.Array:
    """Return a column in a mapped file, which the system can write out; the file has no name."""
    if folder is None:
        return column
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        batch = pa.record_batch([column], ["0"])
        with ipc.new_file(file.name, batch.schema) as writer:
            writer.write_batch(batch)
        return ipc.open_file(pa.memory_map(file.name)).get_batch(0).column(0)


def _quote_whole_cells(data: Buffer, separator: str) -> bool:
    """True if each quote opens or closes a cell, or is doubled inside of one, as in CSV."""
    characters = np.frombuffer(data, np.uint8)
    quotes = np.flatnonzero(characters == ord('"')) if data.find(b'"') >= 0 else characters[:0]
    if len(quotes) % 2:
        return False
    around = np.isin(np.arange(256), [*separator.encode(), *b'\n"'])
    before = characters[quotes[::2] - 1]  # the last character, a line break, is before the first
    return bool(around[before].all() and around[characters[quotes[1::2] + 1]].all())


def _read_with_python(rows: Rows, separator: str, quoting: Quoting) -> Cells:
    """Return the cells of rows; raise ``DamagedInput`` for a fault."""
    records: list[list[str]] = []
    lines = [0]
    try:
        for record, line in _records(rows.data[:].decode().split("\n")[:-1], separator, quoting):
            records.append(record)
            lines.append(line)
    except csv.Error as error:
        raise DamagedInput(
            f"{rows.name}, line {rows.numbers[lines[-1]]}: a quote does not end where its cell ends.",
            found=str(error),
            steps='close the quote ("), double it inside of a quoted cell, or leave it out',
        ) from error

    first = records[0]
    numbers = [rows.numbers[line] for line in lines[:-1]]
    for number, record in zip(numbers, records, strict=True):
        if _is_ragged(record, first):
            fields = count_with_noun(len(record), "field")
            raise DamagedInput(
                f"{rows.name}, line {number}: {fields}, and {len(first):,} in the first line.",
                steps="repair this line, quote a cell with the separator, or name each column",
            )
        record[:] = (record + [""] * len(first))[: len(first)]
    columns = [
        pa.array([cell.strip() or None for cell in column], pa.string())
        for column in zip(*records, strict=True)
    ]
    return columns, numbers
