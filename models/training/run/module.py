"""The network of a run with its loss and its metrics, and its evaluation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from kmip_data.errors import CheckFailed
from kmip_data.format.splits import PARTS
from kmip_data.models.attention.kmip import set_training_k
from kmip_data.models.context import ForwardContext, autocast
from kmip_data.models.layers.batch import COUNTED, BatchSize
from kmip_data.models.layers.norms import BatchNorm
from kmip_data.models.network import build_model
from kmip_data.models.search.problem import NotFinite
from kmip_data.models.training.config.keys import KSchedule, RunConfig
from kmip_data.models.training.data.run_data import RunData, rows_of, sent_ahead, with_task
from kmip_data.models.training.metrics import SplitMetrics
from kmip_data.models.training.run.history import Meter
from kmip_data.models.training.tasks import LOSSES
from kmip_data.wording import counted

ROWS = {part: rows_of(part) for part in PARTS}
NAMED = 32  #: records of a batch that an error names


class Diverged(CheckFailed):
    """Numbers of a run are no longer finite."""


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
        self.config, self.task = with_task(config, data.task), data.task
        model = self.config.model.model_copy(update={"checkpoint_layers": recompute})
        self.model = build_model(model, **data.channels)
        if config.system.compile and not recompute:  # recomputing needs the same tensors to be saved again
            # Layer by layer: the code of one serves all like it, where the whole network takes minutes.
            # In place, so that the names of the weights do not change.
            for layer in self.model.get_submodule("layers").children():
                layer.compile(dynamic=True)
        self.loss = LOSSES[str(self.config.training.loss)]
        self.metrics = SplitMetrics(self.task)
        self.meter = Meter(every=config.system.log_every, scaled=config.training.precision == "16-mixed")
        self._names = data.names
        self.shared = self.config.processes > 1  #: True if several processes share each batch
        self._norms = [m for m in self.model.modules() if self.shared and isinstance(m, BatchNorm)]
        self._network: Any = self.model  #: or DDP around it
        self.epoch = 0  #: current epoch, from 0
        self.size: BatchSize | None = None  #: of the current batch, for the error when it does not fit
        self.doing = "starting"  #: for errors

    def distribute(self, device: torch.device) -> None:
        """Average gradients over processes in the backward pass, by DistributedDataParallel."""
        self._network = DistributedDataParallel(self.model, [device] if device.type == "cuda" else None)

    def accumulating(self) -> Any:
        """Context without an exchange of gradients, for all batches of a step but the last."""
        return self._network.no_sync()

    def forward(self, batch: Any, keep: list[Any] | None = None) -> tuple[Tensor, Tensor]:
        """Predictions (rows, outputs) and targets of every node, graph or pair of a batch.

        ``keep`` is that of a :class:`~kmip_data.models.context.ForwardContext`. Raises ``CheckFailed`` where
        the weights, or what the network makes of the batch, are infinite or NaN.
        """
        self.size = BatchSize.of(batch)
        try:
            # DDP is for training alone: it would exchange buffers in an evaluation, too.
            network = self._network if self.training else self.model
            context = ForwardContext(self.config.training.precision, keep=keep)
            return network(batch, context), self.task.targets(batch)
        except NotFinite as error:  # raised by the search: add the step of the run, and a cause
            where = ""
            if self.training:
                self.stop_if_diverged()  # a GPU may have met it earlier in the epoch
                where = f"; {self._records(self.meter.newest, self.meter.newest)}"
            sound = all(bool(torch.isfinite(weight).all()) for weight in self.model.parameters())
            what = "The numbers inside the network" if sound else "The weights"
            raise self.diverged(f"{what} are not finite numbers", error.what + where) from error

    def learn(self, batch: Any, keep: list[Any] | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Logits, targets and loss of the train rows of a batch, and the loss to go backward from.

        The last two differ where several processes share a batch: the reported loss is that of all rows.
        """
        for norm in self._norms:
            norm.share = float("train_mask" not in batch)  # rows of a repeated graph do not count
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

    def stop_if_diverged(self, since: int = 0) -> None:
        """Raise CheckFailed for the first batch of the epoch, from ``since`` on, that was not finite.

        This waits for a GPU, so there it is called once an epoch.
        """
        fault = self.meter.fault(since)
        if fault is None:
            return
        several = f"es {fault.first + 1} to" if fault.last > fault.first else ""
        self.doing = (
            f"training in epoch {self.epoch + 1}, batch{several} {fault.last + 1}"
            f" (step {fault.step + 1} of the run)"
        )
        raise self.diverged(fault.what, self._records(fault.first, fault.last))

    def _records(self, first: int, last: int) -> str:
        """Names of the records in these batches of the epoch, over all processes."""
        names = [name for batch in range(first, last + 1) for name in self._names(self.epoch, batch)]
        more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
        return f"{counted(len(names), 'record')}: {', '.join(names[:NAMED])}{more}"

    def diverged(self, what: str, found: str) -> Diverged:
        """Return the error for numbers that are no longer finite, with the current work of the run."""
        return Diverged(
            f"{what}, {self.doing}.",
            found=found,
            next="a lower --set optimiser.lr=…, --precision 32, or kmip-data verify on the build",
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
            raise module.diverged(f"The loss is {found[part]['loss']}", f"the mean over {part}")
    return found


def measure_parts(
    module: TrainingModule, data: RunData, parts: Sequence[str], device: torch.device
) -> dict[str, SplitMetrics]:
    """Apply the network to ``parts`` in eval mode and accumulate their metrics."""
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
