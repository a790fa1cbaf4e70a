"""Graphs of Geom-GCN: forged archives are told from the published ones; bad lines and masks are named."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from support.builds.raw_graphs import refused_folder, write_sample
from support.cli import expect_refusal, expect_success
from support.raises import raises

from kmip_data import GeomGCN
from kmip_data.errors import UsageError
from kmip_data.pipelines.datasets.geom_gcn import EDGE_FILE, NODE_FILE
from kmip_data.pipelines.find_builds import find_build

MASKS = ("train_mask", "val_mask", "test_mask")
COMPLETE_BY_COUNTS = "complete by counts, bytes not pinned"


def _random_edges(raw: Path) -> None:
    pairs = itertools.combinations(range(183), 2)
    edges = [f"{a}\t{b}" for a, b in itertools.islice(pairs, 325)]
    (raw / EDGE_FILE).write_text("\n".join(["node_id\tnode_id", *edges]) + "\n")


def _exchanged_parts(raw: Path) -> None:
    _random_edges(raw)
    for path in raw.rglob("*.npz"):
        masks = dict(np.load(path))
        masks["val_mask"], masks["test_mask"] = masks["test_mask"], masks["val_mask"]
        np.savez(path, **masks)


@pytest.mark.parametrize("forge", [_random_edges, _exchanged_parts])
def test_a_forged_archive_is_refused_and_never_the_published_files(tmp_path, forge):
    """The counts of texas with other edges or parts: only digests tell it from the real one."""
    raw = write_sample("texas", tmp_path / "raw", limit=183)
    forge(raw)
    words = ["--home", tmp_path / "home"]
    forged = ["build", "texas", "--archive", raw, "--quiet", *words]
    message = expect_refusal(*forged, code=4)
    assert "texas" in message
    assert "--unpinned" in message
    assert not list((tmp_path / "home").rglob("members-*"))

    assert "published files" not in expect_success(*forged, "--unpinned").out
    build = find_build("texas", home=tmp_path / "home")
    assert not build.card.pinned
    if not build.card.complete:
        return  # the counts tell, too
    assert COMPLETE_BY_COUNTS in (build.path / "README.md").read_text()
    for command in (("info", build.path), ("verify", build.path), ("list",)):
        assert COMPLETE_BY_COUNTS in expect_success(*command, *words).out
    train = ("train", "texas", "--model", "gcn", "--epochs", "1", *words)
    assert COMPLETE_BY_COUNTS in expect_success(*train).err
    assert "published files" not in expect_success("build", "texas", *words, "--quiet").out


def test_a_sample_is_never_pinned(tmp_path):
    card = GeomGCN("texas", root=tmp_path, sample=True, limit=60, quiet=True).card
    assert not card.pinned
    assert card.raw_file_status == ""


def test_stratified_parts_keep_the_sizes_of_the_fold(tmp_path):
    sample = {"root": tmp_path, "sample": True, "limit": 60, "quiet": True}
    published = GeomGCN("Texas", fold=3, **sample)[0]
    drawn = GeomGCN("texas", fold=3, split_rule="stratified", split_seed=1, **sample)[0]
    for mask in MASKS:
        assert published[mask].sum() == drawn[mask].sum()
    assert not torch.equal(published.train_mask, drawn.train_mask)
    with raises(UsageError, naming="'texas'"):
        GeomGCN("texsa", root=tmp_path)


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    return write_sample("actor", tmp_path_factory.mktemp("raw"), limit=30)


FAULTS = [
    (NODE_FILE, "29\t1,2", "line 31"),
    (NODE_FILE, "30\t1,2\t0", "'30'"),
    (NODE_FILE, "28\t1,2\t0", 28),
    (NODE_FILE, "29\t1,2\t5", "'5'"),
    (NODE_FILE, "29\t1,932\t0", "'1,932'"),
    (NODE_FILE, "29\t1,,2\t0", "'1,,2'"),
    (NODE_FILE, "29\t1,9999999999\t0", "'1,9999999999'"),
    (EDGE_FILE, "1\t30", "'1,30'"),
    (EDGE_FILE, "1", "'1'"),
    (EDGE_FILE, "one\ttwo", "'one,two'"),
]


@pytest.mark.parametrize(("file", "line", "value"), FAULTS)
def test_bad_lines_are_named(file, line, value, raw, tmp_path):
    folder = shutil.copytree(raw, tmp_path / "raw")
    lines = (folder / file).read_text().splitlines()
    (folder / file).write_text("\n".join([*lines[:-1], line]) + "\n")
    refused_folder("actor", folder, value, file)


def test_bad_splits_are_named(raw, tmp_path):
    name = "film_split_0.6_0.2_4.npz"
    with np.load(raw / name) as stored:
        masks = dict(stored)
    zeros = np.zeros(30, np.uint8)
    folder = shutil.copytree(raw, tmp_path / "raw")
    for content, *named in (
        ({"train_mask": zeros}, "val_mask"),
        ({**masks, "test_mask": zeros[1:]}, "(29,)"),
        ({**masks, "test_mask": zeros + 2},),
        ({**masks, "test_mask": zeros.astype(float)}, "float64"),
        ({**masks, "test_mask": zeros + 1},),
        ({**masks, "test_mask": np.array([print])}, "object"),
    ):
        np.savez(folder / name, **content)
        refused_folder("actor", folder, name, *named)
