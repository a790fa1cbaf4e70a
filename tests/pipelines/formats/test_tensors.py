"""Tensors read without torch: equal to torch's own reader.

Hostile files are refused before they act.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from support.raises import raises

from kmip_data.errors import DamagedInput
from kmip_data.pipelines.formats.pickles import RefusedPickleError
from kmip_data.pipelines.formats.tensors import TENSOR_GLOBALS, read_tensor, read_torch_file

DTYPES = [
    torch.float64, torch.float32, torch.float16,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
]  # fmt: skip


def assert_same_value(value, expected) -> None:
    if isinstance(expected, torch.Tensor):
        assert isinstance(value, np.ndarray)
        assert value.dtype == expected.numpy().dtype
        assert np.array_equal(value, expected.numpy())
    elif isinstance(expected, dict):
        assert list(value) == list(expected)
        for key in expected:
            assert_same_value(value[key], expected[key])
    elif isinstance(expected, list | tuple):
        assert type(value) is type(expected)
        assert len(value) == len(expected)
        for a, b in zip(value, expected, strict=True):
            assert_same_value(a, b)
    else:
        assert value == expected


@pytest.mark.parametrize("protocol", [2, 4])
def test_tensors_equal_torch_load(tmp_path: Path, protocol: int) -> None:
    torch.manual_seed(0)
    base = torch.arange(24.0).reshape(4, 6)
    value = {
        "all": [torch.ones(3, 2).to(dtype) for dtype in DTYPES],
        "views": (base, base[1:, ::2], base.t(), torch.tensor(3.5), torch.empty(0, 3)),
        "expanded": torch.ones(1, 3).expand(4, 3),
        "plain": [1, 2.5, "text", None, True, {"a": (1,)}],
    }
    path = tmp_path / "x.pt"
    torch.save(value, path, pickle_protocol=protocol)
    assert_same_value(read_torch_file(path), value)
    torch.save(value, path, _use_new_zipfile_serialization=False)
    with raises(DamagedInput, naming="1.6"):
        read_torch_file(path)


def test_one_tensor_has_the_requested_shape(tmp_path: Path) -> None:
    torch.save(torch.ones(4, 2), tmp_path / "x.pt")
    assert read_tensor(tmp_path / "x.pt", "float32", (None, 2)).shape == (4, 2)
    for dtype, shape in (("float32", (None, 3)), ("int64", (4, 2)), ("float32", (4,))):
        with raises(DamagedInput, naming=["float32", "(4, 2)"]):
            read_tensor(tmp_path / "x.pt", dtype, shape)
    torch.save([1], tmp_path / "x.pt")
    with raises(DamagedInput, naming="list"):
        read_tensor(tmp_path / "x.pt", "float32", (None,))


def test_cut_and_changed_tensor_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save([torch.arange(100), {"a": torch.ones(3)}], path)
    data = path.read_bytes()
    for length in [0, 1, 3, 10, *range(20, len(data) - 1, max(1, len(data) // 60))]:
        path.write_bytes(data[:length])
        with pytest.raises(DamagedInput):
            read_torch_file(path)
    rng = np.random.default_rng(0)
    for _ in range(150):
        changed = bytearray(data)
        changed[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
        path.write_bytes(changed)
        try:
            read_torch_file(path)  # a change of padding or of a number may go unseen
        except DamagedInput:
            continue


def test_compressed_and_inconsistent_members_are_refused(tmp_path: Path) -> None:
    source, path = tmp_path / "a.pt", tmp_path / "b.pt"
    torch.save(torch.zeros(1000), source)
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    with raises(DamagedInput, naming="b.pt"):
        read_torch_file(path)
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name)[:-4] if name.endswith("data/0") else old.read(name))
    with pytest.raises(DamagedInput):
        read_torch_file(path)


def test_a_tensor_larger_than_its_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save(torch.zeros(1, 37).expand(10**9, 37), path)  # to write it out would take 148 GB
    with raises(DamagedInput, naming=["(1000000000, 37)", "37 elements"]):
        read_tensor(path, "float32", (None, 37))


@pytest.mark.parametrize(
    ("offset", "size", "stride", "named"),
    [
        (3, (2,), (1,), 4),
        (1, (2, 2), (2, 1), 4),
        (0, (2,), (4,), 4),
        (0, (2,), (1, 1), "(2,)"),
        (-1, (2,), (1,), "(2,)"),
        (0, 2, (1,), ()),
    ],
)
def test_a_tensor_beyond_its_storage_is_refused(offset, size, stride, named) -> None:
    rebuild = TENSOR_GLOBALS["torch._utils._rebuild_tensor_v2"]
    assert rebuild(np.arange(4.0), 1, (3,), (1,)).tolist() == [1, 2, 3]
    assert rebuild(np.arange(4.0), 0, (2, 2), (1, 2)).tolist() == [[0, 2], [1, 3]]
    with raises(RefusedPickleError, naming=named):
        rebuild(np.arange(4.0), offset, size, stride)
