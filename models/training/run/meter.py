"""Measurements of the training steps of one epoch: losses, gradient norms, times and memory.

Nothing here waits for a GPU before the epoch's end: losses and norms are written to a tensor there, times
are CUDA events, and all of them are read at once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed

from kmip_data.models.training.data.run_data import BatchSize
from kmip_data.runtime.memory import peak_host_memory

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
#: Parts of a batch's time, in order: waiting for it, forward pass without search, search, …
STAGES = ("data", "forward", "search", "backward", "optimiser")


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
    times: list[Any] = field(default_factory=list)  #: asked for, begun, end of forward, of backward, of all
    searches: list[tuple[Any, Any]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)  #: of :data:`STAGES`, once they were read


class Meter:
    """Measure the steps of an epoch.

    Parameters
    ----------
    every
        Steps from one row of ``steps.csv`` to the next; 0: no rows.
    scaled
        True if losses are scaled up (``16-mixed``): an infinite gradient then only skips its step.
    """

    def __init__(self, *, every: int, scaled: bool) -> None:
        self.every, self.scaled = every, scaled
        self.at_once = True  #: True if a number may be read as soon as it exists: on one CPU process
        self.captured = False  #: True if steps are replayed, so that their searches cannot be timed
        self._device = torch.device("cpu")
        self._epoch = self._first_step = self._steps = 0
        self._processes = 1
        self._batches: list[_Batch] = []
        self._values = torch.empty(2, 0)  # losses and norms of each batch
        self._asked: Any = None

    def begin(self, epoch: int, step: int, batches: int, device: torch.device) -> None:
        """Begin an epoch of ``batches`` batches, whose first step is number ``step`` of the run."""
        self._device, self._epoch, self._first_step, self._steps = device, epoch, step, 0
        # Several processes meet in the gradient: all of them see there that one has diverged.
        self._processes = distributed.get_world_size() if distributed.is_initialized() else 1
        self.at_once = device.type == "cpu" and self._processes == 1
        self._batches, self._values = [], torch.zeros(2, batches, device=device)
        self._asked = self._now()

    def begin_batch(self, batch: Any) -> BatchSize:
        """Note that a batch has reached the device; return its size."""
        size, times = BatchSize.of(batch), [self._asked, self._now()]
        repeated = self._processes > 1 and "train_mask" in batch  # another process counts it
        self._batches.append(
            _Batch(0, 0, times=times) if repeated else _Batch(size.graphs, size.nodes, times=times)
        )
        return size

    def mark(self) -> None:
        """Note the end of the forward pass, then that of the backward pass."""
        self._batches[-1].times.append(self._now())

    def loss(self, loss: Tensor) -> None:
        """Keep the loss of the current batch."""
        self._values[0, len(self._batches) - 1] = loss.detach()

    def norm(self, norm: Tensor) -> None:
        """Keep the norm, before clipping, of the gradient that the current batch completes."""
        self._steps += not self._batches[-1].steps
        self._batches[-1].steps = True
        self._values[1, len(self._batches) - 1] = norm

    @contextmanager
    def search(self) -> Iterator[None]:
        """Time one search for the k best keys."""
        begun = self._now()
        yield
        self._batches[-1].searches.append((begun, self._now()))

    def end_batch(self) -> None:
        """Note the end of a batch; after a step that gets a row, how much memory was needed."""
        done = self._batches[-1]
        self._asked = self._now()
        done.times += [self._asked] * (5 - len(done.times))  # a replayed step has no stages
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
        self._read()
        rows = [[b.graphs, b.nodes, b.steps, b.memory, *b.seconds] for b in self._batches]
        batches = torch.tensor(rows, dtype=torch.float64)
        return {"first_step": self._first_step, "values": self._values.cpu(), "batches": batches}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue an epoch from the result of :meth:`state`."""
        self._first_step = state["first_step"]
        self._values.copy_(state["values"])
        for graphs, nodes, steps, memory, *seconds in state["batches"].tolist():
            self._batches.append(_Batch(int(graphs), int(nodes), bool(steps), memory, seconds=seconds))
        self._steps = sum(done.steps for done in self._batches)

    def stages(self) -> list[dict[str, float]]:
        """Return seconds of :data:`STAGES` of each batch of the epoch, their sum ``whole`` and ``graphs``."""
        self._read()
        return [
            dict(zip(STAGES, done.seconds, strict=True))
            | {"whole": sum(done.seconds), "graphs": float(done.graphs)}
            for done in self._batches
        ]

    def read(self) -> tuple[dict[str, float], list[list[float]]]:
        """Return the columns of the epoch in ``metrics.csv``, and its rows of ``steps.csv``."""
        self._read()
        losses, norms = self._values.tolist()
        if self._processes > 1:
            sizes = torch.tensor([[b.graphs, b.nodes] for b in self._batches], device=self._device)
            distributed.all_reduce(sizes)
            for done, (graphs, nodes) in zip(self._batches, sizes.tolist(), strict=True):
                done.graphs, done.nodes = graphs, nodes
        # Batches that make one step together: the last of each has the norm of their gradient.
        groups, group = [], []
        for done, loss, norm in zip(self._batches, losses, norms, strict=False):
            group.append((done, loss, norm))
            if done.steps:
                groups.append(group)
                group = []
        epoch = self._summary([entry for group in groups for entry in group])
        finite = [norm for group in groups if math.isfinite(norm := group[-1][2])]
        epoch["grad_norm"] = sum(finite) / len(finite) if finite else math.nan
        epoch["grad_norm_max"] = max(finite, default=math.nan)
        epoch["peak_memory"] = self._memory()
        del epoch["loss"]
        rows = []
        for step, group in enumerate(groups, self._first_step):
            if self.every and step % self.every == 0:
                row = self._summary(group)
                row |= {"epoch": self._epoch, "step": step, "peak_memory": group[-1][0].memory}
                rows.append([row[name] for name in STEP])
        return epoch, rows

    def _summary(self, group: list[tuple[_Batch, float, float]]) -> dict[str, float]:
        """Loss, norm and speed over the batches of a step, or of all; the speed is that of all processes."""
        batches = [done for done, _, _ in group]
        seconds = sum(sum(done.seconds) for done in batches) or math.nan
        search = math.nan if self.captured else sum(done.seconds[2] for done in batches)
        return {
            "grad_norm": group[-1][2] if group else math.nan,
            "loss": sum(loss for _, loss, _ in group) / max(1, len(group)),
            "graphs_per_second": sum(done.graphs for done in batches) / seconds,
            "nodes_per_second": sum(done.nodes for done in batches) / seconds,
            "share_waiting": sum(done.seconds[0] for done in batches) / seconds,
            "seconds_search": search,
        }

    def _read(self) -> None:
        """Turn points in time into seconds of each stage, once the GPU has finished the newest batch."""
        if self._device.type == "cuda" and self._batches:
            self._asked.synchronize()
        for done in self._batches:
            if not done.seconds:
                wait, forward, backward, step = (
                    _between(one, two) for one, two in zip(done.times, done.times[1:], strict=False)
                )
                search = sum(_between(*times) for times in done.searches)
                done.seconds = [wait, forward - search, search, backward, step]

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
    if isinstance(begun, float):
        return float(ended - begun)
    return float(begun.elapsed_time(ended)) / 1000
