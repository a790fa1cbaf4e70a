"""Parts of a network: their configuration keys and properties; every kind of message passing; encodings.

A kind of message passing is one class here, a kind of attention one file of
``models/attention/kinds``: a subclass of :class:`MessagePassing` or :class:`Part` that names its
``kind``, whose fields are the keys of ``model.local`` or ``model.attention``. It imports torch in
``build`` alone. Parts that a CUDA graph cannot hold are listed in
``models/training/capture/steps.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from kmip_data.graphs.encoding import MOST, Encoding
from kmip_data.graphs.encodings.lappe import Laplacian
from kmip_data.graphs.encodings.rwse import RandomWalk
from kmip_data.manifest import Strict

if TYPE_CHECKING:
    from torch import nn

Activation = Literal["relu", "gelu"]  #: functions of ``torch.nn.functional``
Share = Annotated[float, Field(ge=0, lt=1)]  #: such as a probability of dropout


@dataclass(frozen=True)
class Place:
    """Position of a part in a network."""

    dim: int  #: channels of the nodes and edges, in and out
    dropout: float = 0.0  #: of all branches of a layer
    layer: int = 0  #: number of its layer, from 0
    layers: int = 1  #: number of all
    distances: bool = False  #: True if edges carry the squared distance of their ends
    inputs: int | None = None  #: channels of the nodes that come in, where they are not ``dim``

    @property
    def last(self) -> bool:
        """True if nothing reads the edges that it gives."""
        return self.layer == self.layers - 1


class Part(Strict):
    """A kind of attention or of message passing: its keys and its properties."""

    reads: ClassVar[
        tuple[str, ...]
    ] = ()  #: attributes of a batch that it finds in ``GraphBatch.added``
    reads_edges: ClassVar[bool] = False  #: True if it reads edge features

    kind: str

    @property
    def multiple(self) -> int:
        """``hidden_dim`` must be a multiple of it."""
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
        """True if it reads ``Place.inputs``: it maps other channels than its own."""
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

        ``module(e, batch)`` gives a tuple of whatever is handed from layer to layer; each is then
        called as ``attention(x, batch, *carried) -> (x, *carried)``. None: nothing, and
        ``attention(x, batch) -> x``.
        """
        return None

    def build(self, place: Place) -> nn.Module | None:
        """Make the module of one layer, called as :class:`~kmip_data.models.network.GPSLayer` says."""
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
        """They scale its gates."""
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
    """A class of :mod:`kmip_data.models.layers.convolutions`, named as its kind, with a stack after it."""

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
        """Inside and outside are one: after dropout."""
        return self.residual in {"inside", "outside"}

    @property
    def takes_inputs(self) -> bool:
        """The convolution maps them, where nothing adds them to its output as they are."""
        return not self.adds_input

    def initialise(self, *encoders: nn.Module) -> None:
        """GraphGym draws weights anew, which reaches torch's own linear layers: those of the encoders."""
        from torch import nn

        for layer in (module for encoder in encoders for module in encoder.modules()):
            if self.stack == "graphgym" and isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight, nn.init.calculate_gain("relu"))
                nn.init.zeros_(layer.bias)

    def build(self, place: Place) -> nn.Module:
        """Make a :class:`~kmip_data.models.layers.convolutions.Convolution` of its kind."""
        return self.convolution(place)

    def convolution(self, place: Place, **more: Any) -> nn.Module:
        """Make the class named as its kind, with ``more`` options than all kinds take."""
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
    """Sum over the neighbours, by degrees."""

    kind: Literal["gcn"] = Field(default="gcn", description="GCN")


class GCNEPart(StackPart):
    """Sum over the neighbours with the features of the edges between."""

    reads_edges = True

    kind: Literal["gcne"] = Field(default="gcne", description="GCN with edge features of GNN⁺")


class SAGEPart(StackPart):
    """Mean over the neighbours, next to the node itself."""

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
    """Sum over the neighbours with the features of the edges between, then a perceptron."""

    reads_edges = True

    kind: Literal["gine"] = Field(default="gine", description="GINE")
    stack: Literal["lrgb", "graphgps", "graphgym", "gnn-plus", "layer-norm", "none"] = Field(  # type: ignore[assignment] # one more
        default="lrgb", description="operations after the convolution (models.md)"
    )

    @property
    def reads_distances(self) -> bool:
        """They scale the messages of a GPS layer; nobody has published them in a stack."""
        return self.stack == "none"

    @property
    def takes_inputs(self) -> bool:
        """It adds them to features of edges, which have its own channels."""
        return False

    def build(self, place: Place) -> nn.Module:
        """Make a :class:`~kmip_data.models.layers.convolutions.GINE`."""
        return self.convolution(place, by_distance=place.distances)


class MLPPart(StackPart):
    """Each node alone: the reach of a network without its graph."""

    kind: Literal["mlp"] = Field(
        default="mlp", description="no message passing: a linear layer on each node"
    )


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
