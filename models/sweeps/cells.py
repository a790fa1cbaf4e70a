"""From a plan to its cells: one run each, with its checked configuration, its folder and its command."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from kmip_data.builds.find import find, record_parameters
from kmip_data.builds.home import Home
from kmip_data.errors import UsageError
from kmip_data.files.digests import json_digest
from kmip_data.manifest import dataset_names, load_manifest, no_recipe
from kmip_data.models.sweeps.plan import Change, Plan
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.models.training.config.overrides import apply_overrides, with_epochs
from kmip_data.models.training.config.presets import config_for, folder_of

UNCHANGED = Change.model_construct(name="")  #: of a plan without changes


@dataclass(frozen=True)
class Cell:
    """One run of a sweep."""

    dataset: str  #: as the plan calls it
    model: str
    change: str  #: empty where the plan has none
    seed: int
    config: RunConfig
    folder: Path  #: of the run
    command: tuple[str, ...]  #: the arguments of ``kmip-data`` that begin it


def cells_of(plan: Plan, home: Home) -> list[Cell]:
    """Return every cell of a plan in its order: by dataset, model, change and seed.

    Raises ``UsageError`` where a dataset, model, variant or key is not there, a value is wrong, or the plan
    has no cell.
    """
    axes = product(dict.fromkeys(plan.datasets), dict.fromkeys(plan.models), plan.changes or (UNCHANGED,))
    found = [
        cell
        for dataset, model, change in axes
        if model in (change.models or (model,)) and dataset in (change.datasets or (dataset,))
        for cell in _cells(plan, dataset, model, change, home)
    ]
    if not found:
        raise UsageError(
            f"The sweep {plan.name} has no run.",
            expected="a change for one of its models and datasets",
            found=f"models {', '.join(plan.models)}; datasets {', '.join(plan.datasets)}",
            next="another --model or --dataset",
        )
    return found


def _cells(plan: Plan, dataset: str, model: str, change: Change, home: Home) -> Iterator[Cell]:
    """One cell a seed."""
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
    """Return what tells configurations apart, whatever the seed: of keys that are not the defaults.

    So a version with further keys finds the runs of this one.
    """
    if getattr(config.model.attention, "warm_start", None) is False:  # the default before there was none
        config = apply_overrides(config, ["model.attention.warm_start=none"])
    values = config.model_dump(mode="json", exclude_defaults=True, exclude={"preset", "variant", "version"})
    kinds = [config.model.attention.kind, config.model.local.kind]  # a default of one is not that of another
    return json_digest([values, kinds])[:8]


def _label(config: RunConfig, home: Home) -> str:
    """Name of the folder of the dataset's runs; a UsageError where there are no such data."""
    data = config.data
    if data.dataset in dataset_names():
        no_recipe(load_manifest(data.dataset))
        record_parameters(data.dataset, data.parameters)
        return f"{data.dataset}-sample" if data.sample else data.dataset
    return find(data.dataset, data.parameters, home=home, sample=data.sample).card.label
