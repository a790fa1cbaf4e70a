"""BigBird as a kind of attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from kmip_data.models.kinds import MultiHead, Place

if TYPE_CHECKING:
    from torch import nn


class BigBirdPart(MultiHead):
    """Blocks of nodes, in the order of the data, attend to a few blocks; a whole encoder layer."""

    kind: Literal["bigbird"] = Field(
        default="bigbird", description="BigBird: a whole encoder layer of block-sparse attention"
    )
    block_size: int = Field(default=3, ge=1, description="nodes of a block, in the order of the data")
    random_blocks: int = Field(
        default=3, ge=0, description="random blocks that a block attends to, for each head"
    )
    seed: int = Field(
        default=0, ge=0, lt=2**32, description="of the draw of random blocks, one for all layers and steps"
    )
    norm_eps: float = Field(default=1e-6, gt=0, description="added to the variance in its layer norms")
    legacy_padding: bool = Field(
        default=False,
        description="blocks of each graph laid out as if it were as long as the longest of its batch, as the"
        " paper's code did",
    )

    def unrecordable(self) -> str | None:
        """The host lays out the blocks of each batch."""
        return "BigBird's blocks are laid out on the host"

    def build(self, place: Place) -> nn.Module:
        """Make a :class:`~kmip_data.models.attention.bigbird.BigBirdAttention`."""
        from kmip_data.models.attention.bigbird import BigBirdAttention

        return BigBirdAttention(place.dim, dropout=place.dropout, **self.model_dump(exclude={"kind"}))


PARTS = (BigBirdPart,)
