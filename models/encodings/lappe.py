"""Laplacian eigenvectors and eigenvalues beside the node features."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kmip_data.graphs.encodings.lappe import Laplacian
from kmip_data.models.kinds import Positional

if TYPE_CHECKING:
    from torch import nn


class LapPEPosition(Positional):
    """Sixteen channels of ten eigenpairs."""

    def build(self, dim: int) -> nn.Module:
        """Make a :class:`~kmip_data.models.positional.LapPE`."""
        from kmip_data.models.positional import LapPE

        return LapPE(self)


POSITIONAL = LapPEPosition("lappe", Laplacian(10), width=16)
