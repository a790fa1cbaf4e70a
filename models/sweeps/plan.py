"""The plan of a sweep: a shipped or user-written TOML file, or options of the command line alone."""

from __future__ import annotations

import re
import tomllib
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from kmip_data.errors import UsageError
from kmip_data.files.reading import first_fault, read_small
from kmip_data.manifest import Strict, read_shipped, shipped_names, unknown_name

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
    seeds: tuple[Annotated[int, Field(ge=0, lt=2**32)], ...] = Field(min_length=1)  #: in the file also "0..4"
    epochs: int | None = Field(default=None, ge=1, description="none: the preset's")
    variant: str = Field(default="code", description="variant of the presets")
    set: tuple[str, ...] = Field(default=(), description="KEY=VALUE of every run")
    set_of: dict[str, tuple[str, ...]] = Field(default={}, description="KEY=VALUE by dataset or model")
    changes: tuple[Change, ...] = Field(default=(), description="one run each; none: the presets unchanged")
    choose: Literal["validation"] | None = Field(default=None, description="mark the change best on val")
    then: Literal["best-of-each"] | None = Field(
        default=None, description="one more change: the best value on val of every changed key"
    )

    @property
    def most_runs(self) -> int:
        """Number of runs if every change applied to all models and datasets."""
        return len(self.datasets) * len(self.models) * max(1, len(self.changes)) * len({*self.seeds})

    @field_validator("seeds", mode="before")
    @classmethod
    def _range(cls, value: Any) -> Any:
        first, dots, last = str(value).partition("..")
        if not dots:
            return value
        if (count := int(last) - int(first) + 1) > MOST_RUNS:
            raise ValueError(f"{count:,} seeds, which is more than the {MOST_RUNS:,} runs of a sweep")
        return tuple(range(int(first), int(last) + 1))

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        if self.most_runs > MOST_RUNS:
            raise ValueError(f"{self.most_runs:,} runs, which is more than the {MOST_RUNS:,} of a sweep")
        if other := {*self.set_of} - {*self.models, *self.datasets}:
            raise ValueError(f"set_of has {', '.join(sorted(other))}, which the plan has not")
        runs = set[tuple[str, str, str]]()
        for change in self.changes:
            if other := {*change.models} - {*self.models} | {*change.datasets} - {*self.datasets}:
                raise ValueError(f"{change.name} is for {', '.join(sorted(other))}, which the plan has not")
            own = {*product([change.name], change.models or self.models, change.datasets or self.datasets)}
            if runs & own:
                raise ValueError("two changes have one name")
            if self.then and (change.variant or change.name == self.then):
                raise ValueError(f"then takes changes of keys alone, none of them called {self.then}")
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
        return Plan.model_construct(name=UNNAMED, about="", datasets=(), models=("gps-kmip",), seeds=(0,))
    if not name.endswith(".toml"):
        if name not in sweep_names():
            raise unknown_name("sweep", name, sweep_names(), command="kmip-data sweep NAME, or FILE.toml")
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
