"""Optimiser of a run, the schedule of its learning rate, and the average of its weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn, optim
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, ReduceLROnPlateau
from torch.optim.swa_utils import get_ema_multi_avg_fn

from kmip_data.models.training.config.keys import RunConfig, ScheduleConfig

#: Buffers that are averaged as parameters are; others (counts, random features) are copied.
STATISTICS = ("running_mean", "running_var")


def build_optimiser(model: nn.Module, config: RunConfig, device: torch.device) -> Optimizer:
    """Return the optimiser of a run, fused on a GPU unless 16-mixed gradients are to be clipped."""
    settings, training = config.optimiser, config.training
    kind: Any = {"adamw": optim.AdamW, "adam": optim.Adam, "sgd": optim.SGD}[settings.name]
    given = settings.model_dump(exclude={"name"}, exclude_none=True)
    # One launch a step instead of dozens; but a fused optimiser unscales 16-mixed gradients by itself.
    if device.type == "cuda" and not (training.precision == "16-mixed" and training.clip_norm):
        given["fused"] = True
    found: Optimizer = kind(model.parameters(), **given)
    return found


def cosine_with_warmup(epoch: int, *, warmup: int, epochs: int) -> float:
    """Factor of the learning rate in ``epoch`` (or step): a line up to 1, then half a cosine down to 0.

    max(1e-6, e/W) for e < W, then max(0, (1 + cos π (e-W)/(E-W)) / 2). The first epoch of a
    warm-up therefore hardly learns, as in ``graphgps/optimizer/extra_optimizers.py``.
    """
    if epoch < warmup:
        return max(1e-6, epoch / warmup)
    # The last step is taken after the last epoch, where E = W would divide by zero.
    progress = (epoch - warmup) / max(1, epochs - warmup)
    return max(0.0, 0.5 * (1.0 + math.cos(math.pi * progress)))


def build_schedule(optimiser: Optimizer, config: ScheduleConfig, epochs: int, steps: int = 1) -> LRScheduler:
    """Return the schedule that ``config.kind`` names, at its beginning.

    ``steps`` are those of an epoch; read where the schedule moves with each.
    """
    if config.kind == "reduce_on_plateau":
        return ReduceLROnPlateau(optimiser, mode="min", factor=0.5, patience=config.patience)
    if config.kind == "constant":
        return LambdaLR(optimiser, lambda _: 1.0)
    unit = steps if config.per == "step" else 1
    warmup, length = unit * config.warmup_epochs, unit * epochs
    return LambdaLR(optimiser, lambda moment: cosine_with_warmup(moment, warmup=warmup, epochs=length))


def step_schedule(schedule: LRScheduler, validation_loss: float | None) -> None:
    """End an epoch whose last known validation loss is given.

    Epochs without an evaluation repeat the last known loss, as upstream's statistics do.
    """
    if not isinstance(schedule, ReduceLROnPlateau):
        schedule.step()
    elif validation_loss is not None:
        schedule.step(validation_loss)


class Average:
    """Exponential moving average of a network's weights: ``decay`` of its last value, the rest new weights.

    It begins with the weights after the first step, as :class:`torch.optim.swa_utils.AveragedModel` does.
    """

    def __init__(self, decay: float) -> None:
        self._move = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
        self.weights: dict[str, Tensor] = {}  #: by the names of the network's state

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Take in the weights of ``model`` after a step."""
        state = model.state_dict()
        if not self.weights:
            self.weights = {name: tensor.clone() for name, tensor in state.items()}
            return
        parameters = dict(model.named_parameters())
        smooth = [name for name in state if name in parameters or name.endswith(STATISTICS)]
        # A resumed average was read onto the CPU.
        self.weights = {name: tensor.to(state[name].device) for name, tensor in self.weights.items()}
        self._move([self.weights[name] for name in smooth], [state[name] for name in smooth], 0)
        for name in state.keys() - set(smooth):
            self.weights[name].copy_(state[name])

    def load(self, weights: Mapping[str, Tensor], model: nn.Module) -> None:
        """Continue from saved weights; raise ``ValueError`` where they are of another network."""
        own = {name: (tensor.shape, tensor.dtype) for name, tensor in model.state_dict().items()}
        if weights and {name: (tensor.shape, tensor.dtype) for name, tensor in weights.items()} != own:
            raise ValueError("its average is of another model")
        self.weights = dict(weights)

    @contextmanager
    def within(self, model: nn.Module) -> Iterator[None]:
        """Give ``model`` the average inside the block."""
        learning = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        model.load_state_dict(self.weights or learning)
        try:
            yield
        finally:
            model.load_state_dict(learning)
