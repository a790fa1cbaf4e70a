"""Tables of nodes, edges and graphs from delimited text: names of columns, rows and faults by line."""

from __future__ import annotations

import ast
import contextlib
import csv
import functools
import gzip
import re
import zlib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from kmip_data.arrays import I64
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.pipelines import known_names
from kmip_data.pipelines.datasets.graphs.findings import Notices
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import OTHER_FORMATS_REMEDY
from kmip_data.pipelines.datasets.graphs.tables import known_columns
from kmip_data.pipelines.datasets.graphs.tables.column_names import are_names, first_line_has_names
from kmip_data.pipelines.datasets.graphs.tables.table import Table, is_row_index
from kmip_data.pipelines.formats.delimited import (
    DelimitedText,
    Text,
    count_cells,
    guess_separator,
    read_delimited,
    split_rows,
)
from kmip_data.pipelines.formats.file_heads import is_gzip
from kmip_data.pipelines.formats.header_line import UNNAMED_PREFIX, rows_of_names
from kmip_data.pipelines.formats.text import decode_text
from kmip_data.pipelines.formats.typed_rows import parse_rows
from kmip_data.text import count_with_noun, list_names

MAX_COLUMNS = 65_536
_BLOCK_BYTES = 2**20
_BYTES_PER_FIELD = 16  #: memory that a field takes as a number, with its copies
#: Size of a file from which it is mapped, unless it is compressed.
_MIN_MAPPED_BYTES = 2**24
#: A line of networkx.write_edgelist: two ids and a dictionary.
_WITH_DICTIONARY = re.compile(r"[ \t]*([^\s,;]+)[\s,;]+([^\s,;]+)[\s,;]+(\{.*\})[ \t]*")
#: Characters that are inside a number or word if they precede a digit or sign.
_IS_INNER = np.isin(
    np.arange(256), list(b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_.+-")
)


def read_table(
    path: Path,
    level: str,
    options: ReadOptions,
    notices: Notices,
    *,
    is_only_table: bool = False,
    may_have_names: bool = True,
) -> Table:
    """Read a table whose rows are nodes, edges or graphs, as ``level`` says; empty if unknown.

    The first line is data unless it ``may_have_names``. If the file ``is_only_table``, the parameter
    ``header`` decides whether its first line has names.

    Raises ``DamagedInput`` for a truncated file, rows of different lengths, and a first line that
    may be names or data; ``OutOfResources`` if the memory limit is too low.
    """
    try:
        data, may_have_codes = read_text_file(path, options)
        text = read_delimited(data, path.name, options.params.encoding)
        del data
        _note_other_lines(text, path.name, notices)
        table = Table(
            path.name,
            pd.DataFrame(),
            1,
            lines_without_row=text.lines_without_row,
            may_have_codes=may_have_codes,
        )
        return _parse_table(
            table,
            text,
            level,
            options,
            is_only_table=is_only_table,
            may_have_names=may_have_names,
        )
    except UsageError:
        raise
    except (OSError, ValueError, EOFError, zlib.error, csv.Error) as error:
        if "out of memory" in str(error):  # pandas reports it as a parser error
            raise MemoryError(f"{path.name}: {error}") from error
        raise _unreadable_error(path, options.params.encoding, error) from error


def _unreadable_error(path: Path, encoding: str, error: Exception) -> DamagedInput:
    """Return the error for a text that is empty, has an open quote or cannot be parsed."""
    if not path.stat().st_size:
        return DamagedInput(
            f"{path.name} is empty.",
            steps="write its rows into it, or use another file",
        )
    line = _line_of_open_quote(path, encoding)
    if line is not None:
        return DamagedInput(
            f"{path.name}, line {line}: a quote is opened and never closed.",
            steps=f'close the quote (") in line {line}, or leave it out',
        )
    return DamagedInput(
        f"{path.name} cannot be read as a table.",
        expected="UTF-8 text, or gzip of it, with the same number of fields in each line",
        found=" ".join(str(error).split())[:300],
        steps=OTHER_FORMATS_REMEDY,
    )


def _line_of_open_quote(path: Path, encoding: str) -> int | None:
    """Return the line, from 1, of a quote that is never closed; None if there is none."""
    open_file = gzip.open if is_gzip(path) else open
    with contextlib.suppress(OSError, ValueError, EOFError, UsageError):
        with open_file(path, "rb") as file:
            text = decode_text(file.read(), path.name, encoding)
        open_line = None
        for number, line in enumerate(text.splitlines(), 1):
            if line.count('"') % 2:
                open_line = None if open_line else number
        return open_line
    return None


def read_text_file(path: Path, options: ReadOptions) -> tuple[Text, bool]:
    """Return the bytes of a file, which may be gzipped, and whether it may have codes such as 001.

    A large file is mapped. The memory that it needs is checked block by block.
    """
    is_compressed = is_gzip(path)
    is_mapped = not is_compressed and path.stat().st_size >= _MIN_MAPPED_BYTES
    blocks: list[bytes] = []
    size = 0
    fields = 0
    may_have_codes = False
    end = b"\n"
    with gzip.open(path) if is_compressed else path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            # Include the previous characters: a block may begin inside 100.
            may_have_codes = may_have_codes or _has_noncanonical_integer(end + block)
            end = (end + block)[-3:]
            fields += len(block) - len(block.translate(None, b"\t;, \n\r"))
            if not is_mapped:
                size += len(block)
                blocks.append(block)
            options.check_memory(2 * size + _BYTES_PER_FIELD * fields, path.name)
    if is_mapped:
        return np.memmap(path, np.uint8, "r").data, may_have_codes
    return b"".join(blocks), may_have_codes


def _has_noncanonical_integer(text: bytes) -> bool:
    """True if a cell behind the first character may begin like 001, +1 or -0, unlike -0.5."""
    characters = np.frombuffer(text + b"\n\n", np.uint8)
    first = characters[1:-2]
    second = characters[2:-1]
    begins_code = (first == ord("0")) & (second - ord("0") < 10)
    # Most tables have no signs.
    if b"+" in text:
        begins_code |= first == ord("+")
    if b"-" in text:
        begins_code |= (first == ord("-")) & (second == ord("0")) & (characters[3:] != ord("."))
    before = characters[:-3].compress(begins_code)
    return not _IS_INNER[before].all()


def _note_other_lines(text: DelimitedText, name: str, notices: Notices) -> None:
    """Note the lines that are left out."""
    if text.stripped_lines:
        count = count_with_noun(text.stripped_lines, "line")
        notices.ignored[f"end of {name}"] = f"{count} without a value"
    if text.comments:
        example = next(iter(text.comments.values()))
        count = count_with_noun(len(text.comments), "line")
        notices.ignored[f"comments in {name}"] = f"{count}, such as {example[:40]!r}"


def _parse_table(
    table: Table,
    text: DelimitedText,
    level: str,
    options: ReadOptions,
    *,
    is_only_table: bool,
    may_have_names: bool,
) -> Table:
    """Detect the layout of a text, and parse its rows."""
    # 1. The separator; a single column of ids has none, and its ids may have blanks.
    rows = text.sample_rows()
    if not rows:
        raise ValueError("no line has a field")
    if level == "edge" and all(map(_WITH_DICTIONARY.fullmatch, rows)):
        return _table_of_edge_dictionaries(table, bytes(text.data).decode())
    separator = text.separator or guess_separator(rows)
    if known_columns.normalized_name(rows[0]) in known_names.NODE_ID_NAMES:
        separator = ","
    first_row = text.first_row()
    first_cells = next(split_rows(first_row.decode().splitlines(keepends=True), separator))
    if level == "edge" and len(first_cells) < 2:
        raise DamagedInput(
            f"{table.name} has one column, and an edge has two ends.",
            found=first_cells[0][:80],
            steps="separate the cells of each line by tabs, semicolons, commas or blanks",
        )

    # 2. The number of fields in each row: pandas would silently pad short rows.
    widths = count_cells(text.data, separator)
    if len(first_cells) > MAX_COLUMNS or widths.max() > MAX_COLUMNS:
        raise ValueError(f"{widths.max():,} columns, of at most {MAX_COLUMNS:,}")
    table = replace(table, separator=separator)
    rest = text.data[len(first_row) :]
    check_memory = functools.partial(options.check_memory, purpose=table.name)
    parse = functools.partial(
        parse_rows, separator=separator, folder=options.workdir, check_memory=check_memory
    )
    parse_rest = functools.cache(lambda: parse(rest))
    # R writes no name above its row names, so its first line is one field shorter.
    is_shorter = len(widths) > 1 and bool((widths[1:] == widths[0] + 1).all())
    has_row_names = is_shorter and _has_row_names(parse_rest())
    if not has_row_names:
        _check_widths(widths, table)
    del widths

    # 3. Column names: in the comment above the rows, in the first line, or nowhere.
    numbers = [str(number) for number in range(len(first_cells))]
    comments = rows_of_names(text.comments_above()[-1:], separator, len(first_cells))
    are_names_of_rows = functools.partial(are_names, first_cells, separator, parse_rest)
    names = next(filter(are_names_of_rows, comments), None)
    has_names = True
    is_header = has_row_names
    if not may_have_names:
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
            f"{table.name} has two columns called {duplicates[0]!r}.",
            found=list_names(names, 500),
            steps="rename one of them in the first line",
        )

    # 4. Columns with the dtypes of pandas.
    data = rest if is_header else text.data
    frame = parse_rest() if is_header else parse(data)
    frame = frame.set_axis(names, axis=1) if len(frame.columns) else pd.DataFrame(columns=names)
    return replace(table, frame=frame, first_number=1 + is_header, has_names=has_names, text=data)


def _has_row_names(body: pd.DataFrame) -> bool:
    """True if the first column has distinct strings, or counts from 1, like row names of R."""
    values = body[0]
    if values.dtype.kind == "O":
        return values.is_unique
    return values.dtype.kind in "iu" and is_row_index(values - 1)


def _check_widths(widths: I64, table: Table) -> None:
    """Refuse rows with another number of fields, (R,), than the first line."""
    differs = widths != widths[0]
    if not differs.any():
        return
    first = widths[0]
    if len(widths) > 2 and (widths[1:] == widths[1]).all():
        fields = count_with_noun(int(first), "field")
        problem = f"{fields}, and {widths[1]:,} in all lines below it"
        raise table.error_at(0, problem, "give each column a name in this line")
    row = int(differs.argmax())
    fields = count_with_noun(int(widths[row]), "field")
    problem = f"{fields}, and {first:,} in the first line"
    raise table.error_at(row, problem, "repair this line, or quote a cell with the separator")


def _table_of_edge_dictionaries(table: Table, text: str) -> Table:
    """Read lines of networkx.write_edgelist: two ids, and a dictionary of attributes."""
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
