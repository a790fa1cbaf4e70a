"""Tables of numbers without a header, gzip-compressed, read block by block.

A compiled kernel parses the text, about ten times as fast as Python row by row. A number becomes
the nearest float64, as with Python's ``float``: up to 15 digits directly, since digits and power of
ten are exact; a block with a longer number is parsed again by Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kmip_data.arrays import F64, I64, U8
from kmip_data.errors import DamagedInput
from kmip_data.files.reading import InflateError, open_gzip
from kmip_data.runtime.parallel import njit_nogil
from kmip_data.text import count_with_noun

BLOCK = 2**20  #: bytes of text that are read at a time
EXACT = 22  #: the largest power of ten that is a float64
POWERS: F64 = np.array([10.0**power for power in range(EXACT + 1)])

#: Results of the kernel.
_FAULT = 0
_SOUND = 1
_TOO_LONG = 2  #: a number is too long for the kernel
_MAX_MANTISSA = 10**17  #: further digits are skipped
_MINUS = ord("-")
_PLUS = ord("+")
_POINT = ord(".")
_COMMA = ord(",")
_LF = ord("\n")
_CR = ord("\r")
_ZERO = ord("0")
_E = ord("e")
_N = ord("n")
_A = ord("a")
_LOWER = 32  #: bit that is set in small letters


@dataclass(frozen=True)
class NumberTable:
    """A file of numbers separated by commas, a row a line, and the bounds of its values."""

    path: Path
    columns: int
    max_bytes: int  #: most bytes of the decompressed text
    low: float = -float(np.finfo(np.float32).max)
    high: float | Sequence[int] = float(
        np.finfo(np.float32).max
    )  #: largest value of all columns, or of each
    integers: bool = True  #: True if ``0.5`` is a problem
    missing: bool = False  #: True if a field may be empty, or ``nan``: NaN
    empty: bool = False  #: True if the file may be empty

    @property
    def name(self) -> str:
        """Folder and name of the file, for messages."""
        return f"{self.path.parent.name}/{self.path.name}"

    def blocks(self) -> Iterator[F64]:
        """Yield the rows in order, float64 (rows, columns), about a million characters at a time.

        Raises ``DamagedInput``, which names the line, where the file is cut off, too large, or has
        something else than numbers inside the bounds.
        """
        line = 0
        for text in self._read_lines():
            values = self._parse_lines(text, line)
            is_bad = ~((values >= self.low) & (values <= np.asarray(self.high)))
            if self.integers:
                is_bad |= values != np.rint(values)
            if self.missing:
                is_bad &= ~np.isnan(values)
            if is_bad.any():
                row = int(is_bad.any(axis=1).argmax())
                raise self._bad_line_error(text, line, row)
            yield values
            line += len(values)
        if not line and not self.empty:
            raise DamagedInput(f"{self.name} has no lines.")

    def column(self) -> I64:
        """Return the integers of a table of one column, int64 (rows,)."""
        pieces = [values[:, 0].astype(np.int64) for values in self.blocks()]
        return np.concatenate([np.empty(0, np.int64), *pieces])

    def store(
        self,
        path: Path,
        dtype: str,
        rows: int,
        *,
        take: Sequence[int],
        check: Callable[[F64, int], None] | None = None,
    ) -> None:
        """Write the columns ``take`` of all rows to ``path`` as ``dtype``; ``check`` gets blocks (n, columns).

        ``check`` is called with the rows of each block and the number of the first. Raises
        ``DamagedInput`` where there are other than ``rows``.
        """
        count = 0
        with path.open("wb") as file:
            for values in self.blocks():
                if check is not None and count + len(values) <= rows:
                    check(values, count)
                file.write(values.astype(dtype)[:, take].tobytes())
                count += len(values)
        if count != rows:
            raise DamagedInput(
                f"{self.name} does not have as many lines as the files next to it state.",
                expected=f"{rows:,}",
                found=f"{count:,}",
            )

    def _parse_lines(self, text: bytes, lines_before: int) -> F64:
        """Return the numbers of whole lines that follow ``lines_before`` others."""
        values = np.empty(len(text))  # empty fields are one character each
        outcome, count = parse_numbers(np.frombuffer(text, np.uint8), self.columns, POWERS, values)
        if outcome == _FAULT:
            raise self._bad_line_error(text, lines_before, count // self.columns)
        if outcome == _TOO_LONG:
            words = text.replace(b"\r", b"").removesuffix(b"\n").replace(b"\n", b",").split(b",")
            return np.array([float(word or b"nan") for word in words]).reshape(-1, self.columns)
        return values[:count].reshape(-1, self.columns)

    def _bad_line_error(self, text: bytes, lines_before: int, row: int) -> DamagedInput:
        numbers = count_with_noun(self.columns, "integer" if self.integers else "number")
        return DamagedInput(
            f"{self.name}, line {lines_before + row + 1}: not {numbers} from {self.low} to {self.high}.",
            found=ascii(text.split(b"\n")[row][:80].decode("latin-1")),
        )

    def _read_lines(self) -> Iterator[bytes]:
        """Yield the decompressed text in pieces of whole lines, each of which ends with LF."""
        size = 0
        lines = 0
        rest = b""
        try:
            with open_gzip(self.path) as file:
                while data := file.read(BLOCK):
                    size += len(data)
                    if size > self.max_bytes:
                        raise DamagedInput(
                            f"{self.name} is too large: more than {self.max_bytes:,} bytes, decompressed."
                        )
                    whole, newline, after = data.rpartition(b"\n")
                    if newline:
                        yield rest + whole + newline
                        lines += whole.count(newline) + 1
                        rest = after
                    else:
                        rest += data
                    if len(rest) > BLOCK:
                        raise DamagedInput(
                            f"{self.name}, line {lines + 1}: longer than {BLOCK:,} characters."
                        )
        except (InflateError, EOFError, OSError) as error:
            raise DamagedInput(
                f"{self.name} is damaged after line {lines}.",
                found=f"{type(error).__name__}: {error}",
            ) from error
        if rest:
            yield rest + b"\n"


@njit_nogil()
def parse_numbers(text: U8, columns: int, powers: F64, values: F64) -> tuple[int, int]:
    """Write the numbers of a text (bytes,), which ends with LF, into ``values`` (n,).

    Returns the result and how many numbers were read: all, or those before the problem.
    """
    outcome = _SOUND
    count = 0
    column = 0
    i = 0
    while i < len(text):
        # A digit and the comma or line end behind it, as most fields of molecules are: a
        # fifteenth of the time.
        digit = text[i] - _ZERO
        if 0 <= digit < 10:
            end = text[i + 1]
            is_last = column + 1 == columns
            if end == (_LF if is_last else _COMMA):
                values[count] = digit
                column = 0 if is_last else column + 1
                count += 1
                i += 2
                continue

        i, state, number = _parse_number(text, i, powers)
        if state == _FAULT:
            return _FAULT, count
        outcome = max(outcome, state)
        values[count] = number

        # A comma, or the end of the line after the last column.
        column += 1
        if text[i] == _CR and i + 1 < len(text) and text[i + 1] == _LF:
            i += 1
        if text[i] == _LF and column == columns:
            column = 0
        elif text[i] != _COMMA or column == columns:
            return _FAULT, count
        count += 1
        i += 1
    return outcome, count


@njit_nogil()
def _parse_number(text: U8, i: int, powers: F64) -> tuple[int, int, float]:
    """Return where the number at ``i`` ends, its result and its value, NaN where the field is empty."""
    sign = 1.0
    if text[i] == _MINUS:
        sign = -1.0
        i += 1

    # 1. Digits before and after the point: the number is ±mantissa · 10^scale.
    start = i
    i, mantissa, _ = _parse_digits(text, i, 0)
    count = i - start
    scale = 0
    if text[i] == _POINT:
        start = i + 1
        i, mantissa, scale = _parse_digits(text, start, mantissa)
        count += i - start
        scale = -scale
        if not count:
            return i, _FAULT, np.nan
    if not count:
        # An empty field, or nan in any case.
        is_nan = i + 3 < len(text) and text[i] | _LOWER == _N and text[i + 1] | _LOWER == _A
        if is_nan and text[i + 2] | _LOWER == _N:
            return i + 3, _SOUND, np.nan
        return i, _FAULT if sign < 0 else _SOUND, np.nan

    # 2. An exponent.
    if text[i] | _LOWER == _E:
        i += 1
        step = 1
        if text[i] == _MINUS or text[i] == _PLUS:
            step = _COMMA - text[i]
            i += 1
        start = i
        i, exponent, _ = _parse_digits(text, i, 0)
        if i == start:
            return i, _FAULT, np.nan
        scale += step * exponent

    # 3. Both factors are exact, so that one rounding gives the nearest number.
    if mantissa > 2**53 or scale > EXACT or scale < -EXACT:
        return i, _TOO_LONG, np.nan
    if scale < 0:
        return i, _SOUND, sign * (mantissa / powers[-scale])
    return i, _SOUND, sign * (mantissa * powers[scale])


@njit_nogil()
def _parse_digits(text: U8, i: int, value: int) -> tuple[int, int, int]:
    """Append the digits at ``i`` to ``value``; return where they end, it, and how many were taken."""
    taken = 0
    while text[i] >= _ZERO and text[i] - _ZERO < 10:
        if value < _MAX_MANTISSA:
            value = 10 * value + (text[i] - _ZERO)
            taken += 1
        i += 1
    return i, value, taken
