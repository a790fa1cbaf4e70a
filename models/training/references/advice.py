"""Commands to try when a network is not better than a simple method."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Sequence
from pathlib import Path

from kmip_data.builds.home import Build
from kmip_data.errors import KmipDataError
from kmip_data.models.training.config.overrides import apply_overrides, read_config
from kmip_data.models.training.config.own_defaults import (
    default_settings,
    has_own_defaults,
    own_model,
    own_scale,
)
from kmip_data.models.training.config.run_config import RunConfig
from kmip_data.models.training.run.result import RunResult
from kmip_data.models.training.run.run_folder import (
    CONFIG_NAME,
    config_command,
    run_option_text,
)

#: Divisor of the learning rate of a run that has the default settings already.
LOWER_RATE = 5
LATE_EPOCHS = 0.9  #: share of the epochs after which a best epoch is late


def line_to_try(runs: Sequence[Path], results: Sequence[RunResult], build: Build | None) -> str:
    """Return a line of commands that train what no run of this network on these data has tried; or nothing.

    They train the default network, or with the default settings, with a lower rate or for longer, with
    the same seeds and folds. ``build`` is the one that the runs were trained on, if it exists.
    """
    first = results[0]
    run = runs[0]
    config = RunConfig.model_validate(first.config)
    options = ""
    for option, values in {
        "--seeds": [result.seed for result in results],
        "--folds": [result.split.parameters.get("fold", 0) for result in results],
    }.items():
        distinct = dict.fromkeys(values)
        if len(distinct) > 1:
            options += f" {option} {','.join(map(str, distinct))}"

    defaults = [f"data.scale={own_scale(first.targets.target_type)}"]
    commands = []
    if build is not None and has_own_defaults(build.card):
        defaults += default_settings(build.card, config.model)
        model = own_model(build.card)
        if model != first.model and not (run.parents[1] / model).exists():
            commands.append(
                f"kmip-data train {shlex.quote(first.dataset)}"
                f" --model {model}{options}{run_option_text(run)}"
            )
    longer = []
    if first.best_epoch + 1 >= LATE_EPOCHS * first.epochs:
        longer = _untried_settings(run, [f"training.epochs={2 * config.training.epochs}"])
    for settings in (_settings_to_try(run, config, defaults), longer):
        words = []
        for setting in settings:
            key, _, value = setting.partition("=")
            words += ["--epochs", value] if key == "training.epochs" else ["--set", setting]
        if words:
            commands.append(f"{config_command(run)} {shlex.join(words)}{options}")
    return f"\nTry: {'; or '.join(commands)}" if commands else ""


def _settings_to_try(run: Path, config: RunConfig, defaults: Sequence[str]) -> list[str]:
    """Return the untried defaults that ``config`` does not have, or else a lower rate."""
    if config.training.metric != "accuracy":  # the default loss is for it
        defaults = [value for value in defaults if not value.startswith("training.loss=")]
    settings = [value for value in defaults if apply_overrides(config, value) != config]
    settings = settings or [f"optimizer.lr={config.optimizer.lr / LOWER_RATE:g}"]
    return _untried_settings(run, settings)


def _untried_settings(run: Path, settings: list[str]) -> list[str]:
    """Return the settings that no run of the same network on these data has."""
    for folder in run.parent.iterdir():
        with contextlib.suppress(KmipDataError):
            other = read_config(folder / CONFIG_NAME)
            settings = [value for value in settings if apply_overrides(other, value) != other]
    return settings
