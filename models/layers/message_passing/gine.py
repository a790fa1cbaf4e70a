"""GINE: sum over neighbours and edge features, then a perceptron."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from kmip_data.models.components import LayerInfo
from kmip_data.models.layers.message_passing import ConvolutionComponent

if TYPE_CHECKING:
    from torch import nn


class GINEComponent(ConvolutionComponent):
    """Sum over neighbours and edge features, then a perceptron."""

    convolution_class = "kmip_data.models.layers.convolutions:GINE"
    reads_edges = True

    kind: Literal["gine"] = Field(default="gine", description="GINE")

    @property
    def reads_distances(self) -> bool:
        """True in a GPS layer, where they scale messages; no other published stack uses distances."""
        return self.stack == "none"

    @property
    def accepts_input_dim(self) -> bool:
        """False: nodes and edge features are added, so their channels must agree."""
        return False

    def build(self, layer: LayerInfo) -> nn.Module:
        """Build a :class:`~kmip_data.models.layers.convolutions.GINE`."""
        return self.build_convolution(layer, by_distance=layer.has_distances)


COMPONENT = GINEComponent
