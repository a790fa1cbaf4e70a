"""Configuration of BigBird's block-sparse attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from kmip_data.models.components import LayerInfo, MultiHeadComponent

if TYPE_CHECKING:
    from torch import nn


class BigBirdComponent(MultiHeadComponent):
    """Block-sparse attention within a complete encoder layer."""

    kind: Literal["bigbird"] = Field(
        default="bigbird", description="BigBird: an encoder layer with block-sparse attention"
    )
    block_size: int = Field(
        default=3, ge=1, description="nodes per block, in the order of the data"
    )
    random_blocks: int = Field(default=3, ge=0, description="random blocks per block and head")
    seed: int = Field(
        default=0,
        ge=0,
        lt=2**32,
        description="seed of the random blocks, the same in all layers and steps",
    )
    norm_eps: float = Field(default=1e-6, gt=0, description="epsilon of the layer norms")
    legacy_padding: bool = Field(
        default=False,
        description="pad all graphs to the longest of the batch, as upstream",
    )

    @property
    def why_not_capturable(self) -> str | None:
        """The block layout."""
        return "BigBird's blocks are laid out on the host"

    def build(self, layer: LayerInfo) -> nn.Module:
        """Build a :class:`~kmip_data.models.attention.bigbird.BigBirdAttention`."""
        from kmip_data.models.attention.bigbird import BigBirdAttention

        return BigBirdAttention(
            layer.dim, dropout=layer.dropout, **self.model_dump(exclude={"kind"})
        )


COMPONENT = BigBirdComponent
