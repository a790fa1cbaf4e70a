"""Positional encodings by name: their options and the modules that read them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from pydantic import Field

from kmip_data.errors import UsageError
from kmip_data.graphs.encoding import MAX_PARAMETER, Encoding, known_encodings, parse_encoding
from kmip_data.graphs.encodings.lappe import Laplacian
from kmip_data.graphs.encodings.rwse import RandomWalk
from kmip_data.models.registries import (
    ModuleBuilder,
    RegisteredName,
    encoding_attributes,
    import_on_call,
)
from kmip_data.strict_model import StrictModel


class PositionalOptions(StrictModel):
    """Options of a positional encoding: a section of the model's configuration."""

    @property
    def encoding(self) -> Encoding:
        """Added column that the encoding reads."""
        raise NotImplementedError


class EigenvectorOptions(PositionalOptions):
    """Options of an encoding of Laplacian eigenvectors."""

    freqs: int = Field(
        default=8, ge=1, le=MAX_PARAMETER, description="number of smallest eigenpairs"
    )

    @property
    def encoding(self) -> Encoding:
        """``lappeK``."""
        return Laplacian(self.freqs)


class LapPEOptions(EigenvectorOptions):
    """Options of an encoding that maps each eigenpair and sums the results."""

    freqs: int = Field(
        default=10, ge=1, le=MAX_PARAMETER, description="number of smallest eigenpairs"
    )
    width: int = Field(default=16, ge=1, description="channels")
    reader: Literal["deepset", "transformer"] = Field(
        default="deepset", description="map of the eigenpairs of a node, before their sum"
    )
    layers: int = Field(default=2, ge=1, le=1_000, description="layers of the map")
    heads: int = Field(default=4, ge=1, description="attention heads of a transformer")
    post_layers: int = Field(
        default=0, ge=0, le=1_000, description="layers of a perceptron after the sum"
    )


class RWSEOptions(PositionalOptions):
    """Options of an encoding of random-walk return probabilities."""

    steps: int = Field(default=20, ge=1, le=MAX_PARAMETER, description="steps of the walk")
    width: int = Field(default=28, ge=1, description="channels")
    reader: Literal["linear", "mlp"] = Field(default="linear", description="map of the column")
    layers: int = Field(default=3, ge=1, le=1_000, description="layers of a perceptron")
    norm: bool = Field(default=True, description="batch norm before the map")

    @property
    def encoding(self) -> Encoding:
        """``rwseT``."""
        return RandomWalk(self.steps)


class EquivStableOptions(EigenvectorOptions):
    """Options of eigenvectors whose distances scale messages; they add no channels."""


@dataclass(frozen=True)
class PositionalEncoding:
    """Encoding of node positions, and the module that reads it."""

    #: Added column that it reads; training computes it if it is missing.
    encoding: Encoding | None = None
    #: Called with this object and the channels of the network. ``module(batch)`` then returns (N,
    #: width), or a changed batch if ``width`` is 0.
    build: ModuleBuilder | None = None
    width: int = 0  #: channels of the node encoder that it replaces
    adds_distances: bool = False  #: True if it adds the squared distance of their ends to the edges
    options: PositionalOptions | None = None  #: ``None``: it has no section in the configuration

    def with_options(self, options: PositionalOptions) -> PositionalEncoding:
        """Return the encoding with these options."""
        width = getattr(options, "width", 0)
        return replace(self, encoding=options.encoding, width=width, options=options)

    @property
    def added_attributes(self) -> tuple[str, ...]:
        """Batch attributes that it reads; distances need no eigenvalues."""
        return ("lappe_vectors",) if self.adds_distances else encoding_attributes(self.encoding)


def _positional_encoding(
    options: PositionalOptions, class_name: str, *, adds_distances: bool = False
) -> PositionalEncoding:
    build = import_on_call(f"kmip_data.models.encoders:{class_name}")
    return PositionalEncoding(build=build, adds_distances=adds_distances).with_options(options)


_build_column_encoder = import_on_call("kmip_data.models.encoders:ColumnEncoder")
POSITIONAL_ENCODINGS: dict[str, PositionalEncoding] = {
    "equivstable": _positional_encoding(
        EquivStableOptions(), "EquivStableLapPE", adds_distances=True
    ),
    "lappe": _positional_encoding(LapPEOptions(), "LapPE"),
    "none": PositionalEncoding(),
    "rwse": _positional_encoding(RWSEOptions(), "ColumnEncoder"),
    "rwse32": PositionalEncoding(RandomWalk(32), _build_column_encoder, width=28),
}
DEFAULT_WIDTH = 16  #: channels of an encoding that is not in ``POSITIONAL_ENCODINGS``


def find_positional_encoding(name: str) -> PositionalEncoding:
    """Return one term of ``model.positional``: a registered encoding, or any one-column encoding."""
    entry = POSITIONAL_ENCODINGS.get(name)
    return entry or PositionalEncoding(
        parse_encoding(name), _build_column_encoder, width=DEFAULT_WIDTH
    )


class PositionalName(RegisteredName):
    """Key whose value is a sum of registered names and encodings with one float column per node."""

    def check(self, name: str) -> str:
        """Return ``name``; ``UsageError`` for an encoding with other columns, ``ValueError`` if unknown."""
        for term in name.split("+"):
            parsed = (encoding_class.parse(term) for encoding_class in known_encodings())
            encoding = next(filter(None, parsed), None)
            if encoding is None or term in POSITIONAL_ENCODINGS:
                super().check(term)
            else:
                _require_one_float_column(term, encoding)
        return name


def _require_one_float_column(name: str, encoding: Encoding) -> None:
    column, *more_columns = encoding.columns()
    is_float = column.presented.startswith("float")
    if more_columns or column.level != "node" or len(column.shape) != 1 or not is_float:
        raise UsageError(f"The encoding {name} is not one column of floats, (N, width).")
