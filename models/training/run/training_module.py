"""Network of a run, with its loss, metrics, step measurements and evaluation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from kmip_data.errors import CheckFailed, Command, Setting, Step
from kmip_data.models.attention.kmip import set_training_k
from kmip_data.models.layers.batch import BatchSize
from kmip_data.models.layers.norms import BatchNorm
from kmip_data.models.precision import autocast
from kmip_data.models.scaling import target_scale
from kmip_data.models.search.problem import NotFinite
from kmip_data.models.training.accumulators import PartMetrics
from kmip_data.models.training.config.run_config import KSchedule, RunConfig
from kmip_data.models.training.data.run_data import (
    ROW_ATTRIBUTES,
    RunData,
    prefetch_to_device,
    with_task_defaults,
)
from kmip_data.models.training.data.scaled_columns import build_scaled_network
from kmip_data.models.training.losses import all_losses
from kmip_data.models.training.metrics import all_metrics
from kmip_data.runtime.memory import map_large_blocks_separately, peak_host_memory
from kmip_data.runtime.progress import Progress


class TrainLoss(NamedTuple):
    """Outputs and losses of the train rows of a batch."""

    logits: Tensor  #: (rows, outputs)
    target: Tensor  #: targets of the rows
    loss: Tensor  #: mean loss over all rows, for reporting
    #: loss to differentiate; differs from ``loss`` if each process has some of the batch's rows
    backward_loss: Tensor


class TrainingModule(nn.Module):
    """Network for ``data`` with loss and metrics; weights are drawn from the global generator.

    Parameters
    ----------
    config
        Configuration. An unset loss, metric or head follows from the task of ``data``.
    recompute
        Recompute each layer in the backward pass instead of saving its activations.
    """

    def __init__(self, config: RunConfig, data: RunData, *, recompute: bool = False) -> None:
        super().__init__()
        if recompute:
            map_large_blocks_separately()
        self.config = with_task_defaults(config, data.task)
        self.task = data.task
        self.build_path = data.build.path
        model = self.config.model.model_copy(update={"checkpoint_layers": recompute})
        self.model = build_scaled_network(model, data)
        self.loss_function = all_losses()[str(self.config.training.loss)]
        self.metrics = PartMetrics(self.task, self.config.training.metric)
        self.meter = Meter(
            config.training.accumulate, scaled=config.training.precision == "16-mixed"
        )
        #: True if several processes share each batch
        self.divides_batches = self.config.processes > 1
        self._norms = []
        if self.divides_batches:
            self._norms = [
                module for module in self.model.modules() if isinstance(module, BatchNorm)
            ]
        #: the model, or DistributedDataParallel around it
        self.network: Any = self.model
        #: current epoch, from 0
        self.epoch = 0
        #: size of the current batch, for out-of-memory errors
        self.current_batch_size: BatchSize | None = None
        #: current activity, for error messages
        self.activity = "starting"
        #: False to show the progress of evaluations
        self.quiet = True
        #: True for a finished run, whose configuration can no longer change
        self.is_finished_run = False

    def forward(self, batch: Data) -> tuple[Tensor, Tensor]:
        """Return predictions (rows, outputs) and targets of every node, graph or pair of a batch.

        Raises ``CheckFailed`` if weights or activations are infinite or NaN.
        """
        self.current_batch_size = BatchSize.of(batch)
        try:
            # Evaluate without DDP, which would exchange buffers.
            network = self.network if self.training else self.model
            logits = network(batch)
            # In a sampled neighbourhood, only the seeds, which come first, have predictions.
            return logits, self.task.targets(batch)[: len(logits)]
        except NotFinite as error:
            # The search raised this: add the step and a cause. If an earlier loss of the epoch has
            # diverged, report that one.
            if self.training:
                self.raise_if_diverged()
            subject = "The numbers inside the network"
            if not all(bool(torch.isfinite(weight).all()) for weight in self.model.parameters()):
                subject = "The weights"
            raise self.divergence_error(
                f"{subject} are not finite numbers", error.message
            ) from error

    def train_loss(self, batch: Data) -> TrainLoss:
        """Compute the loss of a batch's train rows."""
        # A process without graphs of its own repeats one with a mask: batch norms ignore its rows.
        row_weight = float("train_mask" not in batch)
        for norm in self._norms:
            norm.row_weight = row_weight
        device_type = next(self.model.parameters()).device.type
        with autocast(self.config.training.precision, device_type, cache_casts=False):
            logits, target = select_part_rows(batch, "train", *self(batch))
            if self.divides_batches:
                rows = self.scale_rows(logits, target)
                backward_loss, loss = self.loss_function.losses_across_processes(*rows)
            else:
                loss = self.part_loss(logits, target)
                backward_loss = loss
        return TrainLoss(logits, target, loss, backward_loss)

    def scale_rows(self, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs (rows, C) and targets in the unit of the loss: in deviations if scaled."""
        scale = target_scale(self.model)
        if scale is None:
            return logits, target
        return scale.scale(logits), scale.scale(target)

    def part_loss(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the loss () of rows in the user's unit."""
        return self.loss_function(*self.scale_rows(logits, target))

    def begin_epoch(self, epoch: int) -> int | None:
        """Set the current epoch, and k if it has a schedule; return the scheduled k."""
        self.epoch = epoch
        training = self.config.training
        if not training.k_schedule:
            return None
        k = KSchedule.parse(training.k_schedule).k_in_epoch(epoch, training.epochs)
        set_training_k(self.model, k)
        return k

    def raise_if_diverged(self) -> None:
        """Raise ``CheckFailed`` for the epoch's first batch with a loss or gradient that is not finite.

        This waits for the GPU, so call it only once per epoch and before a checkpoint within one.
        """
        problem = self.meter.first_not_finite()
        if problem is not None:
            message, batch, step = problem
            self.activity = (
                f"training in epoch {self.epoch + 1}, batch {batch + 1} "
                f"(step {step + 1} of the run)"
            )
            raise self.divergence_error(message)

    def divergence_error(self, message: str, detail: str | None = None) -> CheckFailed:
        """Return the error for a diverged run, which names its current activity."""
        steps: list[Step] = [Command("kmip-data verify", self.build_path)]
        if not self.is_finished_run:
            steps.append("lower optimizer.lr")
            if self.config.training.precision != "32":
                steps.append(Setting({"training.precision": "32"}))
        return CheckFailed(f"{message}, {self.activity}.", found=detail, steps=steps)


def select_part_rows(
    batch: Data, part: str, logits: Tensor, target: Tensor
) -> tuple[Tensor, Tensor]:
    """Select the rows (N, C) of a part: the rows in its mask, or all rows without masks."""
    # Stored row numbers spare a GPU the wait of mask indexing, where the host needs the row count.
    rows = getattr(batch, ROW_ATTRIBUTES[part], None)
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
    """Measure loss and metrics of ``parts`` in eval mode; return them by part and name.

    Parts that share a graph are measured in one pass. Eval mode draws no random numbers. A metric
    that is undefined for a part, such as R² of a single target, is omitted unless it is
    ``training.metric``. Raises ``CheckFailed`` if a loss is not finite.
    """
    return compute_metrics(module, accumulate_metrics(module, data, parts, device))


def compute_metrics(
    module: TrainingModule, accumulated: Mapping[str, PartMetrics]
) -> dict[str, dict[str, float]]:
    """Return loss and metrics by part and name, as :func:`evaluate_parts`, and reset the parts."""
    values = {part: metrics.compute() for part, metrics in accumulated.items()}
    selection_metric = module.config.training.metric
    for part, measured in values.items():
        loss = measured["loss"]
        if not math.isfinite(loss):
            module.activity = f"evaluating {part}"
            raise module.divergence_error(f"The loss is {loss}")
        values[part] = {
            name: value
            for name, value in measured.items()
            if not math.isnan(value)
            or name == selection_metric
            or not all_metrics()[name].required_targets
        }
    return values


def check_metrics_finite(metrics: Mapping[str, Mapping[str, float]]) -> None:
    """Raise ``CheckFailed`` if a metric of a part is not finite, such as ROC-AUC with one class."""
    definitions = all_metrics()
    for part, values in metrics.items():
        undefined = [name for name, value in values.items() if not math.isfinite(value)]
        if undefined:
            requirements = [
                definitions[name].required_targets for name in undefined if name in definitions
            ]
            raise CheckFailed(
                f"The {part} part has no finite {', '.join(undefined)}.",
                expected="; ".join(filter(None, requirements)) or None,
                steps=[
                    "use another training.metric or split",
                    Setting({"split_rule": "stratified", "folds": None, "data.split.fold": None}),
                ],
            )


def accumulate_metrics(
    module: TrainingModule,
    data: RunData,
    parts: Sequence[str],
    device: torch.device,
    *,
    error_part: str = "",
) -> dict[str, PartMetrics]:
    """Apply the network to ``parts`` in eval mode and accumulate their metrics.

    Metrics of ``error_part`` know their standard errors.
    """
    settings = module.config.training
    metrics = {}
    for part in parts:
        measured = PartMetrics(module.task, settings.metric, keeps_items=part == error_part)
        metrics[part] = measured.to(device)
    # Nodes of a single graph are items of a split by themselves.
    graphs_are_items = module.task.level == "node" and data.part_members == "graphs"
    was_training = module.training
    module.eval()
    try:
        for parts_in_pass, batches in data.evaluation_passes(parts):
            module.activity = f"evaluating {', '.join(parts_in_pass)}"
            progress = Progress(
                module.activity,
                len(batches),  # type: ignore[arg-type] # a loader or a list
                unit="batches",
                quiet=module.quiet,
            )
            precision = autocast(settings.precision, device.type)
            with torch.inference_mode(), precision, progress:
                for batch in prefetch_to_device(batches, device):
                    logits, target = module(batch)
                    for part in parts_in_pass:
                        rows = select_part_rows(batch, part, logits, target)
                        graphs = batch.batch[: len(rows[0])] if graphs_are_items else None
                        metrics[part].update(*rows, module.part_loss(*rows), graphs)
                    progress.update(1)
    finally:
        module.train(was_training)
    return metrics


class Meter:
    """Losses and gradient norms of an epoch, kept on the GPU until its end so that no step waits."""

    def __init__(self, accumulate: int, *, scaled: bool) -> None:
        #: batches per step
        self.accumulate = accumulate
        #: True if losses are scaled (``16-mixed``): an infinite gradient then only skips a step
        self.scaled = scaled
        self.begin(0, 0, torch.device("cpu"))

    def begin(self, step: int, batches: int, device: torch.device) -> None:
        """Begin an epoch of ``batches`` batches that starts with step ``step`` of the run."""
        self._first_step = step
        #: (2, batches): losses; gradient norms of batches that end a step
        self.values = torch.zeros(2, batches, device=device)

    def record_loss(self, batch: int, loss: Tensor, norm: Tensor | None) -> None:
        """Record a batch's loss (), and the norm () of its step's gradient before clipping."""
        self.values[0, batch] = loss
        if norm is not None:
            self.values[1, batch] = norm

    def first_not_finite(self) -> tuple[str, int, int] | None:
        """Find the first loss or gradient that is not finite: a message, its batch and its step."""
        for batch, (loss, norm) in enumerate(self.values.T.tolist()):
            step = self._first_step + batch // self.accumulate
            if not math.isfinite(loss):
                return f"The loss is {loss}", batch, step
            if not math.isfinite(norm) and not self.scaled:
                return f"The gradient's norm is {norm}", batch, step
        return None

    def epoch_measurements(self) -> dict[str, float]:
        """Return gradient norms and peak memory of a finished epoch, for ``metrics.csv``."""
        # The norm is stored with the last batch of each step.
        all_norms = self.values[1].tolist()
        step_norms = [*all_norms[self.accumulate - 1 : -1 : self.accumulate], all_norms[-1]]
        norms = [norm for norm in step_norms if math.isfinite(norm)]

        device = self.values.device
        memory = peak_host_memory()
        if device.type == "cuda":
            memory = torch.cuda.max_memory_allocated(device)
        return {
            "grad_norm": sum(norms) / len(norms) if norms else math.nan,
            "grad_norm_max": max(norms, default=math.nan),
            "peak_memory": float(memory),
        }
