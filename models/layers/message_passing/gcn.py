"""GCN: degree-normalised sum over neighbours."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kmip_data.models.layers.message_passing import ConvolutionComponent


class GCNComponent(ConvolutionComponent):
    """Degree-normalised sum over neighbours."""

    convolution_class = "kmip_data.models.layers.convolutions:GCN"

    kind: Literal["gcn"] = Field(default="gcn", description="GCN")


COMPONENT = GCNComponent
