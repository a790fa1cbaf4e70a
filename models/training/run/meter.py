"""What the steps of an epoch were like: losses, gradient norms, times, memory, and the first that went wrong.

Nothing here waits for a GPU before the epoch's end: losses and norms go into a tensor there, times are
CUDA events, and all of them are read at once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from torch import Tensor, distributed
from torch.nn.utils import get_total_norm

from kmip_data.models.kinds import Size
from kmip_data.runtime.peak_memory import peak_host_memory

#: Columns of ``steps.csv``; ``step`` counts from 0 over the run.
STEP = (
    "epoch",
    "step",
    "loss",
    "grad_norm",
    "graphs_per_second",
    "nodes_per_second",
    "share_waiting",
    "seconds_search",
    "peak_memory",
)


class Fault(NamedTuple):
    """The first number of an epoch that is not finite."""

    what: str
    first: int  #: batch
    last: int  #: batch; another than ``first`` where several make a step
    step: int


#: Parts of a batch's time, in order: waiting for it, forward pass without search, search, …
STAGES = ("data", "forward", "search", "backward", "optimiser")


@dataclass
class _Batch:
    """A train batch; times are of :meth:`Meter._now`."""

    size: Size
    asked: Any  #: when the batch before had ended
    begun: Any
    searches: list[tuple[Any, Any]]
    forward: Any = None  #: when the forward pass had ended
    backward: Any = None
    ended: Any = None
    steps: bool = False  #: whether the optimiser stepped after it
    memory: float = math.nan


class Meter(Callback):
    """Measure the steps of an epoch.

    ``every`` so many steps there is a row of ``steps.csv``; 0: none. ``scaled``: losses are scaled up
    (``16-mixed``), so that an infinite gradient only skips its step.
    """

    def __init__(self, *, every: int, scaled: bool) -> None:
        self.every, self.scaled = every, scaled
        self.at_once = True  #: whether a number may be looked at when it is there
        self.whole = False  #: whether steps are done as a whole, so that nothing in them can be timed
        self._device = torch.device("cpu")
        self._epoch = self._first_step = 0
        self._processes = 1
        self._batches: list[_Batch] = []
        self._values = torch.empty(2, 0)  # losses and norms of each batch
        self._asked: Any = None

    # What Lightning calls.

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin anew."""
        self._device = trainer.strategy.root_device
        # Several processes meet in the gradient: all see there that one has gone wrong.
        self._processes = trainer.world_size
        self.at_once = self._device.type == "cpu" and self._processes == 1
        self._epoch, self._first_step = trainer.current_epoch, trainer.global_step
        self._batches = []
        self._values = torch.zeros(2, int(trainer.num_training_batches), device=self._device)
        self._asked = self._now()

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """The batch is on the device."""
        repeated = self._processes > 1 and "train_mask" in batch  # a graph of another process
        size = Size(0, 0, 0) if repeated else Size.of(batch)
        self._batches.append(_Batch(size, self._asked, self._now(), []))

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Tensor) -> None:
        """The forward pass is done."""
        self._batches[-1].forward = self._now()

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The backward pass is done."""
        self._batches[-1].backward = self._now()

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        """Keep the gradient's norm, before it is clipped."""
        groups = optimizer.param_groups
        self.norm(get_total_norm([p.grad for group in groups for p in group["params"] if p.grad is not None]))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """The batch has done its work."""
        done = self._batches[-1]
        done.ended = self._asked = self._now()
        if self.every and done.steps and (trainer.global_step - 1) % self.every == 0:
            done.memory = self._memory()

    # What a training step calls.

    def loss(self, loss: Tensor) -> None:
        """Keep the loss of the batch in work; a step outside a Trainer has none."""
        if self._batches:
            self._values[0, len(self._batches) - 1] = loss.detach()

    def norm(self, norm: Tensor) -> None:
        """Keep the norm of the gradient that the batch in work ends."""
        self._batches[-1].steps = True
        self._values[1, len(self._batches) - 1] = norm

    @contextmanager
    def search(self) -> Iterator[None]:
        """Time one search for the k best keys."""
        begun = self._now() if self._batches else None
        yield
        if begun is not None:
            self._batches[-1].searches.append((begun, self._now()))

    # What is read.

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
        """Number of the batch in work."""
        return max(0, len(self._batches) - 1)

    @property
    def stepped(self) -> bool:
        """Whether the optimiser stepped after the batch in work."""
        return self._batches[-1].steps

    def state(self) -> dict[str, Any]:
        """Return what was measured of the epoch so far, for :meth:`load`: tensors and a number."""
        self._wait()
        between = self._between
        rows = [
            [
                *(done.size.graphs, done.size.nodes, done.steps, done.memory),
                between(done.asked, done.begun),
                sum(between(*times) for times in done.searches),
                between(done.asked, done.ended),
            ]
            for done in self._batches
        ]
        batches = torch.tensor(rows, dtype=torch.float64)
        return {"first_step": self._first_step, "values": self._values.cpu(), "batches": batches}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on with an epoch from what :meth:`state` gave; its batches have no times of their stages."""
        self._first_step = state["first_step"]
        self._values.copy_(state["values"])
        for graphs, nodes, steps, memory, waited, search, whole in state["batches"].tolist():
            size, ended = Size(int(graphs), int(nodes), 0), (whole, whole, whole)
            self._batches.append(_Batch(size, 0.0, waited, [(0.0, search)], *ended, bool(steps), memory))

    def stages(self) -> list[dict[str, float]]:
        """Return seconds of :data:`STAGES` for each batch of the epoch, the ``whole`` and its ``graphs``."""
        self._wait()
        found, between = [], self._between
        for done in self._batches:
            search = sum(between(*times) for times in done.searches)
            forward = between(done.begun, done.forward) - search
            later = between(done.forward, done.backward), between(done.backward, done.ended)
            parts = between(done.asked, done.begun), forward, search, *later
            whole = {"whole": between(done.asked, done.ended), "graphs": float(done.size.graphs)}
            found.append(dict(zip(STAGES, parts, strict=True)) | whole)
        return found

    def read(self) -> tuple[dict[str, float], list[list[float]]]:
        """Return the columns of the epoch in ``metrics.csv``, and its rows of ``steps.csv``."""
        self._wait()
        losses, norms = self._values.tolist()
        if self._processes > 1:
            own = [[done.size.graphs, done.size.nodes] for done in self._batches]
            sizes = torch.tensor(own, device=self._device)
            distributed.all_reduce(sizes)
            for done, (graphs, nodes) in zip(self._batches, sizes.tolist(), strict=True):
                done.size = Size(graphs, nodes, 0)
        groups, group = [], []
        for done, loss, norm in zip(self._batches, losses, norms, strict=False):
            group.append((done, loss, norm))
            if done.steps:
                groups.append(group)
                group = []
        found = [self._summary(group) for group in groups]
        whole = self._summary([entry for group in groups for entry in group])
        finite = [norm for group in groups if math.isfinite(norm := group[-1][2])]
        whole["grad_norm"] = sum(finite) / len(finite) if finite else math.nan
        whole["grad_norm_max"] = max(finite, default=math.nan)
        whole["peak_memory"] = self._memory()
        del whole["loss"]
        rows = []
        for step, (row, group) in enumerate(zip(found, groups, strict=True), self._first_step):
            if self.every and step % self.every == 0:
                row |= {"epoch": self._epoch, "step": step, "peak_memory": group[-1][0].memory}
                rows.append([row[name] for name in STEP])
        return whole, rows

    def _summary(self, group: list[tuple[_Batch, float, float]]) -> dict[str, float]:
        """Loss, norm and speed of the batches of a step, or of all; the speed is that of all processes."""
        batches = [done for done, _, _ in group]
        seconds = sum(self._between(done.asked, done.ended) for done in batches) or math.nan
        waited = sum(self._between(done.asked, done.begun) for done in batches)
        searches = [search for done in batches for search in done.searches]
        return {
            "grad_norm": group[-1][2] if group else math.nan,
            "loss": sum(loss for _, loss, _ in group) / max(1, len(group)),
            "graphs_per_second": sum(done.size.graphs for done in batches) / seconds,
            "nodes_per_second": sum(done.size.nodes for done in batches) / seconds,
            "share_waiting": waited / seconds,
            "seconds_search": math.nan if self.whole else sum(self._between(*search) for search in searches),
        }

    def _wait(self) -> None:
        """Wait for a GPU to end the newest batch."""
        if self._device.type == "cuda" and self._batches:
            self._asked.synchronize()

    def _now(self) -> Any:
        if self._device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    @staticmethod
    def _between(begun: Any, ended: Any) -> float:
        if isinstance(begun, float):
            return float(ended - begun)
        return float(begun.elapsed_time(ended)) / 1000

    def _memory(self) -> float:
        """Most bytes so far: allocated on the GPU, or held by the process."""
        if self._device.type == "cuda":
            return float(torch.cuda.max_memory_allocated(self._device))
        return float(peak_host_memory())
