"""GINE as a kind of message passing."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kmip_data.models.layers.stack import StackPart


class GINEPart(StackPart):
    """Sum over the neighbours with the features of the edges between, then a perceptron."""

    reads_edges = True
    convolution = "GINE"

    kind: Literal["gine"] = Field(default="gine", description="GINE")
    stack: Literal["lrgb", "graphgps", "graphgym"] = Field(  # type: ignore[assignment] # one more
        default="lrgb",
        description="lrgb (a perceptron with activation and two dropouts); graphgps (with ReLU alone, then"
        " activation, dropout: the point clouds); graphgym (batch norm, dropout, activation, rows scaled to"
        " length 1)",
    )


PART = GINEPart
