"""Delimited text: comments, separator and widths of tables and point clouds.

Texts are bytes of UTF-8 with LF, which pandas parses in a quarter of the memory of a string. A large
file is mapped, and its rows are taken block by block, so that the text itself needs no memory.
"""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from kmip_data.arrays import I64
from kmip_data.pipelines.formats.text import decode_text
from kmip_data.pipelines.formats.written_numbers import is_written_number

BLANKS = " "  #: separator: any number of blanks and tabs
MIXED = "mixed"  #: separator: any mix of tabs, semicolons, commas and blanks
SAMPLED_ROWS = 100  #: first rows, which determine separator and names
_DATE_AND_TIME = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4} \d{1,2}:\d{2}[\d:.]*")
_SEPARATORS = ("\t", ";", ",", "|", BLANKS)  #: in order of preference
_TO_BLANKS_TEXT = str.maketrans("\t;,", "   ")
_BLOCK_BYTES = 2**20  #: bytes of rows that are examined together
#: Comments and blank lines.
_LINE_WITHOUT_ROW = re.compile(rb"^[ \t]*(?:(?:[#%]|//).*)?(?:\n|\Z)", re.MULTILINE)
_BEGINNINGS_WITHOUT_ROW = np.isin(np.arange(256), list(b"#%/ \t\n"))
#: Cell behind another one that begins as a comment does, such as a tag or a colour.
_CELL_WITH_HASH = re.compile(rb"[\t;,|] *#")
#: Cells between tabs, of which those with a quote are quoted as in CSV.
_QUOTED_CELLS = re.compile(rb'(?:(?:"(?:[^"]++|"")*+"|[^"\t\n]*+)(?:[\t\n]|\Z))*+')
#: First line with which Excel names the separator.
_SEPARATOR_LINE = re.compile(rb'"?sep=(.)"?\n', re.IGNORECASE)


#: Text, or a view of a mapped file; slices of a view are no copies.
Text = bytes | memoryview


@dataclass(frozen=True)
class DelimitedText:
    """Rows of a text, without comments and blank lines."""

    data: Text
    lines_without_row: list[int] = field(default_factory=list)  #: ascending, from 1
    comments: dict[int, str] = field(default_factory=dict)  #: line number -> comment
    separator: str = ""  #: separator that the file itself names
    stripped_lines: int = 0  #: lines of separators at the end, which spreadsheets write

    def sample_rows(self) -> list[str]:
        """Return the first rows; a quoted cell may continue in the next."""
        head = bytes(self.data[: 2**16])
        while head.count(b"\n") < SAMPLED_ROWS and len(head) < len(self.data):
            head = bytes(self.data[: 4 * len(head)])
        rows = head.decode("utf-8", "replace").split("\n", SAMPLED_ROWS)[:SAMPLED_ROWS]
        return [row for row in rows if row.strip()]

    def first_row(self) -> bytes:
        """Return the first line, and the lines over which a quoted cell of it continues."""
        block = next(row_blocks(self.data), b"")
        end = 0
        quotes = 0
        while end < len(block):
            start = end
            end = block.find(b"\n", start) + 1 or len(block)
            quotes += block.count(b'"', start, end)
            if quotes % 2 == 0:
                break
        return block[:end]

    def comments_above(self) -> list[str]:
        """Return the comments above the first row, without their marks."""
        comments = []
        for position, line in enumerate(self.lines_without_row, 1):
            if position != line:
                break
            comments.append(self.comments.get(line, "").lstrip("#/%").strip())
        return [comment for comment in comments if comment]


def _blocks_of_bytes(data: Text, size: int = _BLOCK_BYTES) -> Iterator[bytes]:
    """Yield the bytes of a text in blocks."""
    for start in range(0, len(data), size):
        yield bytes(data[start : start + size])


def row_blocks(data: Text, size: int = _BLOCK_BYTES) -> Iterator[bytes]:
    """Yield the rows of a text in blocks; a quoted cell with line breaks is in one block."""
    pending: list[bytes] = []  # pieces behind the last row that ended
    quotes = 0  # in these pieces
    for piece in _blocks_of_bytes(data, size):
        end = piece.rfind(b"\n") + 1
        is_open = (quotes + piece.count(b'"', 0, end)) % 2
        while end and is_open:
            quote = piece.rfind(b'"', 0, end)
            earlier_end = piece.rfind(b"\n", 0, quote) + 1 if quote >= 0 else 0
            is_open ^= piece.count(b'"', earlier_end, end) % 2
            end = earlier_end
        if end:
            yield b"".join([*pending, piece[:end]])
            pending = []
            quotes = 0
        pending.append(piece[end:])
        quotes += piece.count(b'"', end)
    if rest := b"".join(pending):
        yield rest


def read_delimited(data: Text, name: str, encoding: str = "") -> DelimitedText:
    """Find the rows of a text in any encoding, with any line ends.

    Raises ``DamagedInput`` if the encoding is unknown.
    """
    if not _is_utf8_with_lf(data):
        data = decode_text(bytes(data), name, encoding).encode()
    separator = ""
    lines_before = 0
    if match := _SEPARATOR_LINE.match(data):
        separator = match[1].decode("latin-1")
        data = data[match.end() :]
        lines_before = 1
    data = _quote_tab_separated_cells(data)
    data, stripped_lines = _strip_separator_lines(data)
    data, lines_without_row, comments = _remove_comments(data, lines_before)
    if data and data[-1:] != b"\n":
        data = bytes(data) + b"\n"
    return DelimitedText(data, lines_without_row, comments, separator, stripped_lines)


def _is_utf8_with_lf(data: Text) -> bool:
    """True if a text is UTF-8 without a byte order mark, and its lines end with LF."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for block in _blocks_of_bytes(data):
            if b"\r" in block:
                return False
            begins_in_character = bool(decoder.getstate()[0])
            if begins_in_character or not block.isascii():
                decoder.decode(block)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return bytes(data[:3]) != codecs.BOM_UTF8


def _quote_tab_separated_cells(data: Text) -> Text:
    """Quote cells with quotes by the rules of CSV if the text is separated by tabs and breaks them.

    In tables separated by tabs, a quote is an ordinary character (IANA's text/tab-separated-values),
    but many programs write it as in CSV. It is a character here if the text is no CSV, and each line
    has the same number of tabs.
    """
    if not any(b'"' in block for block in _blocks_of_bytes(data)):
        return data
    lines = bytes(data).decode().split("\n")
    num_tabs = {line.count("\t") for line in lines if line}
    if len(num_tabs - {0}) != 1 or _QUOTED_CELLS.fullmatch(data):
        return data

    for number, line in enumerate(lines):
        if '"' in line:
            cells = [cell.replace('"', '""') for cell in line.split("\t")]
            lines[number] = "\t".join(f'"{cell}"' for cell in cells)
    return "\n".join(lines).encode()


def _strip_separator_lines(data: Text) -> tuple[Text, int]:
    """Strip trailing lines of separators; also return their number."""
    size = _BLOCK_BYTES
    end, num_stripped = _end_of_rows(bytes(data[-size:]))
    while not end and size < len(data):
        size *= 4
        end, num_stripped = _end_of_rows(bytes(data[-size:]))
    # Blank lines are skipped later, with the comments.
    if not num_stripped:
        return data, 0
    return data[: max(len(data) - size, 0) + end], num_stripped


def _end_of_rows(data: bytes) -> tuple[int, int]:
    """Return the end of the last row that has a cell, and the number of lines of separators behind it."""
    num_stripped = 0
    end = len(data)
    while end:
        start = data.rfind(b"\n", 0, end - 1) + 1
        line = data[start:end].strip(b" \t\n")
        if line.strip(b",; \t"):
            break
        num_stripped += bool(line)
        end = start
    return end, num_stripped


def _remove_comments(data: Text, lines_before: int) -> tuple[Text, list[int], dict[int, str]]:
    """Remove comments and blank lines, except inside quoted cells.

    Below the first row, a line that begins with # is a row if it has as many separators, and another
    cell begins with #. Return the rows, the numbers of the other lines, and the comments by line.
    ``lines_before`` lines precede the data in the file.
    """
    lines_without_row = list(range(1, lines_before + 1))
    comments: dict[int, str] = {}
    if not any(map(_has_line_without_row, row_blocks(data))):
        return data, lines_without_row, comments
    data = bytes(data)
    pieces: list[bytes] = []
    start = 0
    line = 1 + lines_before
    quotes = 0
    first_row = b""
    has_hashes = _CELL_WITH_HASH.search(data) is not None
    for match in _LINE_WITHOUT_ROW.finditer(data):
        if match.end() == match.start():
            continue
        piece = data[start : match.start()]
        quotes += piece.count(b'"')
        line += piece.count(b"\n")
        pieces.append(piece)
        start = match.start()
        # Inside quotes, the line is part of a cell.
        if quotes % 2:
            continue
        first_row = first_row or b"".join(pieces).split(b"\n", 1)[0]
        comment = match.group().strip()
        separators = _count_separators(comment)
        if has_hashes and any(separators) and separators == _count_separators(first_row):
            continue
        if comment:
            comments[line] = comment.decode("utf-8", "replace")
        lines_without_row.append(line)
        line += 1
        start = match.end()
    pieces.append(data[start:])
    return b"".join(pieces), lines_without_row, comments


def _count_separators(line: bytes) -> list[int]:
    return [*map(line.count, (b"\t", b";", b",", b"|"))]


def _has_line_without_row(block: bytes) -> bool:
    """True if a line of a block may be a comment or blank."""
    characters = np.frombuffer(b"\n" + block, np.uint8)
    beginnings = characters[1:][characters[:-1] == ord("\n")]
    return bool(_BEGINNINGS_WITHOUT_ROW[beginnings].any())


def guess_separator(rows: Sequence[str], *, may_be_mixed: bool = False) -> str:
    """Return the separator that splits all rows into equally many cells.

    Of several, it is the first whose cells below the names have no other separator unless they are
    numbers or times, as in ``1,5 2,5``; otherwise the first of tab, ``;``, ``,``, ``|`` and blank.
    Three cells between tabs are cells, whose blanks are theirs.
    """
    candidates: list[str] = []
    with_row_names: list[str] = []  # the first row is shorter, because rows begin with a name
    for separator in _SEPARATORS:
        cells = list(split_rows(rows, separator, strict=False))
        first, *others = map(len, cells)
        if len(rows) == SAMPLED_ROWS:
            others = others[:-1]  # a quoted cell may continue after the sample
        if first > 1 and {*others} <= {first}:
            candidates.append(separator)
            has_names = not any(map(is_written_number, cells[0]))
            if (separator == "\t" and first > 2) or all(
                _is_single_cell(cell) for row in cells[has_names:] for cell in row
            ):
                return separator
        elif first > 0 and {*others} == {first + 1}:
            with_row_names.append(separator)
    if may_be_mixed and _prefer_mixed(rows, candidates):
        return MIXED
    if candidates or with_row_names:
        return (candidates or with_row_names)[0]
    return max(_SEPARATORS, key=lambda separator: _regularity(rows, separator))


def _is_single_cell(cell: str) -> bool:
    """True for a number, for a date with its time, and for a text without any separator."""
    is_value = is_written_number(cell) or _DATE_AND_TIME.fullmatch(cell) is not None
    return is_value or not any(separator in cell for separator in _SEPARATORS)


def _prefer_mixed(rows: Sequence[str], candidates: Sequence[str]) -> bool:
    """True if all separators together give rows of equal width, and more numbers than one alone."""
    widths = {len(row) for row in split_rows(rows, MIXED, strict=False)}
    return (
        len(widths) == 1
        and widths != {1}
        and all(
            _fraction_of_numbers(rows, MIXED) > _fraction_of_numbers(rows, separator)
            for separator in candidates[:1]
        )
    )


def _fraction_of_numbers(rows: Sequence[str], separator: str) -> float:
    cells = [cell for row in split_rows(rows, separator, strict=False) for cell in row]
    return sum(map(is_written_number, cells)) / max(len(cells), 1)


def _regularity(rows: Sequence[str], separator: str) -> int:
    """Return the number of rows that have the most common width, if it is more than one cell."""
    widths = [len(row) for row in split_rows(rows, separator, strict=False)]
    return max((widths.count(width) for width in {*widths} - {1}), default=0)


def split_rows(lines: Iterable[str], separator: str, *, strict: bool = True) -> Iterator[list[str]]:
    """Yield the cells of each row; a quoted cell may contain separators and line breaks."""
    if separator == MIXED:
        lines = (line.translate(_TO_BLANKS_TEXT) for line in lines)
    if separator in {BLANKS, MIXED}:
        lines = (line.strip(" \t\n").replace("\t", " ") for line in lines)
    delimiter = BLANKS if separator == MIXED else separator
    lines = iter(lines)
    for line in lines:
        if '"' in line:
            quoted = csv.reader(
                itertools.chain([line], lines),
                delimiter=delimiter,
                skipinitialspace=True,
                strict=strict,
            )
            cells = next(quoted)
        else:
            cells = line.rstrip("\n").split(delimiter)
        if delimiter == BLANKS:
            yield [cell for cell in cells if cell]
        else:
            yield [cell.strip() for cell in cells]


def count_cells(data: Text, separator: str) -> I64:
    """Return the number of cells of each row."""
    counts = [_count_cells_of_block(block, separator) for block in row_blocks(data)]
    return np.concatenate(counts or [np.empty(0, np.int64)])


def _count_cells_of_block(data: bytes, separator: str) -> I64:
    if b'"' in data:
        lines = io.StringIO(data.decode())
        return np.fromiter(map(len, split_rows(lines, separator)), np.int64)
    characters = np.frombuffer(data, np.uint8)
    is_end = characters == ord("\n")
    if separator not in {BLANKS, MIXED}:
        positions = np.flatnonzero(is_end | (characters == ord(separator)))
        return np.diff(np.flatnonzero(is_end[positions]), prepend=-1)
    is_blank = is_end.copy()
    for blank in b" \t;," if separator == MIXED else b" \t":
        is_blank |= characters == blank
    begins_cell = ~is_blank
    begins_cell[1:] &= is_blank[:-1]
    starts = np.concatenate([[0], np.flatnonzero(is_end)[:-1] + 1])
    return np.add.reduceat(begins_cell, starts, dtype=np.int64)
