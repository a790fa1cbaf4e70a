"""Configuration of full attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from kmip_data.models.components import Fraction, LayerInfo, MultiHeadComponent

if TYPE_CHECKING:
    from torch import nn


class TransformerComponent(MultiHeadComponent):
    """Attention to all nodes of the graph."""

    test_keys: ClassVar = frozenset({"k", "temperature"})

    kind: Literal["transformer"] = Field(default="transformer", description="full attention")
    dropout: Fraction = Field(default=0.0, description="dropout of attention weights")
    k: int = Field(
        default=0, ge=0, description="keys per query, as in k-MIP attention; 0: all nodes"
    )
    temperature: str = Field(
        default="none",
        pattern=r"^(none|adaptive|log-n:([2-9]|[1-9]\d+))$",
        description="factor of the logits: log-n:64 (log n / log 64 for n nodes, at least 1) or adaptive"
        " (arXiv 2410.01104)",
    )

    @property
    def why_not_capturable(self) -> str | None:
        """The search for keys."""
        return "full attention searches for its k keys" if self.k else None

    def build(self, layer: LayerInfo) -> nn.Module:
        """Build a :class:`~kmip_data.models.attention.transformer.TransformerAttention`."""
        from kmip_data.models.attention.transformer import TransformerAttention

        return TransformerAttention(layer.dim, **self.model_dump(exclude={"kind"}))


COMPONENT = TransformerComponent
