"""Runs without a folder whose steps are recorded, or plain ones, to be compared bit for bit."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from support.builds.learnable import tiny_config
from torch.optim.lr_scheduler import LambdaLR

from kmip_data.builds.home import Build, Home
from kmip_data.models.training.capture.cuda_graphs import CudaGraphs
from kmip_data.models.training.capture.steps import CapturedSteps
from kmip_data.models.training.data.open_data import open_data
from kmip_data.models.training.optimizers import OptimizerConfig, build_optimizer
from kmip_data.models.training.run import loop as loop_file
from kmip_data.models.training.run.loop import Loop
from kmip_data.models.training.run.training_module import TrainingModule

RATES = {"optimizer": {"lr": 2**-6, "weight_decay": 2**-10}, "schedule": {"per": "step"}}


def build_fused_optimizer(
    model: torch.nn.Module, config: OptimizerConfig, *, fused: bool
) -> torch.optim.Optimizer:
    """The optimizer of a GPU."""
    assert not fused  # as on a CPU
    return build_optimizer(model, config, fused=True)


def build_linear_schedule(
    optimizer: torch.optim.Optimizer, _: object, epochs: int, steps: int
) -> LambdaLR:
    """A schedule of rates that are numbers of float32 too, for a recorded step reads them as such."""
    return LambdaLR(optimizer, lambda moment: (epochs * steps - moment) / (epochs * steps))


@dataclass
class TrainedRun:
    """A run that has ended."""

    module: TrainingModule
    optimizer: dict[str, Any] = field(default_factory=dict)
    epochs: list[tuple[torch.Tensor, dict[str, float]]] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    captured: Any = None

    @property
    def state(self) -> list[Any]:
        """Weights, buffers, the optimizer's state, losses, norms and metrics."""
        return [dict(self.module.model.state_dict()), self.optimizer, self.epochs]


def train_run(
    build: Build,
    home: Path,
    graphs: CudaGraphs | None = None,
    *,
    device: str = "cpu",
    watch: Any = None,
    **changes: Any,
) -> TrainedRun:
    """Train; with ``graphs`` by recorded steps.

    Further arguments are sections of the configuration.
    """
    sections = {name: {**RATES.get(name, {}), **changes.get(name, {})} for name in RATES | changes}
    config = tiny_config(build, **sections)
    data = open_data(config, home=Home(home))
    torch.manual_seed(0)
    module = TrainingModule(data.pin_settings(config), data)
    run, training = TrainedRun(module), module.config.training
    options: dict[str, Any] = {}
    if graphs is not None:
        run.captured = options["captured"] = CapturedSteps(graphs, run.told.append)
    with (
        patch.object(loop_file, "build_optimizer", build_fused_optimizer),
        patch.object(loop_file, "build_schedule", build_linear_schedule),
    ):
        loop = Loop(module, data, torch.device(device), **options)
    if watch is not None:
        run_batch = loop.run_batch

        def watched(batch: Any, *args: Any, **where: Any) -> Any:
            with watch(batch, loop.batches_done + 1 == loop.batches_per_epoch):
                return run_batch(batch, *args, **where)

        loop.run_batch = watched
    for epoch in range(training.epochs):
        loop.epoch, loop.batches_done = epoch, 0
        loop.train_epoch()
        run.epochs.append((module.meter.values.cpu().clone(), module.metrics.compute()))
    run.optimizer = loop.optimizer.state_dict()
    return run


def assert_same_runs(one: TrainedRun, other: TrainedRun) -> None:
    """Bit for bit."""
    torch.testing.assert_close(one.state, other.state, rtol=0, atol=0)
