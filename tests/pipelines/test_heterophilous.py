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
    with pytest.raises(UsageError):
        HeterophilousGraphDataset("minesweeper", fold=10, root=tmp_path, sample=True, quiet=True)


def edited(folder: Path, **arrays: Any) -> None:
    path = folder / "minesweeper.npz"
    with np.load(path) as stored:
        everything = {**stored, **arrays}
    np.savez(path, **{name: array for name, array in everything.items() if array is not None})


FILE = "minesweeper.npz"
X = np.zeros((64, 7), np.float32)
EDGES = np.zeros((3, 2), np.int64)
FLAGS = np.zeros((10, 64), bool)
FAULTS = [
    ({"node_features": None}, "node_features"),
    ({"node_features": X[:, :6]}, "(64, 6)"),
    ({"node_features": X + 0.5}, 0.5),
    ({"node_labels": np.full(64, 2)}, 2),
    ({"edges": EDGES.T}, "(3, 2)"),
    ({"edges": EDGES + 0.5}, "float64"),
    ({"train_masks": FLAGS[:9]}, FILE),
    ({"train_masks": FLAGS + 1, "val_masks": FLAGS + 1}, FILE),
]


@pytest.mark.parametrize(("arrays", "value"), FAULTS)
def test_bad_arrays_are_named(arrays: dict[str, Any], value: object, tmp_path: Path) -> None:
    raw = write_sample("minesweeper", tmp_path, limit=64)
    edited(raw, **arrays)
    refused_folder("minesweeper", raw, value, FILE)


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
