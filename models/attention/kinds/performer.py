"""Attention by random features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from kmip_data.models.parts import Fraction, LayerInfo, MultiHead

if TYPE_CHECKING:
    from torch import nn


class PerformerPart(MultiHead):
    """Each node attends to all nodes of its graph, by random features."""

    kind: Literal["performer"] = Field(
        default="performer", description="attention by random features"
    )
    head_dim: int = Field(default=64, ge=2, description="channels of a head")
    features: int | None = Field(
        default=None, ge=1, description="random features; none: ⌊head_dim · ln head_dim⌋"
    )
    dropout: Fraction = Field(default=0.0, description="dropout after the output layer")
    legacy_mask: bool = Field(default=False, description="count zero padding as keys, as upstream")

    def build(self, layer: LayerInfo) -> nn.Module:
        """Make a :class:`~kmip_data.models.attention.performer.PerformerAttention`."""
        from kmip_data.models.attention.performer import PerformerAttention

        return PerformerAttention(layer.dim, **self.model_dump(exclude={"kind"}))
