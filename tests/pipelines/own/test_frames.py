"""Tables in JSON, Parquet and Arrow, and frames: faults name the line, the package or the option."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pandas as pd
import pytest
from support.own_graphs import read_files, write_files
from support.raises import raises

import kmip_data
from kmip_data.errors import DamagedInput, OutOfResources
from kmip_data.pipelines.datasets.graphs.findings import Notices
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.own.files import read_tables
from kmip_data.saving.frames import table_of_frame

EDGES = '{"source": "a", "target": "b", "w": 1.5}\n\n{"source": "b", "target": "c", "w": 2}\n'


def test_lines_of_json_are_a_table_and_blank_lines_are_counted(tmp_path: Path) -> None:
    content = read_files(write_files(tmp_path / "plain", edges_jsonl=EDGES))
    packed = write_files(tmp_path / "gzip", edges_ndjson=gzip.compress(EDGES.encode()))
    for found in (content, read_files(packed)):
        assert found.edges() == {(0, 1), (1, 2)}
        assert found.first.columns["edge/edge_attr"].tolist() == [[1.5], [2]]
    write_files(tmp_path / "plain", edges_jsonl=EDGES.replace('"c"', "null"))
    with raises(DamagedInput, naming=["edges.jsonl, line 3", "target"]):
        read_files(tmp_path / "plain")


#: Files -> place that the error names.
FAULTS = [
    ({"edges_jsonl": EDGES + "nothing\n"}, "edges.jsonl, line 4"),
    ({"edges_jsonl": EDGES + "[1, 2]\n"}, "edges.jsonl, line 4"),
    ({"edges_jsonl": "\n"}, "edges.jsonl"),
    ({"edges_json": '[{"source": 1}, 2]'}, "edges.json"),
    ({"edges_json": '[{"source": 1},'}, "edges.json, line 1"),
    ({"edges_feather": b"ARROW1\0\0\0"}, "edges.feather"),
    ({"edges_parquet": b"PAR1\0\0\0\0"}, "edges.parquet"),
]


@pytest.mark.parametrize("case", range(len(FAULTS)))
def test_a_fault_says_where_it_is(tmp_path: Path, case: int) -> None:
    files, place = FAULTS[case]
    with raises(DamagedInput, naming=place) as caught:
        read_files(write_files(tmp_path / "files", **files))
    assert caught.value.steps


def test_a_column_of_smiles_is_found_in_all_tables(tmp_path: Path) -> None:
    pytest.importorskip("rdkit", reason="rdkit (extra chem) is not installed")
    table = pd.DataFrame({"label": [1, 0], "smiles": ["CCO", "C=O"]})
    for suffix in ("csv", "jsonl", "parquet"):
        (tmp_path / suffix).mkdir()
    table.to_csv(tmp_path / "csv" / "a.csv", index=False)
    table.to_json(tmp_path / "jsonl" / "a.jsonl", orient="records", lines=True)
    table.to_parquet(tmp_path / "parquet" / "a.parquet")
    for suffix in ("csv", "jsonl", "parquet"):
        records = read_files(tmp_path / suffix).records
        assert [record.num_nodes for record in records] == [3, 2]


def test_records_of_json_are_a_table(tmp_path: Path) -> None:
    rows = [{"source": 5, "target": 7, "w": 1.5}, {"target": 5, "source": 6, "w": None}]
    for content in (json.dumps(rows, indent=1).encode(), gzip.compress(json.dumps(rows).encode())):
        found = read_files(write_files(tmp_path / "a", links_json=content))
        assert found.edges() == {(0, 2), (1, 0)}
    del rows[1]["target"]
    folder = write_files(tmp_path / "a", links_json=json.dumps(rows))
    with raises(DamagedInput, naming=["links.json, row 1", "target"]):
        read_files(folder)


FRAME = pd.DataFrame(
    {"source": ["a", "b"], "target": ["b", "c"], "w": [1, 2], "share": [0.5, None]}
)


#: Categories of a column -> whether their dtype is ordered, and its features.
CATEGORIES = {
    ("1", "4", "7bis", "14"): (False, ["1", "14", "4", "7bis"]),
    ("1", "4", "7", "14"): (False, ["1", "14", "4", "7"]),
    (1, 4, 7, 14): (False, ["1", "4", "7", "14"]),
    ("low", "mid", "NA", "high"): (True, ["low", "mid", "NA", "high", "extreme"]),
    ("2020-01-01", "2021-01-01", "(0, 5]", "true"): (
        False,
        ["(0, 5]", "2020-01-01", "2021-01-01", "true"],
    ),
}


@pytest.mark.parametrize("values", CATEGORIES)
def test_a_dtype_of_categories_decides_whatever_their_texts(tmp_path: Path, values: tuple) -> None:
    """The only difference between a frame and its CSV, which has no dtypes."""
    ordered, names = CATEGORIES[values]
    dtype = pd.CategoricalDtype([*values, "extreme"], ordered=True) if ordered else "category"
    column = pd.Series([*values, *values, None]).astype(dtype)
    nodes = pd.DataFrame({"id": range(9), "line": column, "kind": column, "y": [0, 1, 0] * 3})
    edges = pd.DataFrame({"source": range(8), "target": range(1, 9)})
    tables = {"nodes": nodes, "edges": edges}
    build = kmip_data.save(tables, tmp_path / "x", label="y", ignore="kind")
    x = kmip_data.open(tmp_path / "x")[0].x
    fields = build.card.schema_.column("node/x").fields
    assert [*fields] == [f"line={name}" for name in names]
    codes = [names.index(str(value)) for value in values]
    assert x.argmax(1)[:8].tolist() == codes * 2
    assert x.sum(1).tolist() == [1] * 8 + [0]
    kmip_data.save(tables, tmp_path / "y", label="kind", ignore=["line", "y"])
    dataset = kmip_data.open(tmp_path / "y")
    assert dataset.class_names == names
    assert dataset[0].y.tolist() == [*codes, *codes, -1]


#: Index of a table of nodes with the ids 5, 7 and 9, or letters -> the columns that it becomes.
INDEXES = {
    "named": (lambda ids: pd.Index(ids, name="who"), ["who"]),
    "without a name": (pd.Index, ["index"]),
    "of categories": (lambda ids: pd.CategoricalIndex(ids, name="who"), ["who"]),
    "of two levels": (
        lambda ids: pd.MultiIndex.from_arrays([list("xyx"), ids], names=["kind", "who"]),
        ["kind", "who"],
    ),
}


@pytest.mark.parametrize("ids", [[5, 7, 9], ["b", "a", "c"]], ids=["numbers", "texts"])
@pytest.mark.parametrize("case", INDEXES)
def test_an_index_of_pandas_is_a_column(tmp_path: Path, case: str, ids: list[object]) -> None:
    make_index, columns = INDEXES[case]
    nodes = pd.DataFrame({"mass": [1.5, 2.5, 3.5], "kind_": list("uvu")}, index=make_index(ids))
    table = table_of_frame("nodes", nodes, {}, may_have_ids=True)
    assert table.column_names == [*columns, "mass", "kind_"]
    assert table.texts(columns[-1]) == [*map(str, ids)]
    # Filtered and sorted edges have an index of other numbers, which are no ends.
    edges = pd.DataFrame({"w": [9.5, 1.5, 2.5], "u": [ids[0], *ids[:2]], "v": [ids[0], *ids[1:]]})
    kmip_data.save({"nodes": nodes, "edges": edges[1:][::-1]}, tmp_path / "a", label="kind_")
    data = kmip_data.open(tmp_path / "a")[0]
    assert data.edge_index.tolist() == [[1, 0], [2, 1]]
    assert data.x[:, -1].tolist() == [1.5, 2.5, 3.5]
    assert data.edge_attr.tolist() == [[2.5], [1.5]]


def test_an_index_that_numbers_rows_or_repeats_a_column_is_none() -> None:
    for frame in (FRAME, pd.concat([FRAME, FRAME]), FRAME.set_index("source", drop=False)):
        assert table_of_frame("t", frame, {}, may_have_ids=True).column_names == [*FRAME]
    pairs = FRAME.set_index(["source", "target"])
    assert table_of_frame("t", pairs, {}, may_have_ids=False).column_names == [*FRAME]


@pytest.mark.filterwarnings("ignore:The Dataframe Interchange Protocol is deprecated")
def test_frames_of_any_library_and_files_of_arrow_are_tables(tmp_path: Path) -> None:
    """An index is a column of a file, unless it numbers the rows."""
    from pyarrow import Table, ipc

    indexed = FRAME.set_index("source")
    table = Table.from_pandas(indexed)
    for name, new in (("a.arrow", ipc.new_file), ("b.arrow", ipc.new_stream)):
        with new(str(tmp_path / name), table.schema) as writer:
            writer.write_table(table)
    indexed.to_feather(tmp_path / "c.feather")
    indexed.to_parquet(tmp_path / "d.parquet")
    FRAME.sample(frac=1, random_state=1).to_parquet(tmp_path / "e.parquet")
    options = ReadOptions(GraphParams())
    tables = [
        read_tables(tmp_path, [path.name], options, Notices())[0]
        for path in sorted(tmp_path.iterdir())
    ]
    for method in ("__arrow_c_stream__", "__dataframe__"):
        # A table of another library, which offers its columns by one method.
        exported = type("Table", (), {method: staticmethod(getattr(FRAME, method))})()
        tables.append(table_of_frame("t", exported, {}, may_have_ids=False))
    for found in tables:
        columns = {name: found.columns[name].to_pylist() for name in FRAME}
        read = pd.DataFrame(columns).sort_values("source", ignore_index=True)
        pd.testing.assert_frame_equal(read, FRAME)
        assert len(found.columns) == len(FRAME.columns)
    FRAME.set_axis(["p", "q"]).to_parquet(tmp_path / "f.parquet")
    (found,) = read_tables(tmp_path, ["f.parquet"], options, Notices())
    assert found.texts("index") == ["p", "q"]
    with pytest.raises(OutOfResources):
        read_tables(tmp_path, ["d.parquet"], ReadOptions(GraphParams(), memory=1), Notices())
