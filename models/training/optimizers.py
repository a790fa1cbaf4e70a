"""Optimizers by name; torch is imported when one is built.

An optimizer is one entry of :data:`OPTIMIZERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, model_validator

from kmip_data.models.components import Fraction
from kmip_data.models.registries import RegisteredName, import_on_call
from kmip_data.registry import with_plugin_entries
from kmip_data.strict_model import StrictModel

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer


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


class OptimizerConfig(StrictModel):
    """Optimizer and its options; default: AdamW with PyTorch's betas."""

    name: Annotated[str, RegisteredName("optimizers", "optimizer", all_optimizers)] = Field(
        default="adamw", description="class of torch.optim, or from a plugin"
    )
    lr: float = Field(default=1e-3, gt=0, description="highest learning rate of the schedule")
    weight_decay: float = Field(
        default=0.0, ge=0, description="weight decay, decoupled in adamw, else L2"
    )
    betas: tuple[Fraction, Fraction] | None = Field(
        default=None, description="decay of Adam's two moments"
    )
    momentum: Fraction | None = Field(default=None, description="momentum of sgd")

    @model_validator(mode="after")
    def _check_optimizer_options(self) -> Self:
        accepted = {"name", "lr", "weight_decay", *all_optimizers()[self.name].options}
        for option, value in self:
            if value is not None and option not in accepted:
                raise ValueError(f"{self.name} takes no {option}")
        return self


def build_optimizer(model: nn.Module, config: OptimizerConfig, *, fused: bool) -> Optimizer:
    """Return the optimizer of a run, fused if it can be: one kernel launch per step instead of dozens."""
    factory = all_optimizers()[config.name]
    settings = config.model_dump(exclude={"name"}, exclude_none=True)
    if fused and factory.fused:
        settings["fused"] = True
    return factory.build(model.parameters(), **settings)
