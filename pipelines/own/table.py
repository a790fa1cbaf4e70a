"""Table of a user's file: its columns as they are written, and errors that name the line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import SupportsInt

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kmip_data.arrays import Array, Bools
from kmip_data.errors import DamagedInput, Step
from kmip_data.text import list_names

#: Column of a table of several files -> what it has of each row's file: its path, its name without
#: suffix, and the folders above it. No column of a user begins with this letter.
FILE, STEM, FOLDER = "\0file", "\0stem", "\0folder"


@dataclass(frozen=True, eq=False)
class Table:
    """Table of one file, or of several files with the same columns.

    Texts are strings of pyarrow without outer blanks, and a cell without a text is null: nothing is
    guessed about a cell before its whole column is looked at. Files with types, such as Parquet, keep
    their numbers, booleans and dates.
    """

    name: str  #: name for messages and descriptions: ``nodes.csv``, or ``book.xlsx, Sheet``
    columns: Mapping[str, pa.Array]  #: column name -> cells (R,), in the order of the file
    has_names: bool = True  #: False if the file does not name its columns, which are numbered from 0
    row_word: str = "line"  #: word for a row in messages
    #: number of each row's line, (R,), or the number of the first row
    lines: Array | int = 1
    #: name of each row's file, if there are several
    locations: Sequence[str] = ()
    #: Column with a dtype of categories -> these in order.
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    separator: str = ""  #: separator of the cells of a text

    @cached_property
    def rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values()), ()))

    @property
    def column_names(self) -> list[str]:
        """Names of the columns of the file."""
        return [name for name in self.columns if not name.startswith("\0")]

    @property
    def column_list(self) -> str:
        """Names of the columns, for messages."""
        return list_names(self.column_names, 1_000)

    def location(self, row: SupportsInt) -> str:
        """Return the file and line of a row, for messages."""
        number = self.lines + int(row) if isinstance(self.lines, int) else int(self.lines[int(row)])
        name = self.locations[int(row)] if self.locations else self.name
        return f"{name}, {self.row_word} {number}"

    def error_at(
        self, row: SupportsInt, problem: str, steps: Step | Sequence[Step] | None = None
    ) -> DamagedInput:
        """Return an error that names the file and line of a row."""
        return DamagedInput(f"{self.location(row)}: {problem}.", steps=steps)

    def is_empty(self, name: str) -> Bools:
        """Mask (R,) of the empty cells of a column."""
        mask: Bools = pc.is_null(self.columns[name], nan_is_null=True).to_numpy(zero_copy_only=False)
        return mask

    def texts(self, name: str) -> list[str]:
        """Return the cells (R,) of a column as texts; empty if they are."""
        cells = self.columns[name]
        if not pa.types.is_string(cells.type):
            cells = pc.cast(cells, pa.string())
        return [text or "" for text in cells.to_pylist()]


def table_of_arrays(name: str, arrays: Mapping[str, object], **facts: object) -> Table:
    """Return a table of numpy arrays or lists (R,), such as the columns of a data frame."""
    columns = {key: _cells(values) for key, values in arrays.items()}
    return Table(name, columns, **facts)  # type: ignore[arg-type]


def _cells(values: object) -> pa.Array:
    array = pa.array(np.asarray(values) if not isinstance(values, list) else values, from_pandas=True)
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
