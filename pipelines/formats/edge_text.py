"""Read edge lists from text: comment lines, then two node numbers per line."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kmip_data.errors import DamagedInput

MAX_ID: Final = 2**24  #: node numbers must be below; those of the published graphs are below 15,000


def parse_edges(data: bytes, *, name: str) -> tuple[list[str], NDArray[np.int32]]:
    """Return the comment lines at the top and the edges, int32 (2, E), in the order of the lines.

    Numbers are separated by tabs or blanks; lines end with LF or CRLF, the last one needs no line break.
    Raises ``DamagedInput`` where a line, which is named, is not two node numbers.
    """
    text = data.replace(b"\r\n", b"\n").removesuffix(b"\n")
    header: list[str] = []
    while text.startswith(b"#"):
        comment, _, text = text.partition(b"\n")
        header.append(comment.decode("latin-1"))
    if not text:
        return header, np.empty((2, 0), np.int32)
    characters = np.frombuffer(b"\n" + text, np.uint8)
    line = np.cumsum(characters == ord("\n")) - 1  # of each character
    digit = characters - np.uint8(ord("0")) < 10
    begins = np.flatnonzero(digit[1:] & ~digit[:-1]) + 1
    bad = np.bincount(line[begins], minlength=line[-1] + 1) != 2
    bad[line[~digit & (characters != ord("\n")) & (characters != ord("\t")) & (characters != ord(" "))]] = (
        True
    )
    if not bad.any():
        edges = np.fromstring(text, np.int64, sep=" ").reshape(-1, 2)
        bad = (edges >= MAX_ID).any(axis=1)
        if not bad.any():
            return header, edges.T.astype(np.int32, order="C")
    at = int(bad.argmax())
    raise DamagedInput(
        f"{name}, line {len(header) + at + 1}: not an edge.",
        expected=f"two node numbers below {MAX_ID:,}, such as 0\\t17",
        found=repr(text.split(b"\n")[at].decode("latin-1")[:80]),
    )
