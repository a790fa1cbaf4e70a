"""Optimisers of a run, by the names of PyTorch's classes, and which parameters they decay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from kmip_data.models.kinds import Section

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

#: Further keys of each optimiser of PyTorch; all have a rate and a weight decay.
TAKES: dict[str, set[str]] = {
    "adamw": {"betas", "eps", "fused"},
    "adam": {"betas", "eps", "fused"},
    "nadam": {"betas", "eps"},
    "radam": {"betas", "eps"},
    "adamax": {"betas", "eps"},
    "adadelta": {"eps"},
    "adagrad": {"eps", "fused"},
    "rmsprop": {"momentum", "eps"},
    "sgd": {"momentum", "fused"},
    "asgd": set(),
}
FURTHER = ("betas", "momentum", "eps", "fused")
_Share = Annotated[float, Field(ge=0, lt=1)]


class OptimiserConfig(Section):
    """AdamW with PyTorch's default betas, unless another is named."""

    name: Literal[
        "adamw", "adam", "nadam", "radam", "adamax", "adadelta", "adagrad", "rmsprop", "sgd", "asgd"
    ] = Field(default="adamw", description="class of torch.optim")
    lr: float = Field(default=1e-3, gt=0, description="learning rate at the top of the schedule")
    weight_decay: float = Field(default=0.0, ge=0, description="weight decay, decoupled in adamw, else L2")
    decay_norms_and_biases: bool = Field(
        default=True,
        description="decay all parameters; false: matrices only",
    )
    betas: tuple[_Share, _Share] | None = Field(default=None, description="decay of Adam's two moments")
    momentum: _Share | None = Field(default=None, description="momentum of sgd and rmsprop")
    eps: float | None = Field(
        default=None,
        gt=0,
        description="term added to the denominator",
    )
    fused: bool | None = Field(
        default=None,
        description="adamw, adam, adagrad, sgd: one kernel per step",
    )

    @model_validator(mode="after")
    def _takes_what_is_set(self) -> Self:
        for key in FURTHER:
            if getattr(self, key) is not None and key not in TAKES[self.name]:
                takers = ", ".join(name for name, keys in TAKES.items() if key in keys)
                raise ValueError(f"{self.name} takes no {key}; {takers} do")
        return self


def rate_for(config: OptimiserConfig, times: int) -> float:
    """Return the learning rate for batches so many times as large as those that ``config`` was chosen for.

    Linear for SGD (Goyal et al., arXiv 1706.02677); the square root for optimisers that divide by the size
    of the gradient (Malladi et al., arXiv 2205.10287).
    """
    return config.lr * (times if config.name in {"sgd", "asgd"} else times**0.5)


def build_optimiser(model: nn.Module, config: OptimiserConfig) -> Optimizer:
    """Return the optimiser that ``config`` names for the parameters of ``model``."""
    from torch import optim

    classes = {name.lower(): kind for name, kind in vars(optim).items() if isinstance(kind, type)}
    given: dict[str, Any] = {key: getattr(config, key) for key in FURTHER if getattr(config, key) is not None}
    parameters: Any = model.parameters()
    if not config.decay_norms_and_biases:
        # Biases and what norms scale by are the vectors of a network; all else has rows and columns.
        groups = [[p for p in model.parameters() if (p.ndim > 1) == matrix] for matrix in (True, False)]
        parameters = [{"params": groups[0]}, {"params": groups[1], "weight_decay": 0.0}]
    found: Optimizer = classes[config.name](
        parameters, lr=config.lr, weight_decay=config.weight_decay, **given
    )
    return found
