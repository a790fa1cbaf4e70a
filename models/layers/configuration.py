"""Configuration keys of every message passing, which build its module.

A class here that names its ``kind`` is discovered automatically; :class:`~kmip_data.models.kinds.Part` says
what training asks of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from kmip_data.models.kinds import MessagePassing, Place

if TYPE_CHECKING:
    from torch import nn


class GatedGCNPart(MessagePassing):
    """Message passing gated by the edges, which it updates."""

    reads_distances = True

    kind: Literal["gated-gcn"] = Field(default="gated-gcn", description="GatedGCN")
    activation: Literal["relu", "gelu"] = Field(
        default="relu", description="activation: relu (code) or gelu (text)"
    )

    def build(self, place: Place) -> nn.Module:
        """Make a :class:`~kmip_data.models.layers.gated_gcn.GatedGCN`."""
        from kmip_data.models.layers.gated_gcn import GatedGCN

        return GatedGCN(
            place.dim,
            dropout=place.dropout,
            residual=self.residual == "inside",
            update_edges=not place.last,
            by_distance=place.distances,
            activation=self.activation,
            defer_edges=not place.last,
        )


class StackPart(MessagePassing):
    """A convolution that reads no edge features, with what a stack puts after it."""

    reads_edges = False
    convolution: ClassVar[str]  #: class in :mod:`kmip_data.models.layers.convolutions`

    stack: Literal["lrgb", "graphgym"] = Field(
        default="lrgb", description="operations after the convolution (models.md)"
    )
    activation: Literal["relu", "gelu"] = Field(
        default="relu", description="activation: relu (point clouds) or gelu (LRGB, cities)"
    )

    @property
    def adds_input(self) -> bool:
        """Inside and outside are one: after dropout."""
        return self.residual != "none"

    def initialise(self, *encoders: nn.Module) -> None:
        """GraphGym draws weights anew, which reaches torch's own linear layers: those of the encoders."""
        from torch import nn

        if self.stack != "graphgym":
            return
        for layer in (module for encoder in encoders for module in encoder.modules()):
            if isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight, nn.init.calculate_gain("relu"))
                nn.init.zeros_(layer.bias)

    def build(self, place: Place) -> nn.Module:
        """Make a :class:`~kmip_data.models.layers.convolutions.Convolution` of its kind."""
        from kmip_data.models.layers import convolutions

        kind: type[convolutions.Convolution] = getattr(convolutions, self.convolution)
        return kind(place.dim, dropout=place.dropout, stack=self.stack, activation=self.activation)


class GCNPart(StackPart):
    """Sum over the neighbours, by degrees."""

    convolution = "GCN"

    kind: Literal["gcn"] = Field(default="gcn", description="GCN")


class GATPart(StackPart):
    """Attention to the neighbours, one head."""

    convolution = "GAT"

    kind: Literal["gat"] = Field(default="gat", description="GAT")


class GINEPart(StackPart):
    """Sum over the neighbours with the features of the edges between, then a perceptron."""

    reads_edges = True
    convolution = "GINE"

    kind: Literal["gine"] = Field(default="gine", description="GINE")
    stack: Literal["lrgb", "graphgps", "graphgym"] = Field(  # type: ignore[assignment] # one more
        default="lrgb", description="operations after the convolution (models.md)"
    )


class MLPPart(StackPart):
    """Each node alone: what a network reaches without its graph."""

    convolution = "MLP"

    kind: Literal["mlp"] = Field(default="mlp", description="no message passing: a linear layer on each node")
