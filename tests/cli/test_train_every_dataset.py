"""``train`` on the sample of every dataset, by its preset but for the depth, through the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.cli import kmip
from support.datasets import datasets, one_of_each
from support.metrics import usual_metrics

from kmip_data.builds.home import added_column_names
from kmip_data.format.targets import eval_metric, target_column, target_type_of
from kmip_data.manifest import load_manifest
from kmip_data.models.training.config.presets import load_preset
from kmip_data.pipelines.base import load_pipeline
from kmip_data.strict_model import shipped_names

pytestmark = pytest.mark.slow

#: Records of a sample, where fewer than usual are enough work, or fewer too few to learn from.
RECORDS = {"s3dis": 4, "shapenet-part": 4, "long-range": 60, "city-roads-l": 300}
RECORDS |= {"ogbg-molhiv": 100, "ogbg-molpcba": 40, "ogbn-arxiv": 300, "ogbn-products": 300}
RECORDS |= {"pcqm4mv2-subset": 100, "ogbn-papers100m": 400}
USUAL = 24


def records_of(dataset: str) -> int | None:
    """Records of the sample; none: the sample of one graph has its own size."""
    usual = None if load_manifest(dataset).expected.graphs == 1 else USUAL
    return RECORDS.get(dataset, usual)


@pytest.mark.parametrize(
    "dataset",
    [
        pytest.param(name, marks=[] if name in one_of_each() else pytest.mark.torture)
        for name in datasets()
    ],
)
def test_every_dataset_trains_for_an_epoch_and_reports_its_metrics(
    dataset: str, tmp_path: Path
) -> None:
    manifest = load_manifest(dataset)
    pipeline = load_pipeline(manifest)
    schema = pipeline.schema(pipeline.Params())
    metric = eval_metric(schema, dataset)
    target = target_column(schema)
    metrics = usual_metrics(target_type_of(target), target.level) | {metric}
    limit = records_of(dataset)
    arguments = [
        "train",
        "--dataset",
        dataset,
        "--epochs",
        1,
        "--device",
        "cpu",
        "--home",
        tmp_path,
    ]
    arguments += ["--sample", "--set", "model.layers=2", "--set", "model.parameter_budget=none"]
    if dataset in {"s3dis", "shapenet-part"}:
        arguments += ["--k", 4]  # edges are most of its work
    if limit is not None:
        arguments += ["--limit", limit]
    outcome = kmip(*arguments, "--quiet", "--json")
    assert outcome.code == 0, outcome.err
    summary = outcome.json
    assert summary["sample"]
    assert set(summary["metrics"]) == {"train", "val", "test"}
    for values in summary["metrics"].values():
        # R² of a single record is undefined.
        assert {*values, "r2"} == {"loss", "r2", *metrics}
    result = json.loads((Path(summary["run"]) / "result.json").read_text())
    assert (result["metric"], result["epochs"], result["sample"]) == (metric, 1, True)
    family = "city" if dataset == "helsinki" else dataset
    has_preset = "gps-kmip" in shipped_names(f"datasets/{family}")
    assert result["preset"] == (f"{family}/gps-kmip" if has_preset else "")
    (build,) = (tmp_path / "built").glob("*")
    encodings = load_preset(dataset).model.encodings if has_preset else []
    assert added_column_names(build) == [encoding.name for encoding in encodings]
    assert kmip("evaluate", summary["run"], "--home", tmp_path, "--json").json["same_as_result"]


#: The sample of lrim-generated is the dataset itself: 10,000 grids, and 440 processor seconds.
SMALL_SAMPLES = [name for name in datasets() if name != "lrim-generated"]


@pytest.mark.torture
@pytest.mark.parametrize("dataset", SMALL_SAMPLES)
def test_a_sample_ends_within_two_minutes_on_two_cores(dataset: str, tmp_path: Path) -> None:
    """Everything by default; in processor seconds, of which a slow machine needs more."""
    words = ["train", "--dataset", dataset, "--sample", "--device", "cpu", "--home", str(tmp_path)]
    with subprocess.Popen([sys.executable, "-m", "kmip_data", *words, "--quiet"]) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    assert usage.ru_utime + usage.ru_stime < 120, "two cores are busy at half of the time at least"
