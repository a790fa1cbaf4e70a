"""Runs without a folder whose steps are recorded, or plain ones, to be compared bit for bit."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.callbacks import Callback
from support.training_data import tiny_config

from kmip_data.builds.home import Build, Home
from kmip_data.models.training.capture.graphs import Graphs
from kmip_data.models.training.capture.steps import CapturedSteps
from kmip_data.models.training.data.obtain import open_data
from kmip_data.models.training.data.on_card import sent_ahead
from kmip_data.models.training.memory.machine import Device
from kmip_data.models.training.run.fitting import build_trainer
from kmip_data.models.training.run.logs import quiet_lightning
from kmip_data.models.training.run.module import TrainingModule

#: Rates that are numbers of float32 too, for a recorded step reads them as such.
RATES = {
    "optimiser": {"lr": 2**-6, "fused": True, "weight_decay": 2**-10},
    "schedule": {"kind": "linear_with_warmup", "warmup_epochs": 0, "per": "step"},
}


@dataclass
class Learned:
    """A run that has ended."""

    module: TrainingModule
    optimiser: dict[str, Any] = field(default_factory=dict)
    epochs: list[tuple[torch.Tensor, dict[str, float]]] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    @property
    def state(self) -> list[Any]:
        """Weights, buffers, the optimiser's state, losses, norms and metrics."""
        return [dict(self.module.model.state_dict()), self.optimiser, self.epochs]


class _Epochs(Callback):
    def __init__(self, run: Learned) -> None:
        self._run = run

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        module = self._run.module
        self._run.epochs.append((module.meter._values.cpu().clone(), module.metrics.compute()))


def learn(
    build: Build,
    home: Path,
    graphs: Graphs | None = None,
    *,
    device: str = "cpu",
    watch: Any = (),
    pad: bool = False,
    **changes: Any,
) -> Learned:
    """Train; with ``graphs`` by recorded steps, perhaps of padded batches.

    Further arguments are sections of the configuration.
    """
    sections = {name: {**RATES.get(name, {}), **changes.get(name, {})} for name in RATES | changes}
    config = tiny_config(build, **sections)
    data = open_data(config, home=Home(home))
    torch.manual_seed(0)
    module = TrainingModule(data.pinned(config), data)
    run, training = Learned(module), module.config.training
    if graphs is not None:
        options = {"accumulate": training.accumulate, "clip_norm": training.clip_norm, "pad": pad}
        module.learn_with(CapturedSteps(module.forward_loss, graphs, run.told.append, **options))
    with quiet_lightning():
        callbacks = [module.meter, _Epochs(run), *watch]
        trainer = build_trainer(
            module.config, Device(device, device, ""), callbacks, max_epochs=training.epochs,
            enable_checkpointing=False,
        )  # fmt: skip
        batches = data.batches(lambda: trainer.current_epoch)
        trainer.fit(module, sent_ahead(batches, trainer.strategy.root_device))
    run.optimiser = trainer.optimizers[0].state_dict()
    return run


def assert_same(one: Learned, other: Learned) -> None:
    """Bit for bit."""
    torch.testing.assert_close(one.state, other.state, rtol=0, atol=0)
