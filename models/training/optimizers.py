"""Optimizers by name; torch is imported when one is built.

An optimizer is one entry of :data:`OPTIMIZERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kmip_data.models.registries import import_on_call
from kmip_data.registry import with_plugin_entries

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.optim import Optimizer

    from kmip_data.models.training.config.run_config import RunConfig


@dataclass(frozen=True)
class OptimizerFactory:
    """Constructor of an optimizer, and the keys of ``optimizer`` it accepts."""

    #: called with the parameters, ``lr``, ``weight_decay`` and the options that are set
    build: Callable[..., Optimizer]
    options: tuple[str, ...] = ()  #: further fields of ``OptimizerConfig`` it accepts
    #: True if ``build`` accepts ``fused=True`` on a GPU. A CUDA graph can replay a fused step,
    #: because the rate is its only number from the host.
    fused: bool = False


OPTIMIZERS: dict[str, OptimizerFactory] = {
    "adamw": OptimizerFactory(import_on_call("torch.optim:AdamW"), options=("betas",), fused=True),
    "adam": OptimizerFactory(import_on_call("torch.optim:Adam"), options=("betas",), fused=True),
    "sgd": OptimizerFactory(import_on_call("torch.optim:SGD"), options=("momentum",), fused=True),
}


def all_optimizers() -> Mapping[str, OptimizerFactory]:
    """Return the optimizers by name, with the optimizers of loaded plugins."""
    return with_plugin_entries("optimizers", OPTIMIZERS)


def build_optimizer(model: nn.Module, config: RunConfig, device: torch.device) -> Optimizer:
    """Return the optimizer of a run, fused on a GPU unless ``16-mixed`` gradients are clipped."""
    training = config.training
    optimizer = all_optimizers()[config.optimizer.name]
    settings = config.optimizer.model_dump(exclude={"name"}, exclude_none=True)
    # A fused optimizer needs one kernel launch per step instead of dozens. It unscales 16-mixed
    # gradients itself, too late for clipping.
    clips_scaled_gradients = training.precision == "16-mixed" and training.clip_norm
    if optimizer.fused and device.type == "cuda" and not clips_scaled_gradients:
        settings["fused"] = True
    return optimizer.build(model.parameters(), **settings)
