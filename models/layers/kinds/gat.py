"""GAT as a kind of message passing."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kmip_data.models.layers.stack import StackPart


class GATPart(StackPart):
    """Attention to the neighbours, one head."""

    convolution = "GAT"

    kind: Literal["gat"] = Field(default="gat", description="GAT")


PART = GATPart
