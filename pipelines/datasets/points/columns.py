"""Named columns of a point cloud, as the readers of this folder return them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kmip_data.arrays import I64, Array

MAX_COLUMNS = 1_000


class ReadOptions(NamedTuple):
    """Answers to what files do not say."""

    position: tuple[str, ...] = ("x", "y", "z")  #: names of the position
    header: str | None = None  #: ``yes`` or ``no``: the first line of a text has names
    bin: tuple[str, ...] = ()  #: names of the float32 columns of a binary file
    encoding: str = ""  #: encoding of texts that are neither UTF-8 nor UTF-16


@dataclass(frozen=True)
class Columns:
    """Named columns (N,) of a cloud of N points."""

    values: Mapping[
        str, Array
    ]  #: (N,) each, in the order of the file: numbers, or texts as objects
    #: Part of the file that is no column -> reason.
    ignored: Mapping[str, str] = field(default_factory=dict)
    note: str = ""  #: assumption of the reader, which is printed
    lines: I64 | None = None  #: line of each point in a text, from 1

    @property
    def points(self) -> int:
        """Number of points."""
        return len(next(iter(self.values.values()), ()))

    def location(self, row: int) -> str:
        """Return the line of a point of a text, else its number from 0."""
        return f"point {row}" if self.lines is None else f"line {self.lines[row]}"

    def find_column(self, wanted: str) -> str | None:
        """Return the column of a name: the same, else the only one that differs in case or blanks."""
        if wanted in self.values:
            return wanted
        same = [name for name in self.values if comparable_name(name) == comparable_name(wanted)]
        return same[0] if len(same) == 1 else None


def comparable_name(name: str) -> str:
    """Return a name as it is compared."""
    return name.strip().lower()


def distinct_names(names: Sequence[str]) -> list[str]:
    """Return the names, with repeated names numbered: ``x.1``, ``x.2``."""
    counts = Counter(names)
    seen: Counter[str] = Counter()
    numbered = []
    for name in names:
        seen[name] += 1
        numbered.append(name if counts[name] == 1 else f"{name}.{seen[name]}")
    return numbered


def names_by_position(count: int) -> list[str]:
    """Return x, y and z, and then the number of each column from 0, such as ``3``."""
    return [*"xyz", *map(str, range(3, count))][:count]


def check_count(count: int) -> None:
    """Raise ``ValueError`` for too many columns: 10¹⁰ of no rows take no byte of a file."""
    if count > MAX_COLUMNS:
        raise ValueError(f"{count:,} columns, and {MAX_COLUMNS:,} are allowed")


def columns_of_values(name: str, rows: Array) -> dict[str, Array]:
    """Return the columns of rows of several values, (N, …), called ``name_0`` and so on."""
    flat = rows.reshape(len(rows), -1)
    return {f"{name}_{number}": column for number, column in enumerate(flat.T)}
