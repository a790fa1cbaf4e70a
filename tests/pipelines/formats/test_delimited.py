"""One reader of delimited text: tables of nodes and clouds of points with the same cells are equal."""

from __future__ import annotations

import io
import itertools
import time

import numpy as np
import pytest
from support.cases import check_each
from support.own_graphs import number_folders, read_files, write_files

from kmip_data.errors import DamagedInput
from kmip_data.pipelines.datasets.points.files import read_point_columns
from kmip_data.pipelines.domains.cloud_columns import CloudOptions
from kmip_data.pipelines.formats.delimited import (
    DelimitedText,
    guess_separator,
    read_delimited,
    row_blocks,
    split_rows,
)

NUMBERS = [[1.5, 2.5, 3.25], [-1.25, 0.5, 7], [0.125, 12, -3.5], [4, 5, 6]]


def both(folder, data, *, header=None):
    """Return the numbers (rows, columns) that a table of nodes and a cloud of points have."""
    options = CloudOptions(header=header)
    (folder.parent / "cloud.txt").write_bytes(data)
    columns = read_point_columns(folder.parent / "cloud.txt", "cloud.txt", options)
    points = np.column_stack(list(columns.values.values())).astype(float)
    write_files(folder, edges_csv="source,target\n0,1\n1,2\n", nodes_csv=data)
    (record,) = read_files(folder, label=("none",)).records
    return points, record.columns["node/x"]


def written(numbers, separator, decimal, quote=""):
    """Return the lines of numbers in a notation."""
    rows = [
        [f"{quote}{number:g}{quote}".replace(".", decimal) for number in row] for row in numbers
    ]
    return [separator.join(row) for row in rows]


SEPARATORS = ["\t", ";", ",", "|", " ", "   ", ", ", "; "]


def test_both_kinds_of_text_have_the_written_numbers(tmp_path):
    """Separators, decimal signs, names, line ends, byte order marks, quotes and comments."""
    folders = number_folders(tmp_path)

    def check(case):
        separator, decimal, header, end, encoding, quote = case
        if decimal == separator.strip() and not quote:
            return
        lines = written(NUMBERS, separator, decimal, quote)
        if header:
            lines.insert(
                0, separator.join(f"{quote}{name}{quote}" for name in ("x", "height", "z"))
            )
        lines[1:1] = ["", "# made here", "% 1 2"]
        data = end.join([*lines, ""]).encode(encoding)
        for numbers in both(next(folders), data):
            np.testing.assert_allclose(numbers, NUMBERS, rtol=1e-6)

    layouts = [
        *itertools.product(SEPARATORS, [".", ","], [True, False], ["\n"], ["utf-8"], [""]),
        *itertools.product([";", " "], [","], [True], ["\n", "\r\n", "\r"], ["utf-8-sig", "utf-16"], ["", '"']),
    ]  # fmt: skip
    check_each(check, layouts)


@pytest.mark.parametrize("separator", ["\t", ";", ",", "|"])
@pytest.mark.parametrize("last", [3.5, None])
def test_an_empty_cell_is_missing_where_it_stands(tmp_path, separator, last):
    """No cell moves into an empty column, at the end neither."""
    rows = [[1, 2, None, 7], [4, 5, 6.5, last], [8, 9, None, 1]]
    lines = [separator.join("" if cell is None else f"{cell:g}" for cell in row) for row in rows]
    points, features = both(tmp_path / "t", "\n".join([*lines, ""]).encode())
    np.testing.assert_array_equal(points, np.array(rows, float))
    expected = np.nan_to_num(np.array(rows, float))
    np.testing.assert_array_equal(features[:, [0, 1, 2, 4]], expected)


@pytest.mark.parametrize("separator", ["\t", ";", ",", " "])
def test_a_line_of_another_width_is_named(tmp_path, separator):
    lines = written(NUMBERS, separator, ".")
    lines[2] = lines[2].rpartition(separator)[0]
    data = "\n".join(["# by hand", *lines]).encode()
    (tmp_path / "a.txt").write_bytes(data)
    with pytest.raises(DamagedInput, match="line 4"):
        read_point_columns(tmp_path / "a.txt", "a.txt", CloudOptions())
    folder = write_files(tmp_path / "t", edges_csv="u,v\n0,1\n", nodes_csv=data)
    with pytest.raises(DamagedInput, match="line 4"):
        read_files(folder)


@pytest.mark.parametrize("mark", ["sep=;", '"sep=;"', "SEP=;"])
def test_the_line_with_which_excel_names_the_separator_is_followed(tmp_path, mark):
    data = "\n".join([mark, "x;height;z", *written(NUMBERS, ";", ",")]).encode()
    for numbers in both(tmp_path / "t", data):
        np.testing.assert_allclose(numbers, NUMBERS, rtol=1e-6)


def test_points_separate_thousands_next_to_decimal_commas(tmp_path):
    rows = ["x;height;z", "1.234,5;2,5;3", "-2.000,25;0,5;7", "5.000,5;1,5;1"]
    expected = [[1234.5, 2.5, 3], [-2000.25, 0.5, 7], [5000.5, 1.5, 1]]
    for numbers in both(tmp_path / "t", "\n".join([*rows, ""]).encode()):
        np.testing.assert_allclose(numbers, expected, rtol=1e-6)


def test_blocks_of_rows_end_where_no_quote_is_open():
    """A block is the longest run of rows in the pieces so far; only the last may end in a cell."""

    def check(seed):
        random = np.random.default_rng(seed)
        data = random.choice(np.frombuffer(b'""a,\n\n', np.uint8), 300).tobytes()
        size = int(random.integers(1, 40))
        blocks = [*row_blocks(data, size)]
        assert b"".join(blocks) == data
        ends = [match for match in range(1, 301) if data[:match].endswith(b"\n")]
        row_ends = [end for end in ends if data.count(b'"', 0, end) % 2 == 0]
        last_of_pieces = {
            max((end for end in row_ends if end <= read), default=0)
            for read in [*range(size, 300, size), 300]
        }
        expected = {*last_of_pieces, 300} - {0}
        assert set(itertools.accumulate(map(len, blocks))) == expected

    check_each(check, range(200))


@pytest.mark.parametrize("line", [b"1,2\n", b'1,""2""\n', b'1,"2\n'])
def test_a_quote_that_is_never_closed_takes_linear_time(line):
    data = b'"' + line * 100_000
    start = time.process_time()
    assert sum(map(len, row_blocks(data, 64))) == len(data)
    assert sum(map(len, row_blocks(data))) == len(data)
    assert DelimitedText(data).first_row()
    assert time.process_time() - start < 3


@pytest.mark.parametrize(
    ("text", "is_mapped"),
    [
        ("a,b\n", True),
        ("größe\n", True),
        # A character of two bytes begins in one block and ends in the next.
        ("a" * (2**20 - 1) + "ä\n", True),
        ("a,b\r\n", False),
        ("a,b\n\n# end\n", False),
        ("\ufeffa,b\n", False),
    ],
)
def test_utf8_with_lf_needs_no_copy(text, is_mapped):
    read = read_delimited(memoryview(text.encode()), "t.csv")
    assert isinstance(read.data, memoryview) == is_mapped
    rows = text.removeprefix("\ufeff").replace("\r", "").removesuffix("\n# end\n")
    assert bytes(read.data).decode() == rows


def test_a_file_in_another_encoding_asks_for_it():
    for text in ("größe\n".encode("latin-1"), "ä\n".encode()[:1], b"a" * 2**20 + b"\xe4,\n"):
        with pytest.raises(DamagedInput, match="not in utf-8"):
            read_delimited(memoryview(text), "t.csv")


@pytest.mark.parametrize(
    ("lines", "separator"),
    [
        (["Sent\tFrom\tTo\tSize (kB)", "2023-02-01 10:21\tp1\tp2\t8"], "\t"),
        (["first name\tage\tclub", "Anna Berg\t31\tb"], "\t"),
        (["time\tflow rate", "2023-02-01 10:21:07.5\t2"], "\t"),
        (["1.2.2023 10:21 a", "2.2.2023 10:22 b"], " "),
        (["a b\t0.5", "b c\t1.5"], " "),  # NCOL: blanks between names, a tab before the weight
        (["1,5 2,5", "3,5 4,5"], " "),
    ],
)
def test_blanks_in_cells_between_tabs_are_theirs(lines, separator):
    assert guess_separator(lines) == separator


@pytest.mark.parametrize(
    ("row", "cells"),
    [
        ('1\t"Deep" learning\tx', ["1", '"Deep" learning', "x"]),
        ('1\t"Deep learning\tx', ["1", '"Deep learning', "x"]),
        ('1\t5" pipe\t""', ["1", '5" pipe', '""']),
        ('1\t"a ""b"""\tx', ["1", 'a "b"', "x"]),  # CSV's quotes
        ('1\t"two\nlines"\tx', ["1", "two\nlines", "x"]),
    ],
)
def test_quotes_of_text_separated_by_tabs_are_characters_unless_it_is_csv(row, cells):
    text = read_delimited(f"id\ttitle\tkind\n0\tb\tx\n{row}\n2\tc\ty\n".encode(), "a.tsv")
    rows = list(split_rows(io.StringIO(bytes(text.data).decode()), "\t"))
    assert rows[2] == cells
    assert [len(row) for row in rows] == [3, 3, 3, 3]
