"""Tables of random graphs, in any order of rows and columns, are read as the graphs that wrote them."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cases import check_each

from kmip_data.errors import DamagedInput, OpenQuestions, joined_setting
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
    "floats": lambda n, rng: [f"{i}.0" for i in 11 + 3 * rng.permutation(n)],
}
ENDS = [("source", "target"), ("from", "to"), ("sender", "receiver"), ("stop 1", "stop 2")]
GRAPHS = ["one", "ids restart", "ids differ", "graph in nodes alone"]


def write_table(path: Path, columns: dict[str, Sequence[object]], rng: np.random.Generator) -> None:
    names = [*columns]
    first, second = ENDS[-1]  # whose order tells the direction
    rng.shuffle(names)
    if {first, second} <= {*names} and names.index(first) > names.index(second):
        swapped = {first: second, second: first}
        names = [swapped.get(name, name) for name in names]
    rows = rng.permutation(len(columns[names[0]]))
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(names)
        table.writerows([columns[name][row] for name in names] for row in rows)


def read_answering(folder: Path, **params: Any) -> list[GraphRecord]:
    """Read a folder, and answer each question as it proposes."""
    files = sorted(path.name for path in folder.iterdir())
    for _ in range(3):
        options = ReadOptions(GraphParams(**params))
        try:
            return [*read(folder, files, options, Findings())]
        except OpenQuestions as error:
            params |= joined_setting([*error.questions.values()]).values
    raise AssertionError("questions without end")


def write_set(folder: Path, seed: int) -> set[tuple[float, float]]:
    """Write a random set; return the weights of the nodes at each edge, which tell them."""
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
    source, target = ENDS[rng.integers(len(ENDS))]
    nodes = {"id": ids, "weight": weights}
    edges = {source: [ids[u] for u, _ in pairs], target: [ids[v] for _, v in pairs]}
    edges["length"] = rng.uniform(1, 9, len(pairs)).round(3)
    if kind != "one":
        names = [f"g{graph}" for graph in graphs]
        nodes["sample"] = names
        if kind != "graph in nodes alone":
            edges["sample"] = [names[u] for u, _ in pairs]
        distinct = [*dict.fromkeys(names)]
        write_table(folder / "samples.csv", {"sample": distinct, "kind": ["x", "y"] * 2}, rng)
    write_table(folder / "things.csv", nodes, rng)
    write_table(folder / "pairs.csv", edges, rng)
    return {(np.float32(weights[u]), np.float32(weights[v])) for u, v in pairs}


def test_random_sets_are_read_as_they_were_written(tmp_path):
    def check(seed: int) -> None:
        folder = tmp_path / str(seed)
        folder.mkdir()
        truth = write_set(folder, seed)
        records = read_answering(folder)
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
    with pytest.raises(DamagedInput, match="joins two kinds of nodes"):
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
    with pytest.raises(OpenQuestions, match="its rows from 0"):
        [*read(tmp_path, ["nodes.csv", "z.csv"], ReadOptions(GraphParams()), Findings())]
    (record,) = read_answering(tmp_path)
    assert record.columns["node/node_id"].tolist() == [*range(9)]
    (record,) = read_answering(tmp_path, node="none")
    assert record.columns["node/x"].shape == (9, 1)


def test_a_list_of_a_split_is_never_left_out(tmp_path):
    """Ids with blanks look like rows of several cells."""
    (tmp_path / "nodes.csv").write_text("id,age\n" + "".join(f"St {i},{i % 4}\n" for i in range(9)))
    (tmp_path / "z.csv").write_text("".join(f"St {i},St {(i + 1) % 9}\n" for i in range(9)))
    for part, ids in (("train", range(5)), ("val", (5, 6)), ("test", (7, 8))):
        (tmp_path / f"{part}.txt").write_text("".join(f"St {i}\n" for i in ids))
    with pytest.raises(DamagedInput, match="may list the ids of a split"):
        read_answering(tmp_path)


@pytest.mark.parametrize("names", [("graphs.csv", "edges.csv"), ("a.csv", "b.csv")])
@pytest.mark.parametrize("first", [0, 100])
def test_a_table_whose_key_groups_edges_has_graphs(tmp_path, names, first):
    """Numbers of nodes begin anew in each graph, and may be numbers of rows of any table."""
    graphs, edges = (tmp_path / name for name in names)
    graphs.write_text("mol,y\n" + "".join(f"{i + first},{i % 2}\n" for i in range(20)))
    rows = [f"{i + first},{a},{a + 1}\n" for i in range(20) for a in range(3)]
    edges.write_text("mol,u,v\n" + "".join(rows))
    records = [*read(tmp_path, names, ReadOptions(GraphParams()), Findings())]
    assert [record.num_nodes for record in records] == [4] * 20
    assert [int(record.columns["graph/y"][0]) for record in records] == [0, 1] * 10
