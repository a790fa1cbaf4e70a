"""Training steps as CUDA graphs, captured once for each shape of a batch and replayed.

A graph repeats kernels with the same arguments: addresses, sizes, and all numbers from the host.
Therefore a batch is copied into the memory of the captured one, gradients stay in place, and the
learning rate is read on the GPU. All other decisions of the host are part of a graph's key, or
discard the graphs (:meth:`CapturedSteps.discard_if_changed`).
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

from kmip_data.files.small_files import first_problem
from kmip_data.models.kernel_availability import DISABLED_GPU_FEATURES
from kmip_data.models.training.capture.cuda_graphs import CapturableWork, CudaGraphs, StepOutput
from kmip_data.models.training.config.run_config import RunConfig
from kmip_data.models.training.data.run_data import RunData
from kmip_data.models.training.devices import Device
from kmip_data.models.training.optimizers import all_optimizers
from kmip_data.reading.batching import pointers_on_cpu

#: Batches per shape before the capture, which compile, plan, and create the optimizer's state.
WARM_UP_BATCHES = 2
#: Largest number of captured shapes and step positions; others run uncaptured.
MAX_CAPTURED_SHAPES = 32

#: Function that trains on a batch: ``train_batch(batch, optimizer, starts_step=…, ends_step=…)``.
TrainBatchFunction = Callable[..., StepOutput]
#: Shape of a batch, and its position in a step.
ShapeKey = tuple[object, ...]
T = TypeVar("T")


class CapturedSteps:
    """Training steps that are captured and replayed.

    Parameters
    ----------
    graphs
        CUDA graphs of the device.
    report
        Called with a message if capturing fails; all steps then run uncaptured.
    """

    def __init__(self, graphs: CudaGraphs, report: Callable[[str], None]) -> None:
        self._graphs = graphs
        self._report = report
        self._shape_counts: Counter[ShapeKey] = Counter()
        #: batch whose memory the graph reads, replay function, and results
        self._steps: dict[ShapeKey, tuple[Data, Callable[[], None], StepOutput]] = {}
        self._setting: object = None
        self._rates: _DeviceRates | None = None
        self._failed = False

    def discard_if_changed(self, setting: object) -> None:
        """Discard captured steps if a setting of the host, such as k, has changed."""
        if setting != self._setting:
            self._setting = setting
            self._steps.clear()
            self._shape_counts.clear()

    def run_with_free_memory(self, evaluate: Callable[[], T]) -> T:
        """Call ``evaluate``, after discarding captured steps if less memory is free than a step takes.

        Their pool cannot be used for anything else. Steps are captured again afterwards.
        """
        free, peak = self._graphs.free_and_peak_memory()
        if free < peak:
            self._steps.clear()
        try:
            return evaluate()
        except torch.cuda.OutOfMemoryError:
            if not self._steps:
                raise
        # Outside the handler, because the error keeps its frames alive, and with them the tensors.
        self._steps.clear()
        torch.cuda.empty_cache()
        return evaluate()

    def __call__(
        self,
        train_batch: TrainBatchFunction,
        batch: Data,
        optimizer: Optimizer,
        **step_position: bool,
    ) -> StepOutput:
        """Replay the step if the batch's shape is captured; otherwise call ``train_batch`` or capture it.

        ``step_position`` holds the arguments ``starts_step`` and ``ends_step``.
        """
        if self._rates is None:
            self._rates = _DeviceRates(optimizer, batch.x.device)
        rates = self._rates
        rates.copy_changed_rates()

        def work(captured: bool) -> StepOutput:
            with rates.on_device(capturable=captured):
                return train_batch(batch, optimizer, **step_position)

        shape = shape_key(batch)
        if shape is None:
            self._stop_capturing("the host does not know where the graphs of a batch begin")
            return self._graphs.run(work)
        key = (shape, *step_position.items())
        if key not in self._steps and not self._capture(key, batch, work):
            return self._graphs.run(work)

        captured_batch, replay, results = self._steps[key]
        for name, tensor in _tensors_of_batch(captured_batch).items():
            # Batches of a single-graph dataset share their tensors.
            if tensor is not batch[name]:
                tensor.copy_(batch[name], non_blocking=True)
        replay()
        return StepOutput(*map(Tensor.clone, results))  # the next replay overwrites them

    def _capture(self, key: ShapeKey, batch: Data, work: CapturableWork) -> bool:
        """Capture the work on a batch's shape once it is warmed up; return False if not captured."""
        if self._failed or len(self._steps) == MAX_CAPTURED_SHAPES:
            return False
        self._shape_counts[key] += 1
        if self._shape_counts[key] <= WARM_UP_BATCHES:
            return False
        try:
            self._steps[key] = batch, *self._graphs.capture(work)
        except Exception as error:  # noqa: BLE001 -- the uncaptured step raises it again if it persists
            self._stop_capturing(first_problem(error))
        return key in self._steps

    def _stop_capturing(self, reason: str) -> None:
        """Report the reason once, and discard all captured steps."""
        if not self._failed:
            self._report(f"steps: no longer captured: {reason}")
        self._failed = True
        self._steps.clear()  # they would draw from the generator state that the failure replaced


class _DeviceRates:
    """Learning rates of an optimizer's groups as float32 tensors, which captured steps read.

    Between steps, groups hold numbers, which schedules and checkpoints read.
    """

    def __init__(self, optimizer: Optimizer, device: torch.device) -> None:
        self._groups = optimizer.param_groups
        self._numbers = [group["lr"] for group in self._groups]
        self._tensors = [torch.tensor(rate, device=device) for rate in self._numbers]

    def copy_changed_rates(self) -> None:
        """Copy the rates that a schedule has changed to the device."""
        for index, group in enumerate(self._groups):
            rate = group["lr"]
            if rate != self._numbers[index]:
                self._numbers[index] = rate
                self._tensors[index].fill_(rate)

    @contextmanager
    def on_device(self, *, capturable: bool) -> Iterator[None]:
        """Make the optimizer read the tensors inside the block; ``capturable`` allows a capture."""
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
    """Return everything that a step's kernels take from the host: shapes, dtypes and graph pointers.

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


def why_not_capturable(
    config: RunConfig, data: RunData, device: Device, *, recompute: bool
) -> str | None:
    """Return why the steps of a run cannot be captured, or ``None`` if nothing known prevents it."""
    training = config.training
    system = config.system
    one_graph = data.part_members == "nodes" and not data.is_ragged
    optimizer = config.optimizer.name
    reasons = {
        "no GPU": device.type != "cuda",
        "batches differ in size": data.is_ragged,
        "system.capture = off": system.capture == "off",
        "the self-check of this GPU failed": "capture" in DISABLED_GPU_FEATURES,
        "several processes exchange gradients": config.processes > 1,
        "16-mixed looks at the gradients before it steps": training.precision == "16-mixed",
        "k_schedule changes k in every epoch, of one step": training.k_schedule and one_graph,
        "recomputed layers": recompute,
        f"the optimizer {optimizer} counts on the host": not all_optimizers()[optimizer].fused,
    }
    for reason, applies in reasons.items():
        if applies:
            return reason
    return config.model.attention.why_not_capturable
