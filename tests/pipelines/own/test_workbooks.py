"""Workbooks of Excel and OpenDocument: their sheets are tables, read within limits."""

from __future__ import annotations

import contextlib
import datetime as dt
import signal
import struct
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import openpyxl
import pandas as pd
import psutil
import pytest
from support.own_graphs import read_files
from support.raises import raises

from kmip_data.errors import DamagedInput, OutOfResources, Setting
from kmip_data.pipelines.datasets.graphs import OwnGraphsPipeline
from kmip_data.pipelines.datasets.graphs.findings import Notices
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.own import workbook_process
from kmip_data.pipelines.own.files import head_of_table, read_tables
from kmip_data.pipelines.own.table import Table

LIMIT = 2**28

Rows = list[list[Any]]


def write_workbook(path: Path, hidden: str = "", **sheets: Rows) -> Path:
    book = openpyxl.Workbook()
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        if name == hidden:
            sheet.sheet_state = "hidden"
        for row in rows:
            sheet.append(row)
    book.remove(book.worksheets[0])
    book.save(path)
    return path


def read(path: Path, notices: Notices | None = None) -> list[Table]:
    options = ReadOptions(GraphParams(), memory=LIMIT)
    return read_tables(path.parent, [path.name], options, notices or Notices())


def columns_of(table: Table) -> dict[str, list[Any]]:
    return {name: cells.to_pylist() for name, cells in table.columns.items()}


def test_sheets_are_tables_below_their_names(tmp_path: Path) -> None:
    people = [
        ["People of the study"],
        [],
        ["name", "born", "size", "share", None, "here", None],
        ["Ann", dt.date(1990, 2, 3), 3, 0.5, None, True, "a note"],
        [],
        ["007", dt.datetime.fromisoformat("1991-01-01 12:30"), 4.0, 2, None, False],
        ["Bo", None, 5, 0.25, None, False],
    ]
    path = write_workbook(
        tmp_path / "book.xlsx",
        hidden="Pairs",
        People=people,
        Pairs=[["from", "to"], ["Ann", "007"]],
        Empty=[],
        Words=[["only"], ["one"]],
    )
    notices = Notices()
    tables = read(path, notices)
    assert [table.name for table in tables] == [
        "book.xlsx, People",
        "book.xlsx, Pairs",
        "book.xlsx, Words",
    ]
    assert len(notices.warnings) == 1
    columns = columns_of(tables[0])
    assert [*columns] == ["name", "born", "size", "share", "here", "unnamed 6"]
    assert columns["born"] == ["1990-02-03", "1991-01-01 12:30:00", None]
    assert columns["name"] == ["Ann", "007", "Bo"]
    assert columns["size"] == [3, 4, 5]
    assert columns["here"] == [True, False, False]
    assert head_of_table(path, LIMIT).startswith(b"name,born,size,share,here,from,to")


def test_each_cell_of_a_merged_range_has_its_value(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    sheet = book.worksheets[0]
    rows = [["Towns"], ["region", "town", "n"], ["N", "a", 1], [None, "b", 2], ["S", "c", 3]]
    for row in ([], *rows):
        sheet.append([None, *row])
    sheet.merge_cells("B2:D2")  # a title, and not the names
    sheet.merge_cells("B4:B5")
    sheet.merge_cells("F5:G9")  # beside the table
    book.save(tmp_path / "a.xlsx")
    (table,) = read(tmp_path / "a.xlsx")
    assert table.column_names == ["region", "town", "n"]
    assert table.texts("region") == ["N", "N", "S"]


def test_rows_are_numbered_as_in_the_sheet(tmp_path: Path) -> None:
    rows = [["edges"], ["source", "target"], ["a", "b"], [None, None], ["b", None]]
    write_workbook(tmp_path / "edges.xlsx", Links=rows)
    with raises(DamagedInput, naming=["edges.xlsx, Links, row 5", "target"]):
        read_files(tmp_path)


def test_sheets_of_a_workbook_are_the_files_of_a_folder(tmp_path: Path) -> None:
    people = [["Author", "Born", "h"], ["Ann", "1990-01-02", 3], ["Bo", None, 4], ["Cy", "x", 5]]
    pairs = [["First", "Second", "Papers"], ["Ann", "Bo", 2], ["Cy", "Ann", 7]]
    (tmp_path / "book").mkdir()
    (tmp_path / "texts").mkdir()
    write_workbook(tmp_path / "book" / "a.xlsx", Pairs=pairs, People=people)
    for name, rows in (("pairs", pairs), ("people", people)):
        frame = pd.DataFrame(rows[1:], columns=rows[0])
        frame.to_csv(tmp_path / "texts" / f"{name}.csv", index=False)
    book, texts = (read_files(tmp_path / name).first for name in ("book", "texts"))
    assert book.edge_index.tolist() == texts.edge_index.tolist()
    assert book.columns.keys() == texts.columns.keys()
    assert all((book.columns[key] == texts.columns[key]).all() for key in texts.columns)


def test_a_hidden_sheet_is_said(tmp_path: Path) -> None:
    write_workbook(tmp_path / "a.xlsx", hidden="Links", Links=[["source", "target"], [0, 1]], A=[])
    warnings = read_files(tmp_path).files["warnings"]
    assert any(line.startswith("a.xlsx, Links is hidden") for line in warnings)


def write_open_document(path: Path, cells: str) -> Path:
    names = ("office", "table", "text")
    spaces = [f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in names]
    table = f'<table:table table:name="Trips">{cells}</table:table>'
    body = f"<office:body><office:spreadsheet>{table}</office:spreadsheet></office:body>"
    content = f"<office:document-content {' '.join(spaces)}>{body}</office:document-content>"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        archive.writestr("content.xml", content)
        archive.writestr(
            "META-INF/manifest.xml",
            '<m:manifest xmlns:m="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"/>',
        )
    return path


TEXT = '<table:table-cell office:value-type="string"><text:p>{}</text:p></table:table-cell>'
NUMBER = '<table:table-cell office:value-type="float" office:value="{}" {}/>'


def test_sheets_of_open_document_are_tables(tmp_path: Path) -> None:
    names = "".join(map(TEXT.format, ("from", "to", "km")))
    trip = TEXT.format("Ulm") + TEXT.format("Bonn") + NUMBER.format(440, 'table:formula="of:=4"')
    # Programs end a sheet with a million rows of empty cells.
    columns = 'table:number-columns-repeated="16384"'
    millions = '<table:table-row table:number-rows-repeated="1048574">'
    end = f"{millions}<table:table-cell {columns}/></table:table-row>"
    rows = f"<table:table-row>{names}</table:table-row><table:table-row>{trip}</table:table-row>"
    (table,) = read(write_open_document(tmp_path / "a.ods", rows + end))
    assert table.name == "a.ods, Trips"
    assert columns_of(table) == {"from": ["Ulm"], "to": ["Bonn"], "km": [440]}

    formula = '<table:table-row><table:table-cell table:formula="of:=1+1"/></table:table-row>'
    path = write_open_document(tmp_path / "b.ods", formula)
    with raises(DamagedInput, naming=["Trips", "=1+1"]):
        read(path)
    filled = f"{millions}{NUMBER.format(1, columns)}</table:table-row>"
    path = write_open_document(tmp_path / "c.ods", filled)
    with pytest.raises((OutOfResources, DamagedInput)):  # some versions have a limit of their own
        read(path)


def encrypted_workbook() -> bytes:
    """Smallest container in which Excel stores an encrypted workbook: one entry, without its data."""
    last, free = 2**32 - 2, 2**32 - 1
    header = bytes.fromhex("d0cf11e0a1b11ae1") + bytes(16)
    header += struct.pack("<5H6x5I", 62, 3, 65534, 9, 6, 0, 1, 1, 0, 4096)
    header += struct.pack("<4I109I", last, 0, last, 0, 0, *[free] * 108)
    allocation = struct.pack("<128I", 2**32 - 3, last, *[free] * 126)
    entries = b""
    for name, kind, child in (("Root Entry", 5, 1), ("EncryptedPackage", 2, free)):
        text = name.encode("utf-16-le")
        entry = struct.pack("<64sHBB3I", text, len(text) + 2, kind, 1, free, free, child)
        entries += entry + bytes(36) + struct.pack("<IQ", last, 0)
    return header + allocation + entries.ljust(512, b"\0")


def with_formula(path: Path) -> None:
    write_workbook(path, Other=[["x"]], Sums=[["a", "b"], [1, "=A2+1"]])


def with_far_cell(path: Path) -> None:
    """Two cells that a table of all cells between them would need 500 GB for."""
    book = openpyxl.Workbook()
    book.worksheets[0]["A1"] = "a"
    book.worksheets[0]["XFD1048576"] = 1
    book.save(path)


#: Writer of a faulty workbook -> error, and what it names.
FAULTS: dict[str, tuple[Any, type[Exception], str]] = {
    "formula": (with_formula, DamagedInput, "Sums, cell B2"),
    "far cell": (with_far_cell, OutOfResources, "268.4 MB"),
    "password": (lambda path: path.write_bytes(encrypted_workbook()), DamagedInput, "password"),
    "text": (lambda path: path.write_text("a,b\n"), DamagedInput, ".xlsx, .xlsb, .xls"),
    "empty": (lambda path: write_workbook(path, A=[]), DamagedInput, "a.xlsx"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_a_workbook_are_named(tmp_path: Path, fault: str) -> None:
    write, kind, named = FAULTS[fault]
    write(tmp_path / "a.xlsx")
    with raises(kind, naming=named):
        read(tmp_path / "a.xlsx")


def test_an_empty_text_is_the_value_of_a_formula(tmp_path: Path) -> None:
    """Excel stores it without a character; only a number or an error is never empty."""
    path = tmp_path / "a.xlsx"
    with_formula(tmp_path / "b.xlsx")
    with zipfile.ZipFile(tmp_path / "b.xlsx") as source, zipfile.ZipFile(path, "w") as target:
        for member in source.namelist():
            data = source.read(member).replace(b'<c r="B2">', b'<c r="B2" t="str">')
            target.writestr(member, data)
    assert read(path)[0].columns["b"].null_count == 1


def test_molecules_of_a_workbook_are_read(tmp_path: Path) -> None:
    pytest.importorskip("rdkit", reason="rdkit (extra chem) is not installed")
    molecules = [["SMILES", "label"], ["CCO", 1], ["C=O", 0]]
    write_workbook(tmp_path / "a.xlsx", Notes=[["by me"]], Drugs=molecules)
    found = read_files(tmp_path)
    assert [record.num_nodes for record in found.records] == [3, 2]
    assert any(line.startswith("a.xlsx, Notes: ") for line in found.files["ignored"])


def test_a_workbook_that_pandas_writes_is_its_frame(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "whole": [1, 2, -(2**53) + 1],
            "real": [0.1, -1e300, 3.0],
            "gap": [1.0, None, 2.0],
            "text": ["x", None, "ü\n"],
            "flag": [True, False, True],
            "day": pd.to_datetime(["2020-01-01", "1999-12-31", "2030-06-15"]),
        }
    )
    frame.to_excel(tmp_path / "a.xlsx", index=False)
    (table,) = read(tmp_path / "a.xlsx")
    frame["day"] = frame["day"].astype(str)
    expected = frame.assign(gap=[1, None, 2], text=["x", None, "ü"]).astype(object)
    assert columns_of(table) == expected.where(expected.notna(), None).to_dict("list")


def test_a_first_row_has_names_or_data(tmp_path: Path) -> None:
    """Names do not occur below; what may be either is asked."""
    rows = [["a", "b"], ["b", "c"], ["c", "d"]]
    for first, answers in (([["from", "to"]], []), ([], [Setting(header="no")])):
        notices = Notices()
        (table,) = read(write_workbook(tmp_path / "book.xlsx", Pairs=first + rows), notices)
        assert [*notices.questions.values()] == answers
        assert (table.has_names, table.rows) == (bool(first), 3)


@pytest.mark.parametrize(
    ("number", "options"),
    [
        (signal.SIGTERM, ()),
        (signal.SIGKILL, ()),
        (signal.SIGHUP, ("--memory", "2GiB")),  # in a worker
        (signal.SIGKILL, ("--memory", "2GiB")),
    ],
)
def test_a_build_that_is_ended_while_a_workbook_is_read_ends_the_reader(
    tmp_path: Path, number: int, options: tuple[str, ...]
) -> None:
    """Also while the library holds the interpreter: 100 kB are two million cells."""
    write_workbook(tmp_path / "small.xlsx", A=[["a", "b"], [1, 2]])
    row = b"<row>%s</row>" % (50 * b"<c><v>1</v></c>")
    path = tmp_path / "a.xlsx"
    with (
        zipfile.ZipFile(tmp_path / "small.xlsx") as source,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as target,
    ):
        for member in source.namelist():
            data = source.read(member).replace(b"</sheetData>", 40_000 * row + b"</sheetData>")
            target.writestr(member, data)
    assert path.stat().st_size < OwnGraphsPipeline.max_bytes_in_process

    words = ["-m", "kmip_data", "build", "graphs", "--archive", path, "--name", "a", *options]
    with psutil.Popen([sys.executable, *words, "--home", tmp_path / "home"]) as build:
        while True:
            children = build.children(recursive=True)
            with contextlib.suppress(psutil.NoSuchProcess):
                if any(workbook_process.__file__ in child.cmdline() for child in children):
                    break
            assert build.poll() is None
        time.sleep(0.3)  # in the library
        build.send_signal(number)
        for _ in range(20):
            time.sleep(0.1)
            left = [
                process
                for process in (build, *children)
                if process.is_running() and process.status() != psutil.STATUS_ZOMBIE
            ]
            if not left:
                break
        for process in left:
            process.kill()
    assert not left
