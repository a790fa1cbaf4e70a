"""The network of a run with its loss, metrics, optimiser and average, and its evaluation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.swa_utils import get_ema_multi_avg_fn

from kmip_data.errors import CheckFailed
from kmip_data.format.splits import PARTS
from kmip_data.models.attention.kmip import set_training_k
from kmip_data.models.context import ForwardContext
from kmip_data.models.layers.batch import REAL_SIZES
from kmip_data.models.layers.norms import BatchNorm
from kmip_data.models.network import build_model
from kmip_data.models.search.problem import NotFinite
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.models.training.config.optimisers import TAKES, build_optimiser, rate_for
from kmip_data.models.training.config.schedules import KSchedule
from kmip_data.models.training.data.on_card import rows_of, sent_ahead
from kmip_data.models.training.data.run_data import BatchSize, RunData
from kmip_data.models.training.machine import autocast
from kmip_data.models.training.objective.choices import with_task
from kmip_data.models.training.objective.losses import LOSSES
from kmip_data.models.training.objective.metrics import SplitMetrics
from kmip_data.models.training.run.meter import Meter
from kmip_data.wording import counted

ROWS = {part: rows_of(part) for part in PARTS}
NAMED = 32  #: records of a batch that an error names
#: Buffers that are averaged as parameters are; others (counts, random features) are copied.
STATISTICS = ("running_mean", "running_var")


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
        together = self.shared and self.config.training.sync_batchnorm
        self._norms = [m for m in self.model.modules() if together and isinstance(m, BatchNorm)]
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

    def forward(self, batch: Any, **watching: Any) -> tuple[Tensor, Tensor]:
        """Predictions (rows, outputs) and targets of every node, graph or pair of a batch.

        ``watching`` are ``timer`` and ``keep`` of a :class:`~kmip_data.models.context.ForwardContext`.
        Raises ``CheckFailed`` where the weights, or what the network makes of the batch, are infinite or NaN.
        """
        self.size = BatchSize.of(batch)
        try:
            # DDP is for training alone: it would exchange buffers in an evaluation, too.
            network = self._network if self.training else self.model
            context = ForwardContext(self.config.training.precision, **watching)
            return network(batch, context), self.task.targets(batch)
        except NotFinite as error:  # raised by the search: add the step of the run, and a cause
            where = ""
            if self.training:
                self.stop_if_diverged()  # a GPU may have met it earlier in the epoch
                where = f"; {self._records(self.meter.newest, self.meter.newest)}"
            sound = all(bool(torch.isfinite(weight).all()) for weight in self.model.parameters())
            what = "The numbers inside the network" if sound else "The weights"
            raise self.diverged(f"{what} are not finite numbers", error.what + where) from error

    def learn(self, batch: Any, **watching: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Logits, targets and loss of the train rows of a batch, and the loss to go backward from.

        The last two differ where several processes share a batch: the reported loss is that of all rows.
        """
        for norm in self._norms:
            norm.share = float("train_mask" not in batch)  # rows of a repeated graph do not count
        with mixed(self.config.training.precision, next(self.model.parameters()).device.type):
            logits, target = of_part(batch, "train", *self(batch, **watching))
            if self.shared:
                backward, loss = self.loss.divided(logits, target)
            elif REAL_SIZES in batch:
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
            expected="finite numbers",
            found=found,
            next="a lower --set optimiser.lr=…, --precision 32, or kmip-data verify on the build",
        )


def optimiser_for(module: TrainingModule, device: torch.device) -> Optimizer:
    """Return the optimiser of a run, fused on a GPU unless 16-mixed gradients are to be clipped."""
    config = module.config
    rate = rate_for(config.optimiser, config.whole_batch // config.training.batch_size)
    update: dict[str, Any] = {"lr": rate}
    if config.optimiser.fused is None and device.type == "cuda":
        # One launch a step instead of dozens; but a fused optimiser unscales 16-mixed gradients by itself.
        clipped = config.training.precision == "16-mixed" and config.training.clip_norm
        update["fused"] = True if "fused" in TAKES[config.optimiser.name] and not clipped else None
    return build_optimiser(module.model, config.optimiser.model_copy(update=update))


def mixed(precision: str, device: str) -> AbstractContextManager[Any]:
    """Return the context of a forward pass in training: autocast to half precision, or none.

    Without the cache of cast weights, so that each use of a weight adds its gradient in float32.
    """
    if not precision.endswith("mixed"):
        return nullcontext()
    dtype = torch.float16 if precision == "16-mixed" else torch.bfloat16
    return torch.autocast(device, dtype=dtype, cache_enabled=False)


class Average:
    """Exponential moving average of a network's weights: ``decay`` of its last value, the rest new weights.

    It begins with the weights after the first step, as :class:`torch.optim.swa_utils.AveragedModel` does.
    """

    def __init__(self, decay: float) -> None:
        self._move = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
        self.weights: dict[str, Tensor] = {}  #: by the names of the network's state

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Take in the weights of ``model`` after a step."""
        state = model.state_dict()
        if not self.weights:
            self.weights = {name: tensor.clone() for name, tensor in state.items()}
            return
        parameters = dict(model.named_parameters())
        smooth = [name for name in state if name in parameters or name.endswith(STATISTICS)]
        # A resumed average was read onto the CPU.
        self.weights = {name: tensor.to(state[name].device) for name, tensor in self.weights.items()}
        self._move([self.weights[name] for name in smooth], [state[name] for name in smooth], 0)
        for name in state.keys() - set(smooth):
            self.weights[name].copy_(state[name])

    def load(self, weights: Mapping[str, Tensor], model: nn.Module) -> None:
        """Continue from saved weights; raise ``ValueError`` where they are of another network."""
        own = {name: (tensor.shape, tensor.dtype) for name, tensor in model.state_dict().items()}
        if weights and {name: (tensor.shape, tensor.dtype) for name, tensor in weights.items()} != own:
            raise ValueError("its average is of another model")
        self.weights = dict(weights)

    @contextmanager
    def within(self, model: nn.Module) -> Iterator[None]:
        """Give ``model`` the average inside the block."""
        learning = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        model.load_state_dict(self.weights or learning)
        try:
            yield
        finally:
            model.load_state_dict(learning)


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
