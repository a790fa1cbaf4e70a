"""Tables of graphs as people write them: each rule over the layouts, names and formats that it can meet."""

from __future__ import annotations

import gzip
import itertools
import json
import re
import shlex
import subprocess
import warnings

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from support.cases import check_each
from support.own_graphs import PIPELINE, answers, made, write

import kmip_data
from kmip_data.errors import DamagedInput
from kmip_data.pipelines.base import RawFolder
from kmip_data.pipelines.datasets.graphs.tables import roles
from kmip_data.pipelines.formats.pajek import parse_pajek

PATH = {(0, 1), (1, 2), (2, 3)}


def numbered(tmp_path):
    """Yield new folders."""
    return (tmp_path / f"{number:03d}" for number in itertools.count())


# --- layouts -------------------------------------------------------------------------------------

SEPARATORS = [",", ";", "\t", " ", "   ", " , ", "\t\t"]
LINE_ENDS = ["\n", "\r\n", "\r"]


def test_a_table_is_read_whatever_its_separator_and_line_ends(tmp_path):
    """Ends, weights and texts equal those that were written; oracle: the lists themselves."""
    rng = np.random.default_rng(0)
    folders = numbered(tmp_path)

    def check(case):
        separator, end, header, encoding = case
        if separator == "\t\t" or (separator == "   " and encoding == "utf-16"):
            return  # an empty column between two others; blanks are enough once
        edges = rng.integers(0, 9, (12, 2))
        weights = rng.integers(1, 99, 12) / 4
        lines = [
            separator.join(map(str, [a, b, w])) for (a, b), w in zip(edges, weights, strict=True)
        ]
        if header:
            lines.insert(0, separator.join(["Source", "TARGET", "weight"]))
        # Comments and blank lines anywhere.
        for position in rng.integers(0, len(lines) + 1, 4):
            lines.insert(int(position), str(rng.choice(["", "# end", "% x, y", "  "])))
        data = end.join(lines).encode(encoding)
        got = made(write(next(folders), edges_csv=data))
        names = np.unique(edges)
        expected = np.searchsorted(names, edges).T
        np.testing.assert_array_equal(got.first.edge_index, expected)
        np.testing.assert_allclose(got.first.columns["edge/edge_attr"][:, 0], weights)

    check_each(
        check, itertools.product(SEPARATORS, LINE_ENDS, [True, False], ["utf-8-sig", "utf-16"])
    )


def test_quoted_cells_keep_separators_line_ends_and_number_signs(tmp_path):
    nodes = 'id,note,kind\na,"x, y\n# no comment\n",p\nb,"say ""hi""\n",q\nc,"plain",p\n'
    folder = write(tmp_path / "q", edges_csv="source,target\na,b\nb,c\n", nodes_csv=nodes)
    got = made(folder)
    assert (got.first.num_nodes, got.edges()) == (3, {(0, 1), (1, 2)})
    assert got.schema.column("node/x").fields == ("kind=p", "kind=q")
    assert any(line.startswith("note: names or free text") for line in got.files["ignored"])


def test_a_text_that_is_not_utf_8_is_asked_for_its_encoding(tmp_path):
    """GML and Pajek had the same mark for each letter that UTF-8 does not know: two classes were one."""
    gml = 'graph [ node [ id 0 kind "{}" ] node [ id 1 kind "{}" ] edge [ source 0 target 1 ] ]'
    pajek = '*Vertices 2\n1 "{}"\n2 "{}"\n*Arcs\n1 2\n'
    folders = numbered(tmp_path)

    def check(case):
        name, text = case
        data = text.format("Bjør", "Bjår").encode("latin-1")
        folder = write(next(folders), **{name: data})
        with pytest.raises(DamagedInput, match=r"line [12]: the text is not in utf-8") as error:
            made(folder)
        assert error.value.lines["next"].startswith("--set encoding=cp1252")
        label = ("kind",) if name == "a_gml" else ()
        first = made(folder, encoding="cp1252", label=label).first
        assert first.num_nodes == 2
        if label:
            assert first.columns["node/y"].tolist() == [1, 0]

    check_each(check, {"a_gml": gml, "a_net": pajek, "list_txt": "source,target\n{},{}\n"}.items())


#: Text of one table -> edges by position in the sorted ids.
EDGE_LISTS = {
    "alice bob\nbob carol\ncarol dave\n": PATH,
    "0 1 {}\n1 2 {}\n2 3 {}\n": PATH,
    "0 1 {'weight': 3, 'kind': 'a b'}\n1 2 {'weight': 4, 'kind': 'c'}\n2 3 {'weight': 1, 'kind': 'c'}\n": PATH,
    "0,1,friend\n1,2,friend\n2,3,foe\n": PATH,
    "0 1 \n1 2 \n2 3 \n": PATH,
    "0,1,\n1,2,5\n2,3,\n": PATH,
    "0,1,\n1,2,\n2,3,\n": PATH,
    "0\t1\t\n1\t2\t\n2\t3\t\n": PATH,
    "   0   1\n   1   2\n   2  3\n": PATH,
    "# source target weight\na b 1\nb c 2\nc d 3\n": PATH,
    "# FromNodeId\tToNodeId\n0\t1\n1\t2\n2\t3\n": PATH,
    "0 1\n1 2\n# the end\n2 3\n# end": PATH,
    "0,1,2020-01-01\n1,2,2020-01-02\n2,3,2020-01-03\n": PATH,
    "0,1\n1,2\n2,3": PATH,
    ",0,1\n0,5,6\n1,6,7\n2,7,8\n": PATH,
    '"a","b"\n"b","c"\n"c","d"\n': PATH,
    "'source' 'target'\n".replace("'", '"') + "a b\nb c\nc d\n": PATH,
    # R's write.table: one name less than columns, as rows begin with their own.
    '"from" "to"\n"1" "a" "b"\n"2" "b" "c"\n"3" "c" "d"\n': PATH,
}


def test_every_line_of_an_edge_list_is_an_edge(tmp_path):
    folders = numbered(tmp_path)

    def check(case):
        text, expected = case
        for data in (
            text.encode(),
            text.replace("\n", "\r\n").encode(),
            gzip.compress(text.encode()),
        ):
            assert made(write(next(folders), list_txt=data)).edges() == expected

    check_each(check, EDGE_LISTS.items())


def test_the_list_that_networkx_writes_is_its_graph(tmp_path):
    """write_edgelist with attributes, write_weighted_edgelist and without, directed and not."""
    folders = numbered(tmp_path)

    def check(case):
        data, directed = case
        graph = nx.gnp_random_graph(9, 0.3, seed=3, directed=directed)
        for number, edge in enumerate(graph.edges):
            graph.edges[edge].update(weight=number / 2, kind="ab"[number % 2])
        folder = write(next(folders))
        nx.write_edgelist(graph, folder / "g.edgelist", data=data)
        got = made(folder)
        lines = (folder / "g.edgelist").read_text().splitlines()
        names = sorted({node for edge in graph.edges for node in edge})
        ends = [tuple(names[end] for end in edge) for edge in got.first.edge_index.T]
        assert ends == [tuple(map(int, line.split()[:2])) for line in lines]
        if data:
            column = got.schema.column("edge/edge_attr").fields.index(
                "weight" if data is True else "2"
            )
            weights = got.first.columns["edge/edge_attr"][:, column]
            assert weights.tolist() == [number / 2 for number in range(len(lines))]

    check_each(check, itertools.product([True, False, ["weight"]], [True, False]))


# --- names or data -------------------------------------------------------------------------------

#: Table of nodes -> features of the first node, or the problem.
NAMES = {
    "0,1,2\n.5,6,7\n8,9,1\n": "line 1 may be names",  # pandas' names of an array
    ",0,1\n0,5,6\n1,8,9\n": [5, 6],  # behind its index
    "a,b\n5,6\n7,8\n": [5, 6],
    "5,6\n7,8\n": [5, 6],
    "5,\n7,8\n": [5, 0, 1],  # an empty cell is missing
    "big,big\n5,6\n7,8\n": [1, 1, 1, 0, 0, 1],  # twice the same: three texts
    "mass;size\n1,5;2\n2,5;3\n": [1.5, 2],  # decimal commas
}


def test_the_first_line_has_names_or_data(tmp_path):
    folders = numbered(tmp_path)

    def check(case):
        nodes, expected = case
        folder = write(next(folders), edges_csv="source,target\n0,1\n", nodes_csv=nodes)
        if isinstance(expected, str):
            with pytest.raises(DamagedInput, match=expected):
                made(folder)
            return
        if nodes.startswith("big"):
            with pytest.raises(DamagedInput, match="among numbers"):
                made(folder)
            return
        assert made(folder).first.columns["node/x"][0].tolist() == expected

    check_each(check, NAMES.items())


def test_a_first_line_that_may_be_either_is_asked(tmp_path):
    x = np.arange(6).reshape(3, 2) / 2
    nodes = pd.DataFrame(x).to_csv(index=False)
    folder = write(tmp_path / "n", edges_csv="source,target\n0,1\n1,2\n", nodes_csv=nodes)
    with pytest.raises(DamagedInput, match="line 1 may be names"):
        made(folder)
    np.testing.assert_array_equal(made(folder, header="yes").first.columns["node/x"], x)
    assert made(folder, header="no").first.num_nodes == 4
    # No cell of the first line occurs again, and no column has numbers alone.
    either = write(tmp_path / "e", list_txt="p q\nr s\nt u\n")
    with pytest.raises(DamagedInput, match="line 1 may be names"):
        made(either)
    assert made(either, header="yes").first.num_edges == 2
    assert made(either, header="no").first.num_edges == 3


# --- uses of columns -----------------------------------------------------------------------------


def variants(name):
    """Ways to write a name."""
    yield from (name, name.upper(), name.capitalize(), f" {name} ")
    if name[-1].isdigit():
        yield from (f"{name[:-1]}_{name[-1]}", f"{name[:-1]} {name[-1]}", f"{name[:-1]}-{name[-1]}")


def test_the_names_of_the_ends_are_known(tmp_path):
    folders = numbered(tmp_path)

    def check(case):
        for first, second in zip(*map(variants, case), strict=True):
            text = f"w,{second},x,{first}\n.5,b,1,a\n.25,c,2,b\n.75,d,3,c\n"
            got = made(write(next(folders), got_edges_csv=text))
            assert got.edges() == PATH, (first, second)
            assert got.schema.column("edge/edge_attr").fields == ("w", "x")

    check_each(check, roles.ENDPOINT_NAMES)


def test_lines_of_comment_are_listed(tmp_path):
    """A tag such as #a begins as a comment does."""
    got = made(write(tmp_path / "a", a_csv="source,target\n#a,#b\nx,y\n\n# end\n"))
    assert got.files["ignored"] == ["comments in a.csv: 2 lines, such as '#a,#b'"]
    assert got.edges() == {(0, 1)}


def test_numbers_with_separators_of_thousands_are_asked(tmp_path):
    folders = numbered(tmp_path)

    def check(case):
        values, expected = case
        rows = "".join(f'{i};"{value}"\n' for i, value in enumerate(values)).replace(";", ",")
        files = {"edges_csv": "u,v\n0,1\n1,2\n2,0\n", "nodes_csv": "id,people\n" + rows}
        folder = write(next(folders), **files)
        with pytest.raises(
            DamagedInput, match=r"line 2: 'people' is '1.*read in two ways"
        ) as caught:
            made(folder)
        got = made(folder, **answers(caught.value)).first.columns["node/x"]
        np.testing.assert_allclose(got[:, 0], expected)

    cases = [
        (["1,234", "910", "1,234"], [1234, 910, 1234]),
        (["1 234", "5", "7"], [1234, 5, 7]),
        (["1,5", "2", "3"], [1.5, 2, 3]),
    ]
    check_each(check, cases)
    # Dates, addresses and versions are texts.
    rows = "0,1.2.3\n1,1.2.3\n2,1.2\n"
    files = {"edges_csv": "u,v\n0,1\n1,2\n2,0\n", "nodes_csv": "id,version\n" + rows}
    got = made(write(next(folders), **files))
    assert got.schema.column("node/x").fields == ("version=1.2", "version=1.2.3")


def test_a_line_of_one_cell_is_no_edge(tmp_path):
    with pytest.raises(DamagedInput, match="has one column, and an edge has two ends") as caught:
        made(write(tmp_path / "a", a_txt="0::1\n1::2\n"))
    assert caught.value.lines["next"].startswith("separate the cells")


FILES = [
    ("got-edges_csv", "got-nodes_csv"),
    ("links_tsv", "vertices_tsv"),
    ("bonds_csv", "atoms_csv"),
    ("musae_DE_edges_csv", "musae_DE_target_csv"),
]


def test_files_are_known_by_the_words_in_their_names(tmp_path):
    folders = numbered(tmp_path)

    def check(case):
        edges, nodes = case
        files = {edges: "u,v\na,b\nb,c\n", nodes: "Id,mass\na,5\nb,6\nc,7\n", "readme_md": "notes"}
        got = made(write(next(folders), **files))
        assert got.first.columns["node/x"][:, 0].tolist() == [5, 6, 7]
        assert got.files["ignored"] == [
            "readme.md: its name has none of the words nodes, edges and graphs"
        ]

    check_each(check, FILES)


def test_tables_exported_by_gephi_are_read(tmp_path):
    """Ids, labels, one direction or both a row; as Gephi exports them."""
    nodes = "Id,Label,timeset,house\n" + "".join(
        f"p{i},Person {i},,{'ABC'[i % 3]}\n" for i in range(12)
    )
    kinds = ["Undirected", "Directed", "undirected"]
    edges = "Source,Target,Type,Id,Label,timeset,Weight\n" + "".join(
        f"p{i},p{(i + 1) % 12},{kinds[i % 3]},{i},,,{i + 1}\n" for i in range(12)
    )
    got = made(write(tmp_path / "g", cast_nodes_csv=nodes, cast_edges_csv=edges))
    expected = []
    for i in range(12):
        ends = (i, (i + 1) % 12)
        expected += [ends] if i % 3 == 1 else [ends, ends[::-1]]
    assert [tuple(edge) for edge in got.first.edge_index.T.tolist()] == expected
    weights = [(i + 1) for i in range(12) for _ in range(1 + (i % 3 != 1))]
    assert got.first.columns["edge/edge_attr"][:, 0].tolist() == weights
    assert got.schema.labels is None
    assert got.schema.column("node/x").fields == ("house=A", "house=B", "house=C")
    ignored = {line.partition(":")[0] for line in got.files["ignored"]}
    assert ignored == {"Label", "timeset", "Id"}


#: Tables of edges and nodes -> positions of the ends of the first edge, or the problem.
IDS = [
    ("u,v\n7,9\n", "name,mass\n9,1\n7,2\n", [1, 0]),
    ("u,v\n7,9\n", "code,mass\n9,1\n7,2\n", [1, 0]),  # holds the ids, and is not 0 … n − 1
    ("u,v\n0,1\n", "mass,size\n9,1\n7,2\n", [0, 1]),  # numbered by row
    ("u,v\n0,1\n", "id,key\n5,1\n7,0\n", "may be those in key"),  # by row, or by key
    ("u,v\n5,7\n", "a,b\n5,7\n7,5\n", "may be those in a, b"),
    ("u,v\na,b\n", "id,mass\na,1\nc,2\n", "line 2: the node b"),
    ("u,v\n0,1\n", "id,mass\n1,1\n2,2\n", "not those of the edges"),  # by row, or a missing 0
    ("u,v\nv1.0,v2.0\n", "id,mass\nv2.0,1\nv1.0,2\nv1.1,3\n", [1, 0]),
]


def test_the_ids_of_nodes_are_those_of_the_edges(tmp_path):
    folders = numbered(tmp_path)

    def check(case):
        edges, nodes, expected = case
        folder = write(next(folders), edges_csv=edges, nodes_csv=nodes)
        if isinstance(expected, str):
            with pytest.raises(DamagedInput, match=expected) as caught:
                made(folder)
            assert caught.value.lines["next"]
        else:
            assert made(folder).first.edge_index[:, 0].tolist() == expected

    check_each(check, IDS)


def test_y_next_to_x_is_a_coordinate_or_asked(tmp_path):
    nodes = pd.DataFrame({"id": range(6), "x": np.arange(6) / 4, "y": np.arange(6) / 8})
    files = {"edges_csv": "u,v\n0,1\n", "nodes_csv": nodes.to_csv(index=False)}
    folder = write(tmp_path / "asked", **files)
    with pytest.raises(DamagedInput, match="'y' next to 'x'") as caught:
        made(folder)
    assert made(folder, **answers(caught.value)).schema.column("node/x").fields == ("x", "y")
    assert made(folder, label=("y",)).schema.labels.doc == "y"
    files["nodes_csv"] = nodes.assign(label=list("aabbab")).to_csv(index=False)
    got = made(write(tmp_path / "label", **files))
    assert got.schema.column("node/x").fields == ("x", "y")
    assert got.schema.labels.num_classes == 2
    # Integers next to fractions are a target.
    files["nodes_csv"] = nodes.assign(y=[0, 1] * 3).to_csv(index=False)
    assert made(write(tmp_path / "target", **files)).schema.labels.num_classes == 2


def test_molecules_in_three_tables(tmp_path):
    """begin, end and mol_id; names of graphs are those of the file."""
    folder = write(
        tmp_path / "m",
        molecules_csv="mol_id,label\nMOL-1,1\nMOL-2,0\n",
        atoms_csv="mol_id,atom,element\nMOL-1,0,H\nMOL-2,0,O\nMOL-1,1,O\nMOL-1,2,H\n".replace(
            "atom,", "id,"
        ),
        bonds_csv="mol_id,begin,end,order\nMOL-1,0,1,1\nMOL-1,1,2,1\n",
    )
    got = made(folder)
    assert [record.key for record in got.records] == ["MOL-1", "MOL-2"]
    assert got.edges() == {(0, 1), (1, 2)}
    assert got.schema.column("node/x").fields == ("element=H", "element=O")
    assert got.first.columns["node/x"].tolist() == [[1, 0], [0, 1], [1, 0]]


def test_names_are_no_classes_in_any_format(tmp_path):
    """A label that differs for every node; oracle: the same graph without it."""
    graph = nx.cycle_graph(20)
    nx.set_node_attributes(graph, {node: f"Station {node}" for node in graph}, "label")
    nx.set_node_attributes(graph, {node: node / 2 for node in graph}, "mass")
    folders = numbered(tmp_path)

    def check(suffix):
        folder = write(next(folders))
        if suffix == "csv":
            rows = [{"id": node, **data} for node, data in graph.nodes(data=True)]
            pd.DataFrame(rows).to_csv(folder / "nodes.csv", index=False)
            nx.to_pandas_edgelist(graph).to_csv(folder / "edges.csv", index=False)
        elif suffix == "json":
            (folder / "g.json").write_text(json.dumps(nx.node_link_data(graph, edges="links")))
        else:
            getattr(nx, f"write_{suffix}")(graph, folder / f"g.{suffix}")
        got = made(folder)
        assert got.schema.labels is None
        assert got.schema.column("node/x").fields == ("mass",)
        assert made(folder, label=("label",)).schema.labels.num_classes == 20

    check_each(check, ["csv", "graphml", "gexf", "gml", "json"])


# --- values --------------------------------------------------------------------------------------

NODES = "node,age,country,born,note,label\n"


def people(ages, countries=("NL", "BE"), labels=("a", "b")):
    rows = []
    for i, age in enumerate(ages):
        country = countries[i % len(countries)]
        note = f"born in the year of {i}, and never heard of again"
        rows.append(f"{i},{age},{country},2020-01-{i + 1:02d},{note!r},{labels[i % len(labels)]}\n")
    return NODES + "".join(rows).replace("'", '"')


def test_what_is_lossless_happens_and_is_said(tmp_path):
    ages = [1, "", "NA", 4, 5, 6]
    folder = write(tmp_path / "p", edges_csv="from,to\n0,1\n", nodes_csv=people(ages))
    got = made(folder)
    x = dict(
        zip(got.schema.column("node/x").fields, got.first.columns["node/x"].T.tolist(), strict=True)
    )
    assert x == {
        "age": [1, 0, 0, 4, 5, 6],
        "age missing": [0, 1, 1, 0, 0, 0],
        "country=BE": [0, 1] * 3,
        "country=NL": [1, 0] * 3,
    }
    assert got.files["missing"] == ["age: 2"]
    reasons = dict(line.split(": ", 1) for line in got.files["ignored"])
    assert reasons["born"].startswith("dates, such as 2020-01-01")
    assert reasons["note"].startswith("names or free text")


def test_what_is_a_choice_is_asked_once_for_all_columns(tmp_path):
    rows = ["id,country,city,since,score\n"]
    for i in range(300):
        country = ("NA", "DE", "FR")[i % 3]
        score = "n.d." if i == 7 else i
        rows.append(f"{i},{country},c{i % 100},{1_700_000_001 + i},{score}\n")
    folder = write(tmp_path / "c", edges_csv="from,to\n0,1\n", nodes_csv="".join(rows))
    with pytest.raises(DamagedInput, match="4 columns need a decision") as caught:
        made(folder)
    found = caught.value.lines["found"]
    for words in (
        "'NA' in 100 rows",
        "100 texts",
        "line 2: 'since' is 1700000001",
        "line 9: 'score' is 'n.d.'",
    ):
        assert words in found, found
    got = made(folder, **answers(caught.value))
    assert got.first.num_nodes == 300
    fields = got.schema.column("node/x").fields
    assert {"country=DE", "country=FR", "country=NA"} <= set(fields) or "score" in fields
    # Kept instead of left out, each by the answer that is printed.
    kept = made(folder, missing=("n.d.",), categories=100, rounded=("since",))
    assert len(kept.schema.column("node/x").fields) == 3 + 100 + 1 + 2


def test_a_word_that_is_missing_in_one_column_leaves_the_others(tmp_path):
    """NA among the numbers of age stays missing where ``missing`` names the word of another column."""
    frame = pd.DataFrame(
        {"id": range(8), "age": ["1", "NA", *"345678"], "score": [*"1234567", "n.d."]}
    )
    folder = write(tmp_path / "m", edges_csv="u,v\n0,1\n", nodes_csv=frame.to_csv(index=False))
    with pytest.raises(DamagedInput, match="among numbers") as caught:
        made(folder)
    for parameters in (answers(caught.value), {"missing": ("n.d.",)}):
        got = made(folder, **parameters)
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
    folders = numbered(tmp_path)

    def check(case):
        texts, task, expected, classes = case
        texts, expected = texts * 3, expected * 3
        frame = pd.DataFrame({"id": range(12), "x": 1.5, "label": texts})
        folder = write(next(folders), edges_csv="u,v\n0,1\n", nodes_csv=frame.to_csv(index=False))
        got = made(folder, task=task)
        y = got.first.columns["node/y"].astype(float)
        np.testing.assert_array_equal(y, [np.nan if value is None else value for value in expected])
        assert got.schema.labels.num_classes == classes
        missing = (
            sum(value in {None, -1} for value in expected) if task is None or "" in texts else 0
        )
        assert got.files.get("missing_labels") == ([f"label: {missing}"] if missing else None)

    check_each(check, TARGETS)


def test_names_of_many_features_stand_on_the_card(tmp_path):
    """64 kB of names have no room in the schema of a shard."""
    names = [f"a feature with a long name {number}" for number in range(4_000)]
    frame = pd.DataFrame(np.ones((3, 4_000), int), columns=names)
    folder = write(
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
    assert kmip_data.open("wide", split=None, home=kmip_home)[0].x.shape == (3, 4_000)


def test_a_table_of_a_million_columns_is_refused_at_once(tmp_path):
    line = b",".join([b"1"] * 1_000_000) + b"\n"
    folder = write(tmp_path / "w", edges_csv="u,v\n0,1\n", nodes_csv=line * 2)
    with pytest.raises(DamagedInput, match="1,000,000 columns"):
        made(folder)


# --- formats -------------------------------------------------------------------------------------

GRAPHML = """<graphml{space}>
<key id="k1" for="node" attr.name="w" attr.type="double"/>
<key id="k2" for="node" attr.name="on" attr.type="boolean"/>
<key id="k3" for="node" attr.name="label" attr.type="string"><default> yellow </default></key>
<key id="k4" for="edge" attr.name="kind" attr.type="string"><default>road</default></key>
<graph id="G" edgedefault="undirected">
<node id="a"><data key="k1"> 1.0 </data><data key="k3">green</data><data key="k2"> true </data></node>
<node id="b"><data key="k1">1.5</data><data key="k2">false</data></node>
<node id="c"><data key="k1">3</data><data key="k2">true</data></node>
<node id="d"><data key="k1">3.0</data><data key="k3">green</data><data key="k2">false</data></node>
<edge source="a" target="b"/><edge source="b" target="c"><data key="k4">rail</data></edge>
<edge source="c" target="d"/></graph></graphml>"""
GEXF = """<gexf xmlns="http://gexf.net/{version}" version="{version}"><graph defaultedgetype="directed">
<attributes class="node"><attribute id="0" title="label2" type="string"><default>yellow</default></attribute>
<attribute id="1" title="on" type="boolean"/></attributes>
<nodes><node id="a" label="A"><attvalues><attvalue for="0" value="green"/>
<attvalue for="1" value=" true "/></attvalues></node>
<node id="b" label="B"><attvalues><attvalue for="1" value="false"/></attvalues></node></nodes>
<edges><edge id="0" source="a" target="b"/></edges></graph></gexf>"""


def test_defaults_and_blanks_of_xml_are_read(tmp_path):
    for number, space in enumerate(("", ' xmlns="http://graphml.graphdrawing.org/xmlns"')):
        text = GRAPHML.replace("{space}", space)
        got = made(write(tmp_path / f"g{number}", a_graphml=text))
        assert got.first.columns["node/y"].tolist() == [0, 1, 1, 0]
        assert got.schema.column("node/x").fields == ("w", "on")
        assert got.first.columns["node/x"].tolist() == [[1, 1], [1.5, 0], [3, 1], [3, 0]]
        kinds = got.first.columns["edge/edge_attr"]
        assert got.schema.column("edge/edge_attr").fields == ("kind=rail", "kind=road")
        ends = got.first.edge_index.T.tolist()
        assert {tuple(edge) for edge, kind in zip(ends, kinds, strict=True) if kind[0]} == {
            (1, 2),
            (2, 1),
        }
    for version in ("1.1draft", "1.2draft", "1.3"):
        got = made(
            write(tmp_path / version, a_gexf=GEXF.replace("{version}", version)), label=("label2",)
        )
        assert got.first.columns["node/y"].tolist() == [0, 1]
        assert got.first.columns["node/x"].tolist() == [[1], [0]]


def test_edges_of_both_kinds_are_in_one_graph(tmp_path):
    """networkx refuses such files of GraphML and GEXF, and takes ``mutual`` for one direction."""
    graphml = (
        '<graphml><graph edgedefault="{}"><node id="a"/><node id="b"/><node id="c"/>'
        '<edge id="0" source="a" target="b" directed="{}"/><edge id="1" source="b" target="c"/>'
        '<edge id="2" source="c" target="c" directed="false"/></graph></graphml>'
    )
    gexf = (
        '<gexf xmlns="http://gexf.net/1.2draft" version="1.2"><graph mode="dynamic" defaultedgetype="{}">'
        '<nodes><node id="a"><spells><spell start="1" end="2"/></spells></node><node id="b"/>'
        '<node id="c"/></nodes><edges><edge id="0" source="a" target="b" type="{}"/>'
        '<edge id="1" source="b" target="c"/><edge id="2" source="c" target="c" type="mutual"/>'
        "</edges></graph></gexf>"
    )
    cases = [
        (graphml, ("directed", "false"), [(0, 1), (1, 0), (1, 2), (2, 2)]),
        (graphml, ("undirected", "true"), [(0, 1), (1, 2), (2, 1), (2, 2)]),
        (graphml, ("undirected", "false"), [(0, 1), (1, 0), (1, 2), (2, 1), (2, 2)]),
        (gexf, ("directed", "mutual"), [(0, 1), (1, 0), (1, 2), (2, 2)]),
        (gexf, ("undirected", "directed"), [(0, 1), (1, 2), (2, 1), (2, 2)]),
    ]
    folders = numbered(tmp_path)

    def check(case):
        text, words, expected = case
        name = "a_gexf" if "gexf" in text else "a_graphml"
        first = made(write(next(folders), **{name: text.format(*words)})).first
        assert sorted(zip(*first.edge_index.tolist(), strict=True)) == expected

    check_each(check, cases)
    nested = graphml.format("directed", "true").replace(
        '<node id="c"/>', '<node id="c"><graph edgedefault="directed"><node id="d"/></graph></node>'
    )
    with pytest.raises(DamagedInput, match="inside of a node"):
        made(write(tmp_path / "nested", a_graphml=nested))


def test_graphs_of_other_programs_are_named_with_the_command_that_converts_them(tmp_path):
    dot = write(tmp_path / "dot", a_dot="// made\nstrict digraph X { a -> b; b -> c; }")
    with pytest.raises(DamagedInput, match="graph of Graphviz") as caught:
        made(dot)
    assert caught.value.lines["next"].startswith(
        "networkx.write_graphml(networkx.nx_pydot.read_dot("
    )
    packed = gzip.compress(GRAPHML.replace("{space}", "").encode())
    folder = write(tmp_path / "gz", graphml_gz=packed)
    with pytest.raises(DamagedInput, match="is GraphML, gzipped") as caught:
        made(folder)
    subprocess.run(shlex.split(caught.value.lines["next"]), cwd=folder, check=True)
    assert made(folder).first.num_nodes == 4


def test_faults_of_tudataset_and_planetoid_say_what_to_do(tmp_path):
    """Followed by hand: each is a file of its format with one line that is wrong."""
    whole = {
        "D_A_txt": "1, 2\n2, 1\n3, 4\n", "D_graph_indicator_txt": "1\n1\n2\n2\n",
        "D_graph_labels_txt": "1\n2\n", "D_node_labels_txt": "0\n1\n0\n1\n",
    }  # fmt: skip
    assert len(made(write(tmp_path / "whole", **whole)).records) == 2
    wrong = [
        ("D_graph_labels_txt", "1\n"),
        ("D_graph_indicator_txt", "2\n1\n2\n2\n"),
        ("D_A_txt", "1, 9\n"),
        ("D_A_txt", "1, 3\n"),
        ("D_A_txt", "1, 2, 3\n"),
        ("D_A_txt", "a, b\n"),
        ("D_node_labels_txt", "0\n1\n99999\n1\n"),
    ]
    folders = numbered(tmp_path)

    def check(case):
        name, text = case
        folder = write(next(folders), **{**whole, name: text})
        with pytest.raises(DamagedInput) as caught:
            made(folder)
        assert caught.value.lines["next"] == "repair or replace the file"
        write(folder, **{name: whole[name]})
        assert len(made(folder).records) == 2

    check_each(check, wrong)
    ends = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    for files, words in (
        (["ind.cora_x"], "folder of all eight"),
        (["ind.cora_x", "ind.other_x"], r"copy the files of one dataset, ind.cora"),
        ([f"ind.cora.{end}"[::-1].replace(".", "_", 1)[::-1] for end in ends], "repair or replace"),
    ):
        with pytest.raises(DamagedInput) as caught:
            made(write(next(folders), **dict.fromkeys(files, b"\x80\3")))
        assert words in caught.value.lines["next"]


def test_keys_that_number_the_edges_are_no_features(tmp_path):
    edges = "".join(f'<edge id="{i}" source="a" target="b" weight="{i}.5"/>' for i in range(3))
    text = GEXF.replace("{version}", "1.2draft").replace(
        '<edge id="0" source="a" target="b"/>', edges
    )
    got = made(write(tmp_path / "g", a_gexf=text))
    assert got.first.columns["edge/edge_attr"].tolist() == [[0.5], [1.5], [2.5]]
    assert "key: ids or names of the rows" in got.files["ignored"]
    # Fractions number nothing.
    text = "source,target,key\n0,1,1.5\n1,2,2.5\n2,0,3.5\n"
    got = made(write(tmp_path / "f", a_csv=text))
    assert got.first.columns["edge/edge_attr"].tolist() == [[1.5], [2.5], [3.5]]


def test_attributes_called_as_ids_are_kept(tmp_path):
    """graph, node, source, target and id of nodes and edges, and the keys of a multigraph."""
    graph = nx.MultiDiGraph()
    names = ("graph", "node", "source", "weight2")
    for node in range(4):
        graph.add_node(node, **{name: (node + i) % 3 + 0.5 for i, name in enumerate(names)})
    for number, (a, b) in enumerate([(0, 1), (0, 1), (1, 2), (2, 3)]):
        graph.add_edge(
            a,
            b,
            key=["road", "rail"][number % 2],
            **dict.fromkeys(("graph", "node"), number % 3 + 0.5),
        )
    folders = numbered(tmp_path)

    def check(suffix):
        folder = write(next(folders))
        if suffix == "json":
            data = nx.node_link_data(graph, edges="links")
            (folder / "g.json").write_text(json.dumps(data))
        else:
            nx.write_graphml(graph, folder / "g.graphml")
        got = made(folder)
        fields = got.schema.column("node/x").fields
        assert set(fields) == set(names)
        column = got.first.columns["node/x"][:, fields.index("source")]
        assert column.tolist() == [(node + 2) % 3 + 0.5 for node in range(4)]
        assert {"graph", "node"} <= set(got.schema.column("edge/edge_attr").fields)
        assert got.first.num_edges == 4

    check_each(check, ["json", "graphml"])


def test_gml_with_repeated_edges_has_them_all(tmp_path):
    graph = nx.MultiDiGraph([(0, 1), (0, 1), (1, 2)])
    nx.set_edge_attributes(
        graph, {edge: number for number, edge in enumerate(graph.edges(keys=True))}, "value"
    )
    folder = write(tmp_path / "g")
    nx.write_gml(graph, folder / "a.gml")
    text = (folder / "a.gml").read_text()
    lines = [line for line in text.splitlines() if "multigraph" not in line and "key" not in line]
    (folder / "a.gml").write_text("\n".join(lines))
    got = made(folder)
    assert [tuple(edge) for edge in got.first.edge_index.T.tolist()] == [(0, 1), (0, 1), (1, 2)]
    assert got.first.columns["edge/edge_attr"][:, 0].tolist() == [0, 1, 2]


PAJEK = """*Network test
% a comment
*Vertices 4
1 "O'Brien" 0.25 0.5 0.5 ellipse ic Red
2 "same" 0.5 0.5 0.5 box ic Blue
3 "same" 0.75 0.5 0.5 box ic Red
*Arcs :1 "likes"
1 2 1.5
*Edges
2 3 2.5 c Black
*Arcslist
4 1 2
*Edgeslist
1 3
"""


def test_pajek_has_arcs_one_way_and_edges_both(tmp_path):
    graph = parse_pajek(PAJEK, "a.net")
    expected = [(1, 2), (2, 3), (3, 2), (4, 1), (4, 2), (1, 3), (3, 1)]
    assert sorted(graph.edges()) == sorted(expected)
    assert graph.number_of_nodes() == 4
    assert graph.nodes[3]["label"] == "same"
    got = made(write(tmp_path / "p", a_net=PAJEK))
    assert sorted((a + 1, b + 1) for a, b in got.first.edge_index.T.tolist()) == sorted(expected)
    # Names of relations, and the sides of a graph of two kinds of vertices.
    text = '*Vertices 3 2\n*Arcs :1 "likes"\n1 3 1\n*Arcs :2\n2 3 1\n*Edges :1 "likes"\n1 2 1\n'
    got = made(write(tmp_path / "r", a_net=text))
    fields = got.schema.column("edge/edge_attr").fields
    assert fields == ("relation=2", "relation=likes", "weight")
    assert got.first.columns["edge/edge_attr"][:, 1].tolist() == [1, 1, 0, 1]
    assert got.first.columns["node/x"].tolist() == [[1], [1], [2]]
    # A file with arcs alone is what networkx reads.
    folder = write(tmp_path / "n")
    other = nx.gnp_random_graph(7, 0.4, seed=1, directed=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nx.write_pajek(other, folder / "a.net")
    assert made(folder).edges() == set(other.edges)
    with pytest.raises(DamagedInput, match=r"a\.net, line 3: there is no vertex 9"):
        made(write(tmp_path / "bad", a_net="*Vertices 2\n*Arcs\n1 9\n"))


def test_an_adjacency_matrix_with_names_is_a_graph(tmp_path):
    rng = np.random.default_rng(2)
    matrix = rng.integers(0, 3, (5, 5)) * (rng.random((5, 5)) < 0.5)
    for number, index in enumerate((list("edcba"), list(range(5)))):
        frame = pd.DataFrame(matrix, index=index, columns=index)
        got = made(write(tmp_path / f"m{number}", a_csv=frame.to_csv()))
        dense = np.zeros((5, 5))
        dense[tuple(got.first.edge_index)] = got.first.columns["edge/edge_attr"][:, 0]
        np.testing.assert_array_equal(dense, matrix)
        assert got.first.num_nodes == 5


def test_lists_of_features_of_musae(tmp_path):
    lists = {"0": [1, 3], "1": [0], "2": []}
    files = {
        "musae_DE_edges_csv": "from,to\n0,1\n1,2\n",
        "musae_DE_target_csv": "id,days,mature,new_id\n77,1,True,1\n88,2,False,0\n99,5,True,2\n",
        "musae_DE_features_json": json.dumps(lists),
    }
    folder = write(tmp_path / "m", **files)
    with pytest.raises(DamagedInput, match="new_id") as caught:
        made(folder)
    got = made(folder, **answers(caught.value), label=("mature",))
    x = got.first.columns["node/x"][:, 1:]
    expected = np.zeros((3, 4))
    for row, node in enumerate(["1", "0", "2"]):
        expected[row, lists[node]] = 1
    np.testing.assert_array_equal(x, expected)
    assert got.first.columns["node/y"].tolist() == [1, 0, 1]
    files["musae_DE_features_json"] = json.dumps({"9": [1]})
    with pytest.raises(DamagedInput, match="features of '9'"):
        made(write(tmp_path / "o", **files), node="new_id")


def test_a_smi_is_a_list_of_molecules(tmp_path):
    got = made(write(tmp_path / "s", a_smi="CCO ethanol\nc1ccccc1 benzene\n"))
    assert [record.num_nodes for record in got.records] == [3, 6]
    assert [record.key for record in got.records] == ["ethanol", "benzene"]


def test_molecules_have_the_ids_of_their_table(tmp_path):
    table = "compound_id,batch,smiles,y\nK1,a,CCO,0\nK2,a,CCC,1\n"
    path = write(tmp_path / "t", t_csv=table)
    assert [record.key for record in made(path, label=("y",)).records] == ["K1", "K2"]
    numbered_rows = made(path, label=("y",), node="none").records
    assert [record.key for record in numbered_rows] == ["000000", "000001"]
    with pytest.raises(DamagedInput, match="'batch'") as caught:
        made(path, label=("y",), node="batch")
    assert "--set node=none" in caught.value.lines["next"]


def test_a_node_that_one_table_lacks_is_named_with_its_line(tmp_path):
    """The ids are in the column that has most of them, although it lacks one."""
    path = write(
        tmp_path / "t",
        edges_csv="source,target\nann,bob\nbob,cem\n",
        nodes_csv="age,person\n3,ann\n4,bob\n",
    )
    with pytest.raises(DamagedInput, match=r"edges.csv, line 3: the node cem"):
        made(path)


def test_numbers_with_leading_zeros_are_codes(tmp_path):
    """Postal codes are categories, also next to an empty cell; -0 and +1 are numbers."""
    nodes = "id,zip,code,change\n0,01067,1,-0\n1,10115,2,+1\n2,,1,2\n"
    got = made(write(tmp_path / "t", edges_csv="u,v\n0,1\n1,2\n", nodes_csv=nodes))
    assert got.schema.column("node/x").fields == ("zip=01067", "zip=10115", "code", "change")
    expected = [[1, 0, 1, 0], [0, 1, 2, 1], [0, 0, 1, 2]]
    np.testing.assert_array_equal(got.first.columns["node/x"], expected)


def test_fractions_that_float32_rounds_are_no_question(tmp_path):
    """A constant has no range, and 0.1 no float32; seconds since 1970 are asked about in ASKED."""
    edges = "u,v,w,d\n0,1,0.1,0.1\n1,2,0.1,0.7\n2,0,0.1,\n"
    values = made(write(tmp_path / "t", edges_csv=edges)).first.columns["edge/edge_attr"]
    np.testing.assert_allclose(values, [[0.1, 0.1, 0], [0.1, 0.7, 0], [0.1, 0, 1]])


def test_integers_of_a_table_above_0_are_the_names_of_classes(tmp_path):
    nodes = "id,label\n" + "".join(f"{node},{1950 + node % 3}\n" for node in range(6))
    got = made(write(tmp_path / "t", edges_csv="u,v\n0,1\n1,5\n", nodes_csv=nodes))
    assert got.schema.labels.num_classes == 3
    np.testing.assert_array_equal(got.first.columns["node/y"], [0, 1, 2, 0, 1, 2])


def test_empty_rows_at_the_end_of_a_spreadsheet_are_listed(tmp_path):
    nodes = "id;mass\n0;5\n1;\n2;7\n;\n;;\n"
    got = made(write(tmp_path / "t", edges_csv="u,v\n0,1\n1,2\n,\n", nodes_csv=nodes))
    assert (got.first.num_nodes, got.first.num_edges) == (3, 2)
    assert got.files["ignored"] == [
        "end of nodes.csv: 2 lines without a value",
        "end of edges.csv: 1 line without a value",
    ]
    # An empty row between others may be a node.
    nodes = "mass,age\n1,2\n,\n3,4\n"
    got = made(write(tmp_path / "u", edges_csv="u,v\n0,1\n1,2\n", nodes_csv=nodes))
    assert got.first.num_nodes == 3


def test_the_fault_in_a_column_of_ids_is_named_with_its_line(tmp_path):
    folders = numbered(tmp_path)

    def check(case):
        edges, nodes, message, advice = case
        with pytest.raises(DamagedInput, match=message) as caught:
            made(write(next(folders), edges_csv=edges, nodes_csv=nodes))
        assert advice in caught.value.lines["next"]

    edges = "source,target\n7,8\n8,9\n"
    cases = [
        (edges, "id,mass\n7,1\n8,2\n9,3\n8,2\n", "line 5: the node 8 occurs twice", "remove"),
        (edges, "id,mass\n7,1\n,4\n8,2\n9,3\n", "line 3: 'id' is empty", "fill in"),
        ("source,target\n68,7\n", "id,mass\n00068,1\n00007,2\n", "the node 68 is", "00068"),
        ("source,target\n0,1\n", "id,mass\n0,1\n1,2\n1,2\n", "the node 1 occurs", "node=none"),
    ]
    check_each(check, cases)


def test_edges_between_two_kinds_of_nodes_are_no_single_count(tmp_path):
    """User 1 is not item 1; followed, the advice gives a node to each."""
    table = pd.DataFrame({"user_id": [1, 2, 2], "item_id": [1, 1, 3], "stars": [5, 4, 3]})
    folder = write(tmp_path / "t", ratings_csv=table.to_csv(index=False))
    with pytest.raises(DamagedInput, match="no columns called as the ends") as caught:
        made(folder)
    command = re.search(r"table\[.*?\.astype\(str\)", caught.value.lines["next"])
    exec(command.group(), {"table": table})
    folder = write(tmp_path / "u", ratings_csv=table.to_csv(index=False))
    assert made(folder, source="user_id", target="item_id").first.num_nodes == 4


def test_a_table_of_molecules_is_known_by_its_letters(tmp_path):
    rows = "".join(
        f"m{n},{smiles},{n}\n" for n, smiles in enumerate(["CCO", "c1ccccc1", "CC(=O)O"])
    )
    with pytest.raises(DamagedInput) as caught:
        made(write(tmp_path / "t", a_csv="name,structure,price\n" + rows))
    assert "--set smiles=structure" in caught.value.lines["next"]


def test_tables_without_a_word_for_edges_are_to_be_renamed(tmp_path):
    folder = write(tmp_path / "t", persons_csv="id,age\na,3\n", transfers_csv="from,to\na,a\n")
    with pytest.raises(DamagedInput, match="No table has edges in its name") as caught:
        made(folder)
    assert "edges.csv and nodes.csv" in caught.value.lines["next"]


def test_texts_are_no_regression(tmp_path):
    nodes = "id,income\n" + "".join(
        f"{node},{'low' if node % 2 else 'high'}\n" for node in range(6)
    )
    for task in ("regression", "multilabel"):
        folder = write(tmp_path / task, edges_csv="u,v\n0,1\n1,5\n", nodes_csv=nodes)
        with pytest.raises(DamagedInput, match="texts, such as 'high'") as caught:
            made(folder, label=("income",), task=task)
        assert (
            made(folder, label=("income",), **answers(caught.value)).schema.labels.num_classes == 2
        )


def test_numbers_that_show_their_decimal_sign_are_read(tmp_path):
    """Of a spreadsheet in German, English or Swiss, next to a word that means missing."""
    folders = numbered(tmp_path)

    def check(case):
        cells, options, expected = case
        rows = "".join(f'{row};"{cell}"\n' for row, cell in enumerate(cells))
        folder = write(next(folders), edges_csv="u,v\n0,1\n1,2\n", nodes_csv="id;sum\n" + rows)
        values = made(folder, **options).first.columns["node/x"][:, 0]
        np.testing.assert_allclose(values, expected)

    cases = [
        (["1.200,50", "9.300,10", "-7,25"], {}, [1200.5, 9300.1, -7.25]),
        (["1,200.50", "9,300.10", "7.25"], {}, [1200.5, 9300.1, 7.25]),
        (["1.234.567", "1.000", "2"], {}, [1234567, 1000, 2]),
        (["1'200.50", "9'300.10", "7"], {"decimal": "."}, [1200.5, 9300.1, 7]),
        (["1.200,50", "k.A.", "9.300,10"], {"missing": ("k.A.",)}, [1200.5, 0, 9300.1]),
        (["1,234", "910", "1,500"], {"decimal": ","}, [1.234, 910, 1.5]),
        (["1,234", "910", "1,500"], {"decimal": "."}, [1234, 910, 1500]),
    ]
    check_each(check, cases)
    cells = "id;sum\n0;1.200,50\n1;k.A.\n2;9.300,10\n"
    folder = write(next(folders), edges_csv="u,v\n0,1\n1,2\n", nodes_csv=cells)
    with pytest.raises(DamagedInput, match=r"line 3: 'sum' is 'k\.A\.' among numbers"):
        made(folder)


def test_graphs_in_one_table_of_edges(tmp_path):
    """Ends are columns with names alike, and a column of ids that repeats may name the graph."""
    rows = [f"s{graph},R1,R{end},0.5\n" for graph in range(3) for end in (2, 3)]
    folder = write(tmp_path / "t", a_csv="participant_id,roi_a,roi_b,fc\n" + "".join(rows))
    with pytest.raises(DamagedInput) as caught:
        made(folder)
    expected = "--set source=roi_a --set target=roi_b, and --set graph=participant_id"
    assert expected in caught.value.lines["next"]
    got = made(folder, source="roi_a", target="roi_b", graph="participant_id")
    assert len(got.records) == 3
    assert got.files["ignored"][0].startswith("ids of nodes: kept of a single graph alone")


def test_nodes_among_the_edges_are_to_be_written_apart(tmp_path):
    text = "_id,name,_start,_end\n1,ann,,\n2,bob,,\n,,1,2\n"
    with pytest.raises(DamagedInput, match="line 2: '_start' and '_end' are empty") as caught:
        made(write(tmp_path / "t", all_csv=text))
    assert "nodes.csv" in caught.value.lines["next"]


def test_edges_that_occur_again_are_counted(tmp_path):
    got = made(write(tmp_path / "t", edges_csv="u,v\n0,1\n0,1\n1,0\n2,2\n2,2\n"))
    assert (got.files["repeated_edges"], got.files["self_loops"]) == (1, 2)


# --- advice --------------------------------------------------------------------------------------

#: Files that are refused with options to type -> rows that a build by these options must have.
ASKED = [
    ({"list_txt": "p q\nr s\nt u\n"}, {"edges": 2}),
    ({"edges_csv": "u,v\n0,1\n1,2\n", "nodes_csv": "0,1\n.5,6\n7,8\n9,.1\n"}, {"nodes": 3}),
    ({"edges_csv": "a,b,c\n1,2,3\n2,3,4\n"}, {"edges": 2}),
    ({"edges_csv": "source,target,from,to\n1,2,3,4\n2,3,4,5\n"}, {"edges": 2}),
    ({"edges_csv": "0 1 2 5\n1 2 3 6\n"}, {"edges": 2}),
    ({"edges_txt": "4 3\n0 1\n1 2\n2 3\n"}, {"edges": 3}),
    ({"edges_csv": "u,v\n0,1\n", "nodes_csv": "id,key\n5,1\n7,0\n"}, {"nodes": 2}),
    ({"edges_csv": "u,v\n5,7\n", "nodes_csv": "a,b\n5,7\n7,5\n"}, {"nodes": 2}),
    ({"edges_csv": "u,v\n0,1\n", "nodes_csv": "id,mass\n1,1\n2,2\n"}, {"nodes": 2}),
    ({"edges_csv": "u,v,t\n0,1,1700000001\n1,2,1700000003\n"}, {"edges": 2}),
    ({"edges_csv": "u,v,t\n0,1,1e99\n1,2,1\n"}, {"edges": 2}),
    ({"edges_csv": "u,v,t\n0,1,5\n1,2,6\n2,3,x\n"}, {"edges": 3}),
    ({"edges_csv": "u,v\n0,1\n", "nodes_csv": "id,c\n0,NA\n1,DE\n2,DE\n3,NA\n"}, {"nodes": 4}),
    ({"edges_csv": "u,v\n0,1\n", "nodes_csv": "id,label,class\n0,a,b\n1,a,b\n"}, {"nodes": 2}),
    ({"edges_csv": "u,v\n0,1\n", "nodes_csv": "id,x,y\n0,.5,.5\n1,.5,.5\n"}, {"nodes": 2}),
    ({"edges_csv": "graph,graph_id,u,v\n1,1,0,1\n2,1,1,2\n"}, {"graphs": 2}),
    ({"edges_csv": "u,v,t\n0,1,1700000000.5\n1,2,1700000001.5\n"}, {"edges": 2}),
]  # fmt: skip


def test_advice_that_is_followed_ends_in_a_build_with_every_row(tmp_path):
    folders = numbered(tmp_path)
    counted = []

    def check(case):
        files, rows = case
        folder = write(next(folders), **files)
        with pytest.raises(DamagedInput) as caught:
            made(folder)
        got = made(folder, **answers(caught.value))
        counts = {
            "graphs": len(got.records),
            "nodes": sum(record.num_nodes for record in got.records),
            "edges": sum(record.num_edges for record in got.records),
        }
        assert {key: counts[key] for key in rows} == rows
        counted.append(folder)

    check_each(check, ASKED)
    assert len(counted) == len(ASKED)


# --- numbers and words of a column ---------------------------------------------------------------


def table_of(tmp_path, cells, separator=";"):
    """Return a folder with a table of nodes of one column ``sum``, and a path of edges."""
    rows = "".join(f'{row}{separator}"{cell}"\n' for row, cell in enumerate(cells))
    nodes = f"id{separator}sum\n{rows}"
    return write(tmp_path, edges_csv="u,v\n0,1\n1,2\n", nodes_csv=nodes)


def test_a_point_before_three_digits_separates_thousands_if_the_comma_is_decimal(tmp_path):
    folders = numbered(tmp_path)

    def check(case):
        cells, options, expected = case
        got = made(table_of(next(folders), cells), **options).first.columns["node/x"][:, 0]
        np.testing.assert_allclose(got, expected)

    comma = {"decimal": ","}
    cases = [
        (["155.565", "65.124", "7"], comma, [155_565, 65_124, 7]),
        (["155.000", "65.000", "2.000"], comma, [155_000, 65_000, 2_000]),
        (["155.565", "65.124", "1.155.565"], {}, [155_565, 65_124, 1_155_565]),
        (["155.565", "65.12", "7.5"], comma, [155.565, 65.12, 7.5]),  # none is a group of three
        (["0.565", "0.124", "0.500"], {}, [0.565, 0.124, 0.5]),
        (["155.565", "65.124", "7.100"], {"decimal": "."}, [155.565, 65.124, 7.1]),
    ]
    check_each(check, cases)


@pytest.mark.parametrize("last", ["7", "k. A."])
def test_points_before_three_digits_are_asked_next_to_semicolons(tmp_path, last):
    folder = table_of(tmp_path / "a", [last, "155.565", "65.124"])
    with pytest.raises(DamagedInput, match=r"line 3: 'sum' is '155\.565'.*two ways") as caught:
        made(folder, missing=("k. A.",))
    assert answers(caught.value) == {"decimal": ","}
    # Next to commas a point is a decimal sign.
    folder = table_of(tmp_path / "b", ["155.565", "65.124", last], ",")
    got = made(folder, missing=("k. A.",)).first.columns["node/x"][:, 0]
    np.testing.assert_allclose(got[:2], [155.565, 65.124])


def test_a_decimal_sign_that_does_not_fit_is_not_advised_again(tmp_path):
    folder = table_of(tmp_path / "a", ["1.155.565", "65.124", "7"])
    with pytest.raises(DamagedInput, match=r"no number with the decimal sign '\.'") as caught:
        made(folder, decimal=".")
    assert answers(caught.value) == {"decimal": ","}


def test_all_words_among_numbers_are_asked_at_once(tmp_path):
    folder = table_of(tmp_path / "a", ["1,5", "k. A.", "2,5", "<-4.5", "7,25", "8", "n.d."])
    with pytest.raises(DamagedInput, match=r"'k\. A\.' among numbers, and 2 other texts") as caught:
        made(folder)
    assert answers(caught.value) == {"missing": ("k. A.", "<-4.5", "n.d.")}
    got = made(folder, **answers(caught.value)).first.columns["node/x"]
    np.testing.assert_allclose(got[:, 0], [1.5, 0, 2.5, 0, 7.25, 8, 0])


def test_words_among_many_different_numbers_are_asked_alone(tmp_path):
    """The advice was to leave the column out, as a column of too many texts."""
    cells = ["k. A.", *(f"{number},5" for number in range(70))]
    with pytest.raises(DamagedInput) as caught:
        made(table_of(tmp_path / "a", cells))
    assert caught.value.lines["next"] == "--set missing='k. A.'"


def test_a_number_that_means_missing_is_compared_as_a_number(tmp_path):
    folder = table_of(tmp_path / "a", ["1.5", "0.0", "0", "2"])
    got = made(folder, missing=("0",))
    assert got.first.columns["node/x"].tolist() == [[1.5, 0], [0, 1], [0, 1], [2, 0]]
    nodes = "id,kind\n0,-9\n1,0\n2,1\n"
    folder = write(tmp_path / "b", edges_csv="u,v\n0,1\n1,2\n", nodes_csv=nodes)
    got = made(folder, label=("kind",), missing=("-9",))
    assert got.first.columns["node/y"].tolist() == [-1, 0, 1]


# --- graphs, edges and notes that do not fit ------------------------------------------------------


def files_of_graphs(tmp_path, names, graphs):
    """Return a folder with a graph of two nodes for each of the names, and a table of graphs."""
    nodes = "".join(f"{name},{node}\n" for name in names for node in "ab")
    edges = "".join(f"{name},a,b\n" for name in names)
    rows = "".join(f"{name},{number}\n" for number, name in enumerate(graphs))
    return write(
        tmp_path,
        nodes_csv="graph,id\n" + nodes,
        edges_csv="graph,source,target\n" + edges,
        graphs_csv="graph,y\n" + rows,
    )


@pytest.mark.parametrize("with_nodes", [True, False])
def test_graphs_without_nodes_or_without_a_row_are_refused_or_left_out(tmp_path, with_nodes):
    folder = files_of_graphs(tmp_path / "t", ["p", "q", "r"], ["p", "empty", "q", "none"])
    if not with_nodes:
        (folder / "nodes.csv").unlink()
    with pytest.raises(DamagedInput, match=r"the graph 'r' is not in graphs\.csv") as caught:
        made(folder)
    assert answers(caught.value) == {"on_error": "skip"}
    got = made(folder, on_error="skip")
    assert [record.key for record in got.records] == ["p", "q"]
    assert got.schema.labels.num_classes == 3
    (folder / "graphs.csv").write_text("graph,y\np,0\nempty,1\nq,1\nnone,2\nr,0\n")
    with pytest.raises(DamagedInput, match=r"graphs.csv, line 3: .*'empty'.*1 others: empty, none"):
        made(folder)
    got = made(folder, on_error="skip")
    assert [record.key for record in got.records] == ["p", "q", "r"]
    assert any("2 without any row" in line for line in got.files["ignored"])


def test_edges_without_a_node_are_left_out_only_if_asked(tmp_path):
    edges = "source,target,w\na,b,1\nb,ghost,2\nb,a,3\nghost,ghost2,4\n"
    folder = write(tmp_path / "t", edges_csv=edges, nodes_csv="id,f\na,1\nb,2\n")
    with pytest.raises(DamagedInput, match=r"line 3: the node ghost.*nor are 1 other end"):
        made(folder)
    got = made(folder, on_error="skip")
    assert got.edges() == {(0, 1), (1, 0)}
    assert got.first.columns["edge/edge_attr"].ravel().tolist() == [1, 3]
    assert "rows of edges.csv: 2 edges with an end that is no node" in got.files["ignored"]


def test_a_note_behind_the_nodes_is_warned_of(tmp_path):
    nodes = "id;f\na;1\nb;2\nc;\nSource: office;\n"
    folder = write(tmp_path / "t", edges_csv="source,target\na,b\nb,c\n", nodes_csv=nodes)
    got = made(folder)
    notes = [line for line in got.files["warnings"] if "'Source: office'" in line]
    assert len(notes) == 1
    assert notes[0].startswith("nodes.csv, line 5: ")
    assert got.first.num_nodes == 4


@pytest.mark.parametrize("names", [("a",), ("a", "b", "c")])
def test_another_number_of_class_names_than_of_classes_is_refused(tmp_path, names):
    folder = write(tmp_path / "t", edges_csv="u,v\n0,1\n", nodes_csv="id,y\n0,0\n1,1\n")
    with pytest.raises(DamagedInput, match=f"{len(names)} names for 2 classes"):
        made(folder, class_name=names)
    assert made(folder, class_name=("a", "b")).schema.labels.num_classes == 2


def test_a_missing_text_is_no_distinct_value(tmp_path):
    nodes = "id,y,f\n0,p,1\n1,n/a,n/a\n2,q,2\n3,p,2\n"
    folder = write(tmp_path / "t", edges_csv="u,v\n0,1\n", nodes_csv=nodes)
    params = PIPELINE.resolve(
        PIPELINE.Params(), RawFolder(folder, {"edges.csv": "", "nodes.csv": ""}, ())
    )
    columns = params.inferred.description.of("node")
    assert (columns["y"].distinct, columns["y"].missing) == (2, 1)
    assert (columns["f"].distinct, columns["f"].missing) == (2, 1)


# --- parts ----------------------------------------------------------------------------------------


def test_parts_have_several_names_and_unknown_ones_are_listed_at_once(tmp_path):
    folders = numbered(tmp_path)

    def parts_of(words):
        rows = "".join(f"{row},{word}\n" for row, word in enumerate(words))
        nodes = "id,set\n" + rows
        return write(next(folders), edges_csv="u,v\n0,1\n", nodes_csv=nodes)

    def check(words):
        assert made(parts_of(words)).first.columns["node/set"].tolist() == [0, 1, 2, 255, 0]

    check_each(
        check,
        [
            ["TRN", "VAL", "TST", "", "TRN"],
            ["tr", "dev", "te", "", "Training"],
            [" train ", "Validation", "testing", "", "tr"],
        ],
    )
    with pytest.raises(DamagedInput, match=r"line 4: .*unknown are 'holdout', 'hold-out'"):
        made(parts_of(["train", "val", "holdout", "hold-out", "test"]))
    languages = made(parts_of(["tr", "te", "en", "de", "tr"]))
    assert "node/x" in languages.first.columns


# --- files that belong together -------------------------------------------------------------------


def test_a_folder_of_matrices_is_refused_with_the_line_that_converts_it(tmp_path, monkeypatch):
    names = ["L.1 Gyr.", "R.1 Gyr.", "c", "d"]
    matrices = np.random.default_rng(0).integers(0, 3, (3, 4, 4)).astype(float)
    matrices[1, 0, 2] = np.nan  # an empty cell is no edge
    files = {"notes_tsv": "graph\tage\n"}
    for number, matrix in enumerate(matrices):
        files[f"sub{number}-conn_csv"] = pd.DataFrame(matrix, names, names).to_csv()
    folder = write(tmp_path / "t", **files)
    with pytest.raises(DamagedInput, match="only one matrix can be read") as caught:
        made(folder)
    monkeypatch.chdir(folder)
    code = caught.value.lines["next"].removeprefix("write them as one table: ")
    exec(code.removesuffix("; then --archive edges.csv"), {})
    got = made(write(tmp_path / "u", edges_csv=(folder / "edges.csv").read_text()))
    assert [record.num_edges for record in got.records] == [
        np.count_nonzero(np.nan_to_num(each)) for each in matrices
    ]


def test_values_of_pajek_come_with_the_line_that_joins_them(tmp_path, monkeypatch):
    net = '*Vertices 3\n1 "a b"\n2 "c"\n3 "d"\n*Arcs\n1 2 1\n3 1 1\n'
    folder = write(tmp_path / "t", NETWORK_net=net, sector_clu="*Vertices 3\n2\n1\n2\n")
    with pytest.raises(DamagedInput, match=r"sector\.clu has the clusters") as caught:
        made(folder)
    monkeypatch.chdir(folder)
    exec(caught.value.lines["next"].partition("pass that file alone: ")[2], {"networkx": nx})
    written = (folder / "NETWORK.graphml").read_bytes()
    got = made(write(tmp_path / "u", a_graphml=written), label=("sector",))
    assert got.first.columns["node/y"].tolist() == [1, 0, 1]


@pytest.mark.parametrize("of_nodes", [str, int])
def test_ids_of_json_are_the_same_as_texts_and_as_numbers(tmp_path, of_nodes):
    of_links = {str: int, int: str}[of_nodes]
    value = {
        "directed": True,
        "nodes": [{"id": of_nodes(number), "y": number % 2} for number in (7, 8, 9)],
        "links": [{"source": of_links(7), "target": of_links(9)}],
    }
    got = made(write(tmp_path / "t", a_json=json.dumps(value)))
    assert (got.first.num_nodes, got.edges()) == (3, {(0, 2)})


def test_dates_row_numbers_and_lines_of_text_are_no_features(tmp_path):
    rows = "".join(
        f'{row * 7},{row},Wed Oct 10 20:19:24 +0000 2018,"a\nb{row % 2}",{row % 3}\n'
        for row in range(9)
    )
    nodes = "id,index,created_at,note,f\n" + rows
    folder = write(tmp_path / "t", edges_csv="u,v\n0,7\n7,14\n", nodes_csv=nodes)
    got = made(folder)
    assert got.schema.column("node/x").fields == ("f",)
    assert {line.partition(":")[0] for line in got.files["ignored"]} == {
        "index",
        "created_at",
        "note",
    }


def test_many_different_integers_are_classes_or_numbers(tmp_path):
    """Twenty values are classes; sixty in sixty rows are asked about, and each answer builds."""
    rows = "".join(f"{node},{node * 37 % 5_000 + 1}\n" for node in range(60))
    folder = write(tmp_path / "f", edges_csv="u,v\n0,1\n1,2\n", nodes_csv="id,label\n" + rows)
    with pytest.raises(DamagedInput, match="60 different integers in 60 rows"):
        made(folder, label=("label",))
    assert made(folder, label=("label",), task="regression").schema.labels.num_classes is None
    assert made(folder, label=("label",), task="classification").schema.labels.num_classes == 60

    rows = "".join(f"{node},{node % 20}\n" for node in range(25))
    folder = write(tmp_path / "g", edges_csv="u,v\n0,1\n1,2\n", nodes_csv="id,label\n" + rows)
    assert made(folder, label=("label",)).schema.labels.num_classes == 20


def test_columns_without_names_become_ends_and_keep_the_features_of_nodes(tmp_path):
    """The options that the error prints name the ends alone, so that no feature is left out."""
    edges = "".join(f"{node}\t{node + 1}\t0.{node}\t{node % 3}\n" for node in range(1, 9))
    nodes = "".join(f"{node},{node}.5\n" for node in range(1, 10))
    folder = write(tmp_path / "f", edges_tsv=edges, nodes_csv="id,size\n" + nodes)
    with pytest.raises(DamagedInput, match="4 columns and no names") as caught:
        made(folder)
    got = made(folder, **answers(caught.value))
    assert [record.columns["node/x"].shape for record in got.records] == [(9, 1)]
    assert [record.columns["edge/edge_attr"].shape[1] for record in got.records] == [2]
