"""Configuration of full attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from kmip_data.models.components import Fraction, LayerInfo, MultiHeadComponent

if TYPE_CHECKING:
    from torch import nn


class TransformerComponent(MultiHeadComponent):
    """Attention to all nodes of the graph."""

    kind: Literal["transformer"] = Field(default="transformer", description="full attention")
    dropout: Fraction = Field(default=0.0, description="dropout of attention weights")

    def build(self, layer: LayerInfo) -> nn.Module:
        """Build a :class:`~kmip_data.models.attention.transformer.TransformerAttention`."""
        from kmip_data.models.attention.transformer import TransformerAttention

        return TransformerAttention(layer.dim, **self.model_dump(exclude={"kind"}))


COMPONENT = TransformerComponent
