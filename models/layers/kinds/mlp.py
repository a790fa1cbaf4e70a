"""A perceptron instead of message passing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from kmip_data.models.kinds import Footprint, Place, Size
from kmip_data.models.layers.stack import StackPart

if TYPE_CHECKING:
    from torch import nn


class MLPPart(StackPart):
    """Each node alone: what a network reaches without its graph."""

    kind: Literal["mlp"] = Field(default="mlp", description="no message passing: a linear layer on each node")

    def build(self, place: Place) -> nn.Module:
        """Make a :class:`~kmip_data.models.layers.convolutions.MLP`."""
        from kmip_data.models.layers.convolutions import MLP

        return MLP(place.dim, **self.options(place))

    def footprint(self, size: Size, dim: int) -> Footprint:
        """Edges take nothing."""
        return Footprint()


PART = MLPPart
