"""GatedGCN as a kind of message passing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from kmip_data.models.kinds import MessagePassing, Place

if TYPE_CHECKING:
    from torch import nn


class GatedGCNPart(MessagePassing):
    """Message passing gated by the edges, which it updates."""

    reads_distances = True

    kind: Literal["gated-gcn"] = Field(default="gated-gcn", description="GatedGCN")
    activation: Literal["relu", "gelu"] = Field(
        default="relu", description="activation: relu (code) or gelu (text)"
    )

    @property
    def takes_padding(self) -> bool:
        """Its batch norms count real rows."""
        return True

    def build(self, place: Place) -> nn.Module:
        """Make a :class:`~kmip_data.models.layers.gated_gcn.GatedGCN`."""
        from kmip_data.models.layers.gated_gcn import GatedGCN

        return GatedGCN(
            place.dim,
            dropout=place.dropout,
            residual=self.residual == "inside",
            update_edges=not place.last,
            by_distance=place.distances,
            activation=self.activation,
            defer_edges=not place.last,
        )


PARTS = (GatedGCNPart,)
