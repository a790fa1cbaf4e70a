"""Loggers of a run's metrics, in addition to ``metrics.csv``."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kmip_data.errors import Command, Setting, UsageError
from kmip_data.models.training.config.run_config import RunConfig

#: Function of the values by name, and the epoch.
Logger = Callable[[dict[str, float], int], None]


def check_logger(name: str) -> None:
    """Raise ``UsageError`` if a logger's package is not installed."""
    if name != "csv" and importlib.util.find_spec(name) is None:
        raise UsageError(
            f"The logger {name!r} needs the package of the same name.",
            steps=[Command("pip install", name), Setting({"system.logger": "csv"})],
        )


def build_logger(config: RunConfig, folder: Path | None, project: str) -> Logger:
    """Return the run's logger, in addition to ``metrics.csv``; it does nothing without a folder."""
    if folder is None or config.system.logger == "csv":
        return lambda *_: None
    if config.system.logger == "tensorboard":
        from torch.utils.tensorboard import SummaryWriter

        writer: Any = SummaryWriter(str(folder / "tensorboard"))

        def to_tensorboard(values: dict[str, float], epoch: int) -> None:
            for name, value in values.items():
                writer.add_scalar(name, value, epoch)
            writer.flush()

        return to_tensorboard
    import wandb

    run = wandb.init(
        dir=folder, name=folder.name, project=project, config=config.model_dump(mode="json")
    )
    return lambda values, epoch: run.log({**values, "epoch": epoch})
