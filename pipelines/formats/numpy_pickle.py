"""The globals that pickled numpy arrays name, for :mod:`kmip_data.pipelines.formats.restricted_pickle`.

Arrays are of plain numbers: a dtype of objects, records or text is refused. An array is a view of the
bytes in the pickle, whose number must be that of its shape. Other values are only inspected by
type, or shown in part: the text and the hash of nested tuples can take time that doubles with each level.
"""

from __future__ import annotations

import math
import re
import reprlib
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kmip_data.pipelines.formats.restricted_pickle import Allowed, Pending, RefusedError, never_called

_NUMBER = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248])")


class _DType(Pending):
    """``numpy.dtype("i8", …)``; the state has the byte order."""

    __slots__ = ("code",)

    def __init__(self, code: Any, *_: Any) -> None:
        super().__init__()
        if not isinstance(code, str) or _NUMBER.fullmatch(code) is None:
            msg = f"an array of dtype {reprlib.repr(code).encode('ascii', 'backslashreplace').decode()}"
            raise RefusedError(msg)
        self.code = code.lstrip("<>|=")

    def finish(self, state: Any) -> None:
        """Take the byte order: ``(3, "<", None, None, None, -1, -1, 0)``."""
        order = state[1]
        if (
            not isinstance(order, str)
            or order not in {"<", ">", "|", "="}
            or any(part is not None for part in state[2:5])
        ):
            raise RefusedError("a dtype with fields")
        self.value = np.dtype(order.replace("|", "=") + self.code)


class _Array(Pending):
    """``_reconstruct(ndarray, (0,), b"b")``; the state has shape, dtype and bytes."""

    __slots__ = ()

    def __init__(self, *_: Any) -> None:
        super().__init__()

    def finish(self, state: Any) -> None:
        """Take ``(1, shape, dtype, Fortran order, bytes)``."""
        _, shape, dtype, fortran, data = state
        self.value = _of_bytes(data, dtype, shape, "F" if fortran else "C")


def _of_bytes(data: Any, dtype: Any, shape: Any, order: Any = "C") -> NDArray[Any]:
    if isinstance(dtype, _DType):  # without a state
        dtype = np.dtype(dtype.code)
    if not isinstance(dtype, np.dtype) or not isinstance(data, bytes | bytearray | memoryview):
        raise RefusedError("an array that is not of plain numbers")
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    if not all(type(size) is int and size >= 0 for size in sizes) or len(sizes) > 8:
        raise ValueError("an array without a shape")
    if math.prod(sizes) * dtype.itemsize != len(data):
        raise ValueError(f"an array of shape {sizes} and {len(data)} bytes")
    return np.frombuffer(data, dtype).reshape(sizes, order="F" if order == "F" else "C")


def _scalar(dtype: Any, data: Any) -> Any:
    return _of_bytes(data, dtype, ())[()]


def _encode(text: Any, encoding: Any = "utf-8") -> bytes:
    """``_codecs.encode``: how protocols 0 to 2 write bytes."""
    if not isinstance(text, str) or not isinstance(encoding, str) or encoding not in {"latin1", "latin-1"}:
        raise RefusedError("a text in another encoding than latin-1")
    return text.encode("latin-1")


def _bytes(*arguments: Any) -> bytes:
    """``bytes()``: how protocol 2 writes no bytes."""
    if arguments:
        raise RefusedError("bytes of something")
    return b""


_CORE: Final[Allowed] = {
    "multiarray._reconstruct": _Array,
    "multiarray.scalar": _scalar,
    "numeric._frombuffer": _of_bytes,
}

#: Names allowed in a pickle of numpy arrays in built-in containers.
NUMPY: Final[Allowed] = {
    "numpy.ndarray": never_called("numpy.ndarray"),
    "numpy.dtype": _DType,
    "_codecs.encode": _encode,
    "__builtin__.bytes": _bytes,
    "builtins.bytes": _bytes,
    **{f"numpy.core.{name}": call for name, call in _CORE.items()},  # before numpy 2
    **{f"numpy._core.{name}": call for name, call in _CORE.items()},
}
