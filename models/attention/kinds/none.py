"""No attention: a layer is message passing alone."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kmip_data.models.kinds import Part, Place


class NoAttention(Part):
    """Layers without attention."""

    kind: Literal["none"] = Field(default="none", description="no attention")

    @property
    def takes_padding(self) -> bool:
        """There is nothing to count."""
        return True

    def build(self, place: Place) -> None:
        """Nothing."""


PART = NoAttention
