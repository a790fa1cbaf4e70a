"""One training step: the model, its loss, its metrics and its optimiser, as Lightning drives them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from kmip_data.errors import CheckFailed
from kmip_data.models.attention.kmip import set_training_k
from kmip_data.models.kinds import Size
from kmip_data.models.layers.batch import REAL_SIZES
from kmip_data.models.layers.norms import BatchNorm
from kmip_data.models.network import build_model
from kmip_data.models.search.problem import NotFinite
from kmip_data.models.search.timing import searches_in
from kmip_data.models.training.capture.steps import CapturedSteps
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.models.training.config.optimisers import TAKES, build_optimiser, rate_for
from kmip_data.models.training.config.schedules import KSchedule, build_schedule
from kmip_data.models.training.data.on_card import rows_of, sent_ahead
from kmip_data.models.training.data.run_data import RunData
from kmip_data.models.training.memory.machine import autocast
from kmip_data.models.training.objective.losses import LOSSES
from kmip_data.models.training.objective.metrics import SplitMetrics
from kmip_data.models.training.objective.tasks import with_task
from kmip_data.models.training.run.averaging import Average
from kmip_data.models.training.run.meter import Meter
from kmip_data.wording import counted

NAMED = 32  #: records of a batch that an error names


class Diverged(CheckFailed):
    """Numbers of a run are no longer finite."""


class TrainingModule(LightningModule):
    """A network for ``data``, with new weights from the global generator, in training."""

    schedule: LRScheduler

    def __init__(self, config: RunConfig, data: RunData, *, recompute: bool = False) -> None:
        super().__init__()
        self.config, self.task = with_task(config, data.task), data.task
        model = self.config.model.model_copy(update={"checkpoint_layers": recompute})
        self.model = build_model(model, **data.channels)
        if config.system.compile and not recompute:  # which the compiler would have keep other tensors again
            # Layer by layer: the code made for one serves all like it, where the whole network takes minutes.
            # In place, so that the names of the weights stay what they are without it.
            for layer in self.model.get_submodule("layers").children():
                layer.compile(dynamic=True)
        self.loss = LOSSES[str(self.config.training.loss)]
        self.metrics = SplitMetrics(self.task)
        self.meter = Meter(every=config.system.log_every, scaled=config.training.precision == "16-mixed")
        self._names = data.names
        self.size: Size | None = None  #: of the batch in work, for the error when it does not fit
        ema = self.config.training.ema
        together = self.config.processes > 1 and self.config.training.sync_batchnorm
        self._norms = [m for m in self.model.modules() if together and isinstance(m, BatchNorm)]
        self.average = None if ema is None else Average(ema)
        self._schedule_state: dict[str, Any] | None = None
        self.captured: CapturedSteps | None = None  #: what does the steps, instead of Lightning
        self.doing = "starting"  #: for errors

    def forward(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Predictions (rows, outputs) and targets of every node, graph or pair of a batch.

        Raises ``CheckFailed`` where the weights, or what the network makes of the batch, are infinite or NaN.
        """
        self.size = Size.of(batch)
        try:
            return self.model(batch), self.task.targets(batch)
        except NotFinite as error:  # what the search cannot rank: say where in the run, and why
            where = ""
            if self.training:
                self.stop_if_diverged()  # what a GPU met earlier in the epoch and nobody has read yet
                where = f"; {self._records(self.meter.newest, self.meter.newest)}"
            sound = all(bool(torch.isfinite(weight).all()) for weight in self.model.parameters())
            what = "The numbers inside the network" if sound else "The weights"
            raise self.diverged(f"{what} are not finite numbers", error.what + where) from error

    def on_train_epoch_start(self) -> None:
        """Move k, where it has a schedule; a resumed run comes to the same."""
        training = self.config.training
        if training.k_schedule:
            schedule = KSchedule.parse(training.k_schedule)
            set_training_k(self.model, k := schedule.at(self.current_epoch, training.epochs))
            if self.captured is not None:
                self.captured.under(k)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Loss of a batch; Lightning divides it by the batches per step, clips and steps."""
        self.doing = f"training in epoch {self.current_epoch + 1}, batch {batch_idx + 1}"
        if self.captured is not None:
            return self._captured_step(self.captured, batch, batch_idx)
        for norm in self._norms:
            norm.share = float("train_mask" not in batch)  # rows of a repeated graph do not count
        with searches_in(self.meter.search):
            logits, target = of_part(batch, "train", *self(batch))
        if self.config.processes > 1:
            learned, loss = self.loss.divided(logits, target)
        else:
            learned = loss = self.loss(logits, target)
        self.meter.loss(loss)
        if self.meter.at_once:
            self.stop_if_diverged(batch_idx)
        self.metrics.update(logits, target, loss)
        return learned

    def learn_with(self, captured: CapturedSteps | None) -> None:
        """Leave gradients and steps to ``captured``, or again to Lightning; what is around them stays."""
        self.captured, self.meter.whole = captured, captured is not None

    def forward_loss(self, batch: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Logits, targets and loss of the train rows of a batch."""
        logits, target = of_part(batch, "train", *self(batch))
        loss = self.loss.padded if REAL_SIZES in batch else self.loss
        return logits, target, loss(logits, target)

    def _captured_step(self, captured: CapturedSteps, batch: Any, batch_idx: int) -> Tensor:
        self.size = Size.of(batch)
        optimiser = self.optimizers(use_pl_optimizer=False)
        assert isinstance(optimiser, Optimizer)
        learned = captured(batch, optimiser, first=batch_idx % self.config.training.accumulate == 0)
        self.meter.loss(learned.loss)
        if captured.stepping:
            self.meter.norm(learned.norm)
        self.metrics.update(learned.logits, learned.target, learned.loss)
        return learned.loss

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Go back, unless the step has."""
        if self.captured is None:
            super().backward(loss, *args, **kwargs)

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: Optimizer) -> None:
        """Clear the gradients, unless the step does."""
        if self.captured is None:
            super().optimizer_zero_grad(epoch, batch_idx, optimizer)

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip; Lightning refuses to for a fused optimiser in bf16-mixed too, which scales no gradients."""
        if gradient_clip_val:
            clip_grad_norm_(
                [p for group in optimizer.param_groups for p in group["params"]], gradient_clip_val
            )

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Stop before a gradient that is not finite spoils the weights, where looking at it is free."""
        if self.meter.at_once:
            self.stop_if_diverged(self.meter.newest)

    def stop_if_diverged(self, since: int = 0) -> None:
        """Raise CheckFailed for the first batch of the epoch, from ``since`` on, that was not finite.

        This waits for a GPU, so there it is called once an epoch.
        """
        fault = self.meter.fault(since)
        if fault is None:
            return
        several = f"es {fault.first + 1} to" if fault.last > fault.first else ""
        self.doing = (
            f"training in epoch {self.current_epoch + 1}, batch{several} {fault.last + 1}"
            f" (step {fault.step + 1} of the run)"
        )
        raise self.diverged(fault.what, self._records(fault.first, fault.last))

    def _records(self, first: int, last: int) -> str:
        """What these batches of the epoch were made of, on all processes."""
        batches = range(first, last + 1)
        names = [name for batch in batches for name in self._names(self.current_epoch, batch)]
        more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
        return f"{counted(len(names), 'record')}: {', '.join(names[:NAMED])}{more}"

    def diverged(self, what: str, found: str) -> Diverged:
        """Return the error for numbers that are no longer finite, with what the run was doing."""
        return Diverged(
            f"{what}, {self.doing}.",
            expected="finite numbers",
            found=found,
            left="the checkpoint of the last finished epoch, if there is one",
            next="a lower --set optimiser.lr=…, --precision 32, or kmip-data verify on the build",
        )

    def configure_optimizers(self) -> Optimizer:
        """Return the optimiser; a schedule per epoch is stepped by the recorder, after the evaluation."""
        config = self.config
        times = config.whole_batch // config.training.batch_size
        update: dict[str, Any] = {"lr": rate_for(config.optimiser, times)}
        if config.optimiser.fused is None and self.trainer.strategy.root_device.type == "cuda":
            # One launch a step instead of dozens; fused, 16-mixed could not be clipped.
            clipped = config.training.precision == "16-mixed" and config.training.clip_norm
            update["fused"] = True if "fused" in TAKES[config.optimiser.name] and not clipped else None
        optimiser = build_optimiser(self.model, config.optimiser.model_copy(update=update))
        schedule, epochs = self.config.schedule, self.config.training.epochs
        per_step = schedule.per == "step"
        steps = int(self.trainer.estimated_stepping_batches) // epochs if per_step else 1
        self.schedule = build_schedule(optimiser, schedule, epochs, steps)
        if self._schedule_state is not None:
            self.schedule.load_state_dict(self._schedule_state)
        return optimiser

    def optimizer_step(
        self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Callable[[], Any] | None = None
    ) -> None:
        """Step; then move what moves with each step: the average of the weights, the learning rate."""
        if self.captured is None:
            super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)
        elif optimizer_closure is not None:  # the training step, which is all of it
            self.captured.stepping = True
            optimizer_closure()
            self.captured.stepping = False
        if self.average is not None:
            self.average.update(self.model)
        if self.config.schedule.per == "step":
            self.schedule.step()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add schedule, its rate and the average; Lightning adds weights, optimiser and loops."""
        checkpoint["schedule"] = self.schedule.state_dict()
        checkpoint["lr"] = self.config.optimiser.lr
        if self.average is not None:
            checkpoint["average"] = self.average.weights

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep the schedule's state until the optimiser is there; its rates come with the optimiser's.

        Where the run goes on with another learning rate, all rates move by the same factor.
        """
        self._schedule_state = checkpoint["schedule"]
        if self.average is not None:
            self.average.load(checkpoint["average"], self.model)
        rate = self.config.optimiser.lr
        was = checkpoint.get("lr") or self._schedule_state.get("base_lrs", [rate])[0]
        if rate == was:
            return
        groups = [group for state in checkpoint["optimizer_states"] for group in state["param_groups"]]
        for values in (*groups, self._schedule_state):
            for name in {"lr", "initial_lr", "base_lrs", "_last_lr"} & values.keys():
                old, by = values[name], rate / was
                values[name] = [each * by for each in old] if isinstance(old, list) else old * by


def of_part(batch: Any, part: str, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows of a part: those of its mask where the batch has masks, else all."""
    rows = getattr(batch, rows_of(part), None)
    if rows is not None:  # on a GPU: a mask would have the host wait for how many there are
        return logits.index_select(0, rows), target.index_select(0, rows)
    mask = getattr(batch, f"{part}_mask", None)
    return (logits, target) if mask is None else (logits[mask], target[mask])


def evaluate_parts(
    module: TrainingModule, data: RunData, parts: Sequence[str], device: torch.device
) -> dict[str, dict[str, float]]:
    """Measure ``parts`` in eval mode: part -> loss and metrics.

    Parts that share a graph are read from one pass over it. Nothing random runs in eval mode, so the
    generators are as they were afterwards. Raises ``CheckFailed`` where a loss is not finite.
    """
    measured = measure_parts(module, data, parts, device)
    found = {part: measured[part].compute() for part in parts}
    for part in parts:
        if not math.isfinite(found[part]["loss"]):
            module.doing = f"evaluating {part}"
            raise module.diverged(f"The loss is {found[part]['loss']}", f"the mean over {part}")
    return found


def measure_parts(
    module: TrainingModule, data: RunData, parts: Sequence[str], device: torch.device
) -> dict[str, SplitMetrics]:
    """Apply the network to ``parts`` in eval mode, and count what their metrics are computed from."""
    counted: dict[str, SplitMetrics] = {}
    training = module.training
    module.eval()
    try:
        for measured, batches in data.passes(parts):
            module.doing = f"evaluating {', '.join(measured)}"
            counted |= {part: SplitMetrics(module.task).to(device) for part in measured}
            with torch.inference_mode(), autocast(module.config.training.precision, device.type):
                for batch in sent_ahead(batches, device):
                    logits, target = module(batch)
                    for part in measured:
                        rows = of_part(batch, part, logits, target)
                        counted[part].update(*rows, module.loss(*rows))
    finally:
        module.train(training)
    return counted
