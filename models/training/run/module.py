"""Network of a run with its loss, its metrics and the measurements of its steps; and its evaluation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from kmip_data.errors import CheckFailed
from kmip_data.models.attention.kmip import set_training_k
from kmip_data.models.context import ForwardContext, autocast
from kmip_data.models.layers.batch import COUNTED, BatchSize
from kmip_data.models.layers.norms import BatchNorm
from kmip_data.models.network import build_model
from kmip_data.models.search.problem import NotFinite
from kmip_data.models.training.accumulators import SplitMetrics
from kmip_data.models.training.config.keys import KSchedule, RunConfig
from kmip_data.models.training.data.run_data import ROWS, RunData, sent_ahead, with_task
from kmip_data.models.training.losses import all_losses
from kmip_data.runtime.memory import peak_host_memory, return_what_is_freed


class TrainingModule(nn.Module):
    """A network for ``data``, with new weights from the global generator, its loss and its metrics.

    Parameters
    ----------
    config
        The run. Loss, metric and head are filled in from the task of ``data``.
    recompute
        Recompute each layer in the backward pass instead of keeping its activations.
    """

    def __init__(self, config: RunConfig, data: RunData, *, recompute: bool = False) -> None:
        super().__init__()
        if recompute:
            return_what_is_freed()
        self.config = with_task(config, data.task)
        self.task = data.task
        model = self.config.model.model_copy(update={"checkpoint_layers": recompute})
        self.model = build_model(model, **data.channels)
        self.loss = all_losses()[str(self.config.training.loss)]
        self.metrics = SplitMetrics(self.task, self.config.training.metric)
        self.meter = Meter(
            config.training.accumulate, scaled=config.training.precision == "16-mixed"
        )
        self.shared = self.config.processes > 1  #: True if several processes share each batch
        self._norms = [m for m in self.model.modules() if self.shared and isinstance(m, BatchNorm)]
        self.network: Any = self.model  #: or DistributedDataParallel around it
        self.epoch = 0  #: current epoch, from 0
        self.size: BatchSize | None = (
            None  #: of the current batch, for the error when it does not fit
        )
        self.doing = "starting"  #: for errors

    def forward(self, batch: Any, keep: list[Any] | None = None) -> tuple[Tensor, Tensor]:
        """Predictions (rows, outputs) and targets of every node, graph or pair of a batch.

        ``keep`` is that of a :class:`~kmip_data.models.context.ForwardContext`. Raises ``CheckFailed`` where
        the weights, or what the network makes of the batch, are infinite or NaN.
        """
        self.size = BatchSize.of(batch)
        try:
            # DDP is for training alone: it would exchange buffers in an evaluation, too.
            network = self.network if self.training else self.model
            context = ForwardContext(self.config.training.precision, keep=keep)
            return network(batch, context), self.task.targets(batch)
        except NotFinite as error:  # raised by the search: add the step of the run, and a cause
            if self.training:
                self.stop_if_diverged()  # a loss may have been it earlier in the epoch
            sound = all(bool(torch.isfinite(weight).all()) for weight in self.model.parameters())
            what = "The numbers inside the network" if sound else "The weights"
            raise self.diverged(f"{what} are not finite numbers", error.what) from error

    def learn(
        self, batch: Any, keep: list[Any] | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Logits, targets and loss of the train rows of a batch, and the loss to go backward from.

        The last two differ where several processes share a batch: the reported loss is that of all rows.
        """
        for norm in self._norms:
            # Rows of a repeated graph do not count.
            norm.share = float("partition" in batch or "train_mask" not in batch)
        kind = next(self.model.parameters()).device.type
        with autocast(self.config.training.precision, kind, cached=False):
            logits, target = of_part(batch, "train", *self(batch, keep))
            if self.shared:
                backward, loss = self.loss.divided(logits, target)
            elif COUNTED in batch:
                backward = loss = self.loss.padded(logits, target)
            else:
                backward = loss = self.loss(logits, target)
        return logits, target, loss, backward

    def begin_epoch(self, epoch: int) -> int | None:
        """Set the current epoch, and k where it has a schedule; return that k."""
        self.epoch = epoch
        training = self.config.training
        if not training.k_schedule:
            return None
        k = KSchedule.parse(training.k_schedule).at(epoch, training.epochs)
        set_training_k(self.model, k)
        return k

    def stop_if_diverged(self) -> None:
        """Raise CheckFailed for the first batch of the epoch whose loss or gradient was not finite.

        This waits for a GPU, so it is called once an epoch, and before a checkpoint within one.
        """
        if (fault := self.meter.fault()) is not None:
            what, batch, step = fault
            self.doing = f"training in epoch {self.epoch + 1}, batch {batch + 1} (step {step + 1} of the run)"
            raise self.diverged(what)

    def diverged(self, what: str, found: str | None = None) -> CheckFailed:
        """Return the error for numbers that are no longer finite, with the current work of the run."""
        return CheckFailed(
            f"{what}, {self.doing}.",
            found=found,
            next="a lower --set optimiser.lr=…, --set training.precision=32, or kmip-data verify on the build",
        )


def of_part(batch: Any, part: str, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows of a part: those of its mask where the batch has masks, else all."""
    rows = getattr(batch, ROWS[part], None)
    if rows is not None:  # on a GPU: indexing by a mask makes the host wait for the number of rows
        return logits.index_select(0, rows), target.index_select(0, rows)
    mask = getattr(batch, f"{part}_mask", None)
    return (logits, target) if mask is None else (logits[mask], target[mask])


def evaluate_parts(
    module: TrainingModule, data: RunData, parts: Sequence[str], device: torch.device
) -> dict[str, dict[str, float]]:
    """Measure ``parts`` in eval mode: part -> loss and metrics.

    Parts that share a graph are read from one pass over it. Nothing random runs in eval mode, so the
    generators keep their state. Raises ``CheckFailed`` where a loss is not finite.
    """
    measured = measure_parts(module, data, parts, device)
    found = {part: measured[part].compute() for part in parts}
    for part in parts:
        if not math.isfinite(found[part]["loss"]):
            module.doing = f"evaluating {part}"
            raise module.diverged(f"The loss is {found[part]['loss']}")
    return found


def measure_parts(
    module: TrainingModule, data: RunData, parts: Sequence[str], device: torch.device
) -> dict[str, SplitMetrics]:
    """Apply the network to ``parts`` in eval mode and accumulate their metrics."""
    counted = {
        part: SplitMetrics(module.task, module.config.training.metric).to(device) for part in parts
    }
    training = module.training
    module.eval()
    try:
        for measured, batches in data.passes(parts):
            module.doing = f"evaluating {', '.join(measured)}"
            with torch.inference_mode(), autocast(module.config.training.precision, device.type):
                for batch in sent_ahead(batches, device):
                    logits, target = module(batch)
                    for part in measured:
                        rows = of_part(batch, part, logits, target)
                        shared = "partition" in batch
                        loss = module.loss.divided(*rows)[1] if shared else module.loss(*rows)
                        counted[part].update(*rows, loss)
    finally:
        module.train(training)
    return counted


class Meter:
    """Losses and gradient norms of an epoch's batches, read at its end: no step waits for a GPU."""

    def __init__(self, accumulate: int, *, scaled: bool) -> None:
        self.accumulate = accumulate  #: batches of a step
        #: True if losses are scaled up (``16-mixed``), so that an infinite gradient only skips its step.
        self.scaled = scaled
        self.begin(0, 0, torch.device("cpu"))

    def begin(self, step: int, batches: int, device: torch.device) -> None:
        """Begin an epoch of ``batches`` batches, whose first step is number ``step`` of the run."""
        self._first_step = step
        self.values = torch.zeros(
            2, batches, device=device
        )  #: losses, and norms where a batch ends a step

    def note(self, batch: int, loss: Tensor, norm: Tensor | None) -> None:
        """Keep the loss of a batch and the norm, before clipping, of the gradient that it completes."""
        self.values[0, batch] = loss
        if norm is not None:
            self.values[1, batch] = norm

    def fault(self) -> tuple[str, int, int] | None:
        """Return the first loss or gradient that is not finite, in words, with its batch and step."""
        for batch, (loss, norm) in enumerate(self.values.T.tolist()):
            if not math.isfinite(loss) or not (math.isfinite(norm) or self.scaled):
                what = (
                    f"loss is {loss}" if not math.isfinite(loss) else f"gradient's norm is {norm}"
                )
                return f"The {what}", batch, self._first_step + batch // self.accumulate
        return None

    def read(self) -> dict[str, float]:
        """Return the measurements of a whole epoch in ``metrics.csv``."""
        norms = self.values[1].tolist()
        # The last batch of a step has the norm of its gradient.
        norms = [*norms[self.accumulate - 1 : -1 : self.accumulate], norms[-1]]
        norms = [norm for norm in norms if math.isfinite(norm)]
        on_gpu = self.values.device.type == "cuda"
        memory = (
            torch.cuda.max_memory_allocated(self.values.device) if on_gpu else peak_host_memory()
        )
        return {
            "grad_norm": sum(norms) / len(norms) if norms else math.nan,
            "grad_norm_max": max(norms, default=math.nan),
            "peak_memory": float(memory),
        }
