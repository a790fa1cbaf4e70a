"""Write a list of tuples of tensors and arrays as ``pickle.dump`` does with torch's tensors, without torch.

Opcode by opcode what Python's pickler writes with protocol 4, but for frames, which only help reading.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kmip_data.pipelines.samples.torch_writer import STORAGE_NAMES

_BATCH: Final = 1_000  #: items that a pickler appends at once


class Tensor:
    """An array to be written as a tensor; others are written as numpy arrays."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = np.ascontiguousarray(array)


def write_pickled_list(path: Path, items: Iterable[tuple[Tensor | NDArray[Any], ...]]) -> None:
    """Write the items one by one; the same items give the same bytes."""
    with path.open("wb") as file:
        pickle = _Pickle()
        file.write(b"\x80\x04]" + pickle.memoize())
        batch: list[bytes] = []
        for item in items:
            batch.append(b"(" + b"".join(map(pickle.of, item)) + b"t" + pickle.memoize())
            if len(batch) == _BATCH:
                file.write(b"(" + b"".join(batch) + b"e")
                batch.clear()
        if len(batch) == 1:
            file.write(batch[0] + b"a")
        elif batch:
            file.write(b"(" + b"".join(batch) + b"e")
        file.write(b".")


def storage_bytes(array: NDArray[Any], key: str) -> bytes:
    """Return the file that ``torch.save`` makes of the storage of a tensor, in its older layout."""
    text = b"X" + struct.pack("<I", len(key)) + key.encode()
    return (
        b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}q\x00("
        b"X\x10\x00\x00\x00protocol_versionq\x01M\xe9\x03X\r\x00\x00\x00little_endianq\x02\x88"
        b"X\n\x00\x00\x00type_sizesq\x03}q\x04(X\x05\x00\x00\x00shortq\x05K\x02"
        b"X\x03\x00\x00\x00intq\x06K\x04X\x04\x00\x00\x00longq\x07K\x04uu."
        b"\x80\x02(X\x07\x00\x00\x00storageq\x00c" + STORAGE_NAMES[array.dtype] + b"\nq\x01" + text + b"q\x02"
        b"X\x03\x00\x00\x00cpuq\x03" + _number(array.size) + b"Ntq\x04Q."
        b"\x80\x02]q\x00" + text + b"q\x01a." + struct.pack("<q", array.size) + array.tobytes()
    )


def _number(value: int) -> bytes:
    if 0 <= value < 1 << 8:
        return b"K" + struct.pack("<B", value)
    if 0 <= value < 1 << 16:
        return b"M" + struct.pack("<H", value)
    return b"J" + struct.pack("<i", value)


def _string(data: bytes) -> bytes:
    if len(data) < 1 << 8:
        return b"C" + struct.pack("<B", len(data)) + data
    return b"B" + struct.pack("<I", len(data)) + data


class _Pickle:
    """The memo of a pickle that is being written."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}  #: place in the memo of what is written only once
        self._next = 0
        self._storages = 0

    def memoize(self, name: str = "") -> bytes:
        if name:
            self._places[name] = self._next
        self._next += 1
        return b"\x94"

    def of(self, value: Tensor | NDArray[Any]) -> bytes:
        return self._tensor(value.array) if isinstance(value, Tensor) else self._array(value)

    def _tensor(self, array: NDArray[Any]) -> bytes:
        rebuild = self._name("torch._utils", "_rebuild_tensor_v2")
        load = b"(" + self._name("torch.storage", "_load_from_bytes")
        self._storages += 1
        data = storage_bytes(array, f"{94_000_000_000_000 + self._storages}")
        storage = _string(data) + self.memoize() + b"\x85" + self.memoize() + b"R" + self.memoize()
        shape = b"K\x00" + self._tuple(array.shape)
        strides = self._tuple([step // array.itemsize for step in array.strides])
        hooks = b"\x89" + self._name("collections", "OrderedDict") + b")R" + self.memoize()
        end = b"t" + self.memoize() + b"R" + self.memoize()
        return rebuild + load + storage + shape + strides + hooks + end

    def _array(self, array: NDArray[Any]) -> bytes:
        out = self._name("numpy.core.multiarray", "_reconstruct") + self._name("numpy", "ndarray")
        out += b"K\x00\x85" + self.memoize() + self._once("b", b"C\x01b")
        out += b"\x87" + self.memoize() + b"R" + self.memoize()
        out += b"(K\x01" + self._tuple(array.shape) + self._dtype(array.dtype)
        return out + b"\x89" + _string(array.tobytes()) + self.memoize() + b"t" + self.memoize() + b"b"

    def _dtype(self, dtype: np.dtype[Any]) -> bytes:
        if (known := f"dtype {dtype.str}") in self._places:
            return self._recall(known)
        out = self._name("numpy", "dtype") + self._text(dtype.str[1:]) + b"\x89\x88\x87" + self.memoize()
        out += b"R" + self.memoize(known) + b"(K\x03" + self._text(dtype.str[0])
        return out + b"NNN" + b"J\xff\xff\xff\xff" * 2 + b"K\x00t" + self.memoize() + b"b"

    def _tuple(self, numbers: Iterable[int]) -> bytes:
        parts = [_number(int(number)) for number in numbers]
        return b"".join(parts) + {1: b"\x85", 2: b"\x86"}[len(parts)] + self.memoize()

    def _name(self, module: str, attribute: str) -> bytes:
        if (known := f"{module}.{attribute}") in self._places:
            return self._recall(known)
        return self._text(module) + self._text(attribute) + b"\x93" + self.memoize(known)

    def _text(self, text: str) -> bytes:
        return self._once(f"text {text}", b"\x8c" + struct.pack("<B", len(text)) + text.encode())

    def _once(self, name: str, written: bytes) -> bytes:
        return self._recall(name) if name in self._places else written + self.memoize(name)

    def _recall(self, name: str) -> bytes:
        place = self._places[name]
        return b"h" + struct.pack("<B", place) if place < 1 << 8 else b"j" + struct.pack("<I", place)
