"""Training steps as CUDA graphs: one recorded for each shape of a batch, replayed for every batch like it.

A graph launches the same kernels with the same arguments again: addresses, sizes, and each number that the
host knew. So a batch is copied to the memory of the recorded one, gradients stay in place, the learning rate
is read on the GPU, and whatever else the host decides is part of the key or discards the graphs
(:meth:`CapturedSteps.under`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import Optimizer

from kmip_data.models.context import LEFT_OUT
from kmip_data.models.kinds import POSITIONAL
from kmip_data.models.layers.batch import REAL_SIZES
from kmip_data.models.training.capture.graphs import CudaGraphs, Graphs, Learned
from kmip_data.models.training.capture.padding import padded, without_padding
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.models.training.data.run_data import RunData
from kmip_data.models.training.machine import Device
from kmip_data.reading.batching import pointers_on_cpu

WARM_UP = 2  #: batches of a shape before it is recorded: they compile, plan, and create the optimiser's state
MOST = 32  #: recorded shapes and places in a step; further ones run operation by operation


@dataclass(frozen=True, eq=False)
class _Step:
    batch: Any  #: its memory is what the graph reads
    replay: Callable[[], None]
    found: Learned


class CapturedSteps:
    """Learn from batches by replaying recorded work.

    Parameters
    ----------
    forward
        Logits, targets and loss of a batch, and the loss to go backward from.
    tell
        Called with the reason where recording fails; steps then run operation by operation.
    accumulate, clip_norm
        As in ``training``.
    pad
        Pad batches to few sizes, as :func:`~.padding.padded` does.
    """

    def __init__(
        self,
        forward: Callable[..., tuple[Tensor, Tensor, Tensor, Tensor]],
        graphs: Graphs,
        tell: Callable[[str], None],
        *,
        accumulate: int,
        clip_norm: float,
        pad: bool = False,
    ) -> None:
        self._forward, self._graphs, self._tell = forward, graphs, tell
        self._accumulate, self._clip_norm, self._pad = accumulate, clip_norm, pad
        self._seen: Counter[Any] = Counter()
        self._steps: dict[Any, _Step] = {}
        self._setting: Any = None
        self._rates: _Rates | None = None
        self._failed = False

    def under(self, setting: Any) -> None:
        """Discard the steps recorded under another setting: a number given by the host, such as k."""
        if setting != self._setting:
            self._setting = setting
            self._steps.clear()
            self._seen.clear()

    def __call__(self, batch: Any, optimiser: Optimizer, *, first: bool, steps: bool) -> Learned:
        """Learn from a batch, the ``first`` of its step or a further one; ``steps``: the last of it."""
        larger = padded(batch) if self._pad and not self._failed else None
        if larger is None:
            return self._learned(batch, optimiser, first, steps)
        return without_padding(self._learned(larger, optimiser, first, steps), batch, larger)

    def _learned(self, batch: Any, optimiser: Optimizer, first: bool, steps: bool) -> Learned:
        if self._rates is None:
            self._rates = _Rates(optimiser, batch.x.device)
        self._rates.follow()
        key = None if (shape := shape_of(batch)) is None else (shape, first, steps)
        if key not in self._steps and not self._record(key, batch, optimiser, first, steps):
            return self._graphs.run(lambda _: self._learn(batch, optimiser, first, steps))
        step = self._steps[key]
        for name, memory in _tensors(step.batch).items():
            if memory is not batch[name]:  # one graph comes again and again
                memory.copy_(batch[name], non_blocking=True)
        step.replay()
        return Learned(*(tensor.clone() for tensor in step.found))  # the next batch overwrites them

    def _record(self, key: Any, batch: Any, optimiser: Optimizer, first: bool, steps: bool) -> bool:
        """Record the work on batches of this shape, unless it is too early, too much or impossible."""
        if key is None:
            return self._give_up("the host does not know where the graphs of a batch begin")
        if self._failed or len(self._steps) == MOST:
            return False
        self._seen[key] += 1
        if self._seen[key] <= WARM_UP:
            return False
        try:
            replay, found = self._graphs.record(
                lambda keep: self._learn(batch, optimiser, first, steps, keep, recording=True)
            )
        except Exception as error:  # noqa: BLE001 -- what is not the recording's the plain step meets again
            return self._give_up((str(error).splitlines() or [type(error).__name__])[0])
        self._steps[key] = _Step(batch, replay, found)
        return True

    def _give_up(self, why: str) -> bool:
        """Report it once, and replay nothing any more; always False."""
        if not self._failed:
            self._tell(f"steps: not captured, operation by operation from here on: {why}")
        self._failed = True
        self._steps.clear()  # they know the random generator of before a failure
        return False

    def _learn(
        self,
        batch: Any,
        optimiser: Optimizer,
        first: bool,
        steps: bool,
        keep: list[Any] | None = None,
        *,
        recording: bool = False,
    ) -> Learned:
        """Forward and backward pass and, where ``steps``, the step: the work of ``Loop.plain_step``."""
        assert self._rates is not None
        logits, target, loss, backward = self._forward(batch, keep=keep)
        if first:
            optimiser.zero_grad(set_to_none=False)  # in place: all graphs know where gradients lie
        (backward / self._accumulate).backward()  # type: ignore[no-untyped-call]
        norm = loss
        if steps:
            parameters = [p for group in optimiser.param_groups for p in group["params"]]
            norm = get_total_norm([p.grad for p in parameters if p.grad is not None])
            if self._clip_norm:
                clip_grads_with_norm_(parameters, self._clip_norm, norm)
            with self._rates.given(recording=recording):
                optimiser.step()
        return Learned(logits.detach(), target, loss.detach(), norm)


class _Rates:
    """The learning rates of an optimiser's groups as float32 on a device, where recorded steps read them.

    Between steps a group has its number, which schedules and checkpoints go by.
    """

    def __init__(self, optimiser: Optimizer, device: torch.device) -> None:
        self._groups = optimiser.param_groups
        self._numbers = [group["lr"] for group in self._groups]
        self._tensors = [torch.tensor(rate, device=device) for rate in self._numbers]

    def follow(self) -> None:
        """Copy the rates that a schedule has moved."""
        for place, (tensor, group) in enumerate(zip(self._tensors, self._groups, strict=True)):
            if group["lr"] != self._numbers[place]:
                self._numbers[place] = group["lr"]
                tensor.fill_(group["lr"])

    @contextmanager
    def given(self, *, recording: bool) -> Iterator[None]:
        """Let the optimiser read the tensors inside the block; ``capturable`` permits recording its step."""
        for group, tensor in zip(self._groups, self._tensors, strict=True):
            group["lr"] = tensor
            if "capturable" in group:
                group["capturable"] = recording
        try:
            yield
        finally:
            for group, rate in zip(self._groups, self._numbers, strict=True):
                group["lr"] = rate
                if "capturable" in group:
                    group["capturable"] = False


def shape_of(batch: Any) -> tuple[Any, ...] | None:
    """Return all that kernels of a step take from the host: shapes, types and the first node of each graph.

    ``None`` where the host does not know the latter; in a padded batch no kernel reads it on the host.
    """
    told = "ptr" in batch and REAL_SIZES not in batch
    starts = pointers_on_cpu(batch, int(batch.num_nodes)) if told else ()
    if starts is None:
        return None
    tensors = _tensors(batch).items()
    return (*starts, *((name, tensor.shape, tensor.dtype) for name, tensor in tensors))


def _tensors(batch: Any) -> dict[str, Tensor]:
    return {name: value for name, value in batch.to_dict().items() if isinstance(value, Tensor)}


def captured_steps(
    forward: Callable[..., tuple[Tensor, Tensor, Tensor, Tensor]],
    config: RunConfig,
    tell: Callable[[str], None],
    *,
    pad: bool,
) -> CapturedSteps:
    """Return captured steps on the current GPU."""
    training, graphs = config.training, CudaGraphs(torch.device("cuda"))
    return CapturedSteps(
        forward, graphs, tell, accumulate=training.accumulate, clip_norm=training.clip_norm, pad=pad
    )


def why_plain(config: RunConfig, data: RunData, device: Device, *, recompute: bool) -> str | None:
    """Return why the steps of a run cannot be recorded; None if nothing known beforehand forbids it."""
    training, system = config.training, config.system
    parts = (config.model.local.unrecordable(), config.model.attention.unrecordable())
    reasons = {
        "no GPU": device.kind != "cuda",
        "system.capture = off": system.capture == "off",
        "the self-check of this GPU failed": "capture" in LEFT_OUT,
        "several processes exchange gradients": config.processes > 1,
        "system.compile": system.compile,
        "16-mixed looks at the gradients before it steps": training.precision == "16-mixed",
        "recomputed layers": recompute,
    }
    known = next((reason for reason, holds in reasons.items() if holds), parts[0] or parts[1])
    return known or (_why_unpadded(config, data) if data.ragged else None)


def _why_unpadded(config: RunConfig, data: RunData) -> str | None:
    """Return why batches that differ in size cannot be padded; None where they can."""
    model = config.model
    takes = {
        "a sampled neighbourhood": not config.training.neighbors,
        "a score of pairs": data.task.level != "link",
        model.local.kind: model.local.takes_padding,
        model.attention.kind: model.attention.takes_padding,
        model.positional: POSITIONAL[model.positional].takes_padding,
    }
    part = next((part for part, taken in takes.items() if not taken), None)
    return part and f"batches differ in size, and {part} takes no padding"
