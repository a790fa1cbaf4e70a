"""Hostile and broken HDF5 files, each with the words of the refusal that it must meet."""

from __future__ import annotations

import ctypes
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

Attack = Callable[[Path, Path], object]  # (file to write, secret file that must not be opened)
ATTACKS: dict[str, tuple[str, Attack]] = {}
H5 = h5py.File


def open_descriptors() -> int:
    """Number of file descriptors this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


class OpenWatch:
    """Sees whether anyone opens or reads a file (inotify)."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(None, use_errno=True)
        self.descriptor = library.inotify_init1(os.O_NONBLOCK)
        access, opened = 0x1, 0x20
        assert library.inotify_add_watch(self.descriptor, os.fsencode(path), access | opened) >= 0

    def events(self) -> int:
        """Number of bytes of events since the last call: 0 if nothing touched the file."""
        try:
            return len(os.read(self.descriptor, 4096))
        except BlockingIOError:
            return 0

    def close(self) -> None:
        os.close(self.descriptor)


def attack(refusal: str, **options: Any) -> Callable[[Callable[[H5, Path], object]], None]:
    """Register a writer of a new file, opened with ``options``, and a part of the message that refuses it."""

    def register(write: Callable[[H5, Path], object]) -> None:
        def build(path: Path, secret: Path) -> None:
            with H5(path, "w", **options) as file:
                write(file, secret)

        ATTACKS[write.__name__] = (refusal, build)

    return register


def one(refusal: str, /, **attacks: Callable[[H5, Path], object]) -> None:
    """Register attacks of one expression each, by name."""
    for name, write in attacks.items():
        write.__name__ = name
        attack(refusal)(write)


def put(*arguments: Any, **options: Any) -> Callable[[H5, Path], object]:
    """Return a writer of the dataset ``x``."""
    return lambda file, secret: file.create_dataset("x", *arguments, **options)


@attack("holds a link")
def soft_link(file: H5, secret: Path) -> None:
    file["x"] = np.arange(3)
    file["y"] = h5py.SoftLink("/x")


@attack("holds a link")
def soft_link_loop(file: H5, secret: Path) -> None:
    file["x"], file["y"] = h5py.SoftLink("/y"), h5py.SoftLink("/x")


@attack("holds an object twice")
def hard_link_loop(file: H5, secret: Path) -> None:
    group = file.create_group("a/b/c")
    group["up"] = file["a"]


@attack("holds an object twice")
def second_name(file: H5, secret: Path) -> None:
    file["x"] = np.arange(3)
    file["y"] = file["x"]


@attack("holds a virtual dataset", libver="latest")
def virtual_dataset(file: H5, secret: Path) -> None:
    layout = h5py.VirtualLayout((64,), "u1")
    layout[:] = h5py.VirtualSource(str(secret), "x", (64,))
    file.create_virtual_dataset("x", layout)


@attack("holds a virtual dataset", libver="latest")
def virtual_dataset_unlimited(file: H5, secret: Path) -> None:
    layout, every = h5py.VirtualLayout((64,), "u1", maxshape=(None,)), slice(h5py.h5s.UNLIMITED)
    layout[every] = h5py.VirtualSource(str(secret), "x", (64,), maxshape=(None,))[every]
    file.create_virtual_dataset("x", layout)


@attack("TypeArrayID")
def array_type(file: H5, secret: Path) -> None:
    kind = h5py.h5t.array_create(h5py.h5t.NATIVE_INT32, (1000, 1000))
    h5py.h5d.create(file.id, b"x", kind, h5py.h5s.create_simple((2,)))


@attack("declares absurd sizes")
def decompression_bomb(file: H5, secret: Path) -> None:
    x = put((256 * 2**20,), "u1", chunks=(2**20,), compression="gzip")(file, secret)
    for start in range(0, 256 * 2**20, 2**20):
        x.id.write_direct_chunk((start,), zlib.compress(bytes(2**20), 4))  # type: ignore[attr-defined]


@attack("declares absurd sizes")
def many_datasets_together(file: H5, secret: Path) -> None:
    for number in range(900):
        file.create_dataset(f"x{number}", (60 * 2**20,), "u1", chunks=(2**20,))


@attack("has a huge attribute", libver="latest")
def huge_attribute(file: H5, secret: Path) -> None:
    file.attrs["a"] = np.zeros(2**20)


@attack("has too many attributes", libver="latest")
def many_attributes(file: H5, secret: Path) -> None:
    file["x"] = np.arange(3)
    for number in range(100):
        file["x"].attrs[f"a{number}"] = number


@attack("holds too many objects")
def many_groups(file: H5, secret: Path) -> None:
    for number in range(1_500):
        h5py.h5g.create(file.id, b"g%d" % number)


@attack("is not an HDF5 file", userblock_size=512)
def user_block(file: H5, secret: Path) -> None:
    file["x"] = np.arange(3)


one(
    "holds a link",
    external_link=lambda file, secret: file.__setitem__("node", h5py.ExternalLink(str(secret), "/x")),
    external_link_below=lambda file, secret: file.__setitem__("a/b/c", h5py.ExternalLink(str(secret), "/x")),
)
one("holds an object twice", hard_link_to_root=lambda file, secret: file.__setitem__("again", file["/"]))
one(
    "holds external data",
    external_storage=lambda f, secret: put((64,), "u1", external=str(secret))(f, secret),
)
one("TypeStringID", object_text=put(data=["a", "bc"], dtype=h5py.string_dtype()))
one("TypeVlenID", object_arrays=put((2,), h5py.vlen_dtype(np.int32)))
one("TypeCompoundID", compound=put(data=np.zeros(3, [("a", "f4"), ("b", "i8")])))
one("TypeReferenceID", references=put((2,), h5py.ref_dtype))
one("TypeEnumID", enumeration=put(data=np.zeros(3, bool)))
one("TypeOpaqueID", opaque=put(data=np.zeros(3, "V8")))
one("holds a named type", named_type=lambda file, secret: file.__setitem__("x", np.dtype("f4")))
one("uses an unknown filter", other_filter=put(data=np.arange(1000), compression="lzf"))
one(
    "declares absurd sizes",
    declared_without_data=put((69 * 2**30,), "u1"),
    declared_chunks_without_data=put((69 * 2**30,), "u1", chunks=(2**16,), compression="gzip"),
    huge_chunk=put((2**27,), "u1", chunks=(2**27,), compression="gzip"),
    huge_text=put((2,), "S2147483000", chunks=(1,)),
)
one("nests too deep", deep_groups=lambda file, secret: file.create_group("/".join("abcdefghij" * 5)))
one("holds a dataset without data", null_space=lambda file, secret: file.__setitem__("x", h5py.Empty("f4")))


def unknown_filter(path: Path, secret: Path) -> None:
    with H5(path, "w") as file:
        put(data=np.arange(1000), compression="gzip")(file, secret)
    data = path.read_bytes()
    # A v1 filter message names the filter: code 1, name length, flags, one value, "deflate".
    at = data.index(b"deflate\0") - 8
    assert struct.unpack_from("<H", data, at) == (1,)
    path.write_bytes(data[:at] + struct.pack("<H", 31_999) + data[at + 2 :])


def truncated(path: Path, secret: Path) -> None:
    with H5(path, "w") as file:
        file["x"] = np.arange(10_000)
    path.write_bytes(path.read_bytes()[:-1])


def holding(data: bytes) -> Attack:
    """Return a writer of a file of these bytes."""
    return lambda path, secret: path.write_bytes(data)


ATTACKS |= {
    "unknown_filter": ("uses an unknown filter", unknown_filter),
    "truncated": ("is damaged", truncated),
    "signature_only": ("is damaged", holding(b"\x89HDF\r\n\x1a\n")),
    "html": ("<!DOCTYPE", holding(b"\n <!DOCTYPE html><html><body>Sign in</body></html>")),
    "zip_archive": ("b'PK", holding(b"PK\x03\x04" + bytes(100))),
    "pickle_file": ("is not an HDF5 file", holding(b"\x80\x04cposix\nsystem\n")),
    "empty": ("an empty file", holding(b"")),
    "noise": ("is not an HDF5 file", holding(np.random.default_rng(0).bytes(5_000))),
    "missing": ("cannot be opened", lambda path, secret: path.unlink(missing_ok=True)),
    "folder": ("cannot be opened", lambda path, secret: path.mkdir()),
    "fifo": ("cannot be opened", lambda path, secret: os.mkfifo(path)),
    "device": ("cannot be opened", lambda path, secret: path.symlink_to("/dev/zero")),
}
