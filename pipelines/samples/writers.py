"""Sizes of the parts of a sample, and writers of torch's files without torch.

Lists of tuples of tensors are written as ``pickle.dump`` does: by Python's own pickler with protocol 4, but
without frames, which only help reading.
"""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kmip_data.pipelines.formats.tensors import STORAGES


def part_sizes(total: int, published: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes of train, val and test: the published shares, no part empty from three records on."""
    everything = sum(published.values())
    least = 1 if total >= 3 else 0
    val, test = (max(round(total * published[part] / everything), least) for part in ("val", "test"))
    return {"train": total - val - test, "val": val, "test": test}


def deal(rows: NDArray[np.int64], sizes: Mapping[str, int]) -> dict[str, NDArray[np.int64]]:
    """Return ``rows``, in their order, cut into parts of these sizes."""
    return dict(zip(sizes, np.split(rows, np.cumsum(list(sizes.values()))[:-1]), strict=True))


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


_WrittenInPython: Any = vars(pickle)["_Pickler"]  #: the pickler whose steps can be overridden


class _Pickler(_WrittenInPython):  # type: ignore[misc]
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
            order = (3, obj.str[0], None, None, None, -1, -1, 0)
            self.save_reduce(_DTYPE, (obj.str[1:], False, True), order, obj=obj)
        else:
            super().save(obj, save_persistent_id)
