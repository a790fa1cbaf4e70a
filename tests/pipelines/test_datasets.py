"""Every dataset with an oracle equals it item by item; a damaged raw file is named in one error."""

from __future__ import annotations

import re
import shutil
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from support.builds.raw_graphs import records_of_folder, write_sample
from support.builds.same import assert_same_data
from support.datasets import one_of_each
from support.oracles.datasets import FOLDS, ORACLES
from support.shared import shared_data

import kmip_data
from kmip_data.builds.home import Home
from kmip_data.errors import DamagedInput
from kmip_data.manifest import dataset_names, load_manifest
from kmip_data.pipelines.base import load_pipeline
from kmip_data.pipelines.build import build_dataset

REAL = ("minesweeper", "tolokers", "chameleon-filtered", "squirrel-filtered", "cora", "citeseer")


def test_every_pipeline_has_an_oracle_or_tests_of_its_name() -> None:
    """A new dataset cannot go without: its pipeline is in ``ORACLES`` or has a file or folder here."""
    compared = {load_manifest(name).pipeline for name in ORACLES}
    named = [path.stem.removeprefix("test_") for path in Path(__file__).parent.iterdir()]
    bare = {load_manifest(name).pipeline for name in dataset_names()} - compared
    assert not [name for name in bare if not name.startswith(tuple(named))]


@pytest.mark.parametrize(
    ("name", "real"), [*((name, False) for name in ORACLES), *((name, True) for name in REAL)]
)
def test_items_equal_the_original_dataset(name: str, real: bool, tmp_path: Path) -> None:
    """Items built from raw files equal the oracle's bit for bit, in the order of the published split."""
    manifest = load_manifest(name)
    oracle = ORACLES[name]
    raw = tmp_path / "raw"
    if real:
        raw.mkdir()
        folder = shared_data("planetoid" if manifest.pipeline == "planetoid" else "node_benchmarks")
        for source in manifest.sources:
            shutil.copy(folder / source.name, raw)
    else:
        write_sample(oracle.sample or name, raw, limit=oracle.limit, seed=3)
        oracle.change(raw)
    theirs = oracle.read(raw, tmp_path / "theirs")

    split = {"split_rule": oracle.split_rule} if oracle.split_rule else None
    build = build_dataset(
        name,
        archives=[raw],
        home=Home(tmp_path),
        split_parameters=split,
        unpinned=not real,
        jobs=1,
        quiet=True,
    )
    assert bool(build.card.complete) is real, (
        f"{name}: a build of {'the real files' if real else 'a sample'} says complete = "
        f"{build.card.complete}: state the published graphs, classes, avg_nodes and avg_edges in "
        f"[expected] of manifests/datasets/{name}/dataset.toml"
    )
    assert build.card.pinned is real, (
        f"{name}: a build of {'the real files' if real else 'a sample'} says pinned = "
        f"{build.card.pinned}: state the digests of all published files in its manifest"
    )
    if FOLDS not in theirs:
        named = {"split_name": oracle.split_rule} if oracle.split_rule else {}
        for part, graphs in theirs.items():
            ours = oracle.opened(build.path, split=part, **named)
            assert len(ours) == len(graphs) > 0
            for item, data in zip(ours, graphs, strict=True):
                assert_same_data(item, data, ordered=False)
        assert not manifest.expected.classes or ours.num_classes == manifest.expected.classes
        return

    graph = theirs[FOLDS]
    names = ["upstream"]
    if "fold" in load_pipeline(manifest).SplitParams.model_fields:
        # By their numbers: in the card's alphabetical order fold 10 comes before fold 2.
        names = [f"upstream-fold{fold}" for fold in range(manifest.layout.folds)]
    assert sorted(names) == sorted(build.card.splits)
    for fold, split_name in enumerate(names):
        data = graph.clone()
        for part in ("train", "val", "test"):
            mask = data[f"{part}_mask"]
            data[f"{part}_mask"] = mask[:, fold] if mask.ndim > 1 else mask
        item = kmip_data.open(build.path, "train", split_name=split_name)[0]
        assert_same_data(item, data, ordered=False)


#: Files that are read by nobody: what PyTorch Geometric needs, or a split that is not asked for.
UNREAD = ("ind.*.x", "node_features.pt", "*_mask.pt", "split_masks_RH.csv")
#: Lists of lines that do not say how many there are: cut, they are shorter.
UNCOUNTED = ("out1_graph_edges.txt", "edgelist.csv", "*.index", "0*/*.txt", "split/time/*")
#: Parts that only together are wrong.
TOGETHER = "partition the|do not follow"
GARBAGE = b"\x00\xff nothing of the sort\n" * 9
#: Helsinki is an extract, which other tests damage.
DAMAGED = [
    name for name in one_of_each() if not load_manifest(name).generated and name != "helsinki"
]


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_named(name: str, tmp_path: Path, subtests: pytest.Subtests) -> None:
    """Each raw file cut in half, empty, or another one."""
    one_graph = load_manifest(name).expected.graphs == 1
    raw = write_sample(name, tmp_path / "raw", limit=200 if one_graph else 12, seed=1)
    paths = {}  # of files that are alike, one
    for path in sorted(raw.rglob("*.*")):
        file = path.relative_to(raw).as_posix()
        kind = path.suffix if re.match("0|[a-z]+/[a-z]+/", file) else file
        if not any(fnmatch(file, pattern) for pattern in UNREAD):
            paths.setdefault(kind, file)

    for file in paths.values():
        path = raw / file
        whole = path.read_bytes()
        for content in (whole[: len(whole) // 2], b"", GARBAGE):
            if content != GARBAGE and any(fnmatch(file, pattern) for pattern in UNCOUNTED):
                continue
            path.write_bytes(content)
            with subtests.test(f"{file}, {content[:20]!r}"), TemporaryDirectory() as work:
                with pytest.raises(DamagedInput) as caught:
                    records_of_folder(name, raw, Path(work))
                message = str(caught.value)
                assert path.name in message or re.search(TOGETHER, message), message
        path.write_bytes(whole)
