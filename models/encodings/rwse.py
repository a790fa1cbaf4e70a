"""Return probabilities of random walks beside the node features."""

from __future__ import annotations

from kmip_data.graphs.encodings.rwse import RandomWalk
from kmip_data.models.kinds import Positional

POSITIONAL = Positional("rwse", RandomWalk(20), width=28, takes_padding=True, module="RandomWalkSE")
