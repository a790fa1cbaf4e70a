"""Stands in for ``kmip-data train`` in tests of sweeps: the same files and locks, and no network.

    python -m support.runs.stand_in_train train --resume FOLDER --home HOME
    python -m support.runs.stand_in_train train DATASET --model MODEL … --name NAME --home HOME

``STAND_IN`` is JSON: ``seconds`` of an epoch, ``epochs``, and ``fails``: part of the names of runs
that do. Each start and each epoch is a line of ``HOME/events``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from kmip_data.files.atomic_writes import folder_lock
from kmip_data.files.small_files import sealed_json

SETTINGS = "STAND_IN"


#: Fields of a ``result.json`` that tests seldom name.
RESULT: dict[str, Any] = {
    "dataset": "clouds", "sample": False, "build_key": "0123456789ab", "build_parameters": {},
    "split": {"name": "saved", "rule": "saved", "parameters": {}, "digests": {}},
    "preset": "", "variant": "code", "num_features": 6, "num_classes": 4, "num_parameters": 1234,
    "targets": {"level": "node", "target_type": "classification", "log10": False},
    "device": "cpu", "versions": {}, "epochs": 3, "best_epoch": 2, "metric": "accuracy",
    "seconds": {"train_epoch": 0.5, "total": 1.5}, "memory": {"device": None, "host": 1},
}  # fmt: skip


def format_result(name: str, seed: int, value: float, model: str, *, sample: bool = False) -> str:
    """A ``result.json`` whose accuracy on val and test is ``value``."""
    metrics = {part: {"loss": 1 - value, "accuracy": value} for part in ("train", "val", "test")}
    config = {"data": {"dataset": "clouds"}, "model": {"name": model}, "training": {"epochs": 3}}
    of_run = {
        "name": name,
        "seed": seed,
        "model": model,
        "sample": sample,
        "config": config,
        "metrics": metrics,
    }
    return sealed_json(RESULT | of_run)


def main(words: list[str]) -> None:
    """Train, in a manner of speaking."""
    settings = {
        "seconds": 0.0,
        "epochs": 3,
        "fails": "nothing",
        **json.loads(os.environ.get(SETTINGS, "{}")),
    }
    words = words[1:] if "--resume" in words else words[2:]
    options = dict(zip(words[::2], words[1::2], strict=True))
    home = Path(options["--home"])
    if "--resume" in options:
        folder = Path(options["--resume"])
        assert (folder / "config.toml").is_file()
        assert not (folder / "result.json").exists(), "a finished run is begun again"
    else:
        folder = home / "runs/clouds" / options["--model"] / options["--name"]
        assert not (folder / "config.toml").exists(), "a run is made anew"
        folder.mkdir(parents=True, exist_ok=True)
    with folder_lock(folder, wait=False), (home / "events").open("a") as events:
        events.write(f"{folder.name} start\n")
        if gpu := os.environ.get("CUDA_VISIBLE_DEVICES"):
            events.write(f"{folder.name} on {gpu} from {time.monotonic()}\n")
        if "--resume" not in options:
            named = f'[data]\ndataset = "clouds"\n[model]\nname = "{folder.parent.name}"\n'
            epochs = options.get("--epochs", settings["epochs"])
            (folder / "config.toml").write_text(f"{named}[training]\nepochs = {epochs}\n")
        metrics = folder / "metrics.csv"
        seed = int(folder.name.rpartition("seed")[2])
        value = (sum(map(ord, folder.parent.name + folder.name)) % 50 + seed) / 100
        rows = (
            metrics.read_text().splitlines() if metrics.exists() else ["epoch,seconds,val_accuracy"]
        )
        if settings["fails"] in folder.name:
            print("Error: The loss is not a number any more.\n  next: less")  # noqa: T201
            sys.exit(1)
        for epoch in range(len(rows) - 1, settings["epochs"]):
            time.sleep(settings["seconds"])
            events.write(f"{folder.name} epoch {epoch}\n")
            events.flush()
            rows.append(f"{epoch},2.0,{value}")
            new = metrics.with_suffix(".new")
            new.write_text("\n".join(rows) + "\n")
            new.replace(metrics)
        new = folder / "new"
        new.write_text(format_result(folder.name, seed, value, folder.parent.name))
        new.replace(folder / "result.json")
        if gpu:
            events.write(f"{folder.name} on {gpu} until {time.monotonic()}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
