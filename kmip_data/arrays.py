"""Array types by dtype, of any shape."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]
Integers = NDArray[np.integer[Any]]  #: of any width
Array = NDArray[Any]  #: of any dtype
