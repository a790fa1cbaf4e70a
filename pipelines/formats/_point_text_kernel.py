"""Compiled kernel of :mod:`kmip_data.pipelines.formats.point_text`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kmip_data.runtime.compiled import njit_nogil

DONE, BAD_NUMBER, BAD_COLUMNS = 0, 1, 2


@njit_nogil()
def parse(  # noqa: C901, PLR0912 -- one function on purpose: with the number in its own it took 2.7 times as long
    data: NDArray[np.uint8], powers: NDArray[np.float64], out: NDArray[np.float32], unsure: NDArray[np.int64]
) -> tuple[int, int, int, int, int]:
    """Fill ``out`` (rows, columns) and return (rows, status, line, byte, words left to Python).

    Up to 19 digits that are an integer of at most 2**53, times or over a power of ten up to 10**22, are
    one correctly rounded operation on two exact float64 (W. D. Clinger, "How to read floating point
    numbers accurately", 1990). Words that need more are noted in ``unsure`` as ``index << 40 | byte``.
    """
    size, columns = len(data), out.shape[1]
    at = row = unsure_count = 0
    while at < size:
        column = 0
        while True:
            while at < size and (data[at] == 32 or data[at] == 9):
                at += 1
            if at == size or data[at] == 10 or data[at] == 13:
                break
            if column == columns:
                return row, BAD_COLUMNS, row + 1, at, unsure_count
            start = at
            negative = data[at] == 45
            if negative or data[at] == 43:
                at += 1
            mantissa = np.uint64(0)
            digits = places = 0
            point = False
            while at < size:
                code = data[at]
                if 48 <= code <= 57:
                    mantissa = mantissa * np.uint64(10) + np.uint64(code - 48)
                    digits += 1
                    places += point
                elif code == 46 and not point:
                    point = True
                else:
                    break
                at += 1
            if digits == 0:
                return row, BAD_NUMBER, row + 1, start, unsure_count
            exponent = -places
            if at < size and (data[at] == 101 or data[at] == 69):
                at += 1
                down = at < size and data[at] == 45
                if down or (at < size and data[at] == 43):
                    at += 1
                first, value = at, 0
                while at < size and 48 <= data[at] <= 57:
                    value = min(value * 10 + data[at] - 48, 100_000)
                    at += 1
                if at == first:
                    return row, BAD_NUMBER, row + 1, start, unsure_count
                exponent += -value if down else value
            if at < size and not (data[at] == 32 or data[at] == 9 or data[at] == 10 or data[at] == 13):
                return row, BAD_NUMBER, row + 1, start, unsure_count
            if digits <= 19 and mantissa <= np.uint64(9007199254740992) and -22 <= exponent <= 22:
                number = np.float64(mantissa)
                number = number / powers[-exponent] if exponent < 0 else number * powers[exponent]
                out[row, column] = np.float32(-number if negative else number)
                if not np.isfinite(out[row, column]):
                    return row, BAD_NUMBER, row + 1, start, unsure_count
            else:
                unsure[unsure_count] = ((row * columns + column) << 40) | start
                unsure_count += 1
            column += 1
        if column != columns:
            return row, BAD_COLUMNS, row + 1, at, unsure_count
        row += 1
        if at + 1 < size and data[at] == 13 and data[at + 1] == 10:
            at += 1
        at += 1
    return row, DONE, row, at, unsure_count
