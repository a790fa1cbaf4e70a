"""Named columns of a point cloud, returned by its readers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kmip_data.arrays import I64, Array
from kmip_data.pipelines.own.columns.numbers import DecimalSign

MAX_COLUMNS = 1_000

#: Unit of length behind the name of a column.
_LENGTH_UNIT = re.compile(r"\s*[\[(](mm|cm|dm|m|km|ft|in)[\])]$")


class CloudOptions(NamedTuple):
    """User options for properties that a file does not state."""

    position: tuple[str, ...] = ("x", "y", "z")  #: position columns
    header: str | None = None  #: ``yes`` if the first line of a text file has names, else ``no``
    bin: tuple[str, ...] = ()  #: names of the float32 columns of a binary file
    encoding: str = ""  #: encoding of text files that are neither UTF-8 nor UTF-16
    decimal: DecimalSign | None = None  #: decimal sign of text files; ``None``: as numbers show


@dataclass(frozen=True)
class CloudColumns:
    """Named columns (N,) of a cloud of N points."""

    values: Mapping[str, Array]  #: (N,) each, in file order: numbers, or strings as objects
    ignored: Mapping[str, str] = field(default_factory=dict)  #: ignored part of the file -> reason
    note: str = ""  #: printed assumption of the reader
    lines: I64 | None = None  #: line number of each point in a text file, from 1

    @property
    def points(self) -> int:
        """Number of points."""
        return len(next(iter(self.values.values()), ()))

    def location(self, row: int) -> str:
        """Describe the location of a point: its line in a text file, otherwise its row."""
        return f"point {row}" if self.lines is None else f"line {self.lines[row]}"

    def find_column(self, name: str) -> str | None:
        """Return the column with this name, or the only match ignoring case and outer blanks."""
        if name in self.values:
            return name
        matches = [
            column for column in self.values if comparable_name(column) == comparable_name(name)
        ]
        return matches[0] if len(matches) == 1 else None


def comparable_name(name: str) -> str:
    """Normalise a name for comparison, without a unit of length: ``x`` for ``X [m]``."""
    return _LENGTH_UNIT.sub("", name.strip().lower())


def is_number_or_missing(text: str | None) -> bool:
    """True for a number as Python writes it, and for ``None``."""
    try:
        float(text or 0)
    except ValueError:
        return False
    return True


def distinct_names(names: Sequence[str]) -> list[str]:
    """Number duplicate names: ``x.1``, ``x.2``."""
    counts = Counter(names)
    occurrence: Counter[str] = Counter()
    distinct = []
    for name in names:
        occurrence[name] += 1
        distinct.append(name if counts[name] == 1 else f"{name}.{occurrence[name]}")
    return distinct


def default_names(count: int) -> list[str]:
    """Return the names of unnamed columns: x, y, z, then column numbers such as ``3``."""
    return [*"xyz", *map(str, range(3, count))][:count]


def check_column_count(count: int) -> None:
    """Raise ``ValueError`` for too many columns: an empty table may declare 10¹⁰ of them."""
    if count > MAX_COLUMNS:
        raise ValueError(f"{count:,} columns; at most {MAX_COLUMNS:,} are allowed")


def split_vector_columns(name: str, rows: Array) -> dict[str, Array]:
    """Split an array (N, …) into columns called ``name_0`` and so on."""
    flat = rows.reshape(len(rows), -1)
    return {f"{name}_{i}": column for i, column in enumerate(flat.T)}
