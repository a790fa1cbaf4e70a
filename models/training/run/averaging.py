"""Exponential moving average of a network's weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

#: Buffers averaged like parameters; others (counts, random features) are copied.
STATISTICS = ("running_mean", "running_var")


class Average:
    """Exponential moving average of a network's weights, with factor ``decay``.

    It begins with the weights after the first step, as :class:`torch.optim.swa_utils.AveragedModel`
    does.
    """

    def __init__(self, decay: float) -> None:
        self._move = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
        #: By the names of the network's state.
        self.weights: dict[str, Tensor] = {}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Average in the weights of ``model`` after a step."""
        state = model.state_dict()
        if not self.weights:
            self.weights = {name: tensor.clone() for name, tensor in state.items()}
            return
        parameters = dict(model.named_parameters())
        averages = []
        weights = []
        for name, tensor in state.items():
            # A resumed average was read onto the CPU.
            average = self.weights[name].to(tensor.device)
            self.weights[name] = average
            if name in parameters or name.endswith(STATISTICS):
                averages.append(average)
                weights.append(tensor)
            else:
                average.copy_(tensor)
        self._move(averages, weights, 0)

    @contextmanager
    def within(self, model: nn.Module) -> Iterator[None]:
        """Load the average into ``model`` inside the block."""
        learning = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        model.load_state_dict(self.weights or learning)
        try:
            yield
        finally:
            model.load_state_dict(learning)
