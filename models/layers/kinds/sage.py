"""GraphSAGE: mean over the neighbours, combined with the node itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from kmip_data.models.components import LayerInfo
from kmip_data.models.layers.kinds import StackComponent

if TYPE_CHECKING:
    from torch import nn


class SAGEComponent(StackComponent):
    """Mean over the neighbours, combined with the node itself."""

    convolution_class = "kmip_data.models.layers.convolutions:SAGE"
    saved_channels = (3, 0)

    kind: Literal["sage"] = Field(default="sage", description="GraphSAGE")
    self_loops: bool = Field(
        default=False, description="the node is one of its neighbours (tunedGNN)"
    )

    def build(self, layer: LayerInfo) -> nn.Module:
        """Make a :class:`~kmip_data.models.layers.convolutions.SAGE`."""
        return self.build_convolution(layer, self_loops=self.self_loops)


COMPONENT = SAGEComponent
