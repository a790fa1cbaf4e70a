"""GINE as a kind of message passing."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kmip_data.models.kinds import EDGE_WORK, Footprint, Size
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

    def footprint(self, size: Size, dim: int) -> Footprint:
        """Messages have a row for each edge, unless these share their features; layers share those."""
        if size.edges_alike:
            return super().footprint(size, dim)
        return Footprint(work=EDGE_WORK * size.edges * dim * 4)


PART = GINEPart
