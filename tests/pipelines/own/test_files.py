"""Files become tables: cells, names of columns, lines, and tables of several files."""

import csv
import gzip
import io
import json
import random
from pathlib import Path

import pandas as pd
import pytest

from kmip_data.errors import DamagedInput
from kmip_data.pipelines.datasets.graphs.findings import Notices
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.own.files import read_tables
from kmip_data.pipelines.own.table import FILE, FOLDER, STEM
from kmip_data.pipelines.own.texts.cells import read_with_arrow, read_with_python
from kmip_data.pipelines.own.texts.lines import Rows
from kmip_data.pipelines.own.texts.separators import SEPARATORS

CELLS = ["a", "b c", "", "1", "2.5", 'say "no"', "x\ny", "1,5", "p;q", "ä", "t|u", "-", " "]


def read(folder, **params):
    """Return the tables of all files, and the notices."""
    notices = Notices()
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    options = ReadOptions(GraphParams(**params))
    return read_tables(folder, files, options, notices), notices


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def columns_of(table):
    return {name: column.to_pylist() for name, column in table.columns.items()}


@pytest.mark.parametrize("seed", range(60))
def test_written_cells_and_their_lines_are_read(tmp_path, seed):
    rng = random.Random(seed)
    names = ["id", *rng.sample(["größe", "a b", "x, y", "kind", "z"], rng.randrange(1, 4))]
    rows = [
        [str(number), *rng.choices(CELLS, k=len(names) - 1)]
        for number in range(rng.randrange(3, 30))
    ]
    separator = rng.choice("\t;,|")
    if len(names) == 2 and rng.random() < 0.5:
        rows = [[row[0], row[1].replace("\n", " ")] for row in rows]
    quoting = rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
    text = io.StringIO()
    writer = csv.writer(text, delimiter=separator, quoting=quoting, lineterminator="\n")
    lines = []
    for row in [names, *rows]:
        while rng.random() < 0.1:
            text.write(rng.choice(["\n", "# note\n", "  \n", "% it's\n"]))
        lines.append(text.getvalue().count("\n") + 1)
        writer.writerow(row)
    data = text.getvalue().replace("\n", rng.choice(["\n", "\r\n"]))
    encoded = data.encode(rng.choice(["utf-8", "utf-8-sig", "utf-16"]))
    path = tmp_path / "table.csv"
    path.write_bytes(gzip.compress(encoded) if rng.random() < 0.3 else encoded)

    (table,), notices = read(tmp_path)

    assert notices.questions == {}
    assert table.column_names == names
    truth = [[cell.strip() or None for cell in column] for column in zip(*rows, strict=True)]
    assert [*columns_of(table).values()] == truth
    found = [table.location(row) for row in range(table.rows)]
    assert found == [f"table.csv, line {line}" for line in lines[1:]]


@pytest.mark.parametrize("seed", range(100))
def test_both_parsers_give_the_same_table(seed):
    rng = random.Random(seed)
    separator = rng.choice(SEPARATORS)
    cells = [cell for cell in CELLS if separator != " " or (cell.strip() and " " not in cell)]
    if rng.random() < 0.5:
        cells = [cell for cell in cells if '"' not in cell and "\n" not in cell]
    buffer = io.StringIO()
    writer = csv.writer(buffer, delimiter=separator, lineterminator="\n")
    width = rng.randrange(2, 5)
    writer.writerows(rng.choices(cells, k=width) for _ in range(rng.randrange(1, 20)))
    lines = range(1, 1_000)
    rows = Rows("table.csv", buffer.getvalue().encode(), lines, {})
    fast = read_with_arrow(rows, separator, csv.QUOTE_MINIMAL)
    slow = read_with_python(rows, separator, csv.QUOTE_MINIMAL)
    if fast is None:  # cells with line breaks
        assert len(slow[1]) < buffer.getvalue().count("\n")
    else:
        assert fast[0] == slow[0]
        assert [*fast[1][: len(slow[1])]] == [*slow[1]]


@pytest.mark.parametrize(
    ("text", "separator", "width"),
    [
        ("1,5 2,5\n3,5 4,5\n", " ", 2),
        ("   0   1\n   1   2\n", " ", 2),
        ('sep=;\nid;b\n1;"2,3"\n', ";", 2),
        ('id\tsize\n1\t"12 inch\n2\t"13 inch\n', "\t", 2),
        ("id,x\n1,2\n,,\n,,\n", ",", 2),
        ("id\nMain St 1\nElm\n", "", 1),
    ],
)
def test_separators(tmp_path, text, separator, width):
    (table,), _ = read(write(tmp_path, {"table.txt": text}))
    assert (table.separator, len(table.columns)) == (separator, width)


NAMES = {
    "text above numbers": "place,height\na,1\nb,2\n",
    "text above dates": "place,day\na,2020-01-01\nb,NA\n",
    "known names": "from,to\na,b\nc,d\n",
    "year above fractions": "Exporter,Importer,2021\nDE,FR,1.5\nDE,FR,2.5\nFR,DE,1\nFR,DE,3\n",
    "positions above fractions": "0,1,2\n0.5,1.5,2.5\n1.5,0.5,1.0\n",
    "names of a matrix": ",3,1,7\n3,0,1,1\n1,1,0,0\n7,1,0,0\n",
    "categories": "land,sort\nDE,x\nFR,y\nDE,y\nFR,x\n",
    "comment": "# source target weight\na b 1\nb c 2\n",
}
DATA = {
    "numbers": "0 1\n1 2\n2 3\n",
    "weights": "a,b,1\nb,c,2\na,c,1\n",
    "text again in its column": "ann,bob\nbob,cem\nann,cem\n",
    "missing above numbers": "NA,1\n3,2\n4,3\n",
}
QUESTIONS = {"ids": "ann,bob\nbob,cem\ncem,dan\n"}


@pytest.mark.parametrize(
    ("text", "has_names"),
    [
        *((text, True) for text in NAMES.values()),
        *((text, False) for text in DATA.values()),
        *((text, None) for text in QUESTIONS.values()),
    ],
    ids=[*NAMES, *DATA, *QUESTIONS],
)
def test_first_line_is_names_or_data(tmp_path, text, has_names):
    write(tmp_path, {"table.csv": text})
    (table,), notices = read(tmp_path)
    lines = text.count("\n") - text.count("#")
    if has_names is None:
        assert len(notices.questions) == 1
        for answer, rows in (("yes", lines - 1), ("no", lines)):
            (table,), notices = read(tmp_path, header=answer)
            assert (table.rows, notices.questions) == (rows, {})
        return
    assert not notices.questions
    assert table.has_names == has_names
    assert table.rows == lines - (has_names and "#" not in text)


@pytest.mark.parametrize("first", ["a,b", "von,nach"])
def test_ids_of_another_table_tell_names_from_edges(tmp_path, first):
    edges = f"{first}\nb,c\nc,d\nd,a\n"
    write(tmp_path, {"nodes.csv": "id,x\na,1\nb,2\nc,3\nd,4\n", "z.csv": edges})
    tables, notices = read(tmp_path)
    assert not notices.questions
    assert tables[1].has_names == (first != "a,b")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("id,x\n1,2\n3,4,5\n1,2\n", "table.csv, line 3: 3 fields, and 2 in the first line."),
        ("0 1\n\n# c\n1\n2 3\n", "table.csv, line 4: 1 field, and 2 in the first line."),
        ('id,x\n1,2\n3,"4\n5,6\n', "table.csv, line 3: a quote does not end"),
        ("id,x\n1,2\n#3,4\n", "table.csv, line 3: a comment with as many cells as a row."),
        ("id,x\n1,tas\udce9\n", "table.csv, line 2: the text is not in utf-8."),
        ("0 1 {'w': 1}\n1 2 {'w': }\n", "table.csv, line 2: no edge as networkx"),
        ("0 1 {'w': 1}\n1 2 {'source': 5}\n", "table.csv, line 2: an attribute is called source"),
        ("", "table.csv is empty."),
        ("\0\1\2", "table.csv is no delimited text."),
    ],
)
def test_faults_name_the_line(tmp_path, text, problem):
    (tmp_path / "table.csv").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(DamagedInput) as error:
        read(tmp_path)
    assert problem in str(error.value)


def test_files_that_are_no_tables_are_noted(tmp_path):
    files = {
        "edges.csv": "source,target\na,b\nb,c\n",
        "README": "These are friends,\nof which, in all, there are few.\nThanks\n",
        "cite.txt": "Someone, somewhere\n",
        "blob.bin": "\0\0",
    }
    (table,), notices = read(write(tmp_path, files))
    assert table.name == "edges.csv"
    assert {*notices.ignored} == {"README", "cite.txt", "blob.bin"}


FRAME = pd.DataFrame(
    {
        "id": [3, 1, 2],
        "name": ["a", "b c", None],
        "share": [0.5, None, 2.25],
        "is_hub": [True, False, True],
        "code": ["01", "02", "10"],
    }
)


@pytest.mark.parametrize("suffix", ["csv", "parquet", "feather", "jsonl", "json", "xlsx", "csv.gz"])
def test_formats_give_the_same_cells(tmp_path, suffix):
    path = str(tmp_path / f"table.{suffix}")
    if "csv" in suffix:
        FRAME.to_csv(path, index=False)
    elif "json" in suffix:
        FRAME.to_json(path, orient="records", lines=suffix == "jsonl")
    elif suffix == "xlsx":
        FRAME.to_excel(path, index=False)
    else:
        getattr(FRAME, f"to_{suffix}")(path)
    (table,), notices = read(tmp_path)
    assert table.column_names == [*FRAME]
    assert not notices.questions
    for name in FRAME:
        truth = FRAME[name].tolist()
        cells = (
            [None if text == "" else json.loads(text.lower()) for text in table.texts(name)]
            if name in {"id", "share", "is_hub"}
            else [text or None for text in table.texts(name)]
        )
        assert cells == [None if pd.isna(value) else value for value in truth]


def test_lists_categories_and_objects_of_a_frame(tmp_path):
    frame = pd.DataFrame(
        {
            "id": [1, 2],
            "kind": pd.Categorical(["b", None], ["c", "b"]),
            "size": pd.Categorical(["s", "l"], ["s", "m", "l"], ordered=True),
            "day": pd.to_datetime(["2020-01-31", None]),
            "place": [[0.5, 1.0], [2.0, 3.0]],
            "path": [[1], [2, 3]],
            "empty": [None, None],
        }
    )
    frame.to_parquet(tmp_path / "table.parquet")
    (table,), notices = read(tmp_path)
    assert table.categories == {"kind": ("b",), "size": ("s", "m", "l")}
    assert table.texts("day") == ["2020-01-31", ""]
    assert columns_of(table)["place_1"] == [1.0, 3.0]
    assert notices.ignored == {"path": "lists or objects"}
    assert columns_of(table)["empty"] == [None, None]


def test_sheets_are_tables(tmp_path):
    with pd.ExcelWriter(tmp_path / "book.xlsx") as file:
        FRAME.to_excel(file, sheet_name="Nodes", index=False, startrow=2)
        pd.DataFrame().to_excel(file, sheet_name="Empty", index=False)
    (table,), notices = read(tmp_path)
    assert table.name == "book.xlsx, Nodes"
    assert table.location(1) == "book.xlsx, Nodes, row 5"
    assert notices.ignored == {"book.xlsx, Empty": "no cell"}


def test_files_with_the_same_columns_are_one_table(tmp_path):
    files = {
        "net/app_1.edges.csv": "source,target\n0,1\n",
        "net/app_2.edges.csv": "source,target\n\n1,2\n2,0\n",
        "train.txt": "a\nb\nc\na\n",
        "val.txt": "d\ne\nd\n",
        "x.txt": "0 1\n1 2\n",
        "y.txt": "0 3\n1 3\n",
    }
    write(tmp_path, files)
    tables, _ = read(tmp_path, header="no")
    by_name = {table.name: table for table in tables}
    assert [*by_name] == ["net", "train.txt, val.txt", "x.txt", "y.txt"]
    columns = columns_of(by_name["net"])
    assert columns[STEM] == ["app_1", "app_2", "app_2"]
    assert columns[FOLDER] == ["net"] * 3
    assert columns[FILE][0] == "net/app_1.edges.csv"
    assert by_name["net"].location(2) == "app_2.edges.csv, line 4"
    assert columns_of(by_name["train.txt, val.txt"])[STEM] == ["train"] * 4 + ["val"] * 3


def test_one_cell_of_ten_megabytes_and_many_columns(tmp_path):
    Path(tmp_path, "long.csv").write_text("id,x\n1," + "a" * 10**7 + "\n2,b\n")
    (table,), _ = read(tmp_path)
    assert len(columns_of(table)["x"][0]) == 10**7
    names = ",".join(f"c{i}" for i in range(16_000))
    Path(tmp_path, "long.csv").write_text(f"{names}\n" + (",".join(["1"] * 16_000) + "\n") * 5)
    (table,), _ = read(tmp_path)
    assert (table.rows, len(table.columns)) == (5, 16_000)
