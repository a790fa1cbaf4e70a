"""Return probabilities of random walks beside the node features."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kmip_data.graphs.encodings.rwse import RandomWalk
from kmip_data.models.kinds import Positional

if TYPE_CHECKING:
    from torch import nn

STEPS = 20  #: of a walk


class RandomWalkPosition(Positional):
    """Channels of the steps of a walk."""

    def build(self, dim: int) -> nn.Module:
        """Make a :class:`~kmip_data.models.positional.RandomWalkSE`."""
        from kmip_data.models.positional import RandomWalkSE

        return RandomWalkSE(self, steps=STEPS)


POSITIONAL = RandomWalkPosition("rwse", RandomWalk(STEPS), width=28)
