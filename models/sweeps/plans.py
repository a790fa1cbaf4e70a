"""Plans of sweeps (shipped, from a file or from options) and the runs that they list."""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from kmip_data.builds.home import Home, path_or_none
from kmip_data.errors import Command, Setting, UsageError
from kmip_data.files.path_errors import absent_file_error
from kmip_data.files.small_files import (
    first_problem,
    json_digest,
    read_toml,
    unknown_key_error,
)
from kmip_data.format.card import label_of_dataset
from kmip_data.manifest import dataset_names, load_manifest, require_dataset
from kmip_data.models.training.config.compose import compose_configuration
from kmip_data.models.training.config.overrides import grid_values
from kmip_data.models.training.config.presets import default_model
from kmip_data.models.training.config.run_config import RunConfig
from kmip_data.models.training.metrics import is_better
from kmip_data.models.training.run.result import read_result, refuse_edited
from kmip_data.models.training.run.run_folder import RESULT_NAME
from kmip_data.pipelines.find_builds import find_build, parameters_with_defaults
from kmip_data.strict_model import StrictModel, read_shipped, shipped_names

RunName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$")]
Names = Annotated[tuple[str, ...], Field(min_length=1, max_length=1_000)]
MAX_RUNS = 10_000  #: largest number of runs in a sweep, checked before expanding it


def _parse_seed_range(value: object) -> object:
    """Parse a range of seeds such as ``0..4``; return any other value unchanged."""
    first, dots, last = str(value).partition("..")
    if not dots:
        return value
    if (count := int(last) - int(first) + 1) > MAX_RUNS:
        raise ValueError(f"{count:,} seeds, which is more than the {MAX_RUNS:,} runs of a sweep")
    return tuple(range(int(first), int(last) + 1))


def _refuse_table(value: object) -> object:
    """Refuse a table; return any other value unchanged."""
    if isinstance(value, dict):
        raise ValueError('it is a list of strings, set = ["optimizer.lr=1e-3"], not a table')  # noqa: TRY004 -- pydantic's
    return value


Settings = Annotated[tuple[str, ...], BeforeValidator(_refuse_table)]
Seeds = Annotated[
    tuple[Annotated[int, Field(ge=0, lt=2**32)], ...],
    Field(min_length=1),
    BeforeValidator(_parse_seed_range),
]
UNNAMED_SWEEP = "sweep"  #: name of a sweep without a plan file: prefix of its runs, and its folder


class Change(StrictModel):
    """A variation of the runs of a plan."""

    name: RunName
    set: Settings = Field(default=(), description="KEY=VALUE, applied after the plan's")
    variant: str = Field(default="", description="variant of the preset; empty: the plan's")
    models: tuple[str, ...] = Field(default=(), description="only for these; empty: for all")
    datasets: tuple[str, ...] = Field(default=(), description="only on these; empty: on all")

    def applies_to(self, dataset: str, model: str) -> bool:
        """True if the change applies to ``model`` on ``dataset``."""
        return dataset in (self.datasets or (dataset,)) and model in (self.models or (model,))

    @property
    def keys(self) -> frozenset[str]:
        """Configuration keys that the change sets."""
        return frozenset(item.partition("=")[0].strip() for item in self.set)


class SweepPlan(StrictModel):
    """Runs of a sweep: datasets × models × changes × seeds."""

    name: RunName = Field(description="stem of the file, set on reading")
    about: str = ""
    datasets: Names
    models: Names
    seeds: Seeds  #: a range such as "0..4" in a file
    seeds_of: dict[str, Seeds] = Field(
        default={}, description="other seeds for a model or DATASET/MODEL"
    )
    leave_out: tuple[str, ...] = Field(default=(), description="models, or DATASET/MODEL, to skip")
    epochs: int | None = Field(default=None, ge=1, description="none: the preset's")
    variant: str = Field(
        default="", description="variant of the presets; empty: the one of the paper's result"
    )
    set: Settings = Field(default=(), description="KEY=VALUE for every run")
    set_of: dict[str, tuple[str, ...]] = Field(
        default={}, description="KEY=VALUE by dataset or model"
    )
    changes: tuple[Change, ...] = Field(
        default=(), description="variations, one run each; empty: the unchanged presets"
    )
    choose: Literal["validation"] | None = Field(
        default=None, description="mark the best change on val"
    )
    then: Literal["best-of-each"] | None = Field(
        default=None, description="also combine the best value on val of every changed key"
    )

    @property
    def max_runs(self) -> int:
        """Number of runs if every change applied to all models and datasets."""
        seeds = max(len({*seeds}) for seeds in (self.seeds, *self.seeds_of.values()))
        models = max(1, len(self.models))
        return len(self.datasets) * models * max(1, len(self.changes)) * seeds

    def includes(self, dataset: str, model: str) -> bool:
        """True unless the plan skips ``model`` on ``dataset``."""
        return not {model, f"{dataset}/{model}"} & {*self.leave_out}

    def seeds_on(self, dataset: str, model: str) -> tuple[int, ...]:
        """Return the seeds of ``model`` on ``dataset``."""
        model_seeds = self.seeds_of.get(model, self.seeds)
        return self.seeds_of.get(f"{dataset}/{model}", model_seeds)

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        if self.max_runs > MAX_RUNS:
            raise ValueError(
                f"{self.max_runs:,} runs, which is more than the {MAX_RUNS:,} of a sweep"
            )

        # 1. Models, datasets, and DATASET/MODEL must be in the plan.
        model_names = {*self.models}
        for dataset, model in itertools.product(self.datasets, self.models):
            model_names.add(f"{dataset}/{model}")
        valid_names = {
            "set_of": {*self.models, *self.datasets},
            "seeds_of": model_names,
            "leave_out": model_names,
        }
        for key, names in valid_names.items():
            if unknown := {*getattr(self, key)} - names:
                raise ValueError(
                    f"{key} has {', '.join(sorted(unknown))}, which is not in the plan"
                )

        # 2. Changes may share a name only if they are for different models or datasets.
        runs = set[tuple[str, str, str]]()
        for change in self.changes:
            if unknown := {*change.models} - {*self.models} | {*change.datasets} - {*self.datasets}:
                raise ValueError(
                    f"{change.name} is for {', '.join(sorted(unknown))}, which is not in the plan"
                )
            models = change.models or self.models
            datasets = change.datasets or self.datasets
            change_runs = set(itertools.product([change.name], models, datasets))
            if runs & change_runs:
                raise ValueError("two changes have the same name")
            if self.then and (change.variant or change.name == self.then):
                raise ValueError(
                    f"then combines only changes of keys, none of them called {self.then}"
                )
            runs |= change_runs
        return self

    def run_names(self) -> re.Pattern[str]:
        """Return the pattern of the names of this sweep's runs, for any options.

        The options of a plan without changes may be a grid, which names its own.
        """
        names = [*(change.name for change in self.changes), *filter(None, [self.then])]
        changes = "|".join(f"{re.escape(name)}-" for name in names) if self.changes else ".+-"
        return re.compile(f"{re.escape(self.name)}-({changes})?[0-9a-f]{{8}}-seed[0-9]{{1,10}}")


def add_grid(plan: SweepPlan, settings: Iterable[str]) -> SweepPlan:
    """Return a plan with settings of the command line, where ``KEY=A,B`` is a run for A and one for B.

    Several such settings are a grid of all combinations, each a change named by its values.

    Raises ``UsageError`` for a grid with a value twice, with more than ``MAX_RUNS`` runs, or on a
    plan that has changes already.
    """
    fixed = []
    axes: list[list[str]] = []
    for setting in settings:
        values = grid_values(setting)
        if len(values) == 1:
            fixed.append(setting)
            continue
        if len({*values}) < len(values):
            key, _, text = setting.partition("=")
            raise UsageError(
                f"{setting} has a value twice.",
                steps=["give each value once, or one list", Setting({key: f"[{text}]"})],
            )
        axes.append(values)

    update: dict[str, object] = {"set": (*plan.set, *fixed)}
    if axes:
        if plan.changes:
            raise UsageError(
                f"The sweep {plan.name} has changes of its own, which a grid cannot vary.",
                steps=Setting(dict(values[0].split("=", 1) for values in axes)),
            )
        if math.prod(map(len, axes)) > MAX_RUNS:
            raise UsageError(
                f"The grid has {math.prod(map(len, axes)):,} combinations.",
                steps=f"at most {MAX_RUNS:,}",
            )
        update["choose"] = "validation"
        update["changes"] = tuple(
            Change(name=_change_name(settings), set=settings)
            for settings in itertools.product(*axes)
        )
    return plan.model_copy(update=update)


def _change_name(settings: Sequence[str]) -> str:
    """Return a name made of the last part of each key and its value; a digest if it is no name."""
    words = []
    for setting in settings:
        key, _, value = setting.partition("=")
        words.append(f"{key.rpartition('.')[2]}-{value}")
    name = "-".join(words)
    is_name = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}", name)
    return name if is_name else f"grid-{json_digest(list(settings))[:8]}"


def sweep_names() -> tuple[str, ...]:
    """Return the names of the shipped plans, sorted."""
    return shipped_names("sweeps")


def read_sweep_plan(name: str | None) -> SweepPlan:
    """Read a shipped plan by its name, or a ``.toml`` file; ``None`` returns a plan without datasets.

    Raises ``UsageError`` for an unknown file, or an invalid key or value.
    """
    if name is None:
        return SweepPlan.model_construct(
            name=UNNAMED_SWEEP,
            datasets=(),
            models=(),
            seeds=(0,),
        )
    if not name.endswith(".toml"):
        return SweepPlan.model_validate({**read_shipped("sweeps", name), "name": name})
    try:
        values = read_toml(Path(name))
        return SweepPlan.model_validate({**values, "name": Path(name).stem})
    except FileNotFoundError as error:
        raise absent_file_error(Path(name), f"one of {', '.join(sweep_names())}") from error
    except (OSError, ValueError) as error:  # pydantic's is a ValueError
        unknown = unknown_key_error(error, [key for key in SweepPlan.model_fields if key != "name"])
        if unknown:
            unknown.steps = [f"correct {name}; docs/sweeps.md lists the keys of a plan"]
        raise unknown or UsageError(
            f"The plan {name} cannot be used.",
            expected="TOML with the keys of docs/sweeps.md",
            found=first_problem(error),
            steps=f"correct the file, or use one of {', '.join(sweep_names())}",
        ) from error


UNCHANGED = Change.model_construct(name="")  #: the only change of a plan without changes


@dataclass(frozen=True)
class SweepRun:
    """One run of a sweep."""

    dataset: str  #: name in the plan
    model: str
    change: str  #: name of the change; empty if the plan has none
    seed: int
    config: RunConfig
    folder: Path  #: run folder
    command: tuple[str, ...]  #: arguments of ``kmip-data`` that start the run

    @property
    def is_done(self) -> bool:
        """True if the run has its result."""
        return (self.folder / RESULT_NAME).is_file()


def expand_plan(plan: SweepPlan, home: Home) -> list[SweepRun]:
    """Return the runs of a plan, ordered by dataset, model, change and seed.

    Raises ``UsageError`` for an unknown dataset, model, variant or key, an invalid value, or a plan
    with no run or more than ``MAX_RUNS``.
    """
    if not plan.datasets:
        raise UsageError(
            "The sweep has neither a plan nor a dataset.",
            expected=f"a dataset, or a plan: {', '.join(sweep_names())}",
            steps=Command("kmip-data sweep small-cities --dry-run"),
        )
    if plan.max_runs > MAX_RUNS:
        raise UsageError(
            f"The sweep {plan.name} has {plan.max_runs:,} runs.", steps=f"at most {MAX_RUNS:,}"
        )
    datasets = dict.fromkeys(plan.datasets)
    changes = plan.changes or (UNCHANGED,)
    runs = list[SweepRun]()
    for dataset in datasets:
        models = plan.models or (default_model(dataset, home),)
        for model, change in itertools.product(dict.fromkeys(models), changes):
            if change.applies_to(dataset, model) and plan.includes(dataset, model):
                runs += _runs_of_change(plan, dataset, model, change, home)
    if not runs:
        raise UsageError(
            f"The sweep {plan.name} has no run of these datasets and models.",
            steps=Command(
                "kmip-data sweep --dataset {} --model {}", ",".join(datasets), ",".join(plan.models)
            ),
        )
    return runs


def _runs_of_change(
    plan: SweepPlan,
    dataset: str,
    model: str,
    change: Change,
    home: Home,
) -> Iterator[SweepRun]:
    """Yield the runs of one change, by seed."""
    # 1. Settings of the plan, the dataset, the model and the change, of which the last one wins.
    dataset_or_build = str(path_or_none(dataset) or dataset)
    variant = change.variant or plan.variant or None
    dataset_settings = plan.set_of.get(dataset, ())
    model_settings = plan.set_of.get(model, ())
    settings = (*plan.set, *dataset_settings, *model_settings, *change.set)
    config = compose_configuration(
        dataset_or_build,
        {},
        {},
        model=model,
        variant=variant,
        epochs=plan.epochs,
        overrides=settings,
        home=home,
    ).with_plugins()

    # 2. A run's name contains a digest of its settings: the same command resumes the run, and other
    #    settings start another one.
    parent = home.runs / _dataset_label(config, home) / config.model.name
    stem = f"{plan.name}-{change.name and f'{change.name}-'}{changed_keys_digest(config)}"
    options = ["--variant", config.variant]
    if plan.epochs is not None:
        options += ["--epochs", str(plan.epochs)]
    for item in settings:
        options += ["--set", item]

    # 3. One run per seed, with its training command.
    for seed in dict.fromkeys(plan.seeds_on(dataset, model)):
        name = f"{stem}-seed{seed}"
        run_options = ("--seeds", str(seed), "--name", name, "--home", str(home.path))
        command = ("train", dataset_or_build, "--model", model, *options, *run_options)
        yield SweepRun(
            dataset, model, change.name, seed, config.with_seed(seed), parent / name, command
        )


def changed_keys_digest(config: RunConfig) -> str:
    """Return a digest of the keys that are not at their defaults.

    Defaults are excluded so that a later version with more keys finds the runs of this one.
    """
    excluded = {"preset", "variant", "version", "plugins"}
    values = config.model_dump(mode="json", exclude_defaults=True, exclude=excluded)
    # Each kind has its own defaults, so include the kinds.
    kinds = [config.model.attention.kind, config.model.local.kind]
    # Identify plugins by content, not by the location of their files.
    plugin_digests = [plugin.sha256 for plugin in config.plugins or ()]
    return json_digest([values, kinds, *plugin_digests])[:8]


def _dataset_label(config: RunConfig, home: Home) -> str:
    """Return the name of the dataset's folder below ``runs``; raise ``UsageError`` if it is unknown."""
    data = config.data
    if data.dataset in dataset_names():
        require_dataset(load_manifest(data.dataset))
        parameters_with_defaults(data.dataset, data.parameters)
        return label_of_dataset(data.dataset, sample=data.sample)
    return find_build(
        data.dataset, data.parameters, home=home, sample=data.sample
    ).card.dataset_label


def best_on_val(runs: Iterable[SweepRun]) -> dict[tuple[str, str], str]:
    """Return the finished change with the best mean on val, for each dataset and model."""
    changes: dict[tuple[str, str], dict[str, Mean]] = {}
    for (dataset, model, change), mean in _means_on_val(runs).items():
        changes.setdefault((dataset, model), {})[change] = mean
    return {key: _best_change(means) for key, means in changes.items()}


def combined_change_runs(plan: SweepPlan, runs: list[SweepRun], home: Home) -> list[SweepRun]:
    """Return the runs of the combined change for each dataset and model whose runs are all done.

    Changes of the same keys form an axis. On each axis, the best mean on val wins among its changes
    and the unchanged run; ties go to the first in the plan. Only results on disk count, so a resumed
    sweep makes the same choice. If at most one axis improves, the combination already exists, and
    has no runs.
    """
    combined = []
    means = _means_on_val(runs)
    for dataset, model in dict.fromkeys((run.dataset, run.model) for run in runs):
        changes = {
            change.name: change for change in plan.changes if change.applies_to(dataset, model)
        }
        if any((dataset, model, name) not in means for name in changes):
            continue
        # 1. Find the winner of each axis.
        winners = set()
        for axis in {change.keys for change in changes.values()}:
            candidates = {}
            for name, change in changes.items():
                if change.keys in {axis, frozenset()}:
                    candidates[name] = means[dataset, model, name]
            winners.add(_best_change(candidates))

        # 2. Combine the winning changes, in the order of the plan.
        improved = [change for name, change in changes.items() if change.set and name in winners]
        if len(improved) > 1:
            settings = itertools.chain(*(change.set for change in improved))
            change = Change(name=str(plan.then), set=tuple(settings))
            update = {"datasets": (dataset,), "models": (model,), "changes": (change,)}
            combined += expand_plan(plan.model_copy(update=update), home)
    return combined


Mean = tuple[str, float]  #: metric, and its mean over seeds


def _means_on_val(runs: Iterable[SweepRun]) -> dict[tuple[str, str, str], Mean]:
    """Return the mean on val, by dataset, model and change, if all of its seeds are done.

    Raises ``DamagedInput`` for an edited result, which would influence the choice.
    """
    groups: dict[tuple[str, str, str], list[SweepRun]] = {}
    for run in runs:
        groups.setdefault((run.dataset, run.model, run.change), []).append(run)

    # A mean over only some of the seeds could favour a lucky change.
    means = {}
    for key, group in groups.items():
        if all(run.is_done for run in group):
            results = []
            for run in group:
                refuse_edited(run.folder)
                results.append(read_result(run.folder))
            metric = results[0].metric
            values = [result.metrics.get("val", {}).get(metric, math.nan) for result in results]
            means[key] = metric, statistics.fmean(values)
    return means


def _best_change(means: dict[str, Mean]) -> str:
    """Return the change with the best mean, or the first of several."""
    best = next(iter(means))
    highest = None
    for name, (metric, mean) in means.items():
        if is_better(metric, mean, highest):  # False for NaN, the mean of a part without records
            best = name
            highest = mean
    return best
