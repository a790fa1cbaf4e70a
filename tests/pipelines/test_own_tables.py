"""Layouts of tables as people write them: separators, first lines, names of columns, ids and graphs."""

from __future__ import annotations

import gzip
import itertools

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from support.cases import check_each
from support.own_graphs import number_folders, parse_remedy, read_files, write_files
from support.raises import raises

from kmip_data.errors import DamagedInput, Setting, UsageError
from kmip_data.pipelines import known_names
from kmip_data.pipelines.formats.text import UnknownEncoding

PATH = {(0, 1), (1, 2), (2, 3)}


SEPARATORS = [",", ";", "\t", " ", "   ", " , ", "\t\t"]

LINE_ENDS = ["\n", "\r\n", "\r"]


def test_a_table_is_read_whatever_its_separator_and_line_ends(tmp_path):
    """Ends, weights and texts equal those that were written; oracle: the lists themselves."""
    rng = np.random.default_rng(0)
    folders = number_folders(tmp_path)

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
        got = read_files(write_files(next(folders), edges_csv=data))
        names = np.unique(edges)
        expected = np.searchsorted(names, edges).T
        np.testing.assert_array_equal(got.first.edge_index, expected)
        np.testing.assert_allclose(got.first.columns["edge/edge_attr"][:, 0], weights)

    check_each(
        check, itertools.product(SEPARATORS, LINE_ENDS, [True, False], ["utf-8-sig", "utf-16"])
    )


def test_quoted_cells_keep_separators_line_ends_and_number_signs(tmp_path):
    nodes = 'id,note,kind\na,"x, y\n# no comment\n",p\nb,"say ""hi""\n",q\nc,"plain",p\n'
    folder = write_files(tmp_path / "q", edges_csv="source,target\na,b\nb,c\n", nodes_csv=nodes)
    got = read_files(folder)
    assert (got.first.num_nodes, got.edges()) == (3, {(0, 1), (1, 2)})
    assert got.schema.column("node/x").fields == ("kind=p", "kind=q")
    assert any(line.startswith("note: names or free text") for line in got.files["ignored"])


def test_text_that_is_not_utf_8_needs_an_encoding(tmp_path):
    """GML and Pajek had the same mark for each letter that UTF-8 does not know: two classes were one."""
    gml = 'graph [ node [ id 0 kind "{}" ] node [ id 1 kind "{}" ] edge [ source 0 target 1 ] ]'
    pajek = '*Vertices 2\n1 "{}"\n2 "{}"\n*Arcs\n1 2\n'
    folders = number_folders(tmp_path)

    def check(case):
        name, text = case
        data = text.format("Bjør", "Bjår").encode("latin-1")
        folder = write_files(next(folders), **{name: data})
        line = 1 + text.partition("{}")[0].count("\n")
        with raises(UnknownEncoding, naming=[f"line {line}", "utf-8"]) as error:
            read_files(folder)
        assert error.value.steps[-1] == Setting(encoding="cp1252")
        label = ("kind",) if name == "a_gml" else ()
        first = read_files(folder, encoding="cp1252", label=label).first
        assert first.num_nodes == 2
        if label:
            assert first.columns["node/y"].tolist() == [1, 0]

    check_each(check, {"a_gml": gml, "a_net": pajek, "list_txt": "source,target\n{},{}\n"}.items())


#: Text of one table of edges -> edges by position in the sorted ids.
EDGE_LISTS = {
    "0 1 {}\n1 2 {}\n2 3 {}\n": PATH,
    "0,1,friend\n1,2,friend\n2,3,foe\n": PATH,
    "0 1 \n1 2 \n2 3 \n": PATH,
    "0,1,\n1,2,5\n2,3,\n": PATH,
    "0\t1\t\n1\t2\t\n2\t3\t\n": PATH,
    "   0   1\n   1   2\n   2  3\n": PATH,
    "# source target weight\na b 1\nb c 2\nc d 3\n": PATH,
    "# FromNodeId\tToNodeId\n0\t1\n1\t2\n2\t3\n": PATH,
    "0 1\n1 2\n# the end\n2 3\n# end": PATH,
    "0,1,2020-01-01\n1,2,2020-01-02\n2,3,2020-01-03\n": PATH,
    ",0,1\n0,5,6\n1,6,7\n2,7,8\n": PATH,
    '"source" "target"\na b\nb c\nc d\n': PATH,
    # Whole numbers are one id in any notation; codes and versions are texts.
    "source,target\n1.0,2\n2.0,3\n3.0,1\n": {(0, 1), (1, 2), (2, 0)},
    "source,target\n1E+05,7\n7,100000\n": {(1, 0), (0, 1)},
    "source,target\n+1,2\n2.,1\n": {(0, 1), (1, 0)},
    "source,target\n01,1\n1,2\n": {(0, 1), (1, 2)},
    "source,target\n1.10,1.1\n1.1,1.10\n": {(1, 0), (0, 1)},
    "source,target\n1.0,a\na,1\n": {(1, 2), (2, 0)},
}


def test_every_line_of_an_edge_list_is_an_edge(tmp_path):
    folders = number_folders(tmp_path)

    def check(case):
        text, expected = case
        for data in (
            text.encode(),
            text.replace("\n", "\r\n").encode(),
            gzip.compress(text.encode()),
        ):
            assert read_files(write_files(next(folders), list_txt=data)).edges() == expected

    check_each(check, EDGE_LISTS.items())


def test_the_list_that_networkx_writes_is_its_graph(tmp_path):
    """write_edgelist with attributes, write_weighted_edgelist and without, directed and not."""
    folders = number_folders(tmp_path)

    def check(case):
        data, directed = case
        graph = nx.gnp_random_graph(9, 0.3, seed=3, directed=directed)
        for number, edge in enumerate(graph.edges):
            graph.edges[edge].update(weight=number / 2, kind="ab"[number % 2])
        folder = write_files(next(folders))
        nx.write_edgelist(graph, folder / "g.edgelist", data=data)
        got = read_files(folder)
        names = sorted({node for edge in graph.edges for node in edge})
        ends = [tuple(names[end] for end in edge) for edge in got.first.edge_index.T]
        assert ends == [*graph.edges]
        if data:
            weights = got.first.columns["edge/edge_attr"][:, 0]
            assert weights.tolist() == [number / 2 for number in range(len(ends))]

    check_each(check, itertools.product([True, False, ["weight"]], [True, False]))


#: Table of nodes -> features of the first node.
FEATURES = {
    ",0,1\n0,5,6\n1,8,9\n": [5, 6],  # behind the index of pandas
    "a,b\n5,6\n7,8\n": [5, 6],
    "a,b\n5,\n7,8\n": [5, 0, 1],  # an empty cell is missing
    "big,big\n5,6\n7,8\n": [5, 6],
    "mass,kind\n5,p\nNA,q\n": [5, 0],  # a missing number; the kinds are distinct
    "mass,kind\n5,p\nnan,q\n": [5, 0],
    "mass;size\n1,5;2\n2,5;3\n": [1.5, 2],  # decimal commas
    "0,1\n5.0,0.5\n1.0,1.5\n": [5, 0.5],  # pandas' names of an array
}


def test_the_first_line_has_names_or_data(tmp_path):
    folders = number_folders(tmp_path)

    def check(case):
        nodes, expected = case
        folder = write_files(next(folders), edges_csv="source,target\n0,1\n", nodes_csv=nodes)
        assert read_files(folder).first.columns["node/x"][0].tolist() == expected

    check_each(check, FEATURES.items())


#: Files of an open question -> answers, and the number of edges or nodes of each.
CHOICES = [
    ({"list_txt": "alice bob\nbob carol\ncarol dave\n"}, "edges", {"no": 3}),
    ({"list_txt": "p q\nr s\nt u\n"}, "edges", {"no": 3}),
    (
        {"edges_csv": "u,v\n0,1\n1,2\n", "nodes_csv": "0,1,2\n.5,6,7.5\n8,9,1\n1,1,1\n"},
        "nodes",
        {"yes": 3, "no": 4},
    ),
]


def test_an_ambiguous_first_line_needs_a_choice(tmp_path):
    folders = number_folders(tmp_path)

    def check(case):
        files, level, answers = case
        folder = write_files(next(folders), **files)
        with pytest.raises(DamagedInput) as caught:
            read_files(folder)
        assert {*parse_remedy(caught.value)} == {"header"}
        for answer, count in answers.items():
            assert getattr(read_files(folder, header=answer).first, f"num_{level}") == count

    check_each(check, CHOICES)


NODES = {"edges_csv": "u,v\na,b\nb,c\n", "nodes_csv": "id,m\na,1\nb,2\nc,3\n"}
#: Files -> values that the error names, and its answers by the edges to which they lead.
REFUSED = {
    "counts": ({"list_txt": "4 3\n0 1\n1 2\n2 3\n"}, "list.txt, line 1", {}),
    "equal counts": ({"list_txt": "3 3\n0 1\n1 2\n2 0\n"}, "list.txt, line 1", {}),
    "counts of weighted edges": ({"list_txt": "4 3 0\n0 1 5\n1 2 6\n2 3 7\n"}, "list.txt, line 1", {}),
    "row like a comment": ({"a_csv": "source,target\n#a,b\nx,y\n\n# end\n"}, "a.csv, line 2", {}),
    "one column": ({"a_txt": "0::1\n1::2\n"}, "a.txt", {}),
    "two keys": ({"edges_csv": "u,v\n5,7\n", "nodes_csv": "a,b\n5,7\n7,5\n"}, "a; b", {"node": "a"}),
    "unknown ends": (
        {"edges_csv": "source,target\nann,bob\nbob,cem\n", "nodes_csv": "age,person\n3,ann\n4,bob\n"},
        "edges.csv, line 3; cem", {"on_error": "skip"},
    ),
    "unknown ends of ids": (
        {"edges_csv": "u,v\n0,1\n1,2\n2,3\n", "nodes_csv": "id,mass\n1,4\n2,4\n3,5\n"},
        "edges.csv, line 2; node 0", {"on_error": "skip"},
    ),
    "no end is a node": (
        {"edges_csv": "u,v\na,b\n", "nodes_csv": "id,m\na,1\nc,2\n"},
        "nodes.csv, line 3; c", {},
    ),
    "node twice": (
        {"edges_csv": "source,target\n7,8\n8,9\n", "nodes_csv": "id,mass\n7,1\n8,2\n9,3\n8,2\n"},
        "nodes.csv, line 5; node 8", {},
    ),
    "rows of days": (
        {"edges_csv": "u,v\n0,1\n1,2\n", "nodes_csv": "id,day,v\n0,1,4\n1,1,5\n2,1,6\n0,2,4\n1,2,5\n2,2,7\n"},
        "nodes.csv, line 5; node 0", {},
    ),
    "empty id": (
        {"edges_csv": "source,target\n7,8\n8,9\n", "nodes_csv": "id,mass\n7,1\n,4\n8,2\n9,3\n"},
        "nodes.csv, line 3; id", {},
    ),
    "labels of other nodes": (
        {**NODES, "more_csv": "id,k\na,1\nb,2\nd,3\n"},
        "more.csv, line 4; id; d", {},
    ),
    "labels of a node twice": (
        {**NODES, "more_csv": "id,k\na,1\nb,2\na,3\n"},
        "more.csv, line 4; id; a", {},
    ),
    "user 1 is not item 1": (
        {"r_csv": "user_id,item_id,stars\n1,1,5\n2,1,4\n2,3,3\n"},
        "user_id", {},
    ),
    "no ids": ({"persons_csv": "id,age\na,3\n", "towns_csv": "town,size\nx,5\n"}, "towns.csv: town, size", {}),
    "nodes among edges": ({"all_csv": "_id,name,_start,_end\n1,ann,,\n2,bob,,\n,,1,2\n"}, "all.csv, line 2", {}),
    "parts": (
        {"edges_csv": "u,v\n0,1\n", "nodes_csv": "id,set\n0,train\n1,val\n2,holdout\n3,hold-out\n4,test\n"},
        "nodes.csv, line 4; set; holdout; hold-out", {"ignore": ("set",)},
    ),
    "rows from 1": (
        {"edges_csv": "u,v\n1,2\n2,2\n", "nodes_csv": "mass,kind\n4,a\n5,b\n7,a\n"},
        "edges.csv", {"node": "rows-from-1"},
    ),
    "lists of features": ({"edges_csv": "u,v\na,b\n", "f_json": '{"a": [1, 3], "b": [0]}'}, "f.json", {}),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_tables_without_one_reading_are_refused_with_what_differs(tmp_path, case):
    """The printed answer, if there is one, builds."""
    files, values, answer = REFUSED[case]
    folder = write_files(tmp_path / "t", **files)
    with raises(DamagedInput, naming=values.split("; ")) as caught:
        read_files(folder)
    assert caught.value.steps
    if answer:
        assert parse_remedy(caught.value) == answer
        assert read_files(folder, **answer).first.num_edges


def test_columns_of_ids_are_chosen_in_tables_alone(tmp_path):
    """A matrix and a TUDataset number or name their nodes, so an option would not fit them."""
    matrix = write_files(tmp_path / "m", m_csv=",a,b,c\na,0,1,0\nb,1,0,2\nc,0,2,0\n")
    indicator = "1\n1\n2\n2\n"
    dataset = write_files(
        tmp_path / "D", D_A_txt="1, 2\n2, 1\n3, 4\n", D_graph_indicator_txt=indicator
    )
    for folder in (matrix, dataset):
        for option in ({"node": "none"}, {"source": "x"}, {"target": "x"}):
            with pytest.raises(UsageError):
                read_files(folder, **option)
        assert read_files(folder).first.num_nodes in {2, 3}


def variants(name):
    """Ways to write a name."""
    yield from (name, name.upper(), name.capitalize(), f" {name} ")
    if name[-1].isdigit():
        yield from (f"{name[:-1]}_{name[-1]}", f"{name[:-1]} {name[-1]}", f"{name[:-1]}-{name[-1]}")


def test_common_names_of_edge_ends_are_recognised(tmp_path):
    folders = number_folders(tmp_path)

    def check(case):
        for first, second in zip(*map(variants, case), strict=True):
            text = f"w,{second},x,{first}\n.5,b,1,a\n.25,c,2,b\n.75,d,3,c\n"
            got = read_files(write_files(next(folders), got_edges_csv=text))
            assert got.edges() == PATH, (first, second)
            assert got.schema.column("edge/edge_attr").fields == ("w", "x")

    check_each(check, known_names.END_NAMES)


FILES = [
    ("got-edges_csv", "got-nodes_csv"),
    ("links_tsv", "vertices_tsv"),
    ("bonds_csv", "atoms_csv"),
    ("musae_DE_edges_csv", "musae_DE_target_csv"),
]


def test_files_are_recognised_by_words_in_their_names(tmp_path):
    folders = number_folders(tmp_path)

    def check(case):
        edges, nodes = case
        files = {edges: "u,v\na,b\nb,c\n", nodes: "Id,mass\na,5\nb,6\nc,7\n", "readme_md": "notes"}
        got = read_files(write_files(next(folders), **files))
        assert got.first.columns["node/x"][:, 0].tolist() == [5, 6, 7]
        assert [line.partition(":")[0] for line in got.files["ignored"]] == ["readme.md"]

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
    got = read_files(write_files(tmp_path / "g", cast_nodes_csv=nodes, cast_edges_csv=edges))
    expected = []
    for i in range(12):
        ends = (i, (i + 1) % 12)
        expected += [ends] if i % 3 == 1 else [ends, ends[::-1]]
    assert [tuple(edge) for edge in got.first.edge_index.T.tolist()] == expected
    weights = [(i + 1) for i in range(12) for _ in range(1 + (i % 3 != 1))]
    assert got.first.columns["edge/edge_attr"][:, 0].tolist() == weights
    assert got.schema.y_column is None
    assert got.schema.column("node/x").fields == ("house=A", "house=B", "house=C")
    ignored = {line.partition(":")[0] for line in got.files["ignored"]}
    assert ignored == {"Label", "timeset", "Id"}


#: Tables of edges and nodes -> ends of the first edge by row.
IDS = [
    ("u,v\n7,9\n", "name,mass\n9,1\n7,2\n", (1, 0)),
    ("u,v\n7,9\n", "code,mass\n9,1\n7,2\n", (1, 0)),
    ("u,v\n0,1\n", "mass,size\n9,1\n7,2\n", (0, 1)),  # numbered by row
    ("u,v\n1,3\n", "mass,size\n9,1\n7,2\n8,2\n", (0, 2)),  # from 1
    ("u,v\n1,3\n", "y,size\n2,1\n3,2\n1,2\n", (0, 2)),  # values of a target are no ids
    ("u,v\nv1.0,v2.0\n", "id,mass\nv2.0,1\nv1.0,2\nv1.1,3\n", (1, 0)),
    ("u,v\n1,2\n2,3\n", "id,mass\n3.0,7\n1.0,8\n2.0,9\n", (1, 2)),
    ("1\t2\t.1\t1\n2\t3\t.2\t0\n", "id,size\n1,.5\n2,.6\n3,.1\n", (0, 1)),
    ("u,v\n68,7a\n", "id,mass\n00068,1\n7a,2\n", (0, 1)),  # lost zeros
    ("u,v\n0,1\n1,2\n", "mass,age\n1,2\n,\n3,4\n", (0, 1)),  # an empty row may be a node
    ("u,v\n0,1\n,\n", "id;mass\n0;5\n1;\n;\n;;\n", (0, 1)),  # not below the last one
]


def test_the_ids_of_nodes_are_those_of_the_edges(tmp_path):
    folders = number_folders(tmp_path)

    def check(case):
        edges, nodes, expected = case
        folder = write_files(next(folders), edges_csv=edges, nodes_csv=nodes)
        first = read_files(folder).first
        assert tuple(first.edge_index[:, 0]) == expected
        assert first.num_nodes == nodes.rstrip(";\n").count("\n")

    check_each(check, IDS)


def test_y_next_to_x_is_a_coordinate_or_needs_a_choice(tmp_path):
    nodes = pd.DataFrame({"id": range(6), "x": np.arange(6) / 4, "y": np.arange(6) / 8})
    files = {"edges_csv": "u,v\n0,1\n", "nodes_csv": nodes.to_csv(index=False)}
    folder = write_files(tmp_path / "asked", **files)
    with pytest.raises(DamagedInput) as caught:
        read_files(folder)
    assert parse_remedy(caught.value) == {"label": ("none",)}
    got = read_files(folder, label=("none",))
    assert got.schema.column("node/x").fields == ("x", "y")
    assert read_files(folder, label=("y",)).schema.y_column.doc == "y"
    files["nodes_csv"] = nodes.assign(label=list("aabbab")).to_csv(index=False)
    got = read_files(write_files(tmp_path / "label", **files))
    assert got.schema.column("node/x").fields == ("x", "y")
    assert got.schema.y_column.num_classes == 2


def test_molecules_in_three_tables_are_read(tmp_path):
    """begin, end and mol_id; names of graphs are those of the file."""
    folder = write_files(
        tmp_path / "m",
        molecules_csv="mol_id,label\nMOL-1,1\nMOL-2,0\n",
        atoms_csv="mol_id,atom,element\nMOL-1,0,H\nMOL-2,0,O\nMOL-1,1,O\nMOL-1,2,H\n".replace(
            "atom,", "id,"
        ),
        bonds_csv="mol_id,begin,end,order\nMOL-1,0,1,1\nMOL-1,1,2,1\n",
    )
    got = read_files(folder)
    assert [record.key for record in got.records] == ["MOL-1", "MOL-2"]
    assert got.edges() == {(0, 1), (1, 2)}
    assert got.schema.column("node/x").fields == ("element=H", "element=O")
    assert got.first.columns["node/x"].tolist() == [[1, 0], [0, 1], [1, 0]]


def test_molecules_have_the_ids_of_their_table(tmp_path):
    table = "compound_id,batch,smiles,y\nK1,a,CCO,0\nK2,a,CCC,1\n"
    path = write_files(tmp_path / "t", t_csv=table)
    assert [record.key for record in read_files(path, label=("y",)).records] == ["K1", "K2"]
    numbered_rows = read_files(path, label=("y",), node="none").records
    assert [record.key for record in numbered_rows] == ["000000", "000001"]
    with raises(DamagedInput, naming="batch", steps=Setting(node="none")):
        read_files(path, label=("y",), node="batch")


def test_a_table_of_molecules_is_known_by_its_letters(tmp_path):
    rows = "".join(
        f"m{n},{smiles},{n}\n" for n, smiles in enumerate(["CCO", "c1ccccc1", "CC(=O)O"])
    )
    with pytest.raises(DamagedInput) as caught:
        read_files(write_files(tmp_path / "t", a_csv="name,structure,price\n" + rows))
    assert caught.value.steps == [Setting(smiles="structure")]


def test_a_column_of_an_edge_table_names_its_graphs(tmp_path):
    rows = [f"s{graph},R{a},R{b},0.5\n" for graph in range(3) for a, b in ((1, 2), (2, 3))]
    folder = write_files(tmp_path / "t", a_csv="person,roi_a,roi_b,fc\n" + "".join(rows))
    got = read_files(folder, graph="person")
    assert [record.edge_index.tolist() for record in got.records] == [[[0, 1], [1, 2]]] * 3
    assert got.files["ignored"][0].startswith("ids of nodes: stored only for a single graph")


def test_a_legend_of_edges_may_be_a_table_of_graphs(tmp_path):
    """Graphs of edges alone may restart their ids; next to a table of nodes, these tell the graphs."""
    edges = "source,target,kind\na,b,x\nb,c,y\nc,a,x\nc,d,y\n"
    files = {"edges_csv": edges, "legend_csv": "kind,label\nx,foo\ny,bar\n"}
    folder = write_files(tmp_path / "alone", **files)
    with pytest.raises(DamagedInput) as caught:
        read_files(folder)
    assert parse_remedy(caught.value) == {"graph": "kind"}
    assert read_files(folder, graph="kind").schema.y_column.num_classes == 2
    assert len(read_files(folder, graph="none").records) == 1
    nodes = "id,m\na,1\nb,2\nc,3\nd,4\n"
    got = read_files(write_files(tmp_path / "nodes", **files, nodes_csv=nodes))
    assert got.schema.column("edge/edge_attr").fields == ("kind=x", "kind=y")


def test_edges_that_occur_again_are_counted(tmp_path):
    got = read_files(write_files(tmp_path / "t", edges_csv="u,v\n0,1\n0,1\n1,0\n2,2\n2,2\n"))
    assert (got.files["repeated_edges"], got.files["self_loops"]) == (1, 2)


@pytest.mark.parametrize("with_nodes", [True, False])
def test_graphs_without_nodes_or_without_a_row_are_refused_or_left_out(tmp_path, with_nodes):
    names = "pqr"
    files = {
        "nodes_csv": "graph,id\n" + "".join(f"{name},{node}\n" for name in names for node in "ab"),
        "edges_csv": "graph,source,target\n" + "".join(f"{name},a,b\n" for name in names),
        "graphs_csv": "graph,y\np,0\nempty,1\nq,2\nnone,3\n",
    }
    if not with_nodes:
        del files["nodes_csv"]
    folder = write_files(tmp_path / "t", **files)
    for more, row, keys in (
        ("", "'r'", "pq"),
        ("r,0\n", "graphs.csv, line 3: ", "pqr"),
    ):
        with (folder / "graphs.csv").open("a") as table:
            table.write(more)
        with pytest.raises(DamagedInput) as caught:
            read_files(folder)
        assert row in caught.value.message
        assert parse_remedy(caught.value) == {"on_error": "skip"}
        got = read_files(folder, on_error="skip")
        assert [record.key for record in got.records] == [*keys]
        assert any(line.startswith("rows of graphs.csv: 2") for line in got.files["ignored"])


def test_edges_without_a_node_are_dropped_only_on_request(tmp_path):
    edges = "source,target,w\na,b,1\nb,ghost,2\nb,a,3\nghost,ghost2,4\n"
    folder = write_files(tmp_path / "t", edges_csv=edges, nodes_csv="id,f\na,1\nb,2\n")
    got = read_files(folder, on_error="skip")
    assert got.edges() == {(0, 1), (1, 0)}
    assert got.first.columns["edge/edge_attr"].ravel().tolist() == [1, 3]
    assert any(line.startswith("rows of edges.csv: 2") for line in got.files["ignored"])


def test_parts_have_several_names(tmp_path):
    folders = number_folders(tmp_path)

    def parts_of(words):
        rows = "".join(f"{row},{word}\n" for row, word in enumerate(words))
        folder = write_files(next(folders), edges_csv="u,v\n0,1\n", nodes_csv="id,set\n" + rows)
        return read_files(folder).first.columns

    def check(words):
        assert parts_of(words)["node/set"].tolist() == [0, 1, 2, 255, 0]

    parts = ["TRN VAL TST  TRN", "tr dev te  Training", "train Validation testing  tr"]
    check_each(check, [words.split(" ") for words in parts])
    assert "node/x" in parts_of(["tr", "te", "en", "de", "tr"])  # languages


@pytest.mark.parametrize("first", [0, 1])
def test_rows_of_several_graphs_without_ids_are_numbered_within_each(tmp_path, first):
    nodes = "graph,mass\np,1\np,2\nq,3\nq,4\nq,5\n"
    edges = f"graph,u,v\np,{first},{first + 1}\nq,{first},{first + 2}\n"
    folder = write_files(tmp_path / "t", edges_csv=edges, nodes_csv=nodes)
    answer = {}
    if first:
        with pytest.raises(DamagedInput) as caught:
            read_files(folder)
        answer = parse_remedy(caught.value)
    got = read_files(folder, **answer)
    assert [record.edge_index.tolist() for record in got.records] == [[[0], [1]], [[0], [2]]]


def test_options_that_name_the_ends_show_that_the_first_line_has_names(tmp_path):
    folders = number_folders(tmp_path)

    def check(text):
        folder = write_files(next(folders), list_txt=text)
        assert read_files(folder, source="A", target="B").first.num_edges == 2

    check_each(check, ["A,B\nA,C\nB,C\n", "A,B,C\nC,A,B\nB,C,A\n", "A B\nB A\nA B\n"])


def test_other_json_next_to_tables_is_ignored(tmp_path):
    """BIDS puts ``participants.json`` next to ``participants.tsv``."""
    about = '{"age": {"Units": "years"}}'
    tables = {"edges_csv": "source,target\na,b\nb,c\n", "nodes_csv": "id,age\na,1\nb,2\nc,5\n"}
    folder = write_files(tmp_path / "own", about_json=about, **tables)
    assert read_files(folder).first.num_edges == 2
