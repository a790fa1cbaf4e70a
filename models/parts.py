"""Parts of a network: configuration keys and properties, all kinds of message passing, and encodings.

A kind of message passing is one class here, a kind of attention one file of
``models/attention/kinds``: a subclass of :class:`MessagePassing` or :class:`Part` that names its
``kind``, whose fields are the keys of ``model.local`` or ``model.attention``. Import torch in
``build`` alone. Parts that a CUDA graph cannot hold are listed in
``models/training/capture/steps.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from kmip_data.graphs.encoding import MAX_NUMBER, Encoding
from kmip_data.graphs.encodings.lappe import Laplacian
from kmip_data.graphs.encodings.rwse import RandomWalk
from kmip_data.shipped import Strict

if TYPE_CHECKING:
    from torch import nn

Activation = Literal["relu", "gelu"]  #: functions of ``torch.nn.functional``
Fraction = Annotated[float, Field(ge=0, lt=1)]  #: such as a probability of dropout


@dataclass(frozen=True)
class Place:
    """Position of a part in a network."""

    dim: int  #: channels of the nodes and edges, in and out
    dropout: float = 0.0  #: dropout probability of all branches of a layer
    layer: int = 0  #: index of the layer, from 0
    layers: int = 1  #: number of layers
    distances: bool = False  #: True if edges carry the squared distance between their ends
    inputs: int | None = None  #: input channels of the nodes, if not ``dim``

    @property
    def last(self) -> bool:
        """True if nothing reads its output edges."""
        return self.layer == self.layers - 1


class Part(Strict):
    """A kind of attention or message passing: configuration keys and properties."""

    #: Batch attributes that it reads from ``GraphBatch.added``.
    reads: ClassVar[tuple[str, ...]] = ()
    reads_edges: ClassVar[bool] = False  #: True if it reads edge features

    kind: str

    @property
    def multiple(self) -> int:
        """Divisor of ``hidden_dim``."""
        return 1

    @property
    def adds_input(self) -> bool:
        """True if the layer adds its input to the output of message passing."""
        return False

    @property
    def reads_distances(self) -> bool:
        """True if it reads ``Place.distances``."""
        return False

    @property
    def takes_inputs(self) -> bool:
        """True if it reads ``Place.inputs``, and so maps other input channels."""
        return False

    def check(self, layers: int, dim: int | None) -> None:
        """Raise ``ValueError`` if the keys do not fit the layers and channels (None: chosen by a budget)."""

    def check_device(self, device: str) -> None:
        """Raise ``UsageError`` if it cannot run on a device type (``cpu``, ``cuda``)."""

    @property
    def encoding(self) -> Encoding | None:
        """Added column that it reads; training adds a missing one."""
        return None

    def begin(self, dim: int) -> nn.Module | None:
        """Make what an attention needs besides nodes and edges, called once per pass, before the layers.

        ``module(e, batch)`` gives a tuple of whatever is handed from layer to layer; each is then
        called as ``attention(x, batch, *carried) -> (x, *carried)``. None: nothing, and
        ``attention(x, batch) -> x``.
        """
        return None

    def build(self, place: Place) -> nn.Module | None:
        """Make the module of one layer, called as :class:`~kmip_data.models.network.GPSLayer` says."""
        raise NotImplementedError

    def initialise(self, *encoders: nn.Module) -> None:
        """Draw the encoders' weights again, for architectures with their own initialisation."""


class NoPart(Part):
    """Layers without this branch."""

    kind: Literal["none"] = Field(default="none", description="no such branch")

    def build(self, place: Place) -> None:
        """Return None: no module."""


class MultiHead(Part):
    """Attention with the channels split among its heads."""

    heads: int = Field(default=4, ge=1, description="attention heads; must divide hidden_dim")

    @property
    def multiple(self) -> int:
        """All heads have equally many channels."""
        return self.heads

    def check(self, layers: int, dim: int | None) -> None:
        """Require heads that divide the channels."""
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
        """True for an outside residual connection, which the layer adds."""
        return self.residual == "outside"


class GatedGCNPart(MessagePassing):
    """Message passing gated by the edges, which it updates."""

    kind: Literal["gated-gcn"] = Field(default="gated-gcn", description="GatedGCN")
    activation: Activation = Field(
        default="relu", description="activation: relu (code) or gelu (text)"
    )
    edge_residual: bool = Field(
        default=True,
        description="residual connection of the edges; false in GNN⁺ where nodes have none",
    )

    @property
    def reads_distances(self) -> bool:
        """True: distances scale the gates."""
        return True

    def build(self, place: Place) -> nn.Module:
        """Make a :class:`~kmip_data.models.layers.gated_gcn.GatedGCN`."""
        from kmip_data.models.layers.gated_gcn import GatedGCN

        return GatedGCN(
            place.dim,
            dropout=place.dropout,
            residual=self.residual == "inside",
            edge_residual=self.edge_residual,
            update_edges=not place.last,
            by_distance=place.distances,
            activation=self.activation,
        )


class StackPart(MessagePassing):
    """A convolution of :mod:`kmip_data.models.layers.convolutions` named like its kind, with its stack."""

    reads_edges = False

    residual: Literal["none", "inside", "outside", "linear"] = Field(  # type: ignore[assignment] # one more
        default="none",
        description="residual connection: none (code), after the stack (inside, outside), or linear,"
        " a linear map of the input before it (tunedGNN)",
    )
    stack: Literal["lrgb", "graphgym", "gnn-plus", "layer-norm", "none"] = Field(
        default="lrgb", description="operations after the convolution (models.md)"
    )
    activation: Activation = Field(
        default="relu", description="activation: relu (point clouds) or gelu (LRGB, cities)"
    )

    @property
    def adds_input(self) -> bool:
        """True for both residuals, which are equal here: after dropout."""
        return self.residual in {"inside", "outside"}

    @property
    def takes_inputs(self) -> bool:
        """True if the convolution maps its input and no residual adds it unmapped."""
        return not self.adds_input

    def initialise(self, *encoders: nn.Module) -> None:
        """Draw the encoders' linear layers again, as GraphGym does."""
        from torch import nn

        for layer in (module for encoder in encoders for module in encoder.modules()):
            if self.stack == "graphgym" and isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight, nn.init.calculate_gain("relu"))
                nn.init.zeros_(layer.bias)

    def build(self, place: Place) -> nn.Module:
        """Make a :class:`~kmip_data.models.layers.convolutions.Convolution` of its kind."""
        return self.convolution(place)

    def convolution(self, place: Place, **more: object) -> nn.Module:
        """Make the class named like its kind, with ``more`` options than the common ones."""
        from kmip_data.models.layers import convolutions

        made: type[nn.Module] = getattr(convolutions, self.kind.upper())
        return made(
            place.dim,
            dropout=place.dropout,
            stack=self.stack,
            activation=self.activation,
            inputs=place.inputs,
            linear_residual=self.residual == "linear",
            **more,
        )


class GCNPart(StackPart):
    """Degree-normalised sum over the neighbours."""

    kind: Literal["gcn"] = Field(default="gcn", description="GCN")


class GCNEPart(StackPart):
    """Sum over neighbours with edge features."""

    reads_edges = True

    kind: Literal["gcne"] = Field(default="gcne", description="GCN with edge features of GNN⁺")


class SAGEPart(StackPart):
    """Mean over the neighbours, combined with the node itself."""

    kind: Literal["sage"] = Field(default="sage", description="GraphSAGE")
    self_loops: bool = Field(
        default=False, description="the node is one of its neighbours (tunedGNN)"
    )

    def build(self, place: Place) -> nn.Module:
        """Make a :class:`~kmip_data.models.layers.convolutions.SAGE`."""
        return self.convolution(place, self_loops=self.self_loops)


class GATPart(StackPart):
    """Attention to the neighbours, one head."""

    kind: Literal["gat"] = Field(default="gat", description="GAT")
    bias: bool = Field(default=True, description="a bias; false in tunedGNN's smaller graphs")

    def build(self, place: Place) -> nn.Module:
        """Make a :class:`~kmip_data.models.layers.convolutions.GAT`."""
        return self.convolution(place, bias=self.bias)


class GINEPart(StackPart):
    """Sum over neighbours with edge features, then a perceptron."""

    reads_edges = True

    kind: Literal["gine"] = Field(default="gine", description="GINE")
    stack: Literal["lrgb", "graphgps", "graphgym", "gnn-plus", "layer-norm", "none"] = Field(  # type: ignore[assignment] # one more
        default="lrgb", description="operations after the convolution (models.md)"
    )

    @property
    def reads_distances(self) -> bool:
        """True in a GPS layer, whose messages they scale; no stack with distances is published."""
        return self.stack == "none"

    @property
    def takes_inputs(self) -> bool:
        """False: nodes are added to edge features, so their channels must agree."""
        return False

    def build(self, place: Place) -> nn.Module:
        """Make a :class:`~kmip_data.models.layers.convolutions.GINE`."""
        return self.convolution(place, by_distance=place.distances)


class MLPPart(StackPart):
    """Each node alone: a network without the graph."""

    kind: Literal["mlp"] = Field(
        default="mlp", description="no message passing: a linear layer on each node"
    )


class PositionKeys(Strict):
    """Keys of a positional encoding, and the added column they imply."""

    @property
    def encoding(self) -> Encoding:
        """The added column that it reads."""
        raise NotImplementedError


class Frequencies(PositionKeys):
    """Keys of an encoding of Laplacian eigenvectors."""

    freqs: int = Field(
        default=8, ge=1, le=MAX_NUMBER, description="smallest eigenpairs that are read"
    )

    @property
    def encoding(self) -> Encoding:
        """``lappeK``."""
        return Laplacian(self.freqs)


class LapPEKeys(Frequencies):
    """Eigenpairs, each mapped and then summed."""

    freqs: int = Field(
        default=10, ge=1, le=MAX_NUMBER, description="smallest eigenpairs that are read"
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

    steps: int = Field(default=20, ge=1, le=MAX_NUMBER, description="steps of the walk")
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
