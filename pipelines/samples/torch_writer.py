"""Write nested containers of arrays as ``torch.save`` does, without torch, for samples."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kmip_data.pipelines.formats.tensors import STORAGES

#: dtype -> the two lines that name its storage in a pickle.
STORAGE_NAMES: Final = {np.dtype(code): name.replace(".", "\n").encode() for name, code in STORAGES.items()}


def write_torch_file(path: Path, value: Any) -> None:
    """Write lists, tuples, dicts with text as keys, text, whole numbers, ``None`` and arrays (as tensors).

    ``torch.load(path, weights_only=True)`` reads it; the same value gives the same bytes.
    """
    pickled = _Pickle()
    pickled.put(value)
    write_archive(path, pickled.finish(), pickled.storages)


def write_archive(path: Path, pickled: bytes, storages: Sequence[NDArray[Any]] = ()) -> None:
    """Write the zip of ``torch.save`` around a pickle."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        members = {"data.pkl": pickled, "byteorder": b"little"}
        members |= {f"data/{key}": array.tobytes() for key, array in enumerate(storages)}
        for name, data in {**members, "version": b"3\n"}.items():
            archive.writestr(zipfile.ZipInfo(f"archive/{name}"), data)


class _Pickle:
    """A pickle of protocol 2 that is being written; tensors become references to storages."""

    def __init__(self) -> None:
        self._out = io.BytesIO()
        self._out.write(b"\x80\x02")
        self.storages: list[NDArray[Any]] = []

    def finish(self) -> bytes:
        """Return the bytes."""
        return self._out.getvalue() + b"."

    def put(self, value: Any) -> None:
        """Write one value."""
        write = self._out.write
        if value is None:
            write(b"N")
        elif isinstance(value, bool):
            write(b"\x88" if value else b"\x89")
        elif isinstance(value, int):
            write(b"\x8a\x08" + struct.pack("<q", value))
        elif isinstance(value, str):
            text = value.encode()
            write(b"X" + struct.pack("<I", len(text)) + text)
        elif isinstance(value, np.ndarray):
            self._put_tensor(value)
        elif isinstance(value, dict):
            write(b"}(")
            for key, item in value.items():
                self.put(key)
                self.put(item)
            write(b"u")
        elif isinstance(value, list | tuple):
            write(b"](" if isinstance(value, list) else b"(")
            for item in value:
                self.put(item)
            write(b"e" if isinstance(value, list) else b"t")
        else:
            raise TypeError(f"cannot write a {type(value).__name__}")

    def _put_tensor(self, array: NDArray[Any]) -> None:
        array = np.ascontiguousarray(array).reshape(array.shape)
        write = self._out.write
        write(b"ctorch._utils\n_rebuild_tensor_v2\n((")
        self.put("storage")
        write(b"c" + STORAGE_NAMES[array.dtype] + b"\n")
        for part in (str(len(self.storages)), "cpu", array.size):
            self.put(part)
        write(b"tQ")
        self.put(0)
        self.put(array.shape)
        self.put(tuple(step // array.itemsize for step in array.strides))
        self.put(False)
        write(b"ccollections\nOrderedDict\n)RtR")
        self.storages.append(array)
