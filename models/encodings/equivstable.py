"""Distances of eigenvectors, which scale the gates of message passing."""

from __future__ import annotations

from kmip_data.graphs.encodings.lappe import Laplacian
from kmip_data.models.kinds import Positional


class StableDistance(Positional):
    """No channels of nodes: a distance for each edge."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Eigenvectors alone."""
        return ("lappe_vectors",)


POSITIONAL = StableDistance(
    "equivstable", Laplacian(8), distances=True, takes_padding=True, module="StablePosition"
)
