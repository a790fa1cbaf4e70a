"""Hostile HDF5: refused with its own message, before anything outside the file is touched."""

from __future__ import annotations

import zipfile
from itertools import product

import h5py
import numpy as np
import pytest
from support.cases import Cases
from support.cli import python
from support.hdf5_attacks import OpenWatch, open_descriptors, write_attacks
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
    """By every reader, nothing else opened; and in a fresh process, imports included, within 300 MB."""
    (tmp_path / "attacks").mkdir()
    attacks = write_attacks(tmp_path / "attacks", secret)
    watch = OpenWatch(secret)
    with Cases() as cases:
        for (path, refusal), reader in product(attacks.items(), (read_everything, Shard, read_split)):
            with cases(f"{path.name}, {reader.__name__}"):
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
                assert all(caught.value.parts[part] for part in ("found", "next"))
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


def test_limits_and_filters_are_the_callers(tmp_path):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.zeros(1000), compression="gzip")
    assert read_everything(path, limit=8000)["x"].shape == (1000,)
    with pytest.raises(DamagedInput, match="declares absurd sizes"):
        read_everything(path, limit=7999)
    with pytest.raises(DamagedInput, match="unknown filter"):
        read_everything(path, filters=frozenset())
    with pytest.raises(ZeroDivisionError), open_untrusted(path, max_declared_bytes=GIB):
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
    with zipfile.ZipFile(shared_data("indoor3d_sem_seg_hdf5_data_small.zip")) as archive:
        names = [name for name in archive.namelist() if name.endswith(".h5")]
        archive.extractall(tmp_path, names)
    assert names
    assert all(read_everything(tmp_path / name)["data"].shape[1:] == (4096, 9) for name in names)


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
