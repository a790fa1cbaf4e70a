"""Arrays of a page as one compressed text, and where each begins."""

from __future__ import annotations

import base64
import gzip
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

KINDS: Final = {"uint8": "u8", "uint16": "u16", "uint32": "u32", "float32": "f32", "float64": "f64"}


class Packer:
    """Arrays one after another, and where each begins."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._bytes = 0

    def add(self, values: NDArray[Any]) -> dict[str, Any]:
        """Append an array; return what the page needs to find it."""
        data = np.ascontiguousarray(values).tobytes()
        found = {"kind": KINDS[values.dtype.name], "at": self._bytes, "count": values.size}
        padded = data + bytes(-len(data) % 8)  # typed arrays begin at a multiple of their width
        self._pieces.append(padded)
        self._bytes += len(padded)
        return found

    def add_column(self, values: NDArray[Any]) -> dict[str, Any]:
        """Append a column without loss; one of few distinct values as codes into a table of them."""
        # Identifiers are whole numbers below 2**53, which float64 holds exactly.
        numbers = values if values.dtype == np.float32 else values.astype(np.float64)
        distinct, codes = np.unique(numbers, return_inverse=True)
        if len(distinct) > min(65_536, len(numbers) // 2):
            return {"values": self.add(numbers)}
        narrow = np.uint8 if len(distinct) <= 256 else np.uint16
        return {"values": self.add(distinct), "codes": self.add(codes.astype(narrow))}

    def text(self) -> str:
        """All of it, compressed, as base64; equal arrays give equal text."""
        return base64.b64encode(gzip.compress(b"".join(self._pieces), compresslevel=6, mtime=0)).decode()
