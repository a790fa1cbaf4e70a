"""Splits given as lists of row numbers: that they partition the rows."""

from __future__ import annotations

import reprlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kmip_data.errors import DamagedInput
from kmip_data.format.parts import PARTS


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
        found = (
            sorted(reprlib.repr(key) for key in lists if isinstance(key, str))[:8]
            if isinstance(lists, dict)
            else type(lists).__name__
        )
        raise DamagedInput(
            f"{name} is not a split.", expected=f"lists called {', '.join(PARTS)}", found=str(found)
        )
    parts = {}
    for part in PARTS:
        rows_of_part = lists[part]
        array = np.asarray(rows_of_part) if _is_flat(rows_of_part) else None
        if array is None or array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
            raise DamagedInput(
                f"{name}: {part} is not a list of row numbers.",
                expected="whole numbers",
                found=f"a {type(rows_of_part).__name__} of something else"
                if array is None
                else f"{array.dtype} of shape {array.shape}",
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
    if not isinstance(lists, dict):
        return 0
    return sum(np.size(lists[part]) for part in PARTS if _is_flat(lists.get(part)))


def _is_flat(value: Any) -> bool:
    """Whether it is an array or a list of numbers: numpy would unfold nested tuples of a hostile file."""
    if isinstance(value, list | tuple):
        return all(isinstance(item, int | float | np.number) for item in value)
    return isinstance(value, np.ndarray)
