"""Read points from text, one a line, as fast as the bytes go by and rounded as Python rounds them.

A number becomes ``float32(float64(text))``, both steps correctly rounded, bit for bit what Python's
``float`` and a float32 tensor give. Lines end with LF, CRLF or CR; the last one needs no line break.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kmip_data.errors import DamagedInput

BAD_NUMBER: Final = 1  #: states of the kernel
BAD_COLUMNS: Final = 2

_POWERS = 10.0 ** np.arange(23)  # exact in float64 up to 10²²


def parse_points(data: bytes, columns: int, *, name: str) -> NDArray[np.float32]:
    """Return the numbers in ``data`` as (N, columns) float32.

    Parameters
    ----------
    data
        Decimal numbers separated by blanks or tabs, ``columns`` of them on every line.
    name
        What messages call the file.

    Raises
    ------
    DamagedInput
        The file is empty, a line has another number of columns, or a word is no finite decimal
        number; the line is named.
    """
    raw = np.frombuffer(data, np.uint8)
    rows = data.count(b"\n") + data.count(b"\r") + 1
    out = np.empty((rows, columns), np.float32)
    unsure = np.empty(rows * columns, np.int64)
    rows, status, line, at, unsure_count = _kernel()(raw, _POWERS, out, unsure)
    if status == BAD_COLUMNS:
        raise DamagedInput(
            f"{name}, line {line}: wrong number of columns.",
            expected=f"{columns}",
            found=_line_at(data, line),
        )
    if status == BAD_NUMBER:
        raise _no_number(name, line, _word_at(data, at))
    if rows == 0:
        raise DamagedInput(
            f"{name}, line 1: the file is empty.", expected=f"lines of {columns} numbers", found="no line"
        )
    out = out[:rows]
    # Words of too many digits or too large an exponent for the fast way, by Python itself.
    flat = out.reshape(-1)
    for entry in unsure[:unsure_count]:
        index, at = int(entry) >> 40, int(entry) & (1 << 40) - 1
        with np.errstate(over="ignore"):
            flat[index] = np.float32(float(_word_at(data, at)))
        if not np.isfinite(flat[index]):
            raise _no_number(name, index // columns + 1, _word_at(data, at))
    return out


def _no_number(name: str, line: int, word: str) -> DamagedInput:
    return DamagedInput(
        f"{name}, line {line}: not a finite decimal number.",
        expected="such as -0.250470",
        found=repr(word[:80]),
    )


def _word_at(data: bytes, at: int) -> str:
    return re.split(rb"[ \t\r\n]", data[at : at + 4096], maxsplit=1)[0].decode("latin-1")


def _line_at(data: bytes, line: int) -> str:
    text = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")[line - 1].decode("latin-1")
    return f"{len(text.split())}: {text[:80]!r}"


@functools.cache
def _kernel() -> Callable[..., tuple[int, int, int, int, int]]:
    """Return the compiled parser (numba is imported on first use)."""
    from kmip_data.pipelines.formats._point_text_kernel import parse

    kernel: Callable[..., tuple[int, int, int, int, int]] = parse
    return kernel
