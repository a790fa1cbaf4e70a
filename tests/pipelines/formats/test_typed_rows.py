"""Columns of delimited text that are parsed block by block have the dtypes and cells of the whole."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from kmip_data.pipelines.formats import delimited, typed_rows
from kmip_data.pipelines.formats.delimited import count_cells, row_blocks
from kmip_data.pipelines.formats.typed_rows import parse_rows
from kmip_data.runtime import memory

#: Cells that change the dtype of a column, wherever they stand.
RARE = ["0.5", "", "x", "True", "007", "9007199254740993", "9223372036854775809", "-1", "1e400"]
COMMON = ["7", "0.25", "True", "word", '"two, words\nin two lines"', '"a ""quote"""', ""]


@pytest.fixture
def small_blocks(monkeypatch):
    """Let even small texts consist of many blocks, and be mapped."""
    monkeypatch.setattr(delimited, "_BLOCK_BYTES", 24)
    monkeypatch.setattr(typed_rows, "_BLOCK_BYTES", 24)
    monkeypatch.setattr(typed_rows, "_MIN_ROWS_PER_BLOCK", 1)
    monkeypatch.setattr(memory, "MIN_MAPPED_BYTES", 1)


def table(seed):
    """Return the text of a table whose columns have one kind of cells, and a few others."""
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(2, 40))
    columns = []
    for _ in range(4):
        cells = np.array([COMMON[rng.integers(len(COMMON))]] * rows, object)
        for cell in rng.choice(RARE, rng.integers(3)):
            cells[rng.integers(rows)] = cell
        columns.append(["1", *cells])  # a row of blanks would be skipped
    return "".join(",".join(row) + "\n" for row in zip(*columns, strict=True)).encode()


def test_blocks_have_the_columns_of_the_whole(small_blocks):
    for seed in range(20):
        data = table(seed)
        assert b"".join(row_blocks(data)) == data
        joined = parse_rows(memoryview(data), ",")
        whole = typed_rows._parse(data, ",", {})
        # Next to 2⁶³, pandas reads an empty cell as an empty text.
        texts = [name for name in whole if whole[name].dtype.kind == "O"]
        pd.testing.assert_frame_equal(
            joined.fillna(dict.fromkeys(texts, "")), whole.fillna(dict.fromkeys(texts, ""))
        )
        texts = parse_rows(data, ",", dtype=str, na_values=[], usecols=[2])
        pd.testing.assert_frame_equal(
            texts, typed_rows._parse(data, ",", {"dtype": str, "na_values": [], "usecols": [2]})
        )
        assert (count_cells(data, ",") == 4).all()
