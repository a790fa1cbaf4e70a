"""Lists are streamed out of pickles of every protocol: equal to Python's own reader, and nothing is run."""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import pickle
import struct
import tracemalloc

import numpy as np
import pytest
import torch

from kmip_data.errors import DamagedInput
from kmip_data.pipelines.formats.numpy_pickle import NUMPY
from kmip_data.pipelines.formats.pickle_stream import stream_list
from kmip_data.pipelines.formats.restricted_pickle import RefusedError
from kmip_data.pipelines.formats.torch_files import PICKLED_TENSORS, storage_of
from kmip_data.pipelines.samples.writers import storage_bytes

PROTOCOLS = range(6)
ALLOWED = {**NUMPY, **PICKLED_TENSORS}


def stream(path, data, allowed=ALLOWED):
    path.write_bytes(data)
    with path.open("rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return [item for items, _ in stream_list(mapping, allowed, name="list.pickle") for item in items]


class Call:
    """Pickles as a call."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


def same(found, wanted):
    if isinstance(wanted, torch.Tensor):
        wanted = wanted.numpy()
    if isinstance(wanted, np.ndarray):
        assert isinstance(found, np.ndarray)
        assert found.dtype.str.lstrip("<|=>") == wanted.dtype.str.lstrip("<|=>")
        np.testing.assert_array_equal(found, wanted)
    elif isinstance(wanted, list | tuple):
        assert type(found) is type(wanted)
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            same(one, other)
    elif isinstance(wanted, bytes):
        assert bytes(found) == wanted
    else:
        assert found == wanted


def test_equal_to_pickle_and_torch(tmp_path):
    for protocol in PROTOCOLS:
        base = torch.arange(60, dtype=torch.float32)
        items = [
            (
                torch.rand(7, 14).half(),
                torch.rand(300, 2),
                torch.randint(0, 7, (2, 300)),
                np.arange(7, dtype="i4"),
            ),
            (
                torch.rand(5, 4).t(),
                base[10:40:3],
                torch.empty(0, 2),
                np.asfortranarray(np.arange(6.0).reshape(2, 3)),
            ),
            (
                torch.tensor(3),
                torch.zeros(1, 1).double(),
                torch.tensor([True, False]),
                np.array([1, 2], ">i8"),
            ),
            [
                1,
                -5,
                2**40,
                3.5,
                "text",
                "long " * 100,
                b"bytes",
                b"long bytes " * 30,
                None,
                True,
                {"a": (1, 2)},
            ],
            7,
            (),
        ]
        same(stream(tmp_path / "a", pickle.dumps(items, protocol)), items)


def test_lists_of_every_length(tmp_path):
    for protocol, count in itertools.product(PROTOCOLS, (0, 1, 2, 1_000, 1_001, 2_500)):
        items = [(i, str(i % 7), np.full(2, i)) for i in range(count)]
        same(stream(tmp_path / "a", pickle.dumps(items, protocol)), items)


def test_a_list_made_at_once(tmp_path):
    assert stream(tmp_path / "a", b"(I1\nI2\nl.") == [1, 2]
    assert stream(tmp_path / "a", b"(I1\nI2\nlI3\na.") == [1, 2, 3]


HOSTILE = [
    lambda marker: Call(os.system, f"touch {marker}"),
    lambda marker: Call(eval, f"open({str(marker)!r}, 'w')"),
    lambda marker: [Call(exec, f"open({str(marker)!r}, 'w')")],
    # The loader that is allowed, with a pickle inside that is not.
    lambda marker: Call(torch.storage._load_from_bytes, pickle.dumps(Call(os.mkdir, str(marker)))),
    lambda marker: Call(torch.storage._load_from_bytes, _hidden(marker)),
    lambda marker: Call(
        torch._utils._rebuild_tensor_v2, Call(os.mkdir, str(marker)), 0, (1,), (1,), False, {}
    ),
    lambda marker: np.array([Call(os.mkdir, str(marker))], dtype=object),
]


def test_nothing_is_run(tmp_path):
    marker = tmp_path / "executed"
    good = [torch.rand(3, 14).half(), torch.rand(4, 2), torch.zeros(2, 4).long(), np.zeros(3, "i4")]
    for protocol, slot, make in itertools.product(PROTOCOLS, range(4), HOSTILE):
        bad = [*good[:slot], make(marker), *good[slot + 1 :]]
        with pytest.raises(DamagedInput):
            stream(tmp_path / "a", pickle.dumps([tuple(good), tuple(bad)], protocol))
        assert not marker.exists()


def _hidden(marker) -> bytes:
    """The bytes of a storage whose third pickle, that of the machine, is a call."""
    data = storage_bytes(np.ones(1, "f4"), "7")
    head, tail = data.split(b"}q\x00(X\x10", 1)[0], data.split(b"uu.", 1)[1]
    return head[:-2] + pickle.dumps(Call(os.mkdir, str(marker)), 2) + tail


def test_cut_files_are_damaged(tmp_path):
    for protocol in PROTOCOLS:
        data = pickle.dumps(
            [(torch.rand(2, 14).half(), np.arange(3)), (torch.rand(1, 14), np.arange(3))], protocol
        )
        for end in (*range(1, len(data), 11), len(data) - 1):
            with pytest.raises(DamagedInput):
                stream(tmp_path / "a", data[:end])


def test_changed_bytes_are_damaged_or_data(tmp_path):
    """No change makes anything but an error of ours or other data."""
    data = pickle.dumps([(torch.rand(1, 3).half(), np.arange(2, dtype="u1"))] * 2, 4)
    rng = np.random.default_rng(0)
    for at in rng.integers(0, len(data), 600):
        changed = bytearray(data)
        changed[at] = rng.integers(256)
        with contextlib.suppress(DamagedInput):
            stream(tmp_path / "a", bytes(changed))


OTHERS = [
    pickle.dumps({"a": 1}),
    pickle.dumps((1, 2)),
    b"]\x94(h\x05e.",  # a memo entry that was never made
    b"]\x94(\x8e" + struct.pack("<Q", 2**62) + b"a",  # more bytes than there are
    b"](\x8a\xffe.",
    b"e.",
    b"t.",
    b"\x00.",
    b".",
    b"]K\x01R.",
]


def test_other_pickles_are_refused(tmp_path):
    for data in OTHERS:
        with pytest.raises(DamagedInput):
            stream(tmp_path / "a", data)


def test_a_part_of_an_item_that_was_handed_out_is_refused(tmp_path):
    shared = np.arange(40)
    items = [(i,) for i in range(1_200)]
    assert stream(tmp_path / "a", pickle.dumps([(shared, shared), *items]))
    with pytest.raises(DamagedInput, match="was not run") as caught:
        stream(tmp_path / "a", pickle.dumps([shared, *items, shared]))
    assert "earlier item" in str(caught.value)


def test_storages_of_another_layout_take_the_general_way():
    data = storage_bytes(np.array([1.0, 2.0]), "7")
    fast = storage_of(data)
    assert not fast.flags.owndata
    other = data.replace(b"q\x01X", b"r\x01\x00\x00\x00X", 1)  # the same opcode with a longer index
    assert other != data
    slow = storage_of(other)
    assert slow.flags.owndata
    np.testing.assert_array_equal(fast, [1.0, 2.0])
    np.testing.assert_array_equal(slow, fast)
    for broken in (data[:-1], data.replace(b"Double", b"Doublf"), b""):
        with pytest.raises((DamagedInput, RefusedError)):
            storage_of(broken)


@pytest.mark.parametrize("protocol", [2, 4])
def test_memory_does_not_grow_with_the_list(tmp_path, protocol):
    path = tmp_path / "a"
    peaks = []
    for count in (2_000, 8_000):
        path.write_bytes(
            pickle.dumps([(np.full(500, i % 256, "u1"), str(i)) for i in range(count)], protocol)
        )
        with path.open("rb") as file:
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        tracemalloc.start()
        assert sum(len(items) for items, _ in stream_list(mapping, ALLOWED, name="a")) == count
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


def test_nesting_is_refused(tmp_path):
    many = 10_000
    cases = (b"(" * many + b"t" * many, b")" + b"\x85" * many, b")" + b"N\x86" * many, b"]" * 99 + b"a" * 98)
    for nested in cases:
        with pytest.raises(DamagedInput, match="was not run"):
            stream(tmp_path / "nested.pickle", b"\x80\x04](" + nested + b"e.")
