"""Node benchmarks of Platonov et al.: bad arrays are named; the published files are called so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.builds.raw_graphs import refused_folder, write_sample
from support.cli import expect_success
from support.shared import shared_data

from kmip_data import HeterophilousGraphDataset
from kmip_data.errors import UsageError
from kmip_data.manifest import load_manifest


def test_a_fold_that_is_not_published_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="fold 10"):
        HeterophilousGraphDataset("minesweeper", fold=10, root=tmp_path, sample=True, quiet=True)


def edited(folder: Path, **arrays: Any) -> None:
    path = folder / "minesweeper.npz"
    with np.load(path) as stored:
        everything = {**stored, **arrays}
    np.savez(path, **{name: array for name, array in everything.items() if array is not None})


X = np.zeros((64, 7), np.float32)
EDGES = np.zeros((3, 2), np.int64)
FLAGS = np.zeros((10, 64), bool)
FAULTS = [
    ({"node_features": None}, "node_features is missing"),
    ({"node_features": X[:, :6]}, r"x is float32 \(64, 6\), not numbers \(64, 7\)"),
    ({"node_features": X + 0.5}, "stored as uint8, which would change 0.5 to 0"),
    ({"node_labels": np.full(64, 2)}, "y is 2 to 2, not 0 to 1"),
    ({"edges": EDGES.T}, r"edges are int64 \(3, 2\)"),
    ({"edges": EDGES + 0.5}, "edges are float64"),
    ({"train_masks": FLAGS[:9]}, "laid out"),
    ({"train_masks": FLAGS + 1, "val_masks": FLAGS + 1}, "in two parts"),
]


@pytest.mark.parametrize(("arrays", "message"), FAULTS)
def test_bad_arrays_are_named(arrays: dict[str, Any], message: str, tmp_path: Path) -> None:
    raw = write_sample("minesweeper", tmp_path, limit=64)
    edited(raw, **arrays)
    refused_folder("minesweeper", raw, message, "minesweeper.npz")


def test_files_with_published_digests_are_pinned(tmp_path: Path) -> None:
    """Files from anywhere count as the published ones if the manifest has their digests."""
    (source,) = load_manifest("chameleon-filtered").sources
    raw = shared_data("node_benchmarks") / source.name
    words = ("--home", tmp_path / "home")
    text = expect_success("build", "chameleon-filtered", "--archive", raw, "--quiet", *words).out
    built = expect_success("build", "chameleon-filtered", "--quiet", "--json", *words).json
    assert built["pinned"] is True
    page = (Path(built["path"]) / "README.md").read_text()
    for said in (
        text,
        page,
        *(expect_success(name, built["path"], *words).out for name in ("info", "verify")),
    ):
        assert "the published files" in said
    assert expect_success("verify", built["path"], "--json", *words).json["pinned"] is True
