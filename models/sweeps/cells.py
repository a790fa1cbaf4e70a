"""Cells of a sweep: one run each, with its checked configuration, its folder and its command."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from kmip_data.builds.home import Home
from kmip_data.errors import UsageError
from kmip_data.files.reading import json_digest
from kmip_data.manifest import dataset_names, load_manifest, no_recipe
from kmip_data.models.sweeps.plan import MOST_RUNS, Change, Plan
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.models.training.config.overrides import apply_overrides, with_epochs
from kmip_data.models.training.config.presets import config_for, folder_of
from kmip_data.models.training.run.folder import RESULT_NAME, read_result
from kmip_data.pipelines.find import find, record_parameters

UNCHANGED = Change.model_construct(name="")  #: the one change of a plan without changes


@dataclass(frozen=True)
class Cell:
    """One run of a sweep."""

    dataset: str  #: as the plan names it
    model: str
    change: str  #: empty if the plan has none
    seed: int
    config: RunConfig
    folder: Path  #: run folder
    command: tuple[str, ...]  #: arguments of ``kmip-data`` that start the run

    @property
    def done(self) -> bool:
        """True if the run has its result."""
        return (self.folder / RESULT_NAME).is_file()


def cells_of(plan: Plan, home: Home) -> list[Cell]:
    """Return every cell of a plan in order: by dataset, model, change and seed.

    Raises ``UsageError`` if a dataset, model, variant or key does not exist, a value is wrong, or the plan
    has no run or more than ``MOST_RUNS``.
    """
    if plan.most_runs > MOST_RUNS:  # counted before anything is expanded
        raise UsageError(f"The sweep {plan.name} has {plan.most_runs:,} runs.", next=f"at most {MOST_RUNS:,}")
    axes = product(dict.fromkeys(plan.datasets), dict.fromkeys(plan.models), plan.changes or (UNCHANGED,))
    cells = list[Cell]()
    for dataset, model, change in axes:
        if change.applies(dataset, model):
            cells += _cells(plan, dataset, model, change, home)
    if not cells:
        raise UsageError(f"The sweep {plan.name} has no run.", next="kmip-data sweep NAME, or --dataset NAME")
    return cells


def _cells(plan: Plan, dataset: str, model: str, change: Change, home: Home) -> Iterator[Cell]:
    """Yield one cell for each seed."""
    target = str(folder_of(dataset) or dataset)
    variant, of = change.variant or plan.variant, plan.set_of
    settings = plan.set + of.get(dataset, ()) + of.get(model, ()) + change.set
    config = config_for(target, model, variant, home=home)
    if plan.epochs is not None:
        config = with_epochs(config, plan.epochs)
    config = apply_overrides(config, settings).with_plugins()
    parent = home.runs / _label(config, home) / config.model.name
    stem = f"{plan.name}-{change.name and f'{change.name}-'}{digest(config)}"
    options = ["--as", variant, *(["--epochs", str(plan.epochs)] if plan.epochs is not None else [])]
    options += [word for item in settings for word in ("--set", item)]
    for seed in dict.fromkeys(plan.seeds):
        name = f"{stem}-seed{seed}"
        own = ("--seeds", str(seed), "--name", name, "--home", str(home.root))
        command = ("train", "--dataset", target, "--model", model, *options, *own)
        yield Cell(dataset, model, change.name, seed, config.with_seed(seed), parent / name, command)


def digest(config: RunConfig) -> str:
    """Return the digest of the keys that are not at their defaults, seed left out.

    Defaults are left out so that a later version with more keys finds the runs of this one.
    """
    if getattr(config.model.attention, "warm_start", None) is False:  # speed of the search, not its result
        config = apply_overrides(config, ["model.attention.warm_start=none"])
    out = {"preset", "variant", "version", "plugins"}
    values = config.model_dump(mode="json", exclude_defaults=True, exclude=out)
    kinds = [config.model.attention.kind, config.model.local.kind]  # kinds have defaults of their own
    code = [plugin.sha256 for plugin in config.plugins or ()]  # wherever its file lies
    return json_digest([values, kinds, *code])[:8]


def _label(config: RunConfig, home: Home) -> str:
    """Return the name of the dataset's folder below ``runs``; raise UsageError without such a dataset."""
    data = config.data
    if data.dataset in dataset_names():
        no_recipe(load_manifest(data.dataset))
        record_parameters(data.dataset, data.parameters)
        return f"{data.dataset}-sample" if data.sample else data.dataset
    return find(data.dataset, data.parameters, home=home, sample=data.sample).card.label


def best_on_val(cells: Iterable[Cell]) -> dict[tuple[str, str], str]:
    """Return the change with the best mean on val for each dataset and model, of those that are done."""
    changes: dict[tuple[str, str], dict[str, Mean]] = {}
    for (dataset, model, change), mean in _means_on_val(cells).items():
        changes.setdefault((dataset, model), {})[change] = mean
    return {key: _winner(means) for key, means in changes.items()}


def best_of_each(plan: Plan, cells: list[Cell], home: Home) -> list[Cell]:
    """Return the cells of the combined change, for each dataset and model whose cells are all done.

    Changes of the same keys are one axis. On each axis the best mean on val wins, among its changes and the
    run without any; of equal ones the first in the plan. Only results on disk decide, so that a sweep that
    was killed makes the same choice. If at most one axis gains, the combination exists already: no cells.
    """
    found, means = list[Cell](), _means_on_val(cells)
    for dataset, model in dict.fromkeys((cell.dataset, cell.model) for cell in cells):
        changes = {change.name: change for change in plan.changes if change.applies(dataset, model)}
        if any((dataset, model, name) not in means for name in changes):
            continue
        winners = set()
        for axis in {change.keys for change in changes.values()}:
            rivals = [name for name, change in changes.items() if change.keys in {axis, frozenset()}]
            winners.add(_winner({name: means[dataset, model, name] for name in rivals}))
        gained = [change for name, change in changes.items() if change.set and name in winners]
        if len(gained) > 1:
            both = Change(name=str(plan.then), set=tuple(item for change in gained for item in change.set))
            one = plan.model_copy(update={"datasets": (dataset,), "models": (model,), "changes": (both,)})
            found += cells_of(one, home)
    return found


Mean = tuple[str, float]  #: a metric, and its mean over seeds


def _means_on_val(cells: Iterable[Cell]) -> dict[tuple[str, str, str], Mean]:
    """Return the mean on val of each dataset, model and change whose seeds are all done."""
    groups: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.dataset, cell.model, cell.change), []).append(cell)
    found = {}
    for key, group in groups.items():
        if all(cell.done for cell in group):
            results = [read_result(cell.folder) for cell in group]
            metric = results[0].metric
            values = [result.metrics.get("val", {}).get(metric, float("nan")) for result in results]
            found[key] = metric, statistics.fmean(values)
    return found


def _winner(means: dict[str, Mean]) -> str:
    """Return the name of the best mean; of equal ones the first."""
    from kmip_data.models.training.metrics import is_better

    best, highest = next(iter(means)), None
    for name, (metric, mean) in means.items():
        if is_better(metric, mean, highest):  # NaN, of a part without records, never is
            best, highest = name, mean
    return best
