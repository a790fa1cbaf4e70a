"""Hostile HDF5: refused with its own message, before anything outside the file is touched."""

from __future__ import annotations

import subprocess
import sys
from itertools import product
from pathlib import Path

import h5py
import numpy as np
import pytest
from support.cases import Cases
from support.hdf5_attacks import ATTACKS, OpenWatch, open_descriptors
from support.shared import shared_data

from kmip_data.errors import DamagedInput
from kmip_data.format.reader import Shard
from kmip_data.format.safety import RAW_FILTERS, open_untrusted
from kmip_data.format.splits import read_split

GIB = 2**30


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "secret.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.frombuffer(b"root:canary" * 6, "u1")[:64]
    return path


def read_everything(path, *, limit=GIB, filters=RAW_FILTERS):
    with open_untrusted(path, max_declared_bytes=limit, filters=filters) as (file, _):
        return {name: file[name][()] for name in file}


def test_attacks_are_refused(tmp_path, secret):
    watch = OpenWatch(secret)
    with Cases() as cases:
        for (name, (refusal, build)), reader in product(
            ATTACKS.items(), (read_everything, Shard, read_split)
        ):
            with cases(f"{name}, {reader.__name__}"):
                path = tmp_path / f"{name}, {reader.__name__}.h5"
                build(path, secret)
                watch.events()  # of the builder
                descriptors = open_descriptors()
                with pytest.raises(DamagedInput) as caught:
                    reader(path)
                assert watch.events() == 0, "a file outside was opened"
                assert open_descriptors() == descriptors
                text = str(caught.value)
                # Split files use no filter at all.
                assert refusal in text or (reader is read_split and "uses an unknown filter" in text)
                assert str(path) in text
                assert "canary" not in text
                assert all(caught.value.parts[part] for part in ("expected", "found", "next"))
    watch.close()


def test_watch_sees_an_open(secret):
    watch = OpenWatch(secret)
    secret.read_bytes()
    assert watch.events() > 0
    watch.close()


def test_memory_stays_small_for_all_attacks(tmp_path, secret):
    """A fresh process refuses all attacks within 300 MB, its imports included."""
    for name, (_, build) in ATTACKS.items():
        build(tmp_path / f"{name}.h5", secret)
    code = """
import re, sys
from pathlib import Path
from kmip_data.errors import DamagedInput
from kmip_data.format.reader import Shard
from kmip_data.format.safety import open_untrusted
refused = 0
for name in sys.argv[2:]:
    path = Path(sys.argv[1]) / f"{name}.h5"
    for open_it in (Shard, lambda path: open_untrusted(path, max_declared_bytes=2**30).__enter__()):
        try:
            open_it(path)
        except DamagedInput:
            refused += 1
peak = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())  # getrusage counts the parent
print(refused, int(peak[1]) // 1024)
"""
    command = [sys.executable, "-c", code, str(tmp_path), *ATTACKS]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout
    refused, megabytes = map(int, output.split())
    assert refused == 2 * len(ATTACKS)
    assert megabytes < 300


def test_declared_limit_is_the_callers(tmp_path):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.zeros(1000)
    assert read_everything(path, limit=8000)["x"].shape == (1000,)
    with pytest.raises(DamagedInput, match="declares absurd sizes"):
        read_everything(path, limit=7999)


def test_chunked_gzip_is_read(tmp_path):
    """The upstream raw layout: chunked, gzip, shuffle or checksum; attributes of any kind."""
    path = tmp_path / "x.h5"
    data = np.random.default_rng(0).random((10, 40, 9)).astype("f4")
    with h5py.File(path, "w") as file:
        file.create_dataset("data", data=data, compression="gzip", shuffle=True, fletcher32=True)
        file["data"].attrs["note"] = "variable-length text"
        file.create_dataset("empty", (0, 3), "f4", maxshape=(None, 3))
    np.testing.assert_array_equal(read_everything(path)["data"], data)


def test_filters_are_the_callers(tmp_path):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.arange(5000), compression="gzip")
    with pytest.raises(DamagedInput, match="unknown filter"):
        read_everything(path, filters=frozenset())


def test_damage_met_while_reading_is_ours(tmp_path):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        x = file.create_dataset("x", data=np.arange(100_000), compression="gzip", chunks=(100_000,))
        offset = x.id.get_chunk_info(0).byte_offset
    data = bytearray(path.read_bytes())
    data[offset + 40 : offset + 60] = bytes(20)
    path.write_bytes(data)
    with pytest.raises(DamagedInput, match="is damaged"):
        read_everything(path)
    with (
        pytest.raises(DamagedInput, match="is damaged"),
        open_untrusted(path, max_declared_bytes=GIB) as (file, _),
    ):
        file["absent"]


def test_errors_of_the_caller_pass(tmp_path):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(3)
    with pytest.raises(ZeroDivisionError), open_untrusted(path, max_declared_bytes=GIB):
        1 / 0  # noqa: B018


def test_real_raw_files_are_accepted(tmp_path):
    import zipfile

    with zipfile.ZipFile(shared_data("indoor3d_sem_seg_hdf5_data_small.zip")) as archive:
        names = [name for name in archive.namelist() if name.endswith(".h5")]
        assert names
        for name in names:
            archive.extract(name, tmp_path)
            found = read_everything(Path(tmp_path) / name)
            assert found["data"].shape[1:] == (4096, 9)
