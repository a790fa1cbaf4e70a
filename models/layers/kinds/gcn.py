"""GCN as a kind of message passing."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kmip_data.models.layers.stack import StackPart


class GCNPart(StackPart):
    """Sum over the neighbours, by degrees."""

    convolution = "GCN"

    kind: Literal["gcn"] = Field(default="gcn", description="GCN")


PART = GCNPart
