"""Read points from text, one per line, rounded as Python rounds them.

A number becomes ``float32(float64(text))``, both steps correctly rounded, bit for bit what Python's
``float`` and a float32 tensor give. Lines end with LF, CRLF or CR; the last one needs no line break.
"""

from __future__ import annotations

import io
import re
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kmip_data.errors import DamagedInput

_ALPHABET: Final = b"0123456789+-.eE \t\n"  #: nothing in it is a number to numpy and none to us
_DECIMAL: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def parse_points(data: bytes, columns: int, *, name: str) -> NDArray[np.float32]:
    """Return the numbers in ``data`` as (N, columns) float32.

    Numbers are decimal, separated by blanks or tabs, ``columns`` of them on every line. Raises
    ``DamagedInput`` where the file is empty, or a line, which is named, is something else or not finite.
    """
    text = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    lines = text.count(b"\n") + (not text.endswith(b"\n"))
    if text.strip() and not text.translate(None, _ALPHABET):
        try:
            numbers = np.loadtxt(io.BytesIO(text), np.float64, comments=None, ndmin=2)
        except ValueError:
            numbers = np.empty((0, 0))
        with np.errstate(over="ignore"):
            points = numbers.astype(np.float32)
        if points.shape == (lines, columns) and np.isfinite(points).all():
            return points
    raise _first_mistake(text, columns, name)


def _first_mistake(text: bytes, columns: int, name: str) -> DamagedInput:
    """Return the error for the first malformed line."""
    for number, line in enumerate(text.removesuffix(b"\n").decode("latin-1").split("\n"), 1):
        words = [word for word in re.split("[ \t]", line) if word]
        with np.errstate(over="ignore"):
            bad = [w for w in words if not (_DECIMAL.fullmatch(w) and np.isfinite(np.float32(float(w))))]
        if not text:
            what, expected, found = "the file is empty", f"lines of {columns} numbers", "no line"
        elif bad and words.index(bad[0]) < columns:
            what, expected = "not a finite decimal number", "such as -0.250470"
            found = repr(bad[0][:80])
        elif len(words) != columns:
            what, expected = "wrong number of columns", f"{columns}"
            found = f"{len(words)}: {line[:80]!r}"
        else:
            continue
        return DamagedInput(f"{name}, line {number}: {what}.", expected=expected, found=found)
    raise AssertionError(f"{name}: every line is well-formed, and yet numpy reads something else")
