"""GNN⁺'s GCN with edge features."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kmip_data.models.layers.message_passing import ConvolutionComponent


class GCNEComponent(ConvolutionComponent):
    """Sum over neighbours that includes edge features."""

    convolution_class = "kmip_data.models.layers.convolutions:GCNE"
    reads_edges = True

    kind: Literal["gcne"] = Field(default="gcne", description="GCN with edge features of GNN⁺")


COMPONENT = GCNEComponent
