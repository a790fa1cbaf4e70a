"""Parameter counts, and the widest network that stays within a budget."""

from __future__ import annotations

import logging
import math

import torch
from torch import nn

from kmip_data.models.config import USUAL_DIM, ModelConfig
from kmip_data.models.network import build_model

log = logging.getLogger(__name__)

NARROWEST, WIDEST = 32, 512  #: hidden dimensions that the published search looks at


def count_parameters(model: nn.Module) -> int:
    """Number of all parameters, of encoders, norms and heads too, gradient or not; no buffers."""
    return sum(parameter.numel() for parameter in model.parameters())


def fit_hidden_dim(
    config: ModelConfig,
    *,
    in_channels: int,
    num_classes: int,
    edge_channels: int | None = None,
    budget: int | None = None,
) -> ModelConfig:
    """Choose ``hidden_dim`` as upstream ``main.py:find_max_hidden_dim`` does.

    A binary search over 32 … 512, each candidate rounded up to what the parts divide it by, for the
    largest count within the budget. As there, 32 is the answer when even that is too large; here it
    is logged. Candidates are counted without memory and without drawing random numbers, so the
    weights of the model built afterwards do not depend on the search (upstream's do).

    Parameters
    ----------
    config
        All other options.
    in_channels, num_classes, edge_channels
        As :func:`~kmip_data.models.network.build_model` takes them.
    budget
        Largest number of parameters; ``config.parameter_budget`` by default, which a ``hidden_dim``
        of one's own switches off.

    Returns
    -------
    ModelConfig
        ``config`` with ``hidden_dim`` chosen and ``parameter_budget`` unset.
    """
    if budget is None and config.hidden_dim != USUAL_DIM:
        return config.model_copy(update={"parameter_budget": None})
    budget = config.parameter_budget if budget is None else budget
    if budget is None:
        return config

    multiple = math.lcm(config.attention.multiple, config.local.multiple)

    def candidate(dim: int) -> ModelConfig:
        rounded = -(-dim // multiple) * multiple
        return config.model_copy(update={"hidden_dim": rounded, "parameter_budget": None})

    def count(dim: int) -> int:
        with torch.device("meta"):
            model = build_model(
                candidate(dim), in_channels=in_channels, num_classes=num_classes, edge_channels=edge_channels
            )
        return count_parameters(model)

    best, low, high = NARROWEST, NARROWEST, WIDEST
    while low <= high:
        middle = (low + high) // 2
        if count(middle) <= budget:
            best, low = middle, middle + 1
        else:
            high = middle - 1
    if best == NARROWEST and count(best) > budget:
        log.warning(
            "the narrowest network, hidden_dim %d, has %d parameters: over the budget of %d",
            best,
            count(best),
            budget,
        )
    return candidate(best)
