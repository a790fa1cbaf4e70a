"""Node benchmarks of Platonov et al. and Planetoid: equal to PyG's classes, and every bad file an error."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.builds.raw_graphs import prepare
from support.cli import done
from support.shared import shared_data
from torch_geometric import datasets
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from kmip_data import HeterophilousGraphDataset, Planetoid
from kmip_data.builds.home import Home
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.manifest import load_manifest
from kmip_data.pipelines.base import load_pipeline
from kmip_data.pipelines.build import build_dataset
from kmip_data.pipelines.datasets.planetoid import per_class

MASKS = ("train_mask", "val_mask", "test_mask")
NPZ = ("minesweeper", "tolokers", "chameleon-filtered", "squirrel-filtered")
SPLITS = 10


def of_npz(name: str, folder: Path) -> Data:
    """The graph by PyG's class; by its steps where it does not know the name."""
    file = f"{name.replace('-', '_')}.npz"
    if "filtered" not in name:
        raw = folder / file.removesuffix(".npz") / "raw"
        raw.mkdir(parents=True)
        shutil.copy(folder / file, raw)
        return datasets.HeterophilousGraphDataset(str(folder), name)[0]
    arrays = np.load(folder / file)
    edges = torch.from_numpy(arrays["edges"]).t().contiguous()
    nodes = len(arrays["node_labels"])
    masks = {f"{part}_mask": torch.from_numpy(arrays[f"{part}_masks"]).t() for part in PARTS}
    return Data(
        x=torch.from_numpy(arrays["node_features"]),
        y=torch.from_numpy(arrays["node_labels"]),
        edge_index=to_undirected(edges, num_nodes=nodes),
        **masks,
    )


PARTS = ("train", "val", "test")


def same(ours: Data, theirs: Data, fold: int | None = None) -> None:
    assert set(ours.keys()) == set(theirs.keys())
    for key in theirs.keys():  # noqa: SIM118 -- Data iterates over pairs
        wanted = theirs[key] if fold is None or key not in MASKS else theirs[key][:, fold]
        assert ours[key].dtype == wanted.dtype, key
        assert torch.equal(ours[key], wanted), key


def raw_files(name: str, folder: Path, *, real: bool) -> Path:
    """A folder with the real files of a dataset, or with those of its sample."""
    folder.mkdir(parents=True, exist_ok=True)
    manifest = load_manifest(name)
    if not real:
        load_pipeline(manifest).sample(folder, limit=60)
        return folder
    group = "planetoid" if manifest.pipeline == "planetoid" else "node_benchmarks"
    for source in manifest.sources:
        shutil.copy(shared_data(group) / source.name, folder)
    return folder


@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("name", NPZ)
def test_npz_equals_pyg(name: str, real: bool, tmp_path: Path) -> None:
    raw = raw_files(name, tmp_path / "raw", real=real)
    options = {"home": Home(tmp_path), "unpinned": not real, "jobs": 1, "quiet": True}
    build = build_dataset(name, archives=[raw], **options)
    theirs = of_npz(name, raw)
    assert len(build.card.splits) == SPLITS
    assert build.card.complete is build.card.pinned is real
    for fold in range(SPLITS):
        ours = HeterophilousGraphDataset(name, home=tmp_path, fold=fold, build=False)[0]
        same(ours, theirs, fold)


@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("name", ["cora", "citeseer"])
def test_planetoid_equals_pyg(name: str, real: bool, tmp_path: Path) -> None:
    raw = raw_files(name, tmp_path / "pyg" / name / "raw", real=real)
    options = {"home": Home(tmp_path), "unpinned": not real, "jobs": 1, "quiet": True}
    build = build_dataset(name, archives=[raw], **options)
    assert build.card.complete is build.card.pinned is real
    same(
        Planetoid(name.upper(), home=tmp_path, build=False)[0],
        datasets.Planetoid(str(tmp_path / "pyg"), name)[0],
    )


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
    sample = {"home": tmp_path, "sample": True, "quiet": True}
    drawn = Planetoid("cora", split_rule="per-class", split_seed=5, **sample)[0]
    assert [int(drawn[mask].sum()) for mask in MASKS] == [140, 500, 1_000]
    assert (drawn.y[drawn.train_mask].bincount() == 20).all()
    with pytest.raises(UsageError, match="'corra'"):
        Planetoid("corra", **sample)
    with pytest.raises(UsageError, match="10 published splits"):
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
    ({"node_features": X[:59]}, "edges of nodes . to 59, of 59"),
    ({"node_features": X + 2}, "x is 2.0 to 2.0, not 0.0 to 1.0"),
    ({"node_features": X + 0.5}, "values that uint8 does not hold, up to 0.5"),
    ({"node_features": X + np.nan}, "not finite"),
    ({"node_labels": np.full(60, 2)}, "y is 2 to 2, not 0 to 1"),
    ({"node_labels": np.full(60, -1)}, "y is -1 to -1"),
    ({"edges": EDGES + 60}, "edges of nodes 60 to 60, of 60"),
    ({"edges": EDGES.T}, r"edges are int64 \(3, 2\)"),
    ({"edges": EDGES + 0.5}, "edges are float64"),
    ({"train_masks": FLAGS[:9]}, "laid out"),
    ({"train_masks": FLAGS[:, :59]}, r"mask of train is bool \(59,\)"),
    ({"train_masks": FLAGS + 1, "val_masks": FLAGS + 1}, "in two parts"),
]


@pytest.mark.parametrize(("arrays", "message"), FAULTS)
def test_bad_arrays_are_named(arrays: dict[str, Any], message: str, tmp_path: Path) -> None:
    raw = raw_files("minesweeper", tmp_path / "raw", real=False)
    edited(raw, **arrays)
    with pytest.raises(DamagedInput, match=message) as caught:
        prepare("minesweeper", raw, tmp_path / "work")
    assert "minesweeper.npz" in str(caught.value)


def test_bad_planetoid_files_are_named(tmp_path: Path) -> None:
    for end, content, message in (
        ("test.index", b"1\n1\n", "distinct"),
        ("test.index", b"1\n2\n", "do not follow"),
        ("test.index", b"one\n", "not laid out"),
        ("graph", b"\x80\x02cos\nsystem\n(U\x02lstR.", "was not run"),
        ("graph", b"\x80\x02K\x05.", "not laid out"),
        ("allx", b"", "damaged pickle"),
        ("ty", b"\x80\x02K\x05.", "not a matrix"),
    ):
        raw = raw_files("cora", tmp_path / f"{end}{len(content)}", real=False)
        (raw / f"ind.cora.{end}").write_bytes(content)
        with pytest.raises(DamagedInput, match=message) as caught:
            prepare("cora", raw, raw / "work")
        assert "ind.cora." in str(caught.value)


def test_the_published_files_are_called_so(tmp_path: Path) -> None:
    """By the digests that the manifest has, wherever the files come from."""
    raw = raw_files("chameleon-filtered", tmp_path / "raw", real=True)
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
