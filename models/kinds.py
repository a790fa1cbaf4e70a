"""Parts of a network: their configuration keys, and the properties that training needs.

A kind of attention or message passing is one class in ``kmip_data.models.attention.configuration`` or
``kmip_data.models.layers.configuration``, discovered automatically: a subclass of :class:`Part` that names
its ``kind``, whose fields are the keys of ``model.attention`` or ``model.local``. It imports torch in
``build`` alone. A positional encoding is a :class:`Positional`. Which parts a CUDA graph can hold, and which
see padding, is known to ``models/training/capture/steps.py`` alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from kmip_data.graphs.encoding import Encoding
from kmip_data.graphs.encodings.lappe import Laplacian
from kmip_data.graphs.encodings.rwse import RandomWalk
from kmip_data.manifest import Strict

if TYPE_CHECKING:
    from torch import nn


class Section(Strict):
    """Keys of a configuration: no others, not changed once made, no NaN."""


@dataclass(frozen=True)
class Place:
    """Position of a part in a network."""

    dim: int  #: channels of the nodes and edges, in and out
    dropout: float = 0.0  #: of all branches of a layer
    layer: int = 0  #: number of its layer, from 0
    layers: int = 1  #: number of all
    distances: bool = False  #: True if edges carry the squared distance of their ends

    @property
    def last(self) -> bool:
        """True if nothing reads the edges that it gives."""
        return self.layer == self.layers - 1


class Part(Section):
    """A kind of attention or of message passing: its keys and its properties."""

    reads: ClassVar[tuple[str, ...]] = ()  #: attributes of a batch that it finds in ``GraphBatch.added``
    reads_edges: ClassVar[bool] = False  #: True if it reads edge features
    reads_distances: ClassVar[bool] = False  #: True if it reads ``Place.distances``

    kind: str

    @property
    def multiple(self) -> int:
        """``hidden_dim`` must be a multiple of it."""
        return 1

    @property
    def adds_input(self) -> bool:
        """True if the layer adds its input to the output of message passing."""
        return False

    def check(self, layers: int, dim: int | None) -> None:
        """Raise ``ValueError`` where the keys do not go with the layers and channels (None: a budget's)."""

    def check_device(self, device: str) -> None:
        """Raise ``UsageError`` where it cannot run on a kind of device (``cpu``, ``cuda``)."""

    @property
    def encoding(self) -> Encoding | None:
        """The added column that it reads; training adds it where it is missing."""
        return None

    def begin(self, dim: int) -> nn.Module | None:
        """Make what an attention needs besides nodes and edges, called once per pass, before the layers.

        ``module(e, batch)`` gives a tuple of whatever is handed from layer to layer; each is then called as
        ``attention(x, batch, *carried) -> (x, *carried)``. None: nothing, and ``attention(x, batch) -> x``.
        """
        return None

    def build(self, place: Place) -> nn.Module | None:
        """Make the module of one layer, called as :class:`~kmip_data.models.layers.gps.GPSLayer` says."""
        raise NotImplementedError

    def initialise(self, *encoders: nn.Module) -> None:
        """Draw the encoders' weights anew, where the architecture draws them by a rule of its own."""


class NoPart(Part):
    """Layers without this branch."""

    kind: Literal["none"] = Field(default="none", description="no such branch")

    def build(self, place: Place) -> None:
        """Return None: the branch has no module."""


class MultiHead(Part):
    """Attention whose heads share the channels."""

    heads: int = Field(default=4, ge=1, description="attention heads; must divide hidden_dim")

    @property
    def multiple(self) -> int:
        """Each head has as many channels."""
        return self.heads

    def check(self, layers: int, dim: int | None) -> None:
        """The heads fill the channels."""
        if dim is not None and dim % self.heads:
            raise ValueError(f"hidden_dim = {dim} is not a multiple of heads = {self.heads}")


class MessagePassing(Part):
    """Message passing over edges with features."""

    reads_edges = True

    residual: Literal["none", "inside", "outside"] = Field(
        default="none",
        description="residual connection: none (code), inside (thesis, Exphormer) or outside (LRGB)",
    )

    @property
    def adds_input(self) -> bool:
        """A residual connection outside is the layer's."""
        return self.residual == "outside"


@dataclass(frozen=True)
class Positional:
    """One way in which a network reads an encoding of the positions of nodes."""

    name: str  #: value of ``model.positional``
    encoding: Encoding | None = None  #: the added column that it reads; training adds it where it is missing
    width: int = 0  #: channels that it takes from those of the node encoder; 0: it changes the batch instead
    distances: bool = False  #: True if it gives the edges the squared distance of their ends

    @property
    def reads(self) -> tuple[str, ...]:
        """Attributes of a batch; distances are of eigenvectors, without their eigenvalues."""
        if self.distances:
            return ("lappe_vectors",)
        return tuple(column.attribute for column in self.encoding.columns()) if self.encoding else ()


ENCODINGS = (
    Positional("equivstable", Laplacian(8), distances=True),
    Positional("lappe", Laplacian(10), width=16),
    Positional("none"),
    Positional("rwse", RandomWalk(20), width=28),
)
POSITIONAL = {each.name: each for each in ENCODINGS}
