"""Plans of sweeps, shipped, written by a user or by options alone; and their cells, one run each."""

from __future__ import annotations

import re
import statistics
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from kmip_data.builds.home import Home
from kmip_data.errors import UsageError
from kmip_data.files.reading import first_fault, json_digest, read_small
from kmip_data.manifest import (
    Strict,
    dataset_names,
    load_manifest,
    no_recipe,
    read_shipped,
    shipped_names,
    unknown_name,
)
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.models.training.config.overrides import apply_overrides, with_epochs
from kmip_data.models.training.config.presets import config_for, folder_of
from kmip_data.models.training.run.folder import RESULT_NAME, read_result
from kmip_data.pipelines.find import find, record_parameters

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$")]
Names = Annotated[tuple[str, ...], Field(min_length=1, max_length=1_000)]
MOST_RUNS: Final = 10_000  #: in one sweep; checked before anything is expanded
_MOST_BYTES: Final = 2**20  #: size of a plan file; 10,000 runs need a few kB
UNNAMED: Final = "sweep"  #: name of a sweep without a plan file: prefix of its runs, and its folder


class Change(Strict):
    """One variation of every run of a plan."""

    name: Name
    set: tuple[str, ...] = Field(default=(), description="KEY=VALUE, after those of the plan")
    variant: str = Field(default="", description="variant of the preset; empty: the plan's")
    models: tuple[str, ...] = Field(default=(), description="for these alone; empty: for all")
    datasets: tuple[str, ...] = Field(default=(), description="on these alone; empty: on all")

    def applies(self, dataset: str, model: str) -> bool:
        """Return True if runs of ``model`` on ``dataset`` have this change."""
        return dataset in (self.datasets or (dataset,)) and model in (self.models or (model,))

    @property
    def keys(self) -> frozenset[str]:
        """Keys that are set."""
        return frozenset(item.partition("=")[0].strip() for item in self.set)


class Plan(Strict):
    """Runs of a sweep: datasets × models × changes × seeds."""

    name: Name = Field(description="stem of the file; set when it is read, never in it")
    about: str
    datasets: Names
    models: Names
    seeds: tuple[Annotated[int, Field(ge=0, lt=2**32)], ...] = Field(
        min_length=1
    )  #: in the file also "0..4"
    epochs: int | None = Field(default=None, ge=1, description="none: the preset's")
    variant: str = Field(default="code", description="variant of the presets")
    set: tuple[str, ...] = Field(default=(), description="KEY=VALUE of every run")
    set_of: dict[str, tuple[str, ...]] = Field(
        default={}, description="KEY=VALUE by dataset or model"
    )
    changes: tuple[Change, ...] = Field(
        default=(), description="one run each; none: the presets unchanged"
    )
    choose: Literal["validation"] | None = Field(
        default=None, description="mark the change best on val"
    )
    then: Literal["best-of-each"] | None = Field(
        default=None, description="one more change: the best value on val of every changed key"
    )

    @property
    def most_runs(self) -> int:
        """Number of runs if every change applied to all models and datasets."""
        return (
            len(self.datasets) * len(self.models) * max(1, len(self.changes)) * len({*self.seeds})
        )

    @field_validator("seeds", mode="before")
    @classmethod
    def _range(cls, value: Any) -> Any:
        first, dots, last = str(value).partition("..")
        if not dots:
            return value
        if (count := int(last) - int(first) + 1) > MOST_RUNS:
            raise ValueError(
                f"{count:,} seeds, which is more than the {MOST_RUNS:,} runs of a sweep"
            )
        return tuple(range(int(first), int(last) + 1))

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        if self.most_runs > MOST_RUNS:
            raise ValueError(
                f"{self.most_runs:,} runs, which is more than the {MOST_RUNS:,} of a sweep"
            )
        if other := {*self.set_of} - {*self.models, *self.datasets}:
            raise ValueError(f"set_of has {', '.join(sorted(other))}, which the plan has not")
        runs = set[tuple[str, str, str]]()
        for change in self.changes:
            if other := {*change.models} - {*self.models} | {*change.datasets} - {*self.datasets}:
                raise ValueError(
                    f"{change.name} is for {', '.join(sorted(other))}, which the plan has not"
                )
            own = {
                *product(
                    [change.name], change.models or self.models, change.datasets or self.datasets
                )
            }
            if runs & own:
                raise ValueError("two changes have one name")
            if self.then and (change.variant or change.name == self.then):
                raise ValueError(
                    f"then takes changes of keys alone, none of them called {self.then}"
                )
            runs |= own
        return self

    def run_names(self) -> re.Pattern[str]:
        """Return the pattern of the names of this sweep's runs, with any options."""
        names = [*(change.name for change in self.changes), *filter(None, [self.then])]
        changes = "|".join(f"{re.escape(name)}-" for name in names)
        return re.compile(f"{re.escape(self.name)}-({changes})?[0-9a-f]{{8}}-seed[0-9]{{1,10}}")


def sweep_names() -> list[str]:
    """Names of the shipped plans, sorted."""
    return shipped_names("sweeps")


def read_plan(name: str | None) -> Plan:
    """Read a shipped plan by its name, or a file that ends in ``.toml``; None is a plan without datasets.

    Raises ``UsageError`` if there is no such plan or file, or a key or value of it is wrong.
    """
    if name is None:
        return Plan.model_construct(
            name=UNNAMED, about="", datasets=(), models=("gps-kmip",), seeds=(0,)
        )
    if not name.endswith(".toml"):
        if name not in sweep_names():
            raise unknown_name(
                "sweep", name, sweep_names(), command="kmip-data sweep NAME, or FILE.toml"
            )
        return Plan.model_validate({**read_shipped("sweeps", name), "name": name})
    try:
        values = tomllib.loads(read_small(Path(name), _MOST_BYTES).decode())
        return Plan.model_validate({**values, "name": Path(name).stem})
    except (OSError, ValueError, RecursionError) as error:  # pydantic's is a ValueError
        raise UsageError(
            f"The plan {name} cannot be used.",
            expected="TOML with the keys of docs/sweeps.md",
            found=first_fault(error),
            next=f"correct the file, or use one of {', '.join(sweep_names())}",
        ) from error


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
        raise UsageError(
            f"The sweep {plan.name} has {plan.most_runs:,} runs.", next=f"at most {MOST_RUNS:,}"
        )
    axes = product(
        dict.fromkeys(plan.datasets), dict.fromkeys(plan.models), plan.changes or (UNCHANGED,)
    )
    cells = list[Cell]()
    for dataset, model, change in axes:
        if change.applies(dataset, model):
            cells += _cells(plan, dataset, model, change, home)
    if not cells:
        raise UsageError(
            f"The sweep {plan.name} has no run.", next="kmip-data sweep NAME, or --dataset NAME"
        )
    return cells


def _cells(plan: Plan, dataset: str, model: str, change: Change, home: Home) -> Iterator[Cell]:
    target = str(folder_of(dataset) or dataset)
    variant, of = change.variant or plan.variant, plan.set_of
    settings = plan.set + of.get(dataset, ()) + of.get(model, ()) + change.set
    config = config_for(target, model, variant, home=home)
    if plan.epochs is not None:
        config = with_epochs(config, plan.epochs)
    config = apply_overrides(config, settings).with_plugins()
    parent = home.runs / _label(config, home) / config.model.name
    stem = f"{plan.name}-{change.name and f'{change.name}-'}{digest(config)}"
    options = [
        "--as",
        variant,
        *(["--epochs", str(plan.epochs)] if plan.epochs is not None else []),
    ]
    options += [word for item in settings for word in ("--set", item)]
    for seed in dict.fromkeys(plan.seeds):
        name = f"{stem}-seed{seed}"
        own = ("--seeds", str(seed), "--name", name, "--home", str(home.root))
        command = ("train", "--dataset", target, "--model", model, *options, *own)
        yield Cell(
            dataset, model, change.name, seed, config.with_seed(seed), parent / name, command
        )


def digest(config: RunConfig) -> str:
    """Return the digest of the keys that are not at their defaults, seed left out.

    Defaults are left out so that a later version with more keys finds the runs of this one.
    """
    if (
        getattr(config.model.attention, "warm_start", None) is False
    ):  # speed of the search, not its result
        config = apply_overrides(config, ["model.attention.warm_start=none"])
    out = {"preset", "variant", "version", "plugins"}
    values = config.model_dump(mode="json", exclude_defaults=True, exclude=out)
    kinds = [
        config.model.attention.kind,
        config.model.local.kind,
    ]  # kinds have defaults of their own
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
            rivals = [
                name for name, change in changes.items() if change.keys in {axis, frozenset()}
            ]
            winners.add(_winner({name: means[dataset, model, name] for name in rivals}))
        gained = [change for name, change in changes.items() if change.set and name in winners]
        if len(gained) > 1:
            both = Change(
                name=str(plan.then), set=tuple(item for change in gained for item in change.set)
            )
            one = plan.model_copy(
                update={"datasets": (dataset,), "models": (model,), "changes": (both,)}
            )
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
