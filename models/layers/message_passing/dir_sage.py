"""GraphSAGE with a mean for each direction, and edge features."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kmip_data.models.layers.message_passing import ConvolutionComponent


class DirectedSAGEComponent(ConvolutionComponent):
    """Means over incoming and outgoing edges and their features, combined with the node itself."""

    convolution_class = "kmip_data.models.layers.directed_sage:DirectedSAGE"
    reads_edges = True
    reads_targets = True

    kind: Literal["dir-sage"] = Field(
        default="dir-sage", description="GraphSAGE of edge features and both directions"
    )


COMPONENT = DirectedSAGEComponent
