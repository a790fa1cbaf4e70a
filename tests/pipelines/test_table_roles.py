"""Roles of tables and columns from their values: whatever the names, the same graph."""

from __future__ import annotations

import io
import itertools
import json
from collections import Counter

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from support.cases import check_each, steps_of
from support.own_graphs import (
    build_in_memory,
    number_folders,
    parse_remedy,
    read_files,
    write_files,
)

from kmip_data.errors import DamagedInput, UsageError
from kmip_data.format.schema import NODE_ID

_LETTERS = [*"bcdfghjklmnpqrstvwxz"]


def random_names(rng, count):
    """Draw names that mean nothing."""
    names = {"".join(rng.choice(_LETTERS, 5)) for _ in range(3 * count)}
    return sorted(names)[:count]


def decimals(rng, rows):
    return rng.random(rows).round(3) + 0.0005


def write_tables(rng, folder, frames):
    """Write tables with random names of files, and columns and rows in random order."""
    for name, frame in zip(random_names(rng, len(frames)), frames, strict=True):
        shuffled = frame[list(rng.permutation(frame.columns))].sample(
            frac=1, random_state=int(rng.integers(99))
        )
        write_files(folder, **{f"{name}_csv": shuffled.to_csv(index=False)})
    return folder


def graph_of(got):
    """Return nodes by feature, and edges by the features of their ends."""
    edges = Counter()
    for record in got.records:
        mass = record.columns["node/x"][:, 0]
        edges.update(zip(*mass[record.edge_index].tolist(), strict=True))
    masses = [value for record in got.records for value in record.columns["node/x"][:, 0].tolist()]
    return Counter(masses), edges


@pytest.mark.parametrize("trial", range(12))
def test_names_of_files_and_columns_and_other_columns_make_no_difference(tmp_path, trial):
    """Ids of three kinds; lines have a number of their own, a decimal, a year and a small count."""
    rng = np.random.default_rng(trial)
    count = 120
    ids = [
        rng.permutation(count) + 7,
        np.array([f"town {number}" for number in range(count)], object),
        np.array([f"É{number:03d} " for number in range(count)], object),
    ][trial % 3]
    names = random_names(rng, 9)
    nodes = pd.DataFrame({names[0]: ids, names[1]: decimals(rng, count)})
    nodes[names[2]] = rng.integers(1_900, 2_000, count)
    ends = rng.integers(0, count, (300, 2))
    first, second = sorted(names[3:5])  # the earlier name, so that directions can be compared
    edges = pd.DataFrame({first: ids[ends[:, 0]], second: ids[ends[:, 1]]})
    edges[names[5]] = [f"L{number}" for number in range(len(edges))]
    edges[names[6]] = decimals(rng, len(edges))
    edges[names[7]] = rng.integers(1_990, 2_020, len(edges))
    named = write_files(
        tmp_path / "named",
        nodes_csv=nodes.rename(columns={names[0]: "id"}).to_csv(index=False),
        edges_csv=edges.rename(columns={first: "source", second: "target"}).to_csv(index=False),
    )
    order = write_tables(rng, tmp_path / "other", [nodes, edges])
    expected = graph_of(read_files(named, feature=(names[1],)))
    masses, pairs = graph_of(read_files(order, feature=(names[1],)))
    assert masses == expected[0]
    # Columns in another order swap source and target.
    swapped = Counter({pair[::-1]: number for pair, number in expected[1].items()})
    assert pairs in (expected[1], swapped)


@pytest.mark.parametrize("restart", [False, True], ids=["ids of all graphs", "ids of each graph"])
@pytest.mark.parametrize("trial", range(3))
def test_tables_of_several_graphs_need_no_names(tmp_path, trial, restart):
    """Three tables; ids may begin anew in each graph, and otherwise edges need no column of graphs."""
    rng = np.random.default_rng(trial)
    names = random_names(rng, 9)
    keys = [f"K{number}" for number in range(8)]
    node_rows, edge_rows = [], []
    for number, key in enumerate(keys):
        first = 0 if restart else 20 * number
        node_rows += [(key, first + node, first + node + 0.25) for node in range(9)]
        edge_rows += [(key, first + node, first + (node * 2 + 1) % 9) for node in range(9)]
    nodes = pd.DataFrame(node_rows, columns=names[:3])
    edges = pd.DataFrame(edge_rows, columns=names[3:6])
    if not restart:
        edges = edges.drop(columns=names[3])
    graphs = pd.DataFrame({names[6]: keys, names[7]: [number % 2 for number in range(8)]})
    folder = write_tables(rng, tmp_path / "t", [nodes, edges, graphs])
    got = read_files(folder, label=(names[7],))
    assert {record.key: int(record.columns["graph/y"]) for record in got.records} == {
        key: number % 2 for number, key in enumerate(keys)
    }
    assert all(record.num_nodes == 9 and record.num_edges == 9 for record in got.records)


def test_the_graph_of_a_row_is_named_by_the_column_with_most_rows_or_the_same_name(tmp_path):
    """Not by the index that pandas writes, nor by an end; labels as texts differ in each graph."""
    rng = np.random.default_rng(1)
    for first, index in ((1, False), (0, True)):
        order = rng.permutation(40)
        nodes = pd.DataFrame(
            {"mol": np.repeat(range(first, first + 40), 4), "no": [*range(4)] * 40}
        )
        nodes["name"] = [f"n{number}" for number in nodes["no"]]
        nodes["kind"] = rng.choice([*"abc"], len(nodes))
        edges = nodes[nodes["no"] > 0].assign(hub=0)[["mol", "no", "hub"]]
        edges = edges.set_axis(["mol", "atom1", "atom2"], axis=1)
        graphs = pd.DataFrame({"rank": range(40), "mol": order + first, "size": order / 4})
        if index:
            del graphs["rank"]
        folder = write_files(
            tmp_path / str(first),
            atoms_csv=nodes.to_csv(),
            bonds_csv=edges.to_csv(),
            molecules_csv=graphs.to_csv(index=index),
        )
        got = read_files(folder, label=("size",))
        sizes = {int(record.key): float(record.columns["graph/y"]) for record in got.records}
        assert sizes == {first + number: number / 4 for number in range(40)}
        assert got.schema.column("node/x").fields == ("kind=a", "kind=b", "kind=c")
        assert any(line.startswith("name: names") for line in got.files["ignored"])
    # A column of an end is no column of graphs.
    folder = write_files(
        tmp_path / "r",
        films_csv="film,genre\nf1,a\nf2,b\n",
        stars_csv="user,film,stars\nu1,f1,2\nu2,f1,4\nu2,f2,3\n",
    )
    with pytest.raises(UsageError, match="no column 'genre'"):
        read_files(folder, source="user", target="film", label=("genre",))


@pytest.mark.parametrize("given", [{}, {"source": "user", "target": "film"}])
@pytest.mark.parametrize("letters", [("", ""), ("u", "f")], ids=["numbers", "texts"])
def test_edges_between_rows_of_two_tables_join_different_nodes(
    tmp_path, monkeypatch, letters, given
):
    """User 1 is not film 1; the printed lines write both into one table."""
    first, second = letters
    users = pd.DataFrame({"user": [f"{first}{n}" for n in range(1, 9)], "age": range(20, 28)})
    count = 12 if second else 8
    films = pd.DataFrame({"film": [f"{second}{n}" for n in range(1, count + 1)]})
    films["kind"] = [*"ab"] * (count // 2)
    stars = pd.DataFrame({"user": [*users["user"]] * 3})
    stars["film"] = [*films["film"]] * (24 // count)
    stars["stars"] = [5, 4, 3] * 8
    tables = {"users_csv": users, "films_csv": films, "stars_csv": stars}
    folder = write_files(
        tmp_path / "t", **{name: table.to_csv(index=False) for name, table in tables.items()}
    )
    with pytest.raises(DamagedInput, match="joins two kinds of nodes") as caught:
        read_files(folder, label=("kind",), **given)
    monkeypatch.chdir(folder)
    exec(steps_of(caught.value).partition("in Python: ")[2], {})
    got = read_files(folder / "joined", label=("kind",))
    assert (got.first.num_nodes, got.first.num_edges) == (8 + count, 24)
    ids = [bytes(row).rstrip(b"\0").decode()[1:] for row in got.first.columns[NODE_ID]]
    ends = [(ids[source], ids[target]) for source, target in got.first.edge_index.T.tolist()]
    assert ends == [*stars[["user", "film"]].itertuples(index=False, name=None)]


@pytest.mark.parametrize("first", [0, 70], ids=["row numbers", "other numbers"])
def test_ids_and_labels_without_names_belong_to_edges_without_names(tmp_path, first):
    rng = np.random.default_rng(2)
    ids = rng.permutation(30) + first if first else np.arange(30)
    ends = rng.choice(ids[:28], (90, 2))
    labels = pd.DataFrame({"id": ids, "label": rng.integers(0, 3, 30) + 1})
    files = {"mail_txt": pd.DataFrame(ends).assign(time=range(900, 990)), "dep_txt": labels}
    tables = {name: table.to_csv(index=False, header=False) for name, table in files.items()}
    got = read_files(write_files(tmp_path / "t", **tables), label=("1",))
    assert (got.first.num_nodes, got.first.num_edges) == (30, 90)
    assert got.first.columns["node/y"].tolist() == (labels["label"] - 1).tolist()
    assert ids[got.first.edge_index].T.tolist() == ends.tolist()
    assert "node/x" not in got.first.columns


@pytest.mark.parametrize("first", [0, 70], ids=["row numbers", "other numbers"])
def test_tables_with_the_same_ids_are_one_table_of_nodes(tmp_path, first):
    """Features and labels are often in two files, in orders of their own."""
    rng = np.random.default_rng(3)
    ids = rng.permutation(30) + first
    ends = rng.choice(ids, (90, 2))
    mass = np.arange(30) + 0.5
    features = pd.DataFrame({"0": ids, "1": mass, "2": mass[::-1]})
    labels = pd.DataFrame({"key": ids, "kind": [*"abc"] * 10}).sample(frac=1, random_state=1)
    folder = write_files(
        tmp_path / "t",
        features_csv=features.to_csv(index=False, header=False),
        kinds_csv=labels.to_csv(index=False),
        pairs_csv=pd.DataFrame(ends, columns=["key1", "key2"]).to_csv(index=False),
    )
    parameters = {"label": ("kind",)}
    if not first:  # the ids may also be the numbers of the rows
        with pytest.raises(DamagedInput, match="numbers of the rows from 0") as caught:
            read_files(folder, **parameters)
        parameters |= parse_remedy(caught.value)
    got = read_files(folder, **parameters)
    x = got.first.columns["node/x"]
    assert sorted(x[:, 0]) == [*mass]
    rows = (x[:, 0] - 0.5).astype(int)
    assert (x[:, 1] == mass[::-1][rows]).all()
    assert (got.first.columns["node/y"] == rows % 3).all()
    assert ids[rows][got.first.edge_index].T.tolist() == ends.tolist()
    assert any("one table of nodes" in line for line in got.files["warnings"])


def test_a_column_that_may_be_an_end_as_well_is_asked_about_with_counts(tmp_path):
    nodes = pd.DataFrame({"no": range(30), "mass": np.arange(30) + 0.5})
    edges = pd.DataFrame({"a1": range(29), "b1": range(1, 30), "lanes": [1, 2, 3] * 9 + [1, 2]})
    folder = write_files(
        tmp_path / "t", x_csv=nodes.to_csv(index=False), y_csv=edges.to_csv(index=False)
    )
    with pytest.raises(DamagedInput, match=r"'lanes' has 3 ids, in 29 of 29 rows") as caught:
        read_files(folder)
    assert parse_remedy(caught.value) == {"source": "a1", "target": "b1"}
    got = read_files(folder, **parse_remedy(caught.value))
    assert got.edges() == {(node, node + 1) for node in range(29)}


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("ends", [("from store", "to store"), ("store_a", "store_b")])
def test_numbers_of_the_rows_are_ids_and_names_alike_are_ends(tmp_path, ends, first):
    """Other small numbers cover the ids as well, and each end is different in all rows."""
    rows = np.arange(30)
    nodes = pd.DataFrame({"store": rows + first, "size": [*"ab"] * 15, "staff": 2 + rows * 7 % 27})
    edges = pd.DataFrame({ends[0]: rows + first, ends[1]: (rows * 7 + 3) % 30 + first})
    tables = {"stores_csv": nodes, "transfers_csv": edges}
    folder = write_files(
        tmp_path / "t", **{name: table.to_csv(index=False) for name, table in tables.items()}
    )
    got = read_files(folder)
    assert got.edges() == {(row, (row * 7 + 3) % 30) for row in range(30)}
    assert got.schema.column("node/x").fields == ("size=a", "size=b", "staff")


#: First lines of the nodes and of the edges -> what the error says.
LINES_TO_CORRECT = {
    (",m", "S1,S2"): "nodes.csv, line 2: 'id' is empty",
    ("S9,1", "s2,S3"): "'s2' here is 'S2' in 'nodes.csv'",
}


@pytest.mark.parametrize("lines", LINES_TO_CORRECT)
def test_a_line_of_units_and_an_id_in_other_letters_are_named(tmp_path, lines):
    first_node, first_edge = lines
    nodes = f"id,height\n{first_node}\n" + "".join(f"S{n},{n}\n" for n in range(9))
    edges = f"from,to\n{first_edge}\n" + "".join(f"S{n % 9},S{n % 7}\n" for n in range(30))
    folder = write_files(tmp_path / "t", nodes_csv=nodes, links_csv=edges)
    with pytest.raises(DamagedInput) as caught:
        read_files(folder)
    assert LINES_TO_CORRECT[lines] in f"{caught.value.message} {steps_of(caught.value)}"


#: Table of edges alone -> its edges by position of the ids, or what is asked.
ALONE = {
    "person,friend,since\nann,bob,3\nbob,cem,4\ncem,ann,5\n": {(0, 1), (1, 2), (2, 0)},
    "weight,node a,node b\n.5,3,4\n.25,4,5\n": {(0, 1), (1, 2)},
    "user,film,stars\n1,2,5\n2,1,4\n": "source='user', target='film'",
    "line,caller,called\nL1,ann,bob\nL2,bob,ann\n": "source='caller', target='called'",
    "town,year,size\nUlm,1999,5\nBonn,2000,6\n": "source=",
}


def test_a_table_of_edges_alone_has_its_ends_in_the_first_columns_that_share_values(tmp_path):
    folders = number_folders(tmp_path)

    def check(case):
        text, expected = case
        folder = write_files(next(folders), t_csv=text)
        if isinstance(expected, set):
            assert read_files(folder).edges() == expected
            return
        with pytest.raises(DamagedInput) as caught:
            read_files(folder)
        assert expected in steps_of(caught.value)

    check_each(check, ALONE.items())


def test_files_with_one_header_are_one_table(tmp_path):
    """Next to a table of nodes they are one graph; alone, they are parts of one or a graph each."""
    edges = pd.DataFrame({"u": list("abcd"), "v": list("bcda")})
    parts = {f"p{row}_csv": edges[row : row + 2].to_csv(index=False) for row in (0, 2)}
    nodes = "name,mass\n" + "".join(f"{name},{row}.5\n" for row, name in enumerate("abcd"))
    got = read_files(write_files(tmp_path / "nodes", n_csv=nodes, **parts))
    assert got.edges() == {(0, 1), (1, 2), (2, 3), (3, 0)}
    alone = write_files(tmp_path / "alone", **parts)
    with pytest.raises(DamagedInput, match="parts of one graph or a graph each") as caught:
        read_files(alone)
    assert read_files(alone, **parse_remedy(caught.value)).edges() == got.edges()
    apart = read_files(alone, graph="file")
    assert [(record.key, record.num_nodes) for record in apart.records] == [("p0", 3), ("p2", 3)]
    # A table with the names of the files has their labels.
    labels = "sample,kind\np2.csv,y\np0.csv,x\n"
    got = read_files(
        write_files(tmp_path / "labels", all_tsv=labels.replace(",", "\t"), **parts),
        label=("kind",),
    )
    assert {record.key: int(record.columns["graph/y"]) for record in got.records} == {
        "p0.csv": 0,
        "p2.csv": 1,
    }
    # So has one with what stands before the first _ of their names, as in neuroimaging.
    scans = {f"sub-{row}_rest_csv": parts[f"p{row}_csv"] for row in (0, 2)}
    people = labels.replace(".csv", "").replace("p", "sub-").replace(",", "\t")
    folder = write_files(tmp_path / "people", participants_tsv=people, **scans)
    got = read_files(folder, label=("kind",))
    assert [int(record.columns["graph/y"]) for record in got.records] == [1, 0]


@pytest.mark.parametrize("trial", range(2))
def test_a_first_line_of_texts_is_data_if_it_has_ids_as_the_lines_below(tmp_path, trial):
    """Notes of one line are no table, also if the first line of all tables is said to have names."""
    rng = np.random.default_rng(trial)
    ids = random_names(rng, 12)
    nodes = "".join(f"{name},{row / 4}\n" for row, name in enumerate(ids))
    ends = {tuple(rng.choice(ids, 2, replace=False)) for _ in range(20)}
    edges = "".join(f"{source},{target}\n" for source, target in sorted(ends))
    note = "nodes and edges, by us\n"
    tables = {"p_csv": f"key,size\n{nodes}", "README_txt": note, "NOTES_txt": f"{note}a,b,c,d\n"}
    for first_line in ("", "Citing paper,Cited paper\n"):
        folder = write_files(tmp_path / f"t{len(first_line)}", q_csv=first_line + edges, **tables)
        for option in ({}, {"header": "yes"}) if first_line else ({},):
            got = read_files(folder, **option)
            assert (got.first.num_nodes, got.first.num_edges) == (12, len(ends))
            assert {*got.files["ignored"]} == {
                "README.txt: no table: it has one line",
                "NOTES.txt: no table: NOTES.txt, line 2: 4 fields, and 2 in the first line.",
            }

    # The root of a tree is the only node without a parent, and is no name.
    tree = "".join(f"{child},{ids[row // 2]}\n" for row, child in enumerate(ids[1:]))
    titles = "".join(f"{name},title {row}\n" for row, name in enumerate(ids))
    folder = write_files(tmp_path / "tree", q_csv=f"source,target\n{tree}", p_csv=titles)
    with pytest.raises(DamagedInput, match=r"p.csv, line 1 may be names of columns or data"):
        read_files(folder)


@pytest.mark.parametrize("name", ["n{:02d}_txt", "{:02d}_edges"])
def test_files_of_edges_without_names_are_graphs_or_asked_about(tmp_path, name):
    """Also those that begin with 0 1, equal ones, and those whose number is the id of a node."""
    ends = [(number % 3, 1 + number % 5) for number in range(12)]
    files = {
        name.format(number): f"# net\n{source} {target}\n{target} 6\n6 {source}\n"
        for number, (source, target) in enumerate(ends)
    }
    files |= {name.format(12): "1 2\n2 3\n", name.format(13): "1 2\n2 3\n"}
    stems = [file.rpartition("_")[0] for file in files]
    rows = [f"{stem},{'xy'[n % 2]}" for n, stem in enumerate(stems)]
    labels = "\n".join(["net,kind", *rows])
    folder = write_files(tmp_path / "labels", list_csv=labels, **files)
    got = read_files(folder, label=("kind",))
    assert [int(record.columns["graph/y"]) for record in got.records] == [0, 1] * 7
    assert [record.num_edges for record in got.records] == [3] * 12 + [2] * 2
    assert got.files["direction"] == "from '0' to '1', by position; to swap: source=1, target=0"

    del files[name.format(13)]
    folder = write_files(tmp_path / "alone", **files)
    with pytest.raises(DamagedInput, match="parts of one graph or a graph each") as caught:
        read_files(folder)
    assert len(read_files(folder, **parse_remedy(caught.value)).records) == 1
    assert len(read_files(folder, graph="file").records) == 13


def test_ids_are_compared_in_one_normal_form(tmp_path):
    """Outer blanks, and letters with their accents apart."""
    for number, (written, other) in enumerate(itertools.permutations(["É", "E\u0301"])):
        nodes = f"who,mass\n{written}1,1.5\n b ,2.5\n"
        edges = f"one,two,size\n{other}1,b,.5\nb,{other}1,.25\n"
        got = read_files(write_files(tmp_path / f"{number}", x_csv=nodes, y_csv=edges))
        assert got.edges() == {(0, 1), (1, 0)}


@pytest.mark.parametrize("files", ["one file", "files of one graph", "files that are graphs"])
@pytest.mark.parametrize("form", ["{:08d}", "{:02d}", "{:.0f}.0", "{}", "+{}", "A{:03d}"])
def test_ids_are_found_and_stored_as_they_are_written(tmp_path, form, files):
    """Codes such as 007 are texts and A007 too; their texts neither are features nor are asked about."""
    numbers = [7, 99, *range(100, 140)]
    ids = [form.format(number) for number in numbers]
    nodes = "Account,Balance,Flagged\n" + "".join(
        f"{key},{row}.5,{'NY'[row % 2]}\n" for row, key in enumerate(ids)
    )
    rows = [f"{first},{ids[row - 2]},{row}.25\n" for row, first in enumerate(ids)]
    halves = [rows] if files == "one file" else [rows[:20], rows[20:]]
    tables = {f"m{number:02d}_csv": "u,v,w\n" + "".join(half) for number, half in enumerate(halves)}
    folder = write_files(tmp_path / "t", **tables)
    if files == "files that are graphs":
        sets = [{*" ".join(half).replace(",", " ").split()} for half in halves]
        keys = [f"m{number:02d}" for number, ends in enumerate(sets) for key in ids if key in ends]
        rows = [key for ends in sets for key in ids if key in ends]
        lines = "".join(f"{g};{key};{key[-1:]}.5\n" for g, key in zip(keys, rows, strict=True))
        write_files(folder, p_tsv="period;Account;Balance\n" + lines)
        write_files(folder, q_tsv="name\tclass\nm00\ta\nm01\tb\n")
        got = read_files(folder, label=("class",))
        assert [record.num_edges for record in got.records] == [20, 22]
        return
    got = read_files(write_files(folder, a_csv=nodes), label=("Flagged",))
    assert got.edges() == {(row, (row - 2) % 42) for row in range(42)}
    stored = got.first.columns[NODE_ID]
    if stored.ndim == 2:  # UTF-8
        stored = [bytes(row).rstrip(b"\0").decode() for row in stored]
    is_number = form in {"{}", "{:.0f}.0", "+{}"}
    assert [*stored] == (numbers if is_number else ids)
    assert not [line for line in got.files["ignored"] if "Account" in line]


@pytest.mark.parametrize("forms", [("{:05d}", "{}"), ("{}", "{:05d}")], ids=["nodes", "edges"])
def test_ids_that_lost_their_zeros_are_compared_as_numbers(tmp_path, forms):
    """A spreadsheet takes them; it is said, unless two ids are the same number."""
    of_nodes, of_edges = forms
    rows = [(of_nodes.format(7 * row), f"{row}.5") for row in range(1, 41)]
    ends = [of_edges.format(7 * row) for row in range(1, 41)]
    edges = "u,v\n" + "".join(f"{ends[row]},{ends[row - 1]}\n" for row in range(40))
    nodes = "key,mass\n" + "".join(f"{','.join(row)}\n" for row in rows)
    folder = write_files(tmp_path / "t", a_csv=nodes, b_csv=edges)
    got = read_files(folder)
    assert got.edges() == {(row, (row - 1) % 40) for row in range(40)}
    assert [line for line in got.files["warnings"] if "they differ by zeros before them" in line]
    if of_nodes == "{:05d}":
        write_files(folder, a_csv=nodes + "7,1.5\n")
        assert [line for line in read_files(folder).files["ignored"] if line.startswith("a.csv")]


def workbook_of(columns):
    """Return a workbook with one sheet."""
    file = io.BytesIO()
    pd.DataFrame(columns).to_excel(file, index=False)
    return file.getvalue()


def write_graph_files(folder, count, suffix="dot"):
    """Write graphs with 3 to 3 + count nodes into a folder of their own."""
    for number in range(count):
        text = f"digraph {{ {' '.join(f'{n} -> {n + 1};' for n in range(2 + number))} }}"
        if suffix == "json":
            text = json.dumps(nx.node_link_data(nx.path_graph(3 + number), edges="links"))
        write_files(folder / "nets", **{f"app_{number:03d}_{suffix}": text})


@pytest.mark.parametrize(
    "key", ["app_{:03d}", "app_{:03d}.dot", "nets/app_{:03d}.dot", "app_{:03d}.json"]
)
def test_a_table_next_to_graph_files_has_their_labels(tmp_path, key):
    """Its rows are in another order, and one has no file; one row less than files is an error."""
    suffix = "json" if key.endswith("json") else "dot"
    write_graph_files(tmp_path / "t", 6, suffix)
    rows = [f"{key.format(number)},{'xyz'[number % 3]},{number}.5" for number in (3, 1, 5, 0, 2, 4)]
    table = ["program,kind,size", *rows, f"{key.format(99)},x,1.5"]
    table += [f"{key.format(100 + number)},x,0.5" for number in range(20)] + [",z,7.5"]
    write_files(tmp_path / "t", list_csv="\n".join(table))
    names = sorted(str(file.relative_to(tmp_path / "t")) for file in (tmp_path / "t").rglob("*.*"))
    params, records = build_in_memory(tmp_path / "t", *names, label=("kind",))
    assert params.inferred.class_names == ("x", "y", "z")
    found = {record.num_nodes: int(record.columns["graph/y"]) for record in records}
    assert found == {number + 3: number % 3 for number in range(6)}
    (line,) = (line for line in params.inferred.summary["ignored"] if "rows of list.csv" in line)
    assert line.startswith("rows of list.csv: 22 without a row in ")

    # Its other columns are features of graphs if asked, and those of nodes keep their default.
    _, records = build_in_memory(tmp_path / "t", *names, label=("kind",), feature=("size",))
    found = {record.num_nodes: record.columns["graph/graph_attr"].tolist() for record in records}
    assert found == {number + 3: [number + 0.5] for number in range(6)}

    write_graph_files(tmp_path / "t", 25, suffix)
    rows = [f"{key.format(number)},{'xyz'[number % 3]}" for number in range(24)]
    write_files(tmp_path / "t", list_csv="\n".join(["program,kind", *rows]))
    names = sorted(str(file.relative_to(tmp_path / "t")) for file in (tmp_path / "t").rglob("*.*"))
    params, records = build_in_memory(tmp_path / "t", *names, label=("kind",))
    labels = sorted(int(record.columns["graph/y"]) for record in records)
    assert labels == sorted([-1] + [number % 3 for number in range(24)])
    (line,) = (line for line in params.inferred.summary["ignored"] if "in list.csv" in line)
    assert "graphs: 1 without a row in list.csv, such as " in line
    assert "024" in line

    # Half of the files, or two rows of one file.
    for listed in (rows[:12], [*rows, f"{key.format(24)},z", f"{key.format(4)},z"]):
        write_files(tmp_path / "t", list_csv="\n".join(["program,kind", *listed]))
        with pytest.raises(DamagedInput, match=r"list.csv has the column 'kind', but no column"):
            build_in_memory(tmp_path / "t", *names, label=("kind",))


LABELS_OF_APPS = [(f"app_{number:03d}", "xy"[number % 2]) for number in range(6)]
#: Tables of two columns that do not say whether their first line has names.
TABLES_OF_APPS = {
    "records": {
        "l_json": json.dumps([{"file": f"{name}.dot", "label": x} for name, x in LABELS_OF_APPS])
    },
    "names": {"l_tsv": "\n".join(map("\t".join, [("program", "label"), *LABELS_OF_APPS]))},
    "no names": {"l_txt": "\n".join(map("\t".join, LABELS_OF_APPS))},
}


@pytest.mark.parametrize("case", TABLES_OF_APPS)
def test_labels_next_to_graph_files_have_two_columns(tmp_path, case):
    write_graph_files(tmp_path, 6, "dot")
    write_files(tmp_path, notes_txt="about\nprograms\n", **TABLES_OF_APPS[case])
    names = [str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.*")]
    label = "1" if case == "no names" else "label"
    params, records = build_in_memory(tmp_path, *names, label=(label,))
    found = {record.num_nodes: int(record.columns["graph/y"]) for record in records}
    assert found == {number + 3: number % 2 for number in range(6)}
    assert [line for line in params.inferred.summary["ignored"] if line.startswith("notes.txt: ")]


def test_a_label_of_rows_that_name_no_graph_file_is_refused(tmp_path):
    dots = {f"app_{number}_dot": "digraph { a [label=L]; b [label=R]; a -> b; }" for number in "12"}
    write_files(tmp_path, list_csv="who,kind\nX1,x\nX2,y\n", **dots)
    with pytest.raises(DamagedInput, match=r"list.csv has the column 'kind', but no column"):
        read_files(tmp_path, label=("kind",))
    edges = write_files(
        tmp_path / "e", e_csv="graph,source,target,weight\n1,a,b,1\n1,b,c,2\n2,a,b,1\n"
    )
    for folder in (tmp_path, edges):
        with pytest.raises(UsageError, match="column 'colour'"):
            read_files(folder, label=("colour",))


@pytest.mark.parametrize("kind", ["nodes", "table of nodes", "graphs", "graph files", "JSON"])
def test_lists_of_ids_are_the_parts_of_a_split(tmp_path, kind):
    """Of nodes by id, of graphs by key or name of file; a line that is none of them is an error.

    One object has the lists next to graphs in JSON.
    """
    folder = tmp_path / "t"
    names = [f"app_{number:03d}" for number in range(9)]
    if kind in {"graph files", "JSON"}:
        write_graph_files(folder, 9, "json" if kind == "JSON" else "dot")
    elif kind == "graphs":
        rows = [f"{name},{number},{number + 1}" for number, name in enumerate(names)]
        write_files(folder, edges_csv="\n".join(["graph,source,target", *rows]))
    else:
        rows = [f"{name},{names[(n + 1) % 9]}" for n, name in enumerate(names)]
        write_files(folder, edges_csv="\n".join(["source,target", *rows]))
    if kind == "table of nodes":
        rows = [f"{name},{n / 4}" for n, name in enumerate(names[::-1])]
        write_files(folder, nodes_csv="\n".join(["id,age", *rows]))
    lists = {
        "train_txt": "\n".join(names[:4]),
        "valid_csv": "\n".join(["name", *names[4:6]]),
        "test_json": json.dumps(names[6:8]),
    }
    # Two names of one part are one list.
    parts = {"train": names[:4], "dev": names[4:5], "valid": names[5:6], "test": names[6:8]}
    if kind == "JSON":
        lists = {"splits_json": json.dumps(parts)}
    write_files(folder, **lists)
    params, records = build_in_memory(folder)
    if len(records) > 1:
        codes = {
            record.key.rpartition("/")[2]: int(record.columns["graph/split"]) for record in records
        }
    else:
        order = names[::-1] if kind == "table of nodes" else names
        codes = dict(zip(order, params.masks.tolist(), strict=True))
    assert [codes[name] for name in names] == [0] * 4 + [1] * 2 + [2] * 2 + [255]

    if kind == "JSON":
        write_files(folder, splits_json=json.dumps({**parts, "test": ["app_77"]}))
        with pytest.raises(DamagedInput, match=r"splits.json: 1 of 7 lines name no graph"):
            build_in_memory(folder)
        write_files(folder, splits_json=json.dumps({**parts, "rest": names[8:]}))
        with pytest.raises(
            DamagedInput, match=r"lists the part 'rest', .* none of train, val, test"
        ):
            build_in_memory(folder)
        return
    write_files(folder, train_txt=lists["train_txt"] + "\napp_77\n")
    noun = "node" if "nodes" in kind else "graph"
    with pytest.raises(DamagedInput, match=rf"train.txt: 1 of 5 lines name no {noun}.*'app_77'"):
        build_in_memory(folder)
    write_files(folder, train_txt=lists["train_txt"] + "\napp_007\n")
    with pytest.raises(DamagedInput, match="app_007 is in two lists"):
        build_in_memory(folder)


def test_lists_name_whole_numbers_in_any_notation(tmp_path):
    nodes = "id,mass\n" + "".join(f"{7 * n}.0,{n}.5\n" for n in range(6))
    edges = "source,target\n" + "".join(f"{7 * n},{7 * n + 7}\n" for n in range(5))
    lists = {"train_txt": "0\n7.0\n14\n", "val_txt": "21.0\n", "test_txt": "28\n35.0\n"}
    folder = write_files(tmp_path / "t", nodes_csv=nodes, edges_csv=edges, **lists)
    params, _ = build_in_memory(folder)
    assert params.masks.tolist() == [0, 0, 0, 1, 2, 2]
    write_files(folder, val_txt="21.0\n14.0\n")
    with pytest.raises(DamagedInput, match="14 is in two lists"):
        build_in_memory(folder)
    write_files(folder, edges_csv="source,target\nv1,v2\nv2,v3\n", nodes_csv="id\nv1\nv2\nv3\n")
    write_files(folder, train_txt="v1.0\n", val_txt="v2\n", test_txt="v3\n")
    with pytest.raises(DamagedInput, match=r"train.txt: 1 of 1 lines name no node.*'v1.0'"):
        build_in_memory(folder)


def test_a_legend_is_ignored_and_classes_are_named_by_an_option(tmp_path):
    nodes = "who,kind,mass\n" + "".join(f"p{row},{row % 3 + 1},{row}.5\n" for row in range(12))
    edges = "one,two,size\n" + "".join(f"p{row},p{row + 1},{row}.5\n" for row in range(11))
    folder = write_files(
        tmp_path / "t", n_csv=nodes, e_csv=edges, legend_txt="1 ant\n2 bird\n3 fish\n"
    )
    params, (record,) = build_in_memory(folder, label=("kind",), class_name=("ant", "bird", "fish"))
    assert params.inferred.class_names == ("ant", "bird", "fish")
    assert record.columns["node/y"].tolist() == [0, 1, 2] * 4
    (line,) = params.inferred.summary["ignored"]
    assert line.startswith("legend.txt")


def test_a_table_that_others_refer_to_has_no_ends(tmp_path):
    """Numbers in a table of nodes may be ids of a third table, too."""
    numbers = range(12)
    nodes = "ort,farbe,form\n" + "".join(f"{n},{n % 4},{n % 3}\n" for n in numbers)
    edges = "von,nach,strecke\n" + "".join(f"{n},{(n + 1) % 12},{n}.5\n" for n in numbers)
    other = "nummer,name\n" + "".join(f"{n},t{n}\n" for n in range(4))
    folder = write_files(tmp_path / "t", fahrten_csv=edges, orte_csv=nodes, ziele_csv=other)
    with pytest.raises(DamagedInput, match="may be two pairs") as caught:
        read_files(folder)
    assert (
        read_files(folder, **parse_remedy(caught.value)).files["direction"]
        == "from 'von' to 'nach'"
    )
