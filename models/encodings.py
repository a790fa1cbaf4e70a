"""Positional encodings that a network can read, by their names in ``model.positional``."""

from __future__ import annotations

from kmip_data.graphs.encodings.lappe import Laplacian
from kmip_data.graphs.encodings.rwse import RandomWalk
from kmip_data.models.kinds import Positional


class StableDistance(Positional):
    """Distances of eigenvectors, one for each edge; no channels of nodes."""

    @property
    def reads(self) -> tuple[str, ...]:
        """The eigenvectors, without their eigenvalues."""
        return ("lappe_vectors",)


ENCODINGS = (
    StableDistance("equivstable", Laplacian(8), distances=True, takes_padding=True, module="StablePosition"),
    Positional("lappe", Laplacian(10), width=16, takes_padding=True, module="LapPE"),
    Positional("none", takes_padding=True),
    Positional("rwse", RandomWalk(20), width=28, takes_padding=True, module="RandomWalkSE"),
)
POSITIONAL = {each.name: each for each in ENCODINGS}
