"""Run folders without a training: what a report reads of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from support.runs.stand_in_train import RESULT

from kmip_data.files.small_files import sealed_json
from kmip_data.manifest import dataset_names, load_manifest
from kmip_data.models.training.config.overrides import apply_overrides, config_to_toml
from kmip_data.models.training.config.presets import config_for_data
from kmip_data.pipelines.find_builds import parameters_with_defaults


def write_run(
    home: Path,
    value: float,
    *,
    dataset: str = "malnet-tiny",
    model: str = "gps-kmip",
    seed: int = 0,
    changes: Sequence[str] = (),
    name: str = "",
    variant: str = "code",
    hours: float = 2.0,
    **result: Any,
) -> Path:
    """Write a finished run whose metric on test is ``value``, on val a tenth less, and return its folder."""
    config = apply_overrides(config_for_data(dataset, model, variant), changes).with_seed(seed)
    width = config.model.hidden_dim if config.model.parameter_budget is None else 88
    values = config.model_dump()
    values["model"] |= {"parameter_budget": None, "hidden_dim": width}
    config = config.model_validate(values)
    metric = config.training.metric or "accuracy"
    metrics = {"val": {metric: 0.9 * value}, "test": {metric: value}}
    shipped = dataset in dataset_names()
    splits = load_manifest(dataset).expected.splits if shipped else {}
    split = next(iter(splits), "saved")
    parameters = parameters_with_defaults(dataset, config.data.parameters) if shipped else {}
    number = len(list(home.glob("runs/*/*/*")))
    folder = home / "runs" / dataset / model / (name or f"run-{number:03d}-seed{seed}")
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(config_to_toml(config))
    (folder / "metrics.csv").write_text(
        f"epoch,seconds,val_{metric}\n0,1.0,0.25\n1,1.0,\n2,1.0,0.5\n"
    )
    of_run = {
        "name": folder.name, "dataset": dataset, "complete": True, "build_parameters": parameters,
        "split": {"name": split, "rule": "upstream", "parameters": {}, "digests": {"test": "0"}},
        "model": model, "preset": config.preset, "variant": variant, "config": config.model_dump(mode="json"),
        "num_parameters": 499_000, "seed": seed, "device": "NVIDIA A100", "versions": {"kmip-data": "1.0"},
        "epochs": config.training.epochs, "metric": metric, "metrics": metrics,
        "seconds": {"train_epoch": 10.0, "total": 3600 * hours},
        "memory": {"device": 2_000_000_000, "host": 1},
    }  # fmt: skip
    (folder / "result.json").write_text(sealed_json({**RESULT, **of_run, **result}))
    return folder
