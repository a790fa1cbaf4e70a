"""Many short texts in one file that is mapped: how ``prepare`` hands the rows of a table to workers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np


def write_rows(folder: Path, rows: Iterable[str]) -> int:
    """Write ASCII texts, one after the other, and where each ends; return how many."""
    ends = [0]
    with (folder / "rows.txt").open("wb") as file:
        for row in rows:
            ends.append(ends[-1] + file.write(row.encode("ascii")))
    np.save(folder / "rows.npy", np.array(ends, np.int64))
    return len(ends) - 1


class Rows:
    """The texts that :func:`write_rows` wrote, by number."""

    def __init__(self, folder: Path) -> None:
        self._ends = np.load(folder / "rows.npy", allow_pickle=False)
        self._file = (folder / "rows.txt").open("rb")

    def __getitem__(self, row: int) -> str:
        start, stop = int(self._ends[row]), int(self._ends[row + 1])
        self._file.seek(start)
        return self._file.read(stop - start).decode("ascii")
