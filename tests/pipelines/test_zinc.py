"""ZINC: pickles of any protocol and the mirror's rows give the same records; bad molecules are named."""

from __future__ import annotations

import json
import pickle
import shutil

import pytest
from support.builds.raw_graphs import prepare, records_of_folder, refused_folder, write_sample
from support.builds.records import assert_same_records
from support.cases import check_each
from torch_geometric import datasets

from kmip_data.format.split_files import PARTS
from kmip_data.pipelines.datasets.zinc import ATOM_TYPE, BOND_TYPE, TARGET

NAMES = ("zinc", "zinc-full")


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    return write_sample("zinc", tmp_path_factory.mktemp("raw"), limit=30)


@pytest.fixture
def copy(raw, tmp_path):
    return shutil.copytree(raw, tmp_path / "copy")


def load(path):
    return pickle.loads(path.read_bytes())


def dump(path, molecules, protocol=pickle.DEFAULT_PROTOCOL):
    path.write_bytes(pickle.dumps(molecules, protocol))


@pytest.mark.parametrize("protocol", [2, 3, 5])
def test_other_protocols_and_types_give_the_same_records(protocol, raw, copy, tmp_path):
    for part in PARTS:
        molecules = load(copy / f"{part}.pickle")
        for molecule in molecules[::2]:
            molecule[ATOM_TYPE] = molecule[ATOM_TYPE].long().view(-1, 1)
            molecule[BOND_TYPE] = molecule[BOND_TYPE].int()
            molecule[TARGET] = molecule[TARGET].double()
        dump(copy / f"{part}.pickle", molecules, protocol)
    assert_same_folders(raw, copy, tmp_path)


def assert_same_folders(raw, other, tmp_path):
    for name in NAMES:
        _, wanted = records_of_folder(name, raw, tmp_path / f"a-{name}")
        _, records = records_of_folder(name, other, tmp_path / f"b-{name}")
        assert_same_records(records, wanted)


def mirrored(raw, folder, suffix):
    """The hub's rows of the pickles, written from the items of PyG's class; and the index files."""
    folder.mkdir(parents=True)
    rows = {}
    for part in PARTS:
        shutil.copy(raw / f"{part}.index", folder)
        rows[part] = []
        for data in datasets.ZINC(folder.parent / "pyg", split=part):
            row = {"node_feat": data.x, "edge_index": data.edge_index, "y": data.y}
            row["edge_attr"] = data.edge_attr.view(-1, 1)
            lists = {name: values.tolist() for name, values in row.items()}
            rows[part].append({**lists, "num_nodes": data.num_nodes})
        path = folder / f"{part}{suffix}"
        if suffix == ".jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows[part]))
        else:
            pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
            from pyarrow import parquet

            parquet.write_table(pyarrow.Table.from_pylist(rows[part]), path)
    return rows["val"]


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_the_mirror_gives_the_records_of_the_pickles(suffix, raw, tmp_path):
    shutil.copytree(raw, tmp_path / "pyg/raw")
    mirrored(raw, tmp_path / "mirror", suffix)
    assert_same_folders(raw, tmp_path / "mirror", tmp_path)

    path = tmp_path / "mirror" / f"test{suffix}"
    whole = path.read_bytes()
    for spoilt in (whole.replace(b"node_feat", b"node_fea\xff"), whole[:-9]):
        path.write_bytes(spoilt)
        refused_folder("zinc-full", tmp_path / "mirror", f"test{suffix}")


def test_bad_rows_of_the_mirror_are_named(raw, tmp_path):
    shutil.copytree(raw, tmp_path / "pyg/raw")
    mirror = tmp_path / "mirror"
    good, bad, *_ = mirrored(raw, mirror, ".jsonl")
    first, second = bad["edge_index"]

    def check(case):
        change, *named = case
        row = change if isinstance(change, str) else json.dumps({**bad, **change})
        (mirror / "val.jsonl").write_text(f"{json.dumps(good)}\n{row}\n")
        refused_folder("zinc-full", mirror, "val.jsonl", *named)

    cases = [
        ("{", "line 2"),
        ("[" * 200_000, "line 2"),
        ("3",),
        ({"node_feat": [[1], [2, 3]], "num_nodes": 2},),
        ({"node_feat": None},),
        ({"node_feat": [[0]] * 4_000}, 4000),
        ({"edge_index": [first, second[1:]]},),
        ({"edge_index": [[*range(len(first))]]}, "int64"),
        ({"edge_index": [[99, *first[1:]], second]}, 99),
        ({"edge_index": [[*first[:-1], first[0]], [*second[:-1], second[0]]]},),
        ({"edge_attr": [0.5] * len(first)}, "edge_attr"),
        ({"edge_attr": [[9]] * len(first)}, "edge_attr"),
        ({"y": [float("nan")]}, "y"),
        ({"y": [1e300]}, "y"),
        ({"y": ["1"]}, "y"),
    ]
    check_each(check, cases)


FAULTS = [
    (ATOM_TYPE, lambda atoms: atoms + 28),
    (ATOM_TYPE, lambda atoms: atoms[1:]),
    (BOND_TYPE, lambda bonds: bonds * 4),
    (BOND_TYPE, lambda bonds: bonds.triu()),
    (BOND_TYPE, lambda bonds: bonds + (bonds == 1).triu()),
    (BOND_TYPE, lambda bonds: bonds[0]),
    (TARGET, lambda target: target.repeat(2)),
]


def test_bad_molecules_are_named(copy):
    molecules = load(copy / "val.pickle")

    def check(case):
        name, problem = case
        bad = {**molecules[1], name: problem(molecules[1][name])}
        dump(copy / "val.pickle", [molecules[0], bad])
        refused_folder("zinc-full", copy, "val.pickle, molecule 1")

    check_each(check, FAULTS)


def test_faulty_lists_of_molecules_are_named(copy, tmp_path):
    count = len(load(copy / "val.pickle"))
    for text, value in (
        ("0,1,x", "val.index, entry 3"),
        ("0,-1", "val.index, entry 2"),
        ("2,0,2", 2),
        (f"0,{count}", count),
        ("", "val.index"),
    ):
        (copy / "val.index").write_text(text, "ascii")
        refused_folder("zinc", copy, value)
    (copy / "val.index").write_text("0,1\n2", "ascii")
    assert prepare("zinc", copy, tmp_path / "work")[2].facts["sizes"]["val"] == 3


def test_a_pickle_of_something_else_is_refused(copy):
    molecule = load(copy / "test.pickle")[0]
    for content in ({"a": 1}, [molecule, 3]):
        dump(copy / "test.pickle", content)
        refused_folder("zinc-full", copy, "test.pickle")
