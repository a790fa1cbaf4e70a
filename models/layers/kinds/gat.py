"""GAT as a kind of message passing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from kmip_data.models.kinds import Place
from kmip_data.models.layers.stack import StackPart

if TYPE_CHECKING:
    from torch import nn


class GATPart(StackPart):
    """Attention to the neighbours, one head."""

    kind: Literal["gat"] = Field(default="gat", description="GAT")

    def build(self, place: Place) -> nn.Module:
        """Make a :class:`~kmip_data.models.layers.convolutions.GAT`."""
        from kmip_data.models.layers.convolutions import GAT

        return GAT(place.dim, **self.options(place))


PART = GATPart
