"""Schedules of a run: of the learning rate by name, and of k, ``cosine:50:5`` for 50 down to 5."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from kmip_data.models.kinds import Section

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler


class ScheduleConfig(Section):
    """Schedule of the learning rate."""

    kind: Literal["cosine_with_warmup", "linear_with_warmup", "constant", "reduce_on_plateau"] = Field(
        default="cosine_with_warmup", description="schedule of the learning rate"
    )
    per: Literal["epoch", "step"] = Field(default="epoch", description="interval at which the rate moves")
    warmup_epochs: int = Field(default=10, ge=0, description="epochs of linear warm-up")
    factor: float = Field(default=0.5, gt=0, lt=1, description="plateau: factor of the rate")
    patience: int = Field(default=10, ge=0, description="plateau: epochs without a lower validation loss")

    @model_validator(mode="after")
    def _can_move_then(self) -> Self:
        if self.kind == "reduce_on_plateau" and self.per == "step":
            raise ValueError("reduce_on_plateau moves per epoch: the validation loss is known once an epoch")
        return self


def cosine_with_warmup(epoch: int, *, warmup: int, epochs: int) -> float:
    """Factor of the learning rate in ``epoch`` (or step): a line up to 1, then half a cosine down to 0.

    max(1e-6, e/W) for e < W, then max(0, (1 + cos π (e-W)/(E-W)) / 2). The first epoch of a
    warm-up therefore hardly learns, as in ``graphgps/optimizer/extra_optimizers.py``.
    """
    if epoch < warmup:
        return max(1e-6, epoch / warmup)
    # The last step is taken after the last epoch, where E = W would divide by zero.
    progress = (epoch - warmup) / max(1, epochs - warmup)
    return max(0.0, 0.5 * (1.0 + math.cos(math.pi * progress)))


def linear_with_warmup(epoch: int, *, warmup: int, epochs: int) -> float:
    """Factor of the learning rate in ``epoch`` (or step): a line up to 1, as above, then one down to 0."""
    if epoch < warmup:
        return max(1e-6, epoch / warmup)
    return max(0.0, (epochs - epoch) / max(1, epochs - warmup))


def build_schedule(optimiser: Optimizer, config: ScheduleConfig, epochs: int, steps: int = 1) -> LRScheduler:
    """Return the schedule that ``config.kind`` names, at its beginning.

    ``steps`` are those of an epoch; read where the schedule moves with each.
    """
    from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

    if config.kind == "reduce_on_plateau":
        return ReduceLROnPlateau(optimiser, mode="min", factor=config.factor, patience=config.patience)
    if config.kind == "constant":
        return LambdaLR(optimiser, lambda _: 1.0)
    shape = linear_with_warmup if config.kind == "linear_with_warmup" else cosine_with_warmup
    unit = steps if config.per == "step" else 1
    warmup, length = unit * config.warmup_epochs, unit * epochs
    return LambdaLR(optimiser, lambda moment: shape(moment, warmup=warmup, epochs=length))


def step_schedule(schedule: LRScheduler, validation_loss: float | None) -> None:
    """End an epoch whose last known validation loss is given.

    Epochs without an evaluation repeat the last known loss, as upstream's statistics do.
    """
    from torch.optim.lr_scheduler import ReduceLROnPlateau

    if not isinstance(schedule, ReduceLROnPlateau):
        schedule.step()
    elif validation_loss is not None:
        schedule.step(validation_loss)


#: Share of the way from the first k to the last, for a share of the run.
SHAPES: dict[str, Callable[[float], float]] = {
    "cosine": lambda done: (1 - math.cos(math.pi * done)) / 2,
    "linear": lambda done: done,
}


@dataclass(frozen=True)
class KSchedule:
    """Keys that a query attends to in training: ``first`` in the first epoch, ``last`` in the last one."""

    shape: str
    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> KSchedule:
        """Read ``cosine:50:5``; raises ``ValueError`` that says what is wrong."""
        shape, *numbers = text.split(":")
        right = all(number.isdecimal() and int(number) > 0 for number in numbers)
        if shape not in SHAPES or len(numbers) != 2 or not right:
            shapes = " or ".join(SHAPES)
            msg = f"{text!r} is not a schedule of k: {shapes}, then two numbers, such as cosine:50:5"
            raise ValueError(msg)
        return cls(shape, *map(int, numbers))

    def at(self, epoch: int, epochs: int) -> int:
        """K in ``epoch``, from 0, of a run of ``epochs``; a run of one epoch has the last number.

        Examples
        --------
        >>> [KSchedule.parse("cosine:50:5").at(epoch, 5) for epoch in range(5)]
        [50, 43, 28, 12, 5]
        """
        done = epoch / (epochs - 1) if epochs > 1 else 1.0
        return round(self.first + (self.last - self.first) * SHAPES[self.shape](done))
