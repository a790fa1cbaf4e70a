"""Network of a run with loss, metrics, measurements of steps, and evaluation."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from kmip_data.errors import CheckFailed
from kmip_data.models.attention.kmip import set_training_k
from kmip_data.models.layers.batch import BatchSize
from kmip_data.models.layers.norms import BatchNorm
from kmip_data.models.network import build_model
from kmip_data.models.precision import autocast
from kmip_data.models.search.problem import NotFinite
from kmip_data.models.training.accumulators import SplitMetrics
from kmip_data.models.training.config.keys import KSchedule, RunConfig
from kmip_data.models.training.data.run_data import (
    ROWS,
    RunData,
    prefetch_to_device,
    with_task_defaults,
)
from kmip_data.models.training.losses import all_losses
from kmip_data.models.training.metrics import all_metrics
from kmip_data.runtime.memory import peak_host_memory, return_freed_memory
from kmip_data.runtime.progress import Progress


class TrainLoss(NamedTuple):
    """Outputs and losses of the train rows of a batch."""

    logits: Tensor  #: (rows, outputs)
    target: Tensor  #: targets of the rows
    loss: Tensor  #: mean loss of all rows, for reports
    #: Loss to differentiate. It is not ``loss`` if processes share the batch: each has its rows.
    backward_loss: Tensor


class TrainingModule(nn.Module):
    """Network for ``data`` with loss and metrics; weights are drawn from the global generator.

    Parameters
    ----------
    config
        Configuration. Loss, metric and head are filled in by the task of ``data``.
    recompute
        Recompute each layer in the backward pass instead of saving its activations.
    """

    def __init__(self, config: RunConfig, data: RunData, *, recompute: bool = False) -> None:
        super().__init__()
        if recompute:
            return_freed_memory()
        self.config = with_task_defaults(config, data.task)
        self.task = data.task
        self.build = shlex.quote(str(data.build.path))
        model = self.config.model.model_copy(update={"checkpoint_layers": recompute})
        self.model = build_model(model, **data.network_sizes)
        self.loss = all_losses()[str(self.config.training.loss)]
        self.metrics = SplitMetrics(self.task, self.config.training.metric)
        self.meter = Meter(
            config.training.accumulate, scaled=config.training.precision == "16-mixed"
        )
        #: True if several processes share each batch.
        self.shared = self.config.processes > 1
        self._norms = []
        if self.shared:
            self._norms = [
                module for module in self.model.modules() if isinstance(module, BatchNorm)
            ]
        #: The model, or DistributedDataParallel around it.
        self.network: Any = self.model
        #: Current epoch, from 0.
        self.epoch = 0
        #: Size of the current batch, for the error when it does not fit.
        self.size: BatchSize | None = None
        #: Current activity, for errors.
        self.doing = "starting"
        #: False to print the progress of evaluations.
        self.quiet = True
        #: True where the weights of a finished run are applied, whose keys no option changes.
        self.finished = False

    def forward(self, batch: Data) -> tuple[Tensor, Tensor]:
        """Return predictions (rows, outputs) and targets of every node, graph or pair of a batch.

        Raises ``CheckFailed`` if weights or activations are infinite or NaN.
        """
        self.size = BatchSize.of(batch)
        try:
            # DDP only in training: it would exchange buffers in an evaluation, too.
            network = self.network if self.training else self.model
            logits = network(batch)
            # A sampled neighbourhood has predictions for its seeds alone.
            return logits, self.task.targets(batch)[: len(logits)]
        except NotFinite as error:
            # Raised by the search: add the step and a cause. An earlier loss of the epoch may have
            # diverged.
            if self.training:
                self.stop_if_diverged()
            subject = "The numbers inside the network"
            if not all(bool(torch.isfinite(weight).all()) for weight in self.model.parameters()):
                subject = "The weights"
            raise self.divergence_error(
                f"{subject} are not finite numbers", error.message
            ) from error

    def train_loss(self, batch: Data) -> TrainLoss:
        """Compute the loss of a batch's train rows."""
        # Ignore rows of a repeated graph.
        share = float("train_mask" not in batch)
        for norm in self._norms:
            norm.share = share
        device_type = next(self.model.parameters()).device.type
        with autocast(self.config.training.precision, device_type, cached=False):
            logits, target = rows_of_part(batch, "train", *self(batch))
            if self.shared:
                backward_loss, loss = self.loss.divided(logits, target)
            else:
                loss = self.loss(logits, target)
                backward_loss = loss
        return TrainLoss(logits, target, loss, backward_loss)

    def begin_epoch(self, epoch: int) -> int | None:
        """Set the current epoch, and k if it has a schedule; return that k."""
        self.epoch = epoch
        training = self.config.training
        if not training.k_schedule:
            return None
        k = KSchedule.parse(training.k_schedule).k_in_epoch(epoch, training.epochs)
        set_training_k(self.model, k)
        return k

    def stop_if_diverged(self) -> None:
        """Raise ``CheckFailed`` for the epoch's first batch with a loss or gradient that is not finite.

        This waits for a GPU, so it is called once an epoch, and before a checkpoint within one.
        """
        problem = self.meter.first_not_finite()
        if problem is not None:
            message, batch, step = problem
            self.doing = (
                f"training in epoch {self.epoch + 1}, batch {batch + 1} "
                f"(step {step + 1} of the run)"
            )
            raise self.divergence_error(message)

    def divergence_error(self, message: str, detail: str | None = None) -> CheckFailed:
        """Return the error for a diverged run, with its current activity."""
        step = f"kmip-data verify {self.build}"
        if not self.finished:
            step = f"a lower --set optimizer.lr=…, --set training.precision=32, or {step}"
        return CheckFailed(f"{message}, {self.doing}.", found=detail, next=step)


def rows_of_part(batch: Data, part: str, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows (N, C) of a part: the rows of its mask, or all rows without masks."""
    # On a GPU: indexing by a mask makes the host wait for the number of rows.
    rows = getattr(batch, ROWS[part], None)
    if rows is not None:
        return logits.index_select(0, rows), target.index_select(0, rows)
    mask = getattr(batch, f"{part}_mask", None)
    if mask is None:
        return logits, target
    mask = mask[: len(logits)]
    return logits[mask], target[mask]


def evaluate_parts(
    module: TrainingModule, data: RunData, parts: Sequence[str], device: torch.device
) -> dict[str, dict[str, float]]:
    """Measure ``parts`` in eval mode: part -> loss and metrics.

    Parts that share a graph are measured in one pass. Nothing random happens in eval mode, so
    generators keep their state. A metric that is undefined for a part, such as R² of a single
    target, is left out, unless it is the run's. Raises ``CheckFailed`` if a loss is not finite.
    """
    metrics = accumulate_metrics(module, data, parts, device)
    values = {part: metrics[part].compute() for part in parts}
    chosen = module.config.training.metric
    for part in parts:
        loss = values[part]["loss"]
        if not math.isfinite(loss):
            module.doing = f"evaluating {part}"
            raise module.divergence_error(f"The loss is {loss}")
        values[part] = {
            name: value
            for name, value in values[part].items()
            if not math.isnan(value) or name == chosen or not all_metrics()[name].needs
        }
    return values


def check_finite(metrics: Mapping[str, Mapping[str, float]]) -> None:
    """Raise ``CheckFailed`` for a part whose metrics are not all finite, such as ROC-AUC of one class."""
    known = all_metrics()
    for part, values in metrics.items():
        undefined = [name for name, value in values.items() if not math.isfinite(value)]
        if undefined:
            needs = [known[name].needs for name in undefined if name in known]
            raise CheckFailed(
                f"The {part} part has no finite {', '.join(undefined)}.",
                expected="; ".join(filter(None, needs)) or None,
                next="another --set training.metric, or another split, such as --split-rule stratified",
            )


def accumulate_metrics(
    module: TrainingModule, data: RunData, parts: Sequence[str], device: torch.device
) -> dict[str, SplitMetrics]:
    """Apply the network to ``parts`` in eval mode and accumulate their metrics."""
    settings = module.config.training
    metrics = {part: SplitMetrics(module.task, settings.metric).to(device) for part in parts}
    training = module.training
    module.eval()
    try:
        for measured, batches in data.evaluation_passes(parts):
            module.doing = f"evaluating {', '.join(measured)}"
            progress = Progress(
                module.doing,
                len(batches),  # type: ignore[arg-type] # a loader or a list
                unit="batches",
                quiet=module.quiet,
            )
            evaluating = autocast(settings.precision, device.type)
            with torch.inference_mode(), evaluating, progress:
                for batch in prefetch_to_device(batches, device):
                    logits, target = module(batch)
                    for part in measured:
                        rows = rows_of_part(batch, part, logits, target)
                        metrics[part].update(*rows, module.loss(*rows))
                    progress.update(1)
    finally:
        module.train(training)
    return metrics


class Meter:
    """Losses and gradient norms of an epoch, read at its end, so that no step waits for a GPU."""

    def __init__(self, accumulate: int, *, scaled: bool) -> None:
        #: Batches of a step.
        self.accumulate = accumulate
        #: True if losses are scaled (``16-mixed``), where an infinite gradient only skips a step.
        self.scaled = scaled
        self.begin(0, 0, torch.device("cpu"))

    def begin(self, step: int, batches: int, device: torch.device) -> None:
        """Begin an epoch of ``batches`` batches, with first step ``step`` of the run."""
        self._first_step = step
        #: Losses, and norms of batches that end a step.
        self.values = torch.zeros(2, batches, device=device)

    def record_loss(self, batch: int, loss: Tensor, norm: Tensor | None) -> None:
        """Record a batch's loss (), and the norm () of its step's gradient before clipping."""
        self.values[0, batch] = loss
        if norm is not None:
            self.values[1, batch] = norm

    def first_not_finite(self) -> tuple[str, int, int] | None:
        """Return a message for the first loss or gradient that is not finite, its batch and its step."""
        for batch, (loss, norm) in enumerate(self.values.T.tolist()):
            step = self._first_step + batch // self.accumulate
            if not math.isfinite(loss):
                return f"The loss is {loss}", batch, step
            if not math.isfinite(norm) and not self.scaled:
                return f"The gradient's norm is {norm}", batch, step
        return None

    def epoch_measurements(self) -> dict[str, float]:
        """Return the measurements of a whole epoch in ``metrics.csv``."""
        # The last batch of a step has the norm of its gradient.
        all_norms = self.values[1].tolist()
        ends = [*all_norms[self.accumulate - 1 : -1 : self.accumulate], all_norms[-1]]
        norms = [norm for norm in ends if math.isfinite(norm)]

        device = self.values.device
        memory = peak_host_memory()
        if device.type == "cuda":
            memory = torch.cuda.max_memory_allocated(device)
        return {
            "grad_norm": sum(norms) / len(norms) if norms else math.nan,
            "grad_norm_max": max(norms, default=math.nan),
            "peak_memory": float(memory),
        }
