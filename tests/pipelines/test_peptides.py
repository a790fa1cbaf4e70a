"""Peptides: the published totals, targets as published or scaled, refused SMILES, bad labels and lists."""

from __future__ import annotations

import csv
import gzip
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from support.builds.raw_graphs import FUNC_TABLE, real_rows, refused_folder, write_sample
from support.cases import check_each
from support.cli import expect_refusal, kmip
from support.shared import shared_data

from kmip_data import PeptidesFunc, PeptidesStruct
from kmip_data.builds.home import Home
from kmip_data.manifest import load_manifest
from kmip_data.pipelines.base import load_pipeline
from kmip_data.pipelines.build import build_dataset
from kmip_data.pipelines.datasets.peptides import TARGETS

POSITIVES = [1378, 545, 995, 969, 9745, 3077, 1662, 2866, 299, 4044]  # datasets.md 3.9
FUNC_LISTS = "splits_random_stratified_peptide.pickle"
BAD = {"smiles": "CN(C)(C)(C)C", "labels": "[0, 0, 0, 0, 1, 0, 0, 0, 0, 0]"}


def write_func(folder: Path, rows, lists=None) -> Path:
    """Write a table and split lists, by default rows in turn."""
    folder.mkdir(parents=True, exist_ok=True)
    with gzip.open(folder / FUNC_TABLE, "wt", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["", "smiles", "peptide_seq", "labels", "identifier"])
        writer.writerows([i, row["smiles"], "", row["labels"], i] for i, row in enumerate(rows))
    if lists is None:
        lists = {
            part: np.arange(at, len(rows), 3) for at, part in enumerate(("train", "val", "test"))
        }
    (folder / FUNC_LISTS).write_bytes(pickle.dumps(lists, protocol=4))
    return folder


@pytest.fixture(scope="module")
def rows():
    return real_rows(every=150)


@pytest.fixture(scope="module")
def raw(rows, tmp_path_factory):
    return write_func(tmp_path_factory.mktemp("func"), rows)


@pytest.fixture(scope="module")
def struct(tmp_path_factory):
    return write_sample("peptides-struct", tmp_path_factory.mktemp("struct"), limit=40)


@pytest.mark.torture  # 15,535 molecules
def test_the_published_set_is_complete(tmp_path):
    archive = shared_data("peptides_func")
    build = build_dataset("peptides-func", home=Home(tmp_path), archives=[archive], quiet=True)
    assert build.card.complete
    assert build.card.counts == {"graphs": 15_535, "nodes": 2_344_859, "edges": 4_773_974}
    assert build.card.statistics["classes"]["total"] == POSITIVES
    parts = build.card.splits["upstream"].parts
    assert {name: (part.graphs, part.nodes, part.edges) for name, part in parts.items()} == {
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


def test_struct_can_be_built_from_the_func_table(raw, tmp_path):
    build = ["build", "peptides-struct", "--home", tmp_path / "home", "--unpinned", "--archive"]
    for archive in (raw, raw / FUNC_TABLE):
        message = expect_refusal(*build, archive, code=4)
        assert "peptides-func" in message


def test_struct_targets_are_as_published_or_scaled_by_train_rows_alone(struct, tmp_path):
    pipeline = load_pipeline(load_manifest("peptides-struct"))
    with gzip.open(struct / pipeline.table_file, "rt") as file:
        values = np.array([[float(row[name]) for name in TARGETS] for row in csv.DictReader(file)])
    lists = pickle.loads((struct / pipeline.split_files["upstream"]).read_bytes())
    train = values[lists["train"]]
    mean, deviation = train.mean(axis=0), train.std(axis=0, ddof=1)
    for scaling, expected in (("none", values), ("train", (values - mean) / deviation)):
        for part, chosen in lists.items():
            dataset = PeptidesStruct(
                root=tmp_path,
                split=part,
                archives=[struct],
                unpinned=True,
                target_scaling=scaling,
                jobs=1,
                quiet=True,
            )
            targets = torch.cat([item.y for item in dataset]).numpy()
            np.testing.assert_allclose(targets, expected[chosen].astype(np.float32), atol=1e-6)
    facts = dataset.card.statistics["target_scaling"]
    assert facts["targets"] == list(TARGETS)
    np.testing.assert_allclose([facts["mean"], facts["deviation"]], [mean, deviation])
    assert dataset.build.path.name.startswith("peptides-struct-train-scaled-")


# --- SMILES that RDKit refuses; damaged and hostile files ----------------------------------------


def test_refused_smiles_stop_a_build_or_are_skipped_and_listed(rows, tmp_path):
    raw = write_func(tmp_path / "raw", [*rows[:6], BAD, {**BAD, "smiles": "C("}, *rows[6:9]])
    build = ("build", "peptides-func", "--unpinned", "--archive", raw, "--jobs", 1)
    message = expect_refusal(*build, "--home", tmp_path / "home", code=4)
    for words in ("000006", "CN(C)(C)(C)C", "--set on_error=skip"):
        assert words in message
    assert not list((tmp_path / "home" / "built").glob("*/card.json"))
    dataset = PeptidesFunc(
        root=tmp_path, split=None, archives=[raw], unpinned=True, on_error="skip", quiet=True
    )
    assert dataset.build.path.name.startswith("peptides-func-skip-")
    skipped = dataset.card.statistics["skipped"]
    assert [key for key, _ in skipped] == ["000006", "000007"]
    assert "valence" in skipped[0][1]
    assert "C(" in skipped[1][1]
    assert any("Skipped 2 records" in note for note in dataset.card.notes)
    assert (
        sum(part.graphs for part in dataset.card.splits["upstream"].parts.values())
        == len(dataset)
        == 9
    )
    assert kmip("verify", dataset.build.path).code == 0


LABEL_FAULTS = ["", "[0, 1]", "[0, 0, 1, 0, 0, 0, 0, 0, 0, 2]", "__import__('os')", "[0]*10"]
LIST_FAULTS = [
    ({"train": [0, 1], "val": [2], "test": [3]}, 4),
    ({"train": [0, 1, 2, 3], "val": [3], "test": [4, 5]}, 3),
    ({"train": [0, 1, 2, 3], "val": [4], "test": [5, 6]}, 6),
    ({"train": [0, 1, 2, 3], "val": [4], "test": [-1, 5]}, -1),
    ({"train": [0, 1, 2], "valid": [3, 4], "test": [5]}, "val"),
    ({"train": [0.5, 1, 2], "val": [3, 4], "test": [5]}, "train"),
    ({"train": [[0], [1, 2]], "val": [3, 4], "test": [5]}, "train"),
    ([0, 1, 2, 3, 4, 5], "train"),
]


def test_bad_labels_and_lists_are_named(rows, tmp_path):
    def check(case):
        table, lists, value = case
        refused_folder("peptides-func", write_func(tmp_path, table, lists), value)

    some = rows[:6]
    labels = [[some[0], {**some[1], "labels": text}, *some[2:]] for text in LABEL_FAULTS]
    check_each(check, [(table, None, "row 1") for table in labels])
    check_each(check, [(some, *case) for case in LIST_FAULTS])
