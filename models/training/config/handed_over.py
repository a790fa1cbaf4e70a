"""What the configuration of a run that somebody else handed over may not decide."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from kmip_data.builds.home import Home
from kmip_data.errors import UsageError
from kmip_data.models.training.config.keys import RunConfig, SystemConfig
from kmip_data.models.training.config.presets import is_build_folder
from kmip_data.models.training.run.folders import CONFIG_NAME

SYSTEM = ("logger", "devices", "nodes", "compile")  #: keys that start something beside the training itself


def own_choices(config: RunConfig, folder: Path, home: Home, tell: Callable[[str], None]) -> RunConfig:
    """Return the configuration of a run without what only its owner may choose.

    A run below ``home.runs`` is the user's own. Of any other, no logger and no further process is
    started, and no build is opened but those beside it and those of the home.

    Raises
    ------
    UsageError
        The run names another folder as its data.
    """
    folder = folder.resolve()
    if folder.is_relative_to(home.runs.resolve()):
        return config
    target = config.data.dataset
    beside = [folder.parents[3]] if len(folder.parents) > 3 and folder.parents[2].name == "runs" else []
    if os.sep in target or is_build_folder(target):
        # Not of the roots themselves: a link in them could lead anywhere.
        builds = [root.resolve() / "built" for root in (home.root, *beside)]
        if not any(Path(os.path.realpath(target)).is_relative_to(root) for root in builds):
            where = f"give --home {beside[0]}, or move" if beside else "move"
            raise UsageError(
                f"{folder} is no run of this home and names a folder as its data.",
                expected=" or ".join(f"a build below {root}" for root in builds),
                found=target,
                left="nothing was changed",
                next=f"if you trust it: {where} the run below {home.runs}; or evaluate it with --dataset",
            )
    usual = {name: SystemConfig.model_fields[name].default for name in SYSTEM}
    changed = [name for name in SYSTEM if getattr(config.system, name) != usual[name]]
    if changed:
        keys = ", ".join(f"system.{name}" for name in changed)
        tell(f"{folder} is no run of {home.root}: {keys} of its {CONFIG_NAME} left out.")
    return config.model_copy(update={"system": config.system.model_copy(update=usual)})
