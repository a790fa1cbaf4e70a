"""Base of attention and message passing: the keys of a kind, and construction of its module.

A kind of attention is one file of ``models/attention/kinds``, whose ``COMPONENT`` is a subclass of
:class:`Component`; a kind of message passing one of ``models/layers/kinds``, whose ``COMPONENT`` is
a subclass of ``MessagePassing``. Each class names its ``kind``; its fields are the keys of
``model.attention`` or ``model.local``. Import torch in ``build`` alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from kmip_data.graphs.encoding import Encoding
from kmip_data.strict_model import Strict

if TYPE_CHECKING:
    from torch import nn

Activation = Literal["relu", "gelu"]  #: functions of ``torch.nn.functional``
Fraction = Annotated[float, Field(ge=0, lt=1)]  #: such as a probability of dropout


@dataclass(frozen=True)
class LayerInfo:
    """Layer of a network that a component is built for."""

    dim: int  #: channels of the nodes and edges, in and out
    dropout: float = 0.0  #: dropout probability of all branches of a layer
    index: int = 0  #: number of the layer, from 0
    layers: int = 1  #: number of layers
    distances: bool = False  #: True if edges carry the squared distance between their ends
    inputs: int | None = None  #: input channels of the nodes, if not ``dim``

    @property
    def is_last(self) -> bool:
        """True if nothing reads its output edges."""
        return self.index == self.layers - 1


class Component(Strict):
    """A kind of attention or message passing: configuration keys and properties."""

    #: Batch attributes that it reads from ``GraphBatch.added``.
    reads: ClassVar[tuple[str, ...]] = ()
    reads_edges: ClassVar[bool] = False  #: True if it reads edge features
    updates_edges: ClassVar[bool] = False  #: True if message passing returns new edge features
    #: Channels per node and per edge that message passing saves for its backward pass, in multiples
    #: of ``hidden_dim``; fitted to measured steps. None: counted on a small graph.
    saved_channels: ClassVar[tuple[float, float] | None] = None

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
        """True if it reads ``LayerInfo.distances``."""
        return False

    @property
    def takes_inputs(self) -> bool:
        """True if it reads ``LayerInfo.inputs``, and so maps other input channels."""
        return False

    def check(self, layers: int, dim: int | None) -> None:
        """Raise ``ValueError`` if the keys do not fit the layers and channels (None: chosen by a budget)."""

    def check_device(self, device: str) -> None:
        """Raise ``UsageError`` if it cannot run on a device type (``cpu``, ``cuda``)."""

    @property
    def not_captured(self) -> str | None:
        """Reason why a CUDA graph cannot hold it, if any."""
        return None

    def saved_values(self, dim: int, layers: int, training_k: int) -> float:
        """Estimate the float32 values per node that a layer of attention keeps for its backward pass.

        ``training_k`` is the first k of ``training.k_schedule``, 0 without one. The default is that
        of full attention.
        """
        return 6 * dim

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

    def build(self, layer: LayerInfo) -> nn.Module | None:
        """Make the module of one layer, called as :class:`~kmip_data.models.network.GPSLayer` says."""
        raise NotImplementedError

    def initialise(self, *encoders: nn.Module) -> None:
        """Draw the encoders' weights again, for architectures with their own initialisation."""


class NoComponent(Component):
    """Layers without this branch."""

    saved_channels = (0, 0)

    kind: Literal["none"] = Field(default="none", description="no such branch")

    def build(self, layer: LayerInfo) -> None:
        """Return None: no module."""

    def saved_values(self, dim: int, layers: int, training_k: int) -> float:
        """Return 0: a branch that is left out keeps no values for the backward pass."""
        return 0


class MultiHead(Component):
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
