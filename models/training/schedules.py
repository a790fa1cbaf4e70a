"""Learning rate schedules by name; torch is imported when one is built.

A schedule is one entry of :data:`SCHEDULES`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from kmip_data.models.registries import RegisteredName
from kmip_data.registry import with_plugin_entries
from kmip_data.strict_model import StrictModel

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler


@dataclass(frozen=True)
class ScheduleOptions:
    """Length and options of a run's schedule, in epochs or optimizer steps."""

    length: int  #: length of the run
    warmup: int = 0  #: length of ``schedule.warmup_epochs``
    patience: int = 0  #: ``schedule.patience``, in epochs
    min_lr: float = 0.0  #: ``schedule.min_lr``


ScheduleBuilder = Callable[["Optimizer", ScheduleOptions], "LRScheduler"]
FINAL_RATE = 1e-7  #: final learning rate of ``polynomial_with_warmup``, as in transformers


@dataclass(frozen=True)
class Schedule:
    """Constructor of a schedule, and its options."""

    build: ScheduleBuilder  #: a ``ReduceLROnPlateau`` receives the loss on the watched part
    #: keys of ``schedule`` that it reads: warmup_epochs, patience, min_lr
    options: tuple[str, ...] = ()
    why_not_per_step: str = ""  #: reason why the rate cannot change per step, if any


def schedule_by_factor(factor: Callable[[int, ScheduleOptions], float]) -> ScheduleBuilder:
    """Make a schedule from the factor of ``optimizer.lr`` at each time from 0 to ``options.length``."""

    def build(optimizer: Optimizer, options: ScheduleOptions) -> LRScheduler:
        from torch.optim.lr_scheduler import LambdaLR

        return LambdaLR(optimizer, lambda time: factor(time, options))

    return build


def cosine_with_warmup(time: int, options: ScheduleOptions) -> float:
    """Factor of the learning rate: linear up to 1, then half a cosine down to 0.

    max(1e-6, e/W) for e < W, then max(0, (1 + cos π (e-W)/(E-W)) / 2). The factor 1e-6 means that
    the first epoch of a warm-up hardly learns, as in ``graphgps/optimizer/extra_optimizers.py``.
    """
    if time < options.warmup:
        return max(1e-6, time / options.warmup)
    # The factor is also computed after the last epoch, where E = W would divide by zero.
    progress = (time - options.warmup) / max(1, options.length - options.warmup)
    return max(0.0, 0.5 * (1.0 + math.cos(math.pi * progress)))


def _linear_factor(time: int, options: ScheduleOptions) -> float:
    """Factor: linear up to 1 as in :func:`cosine_with_warmup`, then linear down to 0 (GraphGPS)."""
    if time < options.warmup:
        return max(1e-6, time / options.warmup)
    return max(0.0, (options.length - time) / max(1, options.length - options.warmup))


def _polynomial(optimizer: Optimizer, options: ScheduleOptions) -> LRScheduler:
    """Linear from 0 up to the full rate, then linear down to 1e-7 (GraphGPS: power 1)."""
    final_factor: float = FINAL_RATE / optimizer.defaults["lr"]

    def factor(time: int, options: ScheduleOptions) -> float:
        if time < options.warmup:
            return time / options.warmup
        remaining = (options.length - time) / max(1, options.length - options.warmup)
        return final_factor + (1 - final_factor) * max(0.0, remaining)

    return schedule_by_factor(factor)(optimizer, options)


def _constant_factor(_moment: int, _options: ScheduleOptions) -> float:
    return 1.0


def _plateau(optimizer: Optimizer, options: ScheduleOptions) -> LRScheduler:
    from torch.optim.lr_scheduler import ReduceLROnPlateau

    return ReduceLROnPlateau(
        optimizer, mode="min", factor=0.5, patience=options.patience, min_lr=options.min_lr
    )


SCHEDULES: dict[str, Schedule] = {
    "cosine_with_warmup": Schedule(
        schedule_by_factor(cosine_with_warmup), options=("warmup_epochs",)
    ),
    "linear_with_warmup": Schedule(schedule_by_factor(_linear_factor), options=("warmup_epochs",)),
    "polynomial_with_warmup": Schedule(_polynomial, options=("warmup_epochs",)),
    "constant": Schedule(schedule_by_factor(_constant_factor)),
    "reduce_on_plateau": Schedule(
        _plateau,
        options=("patience", "min_lr"),
        why_not_per_step="the validation loss is known once an epoch",
    ),
}


def all_schedules() -> Mapping[str, Schedule]:
    """Return the schedules by name, with the schedules of loaded plugins."""
    return with_plugin_entries("schedules", SCHEDULES)


class ScheduleConfig(StrictModel):
    """Schedule of the learning rate."""

    kind: Annotated[str, RegisteredName("schedules", "schedule", all_schedules)] = Field(
        default="cosine_with_warmup", description="learning rate schedule, or one from a plugin"
    )
    per: Literal["epoch", "step"] = Field(
        default="epoch", description="interval at which the rate changes"
    )
    warmup_epochs: int = Field(default=10, ge=0, description="epochs of linear warm-up")
    patience: int = Field(
        default=10,
        ge=0,
        description="plateau: epochs without a lower loss on training.watched_part",
    )
    min_lr: float = Field(default=0.0, ge=0, description="plateau: smallest learning rate")

    @model_validator(mode="after")
    def _check_schedule_unit(self) -> Self:
        reason = all_schedules()[self.kind].why_not_per_step
        if reason and self.per == "step":
            raise ValueError(f"{self.kind} changes the rate only per epoch: {reason}")
        return self


def build_schedule(
    optimizer: Optimizer, config: ScheduleConfig, epochs: int, steps: int = 1
) -> LRScheduler:
    """Return the schedule ``config.kind`` for a run of ``epochs`` with ``steps`` steps each."""
    units_per_epoch = steps if config.per == "step" else 1
    options = ScheduleOptions(
        length=units_per_epoch * epochs,
        warmup=units_per_epoch * config.warmup_epochs,
        patience=config.patience,
        min_lr=config.min_lr,
    )
    return all_schedules()[config.kind].build(optimizer, options)


def step_schedule(
    schedule: LRScheduler, history: Sequence[Mapping[str, float]], watched_part: str = "val"
) -> None:
    """Step a schedule at the end of an epoch.

    A plateau schedule uses the latest loss on ``watched_part``, like upstream.
    """
    from torch.optim.lr_scheduler import ReduceLROnPlateau

    loss = f"{watched_part}_loss"
    losses = [row[loss] for row in history if loss in row]
    if not isinstance(schedule, ReduceLROnPlateau):
        schedule.step()
    elif losses:
        schedule.step(losses[-1])
