"""Text tables as people write them: separator, names, comments and line ends are found in the text."""

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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kmip_data.arrays import I64
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.pipelines.datasets.graphs.findings import Notices
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import OTHER_FORMATS, GraphParams
from kmip_data.pipelines.datasets.graphs.tables import roles
from kmip_data.pipelines.datasets.graphs.tables.table import UNNAMED, Table, counts_from_zero
from kmip_data.pipelines.formats.file_heads import is_gzip
from kmip_data.pipelines.formats.text import decode_text, without_last_empty
from kmip_data.text import count_with_noun

MAX_COLUMNS = 65_536
_LOOKED_AT = 100  #: first lines, which decide the separator
_BLOCK = 2**20  #: bytes of text
_BYTES_OF_FIELD = 48  #: memory besides twice the text, which pandas takes
_SKIPPED = re.compile(r"^[ \t]*(?:[#%].*)?(?:\n|\Z)", re.MULTILINE)  #: comments and blank lines
_COMMENT_OR_BLANK = "#% \t\n"  #: first characters of the lines above
_BLANKS = re.compile(r"[ \t]+")
_ENDS_OF_LINES = re.compile(r"^ | $", re.MULTILINE)
#: A line of networkx.write_edgelist: two ids and a dictionary.
_WITH_DICTIONARY = re.compile(r"[ \t]*([^\s,;]+)[\s,;]+([^\s,;]+)[\s,;]+(\{.*\})[ \t]*")
#: Beginnings of integers that would change when parsed: 001, +1, -0.
_NONCANONICAL = re.compile(rb"[+0-](?<![\w.+-][+0-])(?:(?<=\+)|(?<=0)[0-9]|(?<=-)0(?!\.))")


def read_table(
    path: Path, level: str, options: ReadOptions, notices: Notices, *, alone: bool = False
) -> Table:
    """Return the table of a file; ``level`` says what a row is: ``node``, ``edge`` or ``graph``.

    Without a ``level`` the first line is a row. ``alone`` is True if the files are one table: then
    the parameter ``header`` decides what its first line is.

    Raises ``DamagedInput`` for a truncated file, rows of different lengths, and a first line that
    may be names or data; ``OutOfResources`` if the memory limit does not suffice.
    """
    try:
        return _read_layout_and_rows(path, level, options, notices, alone=alone)
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
        line = _open_quote(path, options.params.encoding)
        if line is not None:
            raise DamagedInput(
                f"{path.name}, line {line}: a quote is opened and never closed.",
                next=f'close the quote (") in line {line}, or remove it',
            ) from error
        raise DamagedInput(
            f"{path.name} cannot be read as a table.",
            expected="UTF-8 text, or gzip of it, with as many fields in each line",
            found=" ".join(str(error).split())[:300],
            next=OTHER_FORMATS,
        ) from error


def _open_quote(path: Path, encoding: str) -> int | None:
    """Return the line, from 1, of a quote that is never closed; None if there is none."""
    with contextlib.suppress(OSError, ValueError, EOFError, UsageError):
        opened = None
        for number, line in enumerate(read_text_file(path, encoding).splitlines(), 1):
            if line.count('"') % 2:
                opened = None if opened else number
        return opened
    return None


def _read_layout_and_rows(
    path: Path, level: str, options: ReadOptions, notices: Notices, *, alone: bool
) -> Table:
    """Find the layout of a text, and read it."""
    # 1. Rows without comments and blank lines, and their separator.
    may_have_codes = scan_text(path, options)
    text, skipped, comments = _text_of_rows(path, options, notices)
    lines = list(itertools.islice(_split_lines(text), _LOOKED_AT))
    if not lines:
        raise ValueError("no line has a field")
    if level == "edge" and all(_WITH_DICTIONARY.fullmatch(line.rstrip("\n")) for line in lines):
        return _table_of_dictionaries(path.name, text, skipped)
    separator = separator_of(lines)
    if separator == " ":
        text = _ENDS_OF_LINES.sub("", _BLANKS.sub(" ", text))

    # 2. The first line, and the others. pandas would fill up short rows in silence.
    first_row = _first_row(text)
    first = [cell.strip() for cell in next(_split_cells([first_row], separator))]
    if level == "edge" and len(first) < 2:
        raise DamagedInput(
            f"{path.name} has one column, and an edge has two ends.",
            found=first[0][:80],
            next="separate the cells of each line by tabs, semicolons, commas or blanks",
        )
    rest = text[len(first_row) :]
    layout: dict[str, Any] = {
        "sep": separator,
        "header": None,
        "keep_default_na": False,
        "na_values": [""],
        "skipinitialspace": True,
        "low_memory": False,
    }
    lengths = _field_counts(text, separator)
    if len(first) > MAX_COLUMNS or lengths.max() > MAX_COLUMNS:
        raise ValueError(f"{lengths.max():,} columns, of at most {MAX_COLUMNS:,}")
    table = Table(
        path.name, pd.DataFrame(), 1, skipped=skipped, options=layout, may_have_codes=may_have_codes
    )
    # A line of R is one shorter than the others, which begin with the names of their rows.
    is_shorter = len(lengths) > 1 and bool((lengths[1:] == lengths[0] + 1).all())
    body = functools.cache(lambda: _parse_rows(rest, layout))
    if is_shorter:
        is_shorter = _are_row_names(body())
    if not is_shorter:
        _check_lengths(lengths, table)

    # 3. Names are in the comment above the rows, in the first line, or nowhere.
    above = [comments[line] for line in comments if skipped[line - 1 : line] == [line]]
    names = _names_in_comment(above[-1] if above else "", separator, first)
    has_names = True
    in_first_line = is_shorter
    if not level:
        names = [str(number) for number in range(len(first))]
    elif is_shorter:
        names = ["", *first]
    elif names is None:
        in_first_line = has_names = _first_line_has_names(
            first, body, table, level, options.params, alone=alone
        )
        names = first if has_names else [str(number) for number in range(len(first))]
    names = [name or f"{UNNAMED}{number}" for number, name in enumerate(names)]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DamagedInput(
            f"{path.name} has two columns called {twice[0]!r}.",
            found=", ".join(names)[:500],
            next="rename one of them in the first line",
        )

    # 4. Columns with the dtypes of pandas.
    if in_first_line:
        text = rest
    frame = body() if in_first_line else _parse_rows(text, layout)
    frame = frame.set_axis(names, axis=1) if len(frame.columns) else pd.DataFrame(columns=names)
    return replace(table, frame=frame, first=1 + in_first_line, has_names=has_names, text=text)


def _check_lengths(lengths: I64, table: Table) -> None:
    """Refuse rows with another number of fields (R,) than the first line."""
    differ = lengths != lengths[0]
    if not differ.any():
        return
    fields = count_with_noun(int(lengths[0]), "field")
    if len(lengths) > 2 and (lengths[1:] == lengths[1]).all():
        problem = f"{fields}, and {lengths[1]:,} in all lines below it"
        raise table.error_at(0, problem, "give each column a name in this line")
    row = int(differ.argmax())
    problem = f"{count_with_noun(int(lengths[row]), 'field')}, and {lengths[0]:,} in the first line"
    raise table.error_at(row, problem, "repair this line, or quote a cell with the separator")


def _text_of_rows(
    path: Path, options: ReadOptions, notices: Notices
) -> tuple[str, list[int], dict[int, str]]:
    """Return the rows of a file, the numbers of lines left out, and the comments among these by number."""
    text, empty = without_last_empty(read_text_file(path, options.params.encoding))
    if empty:
        notices.ignored[f"end of {path.name}"] = f"{count_with_noun(empty, 'line')} without a value"
    text, skipped, comments = _without_comments(text)
    example = next(iter(comments.values()), "")
    if example:
        lines = count_with_noun(len(comments), "line")
        notices.ignored[f"comments in {path.name}"] = f"{lines}, such as {example[:40]!r}"
    return text, skipped, comments


def _first_row(text: str) -> str:
    """Return the first line of a text, and the lines over which a quoted cell of it continues."""
    row = ""
    for line in _split_lines(text):
        row += line
        if row.count('"') % 2 == 0:
            break
    return row


def _parse_rows(text: str, layout: Mapping[str, Any]) -> pd.DataFrame:
    """Return the columns of rows, which are called 0, 1 and so on."""
    # Parse bytes: a stream of text takes four times the memory.
    return pd.read_csv(io.BytesIO(text.encode()), **layout) if text else pd.DataFrame()


def _are_row_names(body: pd.DataFrame) -> bool:
    """True if the first column has texts that differ, or counts from 1, as R names rows."""
    values = body[0]
    if values.dtype.kind == "O":
        return values.is_unique
    return values.dtype.kind in "iu" and bool((values == np.arange(len(values)) + 1).all())


def scan_text(path: Path, options: ReadOptions) -> bool:
    """Reserve the memory of a text; return True if it may contain integers such as 001, which are names."""
    opened = gzip.open if is_gzip(path) else open
    size = 0
    fields = 0
    may_have_codes = False
    end = b"\n"
    with opened(path, "rb") as file:
        while block := file.read(_BLOCK):
            size += len(block)
            fields += len(block) - len(block.translate(None, b"\t;, \n\r"))
            options.claim(2 * size + _BYTES_OF_FIELD * fields, path.name)
            # Include the previous character: a piece may begin inside 100.
            may_have_codes = may_have_codes or _NONCANONICAL.search(end + block, 1) is not None
            end = block[-4:]
    return may_have_codes


def read_text_file(path: Path, encoding: str) -> str:
    """Return the text of a file, which may be gzipped."""
    opened = gzip.open if is_gzip(path) else open
    with opened(path, "rb") as file:
        return decode_text(file.read(), path.name, encoding)


def _without_comments(text: str) -> tuple[str, list[int], dict[int, str]]:
    """Return the text without comments and blank lines, their numbers, and the comments by number."""
    kept: list[str] = []
    skipped: list[int] = []
    comments: dict[int, str] = {}
    if text[:1] not in _COMMENT_OR_BLANK and not any(
        f"\n{mark}" in text for mark in _COMMENT_OR_BLANK
    ):
        return text, skipped, comments
    start = 0
    line = 1
    quotes = 0
    for match in _SKIPPED.finditer(text):
        if match.end() == match.start():
            continue
        piece = text[start : match.start()]
        quotes += piece.count('"')
        line += piece.count("\n")
        kept.append(piece)
        start = match.start()
        # Inside quotes a line is a part of a cell.
        if quotes % 2:
            continue
        if comment := match.group().strip():
            comments[line] = comment
        skipped.append(line)
        line += 1
        start = match.end()
    kept.append(text[start:])
    return "".join(kept), skipped, comments


def _split_lines(text: str) -> Iterator[str]:
    """Yield the lines of a text, each with its LF."""
    start = 0
    while start < len(text):
        end = text.find("\n", start) + 1 or len(text)
        yield text[start:end]
        start = end


def separator_of(lines: Sequence[str]) -> str:
    """Return the first of tab, ``;``, ``,`` and blanks that cuts all lines into as many fields.

    A column of ids is one column, and its ids may have blanks.
    """
    if roles.normalized_name(lines[0]) in roles.NODE_IDS:
        return ","
    row_names = []  # separators by which each line but the first has one field more
    for separator in "\t;, ":
        if separator == " ":
            lines = [_BLANKS.sub(" ", line.strip()) for line in lines]
        first, *others = [len(row) for row in _split_cells(lines, separator, strict=False)]
        if len(lines) == _LOOKED_AT:
            others = others[:-1]  # a quoted cell may go on
        if first > 1 and set(others) <= {first}:
            return separator
        # A first line of R has no name for the column of row names.
        if first > 0 and set(others) == {first + 1}:
            row_names.append(separator)
    if row_names:
        return row_names[0]
    return next((separator for separator in "\t;," if separator in lines[0]), " ")


def _split_cells(
    lines: Iterable[str], separator: str, *, strict: bool = True
) -> Iterator[list[str]]:
    """Yield the cells of each row; a quoted cell may contain ends of lines."""
    lines = iter(lines)
    for line in lines:
        if '"' in line:
            rest = itertools.chain([line], lines)
            yield next(csv.reader(rest, delimiter=separator, skipinitialspace=True, strict=strict))
        else:
            yield line.rstrip("\n").split(separator)


def _field_counts(text: str, separator: str) -> I64:
    """Return the number of fields of each row."""
    if '"' in text:
        return np.fromiter(map(len, _split_cells(_split_lines(text), separator)), np.int64)
    data = np.frombuffer(text.encode(), np.uint8)
    marks = np.flatnonzero(data == ord(separator))
    ends = np.flatnonzero(data == ord("\n"))
    if not text.endswith("\n"):
        ends = np.append(ends, len(data))
    return np.diff(np.searchsorted(marks, ends), prepend=0) + 1


def _names_in_comment(comment: str, separator: str, first: Sequence[str]) -> list[str] | None:
    """Return the names in the comment above the first row; None if it has none."""
    comment = comment.lstrip("#% ")
    cells = comment.split() if separator == " " else comment.split(separator)
    names = [cell.strip() for cell in cells]
    if (
        len(names) == len(first)
        and names != first
        and roles.matching_names(names, roles.HEADER_NAMES)
    ):
        return names
    return None


def _first_line_has_names(
    first: Sequence[str],
    body: Callable[[], pd.DataFrame],
    table: Table,
    level: str,
    params: GraphParams,
    *,
    alone: bool,
) -> bool:
    """True if the first line has the names of the columns below it."""
    if params.header and alone:
        return params.header == "yes"

    # 1. Names that tables of graphs use, or that a parameter gives.
    given = {*params.label, *params.feature, *params.ignore, params.source, params.target}
    given |= {params.graph, params.node, params.smiles}
    given = {name for name in given if not is_number(name)}
    known = [
        cell
        for cell in first
        if cell and (roles.normalized_name(cell) in roles.HEADER_NAMES or cell in given)
    ]
    if known and not all(_is_in_body(cell, body()) for cell in known):
        return True

    # 2. The index of pandas is below a cell without a name.
    if (
        not first[0]
        and not body().empty
        and counts_from_zero(body()[0])
        and len({*first}) == len(first)
    ):
        return True

    # 3. What the cells say, except for the numbers from 0, which pandas writes above an array.
    answer = None
    numbers = [str(number) for number in range(len(first))]
    if not known and (level == "edge" or list(first) != numbers):
        answer = _cells_look_like_names(first, body())
    if answer is None and params.header:
        return params.header == "yes"
    if answer is None:
        shown = ", ".join(first)[:200]
        raise DamagedInput(
            f"{table.name}, line 1 may be names of columns or data: {shown}.",
            next="--set header=yes for names, --set header=no for data",
        )
    return answer


def _cells_look_like_names(first: Sequence[str], body: pd.DataFrame) -> bool | None:
    """Tell names from data by the cells of a first line; None if they may be either."""
    filled = [cell for cell in first if cell]
    if any(map(is_number, filled)) or len({*filled}) < len(filled):
        return False
    if body.empty:
        return None
    if any(cell and body[column].dtype.kind in "iuf" for column, cell in enumerate(first)):
        return True
    if len(filled) < len(first) or any(_is_in_body(cell, body) for cell in filled):
        return False
    return None


def _is_in_body(cell: str, body: pd.DataFrame) -> bool:
    """True if a text is in a column below."""
    return any((body[column] == cell).any() for column in body if body[column].dtype.kind == "O")


def is_number(cell: str) -> bool:
    """True if a cell is a number for pandas, or one with a decimal comma."""
    return bool(pd.notna(pd.to_numeric(cell.replace(",", "."), errors="coerce")))


def _table_of_dictionaries(name: str, text: str, skipped: Sequence[int]) -> Table:
    """Return the edges of networkx.write_edgelist, whose attributes are a dictionary."""
    table = Table(name, pd.DataFrame(), 1, skipped=skipped)
    rows = []
    for number, line in enumerate(text.splitlines()):
        match = _WITH_DICTIONARY.fullmatch(line)
        try:
            source, target, attributes = match.groups() if match else ("", "", "")
            data = ast.literal_eval(attributes)
            rows.append({**data, roles.SOURCE: source, roles.TARGET: target})
        except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError) as error:
            raise table.error_at(
                number, "not two ids and a dictionary, as networkx.write_edgelist writes it"
            ) from error
    frame = pd.DataFrame(rows)
    for end in (roles.SOURCE, roles.TARGET):
        whole = frame[end].str.fullmatch(r"0|-?[1-9][0-9]{0,17}")
        if whole.all():
            frame[end] = frame[end].astype("int64")
    return Table(name, frame, 1, skipped=skipped)
