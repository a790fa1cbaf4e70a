"""Type aliases of arrays by dtype, and shape patterns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I8 = NDArray[np.int8]
I32 = NDArray[np.int32]
I16 = NDArray[np.int16]
I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]
U64 = NDArray[np.uint64]
Integers = NDArray[np.integer[Any]]  #: integers of any width
Array = NDArray[Any]  #: values of any dtype
DType = np.dtype[np.generic]


def shape_matches(shape: Sequence[int], pattern: Sequence[int | None]) -> bool:
    """True if ``shape`` matches ``pattern``, in which ``None`` stands for any length."""
    if len(shape) != len(pattern):
        return False
    return all(length in {None, size} for length, size in zip(pattern, shape, strict=True))


def format_shape_pattern(pattern: Sequence[int | None]) -> str:
    """Format a shape pattern for a message, such as ``(any, 2)``."""
    lengths = ", ".join("any" if length is None else str(length) for length in pattern)
    return f"({lengths})"
