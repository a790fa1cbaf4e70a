"""Open Graph Benchmark: tables of numbers, edges made undirected, GraphGPS's parts; every bad line is named."""

from __future__ import annotations

import csv
import gzip
import pickle

import numpy as np
import pytest
import torch
from ogb.utils import smiles2graph
from support.builds.raw_graphs import refused_folder, write_sample
from support.cases import check_each
from support.raises import raises
from torch_geometric.utils import to_undirected

from kmip_data import OGBNArxiv, OGBNProducts, PCQM4Mv2, PCQM4Mv2Subset
from kmip_data.errors import DamagedInput
from kmip_data.pipelines.formats.numbers import NumberTable
from kmip_data.pipelines.sample_writers import write_torch_zip

QUIET = {"jobs": 1, "quiet": True}


def rows_of(path):
    """All rows of a table as text, by Python's own reader."""
    with gzip.open(path, "rt") as file:
        return list(csv.reader(file))


def write(path, text):
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    return write_sample("ogbg-molhiv", tmp_path_factory.mktemp("molecules"), limit=24, seed=3)


def test_reading_row_by_row_gives_equal_records(raw):
    """The tables by Python's csv reader, a number at a time."""
    for name, columns in (("node-feat", 9), ("edge-feat", 3), ("edge", 2)):
        path = raw / "raw" / f"{name}.csv.gz"
        slow = [[float(word) for word in row] for row in rows_of(path)]
        fast = np.concatenate(list(NumberTable(path, columns, 10**9).read_batches()))
        assert np.array_equal(fast, slow)


def test_numbers_are_parsed_to_the_nearest_float(tmp_path):
    """Numbers of every length and form, empty fields, both ends of lines and blocks of all sizes."""
    rng = np.random.default_rng(0)
    words = []
    for number in (rng.normal(size=3000) * 10.0 ** rng.integers(-30, 30, 3000)).tolist():
        words += [repr(number), f"{number:.3e}", f"{number:.6f}"[:30], str(int(number) % 10**6)]
    words += ["", "nan", "NaN", "-0.0", "0.1e+2", "5.", ".5", "1" * 25, "0." + "0" * 30 + "1"]
    words += ["1e-300", "123456789012345678", "0"]
    path = tmp_path / "a.csv.gz"
    wanted = np.array([float(word or "nan") for word in words])
    for columns, end in ((1, "\n"), (4, "\n"), (12, "\r\n")):
        lines = [",".join(words[i : i + columns]) for i in range(0, len(words), columns)]
        write(path, end.join(lines))
        most = np.inf
        table = NumberTable(
            path, columns, 10**9, low=-most, high=most, requires_integers=False, allows_missing=True
        )
        numbers = np.concatenate(list(table.read_batches())).ravel()
        assert numbers.view(np.int64).tolist() == wanted.view(np.int64).tolist()


def test_each_fault_names_its_file_and_line(tmp_path):
    path = tmp_path / "a.csv.gz"

    def check(case):
        text, columns, value = case
        write(path, text)
        with raises(DamagedInput, naming=value):
            list(NumberTable(path, columns, 3_000_000, low=0, high=100).read_batches())

    check_each(
        check,
        [
            ("1,2\n3\n", 2, "a.csv.gz, line 2"),
            ("1,2,3\n", 2, "line 1"),
            ("1\n\n2\n", 1, "line 2"),
            ("5\n6\n101\n", 1, "line 3"),
            ("5\n-1\n", 1, "line 2"),
            ("1.5\n", 1, "line 1"),
            *((f"7\n{word}\n", 1, "line 2") for word in ("x", "-", "1e", ".", "1_0", "inf", "0x1")),
            *((f"7\n{word}\n", 1, "line 2") for word in ("nan", "1 ", "1;2", "1e400", '"1"', "é")),
            ("", 1, "a.csv.gz"),
            ("9" * 1_100_000, 1, "line 1"),
            ("1\n" * 1_600_000, 1, 3_000_000),
        ],
    )


@pytest.mark.parametrize("made", [OGBNArxiv, OGBNProducts])
def test_edges_are_made_undirected_as_pyg_makes_them(made, tmp_path):
    options = {"root": tmp_path, "sample": True, "limit": 90, **QUIET}
    published = made(**options)[0]
    both = made(edges="undirected", **options)
    assert torch.equal(both[0].edge_index, to_undirected(published.edge_index))
    assert torch.equal(both[0].x, published.x)
    assert not both.schema.directed
    assert both.schema.y_column.num_classes == (40 if made is OGBNArxiv else 47)


def test_tables_of_two_graphs_are_refused(tmp_path):
    write_sample("ogbn-arxiv", tmp_path, limit=90, seed=3)
    for name in ("node", "edge"):
        path = tmp_path / f"raw/num-{name}-list.csv.gz"
        half = int(gzip.decompress(path.read_bytes())) // 2
        write(path, f"90\n{half}\n" if name == "node" else f"{half}\n{half}\n")
    refused_folder("ogbn-arxiv", tmp_path)


def change(text, line, new):
    lines = text.splitlines(keepends=True)
    lines[line - 1] = new
    return "".join(lines)


#: File, what becomes of its text, and what the one error names.
BAD = [
    ("raw/edge", lambda text: change(text, 2, "0,999\n"), "raw/edge.csv.gz, line 2"),
    ("raw/edge", lambda text: text + "0,1\n", "raw/edge.csv.gz"),
    ("raw/edge-feat", lambda text: change(text, 3, "5,0,0\n"), "raw/edge-feat.csv.gz, line 3"),
    ("raw/node-feat", lambda text: change(text, 4, "119" + 8 * ",0" + "\n"), "feat.csv.gz, line 4"),
    ("raw/graph-label", lambda text: text.replace("1", "2", 1), "raw/graph-label.csv.gz"),
    ("raw/num-node-list", lambda text: change(text, 5, "0\n"), "num-node-list.csv.gz, line 5"),
    ("raw/num-node-list", lambda text: text + "3\n", "num-edge-list.csv.gz"),
    ("split/scaffold/valid", lambda text: change(text, 1, "77\n"), "split/scaffold"),
]


def test_an_edge_ends_below_the_number_of_nodes(tmp_path):
    write_sample("ogbg-molhiv", tmp_path, limit=24, seed=3)
    with gzip.open(tmp_path / "raw/num-node-list.csv.gz", "rt") as file:
        nodes = int(file.readline())
    path = tmp_path / "raw/edge.csv.gz"
    write(path, change(gzip.decompress(path.read_bytes()).decode(), 2, f"0,{nodes}\n"))
    refused_folder("ogbg-molhiv", tmp_path, "line 2")


BAD_NODES = [
    ("raw/edge", lambda text: change(text, 2, "0,90\n"), "raw/edge.csv.gz, line 2"),
    ("raw/edge", lambda text: change(text, 2, ""), "raw/edge.csv.gz"),
    ("raw/node-label", lambda text: change(text, 7, "40\n"), "node-label.csv.gz, line 7"),
    ("raw/node-feat", lambda text: change(text, 3, "1,2\n"), "node-feat.csv.gz, line 3"),
    ("raw/node-feat", lambda text: text.replace("0.", "nan,", 1), "node-feat.csv.gz, line 1"),
    ("raw/node_year", lambda text: change(text, 1, "1990.5\n"), "node_year.csv.gz, line 1"),
    ("raw/num-node-list", lambda _: "45\n45\n", "num-node-list.csv.gz"),
    ("split/time/test", lambda text: change(text, 1, "0\n0\n"), "split/time"),
]


@pytest.mark.parametrize(("name", "cases"), [("ogbg-molhiv", BAD), ("ogbn-arxiv", BAD_NODES)])
def test_damaged_files_of_ogb_are_named(name, cases, tmp_path):
    write_sample(name, tmp_path, limit=24 if cases is BAD else 90, seed=3)

    def check(case):
        file, spoil, value = case
        path = tmp_path / f"{file}.csv.gz"
        sound = path.read_bytes()
        try:
            write(path, spoil(gzip.decompress(sound).decode()))
            refused_folder(name, tmp_path, value)
        finally:
            path.write_bytes(sound)

    check_each(check, cases)


# --- PCQM4Mv2 ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def smiles(tmp_path_factory):
    return write_sample("pcqm4mv2", tmp_path_factory.mktemp("pcqm4mv2"), limit=160, seed=1)


def graphgps_parts(lists, *, subset):
    """The parts of GraphGPS's loader with its numbers, of which a sample has as large a share."""
    train = np.random.default_rng(42).permutation(lists["train"])
    held = 150_000 * len(train) // 3_378_606
    val, train = train[:held], train[held:]
    if subset:
        train, val = train[: int(0.1 * len(train))], val[: -(-held // 3)]
    return {"train": train, "val": val, "test": lists["valid"]}


@pytest.mark.parametrize("made", [PCQM4Mv2, PCQM4Mv2Subset])
def test_challenge_molecules_equal_ogb(made, smiles, tmp_path):
    """Parts as in GraphGPS and in OGB; the subset has no other molecules."""
    with gzip.open(smiles / "raw/data.csv.gz", "rt") as file:
        table = list(csv.DictReader(file))
    lists = torch.load(smiles / "split_dict.pt", weights_only=False)
    subset = made is PCQM4Mv2Subset
    wanted = {"graphgps": graphgps_parts(lists, subset=subset)}
    if not subset:
        wanted["upstream"] = {
            part: lists[name]
            for part, name in (("train", "train"), ("val", "valid"), ("test", "test-dev"))
        }
    for rule, parts in wanted.items():
        for part, rows in parts.items():
            made_of = made(root=tmp_path, archives=[smiles], split_rule=rule, split=part, **QUIET)
            assert made_of.keys == [f"{row:06d}" for row in rows.tolist()]
            assert len(rows) > 0
            for item, row in zip(made_of, rows.tolist(), strict=True):
                assert len(item.x) == len(smiles2graph(table[row]["smiles"])["node_feat"])
    whole = made(root=tmp_path, archives=[smiles], split=None, **QUIET)
    assert len(whole) == (sum(map(len, wanted["graphgps"].values())) if subset else len(table))


def test_bad_challenge_files_are_refused(smiles):
    name = "pcqm4mv2"
    table, lists = smiles / "raw/data.csv.gz", smiles / "split_dict.pt"
    sound = {path: path.read_bytes() for path in (table, lists)}
    text = gzip.decompress(sound[table]).decode()
    parts = torch.load(lists, weights_only=False)
    train, hidden = parts["train"][0], parts["test-dev"][0]

    def check(case):
        path, data, *named = case
        path.write_bytes(data) if isinstance(data, bytes) else write_torch_zip(
            path, pickle.dumps(data, 2)
        )
        try:
            refused_folder(name, smiles, *named)
        finally:
            path.write_bytes(sound[path])

    def changed(line, new):
        return gzip.compress(change(text, line, new).encode())

    check_each(
        check,
        [
            (lists, {**parts, "valid": parts["valid"][1:]}, "split_dict.pt"),
            (lists, {"train": parts["train"]}),
            (table, changed(4, "2,CCO,x\n"), "raw/data.csv.gz, line 4"),
            (table, changed(4, "2,CCO\n"), "data.csv.gz, line 4"),
            (table, changed(int(train) + 2, "0,CCO,\n")),
            (table, changed(int(hidden) + 2, "0,C(,\n")),
        ],
    )
