"""Select run folders by the names of sweeps and runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from kmip_data.builds.home import Home
from kmip_data.models.sweeps.plans import UNNAMED_SWEEP, SweepPlan, read_sweep_plan, sweep_names
from kmip_data.models.training.run.find_runs import find_runs
from kmip_data.models.training.run.run_folder import RESULT_NAME


def select_runs(names: Sequence[str], home: Home) -> list[Path]:
    """Return the run folders of sweeps, datasets, models on a dataset, and runs, given by name.

    Without names, return all finished runs. Raises ``UsageError`` for an unknown name.
    """
    if not names:
        return home.run_folders(RESULT_NAME)
    folders = []
    for name in names:
        if name == UNNAMED_SWEEP:
            folders += find_plan_runs(read_sweep_plan(None), home)
        elif name in sweep_names() or name.endswith(".toml"):
            folders += find_plan_runs(read_sweep_plan(name), home)
        elif "/" not in name and (home.path / "sweeps" / name).is_dir():
            folders += find_sweep_runs(name, home)  # runs of a user's plan, by its name
        else:
            folders += home.runs_below(name) or find_runs(name, home)
    return list(dict.fromkeys(folders))


def find_plan_runs(plan: SweepPlan, home: Home) -> list[Path]:
    """Find the run folders of a sweep, including runs started with other options."""
    return _find_runs_of_sweep(plan.name, plan.run_names(), home)


def find_sweep_runs(sweep: str, home: Home) -> list[Path]:
    """Find the run folders of a sweep by its name, without its plan."""
    pattern = re.compile(rf"{re.escape(sweep)}-(.+-)?[0-9a-f]{{8}}-seed[0-9]{{1,10}}")
    return _find_runs_of_sweep(sweep, pattern, home)


def _find_runs_of_sweep(sweep: str, pattern: re.Pattern[str], home: Home) -> list[Path]:
    """Find run folders by their names, which may also begin with the name of a longer-named sweep."""
    sweeps = [*sweep_names(), *(path.name for path in home.path.glob("sweeps/*/"))]
    longer_names = tuple(f"{name}-" for name in sweeps if name.startswith(f"{sweep}-"))
    return [
        folder
        for folder in home.run_folders()
        if pattern.fullmatch(folder.name) and not folder.name.startswith(longer_names)
    ]
