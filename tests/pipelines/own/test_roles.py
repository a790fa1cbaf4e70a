"""Tables of random graphs, in any order of rows and columns, are read as the graphs that wrote them."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cases import check_each
from support.raises import raises

from kmip_data.errors import DamagedInput, OpenQuestions, Setting, joined_setting
from kmip_data.format.graph_record import GraphRecord
from kmip_data.pipelines.datasets.graphs.findings import Findings
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.own.format import read

IDS = {
    "texts": lambda n, rng: [f"n{i}" for i in rng.permutation(n)],
    "from 0": lambda n, rng: [*map(str, range(n))],
    "gaps": lambda n, rng: [*map(str, 3 + 7 * rng.permutation(n))],
    "codes": lambda n, rng: [f"{i:05d}" for i in rng.permutation(n)],
    "short codes": lambda n, rng: [f"{i:02d}" for i in 95 + rng.permutation(n)],
    "floats": lambda n, rng: [f"{i}.0" for i in 11 + 3 * rng.permutation(n)],
    "signs": lambda n, rng: [f"+{i}" for i in 7 + 3 * rng.permutation(n)],
    "accents": lambda n, rng: [f"É{i:03d} " for i in rng.permutation(n)],
}
ENDS = [("source", "target"), ("from", "to"), ("sender", "receiver"), ("stop 1", "stop 2")]
GRAPHS = ["one", "ids restart", "ids differ", "graph in nodes alone", "files"]


class Names:
    """Names of files and columns, as they are or without a meaning."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self.have_meaning = rng.random() < 0.5

    def of(self, name: str) -> str:
        return name if self.have_meaning else "".join(self._rng.choice([*"bcdfghjklmnpq"], 6))


def write_table(
    path: Path,
    columns: dict[str, Sequence[object]],
    rng: np.random.Generator,
    ends: Sequence[str] = (),
) -> None:
    """Write a table in any order of its rows and columns, but for the ``ends`` of an edge."""
    names = [*columns]
    rng.shuffle(names)
    places = sorted(map(names.index, ends))
    for place, end in zip(places, ends, strict=True):
        names[place] = end
    rows = rng.permutation(len(columns[names[0]]))
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(names)
        table.writerows([columns[name][row] for name in names] for row in rows)


def read_answering(folder: Path, **params: Any) -> list[GraphRecord]:
    """Read a folder, and answer each question as it proposes."""
    files = sorted(path.name for path in folder.iterdir() if path.is_file())
    for _ in range(3):
        options = ReadOptions(GraphParams(**params))
        try:
            return [*read(folder, files, options, Findings())]
        except OpenQuestions as error:
            params |= joined_setting([*error.questions.values()]).values
    raise AssertionError("questions without end")


def write_set(folder: Path, seed: int) -> tuple[str, set[tuple[float, float]]]:
    """Write a random set; return the name of a weight of the nodes, and these at each edge.

    Nodes and edges have years, and edges a number of their own and a small count.
    """
    rng = np.random.default_rng(seed)
    kind = GRAPHS[seed % len(GRAPHS)]
    sizes = [30] if kind == "one" else [12, 15, 9, 20]
    make_ids = list(IDS.values())[seed // len(GRAPHS) % len(IDS)]
    if kind == "ids restart":
        ids = [i for size in sizes for i in make_ids(size, rng)]
    else:
        ids = make_ids(sum(sizes), rng)
    graphs = np.repeat(np.arange(len(sizes)), sizes)
    weights = rng.normal(size=len(ids)).round(4)
    starts = np.cumsum([0, *sizes])
    pairs = np.concatenate(
        [
            start + rng.integers(0, size, (4 * size, 2))
            for start, size in zip(starts, sizes, strict=False)
        ]
    )
    pairs = np.unique(pairs, axis=0)

    names = Names(rng)
    ends = [*map(names.of, ENDS[rng.integers(len(ENDS))])]
    weight = names.of("weight")
    nodes = {names.of("id"): ids, weight: weights}
    nodes[names.of("founded")] = rng.integers(1_900, 2_000, len(ids))
    edges = {end: [ids[node] for node in column] for end, column in zip(ends, pairs.T, strict=True)}
    edges[names.of("length")] = rng.uniform(1, 9, len(pairs)).round(3)
    edges[names.of("line")] = [f"L{row}" for row in range(len(pairs))]
    edges[names.of("opened")] = rng.integers(1_990, 2_020, len(pairs))
    graph_names = [f"g{graph}" for graph in graphs]
    if kind != "one":
        nodes[names.of("sample")] = graph_names
        distinct = [*dict.fromkeys(graph_names)]
        samples = {names.of("sample"): distinct, names.of("kind"): ["x", "y"] * 2}
        write_table(folder / f"{names.of('samples')}.csv", samples, rng)
    if kind in {"ids restart", "ids differ"}:
        edges[names.of("sample")] = [graph_names[u] for u, _ in pairs]
    write_table(folder / f"{names.of('things')}.csv", nodes, rng)
    if kind == "files":
        for graph in range(len(sizes)):
            rows = np.flatnonzero(graphs[pairs[:, 0]] == graph)
            part = {name: [column[row] for row in rows] for name, column in edges.items()}
            write_table(folder / f"g{graph}.csv", part, np.random.default_rng(seed), ends)
    else:
        write_table(folder / f"{names.of('pairs')}.csv", edges, rng, ends)
    return weight, {(np.float32(weights[u]), np.float32(weights[v])) for u, v in pairs}


def test_random_sets_are_read_as_they_were_written(tmp_path):
    def check(seed: int) -> None:
        folder = tmp_path / str(seed)
        folder.mkdir()
        weight, truth = write_set(folder, seed)
        records = read_answering(folder, feature=(weight,))
        assert len(records) == (1 if seed % len(GRAPHS) == 0 else 4)
        got = set()
        for record in records:
            x = record.columns["node/x"][:, 0]
            assert len(x) == record.num_nodes
            got |= {(x[u], x[v]) for u, v in record.edge_index.T}
        assert got == truth

    check_each(check, range(40))


def test_users_and_films_are_not_one_kind_of_nodes(tmp_path):
    rng = np.random.default_rng(0)
    write_table(tmp_path / "users.csv", {"user": range(1, 30), "age": range(20, 49)}, rng)
    write_table(tmp_path / "films.csv", {"film": range(1, 60), "length": range(90, 149)}, rng)
    rows = {"user": rng.integers(1, 30, 99), "film": rng.integers(1, 60, 99)}
    write_table(tmp_path / "ratings.csv", rows | {"stars": rng.integers(1, 6, 99)}, rng)
    with raises(DamagedInput, naming=["user", "film", "users.csv, films.csv"]):
        read_answering(tmp_path)


def test_edges_are_no_nodes_of_other_edges_and_fit_completely(tmp_path):
    """Two columns of the nodes lie in the names of the graphs, and two of each table in row numbers."""
    rng = np.random.default_rng(0)
    graphs = np.repeat(np.arange(6), 8)
    nodes = {"person": [f"n{i}" for i in range(48)], "zone": graphs % 2, "sample": graphs}
    u, v = rng.integers(0, 8, (2, 90)) + 8 * rng.integers(0, 6, 90)
    edges = {"von": [f"n{i}" for i in u], "nach": [f"n{i}" for i in v], "fid": range(90)}
    write_table(tmp_path / "nodes.csv", nodes, rng)
    write_table(tmp_path / "targets.csv", {"id": range(6), "field": [0.5, 2, 3, 4, 5, 6]}, rng)
    write_table(tmp_path / "z.csv", edges, rng)
    records = read_answering(tmp_path, label=["field"])
    assert [len(records), sum(record.edge_index.shape[1] for record in records)] == [6, 90]


def test_a_column_that_counts_rows_may_be_ids(tmp_path):
    (tmp_path / "nodes.csv").write_text("mass\n" + "".join(f"{i}\n" for i in range(9)))
    (tmp_path / "z.csv").write_text("a,b\n" + "".join(f"{i},{(i + 4) % 9}\n" for i in range(9)))
    with raises(OpenQuestions, naming="mass", steps=Setting(node="none")):
        [*read(tmp_path, ["nodes.csv", "z.csv"], ReadOptions(GraphParams()), Findings())]
    (record,) = read_answering(tmp_path)
    assert record.columns["node/x"].shape == (9, 1)
    (record,) = read_answering(tmp_path, node="mass")
    assert record.columns["node/node_id"].tolist() == [*range(9)]


def test_a_list_of_a_split_is_never_left_out(tmp_path):
    """Ids with blanks look like rows of several cells."""
    (tmp_path / "nodes.csv").write_text("id,age\n" + "".join(f"St {i},{i % 4}\n" for i in range(9)))
    (tmp_path / "z.csv").write_text("".join(f"St {i},St {(i + 1) % 9}\n" for i in range(9)))
    for part, ids in (("train", range(5)), ("val", (5, 6)), ("test", (7, 8))):
        (tmp_path / f"{part}.txt").write_text("".join(f"St {i}\n" for i in ids))
    with raises(DamagedInput, naming="test.txt, train.txt"):
        read_answering(tmp_path)


@pytest.mark.parametrize("names", [("graphs.csv", "edges.csv"), ("a.csv", "b.csv")])
@pytest.mark.parametrize("first", [0, 100])
def test_a_table_whose_key_groups_edges_has_graphs(tmp_path, names, first):
    """Numbers of nodes begin anew in each graph, and may be numbers of rows of any table."""
    graphs, edges = (tmp_path / name for name in names)
    graphs.write_text("mol,y\n" + "".join(f"{i + first},{i % 2}\n" for i in range(20)))
    rows = [f"{i + first},{a},{a + 1}\n" for i in range(20) for a in range(3)]
    edges.write_text("mol,u,v\n" + "".join(rows))
    records = read_answering(tmp_path)
    assert [record.num_nodes for record in records] == [4] * 20
    assert [int(record.columns["graph/y"][0]) for record in records] == [0, 1] * 10


def test_unknown_nodes_are_named(tmp_path):
    (tmp_path / "nodes.csv").write_text("age,person\n3,ann\n4,bob\n")
    (tmp_path / "z.csv").write_text("source,target\nann,bob\nbob,cem\n")
    with raises(DamagedInput, naming=["z.csv, line 3", "cem"]):
        read_answering(tmp_path)
    (record,) = read_answering(tmp_path, on_error="skip")
    assert record.edge_index.T.tolist() == [[0, 1]]
    (tmp_path / "nodes.csv").write_text("age,person\nyears,\n3,ann\n4,bob\n5,cem\n")
    with raises(DamagedInput, naming=["nodes.csv, line 2", "person"]):
        read_answering(tmp_path)
    (tmp_path / "nodes.csv").write_text("age,person\n3,ann\n4,bob\n5,cem\n,Source: office\n")
    with raises(DamagedInput, naming=["line 5", "Source: office"]):
        read_answering(tmp_path)
    (tmp_path / "nodes.csv").write_text("age,person\n3,ann\n4,bob\n,cem\n")
    (record,) = read_answering(tmp_path)  # an end of an edge is a node
    assert record.num_nodes == 3
