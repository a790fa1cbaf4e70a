"""Pickles are read or streamed, never run: data come through, all else is refused, nothing is executed."""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import pickle
import struct
import tracemalloc
from collections import OrderedDict

import numpy as np
import pytest
import torch
from support.raises import raises

from kmip_data.errors import DamagedInput
from kmip_data.pipelines.domains.molecules import check_part_lists
from kmip_data.pipelines.formats.pickles import (
    MAX_STACK,
    RefusedPickleError,
    read_pickle,
    stream_list,
)
from kmip_data.pipelines.formats.tensors import NUMPY_GLOBALS, PICKLED_TENSOR_GLOBALS, load_storage
from kmip_data.pipelines.sample_writers import storage_bytes

PROTOCOLS = range(6)
ALLOWED = {**NUMPY_GLOBALS, **PICKLED_TENSOR_GLOBALS}


def read(data, allowed=NUMPY_GLOBALS, **options):
    return read_pickle(data, allowed, name="file.pickle", **options)


def stream(path, data, allowed=ALLOWED):
    path.write_bytes(data)
    with path.open("rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return [
        item for items, _ in stream_list(mapping, allowed, name="list.pickle") for item in items
    ]


class Call:
    """Pickles as a call."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


def assert_same_value(value, wanted):
    if isinstance(wanted, torch.Tensor):
        wanted = wanted.numpy()
    if isinstance(wanted, np.ndarray | np.generic):
        assert isinstance(value, np.ndarray | np.generic)
        assert value.dtype.str.lstrip("<|=") == wanted.dtype.str.lstrip("<|=")
        np.testing.assert_array_equal(value, wanted)
    elif isinstance(wanted, dict):
        assert list(value) == list(wanted)
        assert_same_value(list(value.values()), list(wanted.values()))
    elif isinstance(wanted, list | tuple):
        assert type(value) is type(wanted)
        for one, other in zip(value, wanted, strict=True):
            assert_same_value(one, other)
    elif isinstance(wanted, bytes):
        assert bytes(value) == wanted
    else:
        assert type(value) is type(wanted)
        assert value == wanted


def test_arrays_of_every_protocol_are_read_unchanged():
    for protocol in PROTOCOLS:
        value = {
            "arrays": [
                np.arange(6).reshape(2, 3).astype(dtype)
                for dtype in ("i1", "u1", "<i2", ">i4", "i8", "f2", "<f4", ">f8", "?")
            ],
            "fortran": np.asfortranarray(np.arange(12.0).reshape(3, 4)),
            "empty": np.zeros((0, 5), np.uint8),
            "scalar": np.float32(0.25),
            "plain": (1, -(10**30), 2.5, None, True, False, "text é", b"bytes \xff", [], {}, ()),
            7: [[1], [2, [3]]],
        }
        assert_same_value(read(pickle.dumps(value, protocol)), value)


def test_shared_arrays_stay_shared():
    array = np.arange(3)
    for protocol in PROTOCOLS:
        one, other = read(pickle.dumps([array, array], protocol))
        assert one is other
    assert read(b"(lp0\n(dp1\nI1\nI2\nsag1\na.") == [{1: 2}, {1: 2}]
    assert read(b"}(I1\nI2\nI3\nI4\nu(I5\nI6\nd\x86.") == ({1: 2, 3: 4}, {5: 6})
    assert read(b"I1\n(I2\n1(I3\nl2\x86\x86.") == (1, ([3], [3]))


#: values that call something, or are not data, when they are unpickled
HOSTILE = [
    lambda marker: Call(os.system, f"touch {marker}"),
    lambda marker: Call(getattr, Call(eval, "1"), "__class__"),
    lambda marker: [np.arange(3), (1, {"a": Call(os.mkdir, str(marker))})],
    lambda marker: Call(pickle.loads, pickle.dumps(Call(os.system, f"touch {marker}"))),
    lambda marker: np.array([Call(os.system, f"touch {marker}")], dtype=object),
    lambda marker: OrderedDict(a=1),
    lambda marker: np.array(["text"]),
    lambda marker: np.zeros(2, [("a", "i4")]),
]


def test_a_refused_pickle_says_that_it_was_not_run(tmp_path):
    marker = tmp_path / "executed"
    for make in HOSTILE:
        for protocol in PROTOCOLS:
            with pytest.raises(DamagedInput) as caught:
                read(pickle.dumps(make(marker), protocol))
            assert not marker.exists()
            assert "was not run" in caught.value.message


UNUSUAL = [
    b"(S'true'\nios\nsystem\n.",  # INST
    b"(cos\nsystem\nS'true'\no.",  # OBJ
    b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85}\x92.",  # NEWOBJ_EX
    b"\x80\x02\x82\x01.",  # EXT1
    b"Pid\n.",  # PERSID
    b"cnumpy\nndarray\n(I1000000000000\ntR.",  # a call of an allowed name that is no function
    b"cnumpy\nndarray\n}b.",  # BUILD on a name
    b"cnumpy\ndtype\n(S'O'\nI0\nI1\ntR.",
    b"c_codecs\nencode\n(VAA==\nVbase64\ntR.",
    b"I1\n(I1\ntR.",  # a call of a number
    b"}((I1\nttI1\ns.",  # a tuple as key
    b"cnumpy\ncore.multiarray._reconstruct\n.",
]


def test_unusual_opcodes_and_uses_are_refused():
    for data in UNUSUAL:
        with pytest.raises(DamagedInput):
            read(data)
    with raises(DamagedInput, naming=["0xff", 3]):
        read(b"\x80\x02}\xff.")


STATES = [
    (1, (5,), np.dtype("i8"), False, b"too short"),
    (1, (-1,), np.dtype("i8"), False, b""),
    (1, (2**40, 0), np.dtype("i8"), False, b"x"),
    (1, "ab", np.dtype("i8"), False, b""),
    (1, (1,), "i8", False, b"12345678"),
    (1, (1,), np.dtype("i8"), False, [1]),
]


def test_arrays_must_match_their_header():
    class Array:
        def __init__(self, state):
            self.state = state

        def __reduce__(self):
            return np._core.multiarray._reconstruct, (np.ndarray, (0,), b"b"), self.state

    for state in STATES:
        with pytest.raises(DamagedInput):
            read(pickle.dumps(Array(state), 2))


NESTED = (
    b")" + b"2\x86" * 40
)  # a tuple of twice the same tuple, 40 levels deep: 10^12 when written out


EXPONENTIAL = [
    b"cnumpy\ndtype\n" + NESTED + b"\x85R.",
    b"cnumpy\ndtype\n(S'i8'\ntR(I3\n" + NESTED + b"NNNtb.",
    b"c_codecs\nencode\n(VAA\n" + NESTED + b"tR.",
    b"}" + NESTED + b"I1\ns.",
    NESTED + NESTED + b"\x93.",
]


def test_nested_tuples_are_never_written_out_or_hashed():
    for data in EXPONENTIAL:
        with pytest.raises(DamagedInput):
            read(data)


@pytest.mark.parametrize("rows", ["nested", "text", "halves", "huge"])
def test_lists_of_other_values_are_refused_as_a_split(rows):
    nested = [0]
    for _ in range(40):
        nested = [nested, nested]
    value = {"nested": nested, "text": ["0"], "halves": [0.5], "huge": [10**5000]}[rows]
    with raises(DamagedInput, naming="split: train"):
        check_part_lists({"train": value, "val": [0], "test": [1]}, 3, name="split")
    with raises(DamagedInput, naming="train, val, test"):
        check_part_lists({10**5000: [0]}, 3, name="split")


def test_containers_in_containers_end_at_once(tmp_path):
    """Or are other data: nobody looks deeper than the types of a record."""
    many = 300_000  # a reader that looks at each level from every other takes hours
    for data in (b")" + b"N\x86" * many, b"N" + b"]\x94(" * many, b"]" * 1_000 + b"a" * 900):
        with contextlib.suppress(DamagedInput):
            read(data + b".")
        with contextlib.suppress(DamagedInput):
            stream(tmp_path / "nested.pickle", b"\x80\x04](" + data + b"e.")
    with raises(DamagedInput, naming=MAX_STACK):
        read(b"(" * many + b"t" * many + b".")


def test_persistent_ids_go_to_the_caller():
    assert read(b"(Vkey\nI3\ntQ.", {}, persistent=lambda pid: pid[1]) == 3


def test_only_listed_names_are_allowed():
    assert read(b"cmine\nf\n(I2\nI3\ntR.", {"mine.f": lambda a, b: a * b}) == 6
    with raises(DamagedInput, naming="numpy.ndarray"):
        read(b"cnumpy\nndarray\n.", {})


# --- lists that are streamed ---


def test_equal_to_pickle_and_torch(tmp_path):
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
            np.asfortranarray(np.ones((2, 3))),
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
    for protocol in PROTOCOLS:
        assert_same_value(stream(tmp_path / "a", pickle.dumps(items, protocol)), items)


def test_lists_of_every_length_are_read(tmp_path):
    for protocol, count in itertools.product((1, 2, 4), (0, 1, 1_001, 2_500)):
        items = [(i, str(i % 7), np.full(2, i)) for i in range(count)]
        assert_same_value(stream(tmp_path / "a", pickle.dumps(items, protocol)), items)


def test_a_list_of_one_opcode_is_streamed(tmp_path):
    assert stream(tmp_path / "a", b"(I1\nI2\nl.") == [1, 2]
    assert stream(tmp_path / "a", b"(I1\nI2\nlI3\na.") == [1, 2, 3]


HOSTILE_TENSORS = [
    lambda marker: Call(eval, f"open({str(marker)!r}, 'w')"),
    # The loader that is allowed, with a pickle inside that is not.
    lambda marker: Call(torch.storage._load_from_bytes, pickle.dumps(Call(os.mkdir, str(marker)))),
    lambda marker: Call(torch.storage._load_from_bytes, _hidden(marker)),
    lambda marker: Call(
        torch._utils._rebuild_tensor_v2, Call(os.mkdir, str(marker)), 0, (1,), (1,), False, {}
    ),
    lambda marker: np.array([Call(os.mkdir, str(marker))], dtype=object),
]


def test_hostile_pickles_are_refused_without_running_them(tmp_path):
    marker = tmp_path / "executed"
    good = [torch.rand(3, 14).half(), torch.rand(4, 2), torch.zeros(2, 4).long(), np.zeros(3, "i4")]
    for protocol, slot, make in itertools.product(PROTOCOLS, range(4), HOSTILE_TENSORS):
        bad = [*good[:slot], make(marker), *good[slot + 1 :]]
        with pytest.raises(DamagedInput):
            stream(tmp_path / "a", pickle.dumps([tuple(good), tuple(bad)], protocol))
        assert not marker.exists()


def _hidden(marker) -> bytes:
    """The bytes of a storage whose third pickle, the machine's, is a call."""
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
    with pytest.raises(DamagedInput):
        stream(tmp_path / "a", pickle.dumps([shared, *items, shared]))


def test_storages_are_views_of_what_torch_writes_and_nothing_else():
    data = storage_bytes(np.array([1.0, 2.0]), "7")
    array = load_storage(data)
    np.testing.assert_array_equal(array, [1.0, 2.0])
    assert not array.flags.owndata
    other = data.replace(b"q\x01X", b"r\x01\x00\x00\x00X", 1)  # the same opcode with a longer index
    assert other != data
    for broken in (other, data[:-1], data + b"x", data.replace(b"Double", b"Doublf"), b"", "text"):
        with pytest.raises(RefusedPickleError):
            load_storage(broken)


def test_memory_does_not_grow_with_the_list(tmp_path):
    path = tmp_path / "a"
    peaks = []
    for count in (2_000, 5_000):
        path.write_bytes(
            pickle.dumps([(np.full(500, i % 256, "u1"), str(i)) for i in range(count)], 4)
        )
        with path.open("rb") as file:
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        tracemalloc.start()
        assert sum(len(items) for items, _ in stream_list(mapping, ALLOWED, name="a")) == count
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]
