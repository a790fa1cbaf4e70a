"""Write a list of tuples of tensors and arrays as ``pickle.dump`` does with torch's tensors, without torch.

Python's own pickler with protocol 4, but without frames, which only help reading.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kmip_data.pipelines.samples.torch_writer import STORAGE_NAMES


class Tensor:
    """An array to be written as a tensor; others are written as numpy arrays."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = np.ascontiguousarray(array)


def write_pickled_list(path: Path, items: Iterable[tuple[Tensor | NDArray[Any], ...]]) -> None:
    """Write the items; the same items give the same bytes."""
    with path.open("wb") as file:
        _Pickler(file, protocol=4).dump(list(items))


def storage_bytes(array: NDArray[Any], key: str) -> bytes:
    """Return the file that ``torch.save`` makes of the storage of a tensor, in its older layout."""
    text = b"X" + struct.pack("<I", len(key)) + key.encode()
    return (
        b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}q\x00("
        b"X\x10\x00\x00\x00protocol_versionq\x01M\xe9\x03X\r\x00\x00\x00little_endianq\x02\x88"
        b"X\n\x00\x00\x00type_sizesq\x03}q\x04(X\x05\x00\x00\x00shortq\x05K\x02"
        b"X\x03\x00\x00\x00intq\x06K\x04X\x04\x00\x00\x00longq\x07K\x04uu."
        b"\x80\x02(X\x07\x00\x00\x00storageq\x00c" + STORAGE_NAMES[array.dtype] + b"\nq\x01" + text + b"q\x02"
        b"X\x03\x00\x00\x00cpuq\x03" + pickle.dumps(array.size, 2)[2:-1] + b"Ntq\x04Q."
        b"\x80\x02]q\x00" + text + b"q\x01a." + struct.pack("<q", array.size) + array.tobytes()
    )


class _Name:
    """A function or class that is pickled by its name alone; calling it is never needed."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def __call__(self) -> None:
        raise NotImplementedError


_NUMPY = "numpy"  #: one object, which the pickler recalls
_TENSOR, _STORAGE = _Name("torch._utils", "_rebuild_tensor_v2"), _Name("torch.storage", "_load_from_bytes")
_HOOKS, _RECONSTRUCT = _Name("collections", "OrderedDict"), _Name("numpy.core.multiarray", "_reconstruct")
_NDARRAY, _DTYPE = _Name(_NUMPY, "ndarray"), _Name(_NUMPY, "dtype")


class _Reduced:
    """A part of a tensor: what makes it, and with which arguments."""

    def __init__(self, made_by: _Name, *arguments: Any) -> None:
        self.made_by, self.arguments = made_by, arguments


class _Pickler(pickle._Pickler):  # type: ignore[name-defined,misc]  # noqa: SLF001 -- the one written in Python
    storages = 0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.framer.start_framing = lambda: None

    def save(self, obj: Any, save_persistent_id: bool = True) -> None:
        """Write tensors as torch reduces them, and arrays as numpy before version 2; else as usual."""
        if id(obj) in self.memo:
            super().save(obj, save_persistent_id)
        elif isinstance(obj, _Name):
            self.save(obj.module)
            self.save(obj.name)
            self.write(pickle.STACK_GLOBAL)
            self.memoize(obj)
        elif isinstance(obj, _Reduced):
            self.save_reduce(obj.made_by, obj.arguments, obj=obj)
        elif isinstance(obj, Tensor):
            self.storages += 1
            data = storage_bytes(obj.array, f"{94_000_000_000_000 + self.storages}")
            strides = tuple(step // obj.array.itemsize for step in obj.array.strides)
            made = _Reduced(_STORAGE, data), 0, obj.array.shape, strides, False, _Reduced(_HOOKS)
            self.save_reduce(_TENSOR, made, obj=obj)
        elif isinstance(obj, np.ndarray):
            state = (1, obj.shape, obj.dtype, False, obj.tobytes())
            self.save_reduce(_RECONSTRUCT, (_NDARRAY, tuple([0]), b"b"), state, obj=obj)  # noqa: C409
        elif isinstance(obj, np.dtype):
            state = (3, obj.str[0], None, None, None, -1, -1, 0)
            self.save_reduce(_DTYPE, (obj.str[1:], False, True), state, obj=obj)
        else:
            super().save(obj, save_persistent_id)
