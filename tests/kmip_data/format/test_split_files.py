"""Split files: what goes in comes out, in order; the bytes; problems."""

from __future__ import annotations

import contextlib
import hashlib

import h5py
import numpy as np
import pytest
from support.raises import raises

from kmip_data.errors import DamagedInput, KmipDataError
from kmip_data.format.split_files import encode_node_split, encode_split, read_split

KEYS = [f"room_{i}" for i in range(10)]
#: A change here is a change of the format.
PINNED = "97fcd95ef0d6c709a0381b211c0ef5a8a8be07c6827a99c12af2834c94379afd"
PARTS = {"train": [5, 3, 0], "val": [9], "test": [2, 1]}


def encode(parts=PARTS, keys=KEYS):
    return encode_split(parts, rule="upstream", parameters={"test_area": 6, "seed": 0}, keys=keys)


def test_a_split_is_read_as_it_was_written(tmp_path):
    parts = {"test": [7, 1], "train": [5, 3, 0, 9], "val": []}
    data, digests = encode(parts)
    assert data == encode(dict(reversed(parts.items())))[0]
    assert hashlib.sha256(data).hexdigest() == PINNED
    (tmp_path / "split.h5").write_bytes(data)
    split = read_split(tmp_path / "split.h5")
    assert {name: part.tolist() for name, part in split.parts.items()} == parts
    assert list(split.parts) == ["train", "val", "test"]
    assert split.parts["train"].dtype == np.int64
    assert split.part_codes is None
    assert (split.rule, split.parameters) == ("upstream", {"test_area": 6, "seed": 0})
    assert split.digests == digests
    assert digests["test"] == hashlib.sha256(b"room_7\nroom_1").hexdigest()


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        ({"train": [0, 10]}, 10),
        ({"train": [-1]}, -1),
        ({"train": [0, 0]}, 0),
        ({"train": [0, 4], "test": [4]}, 4),
        ({"Train/x": [0]}, "Train/x"),
        ({"node_code": [0]}, "node_code"),
    ],
)
def test_invalid_split_parts_are_refused(parts, named):
    with raises(DamagedInput, naming=named):
        encode(parts)


def test_a_split_of_nodes_is_read_as_it_was_written(tmp_path):
    code = np.array([0, 2, 255, 1, 0, 0], np.uint8)
    data, digests = encode_node_split(code, rule="random", parameters={"seed": 0})
    (tmp_path / "s.h5").write_bytes(data)
    split = read_split(tmp_path / "s.h5")
    assert split.parts is None
    assert split.part_codes.tolist() == code.tolist()
    assert split.digests == digests
    assert digests["train"] == hashlib.sha256(b"0\n4\n5").hexdigest()
    with raises(DamagedInput, naming=3):
        encode_node_split(np.array([0, 3], np.uint8), rule="random", parameters={})


ATTRIBUTES = [
    ("format_version", 2, 2),
    ("format_version", 0, 0),
    ("format_version", np.bytes_(b"x"), "'x'"),
    ("format", np.bytes_(b"kmip-data"), "'kmip-data'"),
    ("format", None, "None"),
    ("rule", None, "rule"),
    ("parameters", np.bytes_(b"{"), "parameters"),
    ("digests", np.bytes_(b"[]"), "digests"),
    ("digests", np.bytes_(b"{}"), "digests"),
]
DATASETS = [
    ("split/more", np.zeros(2), "split/more"),
    ("split/more", np.zeros((2, 2), int), "split/more"),
    ("train", np.zeros(2, int), "train"),
    ("split/A b", np.zeros(2, int), "split/A b"),
    ("split/node_code", np.zeros(2, "u1"), "node_code"),
]


@pytest.mark.parametrize(("name", "value", "named"), [*ATTRIBUTES, *DATASETS])
def test_faulty_splits_are_refused(tmp_path, name, value, named):
    path = tmp_path / "s.h5"
    path.write_bytes(encode()[0])
    with h5py.File(path, "r+") as file:
        if isinstance(value, np.ndarray):
            file.create_dataset(name, data=value)
        elif value is None:
            del file.attrs[name]
        else:
            file.attrs[name] = value
    with raises(DamagedInput, naming=(path, named)):
        read_split(path)


def test_truncated_and_mutated_splits_are_refused(tmp_path):
    data, path = encode()[0], tmp_path / "s.h5"
    for size in range(0, len(data), 64):
        path.write_bytes(data[:size])
        with pytest.raises(DamagedInput):
            read_split(path)
    random = np.random.default_rng(0)
    for at in random.integers(0, len(data), 160):
        path.write_bytes(data[:at] + random.bytes(8) + data[at + 8 :])
        with contextlib.suppress(KmipDataError):
            read_split(path)
