"""Node benchmarks of Platonov et al. and Planetoid: splits by class; bad arrays and pickles are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.builds.raw_graphs import refused_folder, write_sample
from support.cli import done
from support.shared import shared_data

from kmip_data import HeterophilousGraphDataset, Planetoid
from kmip_data.errors import UsageError
from kmip_data.manifest import load_manifest
from kmip_data.pipelines.datasets.planetoid import per_class

MASKS = ("train_mask", "val_mask", "test_mask")


@pytest.mark.parametrize("seed", [0, 123])
def test_classes_are_drawn_as_tuned_gnn_draws_them(seed: int) -> None:
    """The published function's steps, with torch's own permutations."""
    labels = torch.arange(2_000) % 7
    torch.manual_seed(seed)
    train, others = [], []
    for label in labels.unique():
        rows = (labels == label).nonzero()[:, 0]
        rows = rows[torch.randperm(len(rows))]
        train.append(rows[:20])
        others.append(rows[20:])
    rest = torch.cat(others)
    rest = rest[torch.randperm(len(rest))]
    codes = torch.full((2_000,), 255, dtype=torch.uint8)
    codes[torch.cat(train)] = 0
    codes[rest[:500]] = 1
    codes[rest[500:1_500]] = 2
    assert torch.equal(torch.from_numpy(per_class(labels.numpy(), seed)), codes)


def test_a_split_by_class_is_one_of_the_dataset(tmp_path: Path) -> None:
    sample = {"root": tmp_path, "sample": True, "quiet": True}
    drawn = Planetoid("cora", split_rule="per-class", split_seed=5, **sample)[0]
    assert [int(drawn[mask].sum()) for mask in MASKS] == [140, 500, 1_000]
    assert (drawn.y[drawn.train_mask].bincount() == 20).all()
    with pytest.raises(UsageError, match="'corra'"):
        Planetoid("corra", **sample)
    with pytest.raises(UsageError, match="fold 10"):
        HeterophilousGraphDataset("minesweeper", fold=10, **sample)


def edited(folder: Path, **arrays: Any) -> None:
    path = folder / "minesweeper.npz"
    with np.load(path) as stored:
        everything = {**stored, **arrays}
    np.savez(path, **{name: array for name, array in everything.items() if array is not None})


X = np.zeros((60, 7), np.float32)
EDGES = np.zeros((3, 2), np.int64)
FLAGS = np.zeros((10, 60), bool)
FAULTS = [
    ({"node_features": None}, "node_features is missing"),
    ({"node_features": X[:, :6]}, r"x is float32 \(60, 6\), not numbers \(60, 7\)"),
    ({"node_features": X + 0.5}, "values that uint8 does not hold, up to 0.5"),
    ({"node_labels": np.full(60, 2)}, "y is 2 to 2, not 0 to 1"),
    ({"edges": EDGES.T}, r"edges are int64 \(3, 2\)"),
    ({"edges": EDGES + 0.5}, "edges are float64"),
    ({"train_masks": FLAGS[:9]}, "laid out"),
    ({"train_masks": FLAGS + 1, "val_masks": FLAGS + 1}, "in two parts"),
]


@pytest.mark.parametrize(("arrays", "message"), FAULTS)
def test_bad_arrays_are_named(arrays: dict[str, Any], message: str, tmp_path: Path) -> None:
    raw = write_sample("minesweeper", tmp_path, limit=60)
    edited(raw, **arrays)
    refused_folder("minesweeper", raw, message, "minesweeper.npz")


def test_bad_planetoid_files_are_named(tmp_path: Path) -> None:
    for end, content, message in (
        ("test.index", b"1\n1\n", "distinct"),
        ("test.index", b"1\n2\n", "do not follow"),
        ("test.index", b"one\n", "not laid out"),
        ("graph", b"\x80\x02cos\nsystem\n(U\x02lstR.", "was not run"),
        ("graph", b"\x80\x02K\x05.", "not laid out"),
        ("ty", b"\x80\x02K\x05.", "not a matrix"),
    ):
        raw = write_sample("cora", tmp_path, limit=60)
        (raw / f"ind.cora.{end}").write_bytes(content)
        refused_folder("cora", raw, message, "ind.cora.")


def test_the_published_files_are_called_so(tmp_path: Path) -> None:
    """Files from anywhere count as the published ones if their digests are those of the manifest."""
    (source,) = load_manifest("chameleon-filtered").sources
    raw = shared_data("node_benchmarks") / source.name
    words = ("--home", tmp_path / "home")
    text = done("build", "chameleon-filtered", "--archive", raw, "--quiet", *words).out
    built = done("build", "chameleon-filtered", "--quiet", "--json", *words).json
    assert built["pinned"] is True
    page = (Path(built["path"]) / "README.md").read_text()
    for said in (
        text,
        page,
        *(done(name, built["path"], *words).out for name in ("info", "verify")),
    ):
        assert "the published files" in said
    assert done("verify", built["path"], "--json", *words).json["pinned"] is True
