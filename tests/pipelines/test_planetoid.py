"""Planetoid: splits by class; bad pickles are named."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.builds.raw_graphs import refused_folder, write_sample

from kmip_data import Planetoid
from kmip_data.errors import UsageError
from kmip_data.pipelines.datasets.planetoid import split_per_class

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
    assert torch.equal(torch.from_numpy(split_per_class(labels.numpy(), seed)), codes)


def test_a_split_by_class_is_one_of_the_dataset(tmp_path: Path) -> None:
    sample = {"root": tmp_path, "sample": True, "quiet": True}
    drawn = Planetoid("cora", split_rule="per-class", split_seed=5, **sample)[0]
    assert [int(drawn[mask].sum()) for mask in MASKS] == [140, 500, 1_000]
    assert (drawn.y[drawn.train_mask].bincount() == 20).all()
    with pytest.raises(UsageError):
        Planetoid("corra", **sample)


def test_bad_planetoid_files_are_named(tmp_path: Path) -> None:
    for end, content in (
        ("test.index", b"1\n1\n"),
        ("test.index", b"1\n2\n"),
        ("test.index", b"one\n"),
        ("graph", b"\x80\x02cos\nsystem\n(U\x02lstR."),
        ("graph", b"\x80\x02K\x05."),
        ("ty", b"\x80\x02K\x05."),
    ):
        raw = write_sample("cora", tmp_path, limit=60)
        (raw / f"ind.cora.{end}").write_bytes(content)
        refused_folder("cora", raw, "ind.cora")
