"""Rows of HDF5 datasets: what h5py gives, and nothing that was not declared."""

from __future__ import annotations

import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.raises import raises

from kmip_data.errors import DamagedInput
from kmip_data.pipelines.datasets.s3dis import read_rows


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_rows_equal_h5py(data, tmp_path_factory):
    shape = tuple(data.draw(st.lists(st.integers(1, 13), min_size=1, max_size=3)))
    array = np.arange(np.prod(shape), dtype=data.draw(st.sampled_from(["f4", "u1", "i8"]))).reshape(
        shape
    )
    options = {}
    if data.draw(st.booleans()):
        options["chunks"] = tuple(data.draw(st.integers(1, n)) for n in shape)
        if data.draw(st.booleans()):
            options["compression"] = "gzip"
    path = tmp_path_factory.mktemp("h5") / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("data", data=array, **options)
    with h5py.File(path) as file:
        chosen = sorted(data.draw(st.sets(st.integers(0, shape[0] - 1), min_size=1)))
        rows = read_rows(file["data"], chosen, name="data")
        assert rows.dtype == array.dtype
        assert np.array_equal(rows, array[chosen])


def _gzip_file(path: Path, chunk: bytes) -> None:
    with h5py.File(path, "w") as file:
        data = file.create_dataset("data", (4, 8), "f4", chunks=(2, 8), compression="gzip")
        data[...] = 1.0
        data.id.write_direct_chunk((2, 0), chunk)


BOMB = zlib.compress(bytes(50_000_000), 9)


@pytest.mark.parametrize(
    ("chunk", "named"),
    [
        (BOMB, [65]),
        (zlib.compress(bytes(60)), [60]),
        (zlib.compress(bytes(64))[:-3], [64]),
        (b"not a stream", []),
    ],
)
def test_damaged_compressed_chunks_are_named(tmp_path, chunk, named):
    _gzip_file(tmp_path / "a.h5", chunk)
    with h5py.File(tmp_path / "a.h5") as file:
        assert read_rows(file["data"], [0, 1], name="a.h5, data").tolist() == [[1.0] * 8] * 2
        with raises(DamagedInput, naming=["a.h5, data", "[2, 0]", *named]):
            read_rows(file["data"], range(3), name="a.h5, data")


def test_a_chunk_that_was_never_written_is_named(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("data", (4, 8), "f4", chunks=(2, 8), compression="gzip")
    with (
        h5py.File(tmp_path / "a.h5") as file,
        raises(DamagedInput, naming="[0, 0]"),
    ):
        read_rows(file["data"], range(4), name="data")
