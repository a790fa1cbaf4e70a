"""Commands to try when a network is not better than a simple method."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from kmip_data.builds.home import Build
from kmip_data.models.training.config.overrides import apply_overrides
from kmip_data.models.training.config.own_defaults import default_settings, has_own_defaults
from kmip_data.models.training.config.run_config import RunConfig
from kmip_data.models.training.run.result import RunResult
from kmip_data.models.training.run.run_folder import config_command, resume_command

#: Divisor of the learning rate of a run that has the default settings already.
LOWER_RATE = 5
LATE_EPOCHS = 0.9  #: share of the epochs after which a best epoch is late


def commands_to_try(
    runs: Sequence[Path], results: Sequence[RunResult], build: Build | None
) -> list[str]:
    """Return commands that train with the default settings, or a lower rate, and for longer.

    They keep the seeds and folds. ``build`` is the one that the runs were trained on, if it exists.
    """
    first = results[0]
    run = runs[0]
    config = RunConfig.model_validate(first.config)

    settings = _settings_to_try(config, build)
    if config.data.scale == "none":
        scale = "both" if first.targets.target_type == "regression" else "features"
        settings.append(f"data.scale={scale}")
    words = []
    for setting in settings:
        key, _, value = setting.partition("=")
        words += ["--epochs", value] if key == "training.epochs" else ["--set", setting]
    for option, values in {
        "--seeds": [result.seed for result in results],
        "--folds": [result.split.parameters.get("fold", 0) for result in results],
    }.items():
        distinct = dict.fromkeys(values)
        if len(distinct) > 1:
            words += [option, ",".join(map(str, distinct))]

    commands = [f"{config_command(run)} {shlex.join(words)}"]
    if first.best_epoch + 1 >= LATE_EPOCHS * first.epochs:
        commands.append(f"{resume_command(run)} --epochs {2 * config.training.epochs}")
    return commands


def _settings_to_try(config: RunConfig, build: Build | None) -> list[str]:
    """Return the defaults of your own data that ``config`` does not have; else a lower rate."""
    if build is not None and has_own_defaults(build.card):
        defaults = default_settings(build.card, config.model)
        if config.training.metric != "accuracy":  # the default loss is for it
            defaults = [value for value in defaults if not value.startswith("training.loss=")]
        missing = [value for value in defaults if apply_overrides(config, value) != config]
        if missing:
            return missing
    return [f"optimizer.lr={config.optimizer.lr / LOWER_RATE:g}"]
