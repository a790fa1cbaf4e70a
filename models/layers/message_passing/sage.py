"""GraphSAGE: mean over neighbours, combined with the node itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from kmip_data.models.components import LayerInfo
from kmip_data.models.layers.message_passing import ConvolutionComponent

if TYPE_CHECKING:
    from torch import nn


class SAGEComponent(ConvolutionComponent):
    """Mean over neighbours, combined with the node itself."""

    convolution_class = "kmip_data.models.layers.convolutions:SAGE"

    kind: Literal["sage"] = Field(default="sage", description="GraphSAGE")
    self_loops: bool = Field(
        default=False, description="count the node as its own neighbour (tunedGNN)"
    )

    def build(self, layer: LayerInfo) -> nn.Module:
        """Build a :class:`~kmip_data.models.layers.convolutions.SAGE`."""
        return self.build_convolution(layer, self_loops=self.self_loops)


COMPONENT = SAGEComponent
