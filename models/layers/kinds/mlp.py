"""A perceptron instead of message passing."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kmip_data.models.layers.stack import StackPart


class MLPPart(StackPart):
    """Each node alone: what a network reaches without its graph."""

    convolution = "MLP"

    kind: Literal["mlp"] = Field(default="mlp", description="no message passing: a linear layer on each node")


PART = MLPPart
