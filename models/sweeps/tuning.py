"""A search of settings by Optuna: its trials are cells, bad ones end early, and what was tried is on disk."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kmip_data.builds.home import Home
from kmip_data.builds.options import BuildArguments
from kmip_data.errors import UsageError
from kmip_data.files.locking import build_lock
from kmip_data.models.sweeps.cells import Cell, cells_of
from kmip_data.models.sweeps.plan import Change, Plan
from kmip_data.models.sweeps.running import LOOK, Running, begin_cell, ending, give_reason, told, with_data
from kmip_data.models.sweeps.state import PRUNED, is_done, log_of
from kmip_data.models.training.objective.metrics import METRICS
from kmip_data.models.training.run.folders import metrics_columns
from kmip_data.models.training.run.result import read_result
from kmip_data.runtime.progress import Progress

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study
    from optuna.trial import Trial

JOURNAL = "optuna.journal"  #: in the sweep's folder: every study of it


def tune_cells(
    plan: Plan,
    *,
    home: Home,
    folder: Path,
    places: list[dict[str, str]],
    trials: int,
    options: BuildArguments,
) -> None:
    """Try settings of ``plan.space`` until each dataset and model has so many trials, old ones counted.

    The objective is the best value on val of one run, with the first seed; after each evaluation a trial
    that is worse than the median of the others at that epoch is ended. ``places``: :func:`.places_of`.

    Raises ``UsageError`` where the plan has no space, a key or value of it is not a configuration's, or the
    metric is not named.
    """
    if not plan.space:
        raise UsageError(
            f"The plan {plan.name} has nothing to tune.",
            expected='[space] with keys, such as "optimiser.lr" = { low = 1e-4, high = 1e-2, log = true }',
            found="no [space]",
            next="docs/sweeps.md says what it holds",
        )
    bases = _bases(plan, home)
    for base in bases:
        _metric(base)
        for end in (0, -1):
            _cell(plan, base, 0, {key: space.ends[end] for key, space in plan.space.items()}, home)
    quiet = options.get("quiet", False)
    folder.mkdir(parents=True, exist_ok=True)
    with build_lock(folder / "data", quiet=quiet):
        bases = with_data(bases, home, folder, options)
    with build_lock(folder / JOURNAL, quiet=quiet):  # a second tuner waits, then finds the trials done
        for base in bases:
            study = _study(base, folder, plan.seeds[0])
            done = sum(trial.state.is_finished() for trial in study.trials)
            with Progress(study.study_name, trials, unit="trials", initial=done, quiet=quiet) as bar:
                _search(plan, base, home, folder, study, [*places], trials, bar)


def tried(plan: Plan, *, home: Home, folder: Path) -> list[Cell]:
    """Return the cells of all trials there are, in their order."""
    if not (folder / JOURNAL).is_file():
        return []
    return [
        _cell(plan, base, trial.number, trial.params, home)
        for base in _bases(plan, home)
        for trial in _study(base, folder, 0).trials
    ]


@dataclass
class _Tried:
    """A trial whose cell runs."""

    trial: Trial
    cell: Cell
    reported: int  #: values of the cell that Optuna knows of
    pruned: bool = False


def _search(
    plan: Plan,
    base: Cell,
    home: Home,
    folder: Path,
    study: Study,
    places: list[dict[str, str]],
    trials: int,
    bar: Progress,
) -> None:
    """Begin trials of one dataset and model and look at those that run, until there are so many."""
    from optuna.trial import Trial

    begun = [trial for trial in study.trials if not trial.state.is_finished()]  # by a tuner that was killed
    waiting = [Trial(study, trial._trial_id) for trial in begun]  # noqa: SLF001 -- optuna has no other way
    known = {trial.number: len(trial.intermediate_values) for trial in begun}
    running, trying, share = Running(), dict[Path, _Tried](), 1 if any(places) else len(places)
    with ending(running, quiet=bar.quiet):
        while running or waiting or len(study.trials) < trials:
            for place, (process, held) in list(running.items()):
                if _has_ended(trying[place], study, process, log_of(trying[place].cell, folder)):
                    held.close()
                    del running[place]
                    bar.update(1)
                    bar.message(told(trying[place].cell, folder))
            while places and (waiting or len(study.trials) < trials):
                waiting = waiting or [study.ask(_distributions(plan))]
                cell = _cell(plan, base, waiting[0].number, waiting[0].params, home)
                if is_done(cell):
                    study.tell(waiting[0], _objective(cell))
                    bar.update(1)
                elif not begin_cell(cell, running, folder, places, share):
                    break  # it lives on from a tuner that was killed
                trying[cell.folder] = _Tried(waiting[0], cell, known.get(waiting[0].number, 0))
                del waiting[0]
            time.sleep(LOOK)


def _has_ended(one: _Tried, study: Study, process: subprocess.Popen[bytes], log: Path) -> bool:
    """Tell Optuna what a trial did since the last look, end it if that is bad; whether it has ended."""
    from optuna.trial import TrialState

    ended = process.poll() is not None
    values = metrics_columns(one.cell.folder).get(f"val_{_metric(one.cell)}", [])
    for epoch, value in values[one.reported :]:
        one.trial.report(value, epoch - 1)
    one.reported = len(values)
    if not ended:
        if not one.pruned and one.trial.should_prune():
            one.pruned = True
            process.terminate()
    elif is_done(one.cell):
        study.tell(one.trial, _objective(one.cell))
    elif one.pruned:
        with log.open("a", encoding="utf-8") as file:
            file.write(f"\n{PRUNED}worse than the median of the trials at epoch {values[-1][0]}\n")
        study.tell(one.trial, state=TrialState.PRUNED)
    else:
        give_reason(one.cell, process.returncode, log)
        study.tell(one.trial, state=TrialState.FAIL)
    return ended


def _bases(plan: Plan, home: Home) -> list[Cell]:
    """The cell of each dataset and model without a change."""
    return cells_of(plan.model_copy(update={"changes": (), "seeds": plan.seeds[:1]}), home)


def _cell(plan: Plan, base: Cell, number: int, values: dict[str, Any], home: Home) -> Cell:
    words = {key: str(value).lower() if isinstance(value, bool) else value for key, value in values.items()}
    change = Change(name=f"trial-{number}", set=tuple(f"{key}={value}" for key, value in words.items()))
    own = {"datasets": (base.dataset,), "models": (base.model,), "changes": (change,), "seeds": (base.seed,)}
    return cells_of(plan.model_copy(update=own), home)[0]


def _study(base: Cell, folder: Path, seed: int) -> Study:
    """The study of a base cell: other settings or epochs of the plan are another."""
    import optuna
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = optuna.storages.JournalStorage(JournalFileBackend(str(folder / JOURNAL)))
    better: dict[str, Literal["maximize", "minimize"]] = {"higher": "maximize", "lower": "minimize"}
    direction = better[METRICS[_metric(base)].better]
    name = log_of(base, folder).stem
    study = optuna.create_study(storage=storage, study_name=name, load_if_exists=True, direction=direction)
    study.pruner = optuna.pruners.MedianPruner()
    # The sampler draws anew when it goes on, and not what it has drawn before.
    study.sampler = optuna.samplers.TPESampler(seed=seed + len(study.trials))
    return study


def _distributions(plan: Plan) -> dict[str, BaseDistribution]:
    from optuna import distributions as of

    found: dict[str, BaseDistribution] = {}
    for key, space in plan.space.items():
        low, high = space.ends[0], space.ends[-1]
        if space.choices:
            found[key] = of.CategoricalDistribution(space.choices)
        elif isinstance(low, int) and isinstance(high, int):
            found[key] = of.IntDistribution(low, high, log=space.log)
        else:
            found[key] = of.FloatDistribution(low, high, log=space.log)
    return found


def _metric(cell: Cell) -> str:
    """The metric that chooses the epoch."""
    if (metric := cell.config.training.metric) is None:
        raise UsageError(
            f"The metric of {cell.dataset} is not named.",
            expected=f"one of {', '.join(METRICS)}",
            found="the usual one for the targets, which shows when a run begins",
            next="--set training.metric=accuracy, or whichever it is",
        )
    return metric


def _objective(cell: Cell) -> float:
    return read_result(cell.folder).metrics["val"][_metric(cell)]
