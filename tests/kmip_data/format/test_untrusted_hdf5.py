"""Hostile HDF5: refused with its own message, before anything outside the file is touched."""

from __future__ import annotations

import ctypes
import gc
import os
import zlib
from collections.abc import Callable
from itertools import product
from pathlib import Path

import h5py
import numpy as np
import pytest
from support.cases import count_descriptors
from support.cli import python
from support.raises import raises

from kmip_data.errors import DamagedInput
from kmip_data.format.reader import Shard
from kmip_data.format.split_files import read_split
from kmip_data.format.untrusted_hdf5 import RAW_FILTERS, open_untrusted_hdf5
from kmip_data.text import values_of

GIB = 2**30
Write = Callable[[h5py.File, Path], object]  #: (new file, secret file that must not be opened)


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


def put(*arguments: object, **options: object) -> Write:
    """Return a writer of the dataset ``x``."""
    return lambda file, secret: file.create_dataset("x", *arguments, **options)


def member(name: str, make: Callable[[h5py.File, Path], object]) -> Write:
    """Return a writer of a member that is not a dataset with data."""
    return lambda file, secret: file.__setitem__(name, make(file, secret))


def virtual_dataset(file: h5py.File, secret: Path) -> None:
    layout, every = h5py.VirtualLayout((64,), "u1", maxshape=(None,)), slice(h5py.h5s.UNLIMITED)
    layout[every] = h5py.VirtualSource(str(secret), "x", (64,), maxshape=(None,))[every]
    file.create_virtual_dataset("x", layout)


def array_type(file: h5py.File, secret: Path) -> None:
    kind = h5py.h5t.array_create(h5py.h5t.NATIVE_INT32, (1000, 1000))
    h5py.h5d.create(file.id, b"x", kind, h5py.h5s.create_simple((2,)))


def decompression_bomb(file: h5py.File, secret: Path) -> None:
    x = file.create_dataset("x", (256 * 2**20,), "u1", chunks=(2**20,), compression="gzip")
    for start in range(0, 256 * 2**20, 2**20):
        x.id.write_direct_chunk((start,), zlib.compress(bytes(2**20), 4))


def many_datasets_together(file: h5py.File, secret: Path) -> None:
    for number in range(900):
        file.create_dataset(f"x{number}", (60 * 2**20,), "u1", chunks=(2**20,))


def many_attributes(file: h5py.File, secret: Path) -> None:
    for number in range(100):
        file.attrs[f"a{number}"] = number


def many_groups(file: h5py.File, secret: Path) -> None:
    for number in range(1_500):
        h5py.h5g.create(file.id, b"g%d" % number)


#: What the refusal of each file names, and its writer, by name.
WRITTEN: dict[str, tuple[object, Write]] = {
    "soft link": ("'y'", member("y", lambda *_: h5py.SoftLink("/x"))),
    "external link": ("'a/b'", member("a/b", lambda _, secret: h5py.ExternalLink(str(secret), "/x"))),
    "loop of hard links": ("'again'", member("again", lambda file, _: file["/"])),
    "virtual dataset": ("'x'", virtual_dataset),
    "external data": ("'x'", lambda f, secret: put((64,), "u1", external=str(secret))(f, secret)),
    "array type": ("TypeArrayID", array_type),
    "text of any length": ("TypeStringID", put(data=["a", "bc"], dtype=h5py.string_dtype())),
    "arrays of any length": ("TypeVlenID", put((2,), h5py.vlen_dtype(np.int32))),
    "compound": ("TypeCompoundID", put(data=np.zeros(3, [("a", "f4"), ("b", "i8")]))),
    "named type": ("'x'", member("x", lambda *_: np.dtype("f4"))),
    "null space": ("'x'", member("x", lambda *_: h5py.Empty("f4"))),
    "other filter": (32_000, put(data=np.arange(1000), compression="lzf")),
    "bomb": (2**28, decompression_bomb),
    "many datasets together": (60 * 2**20, many_datasets_together),
    "no data": (69 * 2**30, put((69 * 2**30,), "u1")),
    "no chunks": (69 * 2**30, put((69 * 2**30,), "u1", chunks=(2**16,), compression="gzip")),
    "huge chunk": (2**27, put((2**27,), "u1", chunks=(2**27,), compression="gzip")),
    "huge text": (2 * 2147483000, put((2,), "S2147483000", chunks=(1,))),
    "an axis of none": (2**37, put((0, 2**37), "u1")),
    "huge attribute": (2**23, lambda file, _: file.attrs.create("a", np.zeros(2**20))),
    "many attributes": (100, many_attributes),
    "many groups": (1_000, many_groups),
    "deep groups": (16, lambda file, _: file.create_group("/".join("abcdefghij" * 5))),
}  # fmt: skip


def truncated(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(10_000)
    path.write_bytes(path.read_bytes()[:-1])


#: The same for files that are not HDF5, or none at all.
OTHERS: dict[str, tuple[object, Callable[[Path], object]]] = {
    "truncated": ((), truncated),
    "signature only": ((), lambda path: path.write_bytes(b"\x89HDF\r\n\x1a\n")),
    "html": ("<!DOCTYPE", lambda path: path.write_bytes(b"\n <!DOCTYPE html><html><body>Sign in")),
    "empty": ((), lambda path: path.touch()),
    "missing": ((), lambda path: None),
    "fifo": ("prw-r--r--", os.mkfifo),
    "device": ("crw-rw-rw-", lambda path: path.symlink_to("/dev/zero")),
}


def write_attacks(folder: Path, secret: Path) -> dict[Path, object]:
    """Write all files; return what the refusal of each names."""
    named = {}
    for name, (value, write) in WRITTEN.items():
        with h5py.File(folder / name, "w", libver="latest") as file:
            write(file, secret)
        named[folder / name] = value
    for name, (value, make) in OTHERS.items():
        make(folder / name)
        named[folder / name] = value
    return named


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "secret.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.frombuffer(b"root:canary" * 6, "u1")[:64]
    return path


def read_everything(path, *, limit=GIB, filters=RAW_FILTERS):
    with open_untrusted_hdf5(path, max_declared_bytes=limit, filters=filters) as (file, _):
        return {name: file[name][()] for name in file}


def test_attacks_are_refused(tmp_path, secret, subtests):
    """Every reader opens nothing else; in a fresh process, within 300 MB with the imports."""
    (tmp_path / "attacks").mkdir()
    attacks = write_attacks(tmp_path / "attacks", secret)
    watch = OpenWatch(secret)
    gc.collect()  # closes the files of earlier tests, which are counted otherwise
    for (path, value), reader in product(attacks.items(), (read_everything, Shard, read_split)):
        with subtests.test(f"{path.name}, {reader.__name__}"):
            descriptors = count_descriptors()
            # Files of a build use no filter, and have other limits.
            named = values_of(value) if reader is read_everything else []
            with raises(DamagedInput, naming=[path, *named]) as caught:
                reader(path)
            assert watch.events() == 0, "a file outside was opened"
            assert count_descriptors() == descriptors
            assert "canary" not in str(caught.value)
            assert caught.value.found
            assert caught.value.steps
    secret.read_bytes()
    assert watch.events() > 0
    watch.close()
    code = """
import sys
from pathlib import Path
from kmip_data.errors import DamagedInput
from kmip_data.format.reader import Shard
from kmip_data.runtime.memory import peak_host_memory
refused = 0
for path in Path(sys.argv[1]).iterdir():
    try:
        Shard(path)
    except DamagedInput:
        refused += 1
print(refused, peak_host_memory() // 2**20)
"""
    refused, megabytes = map(int, python("-c", code, tmp_path / "attacks").out.split())
    assert refused == len(attacks) - 1  # the missing one is not in the folder
    assert megabytes < 300


def test_callers_choose_limits_and_filters(tmp_path):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.zeros(1000), compression="gzip")
    assert read_everything(path, limit=8000)["x"].shape == (1000,)
    with pytest.raises(DamagedInput):
        read_everything(path, limit=7999)
    with pytest.raises(DamagedInput):
        read_everything(path, filters=frozenset())
    with pytest.raises(ZeroDivisionError), open_untrusted_hdf5(path, max_declared_bytes=GIB):
        1 / 0  # noqa: B018 -- errors of the caller pass


def test_the_upstream_layout_is_read(tmp_path):
    """Chunked, gzip, shuffle or checksum; attributes of any kind."""
    path = tmp_path / "x.h5"
    data = np.random.default_rng(0).random((10, 40, 9)).astype("f4")
    with h5py.File(path, "w") as file:
        file.create_dataset("data", data=data, compression="gzip", shuffle=True, fletcher32=True)
        file["data"].attrs["note"] = "variable-length text"
        file.create_dataset("empty", (0, 3), "f4", maxshape=(None, 3))
    np.testing.assert_array_equal(read_everything(path)["data"], data)


def test_damage_found_while_reading_is_a_package_error(tmp_path):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        x = file.create_dataset("x", data=np.arange(100_000), compression="gzip", chunks=(100_000,))
        offset = x.id.get_chunk_info(0).byte_offset
    data = bytearray(path.read_bytes())
    data[offset + 40 : offset + 60] = bytes(20)
    path.write_bytes(data)
    with pytest.raises(DamagedInput):
        read_everything(path)
