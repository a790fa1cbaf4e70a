"""Cells of a sweep: one run each, with its checked configuration, its folder and its command."""

from __future__ import annotations

import contextlib
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from kmip_data.builds.home import Home
from kmip_data.errors import KmipDataError, UsageError
from kmip_data.files.reading import json_digest, read_small
from kmip_data.manifest import dataset_names, load_manifest, no_recipe
from kmip_data.models.sweeps.plan import MOST_RUNS, Change, Plan
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.models.training.config.overrides import apply_overrides, config_from_mapping, with_epochs
from kmip_data.models.training.config.presets import config_for, folder_of
from kmip_data.models.training.run.folder import CONFIG_NAME
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
    settings: str = ""  #: digest in the name of a run that was started with other options than these cells

    @property
    def series(self) -> Path:
        """Run folder without the seed: equal for all seeds of one configuration."""
        return self.folder.with_name(self.folder.name.rpartition("-seed")[0])


def cells_of(plan: Plan, home: Home) -> list[Cell]:
    """Return every cell of a plan in order: by dataset, model, change and seed.

    Raises ``UsageError`` if a dataset, model, variant or key does not exist, a value is wrong, or the plan
    has no run or more than ``MOST_RUNS``.
    """
    if not 0 < plan.runs <= MOST_RUNS:
        counts = ", ".join(
            f"{len(getattr(plan, x)):,} {x}" for x in ("datasets", "models", "changes", "seeds")
        )
        raise UsageError(
            f"The sweep {plan.name} has {plan.runs or 'no'} runs: {counts}.", next=f"1 to {MOST_RUNS:,} runs"
        )
    axes = product(dict.fromkeys(plan.datasets), dict.fromkeys(plan.models), plan.changes or (UNCHANGED,))
    return [
        cell
        for dataset, model, change in axes
        if model in (change.models or (model,)) and dataset in (change.datasets or (dataset,))
        for cell in _cells(plan, dataset, model, change, home)
    ]


def other_cells(plan: Plan, cells: Sequence[Cell], home: Home) -> list[Cell]:
    """Return the runs of this sweep on disk that are not among ``cells``: started with other options.

    Runs are recognised by their names; those whose configuration cannot be read are left out.
    """
    known, found = {cell.folder for cell in cells}, []
    for path in sorted(home.runs.glob(f"*/*/*/{CONFIG_NAME}")):
        folder = path.parent
        named = plan.run_names().fullmatch(folder.name)
        if named is None or folder in known:
            continue
        with contextlib.suppress(OSError, ValueError, RecursionError, KmipDataError):
            config = config_from_mapping(tomllib.loads(read_small(path).decode()), str(path))
            dataset, model, _ = folder.parts[-3:]
            change, seed = named["change"].removesuffix("-"), int(named["seed"])
            found.append(Cell(dataset, model, change, seed, config, folder, (), named["digest"]))
    return found


def _cells(plan: Plan, dataset: str, model: str, change: Change, home: Home) -> Iterator[Cell]:
    """Yield one cell for each seed."""
    target = str(folder_of(dataset) or dataset)
    variant, of = change.variant or plan.variant, plan.set_of
    settings = plan.set + of.get(dataset, ()) + of.get(model, ()) + change.set
    config = config_for(target, model, variant, home=home)
    if plan.epochs is not None:
        config = with_epochs(config, plan.epochs)
    config = apply_overrides(config, settings)
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
    values = config.model_dump(mode="json", exclude_defaults=True, exclude={"preset", "variant", "version"})
    kinds = [config.model.attention.kind, config.model.local.kind]  # kinds have defaults of their own
    return json_digest([values, kinds])[:8]


def _label(config: RunConfig, home: Home) -> str:
    """Return the name of the dataset's folder below ``runs``; raise UsageError without such a dataset."""
    data = config.data
    if data.dataset in dataset_names():
        no_recipe(load_manifest(data.dataset))
        record_parameters(data.dataset, data.parameters)
        return f"{data.dataset}-sample" if data.sample else data.dataset
    return find(data.dataset, data.parameters, home=home, sample=data.sample).card.label
