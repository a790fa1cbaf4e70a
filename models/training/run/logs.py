"""Loggers by name, and Lightning kept quiet."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kmip_data.errors import UsageError
from kmip_data.models.training.memory.machine import is_main_process
from kmip_data.runtime.progress import say

#: Name, which is that of its package too, to the class in ``lightning.pytorch.loggers``.
_CLASSES = {"tensorboard": "TensorBoardLogger", "wandb": "WandbLogger", "mlflow": "MLFlowLogger"}


def check_logger(name: str) -> None:
    """Raise UsageError, with the package to install, where a logger's package is not installed."""
    # tensorboardX will do too.
    if name in _CLASSES and not any(map(importlib.util.find_spec, (name, f"{name}X"))):
        raise UsageError(
            f"The logger {name!r} needs the package of that name.",
            expected=f"{name} installed",
            found="it is not",
            left="nothing was started",
            next=f"pip install {name}, or --logger csv",
        )


def build_logger(name: str, folder: Path, *, project: str, config: dict[str, Any]) -> Any:
    """Return Lightning's logger of that name, writing below ``folder``; ``False`` for ``csv``.

    ``metrics.csv`` is written whatever the logger.
    """
    if name == "csv":
        return False
    from lightning.pytorch import loggers

    kind = getattr(loggers, _CLASSES[name])
    if name == "tensorboard":
        logger = kind(save_dir=str(folder), name="", version="tensorboard")
    elif name == "wandb":
        logger = kind(save_dir=str(folder), name=folder.name, project=project)
    else:
        logger = kind(save_dir=str(folder / "mlruns"), run_name=folder.name, experiment_name=project)
    logger.log_hyperparams(config)
    return logger


def teller(quiet: bool) -> Callable[[str], None]:
    """Return a function that prints a line to stderr: in the first process of a run, unless ``quiet``."""

    def tell(line: str) -> None:
        if not quiet and is_main_process():
            say(line)

    return tell


@contextlib.contextmanager
def quiet_lightning() -> Iterator[None]:
    """Silence Lightning's tips and its warnings about loaders and folders that are ours, not its own."""
    names = ("lightning", "lightning.pytorch", "lightning.fabric", "lightning.pytorch.utilities.rank_zero")
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"lightning\..*")
        warnings.filterwarnings("ignore", module=r"torchmetrics\..*", message=".*``compute`` method.*")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
