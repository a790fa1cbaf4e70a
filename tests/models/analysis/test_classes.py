"""Accuracy by class, against labels and predictions counted one by one."""

from __future__ import annotations

import numpy as np
import pytest
from support.cli import kmip
from support.training_data import learnable_build

from kmip_data import ShardedDataset
from kmip_data.errors import UsageError
from kmip_data.models.analysis.classes import class_accuracy

QUICK = ["--device", "cpu", "-q", "--set", "model.layers=1", "--set", "model.hidden_dim=8"]


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("KMIP_DATA_HOME", str(tmp_path))
    build = learnable_build(tmp_path / "build")
    train = ["train", "--dataset", build.path, "--epochs", 2, *QUICK, "--json"]
    made = [kmip(*train, "--seeds", "0,1"), kmip(*train, "--model", "gcn")]
    return build, [*made[0].json["run"], made[1].json["run"]]


def test_equals_a_count_of_predictions(runs, tmp_path):
    build, folders = runs
    found = class_accuracy(folders, part="val")
    labels = np.concatenate([data.y.numpy() for data in ShardedDataset(build, split="val")])
    assert found.rows.tolist() == np.bincount(labels, minlength=len(found.rows)).tolist()
    for number, folder in enumerate(folders):
        file = tmp_path / f"{number}.npz"
        kmip("predict", folder, "--split", "val", "--output", file)
        predicted = np.load(file)["logits"].argmax(1)
        wanted = [int(((predicted == label) & (labels == label)).sum()) for label in range(len(found.rows))]
        row = found.right["gps-kmip"][number] if number < 2 else found.right["gcn"][0]
        assert row.tolist() == wanted
    assert sum(map(sum, (each.tolist() for each in found.right["gcn"]))) > 0

    table = kmip("analyze", "classes", *folders, "--split", "val")
    assert "gps-kmip [%]" in table.out
    assert "2 runs of gps-kmip, 1 run of gcn" in table.out
    shown = kmip("analyze", "classes", *folders, "--split", "val", "--json").json
    assert shown["right"]["gcn"] == found.right["gcn"].tolist()


def test_runs_that_do_not_compare_are_refused(runs, tmp_path):
    _, folders = runs
    other = learnable_build(tmp_path / "other", graphs=12, parts={"train": [0], "val": [1], "test": [2]})
    args = ["--dataset", other.path, "--epochs", 1, *QUICK, "--json"]
    apart = kmip("train", *args, "--model", "mlp").json["run"]
    with pytest.raises(UsageError, match="do not compare"):
        class_accuracy([folders[0], apart])
    outcome = kmip("analyze", "classes", "nothing")
    assert outcome.code == 2
