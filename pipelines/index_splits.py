"""Splits given as lists of row numbers: check that they partition the rows, then apply them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kmip_data.errors import DamagedInput
from kmip_data.pipelines.base import Records

PARTS: Final = ("train", "val", "test")


def check_partition(lists: Any, rows: int, *, name: str) -> dict[str, NDArray[np.int64]]:
    """Return the lists of a split file, checked: each of ``rows`` rows is in exactly one.

    Parameters
    ----------
    lists
        What the file holds; should be a mapping of ``train``, ``val`` and ``test`` to whole numbers.
    name
        What messages call the file.

    Raises
    ------
    DamagedInput
        It is something else, or the lists do not partition the rows.
    """
    if not isinstance(lists, dict) or set(lists) != set(PARTS):
        found = sorted(map(str, lists))[:8] if isinstance(lists, dict) else type(lists).__name__
        raise DamagedInput(
            f"{name} is not a split.", expected=f"lists called {', '.join(PARTS)}", found=str(found)
        )
    parts = {}
    for part in PARTS:
        try:
            array = np.asarray(lists[part])
        except ValueError as error:
            raise DamagedInput(f"{name}: {part} is not a list.", found=str(error)) from error
        if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
            raise DamagedInput(
                f"{name}: {part} is not a list of row numbers.",
                expected="whole numbers",
                found=f"{array.dtype} of shape {array.shape}",
            )
        parts[part] = array.astype(np.int64)
    joined = np.concatenate(list(parts.values()))
    outside = joined[(joined < 0) | (joined >= rows)]
    times = np.bincount(joined[(joined >= 0) & (joined < rows)], minlength=rows)
    if outside.size or (times != 1).any():
        faults = [f"{outside.size} numbers out of range, such as {outside[0]}"] if outside.size else []
        for wrong, what in ((times == 0, "in no part"), (times > 1, "listed more than once")):
            if wrong.any():
                faults.append(f"{int(wrong.sum())} rows {what}, such as {int(wrong.argmax())}")
        raise DamagedInput(
            f"{name} does not partition the rows.",
            expected=f"each row from 0 to {rows - 1} in exactly one of {', '.join(PARTS)}",
            found="; ".join(faults),
        )
    return parts


def count_rows(lists: Any) -> int:
    """Return how many row numbers the lists of a split file have in all."""
    return sum(np.size(lists.get(part, ())) for part in PARTS) if isinstance(lists, dict) else 0


def apply_lists(lists: Mapping[str, NDArray[np.int64]], records: Records) -> dict[str, list[int]]:
    """Return positions of the records of each part, in the order of its list.

    The key of a record is the number of its row; rows that were not built are left out.
    """
    position = {int(key): i for i, key in enumerate(records.keys)}
    return {part: [position[row] for row in rows.tolist() if row in position] for part, rows in lists.items()}
