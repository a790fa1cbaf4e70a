"""GCN as a kind of message passing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from kmip_data.models.kinds import Place
from kmip_data.models.layers.stack import StackPart

if TYPE_CHECKING:
    from torch import nn


class GCNPart(StackPart):
    """Sum over the neighbours, by degrees."""

    kind: Literal["gcn"] = Field(default="gcn", description="GCN")

    def build(self, place: Place) -> nn.Module:
        """Make a :class:`~kmip_data.models.layers.convolutions.GCN`."""
        from kmip_data.models.layers.convolutions import GCN

        return GCN(place.dim, **self.options(place))


PART = GCNPart
