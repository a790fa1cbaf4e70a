"""Tables that sets of graphs and single graphs share: numbers of nodes and edges, and the split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kmip_data.arrays import I64
from kmip_data.format.splits import PARTS
from kmip_data.pipelines.formats.numbers import Table
from kmip_data.pipelines.shared.molecules import check_partition

MOST_BYTES = 20_000_000_000  #: of a decompressed table
MOST_ROWS = 2**31
#: Part of a split -> its file.
FILES = dict(zip(PARTS, ("train", "valid", "test"), strict=True))


def raw_table(folder: Path, name: str, columns: int, **bounds: Any) -> Table:
    """Return a table of the raw folder, with its bounds."""
    return Table(folder / "raw" / f"{name}.csv.gz", columns, MOST_BYTES, **bounds)


def read_lists(folder: Path, rule: str) -> dict[str, I64]:
    """Return the numbers of each part."""
    lists = {}
    for part, name in FILES.items():
        path = folder / "split" / rule / f"{name}.csv.gz"
        lists[part] = Table(path, 1, MOST_BYTES, low=0, high=MOST_ROWS, empty=True).column()
    return lists


def read_split(folder: Path, rule: str, rows: int | None) -> dict[str, I64]:
    """Return the numbers of each part, checked to be those from 0 to ``rows``, each in one part."""
    return check_partition(read_lists(folder, rule), rows, name=f"split/{rule}")
