"""Base classes of the attention and message-passing kinds.

Each kind is one file in ``models/attention/kinds`` or ``models/layers/message_passing``. Its ``COMPONENT`` is
a subclass of :class:`Component` or ``MessagePassingComponent``, whose fields are the keys of
``model.attention`` or ``model.local``. Import torch only inside ``build``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field

from kmip_data.errors import error_with_correction
from kmip_data.graphs.encoding import Encoding
from kmip_data.strict_model import StrictModel

if TYPE_CHECKING:
    from torch import nn

Activation = Literal["relu", "gelu"]  #: name of a function in ``torch.nn.functional``
Fraction = Annotated[float, Field(ge=0, lt=1)]  #: for example a dropout probability


@dataclass(frozen=True)
class LayerInfo:
    """Position and size of the layer that a component is built for."""

    dim: int  #: input and output channels of nodes and edges
    dropout: float = 0.0  #: dropout probability of all branches
    index: int = 0  #: index of the layer, from 0
    layers: int = 1  #: number of layers in the network
    has_distances: bool = False  #: True if edges carry the squared distance between their ends
    input_dim: int | None = None  #: input channels of the nodes; None: ``dim``

    @property
    def is_last(self) -> bool:
        """True for the last layer, whose output edges are not read."""
        return self.index == self.layers - 1


class Component(StrictModel):
    """A kind of attention or message passing: its configuration keys and properties."""

    reads_edges: ClassVar[bool] = False  #: True if it reads edge features
    reads_targets: ClassVar[bool] = False  #: True if a node also reads the targets of its edges
    updates_edges: ClassVar[bool] = False  #: True if message passing returns new edge features
    #: Keys that change neither names nor shapes of the weights, so that they may change at test.
    test_keys: ClassVar[frozenset[str]] = frozenset()

    kind: str

    @property
    def dim_multiple(self) -> int:
        """Required divisor of ``hidden_dim``."""
        return 1

    @property
    def adds_input(self) -> bool:
        """True if the layer adds its input to the output of message passing."""
        return False

    @property
    def reads_distances(self) -> bool:
        """True if it uses edge distances (``LayerInfo.has_distances``)."""
        return False

    @property
    def accepts_input_dim(self) -> bool:
        """True if ``LayerInfo.input_dim`` may differ from ``dim``."""
        return False

    def check(self, layers: int, dim: int | None) -> None:
        """Raise ``ValueError`` if the keys do not fit the layers and channels (None: not chosen yet)."""

    def check_device(self, device: str) -> None:
        """Raise ``UsageError`` if it cannot run on a device type (``cpu``, ``cuda``)."""

    @property
    def why_not_capturable(self) -> str | None:
        """Reason why a CUDA graph cannot capture it; None if it can."""
        return None

    @property
    def of_largest_layer(self) -> Self:
        """Configuration of the layer that needs most memory, if layers differ."""
        return self

    @property
    def encoding(self) -> Encoding | None:
        """Encoding that it reads from ``GraphBatch.added``; training computes it if it is missing."""
        return None

    def build_initial_state(self, dim: int) -> nn.Module | None:
        """Build the module that creates the state passed from layer to layer, if attention has any.

        It is called once per forward pass, as ``module(e, batch)``, and returns a tuple. Each layer
        then calls ``attention(x, batch, *carried) -> (x, *carried)``; without state, it calls
        ``attention(x, batch) -> x``.
        """
        return None

    def build(self, layer: LayerInfo) -> nn.Module | None:
        """Build the module of one layer.

        An attention is called as ``module(x, batch)`` and message passing as ``module(x, e, batch)``,
        with nodes x (N, dim) and a :class:`~kmip_data.models.layers.batch.GraphBatch`
        (:class:`~kmip_data.models.network.GPSLayer`). The shipped attentions also accept pointers
        (:data:`~kmip_data.models.layers.batch.BatchOrPointers`) for use without a network.
        """
        raise NotImplementedError

    def reinitialise_encoders(self, *encoders: nn.Module) -> None:
        """Redraw the encoders' weights, for architectures that prescribe an initialisation."""


class NoComponent(Component):
    """A branch that is left out."""

    kind: Literal["none"] = Field(default="none", description="no such branch")

    def build(self, layer: LayerInfo) -> None:
        """Return None: there is no module."""


class MultiHeadComponent(Component):
    """Attention that splits the channels among its heads.

    The module that ``build`` returns scales its heads by ``apply_gate(build_gate(…), …)`` of
    :mod:`kmip_data.models.attention.gate`.
    """

    heads: int = Field(default=4, ge=1, description="attention heads; must divide hidden_dim")
    gate: Literal["none", "output"] = Field(
        default="none",
        description="output: scale each head by sigmoid(w · x + b), b = 0.5 at first",
    )

    @property
    def dim_multiple(self) -> int:
        """Number of heads, as all have the same number of channels."""
        return self.heads

    def check(self, layers: int, dim: int | None) -> None:
        """Check that the number of heads divides the channels."""
        if dim is not None and dim % self.heads:
            fitting = max(dim // self.heads, 1) * self.heads
            raise error_with_correction(
                f"hidden_dim = {dim} is not a multiple of heads = {self.heads}",
                f"model.hidden_dim={dim}",
                f"model.hidden_dim={fitting}",
            )
