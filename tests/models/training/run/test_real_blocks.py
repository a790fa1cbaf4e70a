"""Training on real S3DIS blocks: a few are learned by heart, many generalise."""

from __future__ import annotations

import hashlib
import os

import numpy as np
import pytest
import torch
from support.shared import shared_data

from kmip_data.builds.home import Home
from kmip_data.files.changes import write_file
from kmip_data.format.card import SplitEntry, SplitPart
from kmip_data.format.splits import encode_split
from kmip_data.models.training.config.overrides import apply_overrides
from kmip_data.models.training.config.presets import config_for
from kmip_data.models.training.run.evaluate import evaluate
from kmip_data.models.training.run.train import train
from kmip_data.pipelines.find import obtain
from kmip_data.reading.dataset import ShardedDataset

pytestmark = pytest.mark.torture

SMALL = [
    "model.parameter_budget=none",
    "model.layers=1",
    "model.hidden_dim=64",
    "model.attention.heads=2",
    "model.attention.k=4",
    "model.dropout=0",
    "optimiser.lr=2e-2",
    "schedule.warmup_epochs=0",
    "training.accumulate=1",
    "training.eval_every=100",
    "system.device=cpu",
]


@pytest.fixture(autouse=True)
def _all_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else before)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def blocks(tmp_path):
    """The 49 real blocks with 4 neighbours a point."""
    archive = shared_data("indoor3d_sem_seg_hdf5_data_small.zip")
    return obtain("s3dis", {"k": 4}, {}, home=Home(tmp_path), archives=[archive], quiet=True)


def add_split(build, parts):
    """A split of chosen blocks, as the build's default."""
    keys = ShardedDataset(build).keys
    arrays = {name: np.asarray(positions, np.int64) for name, positions in parts.items()}
    data, digests = encode_split(arrays, rule="chosen", parameters={}, keys=keys)
    write_file(build.path / "splits" / "chosen.h5", data)
    entry = SplitEntry(
        file="splits/chosen.h5",
        sha256=hashlib.sha256(data).hexdigest(),
        rule="chosen",
        parameters={},
        parts={
            name: SplitPart(graphs=len(part), nodes=0, edges=0, digest=digests[name])
            for name, part in parts.items()
        },
    )
    card = build.card.model_copy(
        update={"dataset": "blocks", "manifest": "", "splits": {"chosen": entry}, "default_split": "chosen"}
    )
    write_file(build.path / "card.json", card.to_json().encode())


def test_four_blocks_are_learned_by_heart(blocks, tmp_path):
    add_split(blocks, {"train": [0, 1, 2, 3], "val": [4], "test": [5]})
    small = [*SMALL, "training.epochs=35", "training.batch_size=2", "model.head_l2norm=false"]
    config = apply_overrides(config_for(str(blocks.path)), [*small, "training.loss=cross_entropy"])
    result = train(config, home=Home(tmp_path), quiet=True).results[0]
    assert result.split.name == "chosen"
    assert result.best_epoch == 34
    assert result.metrics["train"]["accuracy"] > 0.95


def test_real_blocks_beat_the_majority_class(blocks, tmp_path):
    home = Home(tmp_path)
    config = apply_overrides(
        config_for("s3dis"), [*SMALL, "data.parameters.k=4", "training.epochs=4", "training.batch_size=4"]
    )
    summary = train(config, home=home, quiet=True)
    result = summary.results[0]
    labels = [torch.cat([block.y for block in ShardedDataset(blocks, part)]) for part in ("train", "test")]
    majority = labels[0].mode().values
    share = float((labels[1] == majority).float().mean())
    assert 0.4 < share < 0.6
    assert result.metrics["test"]["accuracy"] > share + 0.1
    assert not result.sample
    assert result.build_key == blocks.card.key
    assert evaluate(summary.runs[0], home=home).same
