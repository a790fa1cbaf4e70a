"""Positional encodings that a network can read, by their names in ``model.positional``."""

from __future__ import annotations

from dataclasses import dataclass

from kmip_data.graphs.encoding import Encoding
from kmip_data.graphs.encodings.lappe import Laplacian
from kmip_data.graphs.encodings.rwse import RandomWalk


@dataclass(frozen=True)
class Positional:
    """One way in which a network reads an encoding of the positions of nodes."""

    name: str  #: value of ``model.positional``
    encoding: Encoding | None = None  #: the added column that it reads; training adds it where it is missing
    width: int = 0  #: channels that it takes from those of the node encoder; 0: it changes the batch instead
    distances: bool = False  #: True if it gives the edges the squared distance of their ends
    takes_padding: bool = False  #: as in :class:`~kmip_data.models.kinds.Part`

    @property
    def reads(self) -> tuple[str, ...]:
        """Attributes of a batch."""
        return tuple(column.attribute for column in self.encoding.columns()) if self.encoding else ()


class StableDistance(Positional):
    """Distances of eigenvectors, one for each edge; no channels of nodes."""

    @property
    def reads(self) -> tuple[str, ...]:
        """The eigenvectors, without their eigenvalues."""
        return ("lappe_vectors",)


ENCODINGS = (
    StableDistance("equivstable", Laplacian(8), distances=True, takes_padding=True),
    Positional("lappe", Laplacian(10), width=16, takes_padding=True),
    Positional("none", takes_padding=True),
    Positional("rwse", RandomWalk(20), width=28, takes_padding=True),
)
POSITIONAL = {each.name: each for each in ENCODINGS}
