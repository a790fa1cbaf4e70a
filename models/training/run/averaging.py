"""An exponential moving average of a network's weights, beside those that learn."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

#: Buffers that are averaged as the parameters are; others (counts, random features) are the network's own.
STATISTICS = ("running_mean", "running_var")


class Average:
    """The average after each step: ``decay`` of what it was, the rest of the new weights.

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
        """Go on from saved weights; raise ``ValueError`` where they are of another network."""
        own = {name: (tensor.shape, tensor.dtype) for name, tensor in model.state_dict().items()}
        if weights and {name: (tensor.shape, tensor.dtype) for name, tensor in weights.items()} != own:
            raise ValueError("its average is of another model")
        self.weights = dict(weights)

    @contextlib.contextmanager
    def within(self, model: nn.Module) -> Iterator[None]:
        """Give ``model`` the average for as long as the context lasts."""
        learning = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        model.load_state_dict(self.weights or learning)
        try:
            yield
        finally:
            model.load_state_dict(learning)
