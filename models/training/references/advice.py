"""Commands to try when a network is not better than a simple method."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from kmip_data.models.training.config.run_config import RunConfig
from kmip_data.models.training.run.result import RunResult
from kmip_data.models.training.run.run_folder import CONFIG_NAME, home_option, resume_command

LOW_DROPOUT = 0.1
#: Divisor of the learning rate. On one graph, 0.005 with dropout 0.5 collapsed to a constant.
LOWER_RATE = 5
LATE_EPOCHS = 0.9  #: share of the epochs after which a best epoch is late


def commands_to_try(runs: Sequence[Path], results: Sequence[RunResult]) -> list[str]:
    """Return commands of a gentler training with the same seeds and folds, and of a longer one."""
    first = results[0]
    run = runs[0]
    config = RunConfig.model_validate(first.config)

    settings = [f"optimizer.lr={config.optimizer.lr / LOWER_RATE:g}"]
    if config.model.dropout > LOW_DROPOUT:
        settings.append(f"model.dropout={LOW_DROPOUT}")
    if config.data.scale == "none":
        scale = "both" if first.targets.target_type == "regression" else "features"
        settings.append(f"data.scale={scale}")
    words = [word for setting in settings for word in ("--set", setting)]
    for option, values in {
        "--seeds": [result.seed for result in results],
        "--folds": [result.split.parameters.get("fold", 0) for result in results],
    }.items():
        distinct = dict.fromkeys(values)
        if len(distinct) > 1:
            words += [option, ",".join(map(str, distinct))]

    file = shlex.quote(str(run / CONFIG_NAME))
    commands = [f"kmip-data train --config {file}{home_option(run)} {shlex.join(words)}"]
    if first.best_epoch + 1 >= LATE_EPOCHS * first.epochs:
        commands.append(f"{resume_command(run)} --epochs {2 * config.training.epochs}")
    return commands
