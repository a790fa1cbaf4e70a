"""Configuration of Performer's attention by random features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from kmip_data.models.components import Fraction, LayerInfo, MultiHeadComponent

if TYPE_CHECKING:
    from torch import nn


class PerformerComponent(MultiHeadComponent):
    """Attention to all nodes of the graph, approximated by random features."""

    kind: Literal["performer"] = Field(
        default="performer", description="attention by random features"
    )
    head_dim: int = Field(default=64, ge=2, description="channels of a head")
    features: int | None = Field(
        default=None, ge=1, le=2**16, description="random features; none: ⌊head_dim · ln head_dim⌋"
    )
    dropout: Fraction = Field(default=0.0, description="dropout after the output layer")
    legacy_mask: bool = Field(default=False, description="count zero padding as keys, as upstream")

    @property
    def why_not_capturable(self) -> str | None:
        """The legacy mask."""
        return "the legacy mask is made on the host" if self.legacy_mask else None

    def build(self, layer: LayerInfo) -> nn.Module:
        """Build a :class:`~kmip_data.models.attention.performer.PerformerAttention`."""
        from kmip_data.models.attention.performer import PerformerAttention

        return PerformerAttention(layer.dim, **self.model_dump(exclude={"kind"}))


COMPONENT = PerformerComponent
