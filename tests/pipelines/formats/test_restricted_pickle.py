"""Pickles are read, never run: data come through, everything else is refused with nothing executed."""

from __future__ import annotations

import io
import os
import pickle
import struct
from collections import OrderedDict

import numpy as np
import pytest

from kmip_data.errors import DamagedInput
from kmip_data.pipelines.formats.numpy_pickle import NUMPY
from kmip_data.pipelines.formats.restricted_pickle import read_pickle
from kmip_data.pipelines.molecules import check_partition

PROTOCOLS = range(6)


def read(data, allowed=NUMPY, **options):
    return read_pickle(io.BytesIO(data), allowed, name="file.pickle", **options)


class Call:
    """Pickles as a call."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


def same(found, wanted):
    if isinstance(wanted, np.ndarray | np.generic):
        return found.dtype == wanted.dtype and np.array_equal(found, wanted) and found.shape == wanted.shape
    if isinstance(wanted, dict):
        return list(found) == list(wanted) and all(same(found[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list | tuple):
        return type(found) is type(wanted) and all(map(same, found, wanted)) and len(found) == len(wanted)
    return type(found) is type(wanted) and found == wanted


def test_data_come_through():
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
        assert same(read(pickle.dumps(value, protocol)), value)


def test_shared_arrays_stay_shared():
    array = np.arange(3)
    for protocol in PROTOCOLS:
        one, other = read(pickle.dumps([array, array], protocol))
        assert one is other


#: values that call something, or are not data, when they are unpickled
HOSTILE = [
    lambda marker: Call(os.system, f"touch {marker}"),
    lambda marker: Call(eval, f"open({str(marker)!r}, 'w')"),
    lambda marker: Call(exec, f"open({str(marker)!r}, 'w')"),
    lambda marker: Call(open, str(marker), "w"),
    lambda marker: Call(getattr, Call(eval, "1"), "__class__"),
    lambda marker: {"train": np.arange(3), "val": [Call(os.system, f"touch {marker}")]},
    lambda marker: [np.arange(3), (1, {"a": Call(os.mkdir, str(marker))})],
    lambda marker: Call(pickle.loads, pickle.dumps(Call(os.system, f"touch {marker}"))),
    lambda marker: np.array([Call(os.system, f"touch {marker}")], dtype=object),
    lambda marker: OrderedDict(a=1),
    lambda marker: np.array(["text"]),
    lambda marker: np.zeros(2, [("a", "i4")]),
]


def test_nothing_else_is_run(tmp_path):
    marker = tmp_path / "executed"
    for make in HOSTILE:
        for protocol in PROTOCOLS:
            with pytest.raises(DamagedInput) as caught:
                read(pickle.dumps(make(marker), protocol))
            assert not marker.exists()
            assert "was not run" in caught.value.what


def test_the_loader_of_torch_storages_is_refused():
    inner = pickle.dumps(Call(os.system, "true"))
    data = b"ctorch.storage\n_load_from_bytes\n(" + pickle.dumps(inner, 2)[2:-1] + b"tR."
    with pytest.raises(DamagedInput, match="was not run") as caught:
        read(data)
    assert "torch.storage._load_from_bytes" in str(caught.value)


UNUSUAL = [
    b"(S'true'\nios\nsystem\n.",  # INST
    b"(cos\nsystem\nS'true'\no.",  # OBJ
    b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85}\x92.",  # NEWOBJ_EX
    b"\x80\x02\x82\x01.",  # EXT1
    b"Pid\n.",  # PERSID
    b"I1\nQ.",  # BINPERSID
    b"\x80\x05\x97.",  # NEXT_BUFFER
    b"cnumpy\nndarray\n(I1000000000000\ntR.",  # a call of an allowed name that is no function
    b"cnumpy\nndarray\n}b.",  # BUILD on a name
    b"}}b.",  # BUILD on a dictionary
    b"cnumpy\ndtype\n(S'O'\nI0\nI1\ntR.",
    b"cnumpy\ndtype\n(S'V8'\nI0\nI1\ntR.",
    b"c_codecs\nencode\n(VAA==\nVbase64\ntR.",
    b"I1\n(I1\ntR.",  # a call of a number
    b"}((I1\nttI1\ns.",  # a tuple as key
    b"\x80\x04\x93.",
    b"cnumpy\n__builtins__\n.",
    b"cnumpy\ncore.multiarray._reconstruct\n.",
]


def test_unusual_opcodes_and_uses_are_refused():
    for data in UNUSUAL:
        with pytest.raises(DamagedInput):
            read(data)


def test_cut_pickles_are_damaged():
    for protocol in PROTOCOLS:
        data = pickle.dumps({"train": np.arange(50), "val": [1, 2, "x"]}, protocol)
        for stop in range(len(data)):
            with pytest.raises(DamagedInput):
                read(data[:stop])


STATES = [
    (1, (5,), np.dtype("i8"), False, b"too short"),
    (1, (-1,), np.dtype("i8"), False, b""),
    (1, (2**40, 0), np.dtype("i8"), False, b"x"),
    (1, "ab", np.dtype("i8"), False, b""),
    (1, (1,), "i8", False, b"12345678"),
    (1, (1,), np.dtype("i8"), False, [1]),
]


def test_arrays_must_be_what_they_say():
    class Array:
        def __init__(self, state):
            self.state = state

        def __reduce__(self):
            return np._core.multiarray._reconstruct, (np.ndarray, (0,), b"b"), self.state

    for state in STATES:
        with pytest.raises(DamagedInput):
            read(pickle.dumps(Array(state), 2))


NESTED = b")" + b"2\x86" * 40  # a tuple of twice the same tuple, 40 levels deep: 10^12 when written out


EXPONENTIAL = [
    b"cnumpy\ndtype\n" + NESTED + b"\x85R.",
    b"cnumpy\ndtype\n" + b")" + b"\x85" * 100_000 + b"\x85R.",  # too deep to be written out
    b"cnumpy\ndtype\n(S'i8'\ntR(I3\n" + NESTED + b"NNNtb.",
    b"c_codecs\nencode\n(VAA\n" + NESTED + b"tR.",
    b"}" + NESTED + b"I1\ns.",
    NESTED + NESTED + b"\x93.",
    NESTED + b"Q.",
]


def test_nested_tuples_are_never_written_out_or_hashed():
    for data in EXPONENTIAL:
        with pytest.raises(DamagedInput):
            read(data)


def test_arrays_of_the_same_bytes_share_them():
    """So that a small file cannot ask for any memory."""
    array = b"cnumpy.core.multiarray\n_reconstruct\n)R(I1\n(I8\ntcnumpy\ndtype\n(S'u1'\ntRI00\nh\x00tb"
    first, second = read(b"\x80\x03C\x08abcdefghq\x000(" + array + array + b"t.")
    assert np.shares_memory(first, second)


@pytest.mark.parametrize("rows", ["nested", "deep", "text", "halves", "huge"])
def test_lists_of_anything_else_are_no_split(rows):
    nested = [0]
    for _ in range(40):
        nested = [nested, nested]
    deep = [0]
    for _ in range(100_000):
        deep = [deep]
    value = {"nested": nested, "deep": deep, "text": ["0"], "halves": [0.5], "huge": [10**5000]}[rows]
    lists = {"train": value, "val": [0], "test": [1]}
    with pytest.raises(DamagedInput, match="not a list of row numbers"):
        check_partition(lists, 3, name="split")
    with pytest.raises(DamagedInput, match="not a split"):
        check_partition({10**5000: [0]}, 3, name="split")


def test_a_memo_of_four_billion_entries_takes_no_memory():
    assert read(b"I1\nr" + struct.pack("<I", 2**32 - 1) + b".") == 1


def test_containers_in_each_other_are_read_up_to_a_depth():
    assert read(b"(" * 60 + b"t" * 60 + b".") is not None


MILLIONS = 2_500_000


DEEP = [
    b"(" * MILLIONS + b"t" * MILLIONS,
    b")" + b"\x85" * MILLIONS,
    b")" + b"N\x86" * MILLIONS,
    b"N" + b"]\x94(" * MILLIONS,
    b"]" * 1_000 + b"a" * MILLIONS,
    b"}" + b"I1\n}" * 1_000 + b"s" * MILLIONS,
    b"(" * 1_000 + b"l" * MILLIONS,
]


def test_nesting_is_refused_at_once():
    for data in DEEP:
        file = io.BytesIO(data + b".")
        with pytest.raises(DamagedInput, match="was not run"):
            read_pickle(file, NUMPY, name="raw.pkl")
        assert file.tell() < 1_000_000


def test_persistent_ids_go_to_the_caller():
    assert read(b"(Vkey\nI3\ntQ.", {}, persistent=lambda pid: pid[1]) == 3


def test_names_are_those_of_the_list_only():
    assert read(b"cmine\nf\n(I2\nI3\ntR.", {"mine.f": lambda a, b: a * b}) == 6
    with pytest.raises(DamagedInput, match="not a pickle of plain data"):
        read(b"cnumpy\nndarray\n.", {})
