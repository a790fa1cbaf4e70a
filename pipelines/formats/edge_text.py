"""Read edge lists from text: comment lines, then two node numbers a line."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kmip_data.errors import DamagedInput

MAX_ID: Final = 2**24  #: node numbers must be below; those of the published graphs are below 15,000
_DONE: Final = 0  #: state of the kernel


def parse_edges(data: bytes, *, name: str) -> tuple[list[str], NDArray[np.int32]]:
    """Return the comment lines at the top and the edges, int32 (2, E), in the order of the lines.

    Numbers are separated by tabs or blanks; lines end with LF or CRLF, the last one needs no line break.

    Parameters
    ----------
    name
        What messages call the file.

    Raises
    ------
    DamagedInput
        A line is not two node numbers; it is named.
    """
    header: list[str] = []
    at = 0
    while data.startswith(b"#", at):
        end = data.find(b"\n", at) + 1 or len(data)
        header.append(data[at:end].decode("latin-1").rstrip("\r\n"))
        at = end
    edges = np.empty((2, data.count(b"\n", at) + 1), np.int32)
    count, status = _kernel()(np.frombuffer(data, np.uint8), at, MAX_ID, edges)
    if status != _DONE:
        line = data[at:].split(b"\n")[count].decode("latin-1")
        raise DamagedInput(
            f"{name}, line {len(header) + count + 1}: not an edge.",
            expected=f"two node numbers below {MAX_ID:,}, such as 0\\t17",
            found=repr(line[:80]),
        )
    return header, edges[:, :count]


@functools.cache
def _kernel() -> Callable[..., tuple[int, int]]:
    """Return the compiled parser (numba is imported on first use)."""
    from kmip_data.pipelines.formats._edge_text_kernel import parse

    kernel: Callable[..., tuple[int, int]] = parse
    return kernel
