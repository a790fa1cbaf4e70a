"""Text tables in any common layout: separator, column names and comments are detected."""

from __future__ import annotations

import ast
import contextlib
import csv
import functools
import gzip
import io
import itertools
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from kmip_data.arrays import I64
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.pipelines.datasets.graphs.findings import Notices
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import OTHER_FORMATS_REMEDY
from kmip_data.pipelines.datasets.graphs.tables import known_columns
from kmip_data.pipelines.datasets.graphs.tables.header import first_line_has_names, names_in_comment
from kmip_data.pipelines.datasets.graphs.tables.table import UNNAMED_PREFIX, Table
from kmip_data.pipelines.formats.file_heads import is_gzip
from kmip_data.pipelines.formats.text import decode_text, strip_separator_lines
from kmip_data.text import count_with_noun

MAX_COLUMNS = 65_536
_SAMPLED_LINES = 100  #: lines sampled to detect the separator
_BLOCK_BYTES = 2**20
_BYTES_PER_FIELD = 48  #: memory that pandas takes in addition to twice the text
_SKIPPED = re.compile(r"^[ \t]*(?:[#%].*)?(?:\n|\Z)", re.MULTILINE)  #: comments and blank lines
_COMMENT_OR_BLANK = "#% \t\n"  #: first characters of the lines above
_BLANKS = re.compile(r"[ \t]+")
_LINE_MARGINS = re.compile(r"^ | $", re.MULTILINE)
#: A line of networkx.write_edgelist: two ids and a dictionary.
_WITH_DICTIONARY = re.compile(r"[ \t]*([^\s,;]+)[\s,;]+([^\s,;]+)[\s,;]+(\{.*\})[ \t]*")
#: Beginnings of integers that would change when parsed: 001, +1, -0.
_NONCANONICAL = re.compile(rb"[+0-](?<![\w.+-][+0-])(?:(?<=\+)|(?<=0)[0-9]|(?<=-)0(?!\.))")


class _DataLines(NamedTuple):
    """Lines of a text without comments and blank lines."""

    text: str
    lines_without_row: list[int]  #: numbers of the other lines, ascending, from 1
    comments: dict[int, str]  #: line number -> comment


def read_table(
    path: Path, level: str, options: ReadOptions, notices: Notices, *, is_only_table: bool = False
) -> Table:
    """Read a table whose rows are nodes, edges or graphs, as ``level`` says.

    Without a ``level``, the first line is data. If the file ``is_only_table``, the parameter
    ``header`` decides whether its first line has names.

    Raises ``DamagedInput`` for a truncated file, rows of different lengths, and a first line that
    may be names or data; ``OutOfResources`` if the memory limit is too low.
    """
    try:
        return _parse_table(path, level, options, notices, is_only_table=is_only_table)
    except UsageError:
        raise
    except (OSError, ValueError, EOFError, zlib.error, csv.Error) as error:
        if "out of memory" in str(error):  # pandas reports it as a parser error
            raise MemoryError(f"{path.name}: {error}") from error
        if not path.stat().st_size:
            raise DamagedInput(
                f"{path.name} is empty.",
                next="write its rows into it, or give another file with --archive",
            ) from error
        line = _line_of_open_quote(path, options.params.encoding)
        if line is not None:
            raise DamagedInput(
                f"{path.name}, line {line}: a quote is opened and never closed.",
                next=f'close the quote (") in line {line}, or leave it out',
            ) from error
        raise DamagedInput(
            f"{path.name} cannot be read as a table.",
            expected="UTF-8 text, or gzip of it, with the same number of fields in each line",
            found=" ".join(str(error).split())[:300],
            next=OTHER_FORMATS_REMEDY,
        ) from error


def _line_of_open_quote(path: Path, encoding: str) -> int | None:
    """Return the line, from 1, of a quote that is never closed; None if there is none."""
    with contextlib.suppress(OSError, ValueError, EOFError, UsageError):
        open_line = None
        for number, line in enumerate(_read_text_file(path, encoding).splitlines(), 1):
            if line.count('"') % 2:
                open_line = None if open_line else number
        return open_line
    return None


def _parse_table(
    path: Path, level: str, options: ReadOptions, notices: Notices, *, is_only_table: bool
) -> Table:
    """Detect the layout of a text, and parse its rows."""
    # 1. Rows without comments and blank lines, and their separator.
    may_have_codes = text_may_have_codes(path, options)
    text, lines_without_row, comments = _read_data_lines(path, options, notices)
    sample = list(itertools.islice(_split_lines(text), _SAMPLED_LINES))
    if not sample:
        raise ValueError("no line has a field")
    if level == "edge" and all(_WITH_DICTIONARY.fullmatch(line.rstrip("\n")) for line in sample):
        return _table_of_edge_dictionaries(path.name, text, lines_without_row)
    separator = detect_separator(sample)
    if separator == " ":
        text = _LINE_MARGINS.sub("", _BLANKS.sub(" ", text))
    first_row = _first_row(text)
    first_cells = [cell.strip() for cell in next(_split_cells([first_row], separator))]
    if level == "edge" and len(first_cells) < 2:
        raise DamagedInput(
            f"{path.name} has one column, and an edge has two ends.",
            found=first_cells[0][:80],
            next="separate the cells of each line by tabs, semicolons, commas or blanks",
        )

    # 2. The number of fields in each row: pandas would silently pad short rows.
    csv_options: dict[str, Any] = {
        "sep": separator,
        "header": None,
        "keep_default_na": False,
        "na_values": [""],
        "skipinitialspace": True,
        "low_memory": False,
    }
    field_counts = _count_fields(text, separator)
    if len(first_cells) > MAX_COLUMNS or field_counts.max() > MAX_COLUMNS:
        raise ValueError(f"{field_counts.max():,} columns, of at most {MAX_COLUMNS:,}")
    table = Table(
        path.name,
        pd.DataFrame(),
        1,
        lines_without_row=lines_without_row,
        csv_options=csv_options,
        may_have_codes=may_have_codes,
    )
    rest = text[len(first_row) :]
    parse_rest = functools.cache(lambda: _parse_rows(rest, csv_options))
    # R writes no name above its row names, so its first line is one field shorter.
    is_shorter = len(field_counts) > 1 and bool((field_counts[1:] == field_counts[0] + 1).all())
    has_row_names = is_shorter and _has_row_names(parse_rest())
    if not has_row_names:
        _check_field_counts(field_counts, table)

    # 3. Column names: in the comment above the rows, in the first line, or nowhere.
    comments_above = [
        comments[line] for line in comments if lines_without_row[line - 1 : line] == [line]
    ]
    names = names_in_comment(comments_above[-1] if comments_above else "", separator, first_cells)
    numbers = [str(number) for number in range(len(first_cells))]
    has_names = True
    is_header = has_row_names
    if not level:
        names = numbers
    elif has_row_names:
        names = ["", *first_cells]
    elif names is None:
        is_header = has_names = first_line_has_names(
            first_cells, parse_rest, table, level, options.params, is_only_table=is_only_table
        )
        names = first_cells if has_names else numbers
    names = [name or f"{UNNAMED_PREFIX}{number}" for number, name in enumerate(names)]
    duplicates = [name for name, count in Counter(names).items() if count > 1]
    if duplicates:
        raise DamagedInput(
            f"{path.name} has two columns called {duplicates[0]!r}.",
            found=", ".join(names)[:500],
            next="rename one of them in the first line",
        )

    # 4. Columns with the dtypes of pandas.
    if is_header:
        text = rest
    frame = parse_rest() if is_header else _parse_rows(text, csv_options)
    frame = frame.set_axis(names, axis=1) if len(frame.columns) else pd.DataFrame(columns=names)
    return replace(table, frame=frame, first_number=1 + is_header, has_names=has_names, text=text)


def _check_field_counts(field_counts: I64, table: Table) -> None:
    """Refuse rows with another number of fields, (R,), than the first line."""
    differs = field_counts != field_counts[0]
    if not differs.any():
        return
    first = field_counts[0]
    if len(field_counts) > 2 and (field_counts[1:] == field_counts[1]).all():
        fields = count_with_noun(int(first), "field")
        problem = f"{fields}, and {field_counts[1]:,} in all lines below it"
        raise table.error_at(0, problem, "give each column a name in this line")
    row = int(differs.argmax())
    fields = count_with_noun(int(field_counts[row]), "field")
    problem = f"{fields}, and {first:,} in the first line"
    raise table.error_at(row, problem, "repair this line, or quote a cell with the separator")


def _read_data_lines(path: Path, options: ReadOptions, notices: Notices) -> _DataLines:
    """Read the lines with data of a file; note the lines that are left out."""
    text, empty = strip_separator_lines(_read_text_file(path, options.params.encoding))
    if empty:
        notices.ignored[f"end of {path.name}"] = f"{count_with_noun(empty, 'line')} without a value"
    lines = _remove_comments(text)
    example = next(iter(lines.comments.values()), "")
    if example:
        count = count_with_noun(len(lines.comments), "line")
        notices.ignored[f"comments in {path.name}"] = f"{count}, such as {example[:40]!r}"
    return lines


def _first_row(text: str) -> str:
    """Return the first line, and the lines over which a quoted cell of it continues."""
    row = ""
    for line in _split_lines(text):
        row += line
        if row.count('"') % 2 == 0:
            break
    return row


def _parse_rows(text: str, csv_options: Mapping[str, Any]) -> pd.DataFrame:
    """Parse rows into columns numbered from 0."""
    # Parse bytes: a stream of text takes four times the memory.
    return pd.read_csv(io.BytesIO(text.encode()), **csv_options) if text else pd.DataFrame()


def _has_row_names(body: pd.DataFrame) -> bool:
    """True if the first column has distinct strings, or counts from 1, like row names of R."""
    values = body[0]
    if values.dtype.kind == "O":
        return values.is_unique
    return values.dtype.kind in "iu" and bool((values == np.arange(len(values)) + 1).all())


def text_may_have_codes(path: Path, options: ReadOptions) -> bool:
    """Check the memory for a text; return True if it may have codes such as 001."""
    open_file = gzip.open if is_gzip(path) else open
    size = 0
    fields = 0
    may_have_codes = False
    end = b"\n"
    with open_file(path, "rb") as file:
        while block := file.read(_BLOCK_BYTES):
            size += len(block)
            fields += len(block) - len(block.translate(None, b"\t;, \n\r"))
            options.check_memory(2 * size + _BYTES_PER_FIELD * fields, path.name)
            # Include the previous characters: a block may begin inside 100.
            may_have_codes = may_have_codes or _NONCANONICAL.search(end + block, 1) is not None
            end = block[-4:]
    return may_have_codes


def _read_text_file(path: Path, encoding: str) -> str:
    """Return the text of a file, which may be gzipped."""
    open_file = gzip.open if is_gzip(path) else open
    with open_file(path, "rb") as file:
        return decode_text(file.read(), path.name, encoding)


def _remove_comments(text: str) -> _DataLines:
    """Remove comments and blank lines, except inside quoted cells."""
    pieces: list[str] = []
    lines_without_row: list[int] = []
    comments: dict[int, str] = {}
    if text[:1] not in _COMMENT_OR_BLANK and not any(
        f"\n{mark}" in text for mark in _COMMENT_OR_BLANK
    ):
        return _DataLines(text, lines_without_row, comments)
    start = 0
    line = 1
    quotes = 0
    for match in _SKIPPED.finditer(text):
        if match.end() == match.start():
            continue
        piece = text[start : match.start()]
        quotes += piece.count('"')
        line += piece.count("\n")
        pieces.append(piece)
        start = match.start()
        # Inside quotes, the line is part of a cell.
        if quotes % 2:
            continue
        if comment := match.group().strip():
            comments[line] = comment
        lines_without_row.append(line)
        line += 1
        start = match.end()
    pieces.append(text[start:])
    return _DataLines("".join(pieces), lines_without_row, comments)


def _split_lines(text: str) -> Iterator[str]:
    """Yield the lines of a text, each with its LF."""
    start = 0
    while start < len(text):
        end = text.find("\n", start) + 1 or len(text)
        yield text[start:end]
        start = end


def detect_separator(lines: Sequence[str]) -> str:
    """Return the first of tab, ``;``, ``,`` and blank that splits all lines into equally many fields.

    A single column of ids has no separator, and its ids may have blanks.
    """
    if known_columns.normalized_name(lines[0]) in known_columns.NODE_ID_NAMES:
        return ","
    with_row_names = []  # separators that split all lines but the first into one more field
    for separator in "\t;, ":
        if separator == " ":
            lines = [_BLANKS.sub(" ", line.strip()) for line in lines]
        first, *others = [len(row) for row in _split_cells(lines, separator, strict=False)]
        if len(lines) == _SAMPLED_LINES:
            others = others[:-1]  # a quoted cell may continue after the sample
        if first > 1 and set(others) <= {first}:
            return separator
        if first > 0 and set(others) == {first + 1}:
            with_row_names.append(separator)
    if with_row_names:
        return with_row_names[0]
    return next((separator for separator in "\t;," if separator in lines[0]), " ")


def _split_cells(
    lines: Iterable[str], separator: str, *, strict: bool = True
) -> Iterator[list[str]]:
    """Yield the cells of each row; a quoted cell may contain line breaks."""
    lines = iter(lines)
    for line in lines:
        if '"' in line:
            rest = itertools.chain([line], lines)
            yield next(csv.reader(rest, delimiter=separator, skipinitialspace=True, strict=strict))
        else:
            yield line.rstrip("\n").split(separator)


def _count_fields(text: str, separator: str) -> I64:
    """Return the number of fields of each row."""
    if '"' in text:
        return np.fromiter(map(len, _split_cells(_split_lines(text), separator)), np.int64)
    data = np.frombuffer(text.encode(), np.uint8)
    separators = np.flatnonzero(data == ord(separator))
    ends = np.flatnonzero(data == ord("\n"))
    if not text.endswith("\n"):
        ends = np.append(ends, len(data))
    return np.diff(np.searchsorted(separators, ends), prepend=0) + 1


def _table_of_edge_dictionaries(name: str, text: str, lines_without_row: Sequence[int]) -> Table:
    """Read lines of networkx.write_edgelist: two ids, and a dictionary of attributes."""
    table = Table(name, pd.DataFrame(), 1, lines_without_row=lines_without_row)
    rows = []
    for number, line in enumerate(text.splitlines()):
        match = _WITH_DICTIONARY.fullmatch(line)
        try:
            source, target, attributes = match.groups() if match else ("", "", "")
            data = ast.literal_eval(attributes)
            rows.append(
                {**data, known_columns.SOURCE_KEY: source, known_columns.TARGET_KEY: target}
            )
        except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError) as error:
            raise table.error_at(
                number, "not two ids and a dictionary, as networkx.write_edgelist writes it"
            ) from error
    frame = pd.DataFrame(rows)
    for end in (known_columns.SOURCE_KEY, known_columns.TARGET_KEY):
        if frame[end].str.fullmatch(r"0|-?[1-9][0-9]{0,17}").all():
            frame[end] = frame[end].astype("int64")
    return replace(table, frame=frame)
