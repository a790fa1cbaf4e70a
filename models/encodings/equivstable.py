"""Distances of eigenvectors, which scale the gates of message passing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kmip_data.graphs.encodings.lappe import Laplacian
from kmip_data.models.kinds import Positional

if TYPE_CHECKING:
    from torch import nn

FREQUENCIES = 8  #: eigenvectors that make a position


class StableDistance(Positional):
    """No channels of nodes: a distance for each edge."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Eigenvectors alone."""
        return ("lappe_vectors",)

    def build(self, dim: int) -> nn.Module:
        """Make a :class:`~kmip_data.models.positional.StablePosition`."""
        from kmip_data.models.positional import StablePosition

        return StablePosition(self, FREQUENCIES, dim)


POSITIONAL = StableDistance("equivstable", Laplacian(FREQUENCIES), distances=True)
