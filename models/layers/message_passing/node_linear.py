"""Linear layer on each node, without message passing."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kmip_data.models.layers.message_passing import ConvolutionComponent


class NodeLinearComponent(ConvolutionComponent):
    """Linear layer on each node, which ignores the edges."""

    convolution_class = "kmip_data.models.layers.convolutions:NodeLinear"

    kind: Literal["mlp"] = Field(
        default="mlp", description="no message passing: a linear layer on each node"
    )


COMPONENT = NodeLinearComponent
