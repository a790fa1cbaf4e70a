"""A plan of runs: the file of a sweep, shipped in ``manifests/sweeps`` or the user's own."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from kmip_data.errors import UsageError
from kmip_data.files.small import read_small
from kmip_data.manifest import read_shipped, shipped_names, unknown_name
from kmip_data.models.kinds import Section
from kmip_data.wording import nearest

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$")]


class Change(Section):
    """One variation of every run of a plan."""

    name: Name
    set: tuple[str, ...] = Field(default=(), description="KEY=VALUE, after those of the plan")
    variant: str = Field(default="", description="variant of the preset; empty: the plan's")
    models: tuple[str, ...] = Field(default=(), description="for these alone; empty: for all")
    datasets: tuple[str, ...] = Field(default=(), description="on these alone; empty: on all")


class Space(Section):
    """Values of one key that ``--tune`` tries: from ``low`` to ``high``, or one of ``choices``."""

    low: int | float | None = None
    high: int | float | None = Field(default=None, description="whole numbers where both are")
    log: bool = Field(default=False, description="even in the logarithm")
    choices: tuple[bool | int | float | str, ...] = ()

    @property
    def ends(self) -> tuple[Any, ...]:
        """Lowest and highest value, or all choices."""
        return self.choices or (self.low, self.high)

    @model_validator(mode="after")
    def _is_a_range_or_a_choice(self) -> Self:
        if self.choices:
            right = self.low is self.high is None and not self.log
        else:
            right = (
                None not in self.ends and self.ends[0] < self.ends[1] and not (self.log and self.ends[0] <= 0)
            )
        if not right:
            raise ValueError("give low < high (above 0 with log), or choices")
        return self


class Plan(Section):
    """Which runs a sweep has: datasets by models by changes by seeds."""

    name: Name = Field(description="stem of the file; set when it is read, never in it")
    about: str
    datasets: tuple[str, ...] = Field(min_length=1)
    models: tuple[str, ...] = Field(min_length=1)
    seeds: tuple[Annotated[int, Field(ge=0, lt=2**32)], ...] = Field(min_length=1)  #: in the file also "0..4"
    epochs: int | None = Field(default=None, ge=1, description="none: the preset's")
    variant: str = Field(default="code", description="variant of the presets")
    set: tuple[str, ...] = Field(default=(), description="KEY=VALUE of every run")
    set_of: dict[str, tuple[str, ...]] = Field(default={}, description="of a dataset's or model's runs, too")
    changes: tuple[Change, ...] = Field(default=(), description="a run for each; none: the runs as they are")
    choose: Literal["validation"] | None = Field(default=None, description="mark the change best on val")
    then: Literal["best-of-each"] | None = Field(
        default=None, description="one change more, of the best value on val of each key that changes have"
    )
    space: dict[str, Space] = Field(default={}, description="of keys that --tune tries")

    @field_validator("seeds", mode="before")
    @classmethod
    def _range(cls, value: Any) -> Any:
        first, dots, last = str(value).partition("..")
        return tuple(range(int(first), int(last) + 1)) if dots else value

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        run = [
            (change.name, model, dataset)
            for change in self.changes
            for model in change.models or self.models
            for dataset in change.datasets or self.datasets
        ]
        if len({*run}) < len(run):
            raise ValueError("two changes have one name")
        if self.then and any(change.variant or change.name == self.then for change in self.changes):
            raise ValueError(f"then takes changes of keys alone, none of them called {self.then}")
        if other := {*self.set_of} - {*self.models, *self.datasets}:
            raise ValueError(f"set_of has {', '.join(sorted(other))}, which the plan has not")
        for change in self.changes:
            if other := {*change.models} - {*self.models} | {*change.datasets} - {*self.datasets}:
                raise ValueError(f"{change.name} is for {', '.join(sorted(other))}, which the plan has not")
        return self


def sweep_names() -> list[str]:
    """Names of the shipped plans, sorted."""
    return shipped_names("sweeps")


def read_plan(name: str) -> Plan:
    """Read a shipped plan by its name, or a file that ends in ``.toml``.

    Raises ``UsageError`` where there is no such plan, it cannot be read, or its keys or values are not those
    of a plan.
    """
    shipped = not name.endswith(".toml")
    if shipped and name not in sweep_names():
        raise unknown_name("sweep", name, sweep_names(), command="kmip-data sweep NAME, or FILE.toml")
    try:
        values = read_shipped("sweeps", name) if shipped else tomllib.loads(read_small(Path(name)).decode())
        return Plan.model_validate({**values, "name": Path(name).stem})
    except (OSError, ValueError, RecursionError) as error:  # pydantic's is a ValueError
        faults = map(_fault, error.errors()) if isinstance(error, ValidationError) else [str(error)]
        raise UsageError(
            f"The plan {name} cannot be used.",
            expected="TOML with the keys of docs/sweeps.md",
            found="; ".join(faults),
            next=f"mend the file, or take one of {', '.join(sweep_names())}",
        ) from error


def _fault(entry: ErrorDetails) -> str:
    place = ".".join(str(part) for part in entry["loc"])
    if entry["type"] != "extra_forbidden":
        return f"{place}: {entry['msg']}" if place else entry["msg"]
    close = nearest(str(entry["loc"][-1]), (Change if len(entry["loc"]) > 1 else Plan).model_fields)
    return f"there is no key {place!r}{f', did you mean {close!r}?' if close else ''}"
