"""``evaluate --by-class``: accuracy by class, against labels and predictions counted one by one."""

from __future__ import annotations

import numpy as np
from support.cli import kmip
from support.training_data import learnable_build

from kmip_data import ShardedDataset

QUICK = ["--device", "cpu", "-q", "--set", "model.layers=1", "--set", "model.hidden_dim=8"]


def test_equals_a_count_of_predictions(tmp_path, monkeypatch):
    monkeypatch.setenv("KMIP_DATA_HOME", str(tmp_path))
    build = learnable_build(tmp_path / "built/clouds")
    run = kmip("train", "--dataset", build.path, "--epochs", 2, *QUICK, "--json").json["run"]
    shown = kmip("evaluate", run, "--by-class", "--json").json["classes"]
    for part in ("train", "val", "test"):
        labels = np.concatenate([data.y.numpy() for data in ShardedDataset(build, split=part)])
        assert shown["rows"][part] == np.bincount(labels, minlength=len(shown["names"])).tolist()
        kmip("predict", run, "--split", part, "--output", tmp_path / f"{part}.npz")
        predicted = np.load(tmp_path / f"{part}.npz")["logits"].argmax(1)
        wanted = [int(((predicted == c) & (labels == c)).sum()) for c in range(len(shown["names"]))]
        assert shown["right"][part] == wanted
    lines = kmip("evaluate", run, "--by-class").out.splitlines()
    assert any(line.split()[:4] == ["class", "train", "right", "[%]"] for line in lines)
    share = 100 * shown["right"]["val"][0] / shown["rows"]["val"][0]
    assert any(line.split()[:1] == [shown["names"][0]] and f"{share:.1f}" in line for line in lines)
