"""The runs of a home as a list: how far each is, what it found, and the command that goes on with it."""

from __future__ import annotations

import contextlib
import glob
import shlex
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kmip_data.builds.home import Home
from kmip_data.files.small import read_json, read_small
from kmip_data.models.sweeps.state import State, state_of_run
from kmip_data.models.training.run.folders import CONFIG_NAME, RESULT_NAME
from kmip_data.wording import timestamp

#: What files of strangers may lead to, read without a model of what is in them: that would load PyTorch.
_WRONG = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError)


@dataclass(frozen=True)
class Listed:
    """A run in a list."""

    path: Path
    dataset: str
    model: str
    name: str
    state: str
    epoch: int  #: epochs that are done
    epochs: int | None  #: that it was begun for
    begun: str
    metric: str | None = None  #: that chose the epoch
    test: float | None = None  #: its value on test
    left: str = ""  #: time of the other epochs
    reason: str = ""  #: why it failed
    resume: str | None = None  #: the command that goes on with it, where nobody does


def list_runs(home: Home) -> list[Listed]:
    """Return the runs below ``home.runs``, the one that was begun last first."""
    configs = [path for path in home.runs.glob(f"*/*/*/{CONFIG_NAME}") if path.is_file()]
    found = sorted(((path.stat().st_mtime, path.parent) for path in configs), reverse=True)
    return [_listed(home, folder, begun) for begun, folder in found]


def _listed(home: Home, folder: Path, begun: float) -> Listed:
    dataset, model, name = folder.parts[-3:]
    epochs = None
    with contextlib.suppress(*_WRONG):
        epochs = int(tomllib.loads(read_small(folder / CONFIG_NAME).decode())["training"]["epochs"])
    log = next(home.root.glob(f"sweeps/*/{glob.escape(f'{dataset}.{model}.{name}')}.log"), None)
    state, result = state_of_run(folder, log, epochs or 0), dict[str, Any]()
    if state.kind == "done":
        try:
            found: Any = read_json(folder / RESULT_NAME)
            metric = str(found["metric"])
            result = {"metric": metric, "test": float(found["metrics"]["test"][metric])}
        except _WRONG:
            state = State("stopped", state.epoch, "", f"{RESULT_NAME} cannot be read; it is written anew")
    run, resume = folder.relative_to(home.runs).as_posix(), None
    if state.kind in {"stopped", "failed"}:
        elsewhere = "" if home == Home.locate() else f" --home {shlex.quote(str(home.root))}"
        resume = f"kmip-data train --resume {shlex.quote(run)}{elsewhere}"
    return Listed(
        path=folder,
        dataset=dataset,
        model=model,
        name=name,
        state=state.kind,
        epoch=state.epoch,
        epochs=epochs,
        begun=timestamp(begun),
        left=state.left,
        reason=state.reason,
        resume=resume,
        **result,
    )
