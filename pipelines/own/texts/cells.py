"""Cells of the rows of a text as columns: with Arrow, or with ``csv`` where Arrow refuses the rows."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv
from pyarrow import ipc

from kmip_data.arrays import I64
from kmip_data.errors import DamagedInput
from kmip_data.pipelines.own.texts.lines import BLOCK_BYTES, Buffer, Rows
from kmip_data.pipelines.own.texts.separators import BLANKS, Quoting, is_ragged, split_rows
from kmip_data.text import count_with_noun

Cells = tuple[list[pa.Array], Sequence[int] | I64]  #: columns, and the number of each row's line


def read_with_arrow(
    rows: Rows, separator: str, quoting: Quoting, folder: Path | None = None
) -> Cells | None:
    """Return the columns (R,) of rows whose quotes are as in CSV; ``None`` if only ``csv`` reads them."""
    data = rows.data
    has_quotes = quoting == csv.QUOTE_MINIMAL and data.find(b'"') >= 0
    runs = (b"  ", b"\t", b" \n", b"\n ")
    if separator == BLANKS and (any(data.find(run) >= 0 for run in runs) or data[:1] == b" "):
        if has_quotes:
            return None
        data = _with_single_blanks(data)
    try:
        first, _ = next(split_rows(rows.sample(), separator, quoting))
        names = [*map(str, range(len(first)))]
        table = arrow_csv.read_csv(
            pa.BufferReader(pa.py_buffer(data)),
            arrow_csv.ReadOptions(column_names=names, block_size=BLOCK_BYTES),
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


def _with_single_blanks(data: Buffer) -> bytes:
    """Return lines with one blank between two cells, and none around them."""
    characters = np.frombuffer(data[:].replace(b"\t", b" "), np.uint8)
    is_kept = characters != ord(" ")
    is_kept[1:] |= is_kept[:-1] & (characters[:-1] != ord("\n"))
    lines: bytes = characters[is_kept].tobytes()
    return lines.replace(b" \n", b"\n")


def _paged(column: pa.Array, folder: Path | None) -> pa.Array:
    """Return a column in a mapped file, which the system can write out; the file has no name."""
    if folder is None:
        return column
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        batch = pa.record_batch([column], ["0"])
        with ipc.new_file(file.name, batch.schema) as writer:
            writer.write_batch(batch)
        return ipc.open_file(pa.memory_map(file.name)).get_batch(0).column(0)


def quote_whole_cells(data: Buffer, separator: str) -> bool:
    """True if each quote opens or closes a cell, or is doubled inside of one, as in CSV."""
    characters = np.frombuffer(data, np.uint8)
    quotes = np.flatnonzero(characters == ord('"')) if data.find(b'"') >= 0 else characters[:0]
    if len(quotes) % 2:
        return False
    around = np.isin(np.arange(256), [*separator.encode(), *b'\n"'])
    before = characters[quotes[::2] - 1]  # the last character, a line break, is before the first
    return bool(around[before].all() and around[characters[quotes[1::2] + 1]].all())


def read_with_python(rows: Rows, separator: str, quoting: Quoting) -> Cells:
    """Return the columns (R,) of rows; raise ``DamagedInput`` for a fault."""
    records: list[list[str]] = []
    lines = [0]
    try:
        for record, line in split_rows(rows.data[:].decode().split("\n")[:-1], separator, quoting):
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
        if is_ragged(record, first):
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
