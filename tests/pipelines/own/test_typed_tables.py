"""Tables in JSON, Parquet and Arrow, and frames: faults name the line, the package or the option."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.cases import steps_of
from support.cli import kmip
from support.own_graphs import read_files, write_files

import kmip_data
from kmip_data.errors import DamagedInput, KmipDataError, OutOfResources, UsageError
from kmip_data.pipelines.datasets.graphs.findings import Notices
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.own.files import read_tables
from kmip_data.pipelines.own.ids import normal_ids
from kmip_data.pipelines.own.table import Table
from kmip_data.saving.frames import is_frame, table_of_frame

EDGES = '{"source": "a", "target": "b", "w": 1.5}\n\n{"source": "b", "target": "c", "w": 2}\n'


def test_lines_of_json_are_a_table_and_blank_lines_are_counted(tmp_path: Path) -> None:
    content = read_files(write_files(tmp_path / "plain", edges_jsonl=EDGES))
    packed = write_files(tmp_path / "gzip", edges_ndjson=gzip.compress(EDGES.encode()))
    for found in (content, read_files(packed)):
        assert found.edges() == {(0, 1), (1, 2)}
        assert found.first.columns["edge/edge_attr"].tolist() == [[1.5], [2]]
    write_files(tmp_path / "plain", edges_jsonl=EDGES.replace('"c"', "null"))
    with pytest.raises(DamagedInput, match=r"edges\.jsonl, line 3: 'target' is empty"):
        read_files(tmp_path / "plain")


#: Files and parameters -> error, and its message and advice.
FAULTS = [
    ({"edges_jsonl": EDGES + "nothing\n"}, {}, DamagedInput, "line 4: no ", "to_json"),
    ({"edges_jsonl": EDGES + "[1, 2]\n"}, {}, DamagedInput, "line 4: no ", "to_json"),
    (
        {"edges_jsonl": EDGES + '[["source", 1], ["target", 2]]\n'},
        {},
        DamagedInput,
        "line 4: no ",
        "to_json",
    ),
    ({"edges_jsonl": "\n"}, {}, DamagedInput, "no list of objects", "to_json"),
    ({"edges_json": '[{"source": 1}, 2]'}, {}, DamagedInput, "row 1: no object", "to_json"),
    ({"edges_json": '[{"source": 1},'}, {}, DamagedInput, "line 1: no JSON", "to_json"),
    (
        {"edges_feather": b"ARROW1\0\0\0"},
        {},
        KmipDataError,
        "Arrow|pyarrow",
        "to_parquet",
    ),
    ({"edges_parquet": b"PAR1\0\0\0\0"}, {}, KmipDataError, "Parquet|pyarrow", "parquet|pyarrow"),
    (
        {"edges_jsonl": EDGES},
        {"header": "no"},
        UsageError,
        "header='no' has no effect",
        "without header",
    ),
]


@pytest.mark.parametrize("case", range(len(FAULTS)))
def test_a_fault_says_where_it_is_and_what_to_do(tmp_path: Path, case: int) -> None:
    files, parameters, kind, message, remedy = FAULTS[case]
    with pytest.raises(kind, match=message) as caught:
        read_files(write_files(tmp_path / "files", **files), **parameters)
    assert any(word in steps_of(caught.value) for word in remedy.split("|"))


def test_a_column_of_smiles_is_found_in_all_tables(tmp_path: Path) -> None:
    pytest.importorskip("rdkit", reason="rdkit (extra chem) is not installed")
    pytest.importorskip("pyarrow", reason="pyarrow (extra parquet) is not installed")
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
    with pytest.raises(DamagedInput, match=r"links\.json, row 1: 'target' is empty"):
        read_files(folder)


FRAME = pd.DataFrame(
    {"source": ["a", "b"], "target": ["b", "c"], "w": [1, 2], "share": [0.5, None]}
)


@pytest.mark.filterwarnings("ignore:The Dataframe Interchange Protocol is deprecated")
@pytest.mark.parametrize("method", ["__arrow_c_stream__", "__dataframe__"])
def test_frames_of_any_library_are_tables(tmp_path: Path, method: str) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow (extra parquet) is not installed")
    # A table of another library, which offers its columns by one method.
    exported = type("Table", (), {method: staticmethod(getattr(FRAME, method))})()
    assert is_frame(exported)
    kmip_data.save(exported, tmp_path / "one")
    kmip_data.save({"edges": FRAME}, tmp_path / "two")
    first, second = (kmip_data.open(tmp_path / name)[0].to_dict() for name in ("one", "two"))
    assert first.keys() == second.keys()
    assert all((first[name] == second[name]).all() for name in first)


@pytest.mark.parametrize("seed", range(12))
def test_a_frame_is_its_csv_parquet_and_json_lines(tmp_path: Path, seed: int) -> None:
    """Random nodes, in any order, with edges between them: the same graph."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(20, 40))
    ids = rng.permutation(count) + int(rng.integers(0, 3))
    if seed % 3 == 0:
        ids = np.array([f"{number:03d}" for number in ids])
    values = {
        "size": rng.integers(-9, 10**6, count),
        "mass": rng.random(count),
        "gap": np.where(rng.random(count) < 0.2, np.nan, rng.random(count)),
        "flag": rng.random(count) < 0.5,
        "town": rng.choice(["Ulm", "Köln", "a, b"], count),
        "label": rng.choice(["x", "y"], count),
    }
    kept = [name for name in values if name == "label" or rng.random() < 0.6]
    tables = {
        "nodes": pd.DataFrame({"key": ids, **{name: values[name] for name in kept}}),
        "edges": pd.DataFrame(rng.choice(ids, (3 * count, 2)), columns=["von", "nach"]).assign(
            w=rng.random(3 * count)
        ),
    }
    writers = {
        "csv": lambda frame, path: frame.to_csv(path, index=False),
        "parquet": lambda frame, path: frame.to_parquet(path),
        "jsonl": lambda frame, path: frame.to_json(
            path, orient="records", lines=True, double_precision=15
        ),
    }
    builds = [kmip_data.save(tables, tmp_path / "saved")]
    for suffix, write in writers.items():
        folder = tmp_path / suffix
        folder.mkdir()
        for name, frame in tables.items():
            write(frame, folder / f"{name}.{suffix}")
        line = ("build", "graphs", "--name=own", f"--archive={folder}", f"--home={folder}-home")
        assert kmip(*line, "--quiet", "--jobs=1").code == 0
        builds.append(kmip_data.open("own", split=None, home=f"{folder}-home").build)
    graphs = [kmip_data.open(build.path, split=None)[0].to_dict() for build in builds]
    for build, graph in zip(builds, graphs, strict=True):
        assert build.card.schema_ == builds[0].card.schema_
        assert build.card.class_names == builds[0].card.class_names
        assert graph.keys() == graphs[0].keys()
        for name, value in graph.items():
            np.testing.assert_array_equal(value, graphs[0][name])


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
    got = table_of_frame("nodes", nodes, {}, may_have_ids=True)
    assert got.column_names == [*columns, "mass", "kind_"]
    assert normal_ids(got.columns[columns[-1]]).to_pylist() == ids
    # Filtered and sorted edges have an index of other numbers, which are no ends.
    edges = pd.DataFrame({"w": [9.5, 1.5, 2.5], "u": [ids[0], *ids[:2]], "v": [ids[0], *ids[1:]]})
    kmip_data.save({"nodes": nodes, "edges": edges[1:][::-1]}, tmp_path / "a", label="kind_")
    data = kmip_data.open(tmp_path / "a")[0]
    assert data.edge_index.tolist() == [[1, 0], [2, 1]]
    assert data.x[:, -1].tolist() == [1.5, 2.5, 3.5]
    assert data.edge_attr.tolist() == [[2.5], [1.5]]


def test_an_index_that_numbers_rows_or_repeats_a_column_is_none() -> None:
    joined = pd.concat([FRAME, FRAME])
    for frame in (FRAME, joined, FRAME.set_index("source", drop=False)):
        assert table_of_frame("a", frame, {}, may_have_ids=True).column_names == [*FRAME]
    pairs = FRAME.set_index(["source", "target"])
    assert table_of_frame("a", pairs, {}, may_have_ids=False).column_names == [*FRAME]


def test_arrow_is_read_as_a_file_and_as_a_stream(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow (extra parquet) is not installed")
    from pyarrow import ipc

    frame = FRAME.set_index("source")  # pandas stores the index as a column
    table = pa.Table.from_pandas(frame)
    for name, new in (("a.arrow", ipc.new_file), ("b.arrow", ipc.new_stream)):
        with new(str(tmp_path / name), table.schema) as writer:
            writer.write_table(table)
    frame.to_feather(tmp_path / "c.feather")
    frame.to_parquet(tmp_path / "d.parquet")
    FRAME.drop(0).to_parquet(tmp_path / "e.parquet")  # with numbers as an index without a name
    FRAME.set_axis(["p", "q"]).to_parquet(tmp_path / "f.parquet")

    def read(name: str, memory: int | None = None) -> Table:
        (table,) = read_tables(
            tmp_path, [name], ReadOptions(GraphParams(), None, memory), Notices()
        )
        return table

    for path in sorted(tmp_path.iterdir()):
        expected = FRAME.drop(0) if path.stem == "e" else FRAME
        columns = {name: read(path.name).columns[name].to_pylist() for name in FRAME}
        assert columns == expected.replace({float("nan"): None}).to_dict("list")
        others = {*read(path.name).columns} - {*FRAME}
        assert others == ({"index"} if path.stem == "f" else set())
        with pytest.raises(OutOfResources, match=path.name):
            read(path.name, 10)
    assert read("f.parquet").columns["index"].to_pylist() == ["p", "q"]
