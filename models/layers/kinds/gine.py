"""GINE: sum over neighbours with edge features, then a perceptron."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from kmip_data.models.components import LayerInfo
from kmip_data.models.layers.kinds import StackComponent

if TYPE_CHECKING:
    from torch import nn


class GINEComponent(StackComponent):
    """Sum over neighbours with edge features, then a perceptron."""

    convolution_class = "kmip_data.models.layers.convolutions:GINE"
    saved_channels = (4, 1)
    reads_edges = True

    kind: Literal["gine"] = Field(default="gine", description="GINE")

    @property
    def reads_distances(self) -> bool:
        """True in a GPS layer, whose messages they scale; no stack with distances is published."""
        return self.stack == "none"

    @property
    def takes_inputs(self) -> bool:
        """False: nodes are added to edge features, so their channels must agree."""
        return False

    def build(self, layer: LayerInfo) -> nn.Module:
        """Make a :class:`~kmip_data.models.layers.convolutions.GINE`."""
        return self.build_convolution(layer, by_distance=layer.distances)


COMPONENT = GINEComponent
