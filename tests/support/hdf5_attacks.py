"""Hostile and broken HDF5 files, each with the words of the refusal that it must meet."""

from __future__ import annotations

import ctypes
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np

Attack = Callable[[Path, Path], None]  # (file to write, secret file that must not be opened)
ATTACKS: dict[str, tuple[str, Attack]] = {}


def attack(refusal: str) -> Callable[[Attack], Attack]:
    """Register a builder under its name, with a part of the message that refuses its file."""

    def register(build: Attack) -> Attack:
        ATTACKS[build.__name__] = (refusal, build)
        return build

    return register


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


@attack("holds a link")
def external_link(path: Path, secret: Path) -> None:
    with h5py.File(path, "w") as file:
        file["node"] = h5py.ExternalLink(str(secret), "/x")


@attack("holds a link")
def external_link_below(path: Path, secret: Path) -> None:
    with h5py.File(path, "w") as file:
        file["a/b/c"] = h5py.ExternalLink(str(secret), "/x")


@attack("holds a link")
def soft_link(path: Path, secret: Path) -> None:
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(3)
        file["y"] = h5py.SoftLink("/x")


@attack("holds a link")
def soft_link_loop(path: Path, secret: Path) -> None:
    with h5py.File(path, "w") as file:
        file["x"] = h5py.SoftLink("/y")
        file["y"] = h5py.SoftLink("/x")


@attack("holds an object twice")
def hard_link_loop(path: Path, secret: Path) -> None:
    with h5py.File(path, "w") as file:
        group = file.create_group("a/b/c")
        group["up"] = file["a"]


@attack("holds an object twice")
def hard_link_to_root(path: Path, secret: Path) -> None:
    with h5py.File(path, "w") as file:
        file["again"] = file["/"]


@attack("holds an object twice")
def second_name(path: Path, secret: Path) -> None:
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(3)
        file["y"] = file["x"]


@attack("holds external data")
def external_storage(path: Path, secret: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (64,), "u1", external=[(str(secret), 0, 64)])


@attack("holds a virtual dataset")
def virtual_dataset(path: Path, secret: Path) -> None:
    layout = h5py.VirtualLayout((64,), "u1")
    layout[:] = h5py.VirtualSource(str(secret), "x", (64,))
    with h5py.File(path, "w", libver="latest") as file:
        file.create_virtual_dataset("x", layout)


@attack("holds a virtual dataset")
def virtual_dataset_unlimited(path: Path, secret: Path) -> None:
    layout = h5py.VirtualLayout((64,), "u1", maxshape=(None,))
    layout[: h5py.h5s.UNLIMITED] = h5py.VirtualSource(str(secret), "x", (64,), maxshape=(None,))[
        : h5py.h5s.UNLIMITED
    ]
    with h5py.File(path, "w", libver="latest") as file:
        file.create_virtual_dataset("x", layout)


@attack("variable-length (object) text")
def object_text(path: Path, secret: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=["a", "bc"], dtype=h5py.string_dtype())


@attack("variable-length (object) data")
def object_arrays(path: Path, secret: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (2,), h5py.vlen_dtype(np.int32))


@attack("compound data")
def compound(path: Path, secret: Path) -> None:
    with h5py.File(path, "w") as file:
        file["x"] = np.zeros(3, [("a", "f4"), ("b", "i8")])


@attack("references")
def references(path: Path, secret: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (2,), h5py.ref_dtype)


@attack("an enumeration")
def enumeration(path: Path, secret: Path) -> None:
    with h5py.File(path, "w") as file:
        file["x"] = np.zeros(3, bool)


@attack("opaque data")
def opaque(path: Path, secret: Path) -> None:
    with h5py.File(path, "w") as file:
        file["x"] = np.zeros(3, "V8")


@attack("an array type")
def array_type(path: Path, secret: Path) -> None:
    with h5py.File(path, "w") as file:
        kind = h5py.h5t.array_create(h5py.h5t.NATIVE_INT32, (1000, 1000))
        h5py.h5d.create(file.id, b"x", kind, h5py.h5s.create_simple((2,)))


@attack("holds a named type")
def named_type(path: Path, secret: Path) -> None:
    with h5py.File(path, "w") as file:
        file["x"] = np.dtype("f4")


@attack("uses an unknown filter")
def other_filter(path: Path, secret: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.arange(1000), compression="lzf")


@attack("uses an unknown filter")
def unknown_filter(path: Path, secret: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.arange(1000), compression="gzip")
    data = path.read_bytes()
    # A v1 filter message names the filter: code 1, name length, flags, one value, "deflate".
    at = data.index(b"deflate\0") - 8
    assert struct.unpack_from("<H", data, at) == (1,)
    path.write_bytes(data[:at] + struct.pack("<H", 31_999) + data[at + 2 :])


@attack("declares absurd sizes")
def declared_without_data(path: Path, secret: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (69 * 2**30,), "u1")


@attack("declares absurd sizes")
def declared_chunks_without_data(path: Path, secret: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (69 * 2**30,), "u1", chunks=(2**16,), compression="gzip")


@attack("declares absurd sizes")
def decompression_bomb(path: Path, secret: Path) -> None:
    with h5py.File(path, "w") as file:
        x = file.create_dataset("x", (256 * 2**20,), "u1", chunks=(2**20,), compression="gzip")
        chunk = zlib.compress(bytes(2**20), 4)
        for start in range(0, 256 * 2**20, 2**20):
            x.id.write_direct_chunk((start,), chunk)


@attack("declares absurd sizes")
def huge_chunk(path: Path, secret: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (2**27,), "u1", chunks=(2**27,), compression="gzip")


@attack("declares absurd sizes")
def many_datasets_together(path: Path, secret: Path) -> None:
    with h5py.File(path, "w") as file:
        for number in range(900):
            file.create_dataset(f"x{number}", (60 * 2**20,), "u1", chunks=(2**20,))


@attack("declares absurd sizes")
def huge_text(path: Path, secret: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (2,), "S2147483000", chunks=(1,))


@attack("has a huge attribute")
def huge_attribute(path: Path, secret: Path) -> None:
    with h5py.File(path, "w", libver="latest") as file:
        file.attrs["a"] = np.zeros(2**20)


@attack("has too many attributes")
def many_attributes(path: Path, secret: Path) -> None:
    with h5py.File(path, "w", libver="latest") as file:
        file["x"] = np.arange(3)
        for number in range(100):
            file["x"].attrs[f"a{number}"] = number


@attack("nests too deep")
def deep_groups(path: Path, secret: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_group("/".join("abcdefghij" * 5))


@attack("holds too many objects")
def many_groups(path: Path, secret: Path) -> None:
    with h5py.File(path, "w") as file:
        for number in range(1_500):
            h5py.h5g.create(file.id, b"g%d" % number)


@attack("holds a dataset without data")
def null_space(path: Path, secret: Path) -> None:
    with h5py.File(path, "w") as file:
        file["x"] = h5py.Empty("f4")


@attack("is not an HDF5 file")
def user_block(path: Path, secret: Path) -> None:
    with h5py.File(path, "w", userblock_size=512) as file:
        file["x"] = np.arange(3)


@attack("an HTML or XML page")
def html(path: Path, secret: Path) -> None:
    path.write_bytes(b"\n <!DOCTYPE html><html><body>Sign in to continue</body></html>")


@attack("a zip archive")
def zip_archive(path: Path, secret: Path) -> None:
    path.write_bytes(b"PK\x03\x04" + bytes(100))


@attack("a gzip file")
def gzip_file(path: Path, secret: Path) -> None:
    path.write_bytes(b"\x1f\x8b\x08" + bytes(100))


@attack("a Python pickle")
def pickle_file(path: Path, secret: Path) -> None:
    path.write_bytes(b"\x80\x04cposix\nsystem\n")


@attack("an empty file")
def empty(path: Path, secret: Path) -> None:
    path.write_bytes(b"")


@attack("a file that starts with")
def noise(path: Path, secret: Path) -> None:
    path.write_bytes(np.random.default_rng(0).bytes(5_000))


@attack("is damaged")
def signature_only(path: Path, secret: Path) -> None:
    path.write_bytes(b"\x89HDF\r\n\x1a\n")


@attack("is damaged")
def truncated(path: Path, secret: Path) -> None:
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(10_000)
    path.write_bytes(path.read_bytes()[:-1])


@attack("cannot be opened")
def missing(path: Path, secret: Path) -> None:
    path.unlink(missing_ok=True)


@attack("is not a file")
def folder(path: Path, secret: Path) -> None:
    path.mkdir()


@attack("is not a file")
def fifo(path: Path, secret: Path) -> None:
    os.mkfifo(path)


@attack("is not a file")
def device(path: Path, secret: Path) -> None:
    path.symlink_to("/dev/zero")
