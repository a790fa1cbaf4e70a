"""Frames of pandas and other libraries as tables."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow.interchange import from_dataframe

from kmip_data.errors import UsageError
from kmip_data.pipelines.own.files import ROWS_FROM_0, table_of_arrow
from kmip_data.pipelines.own.table import Table, table_of_arrays

#: Methods with which libraries exchange tables, in order of preference.
_PROTOCOLS = ("__arrow_c_stream__", "__dataframe__")


class ArrowTable(Protocol):
    """Table of polars, pyarrow or another library that exports its columns."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the columns as a stream of Arrow."""
        ...


def is_frame(value: object) -> bool:
    """True for a table of pandas, polars, pyarrow, or another library that offers its columns."""
    return isinstance(value, pd.DataFrame) or any(hasattr(value, name) for name in _PROTOCOLS)


def table_of_frame(name: str, frame: Any, ignored: dict[str, str], *, may_have_ids: bool) -> Table:
    """Return the table of a frame, as that of a Parquet file; lists and objects are ``ignored``.

    Rows that ``may_have_ids`` may have them in an index without a name.
    """
    if isinstance(frame, pd.DataFrame):
        frame = _with_index_columns(frame, may_have_ids=may_have_ids)
        if not frame.columns.is_unique:
            repeated = frame.columns[frame.columns.duplicated()][0]
            raise UsageError(
                f"Two columns of {name} are called {repeated!r}.", steps="rename one of them"
            )
        return table_of_arrays(name, dict(frame.items()), ignored, **ROWS_FROM_0)
    if not is_frame(frame):
        raise UsageError(
            f"A {type(frame).__name__} is not a table.",
            expected="a frame of pandas, polars or another library",
            steps="pandas.DataFrame(table)",
        )
    has_stream = hasattr(frame, _PROTOCOLS[0])
    return table_of_arrow(name, pa.table(frame) if has_stream else from_dataframe(frame), ignored)


def _with_index_columns(frame: pd.DataFrame, *, may_have_ids: bool) -> pd.DataFrame:
    """Return a frame of pandas with its index as columns, unless the index numbers the rows.

    Integers without a name are ids only of rows that ``may_have_ids``, and if they are distinct:
    frames that were filtered, sorted or joined have other numbers than 0, 1, 2, ….
    """
    existing = [name for name in frame.index.names if name in frame.columns]
    if existing:
        frame = frame.reset_index(level=existing, drop=True)
    index = frame.index
    are_numbers = [*index.names] == [None] and index.dtype.kind in "iu"
    has_ids = may_have_ids and index.is_unique and not np.array_equal(index, range(len(index)))
    return frame.reset_index(drop=are_numbers and not has_ids)
