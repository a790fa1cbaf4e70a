"""Keys of the positional encodings: sections of ``model`` named as the entries of ``POSITIONAL``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kmip_data.graphs.encoding import MOST, Encoding
from kmip_data.graphs.encodings.lappe import Laplacian
from kmip_data.graphs.encodings.rwse import RandomWalk
from kmip_data.manifest import Strict


class PositionKeys(Strict):
    """Keys of a positional encoding, and the added column that follows from them."""

    @property
    def encoding(self) -> Encoding:
        """The added column that it reads."""
        raise NotImplementedError


class Frequencies(PositionKeys):
    """Keys of an encoding of Laplacian eigenvectors."""

    freqs: int = Field(default=8, ge=1, le=MOST, description="smallest eigenpairs that are read")

    @property
    def encoding(self) -> Encoding:
        """``lappeK``."""
        return Laplacian(self.freqs)


class LapPEKeys(Frequencies):
    """Eigenpairs that are mapped each, then summed."""

    freqs: int = Field(default=10, ge=1, le=MOST, description="smallest eigenpairs that are read")
    width: int = Field(default=16, ge=1, description="channels")
    reader: Literal["deepset", "transformer"] = Field(
        default="deepset", description="map of the eigenpairs of a node, before their sum"
    )
    layers: int = Field(default=2, ge=1, description="layers of the map")
    heads: int = Field(default=4, ge=1, description="attention heads of a transformer")
    post_layers: int = Field(default=0, ge=0, description="layers of a perceptron after the sum")


class RWSEKeys(PositionKeys):
    """Return probabilities of random walks."""

    steps: int = Field(default=20, ge=1, le=MOST, description="steps of the walk")
    width: int = Field(default=28, ge=1, description="channels")
    reader: Literal["linear", "mlp"] = Field(default="linear", description="map of the column")
    layers: int = Field(default=3, ge=1, description="layers of a perceptron")
    norm: bool = Field(default=True, description="batch norm before the map")

    @property
    def encoding(self) -> Encoding:
        """``rwseT``."""
        return RandomWalk(self.steps)


class SignNetKeys(Frequencies):
    """Eigenvectors by a network that their signs do not change."""

    width: int = Field(default=8, ge=1, description="channels")
    reader: Literal["mlp", "deepset"] = Field(
        default="mlp",
        description="last perceptron: of all eigenvectors side by side, or of their sum",
    )
    layers: int = Field(default=8, ge=2, description="GIN layers of each eigenvector")
    hidden: int = Field(default=64, ge=1, description="channels of the GIN layers")
    out: int = Field(default=4, ge=1, description="channels of each eigenvector after them")
    post_layers: int = Field(default=2, ge=1, description="layers of the last perceptron")


class StableKeys(Frequencies):
    """Eigenvectors whose distances scale the messages; they take no channels."""
