"""No message passing: a layer is attention alone, and edges are not read."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kmip_data.models.kinds import Part, Place


class NoMessagePassing(Part):
    """Layers without message passing."""

    kind: Literal["none"] = Field(default="none", description="no message passing")

    @property
    def takes_padding(self) -> bool:
        """There is nothing to count."""
        return True

    def build(self, place: Place) -> None:
        """Nothing."""


PART = NoMessagePassing
