"""Text: points round as Python does, columns agree with :mod:`csv`, and every damage is named."""

from __future__ import annotations

import gzip
import zlib

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.builds.raw_graphs import FUNC_TABLE, real_rows
from support.raises import raises
from support.shared import shared_data
from torch_geometric.io import read_txt_array

from kmip_data.errors import DamagedInput
from kmip_data.pipelines.formats import text as tables
from kmip_data.pipelines.formats.text import parse_points, read_columns

digits = st.text("0123456789", max_size=25)


@st.composite
def decimals(draw) -> str:
    whole, fraction = draw(digits), draw(digits)
    if not whole + fraction:
        whole = "0"
    point = "." if fraction or draw(st.booleans()) else ""
    exponent = draw(st.sampled_from(["", "", "e{}", "E{}", "e+{}", "e-{}"])).format(
        draw(st.integers(0, 60))
    )
    return draw(st.sampled_from(["", "-", "+"])) + whole + point + fraction + exponent


def as_python(words: list[str]) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.array([float(word) for word in words]).astype(np.float32)


@settings(max_examples=250, deadline=None)
@given(st.lists(decimals(), min_size=1, max_size=6))
@example(["9007199254740993", "9007199254740992", "9007199254740991", "4503599627370497.5"])
@example(["16777217", "16777219", "0.50000002980232238769531249", "0.5000000298023223876953125"])
@example(
    ["-0.000000", "0.0", "-0", "1e-46", "7e-46", "1e-400", "123456789012345678901234567890e-30"]
)
@example(["1e22", "1e23", "8.5e22", "1e-22", "1e-23", "340282346638528859811704183484516925440"])
@example(
    ["00000000000000000000000000001", "0.1000000000000000055511151231257827", "5.", ".5", "+.5e+01"]
)
def test_numbers_are_rounded_as_in_python(words):
    expected = as_python(words)
    text = " ".join(words).encode()
    if np.isfinite(expected).all():
        assert parse_points(text, len(words), name="a").tobytes() == expected.tobytes()
    else:
        with raises(DamagedInput, naming=["a, line 1", len(words)]):
            parse_points(text, len(words), name="a")


def test_every_line_end_separates_points():
    for end in ("\n", "\r\n", "\r", ""):
        for between in ("\n", "\r\n", "\r"):
            text = between.join(["1 2", " 3\t4 ", "\t5  6"]) + end
            assert parse_points(text.encode(), 2, name="a").tolist() == [[1, 2], [3, 4], [5, 6]]


def test_pyg_loses_the_last_point_without_a_line_break(tmp_path):
    """The reason for a row of docs/fidelity.md; the day it fails, the row goes."""
    path = tmp_path / "a.txt"
    path.write_text("1 2\n3 4\n5 6")
    assert len(read_txt_array(str(path))) == 2
    assert len(parse_points(path.read_bytes(), 2, name="a")) == 3


#: a line that is refused where three columns are expected
WRONG = (
    *(
        b"4 5",
        b"4 5 6 7",
        b"",
        b"4 nan 6",
        b"4 -inf 6",
        b"4 5 1e39",
        b"4 5 six",
        b"4 5 6_0",
        b"4 5 0x10",
    ),
    *(b"4 5 1e+", b"4 5 .", b"4 5 103.0\x000000", b"1,2,3", b"4 5 \xd9\xa3"),
)


def test_unreadable_text_names_the_line():
    for wrong in WRONG:
        with raises(DamagedInput, naming=["a.txt, line 2", 3]) as error:
            parse_points(b"1 2 3\n" + wrong + b"\n7 8 9", 3, name="folder/a.txt")
        assert ascii(wrong.decode("latin-1"))[1:6] in ascii(str(error.value)), wrong
    with raises(DamagedInput, naming="a, line 1"):
        parse_points(b"", 3, name="a")


@settings(max_examples=250, deadline=None)
@given(
    st.binary(max_size=60) | st.text("0123456789.-+eE \t\r\n\0nax_", max_size=60).map(str.encode)
)
def test_any_bytes_are_read_as_python_reads_them_or_refused(data):
    try:
        points = parse_points(data, 2, name="a")
    except DamagedInput:
        return
    lines = (
        data.decode("ascii")
        .replace("\r\n", "\n")
        .replace("\r", "\n")
        .removesuffix("\n")
        .split("\n")
    )
    assert points.tobytes() == np.stack([as_python(line.split()) for line in lines]).tobytes()


# --- tables ---


TEXT = 'id,smiles,note\n1,CC,plain\n2,C=O,"a, b"\n3,N,"two\nlines"\n'


def write(tmp_path, text=TEXT):
    path = tmp_path / "table.csv.gz"
    path.write_bytes(gzip.compress(text if isinstance(text, bytes) else text.encode()))
    return path


def read(path, *columns, max_bytes=10**6, **options):
    return list(read_columns(path, columns or ("smiles", "id"), max_bytes=max_bytes, **options))


def test_columns_are_returned_in_the_requested_order(tmp_path):
    assert read(write(tmp_path)) == [("CC", "1"), ("C=O", "2"), ("N", "3")]
    assert read(write(tmp_path), "note")[1:] == [("a, b",), ("two\nlines",)]
    assert read(write(tmp_path, TEXT.replace(",", "\t")), "smiles", delimiter="\t")[0] == ("CC",)
    assert read(write(tmp_path, TEXT.replace("\n", "\r\n")))[0] == ("CC", "1")


def test_a_published_table_equals_the_csv_module():
    rows = real_rows()
    parsed = list(
        read_columns(
            shared_data("peptides_func", FUNC_TABLE), ("labels", "smiles"), max_bytes=10**8
        )
    )
    assert parsed == [(row["labels"], row["smiles"]) for row in rows]


@pytest.mark.parametrize("by", ["isal, where it is installed", "gzip"])
def test_a_cut_or_changed_file_is_damaged(by, tmp_path, monkeypatch):
    if by == "gzip":
        monkeypatch.setattr(tables, "open_gzip", gzip.open)
        monkeypatch.setattr(tables, "InflateError", zlib.error)
    path = write(tmp_path, TEXT * 50)
    data = path.read_bytes()
    rows = read(path)
    cut = [data[:keep] for keep in (0, 5, 30, -9, -1)]
    changed = [data[:i] + bytes([data[i] ^ 4]) + data[i + 1 :] for i in range(10, len(data))]
    refused = 0
    for damaged in cut + changed:
        path.write_bytes(damaged)
        try:
            assert read(path) == rows
        except DamagedInput:
            refused += 1
    assert refused == len(cut) + len(changed) - 1  # one bit stands behind the last block


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "smiles, id"),
        ("a,b\n1,2\n", "a, b"),
        ("id,smiles\n1\n", ["line 2", 2, 1]),
        ("id,smiles\n1,C,x\n", ["line 2", 2, 3]),
        (b"id,smiles\n1,\xff\n", "UnicodeDecodeError"),
        ('id,smiles\n1,"C\n', "line 0"),
        ("id,smiles\n" + "1,C\n" * 300_000, 1_000_000),
    ],
)
def test_tables_that_cannot_be_read_are_named(tmp_path, text, named):
    with raises(DamagedInput, naming=named):
        read(write(tmp_path, text))


def test_a_bad_line_is_quoted_up_to_80_characters():
    with raises(DamagedInput, naming=repr("1 2 " + "x" * 76)):
        parse_points(b"1 2 " + b"x" * 200, 3, name="a")
