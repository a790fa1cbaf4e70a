"""Positional encodings by name: their keys, and the module that reads each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import Field

from kmip_data.errors import UsageError
from kmip_data.graphs.encoding import MAX_PARAMETER, Encoding, known_encodings, parse_encoding
from kmip_data.graphs.encodings.lappe import Laplacian
from kmip_data.graphs.encodings.rwse import RandomWalk
from kmip_data.models.component_names import Builder, Names, encoding_attributes, import_on_call
from kmip_data.strict_model import Strict


class PositionKeys(Strict):
    """Keys of a positional encoding, and the added column they imply."""

    @property
    def encoding(self) -> Encoding:
        """The added column that it reads."""
        raise NotImplementedError


class Frequencies(PositionKeys):
    """Keys of an encoding of Laplacian eigenvectors."""

    freqs: int = Field(
        default=8, ge=1, le=MAX_PARAMETER, description="smallest eigenpairs that are read"
    )

    @property
    def encoding(self) -> Encoding:
        """``lappeK``."""
        return Laplacian(self.freqs)


class LapPEKeys(Frequencies):
    """Eigenpairs, each mapped and then summed."""

    freqs: int = Field(
        default=10, ge=1, le=MAX_PARAMETER, description="smallest eigenpairs that are read"
    )
    width: int = Field(default=16, ge=1, description="channels")
    reader: Literal["deepset", "transformer"] = Field(
        default="deepset", description="map of the eigenpairs of a node, before their sum"
    )
    layers: int = Field(default=2, ge=1, description="layers of the map")
    heads: int = Field(default=4, ge=1, description="attention heads of a transformer")
    post_layers: int = Field(default=0, ge=0, description="layers of a perceptron after the sum")


class RWSEKeys(PositionKeys):
    """Return probabilities of random walks."""

    steps: int = Field(default=20, ge=1, le=MAX_PARAMETER, description="steps of the walk")
    width: int = Field(default=28, ge=1, description="channels")
    reader: Literal["linear", "mlp"] = Field(default="linear", description="map of the column")
    layers: int = Field(default=3, ge=1, description="layers of a perceptron")
    norm: bool = Field(default=True, description="batch norm before the map")

    @property
    def encoding(self) -> Encoding:
        """``rwseT``."""
        return RandomWalk(self.steps)


class SignNetKeys(Frequencies):
    """Sign-invariant network of eigenvectors."""

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
    """Eigenvectors whose distances scale messages, without channels of their own."""


@dataclass(frozen=True)
class Positional:
    """Encoding of the positions of nodes, and the module that reads it."""

    #: Added column that it reads; training adds it where it is missing.
    encoding: Encoding | None = None
    #: Module, called with this object and the channels of the network. ``module(batch)`` gives (N,
    #: width), or where the encoding takes no channels the batch with an addition.
    build: Builder | None = None
    #: Channels that it takes from the node encoder; 0: it changes the batch.
    width: int = 0
    distances: bool = False  #: True if it gives the edges the squared distance of their ends
    keys: Any = None  #: its section of the model: a :class:`PositionKeys`

    def with_keys(self, keys: PositionKeys) -> Positional:
        """Return the encoding with the values of its section."""
        width = getattr(keys, "width", 0)
        return replace(self, encoding=keys.encoding, width=width, keys=keys)

    @property
    def reads(self) -> tuple[str, ...]:
        """Attributes of a batch; distances are of eigenvectors, without their eigenvalues."""
        return ("lappe_vectors",) if self.distances else encoding_attributes(self.encoding)


def _positional_encoding(keys: PositionKeys, name: str, *, distances: bool = False) -> Positional:
    build = import_on_call(f"kmip_data.models.encoders:{name}")
    return Positional(build=build, distances=distances).with_keys(keys)


_ONE_COLUMN = import_on_call("kmip_data.models.encoders:ColumnPosition")
POSITIONAL: dict[str, Positional] = {
    "equivstable": _positional_encoding(StableKeys(), "StablePosition", distances=True),
    "lappe": _positional_encoding(LapPEKeys(), "LapPE"),
    "none": Positional(),
    "rwse": _positional_encoding(RWSEKeys(), "ColumnPosition"),
    "rwse32": Positional(RandomWalk(32), _ONE_COLUMN, width=28),
    "signnet": _positional_encoding(SignNetKeys(), "SignNet"),
}
OTHER_WIDTH = 16  #: channels of an encoding without an entry in the table


def positional_term(name: str) -> Positional:
    """Return a term of ``model.positional``: an entry of the table, or an encoding of one column."""
    entry = POSITIONAL.get(name)
    return entry or Positional(parse_encoding(name), _ONE_COLUMN, width=OTHER_WIDTH)


class PositionalNames(Names):
    """Names of the table, every encoding that has one column of floats for nodes, and sums of them."""

    def check(self, name: str) -> str:
        """Raise ``UsageError`` for an encoding with other columns, ``ValueError`` for another name."""
        for term in name.split("+"):
            parsed = (encoding_class.parse(term) for encoding_class in known_encodings())
            encoding = next(filter(None, parsed), None)
            if encoding is None or term in POSITIONAL:
                super().check(term)
            else:
                _check_columns(term, encoding)
        return name


def _check_columns(name: str, encoding: Encoding) -> None:
    column, *others = encoding.columns()
    floats = column.presented.startswith("float")
    if others or column.level != "node" or len(column.shape) != 1 or not floats:
        raise UsageError(f"The encoding {name} has other columns than one of floats, (N, width).")
