"""Training steps as CUDA graphs, captured once for each shape of a batch and replayed.

A graph repeats kernels with the same arguments: addresses, sizes, and all numbers from the host. So
a batch is copied into the memory of the captured one, gradients stay in place, the learning rate is
read on the GPU, and all other decisions of the host are part of the key or discard the graphs
(:meth:`CapturedSteps.discard_if_changed`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch_geometric.data import Data

from kmip_data.files.reading import first_problem
from kmip_data.models.kernels import DISABLED
from kmip_data.models.training.capture.cuda_graphs import CudaGraphs, StepFunction, StepOutput
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.models.training.data.run_data import RunData
from kmip_data.models.training.machine import Device
from kmip_data.models.training.optimizers import all_optimizers
from kmip_data.reading.batching import pointers_on_cpu

#: Warm-up batches per shape, which compile, plan, and create the optimizer's state.
WARM_UP = 2
#: Most captured shapes and positions in a step; others run operation by operation.
MAX_GRAPHS = 32

#: Learns from a batch: ``step(batch, optimizer, starts_step=…, ends_step=…)``.
Step = Callable[..., StepOutput]
#: Shape of a batch, and its step_position in a step.
ShapeKey = tuple[object, ...]
T = TypeVar("T")


class CapturedSteps:
    """Learn from batches by replaying captured steps.

    Parameters
    ----------
    graphs
        Captures work.
    report
        Called with the reason if capturing fails; steps then run operation by operation.
    """

    def __init__(self, graphs: CudaGraphs, report: Callable[[str], None]) -> None:
        self._graphs = graphs
        self._report = report
        self._seen: Counter[ShapeKey] = Counter()
        #: By shape: batch whose memory the graph reads, replay function, and results.
        self._steps: dict[ShapeKey, tuple[Data, Callable[[], None], StepOutput]] = {}
        self._setting: object = None
        self._rates: _Rates | None = None
        self._failed = False

    def discard_if_changed(self, setting: object) -> None:
        """Discard the steps captured under another setting: a number given by the host, such as k."""
        if setting != self._setting:
            self._setting = setting
            self._steps.clear()
            self._seen.clear()

    def run_with_free_memory(self, evaluate: Callable[[], T]) -> T:
        """Call ``evaluate``, after freeing captured steps if less memory is free than a step takes.

        Nothing else can use their pool; steps are captured anew afterwards.
        """
        free, peak = self._graphs.free_and_peak_memory()
        if free < peak:
            self._steps.clear()
        try:
            return evaluate()
        except torch.cuda.OutOfMemoryError:
            if not self._steps:
                raise
        # Outside the handler: its error holds the frames, and these hold tensors.
        self._steps.clear()
        torch.cuda.empty_cache()
        return evaluate()

    def __call__(
        self, step: Step, batch: Data, optimizer: Optimizer, **step_position: bool
    ) -> StepOutput:
        """Call ``step`` (:data:`Step`), or replay it for a shape that is captured.

        ``step_position`` is its ``starts_step`` and ``ends_step``.
        """
        if self._rates is None:
            self._rates = _Rates(optimizer, batch.x.device)
        rates = self._rates
        rates.copy_changed_rates()

        def work(captured: bool) -> StepOutput:
            with rates.on_device(capturable=captured):
                return step(batch, optimizer, **step_position)

        shape = shape_key(batch)
        if shape is None:
            self._give_up("the host does not know where the graphs of a batch begin")
            return self._graphs.run(work)
        key = (shape, *step_position.items())
        if key not in self._steps and not self._capture(key, batch, work):
            return self._graphs.run(work)

        captured, replay, results = self._steps[key]
        for name, memory in _tensors_of_batch(captured).items():
            # A dataset of one graph has the same tensors in every batch.
            if memory is not batch[name]:
                memory.copy_(batch[name], non_blocking=True)
        replay()
        return StepOutput(*map(Tensor.clone, results))  # the next batch overwrites them

    def _capture(self, key: ShapeKey, batch: Data, work: StepFunction) -> bool:
        """Capture the work on batches of this shape, unless it is too early, too many or impossible."""
        if self._failed or len(self._steps) == MAX_GRAPHS:
            return False
        self._seen[key] += 1
        if self._seen[key] <= WARM_UP:
            return False
        try:
            self._steps[key] = batch, *self._graphs.capture(work)
        except Exception as error:  # noqa: BLE001 -- the plain step raises any that is not the capture's
            self._give_up(first_problem(error))
        return key in self._steps

    def _give_up(self, reason: str) -> None:
        """Report the reason once, and stop replaying."""
        if not self._failed:
            self._report(f"steps: not captured, operation by operation from here on: {reason}")
        self._failed = True
        self._steps.clear()  # restore the random generator from before the failure


class _Rates:
    """The learning rates of an optimizer's groups as float32 on a device, where captured steps read them.

    Between steps a group has its number, which schedules and checkpoints read.
    """

    def __init__(self, optimizer: Optimizer, device: torch.device) -> None:
        self._groups = optimizer.param_groups
        self._numbers = [group["lr"] for group in self._groups]
        self._tensors = [torch.tensor(rate, device=device) for rate in self._numbers]

    def copy_changed_rates(self) -> None:
        """Copy the rates that a schedule has moved."""
        for index, group in enumerate(self._groups):
            rate = group["lr"]
            if rate != self._numbers[index]:
                self._numbers[index] = rate
                self._tensors[index].fill_(rate)

    @contextmanager
    def on_device(self, *, capturable: bool) -> Iterator[None]:
        """Let the optimizer read the tensors inside the block.

        ``capturable`` permits capturing its step.
        """
        try:
            self._set_rates(self._tensors, capturable=capturable)
            yield
        finally:
            self._set_rates(self._numbers, capturable=False)

    def _set_rates(self, rates: Sequence[object], *, capturable: bool) -> None:
        for group, rate in zip(self._groups, rates, strict=True):
            group["lr"] = rate
            if "capturable" in group:
                group["capturable"] = capturable


def shape_key(batch: Data) -> ShapeKey | None:
    """Return all arguments that a step's kernels take from the host: shapes, dtypes, graph pointers.

    ``None`` if the host does not know the pointers.
    """
    key: list[object] = []
    if "ptr" in batch:
        starts = pointers_on_cpu(batch, int(batch.num_nodes))
        if starts is None:
            return None
        key += starts
    for name, tensor in _tensors_of_batch(batch).items():
        key.append((name, tensor.shape, tensor.dtype))
    return tuple(key)


def _tensors_of_batch(batch: Data) -> dict[str, Tensor]:
    return {name: value for name, value in batch.to_dict().items() if isinstance(value, Tensor)}


def reason_not_captured(
    config: RunConfig, data: RunData, device: Device, *, recompute: bool
) -> str | None:
    """Return why the steps of a run cannot be captured.

    None if nothing known beforehand forbids it.
    """
    training = config.training
    system = config.system
    one_graph = data.unit == "nodes" and not data.is_ragged
    optimizer = config.optimizer.name
    reasons = {
        "no GPU": device.type != "cuda",
        "batches differ in size": data.is_ragged,
        "system.capture = off": system.capture == "off",
        "the self-check of this GPU failed": "capture" in DISABLED,
        "several processes exchange gradients": config.processes > 1,
        "16-mixed looks at the gradients before it steps": training.precision == "16-mixed",
        "k_schedule changes k in every epoch, of one step": training.k_schedule and one_graph,
        "recomputed layers": recompute,
        f"the optimizer {optimizer} counts on the host": not all_optimizers()[optimizer].fused,
    }
    for reason, holds in reasons.items():
        if holds:
            return reason
    return config.model.attention.not_captured
