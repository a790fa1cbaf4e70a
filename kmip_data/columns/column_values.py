"""Values of one column in all graphs: range, and the narrowest dtype that holds them bit by bit."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from kmip_data.arrays import Array, DType
from kmip_data.format.schema import Column, ItemForm

#: Dtypes that may hold floats, narrowest first; of one width, the dtype that networks widen fastest.
_NARROW = ("uint8", "int8", "float16", "uint16", "int16", "float32", "uint32", "int32")
_BLOCK = 2**20  #: values examined at a time
_SMALL = 2**12  #: values up to which the rows of graphs are joined before they are examined
_BITS = {2: "uint16", 4: "uint32", 8: "uint64"}


def narrowest_integer_dtype(low: int, high: int) -> str:
    """Return the narrowest dtype of integers that holds ``low`` to ``high``."""
    # A signed dtype has as many numbers below zero as at and above it.
    farthest = high if low >= 0 else min(low, -high - 1)
    return np.min_scalar_type(farthest).name


@dataclass
class ColumnValues:
    """Values of a column, whose rows are added graph by graph.

    Floats are stored in the narrowest of several dtypes that gives back every bit: −0.0 and NaN are
    no integers, and 0.1 is no half-precision number.
    """

    dtype: DType
    shape: tuple[int, ...]  #: shape of a row
    low: float | int | None = None
    high: float | int | None = None
    finite: bool = True
    missing: int = 0  #: NaN among the floats
    _narrow: list[str] = field(default_factory=lambda: list(_NARROW))
    _waiting: list[Array] = field(default_factory=list)
    _waiting_size: int = 0

    def add(self, rows: Array) -> None:
        """Look at rows of any shape; a few wait to be examined together."""
        if rows.size > _SMALL:
            self._examine(rows.reshape(-1))
            return
        # Rows may be a view of a file, which is mapped until the next graph.
        self._waiting.append(rows.flatten())
        self._waiting_size += rows.size
        if self._waiting_size > _BLOCK // 8:
            self._examine_waiting_rows()

    def _examine_waiting_rows(self) -> None:
        if self._waiting:
            self._examine(np.concatenate(self._waiting))
            self._waiting.clear()
            self._waiting_size = 0

    def _examine(self, values: Array) -> None:
        """Examine values (n,) in blocks, so that copies stay small."""
        for start in range(0, len(values), _BLOCK):
            block = values[start : start + _BLOCK]
            least = block.min().item()
            most = block.max().item()
            if block.dtype.kind == "f":
                self.finite &= math.isfinite(least) and math.isfinite(most)
                if math.isnan(least):
                    self.missing += int(np.isnan(block).sum())
                self._narrow = [name for name in self._narrow if _keeps_every_bit(name, block)]
            self.low = least if self.low is None else min(self.low, least)
            self.high = most if self.high is None else max(self.high, most)

    @property
    def stored_dtype(self) -> str:
        """Return the narrowest dtype that holds all values."""
        self._examine_waiting_rows()
        if self.dtype.kind == "b":
            return "uint8"
        if self.low is None or self.high is None:
            return self.dtype.name
        if self.dtype.kind in "iu":
            return narrowest_integer_dtype(int(self.low), int(self.high))
        width = self.dtype.itemsize
        narrower = [name for name in self._narrow if np.dtype(name).itemsize < width]
        return next(iter(narrower), self.dtype.name)

    def to_column(self, key: str, attribute: str, form: ItemForm = "axis") -> Column:
        """Return the column of these values; integers have bounds."""
        stored = self.stored_dtype
        column = Column(
            key=key,
            attribute=attribute,
            stored=stored,
            presented=self.dtype.name,
            shape=self.shape,
            form=form,
            finite=self.finite,
        )
        if stored.startswith("float") or self.low is None or self.high is None:
            return column
        return replace(column, low=int(self.low), high=int(self.high))


def _keeps_every_bit(name: str, values: Array) -> bool:
    """True if a dtype gives back every bit of floats (n,)."""
    if values.dtype == name:
        return True
    with np.errstate(all="ignore"):
        back = values.astype(name).astype(values.dtype)
    bits = _BITS[values.dtype.itemsize]
    return np.array_equal(back.view(bits), values.view(bits))
