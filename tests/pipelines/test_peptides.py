"""Peptides: equal to PyG's class on the same raw files, the published totals, every bad file an error."""

from __future__ import annotations

import gzip
import os
import pickle
import shutil

import numpy as np
import pytest
import torch
from ogb.utils import smiles2graph
from support.cli import kmip
from support.same import assert_same
from support.shared import shared_data
from support.small_graphs import (
    FUNC_LISTS,
    FUNC_TABLE,
    prepare,
    pyg_peptides,
    real_rows,
    records_of_folder,
    write_func,
)
from torch_geometric.loader import DataLoader

from kmip_data import GraphLoader, PeptidesFunc, PeptidesStruct
from kmip_data.builds.home import Home
from kmip_data.errors import DamagedInput
from kmip_data.format.writer import Skipped
from kmip_data.manifest import load_manifest
from kmip_data.pipelines.base import load_pipeline
from kmip_data.pipelines.build import build_dataset
from kmip_data.pipelines.peptides import LABELS, TARGETS

POSITIVES = [1378, 545, 995, 969, 9745, 3077, 1662, 2866, 299, 4044]  # datasets.md 3.9
BAD = {"smiles": "CN(C)(C)(C)C", "labels": "[0, 0, 0, 0, 1, 0, 0, 0, 0, 0]"}


@pytest.fixture(scope="module")
def rows():
    return real_rows(every=150)


@pytest.fixture(scope="module")
def raw(rows, tmp_path_factory):
    return write_func(tmp_path_factory.mktemp("func"), rows)


@pytest.fixture(scope="module")
def struct(tmp_path_factory):
    folder = tmp_path_factory.mktemp("struct")
    load_pipeline(load_manifest("peptides-struct")).sample(folder, limit=40)
    return folder


def test_items_equal_pyg(raw, rows, tmp_path):
    """From the raw files through the shards to ``Data``, against PyG's class: bits, dtypes and shapes."""
    graphs = []
    for row in rows:
        graph = smiles2graph(row["smiles"])
        graphs.append(
            (
                torch.from_numpy(graph["node_feat"]),
                torch.from_numpy(graph["edge_feat"]),
                torch.from_numpy(graph["edge_index"]),
                torch.tensor([eval(row["labels"])], dtype=torch.float32),
            )
        )
    lists = pickle.loads((raw / FUNC_LISTS).read_bytes())
    for part in ("train", "val", "test"):
        ours = PeptidesFunc(home=tmp_path / "home", split=part, archives=[raw], jobs=1, quiet=True)
        theirs = pyg_peptides(tmp_path / "pyg", graphs, lists, part)
        assert len(ours) == len(theirs) == len(lists[part])
        for item, data in zip(ours, theirs, strict=True):
            assert_same(item, data)
        assert (ours.num_classes, ours.num_node_features, ours.num_edge_features) == (10, 9, 3)
        assert ours.class_names == list(LABELS)
        assert_same(next(iter(GraphLoader(ours, 7))), next(iter(DataLoader(theirs, 7))))


def test_records_fit_the_schema_and_are_narrow(raw, tmp_path):
    pipeline, records = records_of_folder("peptides-func", raw, tmp_path)
    schema = pipeline.schema(pipeline.Params())
    assert [record.key for record in records] == [f"{i:06d}" for i in range(len(records))]
    for record in records:
        assert {name: array.dtype.name for name, array in record.columns.items()} == {
            column.key: column.stored for column in schema.columns
        }
    assert {column.stored for column in schema.columns} == {"uint8"}
    assert schema.index_dtype == "uint16"


@pytest.mark.torture  # 15,535 molecules
def test_the_published_set_is_complete(tmp_path):
    archive = shared_data("peptides_func")
    build = build_dataset("peptides-func", home=Home(tmp_path), archives=[archive], quiet=True)
    assert build.card.complete
    assert build.card.counts == {"graphs": 15_535, "nodes": 2_344_859, "edges": 4_773_974}
    assert build.card.statistics["classes"]["total"] == POSITIVES
    assert {
        name: (part.graphs, part.nodes, part.edges)
        for name, part in build.card.splits["upstream"].parts.items()
    } == {
        "train": (10_873, 1_647_684, 3_354_790),
        "val": (2_331, 348_441, 709_242),
        "test": (2_331, 348_734, 709_942),
    }
    lists = pickle.loads((archive / FUNC_LISTS).read_bytes())
    for part, wanted in lists.items():
        dataset = PeptidesFunc(build.path, split=part)
        assert dataset.keys == [f"{row:06d}" for row in wanted.tolist()]
    sizes = PeptidesFunc(build.path, split=None).nodes
    assert (sizes.min(), sizes.max()) == (8, 444)


# --- peptides-struct -----------------------------------------------------------------------------


def struct_targets(folder, part=None):
    table = load_pipeline(load_manifest("peptides-struct"))
    with gzip.open(folder / table.table, "rt") as file:
        names, *lines = (line.rstrip("\n").split(",") for line in file)
    values = np.array([[float(line[names.index(name)]) for name in TARGETS] for line in lines])
    lists = pickle.loads((folder / table.lists["upstream"]).read_bytes())
    return values, lists


def test_struct_targets_as_published(struct, tmp_path):
    values, lists = struct_targets(struct)
    dataset = PeptidesStruct(home=tmp_path, archives=[struct], split="val", jobs=1, quiet=True)
    assert dataset[0].y.shape == (1, 11)
    found = torch.cat([item.y for item in dataset])
    assert torch.equal(found, torch.from_numpy(values[lists["val"]].astype(np.float32)))
    assert dataset.num_classes == 11
    assert "target_scaling" not in dataset.card.statistics


def test_struct_scaling_uses_train_rows_alone(struct, tmp_path):
    values, lists = struct_targets(struct)
    train = values[lists["train"]]
    mean, deviation = train.mean(axis=0), train.std(axis=0, ddof=1)
    kwargs = {"home": tmp_path, "archives": [struct], "target_scaling": "train", "jobs": 1, "quiet": True}
    for part, chosen in lists.items():
        dataset = PeptidesStruct(split=part, **kwargs)
        found = torch.cat([item.y for item in dataset]).numpy()
        assert np.allclose(found, (values[chosen] - mean) / deviation, atol=1e-6)
    facts = dataset.card.statistics["target_scaling"]
    assert facts["targets"] == list(TARGETS)
    assert np.allclose(facts["mean"], mean)
    assert np.allclose(facts["deviation"], deviation)
    # Another val or test row changes nothing in the train targets: they do not leak.
    changed = tmp_path / "changed"
    shutil.copytree(struct, changed)
    table = changed / load_pipeline(load_manifest("peptides-struct")).table
    lines = gzip.decompress(table.read_bytes()).decode().split("\n")
    row = int(lists["test"][0]) + 1
    lines[row] = ",".join([*lines[row].split(",")[:3], *["9.5"] * 11])
    table.write_bytes(gzip.compress("\n".join(lines).encode()))
    one = PeptidesStruct(split="train", **kwargs)
    other = PeptidesStruct(split="train", **{**kwargs, "archives": [changed]})
    assert one.card.key != other.card.key
    assert torch.equal(torch.cat([item.y for item in one]), torch.cat([item.y for item in other]))


def test_struct_must_be_standardised_where_it_is_complete(struct, tmp_path):
    pipeline = load_pipeline(load_manifest("peptides-struct"))
    expected = pipeline.manifest.expected.model_copy(update={"graphs": 40})
    pipeline.manifest = pipeline.manifest.model_copy(update={"expected": expected})
    values, lists = struct_targets(struct)
    pipeline.finish_targets(values, lists, pipeline.Params())
    with pytest.raises(DamagedInput, match="not standardised"):
        pipeline.finish_targets(values * 3 + 1, lists, pipeline.Params())
    raw_scaled, _ = pipeline.finish_targets(values * 3 + 1, lists, pipeline.Params(target_scaling="train"))
    scaled, _ = pipeline.finish_targets(values, lists, pipeline.Params(target_scaling="train"))
    assert np.allclose(raw_scaled, scaled, atol=1e-6)


# --- SMILES that RDKit refuses -------------------------------------------------------------------


def test_a_refused_smiles_stops_the_build_and_is_named(rows, tmp_path):
    raw = write_func(tmp_path / "raw", [*rows[:6], BAD, *rows[6:9]])
    outcome = kmip("build", "peptides-func", "--archive", raw, "--home", tmp_path / "home", "--jobs", 1)
    assert outcome.code == 4
    assert "000006" in outcome.err
    assert "CN(C)(C)(C)C" in outcome.err
    assert "--set on_error=skip" in outcome.err
    assert not list((tmp_path / "home" / "built").glob("*/card.json"))


def test_refused_smiles_can_be_skipped_and_are_listed(rows, tmp_path):
    raw = write_func(tmp_path / "raw", [*rows[:6], BAD, {**BAD, "smiles": "C("}, *rows[6:9]])
    _, records = records_of_folder("peptides-func", raw, tmp_path / "work", on_error="skip")
    assert [record.key for record in records if isinstance(record, Skipped)] == ["000006", "000007"]
    dataset = PeptidesFunc(home=tmp_path, split=None, archives=[raw], on_error="skip", jobs=1, quiet=True)
    assert len(dataset) == 9
    assert "000006" not in dataset.keys
    skipped = dataset.card.statistics["skipped"]
    assert [key for key, _ in skipped] == ["000006", "000007"]
    assert "valence" in skipped[0][1]
    assert any("Skipped 2 records" in note and "C(" in note for note in dataset.card.notes)
    parts = dataset.card.splits["upstream"].parts
    assert sum(part.graphs for part in parts.values()) == 9
    assert kmip("verify", dataset.build.path).code == 0


# --- damaged and hostile files -------------------------------------------------------------------


@pytest.mark.parametrize(
    "labels",
    [
        "",
        "[0, 1]",
        "[0, 0, 1, 0, 0, 0, 0, 0, 0, 2]",
        "0, 0, 1, 0, 0, 0, 0, 0, 0, 1",
        "__import__('os')",
        "[0]*10",
    ],
)
def test_labels_must_be_a_list_of_ten(rows, tmp_path, labels):
    raw = write_func(tmp_path / "raw", [rows[0], {**rows[1], "labels": labels}, *rows[2:6]])
    with pytest.raises(DamagedInput, match="row 1: not a list of ten labels"):
        prepare("peptides-func", raw, tmp_path / "work")


@pytest.mark.parametrize(
    ("lists", "fault"),
    [
        ({"train": [0, 1], "val": [2], "test": [3]}, "2 rows in no part, such as 4"),
        ({"train": [0, 1, 2, 3], "val": [3], "test": [4, 5]}, "1 rows listed more than once, such as 3"),
        ({"train": [0, 1, 2, 3], "val": [4], "test": [5, 6]}, "1 numbers out of range, such as 6"),
        ({"train": [0, 1, 2, 3], "val": [4], "test": [-1, 5]}, "out of range"),
        ({"train": [0, 1, 2], "valid": [3, 4], "test": [5]}, "not a split into train, val, test"),
        ({"train": [0.5, 1, 2], "val": [3, 4], "test": [5]}, "train is not a list of row numbers"),
        ({"train": [[0], [1, 2]], "val": [3, 4], "test": [5]}, "not a list"),
        ([0, 1, 2, 3, 4, 5], "not a split"),
    ],
)
def test_lists_must_partition_the_rows(rows, tmp_path, lists, fault):
    raw = write_func(tmp_path / "raw", rows[:6], lists)
    with pytest.raises(DamagedInput) as caught:
        prepare("peptides-func", raw, tmp_path / "work")
    assert fault in str(caught.value)


class _Call:
    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


def test_refused_files_leave_nothing(rows, tmp_path):
    raw = write_func(tmp_path / "raw", rows[:6])
    lists = {"train": np.arange(6), "val": [], "test": _Call(f"touch {tmp_path / 'executed'}")}
    (raw / FUNC_LISTS).write_bytes(pickle.dumps(lists))
    outcome = kmip("build", "peptides-func", "--archive", raw, "--home", tmp_path / "home", "--jobs", 1)
    assert outcome.code == 4
    assert "was not run" in outcome.err
    assert "next:" in outcome.err
    assert not (tmp_path / "executed").exists()
    assert not list((tmp_path / "home").glob("built/*"))
    assert not list((tmp_path / "home").glob("raw/*/members-*"))


@pytest.mark.parametrize(("file", "keep"), [(FUNC_TABLE, 200), (FUNC_TABLE, -4), (FUNC_LISTS, 100)])
def test_cut_files_are_named(rows, tmp_path, file, keep):
    raw = write_func(tmp_path / "raw", rows[:6])
    (raw / file).write_bytes((raw / file).read_bytes()[:keep])
    with pytest.raises(DamagedInput, match=file):
        prepare("peptides-func", raw, tmp_path / "work")


def test_names_of_builds():
    for name, parameters, parts in (
        ("peptides-func", {"on_error": "skip"}, ["skip"]),
        ("peptides-struct", {}, []),
        ("peptides-struct", {"target_scaling": "train", "on_error": "skip"}, ["train-scaled", "skip"]),
    ):
        pipeline = load_pipeline(load_manifest(name))
        assert pipeline.name_parts(pipeline.Params(**parameters)) == parts
