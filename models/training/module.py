"""One training step: the model, its loss, its metrics and its optimiser, as Lightning drives them."""

from __future__ import annotations

import math
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor
from torch.optim import AdamW, Optimizer

from kmip_data.errors import CheckFailed, UsageError
from kmip_data.models.network import build_model
from kmip_data.models.training.config import RunConfig
from kmip_data.models.training.losses import LOSSES
from kmip_data.models.training.machine import Size, autocast
from kmip_data.models.training.metrics import SplitMetrics
from kmip_data.models.training.schedules import Schedule, build_schedule


class TrainingModule(LightningModule):
    """A node classifier in training.

    Parameters
    ----------
    config
        The run.
    in_channels
        Columns of ``x``.
    num_classes
        Number of classes C; labels are 0 … C-1.
    """

    schedule: Schedule
    _optimiser: AdamW

    def __init__(self, config: RunConfig, *, in_channels: int, num_classes: int) -> None:
        super().__init__()
        self.config = config
        self.model = build_model(config.model, in_channels=in_channels, num_classes=num_classes)
        if config.system.compile:
            # In place, so that the names of the weights stay what they are without it.
            self.model.compile(dynamic=True)
        self.loss = LOSSES[config.training.loss]
        self.metrics = SplitMetrics(num_classes)
        self.size: Size | None = None  #: of the batch in work, for the error when it does not fit
        self._schedule_state: dict[str, Any] | None = None
        self.doing = "starting"  #: for errors

    def forward(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Logits ``(N, C)`` and labels ``(N,)`` of the rows that count.

        Raises
        ------
        CheckFailed
            The weights have become infinite or NaN.
        """
        self.size = Size.of(batch)
        try:
            return self.model(batch), batch.y
        except UsageError as error:
            # The search refuses what it cannot rank. Say where in the run, and what is not finite.
            if all(bool(torch.isfinite(weight).all()) for weight in self.model.parameters()):
                raise
            raise self.diverged("The weights are not finite numbers", error.what) from error

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Loss of a batch; Lightning divides it by the batches a step, clips and steps."""
        self.doing = f"training in epoch {self.current_epoch + 1}, batch {batch_idx + 1}"
        logits, target = self(batch)
        loss = self.loss(logits, target)
        if not torch.isfinite(loss):
            raise self.diverged(f"The loss is {float(loss.detach())}", f"a batch of {self.size}")
        self.metrics.update(logits, target, loss)
        return loss

    def diverged(self, what: str, found: str) -> CheckFailed:
        """Return the error for numbers that are no longer finite, with what the run was doing."""
        return CheckFailed(
            f"{what}, {self.doing}.",
            expected="finite numbers",
            found=found,
            left="the checkpoint of the last finished epoch, if there is one",
            next="a lower --set optimiser.lr=…, --precision 32, or kmip-data verify on the build",
        )

    @property
    def learning_rate(self) -> float:
        """The present learning rate."""
        return float(self._optimiser.param_groups[0]["lr"])

    def configure_optimizers(self) -> Optimizer:
        """AdamW; the schedule is stepped by the recorder, after the epoch's evaluation."""
        self._optimiser = AdamW(
            self.model.parameters(),
            lr=self.config.optimiser.lr,
            weight_decay=self.config.optimiser.weight_decay,
        )
        self.schedule = build_schedule(self._optimiser, self.config.schedule, self.config.training.epochs)
        if self._schedule_state is not None:
            self.schedule.load_state_dict(self._schedule_state)
        return self._optimiser

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the schedule; Lightning adds weights, optimiser and loops."""
        checkpoint["schedule"] = self.schedule.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep the schedule's state until the optimiser is there; its rates come with the optimiser's."""
        self._schedule_state = checkpoint["schedule"]


def evaluate_part(module: TrainingModule, part: str, loader: Any, device: torch.device) -> dict[str, float]:
    """One pass over ``part`` in eval mode: its loss and metrics.

    Nothing random runs in eval mode, so the generators are as they were afterwards.

    Raises
    ------
    CheckFailed
        The loss is not finite.
    """
    module.doing = f"evaluating {part}"
    training = module.training
    module.eval()
    try:
        with torch.inference_mode(), autocast(module.config.training.precision, device.type):
            for batch in loader:
                logits, target = module(batch.to(device, non_blocking=True))
                module.metrics.update(logits, target, module.loss(logits, target))
    finally:
        module.train(training)
    values = module.metrics.compute()
    if not math.isfinite(values["loss"]):
        raise module.diverged(f"The loss is {values['loss']}", f"the mean over {part}")
    return values
