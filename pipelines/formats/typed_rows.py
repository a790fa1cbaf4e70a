"""Rows of delimited text as typed columns, parsed block by block."""

from __future__ import annotations

import io
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Literal

import pandas as pd
from pandas.api.types import infer_dtype

from kmip_data.pipelines.formats.delimited import BLANKS, MIXED, Text, row_blocks
from kmip_data.runtime.memory import MIN_MAPPED_BYTES, return_free_heap

_BLOCK_BYTES = 2**22  #: bytes of rows that are parsed together
_MIN_ROWS_PER_BLOCK = 100  #: for tables of many columns, each of which is joined from its blocks
_TO_BLANKS = bytes.maketrans(b"\t;,", b"   ")
_MAX_EXACT_FLOAT = 2**53  #: largest float64 below which all integers are exact


def parse_rows(data: Text, separator: str, **options: Any) -> pd.DataFrame:
    """Parse rows into columns numbered from 0, with further ``options`` of pandas.

    The columns are those that pandas infers from the whole text.
    """
    if len(data) <= _BLOCK_BYTES:
        return next(_parse_blocks(data, separator, options), pd.DataFrame())

    # 1. Typed parts of each column.
    parts: dict[Hashable, list[pd.Series]] = {}
    for block in _parse_blocks(data, separator, options):
        for column, values in block.items():
            # A copy, because columns of one dtype may be views of one array.
            parts.setdefault(column, []).append(values.copy(deep=True))

    # 2. Their common dtypes.
    columns: dict[Hashable, pd.Series] = {}
    for column in [*parts]:
        joined = _join_parts(parts.pop(column))
        if isinstance(joined, str):
            joined = _parse_column(
                data, separator, column, as_text=joined == "text", options=options
            )
        columns[column] = joined
    if len(data) > MIN_MAPPED_BYTES:
        return_free_heap()  # blocks leave holes
    return pd.DataFrame(columns, copy=False)


def _parse_blocks(data: Text, separator: str, options: Mapping[str, Any]) -> Iterator[pd.DataFrame]:
    """Yield the rows of a text in blocks, with the dtypes that pandas infers from each."""
    line_end = bytes(data[: 2**24]).find(b"\n") + 1
    for block in row_blocks(data, max(_BLOCK_BYTES, _MIN_ROWS_PER_BLOCK * line_end)):
        yield _parse(block, separator, options)


def _parse(data: bytes, separator: str, options: Mapping[str, Any]) -> pd.DataFrame:
    if separator == MIXED:
        data = data.translate(_TO_BLANKS)
    defaults: dict[str, Any] = {
        "sep": r"\s+" if separator in {BLANKS, MIXED} else separator,
        "header": None,
        "index_col": False,
        "keep_default_na": False,
        "na_values": [""],
        "skipinitialspace": True,
        "low_memory": False,
    }
    frame: pd.DataFrame = pd.read_csv(io.BytesIO(data), **{**defaults, **options})
    return frame


def _join_parts(parts: Sequence[pd.Series]) -> pd.Series | Literal["text", "unknown"]:
    """Return a column from its parts, or what it has if pandas would infer another dtype from all."""
    dtypes = {part.dtype for part in parts}
    are_numbers = all(dtype.kind in "if" for dtype in dtypes)
    if are_numbers and len(dtypes) > 1:
        # Integers are the floats that pandas would read, if float64 holds them.
        integers = [part for part in parts if part.dtype.kind == "i"]
        are_exact = all(part.abs().max() <= _MAX_EXACT_FLOAT for part in integers)
        return pd.concat(parts, ignore_index=True) if are_exact else "unknown"
    if len(dtypes) == 1 and object not in dtypes:
        return pd.concat(parts, ignore_index=True)
    kinds = {infer_dtype(part, skipna=True) for part in parts}
    if kinds in ({"string"}, {"boolean"}):  # of which some are missing
        return pd.concat([part.astype(object) for part in parts], ignore_index=True)
    return "text" if "string" in kinds else "unknown"


def _parse_column(
    data: Text, separator: str, column: Hashable, *, as_text: bool, options: Mapping[str, Any]
) -> pd.Series:
    """Parse one column again: as texts block by block, or with the dtype of the whole column."""
    options = {**options, "usecols": [column]}
    if not as_text:
        return _parse(bytes(data), separator, options)[column]
    frames = _parse_blocks(data, separator, {**options, "dtype": str})
    return pd.concat([frame[column] for frame in frames], ignore_index=True)
