"""Layouts of tables as people write them: separators, first lines, names of columns, ids and graphs."""

from __future__ import annotations

import gzip
import itertools
import re

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from support.cases import check_each, steps_of
from support.own_graphs import number_folders, parse_remedy, read_files, write_files

from kmip_data.errors import DamagedInput, Setting, UsageError
from kmip_data.pipelines import known_names

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
        with pytest.raises(DamagedInput, match=r"line [12]: the text is not in utf-8") as error:
            read_files(folder)
        assert error.value.steps[-1] == Setting(encoding="cp1252")
        label = ("kind",) if name == "a_gml" else ()
        first = read_files(folder, encoding="cp1252", label=label).first
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


#: Table of nodes -> features of the first node, or the problem.
NAMES = {
    "0,1,2\n.5,6,7\n8,9,1\n": "line 1 may be names",  # pandas' names of an array
    ",0,1\n0,5,6\n1,8,9\n": [5, 6],  # behind its index
    "a,b\n5,6\n7,8\n": [5, 6],
    "5,6\n7,8\n": [5, 6],
    "5,\n7,8\n": [5, 0, 1],  # an empty cell is missing
    "mass,kind\n5,p\nNA,q\n": [5, 0],  # a missing number; the kinds are distinct
    "mass,kind\n5,p\nn/a,q\n": [5, 0],
    "mass,kind\n5,p\nnull,q\n": [5, 0],
    "mass,kind\n5,p\nnan,q\n": [5, 0],
    "big,big\n5,6\n7,8\n": [1, 1, 1, 0, 0, 1],  # twice the same: three texts
    "mass;size\n1,5;2\n2,5;3\n": [1.5, 2],  # decimal commas
}


def test_the_first_line_has_names_or_data(tmp_path):
    folders = number_folders(tmp_path)

    def check(case):
        nodes, expected = case
        folder = write_files(next(folders), edges_csv="source,target\n0,1\n", nodes_csv=nodes)
        if isinstance(expected, str):
            with pytest.raises(DamagedInput, match=expected):
                read_files(folder)
            return
        if nodes.startswith("big"):
            with pytest.raises(DamagedInput, match="among numbers"):
                read_files(folder)
            return
        assert read_files(folder).first.columns["node/x"][0].tolist() == expected

    check_each(check, NAMES.items())


def test_an_ambiguous_first_line_needs_a_choice(tmp_path):
    x = np.arange(6).reshape(3, 2) / 2
    nodes = pd.DataFrame(x).to_csv(index=False)
    folder = write_files(tmp_path / "n", edges_csv="source,target\n0,1\n1,2\n", nodes_csv=nodes)
    with pytest.raises(DamagedInput, match="line 1 may be names"):
        read_files(folder)
    np.testing.assert_array_equal(read_files(folder, header="yes").first.columns["node/x"], x)
    assert read_files(folder, header="no").first.num_nodes == 4
    # No cell of the first line occurs again, and no column has numbers alone.
    either = write_files(tmp_path / "e", list_txt="p q\nr s\nt u\n")
    with pytest.raises(DamagedInput, match="line 1 may be names"):
        read_files(either)
    assert read_files(either, header="yes").first.num_edges == 2
    assert read_files(either, header="no").first.num_edges == 3


def test_a_choice_about_the_first_line_names_the_ends_too(tmp_path):
    """Followed, neither answer leads to a second question."""

    def answers(folder):
        with pytest.raises(DamagedInput, match="line 1 may be names") as caught:
            read_files(folder)
        advice = re.fullmatch(r".*: (header=.*) for names, (.*) for data", caught.value.message)
        assert steps_of(caught.value) == advice[1]
        answers = [re.findall(r"(\w+)=('[^']*'|\w+)", answer) for answer in advice.groups()]
        return [{key: value.strip("'") for key, value in answer} for answer in answers]

    three = write_files(tmp_path / "three", list_csv="p,q,w\nr,s,t\nu,v,x\n")
    as_names, as_data = answers(three)
    assert as_names == {"header": "yes", "source": "p", "target": "q"}
    assert as_data == {"header": "no"}
    assert read_files(three, **as_names).first.num_edges == 2
    assert read_files(three, **as_data).first.num_edges == 3

    four = write_files(tmp_path / "four", list_csv="p,q,w,k\nr,s,t,l\nu,v,x,m\n")
    as_names, as_data = answers(four)
    assert as_data == {"header": "no", "source": "0", "target": "1"}
    assert read_files(four, **as_names).first.num_edges == 2
    assert read_files(four, **as_data).first.num_edges == 3

    molecules = "m1,CC(C)O,blue\nm2,c1ccccc1,red\nm3,CC=O,green\n"
    folder = write_files(tmp_path / "molecules", list_csv=molecules)
    as_names, as_data = answers(folder)
    assert as_names == {"header": "yes", "smiles": "CC(C)O"}
    assert as_data == {"header": "no", "smiles": "1"}
    assert len(read_files(folder, **as_names).records) == 2
    assert [record.key for record in read_files(folder, **as_data).records] == ["m1", "m2", "m3"]


def test_columns_of_ids_are_chosen_in_tables_alone(tmp_path):
    """A matrix and a TUDataset number or name their nodes, so an option would not fit them."""
    matrix = write_files(tmp_path / "m", m_csv=",a,b,c\na,0,1,0\nb,1,0,2\nc,0,2,0\n")
    indicator = "1\n1\n2\n2\n"
    dataset = write_files(
        tmp_path / "D", D_A_txt="1, 2\n2, 1\n3, 4\n", D_graph_indicator_txt=indicator
    )
    for folder in (matrix, dataset):
        for option in ({"node": "none"}, {"source": "x"}, {"target": "x"}):
            ((key, value),) = option.items()
            with pytest.raises(UsageError, match=f"{key}='?{value}'? has no effect") as caught:
                read_files(folder, **option)
            assert caught.value.steps == [Setting({key: None})]
        assert read_files(folder).first.num_nodes in {2, 3}


def test_a_line_of_counts_is_left_out_or_removed(tmp_path):
    distinct = write_files(tmp_path / "distinct", list_txt="4 3\n0 1\n1 2\n2 3\n")
    with pytest.raises(DamagedInput, match="numbers of nodes and edges") as caught:
        read_files(distinct)
    assert caught.value.steps[1:] == [Setting(header="yes"), Setting(header="no")]
    assert read_files(distinct, header="yes").first.num_edges == 3
    # Equal counts are no two names, and a third column would make the ends ambiguous.
    for name, text in (
        ("equal", "3 3\n0 1\n1 2\n2 0\n"),
        ("weighted", "4 3 0\n0 1 5\n1 2 6\n2 3 7\n"),
    ):
        with pytest.raises(DamagedInput, match="numbers of nodes and edges") as caught:
            read_files(write_files(tmp_path / name, list_txt=text))
        assert caught.value.steps[1:] == [Setting(header="no")]


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


def test_lines_of_comment_are_listed(tmp_path):
    """A tag such as #a begins as a comment does, and is none if other cells do, too."""
    got = read_files(write_files(tmp_path / "a", a_csv="source,target\n#a,b\nx,y\n\n# end\n"))
    assert got.files["ignored"] == ["comments in a.csv: 2 lines, such as '#a,b'"]
    assert got.edges() == {(0, 1)}
    text = "# by,hand\nsource,target\nx,#a\n# 1, 2\n#a,y\n\n# end\n"
    got = read_files(write_files(tmp_path / "b", a_csv=text))
    assert got.files["ignored"] == ["comments in a.csv: 2 lines, such as '# by,hand'"]
    assert got.first.num_edges == 3


def test_a_line_of_one_cell_is_no_edge(tmp_path):
    with pytest.raises(DamagedInput, match="has one column, and an edge has two ends") as caught:
        read_files(write_files(tmp_path / "a", a_txt="0::1\n1::2\n"))
    assert steps_of(caught.value).startswith("separate the cells")


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


#: Tables of edges and nodes -> positions of the ends of the first edge, or the problem.
IDS = [
    ("u,v\n7,9\n", "name,mass\n9,1\n7,2\n", [1, 0]),
    ("u,v\n7,9\n", "code,mass\n9,1\n7,2\n", [1, 0]),  # holds the ids, and is not 0 … n − 1
    ("u,v\n0,1\n", "mass,size\n9,1\n7,2\n", [0, 1]),  # numbered by row
    ("u,v\n0,1\n", "id,key\n5,1\n7,0\n", "may be those in key"),  # by row, or by key
    ("u,v\n5,7\n", "a,b\n5,7\n7,5\n", "may be those in a, b"),
    ("u,v\na,b\n", "id,mass\na,1\nc,2\n", "line 2: the node b"),
    ("u,v\n0,1\n", "id,mass\n1,1\n2,2\n", "the edges have other ids"),  # by row, or a missing 0
    ("u,v\nv1.0,v2.0\n", "id,mass\nv2.0,1\nv1.0,2\nv1.1,3\n", [1, 0]),
]


def test_the_ids_of_nodes_are_those_of_the_edges(tmp_path):
    folders = number_folders(tmp_path)

    def check(case):
        edges, nodes, expected = case
        folder = write_files(next(folders), edges_csv=edges, nodes_csv=nodes)
        if isinstance(expected, str):
            with pytest.raises(DamagedInput, match=expected) as caught:
                read_files(folder)
            assert caught.value.steps
        else:
            assert read_files(folder).first.edge_index[:, 0].tolist() == expected

    check_each(check, IDS)


def test_y_next_to_x_is_a_coordinate_or_needs_a_choice(tmp_path):
    nodes = pd.DataFrame({"id": range(6), "x": np.arange(6) / 4, "y": np.arange(6) / 8})
    files = {"edges_csv": "u,v\n0,1\n", "nodes_csv": nodes.to_csv(index=False)}
    folder = write_files(tmp_path / "asked", **files)
    with pytest.raises(DamagedInput, match="'y' next to 'x'") as caught:
        read_files(folder)
    assert read_files(folder, **parse_remedy(caught.value)).schema.column("node/x").fields == (
        "x",
        "y",
    )
    assert read_files(folder, label=("y",)).schema.y_column.doc == "y"
    files["nodes_csv"] = nodes.assign(label=list("aabbab")).to_csv(index=False)
    got = read_files(write_files(tmp_path / "label", **files))
    assert got.schema.column("node/x").fields == ("x", "y")
    assert got.schema.y_column.num_classes == 2
    # Integers next to fractions are a target.
    files["nodes_csv"] = nodes.assign(y=[0, 1] * 3).to_csv(index=False)
    assert read_files(write_files(tmp_path / "target", **files)).schema.y_column.num_classes == 2


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
    with pytest.raises(DamagedInput, match="'batch'") as caught:
        read_files(path, label=("y",), node="batch")
    assert caught.value.steps == [Setting(node="none")]


def test_a_node_that_one_table_lacks_is_named_with_its_line(tmp_path):
    """The ids are in the column that has most of them, although it lacks one."""
    path = write_files(
        tmp_path / "t",
        edges_csv="source,target\nann,bob\nbob,cem\n",
        nodes_csv="age,person\n3,ann\n4,bob\n",
    )
    with pytest.raises(DamagedInput, match=r"edges.csv, line 3: the node cem"):
        read_files(path)


def test_empty_rows_at_the_end_of_a_spreadsheet_are_listed(tmp_path):
    nodes = "id;mass\n0;5\n1;\n2;7\n;\n;;\n"
    got = read_files(write_files(tmp_path / "t", edges_csv="u,v\n0,1\n1,2\n,\n", nodes_csv=nodes))
    assert (got.first.num_nodes, got.first.num_edges) == (3, 2)
    assert got.files["ignored"] == [
        "end of edges.csv: 1 line without a value",
        "end of nodes.csv: 2 lines without a value",
    ]
    # An empty row between others may be a node.
    nodes = "mass,age\n1,2\n,\n3,4\n"
    got = read_files(write_files(tmp_path / "u", edges_csv="u,v\n0,1\n1,2\n", nodes_csv=nodes))
    assert got.first.num_nodes == 3


def test_the_fault_in_a_column_of_ids_is_named_with_its_line(tmp_path):
    folders = number_folders(tmp_path)

    def check(case):
        edges, nodes, message, advice = case
        with pytest.raises(DamagedInput, match=message) as caught:
            read_files(write_files(next(folders), edges_csv=edges, nodes_csv=nodes))
        assert advice in steps_of(caught.value)

    edges = "source,target\n7,8\n8,9\n"
    cases = [
        (edges, "id,mass\n7,1\n8,2\n9,3\n8,2\n", "line 5: the node 8 occurs twice", "remove"),
        (edges, "id,mass\n7,1\n,4\n8,2\n9,3\n", "line 3: 'id' is empty", "fill in"),
        ("source,target\n68,7a\n", "id,mass\n00068,1\n7a,2\n", "the node 68 is", "00068"),
        ("source,target\n0,1\n", "id,mass\n0,1\n1,2\n1,2\n", "the node 1 occurs", "node='none'"),
    ]
    check_each(check, cases)


def test_edges_between_two_kinds_of_nodes_are_no_single_count(tmp_path):
    """User 1 is not item 1; followed, the advice gives a node to each."""
    table = pd.DataFrame({"user_id": [1, 2, 2], "item_id": [1, 1, 3], "stars": [5, 4, 3]})
    folder = write_files(tmp_path / "t", ratings_csv=table.to_csv(index=False))
    with pytest.raises(DamagedInput, match="no columns named like the ends") as caught:
        read_files(folder)
    command = re.search(r"table\[.*?\.astype\(str\)", caught.value.message)
    exec(command.group(), {"table": table})
    folder = write_files(tmp_path / "u", ratings_csv=table.to_csv(index=False))
    assert read_files(folder, source="user_id", target="item_id").first.num_nodes == 4


def test_a_table_of_molecules_is_known_by_its_letters(tmp_path):
    rows = "".join(
        f"m{n},{smiles},{n}\n" for n, smiles in enumerate(["CCO", "c1ccccc1", "CC(=O)O"])
    )
    with pytest.raises(DamagedInput) as caught:
        read_files(write_files(tmp_path / "t", a_csv="name,structure,price\n" + rows))
    assert caught.value.steps == [Setting(smiles="structure")]


def test_tables_that_share_no_ids_are_refused_with_their_columns(tmp_path):
    folder = write_files(tmp_path / "t", persons_csv="id,age\na,3\n", towns_csv="town,size\nx,5\n")
    with pytest.raises(DamagedInput, match="No table has two columns with the ids") as caught:
        read_files(folder)
    assert "towns.csv: town, size" in caught.value.found


def test_several_graphs_in_one_edge_table_are_read(tmp_path):
    """Ends are columns with names alike, and a column of ids that repeats may name the graph."""
    rows = [f"s{graph},R1,R{end},0.5\n" for graph in range(3) for end in (2, 3)]
    folder = write_files(tmp_path / "t", a_csv="participant_id,roi_a,roi_b,fc\n" + "".join(rows))
    with pytest.raises(DamagedInput) as caught:
        read_files(folder)
    got = read_files(folder, **parse_remedy(caught.value))
    assert len(got.records) == 3
    assert got.files["ignored"][0].startswith("ids of nodes: stored only for a single graph")


def test_nodes_among_the_edges_are_to_be_written_apart(tmp_path):
    text = "_id,name,_start,_end\n1,ann,,\n2,bob,,\n,,1,2\n"
    with pytest.raises(DamagedInput, match="line 2: '_start' and '_end' are empty") as caught:
        read_files(write_files(tmp_path / "t", all_csv=text))
    assert "nodes.csv" in steps_of(caught.value)


def test_edges_that_occur_again_are_counted(tmp_path):
    got = read_files(write_files(tmp_path / "t", edges_csv="u,v\n0,1\n0,1\n1,0\n2,2\n2,2\n"))
    assert (got.files["repeated_edges"], got.files["self_loops"]) == (1, 2)


def files_of_graphs(tmp_path, names, graphs):
    """Return a folder with a graph of two nodes for each of the names, and a table of graphs."""
    nodes = "".join(f"{name},{node}\n" for name in names for node in "ab")
    edges = "".join(f"{name},a,b\n" for name in names)
    rows = "".join(f"{name},{number}\n" for number, name in enumerate(graphs))
    return write_files(
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
        read_files(folder)
    assert parse_remedy(caught.value) == {"on_error": "skip"}
    got = read_files(folder, on_error="skip")
    assert [record.key for record in got.records] == ["p", "q"]
    assert got.schema.y_column.num_classes == 3
    (folder / "graphs.csv").write_text("graph,y\np,0\nempty,1\nq,1\nnone,2\nr,0\n")
    with pytest.raises(DamagedInput, match=r"graphs.csv, line 3: .*'empty'.*1 others: empty, none"):
        read_files(folder)
    got = read_files(folder, on_error="skip")
    assert [record.key for record in got.records] == ["p", "q", "r"]
    assert any("2 without any row" in line for line in got.files["ignored"])


def test_edges_without_a_node_are_dropped_only_on_request(tmp_path):
    edges = "source,target,w\na,b,1\nb,ghost,2\nb,a,3\nghost,ghost2,4\n"
    folder = write_files(tmp_path / "t", edges_csv=edges, nodes_csv="id,f\na,1\nb,2\n")
    with pytest.raises(DamagedInput, match=r"line 3: the node ghost.*nor are 1 other end"):
        read_files(folder)
    got = read_files(folder, on_error="skip")
    assert got.edges() == {(0, 1), (1, 0)}
    assert got.first.columns["edge/edge_attr"].ravel().tolist() == [1, 3]
    assert "rows of edges.csv: 2 edges with an end that is not a node" in got.files["ignored"]


def test_a_note_after_the_nodes_is_a_warning(tmp_path):
    nodes = "id;f\na;1\nb;2\nc;\nSource: office;\n"
    folder = write_files(tmp_path / "t", edges_csv="source,target\na,b\nb,c\n", nodes_csv=nodes)
    got = read_files(folder)
    notes = [line for line in got.files["warnings"] if "'Source: office'" in line]
    assert len(notes) == 1
    assert notes[0].startswith("nodes.csv, line 5: ")
    assert got.first.num_nodes == 4


def test_parts_have_several_names_and_unknown_ones_are_listed_at_once(tmp_path):
    folders = number_folders(tmp_path)

    def parts_of(words):
        rows = "".join(f"{row},{word}\n" for row, word in enumerate(words))
        nodes = "id,set\n" + rows
        return write_files(next(folders), edges_csv="u,v\n0,1\n", nodes_csv=nodes)

    def check(words):
        assert read_files(parts_of(words)).first.columns["node/set"].tolist() == [0, 1, 2, 255, 0]

    check_each(
        check,
        [
            ["TRN", "VAL", "TST", "", "TRN"],
            ["tr", "dev", "te", "", "Training"],
            [" train ", "Validation", "testing", "", "tr"],
        ],
    )
    with pytest.raises(DamagedInput, match=r"line 4: .*unknown are 'holdout', 'hold-out'"):
        read_files(parts_of(["train", "val", "holdout", "hold-out", "test"]))
    languages = read_files(parts_of(["tr", "te", "en", "de", "tr"]))
    assert "node/x" in languages.first.columns


def test_columns_without_names_become_ends_and_keep_the_features_of_nodes(tmp_path):
    """The ids of the nodes show the ends; without nodes, the printed options name them."""
    edges = "".join(f"{node}\t{node + 1}\t0.{node}\t{node % 3}\n" for node in range(1, 9))
    nodes = "".join(f"{node},{node}.5\n" for node in range(1, 10))
    folder = write_files(tmp_path / "f", edges_tsv=edges, nodes_csv="id,size\n" + nodes)
    got = read_files(folder)
    assert [record.columns["node/x"].shape for record in got.records] == [(9, 1)]
    assert [record.columns["edge/edge_attr"].shape[1] for record in got.records] == [2]
    (folder / "nodes.csv").unlink()
    with pytest.raises(DamagedInput, match="4 columns and no names") as caught:
        read_files(folder)
    assert read_files(folder, **parse_remedy(caught.value)).edges() == got.edges()


#: Ids of an edge list -> edges by position in the sorted ids.
NUMBERS = {
    "source,target\n1.0,2\n2.0,3\n3.0,1\n": {(0, 1), (1, 2), (2, 0)},
    "source,target\n1E+05,7\n7,100000\n": {(1, 0), (0, 1)},
    "source,target\n+1,2\n2.,1\n": {(0, 1), (1, 0)},
    "source,target\n01,1\n1,2\n": {(0, 1), (1, 2)},  # codes
    "source,target\n1.10,1.1\n1.1,1.10\n": {(1, 0), (0, 1)},  # versions
    "source,target\n1.0,a\na,1\n": {(1, 2), (2, 0)},
}


def test_whole_numbers_are_one_id_in_any_notation(tmp_path):
    folders = number_folders(tmp_path)

    def check(case):
        text, expected = case
        assert read_files(write_files(next(folders), edges_csv=text)).edges() == expected

    check_each(check, NUMBERS.items())
    nodes = "id,mass\n3.0,7\n1.0,8\n2.0,9\n"
    got = read_files(write_files(tmp_path / "n", edges_csv="u,v\n1,2\n2,3\n", nodes_csv=nodes))
    assert got.edges() == {(1, 2), (2, 0)}
    assert got.first.columns["node/x"][:, 0].tolist() == [7, 8, 9]


@pytest.mark.parametrize("edges", ["1,2\n2,3\n", "1,2\n2,2\n", "1,1\n"])
@pytest.mark.parametrize("column", ["mass", "age", "y"])
def test_rows_of_nodes_without_ids_are_numbered_from_0_or_1(tmp_path, edges, column):
    """No end is 0: edges may count from 1, or the first node has none. Values are never ids."""
    nodes = f"{column},kind\n2,a\n3,b\n1,a\n"
    folder = write_files(tmp_path / "t", edges_csv="u,v\n" + edges, nodes_csv=nodes)
    with pytest.raises(DamagedInput, match="numbers of the rows from 1") as caught:
        read_files(folder)
    assert "on_error" not in steps_of(caught.value)
    written = {tuple(map(int, line.split(","))) for line in edges.split()}
    got = read_files(folder, node="rows-from-1")
    assert got.edges() == {(source - 1, target - 1) for source, target in written}
    if "3" not in edges:
        assert read_files(folder, node="none").edges() == written
    if column == "y":
        assert "those in" not in str(caught.value)


def test_rows_of_several_graphs_without_ids_are_numbered_from_0_or_1(tmp_path):
    nodes = "graph,mass\np,1\np,2\nq,3\nq,4\nq,5\n"
    folder = write_files(tmp_path / "t", edges_csv="graph,u,v\np,1,2\nq,1,3\n", nodes_csv=nodes)
    with pytest.raises(DamagedInput, match="numbers of the rows from 1") as caught:
        read_files(folder)
    got = read_files(folder, **parse_remedy(caught.value))
    assert [record.edge_index.tolist() for record in got.records] == [[[0], [1]], [[0], [2]]]


#: Matrix of a path -> edges by position of the names.
MATRICES = {
    ",1,2,3,4\n1,0,1,0,0\n2,0,0,1,0\n3,0,0,0,1\n4,0,0,0,0\n": ["1", "2", "3", "4"],
    "id,b,a,d,c\nb,0,1,0,0\na,0,0,1,0\nd,0,0,0,1\nc,0,0,0,0\n": ["b", "a", "d", "c"],
    "a;b;c;d\n0;1;0;0\n0;0;1;0\n0;0;0;1\n0;0;0;0\n": ["a", "b", "c", "d"],
    "nan 1 0 0\n0 nan 1 0\n0 0 nan 1\n0 0 0 nan\n": range(4),
    "node\t7\t8\t9\t10\n7\t\t1\t\t\n8\t\t\t1\t\n9\t\t\t\t1\n10\t\t\t\t\n": ["7", "8", "9", "10"],
}


def test_a_matrix_is_read_with_names_of_any_kind_in_the_first_line_alone_or_twice(tmp_path):
    folders = number_folders(tmp_path)

    def check(case):
        text, names = case
        got = read_files(write_files(next(folders), matrix_csv=text))
        assert (got.first.num_nodes, got.edges()) == (len(names), PATH)

    check_each(check, MATRICES.items())
    # Three rows of three numbers are edges with weights if a diagonal cell is not 0.
    listed = write_files(next(folders), list_csv="a,b,c\n1,2,3\n2,3,4\n3,4,5\n")
    assert read_files(listed).edges() == PATH


@pytest.mark.parametrize("text", ["A,B\nA,C\nB,C\n", "A,B,C\nC,A,B\nB,C,A\n", "A B\nB A\nA B\n"])
def test_options_that_name_the_ends_show_that_the_first_line_has_names(tmp_path, text):
    folder = write_files(tmp_path / "t", list_txt=text)
    got = read_files(folder, source="A", target="B")
    assert got.first.num_edges == 2


def test_other_json_next_to_tables_is_ignored_unless_it_has_lists(tmp_path):
    """BIDS puts ``participants.json`` next to ``participants.tsv``."""
    folder = write_files(
        tmp_path / "own",
        edges_csv="source,target\na,b\nb,c\n",
        about_json='{"age": {"Units": "years"}}',
    )
    assert read_files(folder).first.num_edges == 2
    write_files(folder, features_json='{"a": [1, 3], "b": [0]}')
    with pytest.raises(DamagedInput, match=r"features\.json is JSON with a list for each name"):
        read_files(folder)
