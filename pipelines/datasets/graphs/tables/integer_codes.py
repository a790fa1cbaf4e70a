"""Codes of integers by their offsets, which need no hash table: ids are mostly numbered in a range."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from kmip_data.arrays import I64, Array

#: Length of the range, per value, up to which a table over the range is faster than a hash table.
_MAX_RANGE_PER_VALUE = 8


class IntegerCodes(NamedTuple):
    """Integers as offsets from the smallest one."""

    codes: I64  #: shape of the integers
    smallest: int
    length: int  #: number of integers from the smallest to the largest

    def occurring(self) -> I64:
        """Return the codes that occur, sorted."""
        occurs = np.zeros(self.length, bool)
        occurs[self.codes] = True
        return np.flatnonzero(occurs)


def encode_integers(values: Array) -> IntegerCodes | None:
    """Return integers as offsets; ``None`` for other values, and for integers far apart."""
    if values.dtype.kind != "i" or not values.size:
        return None
    smallest = int(values.min())
    length = int(values.max()) - smallest + 1
    if length > _MAX_RANGE_PER_VALUE * values.size:
        return None
    codes = values.astype(np.int64) - smallest if smallest else values.astype(np.int64, copy=False)
    return IntegerCodes(codes, smallest, length)


def count_distinct(values: pd.Series) -> int:
    """Return the number of distinct values of a column without missing ones."""
    integers = encode_integers(values.to_numpy())
    return values.nunique() if integers is None else len(integers.occurring())
