"""Roles of tables and columns from their values: whatever the names, the same graph."""

from __future__ import annotations

import json

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from support.cases import check_each
from support.own_graphs import (
    build_in_memory,
    number_folders,
    parse_remedy,
    read_files,
    write_files,
)
from support.raises import raises

from kmip_data.errors import DamagedInput, OpenQuestions, Setting, UsageError
from kmip_data.format.schema import NODE_ID

_LETTERS = [*"bcdfghjklmnpqrstvwxz"]


def random_names(rng, count):
    """Draw names that mean nothing."""
    names = {"".join(rng.choice(_LETTERS, 5)) for _ in range(3 * count)}
    return sorted(names)[:count]


def test_the_graph_of_a_row_is_named_by_the_column_of_the_same_name(tmp_path):
    """Not by the index that pandas writes, nor by an end; labels as texts differ in each graph."""
    rng = np.random.default_rng(1)
    for first, index in ((1, False), (0, True)):
        order = rng.permutation(40)
        nodes = pd.DataFrame(
            {"mol": np.repeat(range(first, first + 40), 4), "no": [*range(4)] * 40}
        )
        nodes["name"] = [f"n{number}" for number in nodes["no"]]
        nodes["kind"] = rng.choice([*"abc"], len(nodes))
        edges = nodes[nodes["no"] > 0].assign(hub=(nodes["no"] - 1) // 2)[["mol", "no", "hub"]]
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


def csv(header=True, sep=",", **columns):
    """Return the text of a table."""
    return pd.DataFrame(columns).to_csv(index=False, header=header, sep=sep)


def read_answered(folder, **params):
    """Return what files have once each question is answered as proposed, and the answers."""
    answers = {}
    for _ in range(3):
        try:
            return read_files(folder, **params, **answers), answers
        except OpenQuestions as error:
            answers |= parse_remedy(error)
    raise AssertionError("questions without end")


def named_edges(got):
    """Return the edges by the ids of their ends, as texts."""
    ids = got.first.columns.get(NODE_ID, np.arange(got.first.num_nodes))
    if ids.ndim == 2:
        ids = [bytes(row).rstrip(b"\0").decode() for row in ids]
    return [(str(ids[source]), str(ids[target])) for source, target in got.first.edge_index.T]


@pytest.mark.parametrize("given", [{}, {"source": "user", "target": "film"}])
@pytest.mark.parametrize("letters", ["", "uf"], ids=["numbers", "texts"])
def test_edges_between_two_tables_are_read_once_their_ids_differ_and_one_has_all(
    tmp_path, letters, given
):
    """User 1 is not film 1."""
    first, second = letters or ("", "")
    count = 12 if second else 8
    users = [f"{first}{n}" for n in range(1, 9)]
    films = [f"{second}{n}" for n in range(1, count + 1)]
    stars = {"user": users * 3, "film": films * (24 // count), "stars": [5, 4, 3] * 8}
    tables = {
        "users_csv": csv(user=users, age=range(20, 28)),
        "films_csv": csv(film=films, kind=[*"ab"] * (count // 2)),
    }
    write_files(tmp_path / "t", stars_csv=csv(**stars), **tables)
    with raises(DamagedInput, naming=["user", "film", "users.csv, films.csv"]):
        read_files(tmp_path / "t", label=("kind",), **given)
    stars |= {name: [name + text for text in stars[name]] for name in ("user", "film")}
    ids = [f"user{text}" for text in users] + [f"film{text}" for text in films]
    nodes = csv(id=ids, kind=[""] * 8 + [*"ab"] * (count // 2))
    write_files(tmp_path / "joined", stars_csv=csv(**stars), nodes_csv=nodes)
    got = read_files(tmp_path / "joined", label=("kind",))
    assert named_edges(got) == [*zip(stars["user"], stars["film"], strict=True)]


@pytest.mark.parametrize("first", [0, 70], ids=["row numbers", "other numbers"])
def test_tables_with_the_same_ids_are_one_table_of_nodes(tmp_path, first):
    """Features and labels, with and without names, are in orders of their own."""
    rng = np.random.default_rng(3)
    ids = rng.permutation(30) + first
    ends = rng.choice(ids, (90, 2))
    mass = np.arange(30) + 0.5
    order = rng.permutation(30)
    kinds = np.array([*"abc"] * 10)[order]
    folder = write_files(
        tmp_path / "names",
        features_csv=csv(header=False, i=ids, m=mass),
        kinds_csv=csv(key=ids[order], kind=kinds),
        pairs_csv=csv(key1=ends[:, 0], key2=ends[:, 1]),
    )
    got = read_files(folder, label=("kind",))
    rows = (got.first.columns["node/x"][:, 0] - 0.5).astype(int)
    assert (got.first.columns["node/y"] == rows % 3).all()
    assert ids[rows][got.first.edge_index].T.tolist() == ends.tolist()

    folder = write_files(
        tmp_path / "no names",
        kinds_csv=csv(header=False, i=ids[order], kind=kinds),
        pairs_csv=csv(header=False, a=ends[:, 0], b=ends[:, 1], time=range(900, 990)),
    )
    got = read_files(folder, label=("1",))
    assert (got.first.columns["node/y"] == order % 3).all()
    assert ids[order][got.first.edge_index].T.tolist() == ends.tolist()


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("ends", [("from store", "to store"), ("store_a", "store_b")])
def test_numbers_of_the_rows_are_ids_and_names_alike_are_ends(tmp_path, ends, first):
    """Other small numbers cover the ids as well, and each end is different in all rows."""
    rows = np.arange(30)
    nodes = csv(store=rows + first, size=[*"ab"] * 15, staff=2 + rows * 7 % 27)
    edges = csv(**{ends[0]: rows + first, ends[1]: (rows * 7 + 3) % 30 + first})
    got = read_files(write_files(tmp_path / "t", stores_csv=nodes, transfers_csv=edges))
    assert got.edges() == {(row, (row * 7 + 3) % 30) for row in range(30)}
    assert got.schema.column("node/x").fields == ("size=a", "size=b", "staff")


#: Tables -> edges by the ids of their ends, and the answers to what is asked.
ONE_GRAPH = {
    "third column of ids": (
        {
            "x_csv": csv(no=range(30), mass=np.arange(30) + 0.5),
            "y_csv": csv(a1=range(29), b1=range(1, 30), lanes=[1, 2, 3] * 9 + [1, 2]),
        },
        {(f"{row}", f"{row + 1}") for row in range(29)},
        {"source": "a1", "target": "b1"},
    ),
    "texts alone": ("person,friend,since\nann,bob,3\nbob,cem,4\n", {("ann", "bob"), ("bob", "cem")}, {}),
    "numbers alone": ("weight,node a,node b\n.5,3,4\n.25,4,5\n", {("3", "4"), ("4", "5")}, {}),
    "first line": (
        "line,caller,called\nL1,ann,bob\nL2,bob,ann\n",
        {("ann", "bob"), ("bob", "ann")},
        {"header": "yes"},
    ),
    "parts": (
        {"p_csv": "u,v\na,b\nb,c\n", "q_csv": "u,v\nc,a\n"},
        {("a", "b"), ("b", "c"), ("c", "a")},
        {"graph": "none"},
    ),
    "parts without names": (
        {f"{n:02d}_edges": f"# net\n{n} {n + 1}\n1 {n}\n" for n in range(1, 4)},
        {("1", "2"), ("2", "3"), ("3", "4"), ("1", "1"), ("1", "3")},
        {"graph": "none"},
    ),
    "parts and nodes": (
        {"n_csv": "name,mass\na,.5\nb,.25\nc,1\n", "p_csv": "u,v\na,b\n", "q_csv": "u,v\nb,c\n"},
        {("a", "b"), ("b", "c")},
        {},
    ),
    "accents and blanks": (
        {"x_csv": "who,mass\n\u00c91,1.5\n b ,2.5\n", "y_csv": "one,two,size\nE\u03011,b,.5\nb,E\u03011,.25\n"},
        {("\u00c91", "b"), ("b", "\u00c91")},
        {},
    ),
    "references": (
        {
            "fahrten_csv": csv(von=range(12), nach=np.roll(range(12), 5), strecke=np.arange(12) / 4),
            "orte_csv": csv(mass=range(12), farbe=[*range(4)] * 3, form=[*range(3)] * 4),
            "ziele_csv": csv(nummer=range(4), name=[*"abcd"]),
        },
        {(f"{row}", f"{(row - 5) % 12}") for row in range(12)},
        {"node": "none", "source": "von", "target": "nach"},
    ),
    "many rows of a node": (
        {
            "buses_csv": csv(name=[f"B{n}" for n in range(12)], mass=np.arange(12) / 4),
            "generators_csv": csv(name=[*"abcdefgh"], bus=[f"B{n % 5}" for n in range(8)]),
            "lines_csv": csv(bus0=[f"B{n}" for n in range(11)], bus1=[f"B{n + 1}" for n in range(11)]),
        },
        {(f"B{n}", f"B{n + 1}") for n in range(11)},
        {},
    ),
    "zeros lost": (
        {
            "x_csv": "key,mass\n" + "".join(f"{7 * n:05d},{n}.5\n" for n in range(9)),
            "y_csv": "u,v\n" + "".join(f"{7 * n},{7 * n + 7}\n" for n in range(8)),
        },
        {(f"{7 * n:05d}", f"{7 * n + 7:05d}") for n in range(8)},
        {},
    ),
}  # fmt: skip


def test_tables_of_one_graph_are_read_as_they_are_or_as_answered(tmp_path):
    folders = number_folders(tmp_path)

    def check(case):
        files, edges, answers = ONE_GRAPH[case]
        files = {"t_csv": files} if isinstance(files, str) else files
        got, given = read_answered(write_files(next(folders), **files))
        assert len(got.records) == 1
        assert ({*named_edges(got)}, given) == (edges, answers)
        assert got.first.columns.keys() & {"node/x"} == (
            {"node/x"} if "mass" in f"{files}" else set()
        )

    check_each(check, ONE_GRAPH)


_RATINGS = {"stars": [5, 4, 1] * 3, "film": range(9)}
#: Tables without edges, of users and films, of two relations, with a note that is none, and with an id in
#: other letters. No step merges users and films.
REFUSED = [
    {"t_csv": "town,year,size\nUlm,1999,5\nBonn,2000,6\n"},
    {"t_csv": "user,film,stars\n1,2,5\n2,1,4\n"},
    {"users_csv": csv(id=range(9)), "r_csv": csv(user=[1, 2, 3] * 3, **_RATINGS)},
    {"f_csv": csv(film=range(9)), "r_csv": csv(userId=[1, 2, 3] * 3, **_RATINGS)},
    {"p_csv": csv(id=range(9)), "r_csv": csv(userId=[1, 2, 3] * 3, filmId=range(9))},
    {
        "a_csv": csv(source=[*"abcd"], target=[*"bcda"], since=range(4)),
        "b_csv": csv(source=[*"abca"], target=[*"ccab"], mins=range(4)),
    },
    {
        "a_csv": csv(person=[*"abcd"], friend=[*"bcda"]),
        "b_csv": csv(sender=[*"abca"], receiver=[*"ccab"], mins=range(4)),
    },
    {"n_csv": csv(id=[*"ABCDEFGHIJ"], m=range(10)), "e_csv": csv(u=[*"aBCDE"] * 5, v=[*"FGHIJ"] * 5)},
]  # fmt: skip


@pytest.mark.parametrize("files", REFUSED)
def test_tables_of_no_graph_are_refused(tmp_path, files):
    with pytest.raises(DamagedInput) as caught:
        read_files(write_files(tmp_path / "t", **files))
    assert "source=" not in " ".join(map(str, caught.value.steps))


@pytest.mark.parametrize("names", ["{}", "{}.csv", "files/{}.csv"])
@pytest.mark.parametrize("file", ["{:02d}", "p{}"])
@pytest.mark.parametrize("header", ["", "u,v\n"])
def test_a_table_with_the_names_of_files_has_their_labels(tmp_path, names, file, header):
    """Numbers of files may be ids of nodes, too, and files may be equal."""
    stems = sorted(file.format(number) for number in range(14))
    for number, stem in enumerate(stems):
        edges = f"{header}{number // 2 % 3} 1\n1 6\n".replace(" ", "," if header else " ")
        write_files(tmp_path / "t" / "files", **{f"{stem}_csv": edges})
    rows = [f"{names.format(stem)}\t{'xy'[n % 2]}" for n, stem in enumerate(stems)]
    folder = write_files(tmp_path / "t", list_csv="\n".join(["net\tkind", *rows[::-1]]))
    got = read_files(folder, label=("kind",))
    assert [int(record.columns["graph/y"]) for record in got.records] == [1, 0] * 7
    assert all(record.num_edges == 2 for record in got.records)
    (folder / "list.csv").unlink()
    assert [record.key for record in read_files(folder, graph="file").records] == stems


@pytest.mark.parametrize("trial", range(2))
def test_a_first_line_of_texts_is_data_if_it_has_ids_as_the_lines_below(tmp_path, trial):
    """Notes of one line are no table, also if the first line of all tables is said to have names."""
    rng = np.random.default_rng(trial)
    ids = random_names(rng, 12)
    nodes = csv(header=False, key=ids, size=np.arange(12) / 4)
    ends = {tuple(rng.choice(ids, 2, replace=False)) for _ in range(20)}
    edges = pd.DataFrame(sorted(ends)).to_csv(index=False, header=False)
    tables = {"p_csv": f"key,size\n{nodes}", "README_txt": "nodes and edges, by us\n"}
    for first_line, options in (("", {}), ("Citing paper,Cited paper\n", {"header": "yes"})):
        folder = write_files(tmp_path / f"t{len(first_line)}", q_csv=first_line + edges, **tables)
        for option in ({}, options):
            got = read_files(folder, **option)
            assert (got.first.num_nodes, got.first.num_edges) == (12, len(ends))
            assert [line.partition(":")[0] for line in got.files["ignored"]] == ["README.txt"]

    # The root of a tree is the only node without a parent, and is no name.
    tree = "".join(f"{child},{ids[row // 2]}\n" for row, child in enumerate(ids[1:]))
    titles = "".join(f"{name},title {row}\n" for row, name in enumerate(ids))
    got = read_files(write_files(tmp_path / "tree", q_csv=f"source,target\n{tree}", p_csv=titles))
    assert (got.first.num_nodes, got.first.num_edges) == (12, 11)


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
        with raises(DamagedInput, naming=["list.csv", "program, kind"]):
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
    """No column that has another meaning is offered instead."""
    dots = {f"app_{number}_dot": "digraph { a [label=L]; b [label=R]; a -> b; }" for number in "12"}
    graphs = write_files(tmp_path / "g", list_csv="who,kind\nX1,x\nX2,y\n", **dots)
    with raises(DamagedInput, naming=["list.csv", "who, kind"]):
        read_files(graphs, label=("kind",))
    edges = {"e_csv": "graph,source,target,weight\n1,a,b,1\n1,b,c,2\n2,a,b,1\n"}
    for folder in (graphs, write_files(tmp_path / "e", **edges)):
        with raises(UsageError, naming="colour") as refused:
            read_files(folder, label=("colour",))
        assert not [step for step in refused.value.steps if isinstance(step, Setting)]


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
        with raises(DamagedInput, naming=["splits.json", "1 of 1", "app_77"]):
            build_in_memory(folder)
        write_files(folder, splits_json=json.dumps({**parts, "rest": names[8:]}))
        with raises(DamagedInput, naming=["splits.json", "rest"]):
            build_in_memory(folder)
        return
    write_files(folder, train_txt=lists["train_txt"] + "\napp_77\n")
    with raises(DamagedInput, naming=["train.txt", "1 of 5", "app_77"]):
        build_in_memory(folder)
    write_files(folder, train_txt=lists["train_txt"] + "\napp_007\n")
    with raises(DamagedInput, naming=["train.txt", "app_007"]):
        build_in_memory(folder)


def test_lists_name_whole_numbers_in_any_notation(tmp_path):
    nodes = "id,mass\n" + "".join(f"{7 * n}.0,{n}.5\n" for n in range(6))
    edges = "source,target\n" + "".join(f"{7 * n},{7 * n + 7}\n" for n in range(5))
    lists = {"train_txt": "0\n7.0\n14\n", "val_txt": "21.0\n", "test_txt": "28\n35.0\n"}
    folder = write_files(tmp_path / "t", nodes_csv=nodes, edges_csv=edges, **lists)
    params, _ = build_in_memory(folder)
    assert params.masks.tolist() == [0, 0, 0, 1, 2, 2]
    write_files(folder, val_txt="21.0\n14.0\n")
    with raises(DamagedInput, naming=["val.txt", 14]):
        build_in_memory(folder)
    write_files(folder, edges_csv="source,target\nv1,v2\nv2,v3\n", nodes_csv="id\nv1\nv2\nv3\n")
    write_files(folder, train_txt="v1.0\n", val_txt="v2\n", test_txt="v3\n")
    with raises(DamagedInput, naming=["train.txt", "1 of 1", "v1.0"]):
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
