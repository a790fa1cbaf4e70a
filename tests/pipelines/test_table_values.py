"""Values of tables as people write them: numbers, texts, missing values, labels and what is asked."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from support.cases import check_each
from support.own_graphs import (
    PIPELINE,
    build_in_memory,
    number_folders,
    parse_remedy,
    read_files,
    write_files,
)
from support.raises import raises

import kmip_data
from kmip_data.errors import DamagedInput, OpenQuestions, Setting


def table_of(folder, cells, separator=";"):
    """Return a folder with a table of nodes of one column ``sum``, and a path of edges."""
    rows = "".join(f'{row}{separator}"{cell}"\n' for row, cell in enumerate(cells))
    nodes = f"id{separator}sum\n{rows}"
    return write_files(folder, edges_csv="u,v\n0,1\n1,2\n", nodes_csv=nodes)


#: Cells, separator, options -> numbers, and the options that are asked for.
NUMBERS = [
    (["1.200,50", "9.300,10", "-7,25"], ";", {}, [1200.5, 9300.1, -7.25], {}),
    (["1,200.50", "9,300.10", "7.25"], ";", {}, [1200.5, 9300.1, 7.25], {}),
    (["1.234.567", "1.000", "2"], ";", {}, [1234567, 1000, 2], {}),
    (["1 234", "5", "7"], ",", {}, [1234, 5, 7], {}),
    (["1'200.50", "9'300.10", "7"], ";", {"decimal": "."}, [1200.5, 9300.1, 7], {}),
    (["1.200,50", "k.A.", "9.300,10"], ";", {}, [1200.5, 0, 9300.1], {"missing": ("sum:k.A.",)}),
    (["1,234", "910", "1,500"], ";", {"decimal": ","}, [1.234, 910, 1.5], {}),
    (["1,234", "910", "1,500"], ",", {}, [1234, 910, 1500], {"decimal": "."}),
    (["155.565", "65.124", "7"], ";", {}, [155_565, 65_124, 7], {"decimal": ","}),
    (["155.565", "65.124", "7"], ",", {}, [155.565, 65.124, 7], {}),
    (["155.565", "65.124", "7.100"], ";", {"decimal": "."}, [155.565, 65.124, 7.1], {}),
    (["155.565", "65.124", "1.155.565"], ";", {}, [155_565, 65_124, 1_155_565], {}),
    (["0.565", "0.124", "0.500"], ";", {}, [0.565, 0.124, 0.5], {}),
    (["58.0", "57.0", "155.0"], ";", {"decimal": ","}, [58, 57, 155], {}),  # as pandas writes them
    (["12 %", "8%", "1.5 %"], ";", {}, [12, 8, 1.5], {}),
    (["190 km/h", "60 km/h", "0,5 km/h"], ";", {}, [190, 60, 0.5], {}),
    (["5 m", "6 m", "7 m"], ",", {}, [5, 6, 7], {}),
]  # fmt: skip


def test_numbers_are_read_as_they_are_or_as_answered(tmp_path):
    folders = number_folders(tmp_path)

    def check(case):
        cells, separator, options, expected, answers = case
        folder = table_of(next(folders), cells, separator)
        if answers:
            with pytest.raises(OpenQuestions) as caught:
                read_files(folder, **options)
            assert parse_remedy(caught.value) == answers
        got = read_files(folder, **options, **answers).first.columns["node/x"][:, 0]
        np.testing.assert_allclose(got, expected)

    check_each(check, NUMBERS)
    for cells in (
        ["1.2.3", "1.2.3", "1.2"],
        ["A1", "A2", "A1"],
        ["1st", "2nd", "2nd"],
        ["5m", "6m", "5m"],
    ):
        got = read_files(table_of(next(folders), cells))
        assert len(got.schema.column("node/x").fields) == 2
    for cells, sign in ((["1.155.565", "7"], "."), (["1.500", "1.5"], ","), (["1,5", "2"], ".")):
        with pytest.raises(OpenQuestions):
            read_files(table_of(next(folders), cells), decimal=sign)


def test_a_choice_is_requested_once_for_all_columns(tmp_path):
    rows = ["id,country,city,since,score\n"]
    for i in range(300):
        country = ("NA", "DE", "FR")[i % 3]
        score = "n.d." if i == 7 else i
        rows.append(f"{i},{country},c{i % 100},{1_700_000_001 + i},{score}\n")
    folder = write_files(tmp_path / "c", edges_csv="from,to\n0,1\n", nodes_csv="".join(rows))
    with pytest.raises(OpenQuestions) as caught:
        read_files(folder)
    assert len(caught.value.questions) == 4
    got = read_files(folder, **parse_remedy(caught.value))
    fields = got.schema.column("node/x").fields
    assert fields == ("country=DE", "country=FR", "country=NA", "score", "score missing")
    # Kept instead of left out, each by the answer that is printed.
    missing = ("country:none", "score:n.d.")
    kept = read_files(folder, missing=missing, categories=100, rounded=("since",))
    assert len(kept.schema.column("node/x").fields) == 3 + 100 + 1 + 2


def test_a_word_that_is_missing_in_one_column_leaves_the_others(tmp_path):
    """NA among the numbers of age stays missing where ``missing`` names the word of another column."""
    frame = pd.DataFrame(
        {"id": range(8), "age": ["1", "NA", *"345678"], "score": [*"1234567", "n.d."]}
    )
    folder = write_files(
        tmp_path / "m", edges_csv="u,v\n0,1\n", nodes_csv=frame.to_csv(index=False)
    )
    for parameters in ({"missing": ("score:n.d.",)}, {"missing": ("n.d.",)}):
        got = read_files(folder, **parameters)
        fields = got.schema.column("node/x").fields
        assert fields == ("age", "age missing", "score", "score missing")
        x = got.first.columns["node/x"]
        assert x[:, 0].tolist() == [1, 0, 3, 4, 5, 6, 7, 8]
        assert x[:, 1].tolist() == [0, 1, 0, 0, 0, 0, 0, 0]
        assert x[7, 2:].tolist() == [0, 1]


#: Labels of a table, task -> values stored, and classes.
TARGETS = [
    (["0", "1", "NA", "1"], None, [0, 1, -1, 1], 2),
    (["0.0", "1.0", "nan", "1.0"], None, [0, 1, -1, 1], 2),
    (["a", " b", "a ", ""], None, [0, 1, 0, -1], 2),
    (["yes", "no", "N/A", "yes"], None, [1, 0, -1, 1], 2),
    (["1.5", "2", "NA", "7"], None, [1.5, 2, None, 7], None),
    (["1", "2", "", "7"], "regression", [1, 2, None, 7], None),
    (["-1", "2", "3", "-7"], "regression", [-1, 2, 3, -7], None),
    (["True", "False", "", "True"], None, [1, 0, -1, 1], 2),
]


def test_a_missing_label_is_no_class(tmp_path):
    folders = number_folders(tmp_path)

    def check(case):
        texts, task, expected, classes = case
        texts, expected = texts * 3, expected * 3
        frame = pd.DataFrame({"id": range(12), "x": 1.5, "label": texts})
        folder = write_files(
            next(folders), edges_csv="u,v\n0,1\n", nodes_csv=frame.to_csv(index=False)
        )
        got = read_files(folder, task=task)
        y = got.first.columns["node/y"].astype(float)
        np.testing.assert_array_equal(y, [np.nan if value is None else value for value in expected])
        assert got.schema.y_column.num_classes == classes
        missing = (
            sum(value in {None, -1} for value in expected) if task is None or "" in texts else 0
        )
        assert got.files.get("missing_labels") == ([f"label: {missing}"] if missing else None)

    check_each(check, TARGETS)


def test_names_of_many_features_stand_on_the_card(tmp_path):
    """64 kB of names have no room in the schema of a shard."""
    names = [f"a feature with {'a long ' * 12}name {number}" for number in range(640)]
    assert len("".join(names)) > 2**16
    frame = pd.DataFrame(np.ones((3, 640), int), columns=names)
    folder = write_files(
        tmp_path / "f", edges_csv="u,v\n0,1\n1,2\n", nodes_csv=frame.to_csv(index_label="id")
    )
    kmip_home = tmp_path / "home"
    from support.cli import kmip

    done = kmip(
        "build",
        "graphs",
        "--name=wide",
        f"--archive={folder}",
        f"--home={kmip_home}",
        "-q",
        "--json",
    )
    assert done.code == 0, done.err
    assert done.json["files"]["features"]["x"] == names
    assert kmip_data.open("wide", split=None, home=kmip_home)[0].x.shape == (3, 640)


def test_a_table_of_a_million_columns_is_refused_at_once(tmp_path):
    line = b",".join([b"1"] * 1_000_000) + b"\n"
    folder = write_files(tmp_path / "w", edges_csv="u,v\n0,1\n", nodes_csv=line * 2)
    with pytest.raises(DamagedInput):
        read_files(folder)


def test_fractions_that_float32_rounds_are_no_question(tmp_path):
    """A constant has no range, and 0.1 no float32; seconds since 1970 are asked about in ASKED."""
    edges = "u,v,w,d\n0,1,0.1,0.1\n1,2,0.1,0.7\n2,0,0.1,\n"
    values = read_files(write_files(tmp_path / "t", edges_csv=edges)).first.columns[
        "edge/edge_attr"
    ]
    np.testing.assert_allclose(values, [[0.1, 0.1, 0], [0.1, 0.7, 0], [0.1, 0, 1]])


def test_integers_of_a_table_above_0_are_the_built_class_names(tmp_path):
    nodes = "id,label\n" + "".join(f"{node},{1950 + node % 3}\n" for node in range(6))
    got = read_files(write_files(tmp_path / "t", edges_csv="u,v\n0,1\n1,5\n", nodes_csv=nodes))
    assert got.schema.y_column.num_classes == 3
    np.testing.assert_array_equal(got.first.columns["node/y"], [0, 1, 2, 0, 1, 2])


@pytest.mark.parametrize("words", [("false", "true"), ("False", "True"), ("no", "yes", "")])
def test_truth_values_name_their_classes(tmp_path, words):
    nodes = "id,label\n" + "".join(f"{node},{words[node % len(words)]}\n" for node in range(6))
    folder = write_files(tmp_path / "t", edges_csv="u,v\n0,1\n1,5\n", nodes_csv=nodes)
    params, (record,) = build_in_memory(folder)
    assert PIPELINE.class_names(params) == words[:2]
    codes = [0, 1, -1][: len(words)] * 3
    np.testing.assert_array_equal(record.columns["node/y"], codes[:6])
    for task in ("regression", "multilabel"):
        got = read_files(folder, task=task).first.columns["node/y"].reshape(-1)
        np.testing.assert_array_equal(got, [[0, 1, np.nan][code] for code in codes[:6]])


def test_texts_are_refused_as_regression_targets(tmp_path):
    nodes = "id,income\n" + "".join(
        f"{node},{'low' if node % 2 else 'high'}\n" for node in range(6)
    )
    for task in ("regression", "multilabel"):
        folder = write_files(tmp_path / task, edges_csv="u,v\n0,1\n1,5\n", nodes_csv=nodes)
        with raises(DamagedInput, naming="high") as caught:
            read_files(folder, label=("income",), task=task)
        assert (
            read_files(
                folder, label=("income",), **parse_remedy(caught.value)
            ).schema.y_column.num_classes
            == 2
        )


#: Files that are refused with options to type -> rows that a build by these options must have.
ASKED = [
    ({"list_txt": "p q\nr s\nt u\n"}, {"edges": 2}),
    ({"a_csv": "u,v\n0,1\n", "b_csv": "u,v\n0,1\n1,2\n"}, {"edges": 3}),
    ({"edges_csv": "source,target,from,to\n1,2,3,4\n2,3,4,5\n"}, {"edges": 2}),
    ({"edges_csv": "u,v\n5,7\n", "nodes_csv": "a,b\n5,7\n7,5\n"}, {"nodes": 2}),
    ({"edges_csv": "u,v\n0,1\n", "nodes_csv": "id,mass\n1,1\n2,2\n"}, {"nodes": 2}),
    ({"edges_csv": "u,v,t\n0,1,1e99\n1,2,1\n"}, {"edges": 2}),
    ({"edges_csv": "u,v,t\n0,1,5\n1,2,6\n2,3,x\n"}, {"edges": 3}),
    ({"edges_csv": "graph,graph_id,u,v\n1,1,0,1\n2,1,1,2\n"}, {"graphs": 2}),
]  # fmt: skip


def test_advice_that_is_followed_ends_in_a_build_with_every_row(tmp_path):
    folders = number_folders(tmp_path)

    def check(case):
        files, rows = case
        folder = write_files(next(folders), **files)
        parameters = {}
        with pytest.raises(DamagedInput):
            read_files(folder)
        for _ in range(3):
            try:
                got = read_files(folder, **parameters)
            except DamagedInput as error:
                parameters |= parse_remedy(error)
        counts = {
            "graphs": len(got.records),
            "nodes": sum(record.num_nodes for record in got.records),
            "edges": sum(record.num_edges for record in got.records),
        }
        assert {key: counts[key] for key in rows} == rows

    check_each(check, ASKED)


def test_a_number_that_means_missing_is_compared_as_a_number(tmp_path):
    folder = table_of(tmp_path / "a", ["1.5", "0.0", "0", "2"])
    got = read_files(folder, missing=("0",))
    assert got.first.columns["node/x"].tolist() == [[1.5, 0], [0, 1], [0, 1], [2, 0]]
    nodes = "id,kind\n0,-9\n1,0\n2,1\n"
    folder = write_files(tmp_path / "b", edges_csv="u,v\n0,1\n1,2\n", nodes_csv=nodes)
    got = read_files(folder, label=("kind",), missing=("-9",))
    assert got.first.columns["node/y"].tolist() == [-1, 0, 1]


@pytest.mark.parametrize("names", [("a",), ("a", "b", "c")])
def test_another_number_of_class_names_than_of_classes_is_refused(tmp_path, names):
    folder = write_files(tmp_path / "t", edges_csv="u,v\n0,1\n", nodes_csv="id,y\n0,0\n1,1\n")
    with raises(DamagedInput, naming=["class_name", len(names), 2]):
        read_files(folder, class_name=names)
    assert read_files(folder, class_name=("a", "b")).schema.y_column.num_classes == 2


def test_a_missing_text_is_no_distinct_value(tmp_path):
    nodes = "id,y,f\n0,p,1\n1,n/a,n/a\n2,q,2\n3,p,2\n"
    folder = write_files(tmp_path / "t", edges_csv="u,v\n0,1\n", nodes_csv=nodes)
    params, _ = build_in_memory(folder, missing=("n/a",))
    columns = params.inferred.description.columns_of_level("node")
    assert (columns["y"].distinct, columns["y"].missing) == (2, 1)
    assert (columns["f"].distinct, columns["f"].missing) == (2, 1)


def test_many_different_integers_are_classes_or_numbers(tmp_path):
    """Twenty values are classes; sixty in sixty rows are asked about, and each answer builds."""
    rows = "".join(f"{node},{node * 37 % 5_000 + 1}\n" for node in range(60))
    folder = write_files(tmp_path / "f", edges_csv="u,v\n0,1\n1,2\n", nodes_csv="id,label\n" + rows)
    with raises(OpenQuestions, naming=["label", 60], steps=Setting(task="regression")):
        read_files(folder, label=("label",))
    assert (
        read_files(folder, label=("label",), task="regression").schema.y_column.num_classes is None
    )
    assert (
        read_files(folder, label=("label",), task="classification").schema.y_column.num_classes
        == 60
    )

    rows = "".join(f"{node},name {node}\n" for node in range(60))
    folder = write_files(tmp_path / "t", edges_csv="u,v\n0,1\n1,2\n", nodes_csv="id,title\n" + rows)
    with raises(OpenQuestions, naming=["title", 60], steps=Setting(task="classification")):
        read_files(folder, label=("title",))

    rows = "".join(f"{node},{node % 20}\n" for node in range(25))
    folder = write_files(tmp_path / "g", edges_csv="u,v\n0,1\n1,2\n", nodes_csv="id,label\n" + rows)
    assert read_files(folder, label=("label",)).schema.y_column.num_classes == 20


@pytest.mark.parametrize("name", ["edge_id", "vid", "personId", "id_of_row", "OBJECTID", "ID"])
def test_distinct_numbers_named_like_ids_are_left_out_and_reported(tmp_path, name):
    rows = "".join(f"{node},{node + 1},{node * 3},{node % 2}\n" for node in range(5))
    got = read_files(write_files(tmp_path / "t", edges_csv=f"u,v,{name},w\n" + rows))
    assert got.schema.column("edge/edge_attr").fields == ("w",)
    assert got.files["ignored"] == [f"{name}: ids or names of the rows"]
    # Words that end in the same letters, and numbers that repeat, are values.
    for other, number in (("paid", 3), ("humid", 3), ("kind_id", 0)):
        rows = "".join(f"{node},{node + 1},{node * number},1\n" for node in range(5))
        got = read_files(write_files(tmp_path / other, edges_csv=f"u,v,{other},w\n" + rows))
        assert got.schema.column("edge/edge_attr").fields == (other, "w")


@pytest.mark.parametrize("labels", [("-1", "0", "1"), ("-1", "3", "", "5")])
def test_minus_one_in_a_table_is_a_class_or_missing(tmp_path, labels):
    """A class has its name; a missing label has the code -1, and the other numbers name classes."""
    labels = labels * 4
    nodes = "".join(f"n{row},{label}\n" for row, label in enumerate(labels))
    edges = "".join(f"n{row},n{row - 1}\n" for row in range(1, len(labels)))
    folder = write_files(
        tmp_path / "a", nodes_csv=f"node,label\n{nodes}", edges_csv=f"source,target\n{edges}"
    )
    with pytest.raises(OpenQuestions):
        read_files(folder)
    filled = sorted({int(label) for label in labels if label})
    as_class = read_files(folder, missing=("none",))
    codes = [filled.index(int(label)) if label else -1 for label in labels]
    assert as_class.first.columns["node/y"].tolist() == codes
    as_missing = read_files(folder, missing=("-1",))
    is_missing = as_missing.first.columns["node/y"] == -1
    assert is_missing.tolist() == [label in {"", "-1"} for label in labels]


@pytest.mark.parametrize("name", ["label", "class", "target", "y"])
@pytest.mark.parametrize("values", [("hub", "exit"), ("1", "2"), ("0", "1"), ("7", "7x")])
def test_a_label_of_few_nodes_that_differs_for_each_is_no_target(tmp_path, name, values):
    labels = dict(zip((3, 9), values, strict=True))
    nodes = "".join(f"n{row},{labels.get(row, '')}\n" for row in range(40))
    edges = "".join(f"n{row},n{row - 1}\n" for row in range(1, 40))
    folder = write_files(
        tmp_path / "a", nodes_csv=f"node,{name}\n{nodes}", edges_csv=f"source,target\n{edges}"
    )
    got = read_files(folder)
    assert "y" not in {column.attribute for column in got.schema.columns}
    [line] = [line for line in got.files["ignored"] if line.startswith(f"{name}: names")]
    assert line.endswith(f" by label='{name}'")
    assert read_files(folder, label=(name,)).schema.column("node/y").num_classes == 2


@pytest.mark.parametrize("names", [("spam", "ham", "other"), ("t 0", "t 1", "t 2")])
def test_one_hot_target_columns_name_the_classes(tmp_path, names):
    rows = "".join(
        f"n{row},{','.join(str(int(row % 3 == code)) for code in range(3))}\n" for row in range(9)
    )
    edges = "".join(f"n{row},n{row - 1}\n" for row in range(1, 9))
    folder = write_files(
        tmp_path / "a",
        nodes_csv=f"node,{','.join(names)}\n{rows}",
        edges_csv=f"source,target\n{edges}",
    )
    params, [record] = build_in_memory(folder, label=names, task="classification")
    assert record.columns["node/y"].tolist() == [row % 3 for row in range(9)]
    assert params.inferred.class_names == names


@pytest.mark.parametrize("labels", [(-1, 1), (3, 5, 4), (0, 1), (0, 2)])
def test_labels_of_a_tudataset_are_named_as_in_its_files(tmp_path, labels):
    count = 2 * len(labels)
    of_graphs = [labels[row % len(labels)] for row in range(count)]
    lines = {
        "T_A_txt": [f"{2 * row + 1}, {2 * row + 2}" for row in range(count)],
        "T_graph_indicator_txt": [row // 2 + 1 for row in range(2 * count)],
        "T_graph_labels_txt": of_graphs,
        "T_node_labels_txt": [of_graphs[row // 2] for row in range(2 * count)],
    }
    files = {name: "".join(f"{line}\n" for line in rows) for name, rows in lines.items()}
    params, records = build_in_memory(write_files(tmp_path / "a", **files))
    ascending = sorted(labels)
    assert [record.columns["graph/y"].item() for record in records] == [
        ascending.index(label) for label in of_graphs
    ]
    names = tuple(map(str, ascending))
    are_numbered = ascending == list(range(len(labels)))
    assert params.inferred.class_names == (() if are_numbered else names)
    fields = params.inferred.record_schema.column("node/x").fields
    assert fields == tuple(
        f"label 0 is {value}" for value in range(ascending[0], ascending[-1] + 1)
    )
