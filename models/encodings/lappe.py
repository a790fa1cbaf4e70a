"""Laplacian eigenvectors and eigenvalues beside the node features."""

from __future__ import annotations

from kmip_data.graphs.encodings.lappe import Laplacian
from kmip_data.models.kinds import Positional

POSITIONAL = Positional("lappe", Laplacian(10), width=16, takes_padding=True, module="LapPE")
