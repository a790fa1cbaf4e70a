"""Learning-rate schedules by name, stepped once an epoch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

from kmip_data.models.training.config.keys import ScheduleConfig


def cosine_with_warmup(epoch: int, *, warmup: int, epochs: int) -> float:
    """Factor of the learning rate in ``epoch``: a line up to 1, then half a cosine down to 0.

    max(1e-6, e/W) for e < W, then max(0, (1 + cos π (e-W)/(E-W)) / 2). The first epoch of a
    warm-up therefore hardly learns, as in ``graphgps/optimizer/extra_optimizers.py``.
    """
    if epoch < warmup:
        return max(1e-6, epoch / warmup)
    # The last step is taken after the last epoch, where E = W would divide by zero.
    progress = (epoch - warmup) / max(1, epochs - warmup)
    return max(0.0, 0.5 * (1.0 + math.cos(math.pi * progress)))


class Schedule(Protocol):
    """Sets the learning rates of an optimiser from epoch to epoch."""

    def step(self, validation_loss: float | None) -> None:
        """End an epoch whose last known validation loss is given."""

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers and lists."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a state."""


class _Cosine:
    def __init__(self, optimiser: Optimizer, config: ScheduleConfig, epochs: int) -> None:
        def factor(epoch: int) -> float:
            return cosine_with_warmup(epoch, warmup=config.warmup_epochs, epochs=epochs)

        self._scheduler = LambdaLR(optimiser, factor)

    def step(self, validation_loss: float | None) -> None:
        self._scheduler.step()

    def state_dict(self) -> dict[str, Any]:
        return self._scheduler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._scheduler.load_state_dict(state)


class _Plateau:
    """Halve (by ``factor``) when the validation loss has not fallen for ``patience`` epochs."""

    def __init__(self, optimiser: Optimizer, config: ScheduleConfig, epochs: int) -> None:
        self._scheduler = ReduceLROnPlateau(
            optimiser, mode="min", factor=config.factor, patience=config.patience
        )

    def step(self, validation_loss: float | None) -> None:
        # Epochs without an evaluation repeat the last known loss, as upstream's statistics do.
        if validation_loss is not None:
            self._scheduler.step(validation_loss)

    def state_dict(self) -> dict[str, Any]:
        return self._scheduler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._scheduler.load_state_dict(state)


SCHEDULES: dict[str, Callable[[Optimizer, ScheduleConfig, int], Schedule]] = {
    "cosine_with_warmup": _Cosine,
    "reduce_on_plateau": _Plateau,
}


def build_schedule(optimiser: Optimizer, config: ScheduleConfig, epochs: int) -> Schedule:
    """Return the schedule that ``config.kind`` names, at epoch 0."""
    return SCHEDULES[config.kind](optimiser, config, epochs)
