"""Parameter counts, and the widest network that stays within a budget."""

from __future__ import annotations

import logging
from collections.abc import Callable

from torch import nn

log = logging.getLogger(__name__)

NARROWEST, WIDEST = 32, 512  #: hidden dimensions that the published search looks at


def count_parameters(model: nn.Module) -> int:
    """Number of all parameters, of encoders, norms and heads too, gradient or not; no buffers."""
    return sum(parameter.numel() for parameter in model.parameters())


def widest_within(budget: int, count: Callable[[int], int]) -> int:
    """Choose a hidden dimension as upstream ``main.py:find_max_hidden_dim`` does.

    A binary search over 32 … 512 for the largest whose ``count`` of parameters is within the budget.
    As there, 32 is the answer when even that has too many; here it is logged.
    """
    best, low, high = NARROWEST, NARROWEST, WIDEST
    while low <= high:
        middle = (low + high) // 2
        if count(middle) <= budget:
            best, low = middle, middle + 1
        else:
            high = middle - 1
    if best == NARROWEST and (least := count(best)) > budget:
        log.warning("the narrowest network has %d parameters: over the budget of %d", least, budget)
    return best
