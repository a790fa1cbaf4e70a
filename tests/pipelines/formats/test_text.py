"""Columns of a compressed table: the same as :mod:`csv` gives, and every damage named."""

from __future__ import annotations

import gzip

import pytest
from support.shared import shared_data
from support.small_graphs import FUNC_TABLE, real_rows

from kmip_data.errors import DamagedInput
from kmip_data.pipelines.formats.text import read_columns

TEXT = 'id,smiles,note\n1,CC,plain\n2,C=O,"a, b"\n3,N,"two\nlines"\n'


def write(tmp_path, text=TEXT):
    path = tmp_path / "table.csv.gz"
    path.write_bytes(gzip.compress(text if isinstance(text, bytes) else text.encode()))
    return path


def read(path, *columns, max_bytes=10**6, **options):
    return list(read_columns(path, columns or ("smiles", "id"), max_bytes=max_bytes, **options))


def test_columns_in_the_order_asked_for(tmp_path):
    assert read(write(tmp_path)) == [("CC", "1"), ("C=O", "2"), ("N", "3")]
    assert read(write(tmp_path), "note")[1:] == [("a, b",), ("two\nlines",)]
    assert read(write(tmp_path, TEXT.replace(",", "\t")), "smiles", delimiter="\t")[0] == ("CC",)
    assert read(write(tmp_path, TEXT.replace("\n", "\r\n")))[0] == ("CC", "1")


def test_real_table():
    rows = real_rows()
    found = list(
        read_columns(shared_data("peptides_func", FUNC_TABLE), ("labels", "smiles"), max_bytes=10**8)
    )
    assert found == [(row["labels"], row["smiles"]) for row in rows]


@pytest.mark.parametrize("keep", [0, 1, 5, 12, 30, -9, -1])
def test_a_cut_file_is_damaged(tmp_path, keep):
    path = write(tmp_path, TEXT * 50)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DamagedInput, match=r"table\.csv\.gz"):
        read(path)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "columns that were expected"),
        ("a,b\n1,2\n", "columns that were expected"),
        ("id,smiles\n1\n", "line 2: wrong number of fields"),
        ("id,smiles\n1,C,x\n", "line 2: wrong number of fields"),
        (b"id,smiles\n1,\xff\n", "damaged"),
        ('id,smiles\n1,"C\n', "damaged"),
        ("id,smiles\n" + "1,C\n" * 300_000, "too large"),
    ],
)
def test_bad_tables(tmp_path, text, what):
    with pytest.raises(DamagedInput, match=what):
        read(write(tmp_path, text))


def test_a_bomb_takes_no_memory(tmp_path):
    path = tmp_path / "table.csv.gz"
    path.write_bytes(gzip.compress(b"id,smiles\n" + bytes(2**26)))
    with pytest.raises(DamagedInput, match=r"too large|damaged"):
        read(path, max_bytes=2**20)
