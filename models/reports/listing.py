"""Runs of a home: found by name, and listed with their state, result and the command that resumes them."""

from __future__ import annotations

import contextlib
import glob
import shlex
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kmip_data.builds.home import Home
from kmip_data.files.reading import read_json, read_small
from kmip_data.models.sweeps.plan import UNNAMED, read_plan, sweep_names
from kmip_data.models.sweeps.state import State, state_of_run
from kmip_data.models.training.run.folder import CONFIG_NAME, RESULT_NAME, find_run
from kmip_data.wording import timestamp

#: Errors of reading untrusted files without their pydantic models, which would load PyTorch.
_WRONG = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError)


def folders_of(names: Sequence[str], home: Home) -> list[Path]:
    """Return the run folders that ``names`` mean: sweeps or runs; without names, all finished runs.

    Raises ``UsageError`` if a name is neither a sweep nor a run.
    """
    if not names:
        return sorted(path.parent for path in home.runs.glob(f"*/*/*/{RESULT_NAME}"))
    sweeps, found = [*sweep_names(), UNNAMED], dict[Path, None]()
    configs = sorted(home.runs.glob(f"*/*/*/{CONFIG_NAME}"))
    for name in names:
        if name in sweeps or name.endswith(".toml"):
            pattern = read_plan(None if name == UNNAMED else name).run_names()
            found |= dict.fromkeys(path.parent for path in configs if pattern.fullmatch(path.parent.name))
            continue
        found[find_run(name, home)] = None
    return [*found]


def list_runs(home: Home) -> list[dict[str, Any]]:
    """Return the runs below ``home.runs``, the latest first.

    Of each ``path``, ``dataset``, ``model``, ``name``, ``state``, ``epoch`` (that are done), ``epochs``,
    ``begun``, ``metric`` (that chose the epoch), ``test`` (its value), ``left`` (estimated time), ``reason``
    (of a failure) and ``resume``: the command that resumes it, unless it runs or is done.
    """
    configs = [path for path in home.runs.glob(f"*/*/*/{CONFIG_NAME}") if path.is_file()]
    found = sorted(((path.stat().st_mtime, path.parent) for path in configs), reverse=True)
    return [_listed(home, folder, begun) for begun, folder in found]


def _listed(home: Home, folder: Path, begun: float) -> dict[str, Any]:
    dataset, model, name = folder.parts[-3:]
    epochs = None
    with contextlib.suppress(*_WRONG):
        epochs = int(tomllib.loads(read_small(folder / CONFIG_NAME).decode())["training"]["epochs"])
    log = next(home.root.glob(f"sweeps/*/{glob.escape(f'{dataset}.{model}.{name}')}.log"), None)
    state, metric, test = state_of_run(folder, log, epochs or 0), None, None
    if state.kind == "done":
        try:
            found: Any = read_json(folder / RESULT_NAME)
            metric = str(found["metric"])
            test = float(found["metrics"]["test"][metric])
        except _WRONG:
            why = f"{RESULT_NAME} cannot be read; resuming writes it again"
            state, metric = State("stopped", state.epoch, "", why), None
    run, resume = folder.relative_to(home.runs).as_posix(), None
    if state.kind in {"stopped", "failed"}:
        elsewhere = "" if home == Home.locate() else f" --home {shlex.quote(str(home.root))}"
        resume = f"kmip-data train --resume {shlex.quote(run)}{elsewhere}"
    about = {"path": folder, "dataset": dataset, "model": model, "name": name, "state": state.kind}
    far = {"epoch": state.epoch, "epochs": epochs, "begun": timestamp(begun), "metric": metric, "test": test}
    return {**about, **far, "left": state.left, "reason": state.reason, "resume": resume}
