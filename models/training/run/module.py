"""Network of a run with its loss, its metrics and the measurements of its steps; and its evaluation."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed, nn
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
from kmip_data.models.training.tasks import LOSSES
from kmip_data.runtime.memory import peak_host_memory
from kmip_data.wording import counted

ROWS = {part: rows_of(part) for part in PARTS}
NAMED = 32  #: records of a batch that an error names
#: Columns of ``steps.csv``; ``step`` counts from 0 over the run.
STEP = (
    *("epoch", "step", "loss", "grad_norm"),
    *("graphs_per_second", "nodes_per_second", "share_waiting", "peak_memory"),
)


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


class Fault(NamedTuple):
    """First number of an epoch that is not finite."""

    what: str
    first: int  #: batch
    last: int  #: batch; differs from ``first`` where several batches make a step
    step: int


@dataclass
class _Batch:
    graphs: int
    nodes: int
    steps: bool = False  #: True if the optimiser stepped after it
    memory: float = math.nan
    times: list[Any] = field(default_factory=list)  #: asked for, begun, ended
    seconds: Sequence[float] = ()  #: waiting and working, once ``times`` were read


class Meter:
    """Measure the steps of an epoch; nothing waits for a GPU before its end.

    Losses and norms are written to a tensor there, times are CUDA events, and all are read at once.

    Parameters
    ----------
    every
        Steps from one row of ``steps.csv`` to the next; 0: no rows.
    scaled
        True if losses are scaled up (``16-mixed``): an infinite gradient then only skips its step.
    """

    def __init__(self, *, every: int, scaled: bool) -> None:
        self.every, self.scaled = every, scaled
        self.begin(0, 0, 0, torch.device("cpu"))

    def begin(self, epoch: int, step: int, batches: int, device: torch.device) -> None:
        """Begin an epoch of ``batches`` batches, whose first step is number ``step`` of the run."""
        self._device, self._epoch, self._first_step, self._steps = device, epoch, step, 0
        # Several processes meet in the gradient: all of them see there that one has diverged.
        self._processes = distributed.get_world_size() if distributed.is_initialized() else 1
        #: True if a number may be read as soon as it exists: on one CPU process.
        self.at_once = device.type == "cpu" and self._processes == 1
        self._batches: list[_Batch] = []
        self._values = torch.zeros(2, batches, device=device)  # losses and norms of each batch
        self._asked = self._now()

    def begin_batch(self, batch: Any) -> BatchSize:
        """Note that a batch has reached the device; return its size."""
        size = BatchSize.of(batch)
        own = not (self._processes > 1 and "train_mask" in batch)  # else another process counts it
        self._batches.append(_Batch(size.graphs * own, size.nodes * own, times=[self._asked, self._now()]))
        return size

    def loss(self, loss: Tensor) -> None:
        """Keep the loss of the current batch."""
        self._values[0, self.newest] = loss.detach()

    def norm(self, norm: Tensor) -> None:
        """Keep the norm, before clipping, of the gradient that the current batch completes."""
        self._steps += not self._batches[-1].steps
        self._batches[-1].steps = True
        self._values[1, self.newest] = norm

    def end_batch(self) -> None:
        """Note the end of a batch; after a step that gets a row, how much memory was needed."""
        done = self._batches[-1]
        self._asked = self._now()
        done.times.append(self._asked)
        if self.every and done.steps and (self._first_step + self._steps - 1) % self.every == 0:
            done.memory = self._memory()

    def fault(self, since: int = 0) -> Fault | None:
        """Return the first loss or gradient of the epoch, from batch ``since`` on, that is not finite."""
        losses, norms = self._values[:, since : len(self._batches)].tolist()
        for batch, (loss, norm) in enumerate(zip(losses, norms, strict=True), since):
            if math.isfinite(loss) and (math.isfinite(norm) or self.scaled):
                continue
            before = [number for number, done in enumerate(self._batches[:batch]) if done.steps]
            step = self._first_step + len(before)
            if not math.isfinite(loss):
                return Fault(f"The loss is {loss}", batch, batch, step)
            return Fault(f"The gradient's norm is {norm}", before[-1] + 1 if before else 0, batch, step)
        return None

    @property
    def newest(self) -> int:
        """Number of the current batch."""
        return max(0, len(self._batches) - 1)

    def state(self) -> dict[str, Any]:
        """Return the measurements of the epoch so far, for :meth:`load`: tensors and a number."""
        rows = [[b.graphs, b.nodes, b.steps, b.memory, *b.seconds] for b in self._read()]
        batches = torch.tensor(rows, dtype=torch.float64)
        return {"first_step": self._first_step, "values": self._values.cpu(), "batches": batches}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue an epoch from the result of :meth:`state`."""
        self._first_step = state["first_step"]
        self._values.copy_(state["values"])
        for graphs, nodes, steps, memory, *seconds in state["batches"].tolist():
            self._batches.append(_Batch(int(graphs), int(nodes), bool(steps), memory, seconds=seconds))
        self._steps = sum(done.steps for done in self._batches)

    def seconds(self) -> list[tuple[float, int]]:
        """Return the seconds of each batch of the epoch, waiting included, and its graphs."""
        return [(sum(done.seconds), done.graphs) for done in self._read()]

    def read(self) -> tuple[dict[str, float], list[list[float]]]:
        """Return the columns of the epoch in ``metrics.csv``, and its rows of ``steps.csv``."""
        batches = self._read()
        losses, norms = self._values.tolist()
        if self._processes > 1:
            sizes = torch.tensor([[b.graphs, b.nodes] for b in batches], device=self._device)
            distributed.all_reduce(sizes)
            for done, (graphs, nodes) in zip(batches, sizes.tolist(), strict=True):
                done.graphs, done.nodes = graphs, nodes
        # Batches that make one step together: the last of each has the norm of their gradient.
        ends = [number + 1 for number, done in enumerate(batches) if done.steps]
        epoch = _speed(batches[: max(ends, default=0)])
        finite = [norms[end - 1] for end in ends if math.isfinite(norms[end - 1])]
        epoch["grad_norm"] = sum(finite) / len(finite) if finite else math.nan
        epoch["grad_norm_max"] = max(finite, default=math.nan)
        epoch["peak_memory"] = self._memory()
        rows = []
        for step, (begin, end) in enumerate(zip([0, *ends], ends, strict=False), self._first_step):
            if self.every and step % self.every == 0:
                row = _speed(batches[begin:end]) | {"epoch": self._epoch, "step": step}
                row["loss"] = sum(losses[begin:end]) / (end - begin)
                row |= {"grad_norm": norms[end - 1], "peak_memory": batches[end - 1].memory}
                rows.append([row[name] for name in STEP])
        return epoch, rows

    def _read(self) -> list[_Batch]:
        """Turn points in time into seconds, once the GPU has finished the newest batch."""
        if self._device.type == "cuda" and self._batches:
            self._asked.synchronize()
        for done in self._batches:
            if not done.seconds:
                asked, begun, ended = done.times
                done.seconds = (_between(asked, begun), _between(begun, ended))
        return self._batches

    def _now(self) -> Any:
        if self._device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def _memory(self) -> float:
        """Peak memory in bytes: allocated on the GPU, or held by the process."""
        if self._device.type == "cuda":
            return float(torch.cuda.max_memory_allocated(self._device))
        return float(peak_host_memory())


def _between(begun: Any, ended: Any) -> float:
    return float(ended - begun) if isinstance(begun, float) else float(begun.elapsed_time(ended)) / 1000


def _speed(batches: list[_Batch]) -> dict[str, float]:
    """Return the speed over the batches of a step, or of all, of all processes together."""
    seconds = sum(sum(done.seconds) for done in batches) or math.nan
    return {
        "graphs_per_second": sum(done.graphs for done in batches) / seconds,
        "nodes_per_second": sum(done.nodes for done in batches) / seconds,
        "share_waiting": sum(done.seconds[0] for done in batches) / seconds,
    }
