"""Range of a column's values in all graphs, and the narrowest dtype that stores them exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from kmip_data.arrays import Array, DType
from kmip_data.format.schema import Column, ItemForm

#: Dtypes that may store floats, narrowest first; among equal widths, the fastest to widen first.
_FLOAT_STORAGE_DTYPES = (
    "uint8",
    "int8",
    "float16",
    "uint16",
    "int16",
    "float32",
    "uint32",
    "int32",
)
_BLOCK_VALUES = 2**20  #: values examined at a time, so that temporary copies stay small
_BUFFERED_VALUES = 2**12  #: largest array that is buffered and examined together with others
_BIT_DTYPES = {2: "uint16", 4: "uint32", 8: "uint64"}  #: by bytes of a value


def narrowest_integer_dtype(low: int, high: int) -> str:
    """Return the narrowest integer dtype that holds ``low`` to ``high``."""
    # A signed dtype has as many negative numbers as others.
    farthest = high if low >= 0 else min(low, -high - 1)
    return np.min_scalar_type(farthest).name


@dataclass
class ColumnStatistics:
    """Statistics of a column whose rows are added graph by graph.

    Floats are stored in the narrowest dtype that restores every bit: no integer dtype restores −0.0
    or NaN, and float16 does not restore 0.1.
    """

    dtype: DType
    shape: tuple[int, ...]  #: shape of a row
    low: float | int | None = None
    high: float | int | None = None
    finite: bool = True
    missing: int = 0  #: number of NaN among floats
    _exact_dtypes: list[str] = field(default_factory=lambda: list(_FLOAT_STORAGE_DTYPES))
    _buffer: list[Array] = field(default_factory=list)
    _buffer_size: int = 0

    def add(self, rows: Array) -> None:
        """Add rows of any shape; small arrays are buffered and examined together."""
        if rows.size > _BUFFERED_VALUES:
            self._examine(rows.reshape(-1))
            return
        # Copy: rows may be a view of a file that is mapped only until the next graph.
        self._buffer.append(rows.flatten())
        self._buffer_size += rows.size
        if self._buffer_size > _BLOCK_VALUES // 8:
            self._flush_buffer()

    def _flush_buffer(self) -> None:
        if self._buffer:
            self._examine(np.concatenate(self._buffer))
            self._buffer.clear()
            self._buffer_size = 0

    def _examine(self, values: Array) -> None:
        for start in range(0, len(values), _BLOCK_VALUES):
            block = values[start : start + _BLOCK_VALUES]
            low = block.min().item()
            high = block.max().item()
            if block.dtype.kind == "f":
                self.finite &= math.isfinite(low) and math.isfinite(high)
                if math.isnan(low):
                    self.missing += int(np.isnan(block).sum())
                self._exact_dtypes = [
                    name for name in self._exact_dtypes if _restores_every_bit(name, block)
                ]
            self.low = low if self.low is None else min(self.low, low)
            self.high = high if self.high is None else max(self.high, high)

    @property
    def stored_dtype(self) -> str:
        """Narrowest dtype that stores all values exactly."""
        self._flush_buffer()
        if self.dtype.kind == "b":
            return "uint8"
        if self.low is None or self.high is None:
            return self.dtype.name
        if self.dtype.kind in "iu":
            return narrowest_integer_dtype(int(self.low), int(self.high))
        for name in self._exact_dtypes:
            if np.dtype(name).itemsize < self.dtype.itemsize:
                return name
        return self.dtype.name

    def to_column(self, key: str, attribute: str, form: ItemForm = "axis") -> Column:
        """Return the column of these values, with bounds if they are stored as integers."""
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


def _restores_every_bit(name: str, values: Array) -> bool:
    """True if floats (n,) survive a round trip through the dtype ``name`` bit by bit."""
    if values.dtype == name:
        return True
    with np.errstate(all="ignore"):
        restored = values.astype(name).astype(values.dtype)
    bit_dtype = _BIT_DTYPES[values.dtype.itemsize]
    return np.array_equal(restored.view(bit_dtype), values.view(bit_dtype))
