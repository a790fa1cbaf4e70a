"""Lines of a text that are rows: its encoding, its comments and the separator that it names."""

from __future__ import annotations

import codecs
import mmap
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from kmip_data.arrays import I64
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.formats.text import decode_text
from kmip_data.pipelines.own.headers import NoTable

SAMPLED_LINES = 100  #: first lines, which determine the separator
BLOCK_BYTES = 2**22  #: bytes that are parsed at once, and the length of the longest row
_BYTES_OF_CELL = 18  #: peak memory, measured with 10⁷ cells of one digit
#: Peak memory of a byte, measured with 10⁶ edges: of UTF-8 that is mapped, and of a copy.
BYTES_READ, _BYTES_DECODED = 3, 5
_SEPARATOR_LINE = re.compile(rb'"?sep=(.)"?\n', re.IGNORECASE)  #: first line that Excel writes
_COMMENT_OR_BLANK = re.compile(rb"^[ \t]*(?:(?:[#%]|//)[^\n]*)?\n", re.MULTILINE)
_MAY_BEGIN_COMMENT = np.isin(np.arange(256), list(b"#%/ \t\n"))

Buffer = bytes | mmap.mmap


@dataclass(frozen=True)
class Rows:
    """Lines of a text that are rows, as UTF-8 that ends with a line break."""

    name: str  #: name of the file, for messages
    data: Buffer
    numbers: Sequence[int] | I64  #: number of each line in the file
    comments: Mapping[int, str]  #: number of a line that is left out -> its comment
    separator: str = ""  #: separator that the file itself names

    def sample(self) -> list[str]:
        """Return the first lines."""
        end = 0
        for _ in range(SAMPLED_LINES):
            end = self.data.find(b"\n", end) + 1 or end
        return self.data[:end].decode("utf-8", "replace").split("\n")[:-1]


def read_rows(path: Path, name: str, options: ReadOptions) -> Rows:
    """Return the rows of a file; raise ``NoTable`` if it has none."""
    size = path.stat().st_size
    if not size:
        raise NoTable(f"{name} is empty.", steps="write a table into it")
    options.check_memory(BYTES_READ * size, name)
    data: Buffer
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    head = data[:BLOCK_BYTES]
    cells = sum(map(head.count, b"\n\t;,|")) * size // len(head)
    options.check_memory(_BYTES_OF_CELL * cells, name)
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
        rows = _without_comments(name, data[:], first)
        if not rows.data:
            raise NoTable(f"{name} has no row.", steps="write a table into it")
    else:
        rows = Rows(name, data, range(first, sys.maxsize), {})
    return replace(rows, separator=separator)


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
