"""GAT: graph attention to neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from kmip_data.models.components import LayerInfo
from kmip_data.models.layers.message_passing import ConvolutionComponent

if TYPE_CHECKING:
    from torch import nn


class GATComponent(ConvolutionComponent):
    """Single-head attention to neighbours."""

    convolution_class = "kmip_data.models.layers.convolutions:GAT"

    kind: Literal["gat"] = Field(default="gat", description="GAT")
    bias: bool = Field(default=True, description="a bias; false in tunedGNN's smaller graphs")

    def build(self, layer: LayerInfo) -> nn.Module:
        """Build a :class:`~kmip_data.models.layers.convolutions.GAT`."""
        return self.build_convolution(layer, bias=self.bias)


COMPONENT = GATComponent
