"""Kinds of message passing: keys, and construction of the module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from kmip_data.models.components import Activation, Component, LayerInfo

if TYPE_CHECKING:
    from torch import nn


class MessagePassing(Component):
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


class GatedGCNComponent(MessagePassing):
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

    def build(self, layer: LayerInfo) -> nn.Module:
        """Make a :class:`~kmip_data.models.layers.gated_gcn.GatedGCN`."""
        from kmip_data.models.layers.gated_gcn import GatedGCN

        return GatedGCN(
            layer.dim,
            dropout=layer.dropout,
            residual=self.residual == "inside",
            edge_residual=self.edge_residual,
            update_edges=not layer.last,
            by_distance=layer.distances,
            activation=self.activation,
        )


class StackComponent(MessagePassing):
    """A convolution of :data:`kmip_data.models.layers.convolutions.CONVOLUTIONS`, with its stack."""

    reads_edges = False

    residual: Literal["none", "inside", "outside", "linear"] = Field(  # type: ignore[assignment] # one more
        default="none",
        description="residual connection: none (code), after the stack (inside, outside), or linear,"
        " a linear map of the input before it (tunedGNN)",
    )
    stack: Literal["lrgb", "graphgps", "graphgym", "gnn-plus", "layer-norm", "none"] = Field(
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

    def build(self, layer: LayerInfo) -> nn.Module:
        """Make a :class:`~kmip_data.models.layers.convolutions.Convolution` of its kind."""
        return self.convolution(layer)

    def convolution(self, layer: LayerInfo, **more: object) -> nn.Module:
        """Make the convolution of this kind, with the common options and ``more``."""
        from kmip_data.models.layers.convolutions import CONVOLUTIONS

        return CONVOLUTIONS[self.kind](
            layer.dim,
            dropout=layer.dropout,
            stack=self.stack,
            activation=self.activation,
            inputs=layer.inputs,
            linear_residual=self.residual == "linear",
            **more,
        )


class GCNComponent(StackComponent):
    """Degree-normalised sum over the neighbours."""

    kind: Literal["gcn"] = Field(default="gcn", description="GCN")


class GCNEComponent(StackComponent):
    """Sum over neighbours with edge features."""

    reads_edges = True

    kind: Literal["gcne"] = Field(default="gcne", description="GCN with edge features of GNN⁺")


class SAGEComponent(StackComponent):
    """Mean over the neighbours, combined with the node itself."""

    kind: Literal["sage"] = Field(default="sage", description="GraphSAGE")
    self_loops: bool = Field(
        default=False, description="the node is one of its neighbours (tunedGNN)"
    )

    def build(self, layer: LayerInfo) -> nn.Module:
        """Make a :class:`~kmip_data.models.layers.convolutions.SAGE`."""
        return self.convolution(layer, self_loops=self.self_loops)


class GATComponent(StackComponent):
    """Attention to the neighbours, one head."""

    kind: Literal["gat"] = Field(default="gat", description="GAT")
    bias: bool = Field(default=True, description="a bias; false in tunedGNN's smaller graphs")

    def build(self, layer: LayerInfo) -> nn.Module:
        """Make a :class:`~kmip_data.models.layers.convolutions.GAT`."""
        return self.convolution(layer, bias=self.bias)


class GINEComponent(StackComponent):
    """Sum over neighbours with edge features, then a perceptron."""

    reads_edges = True

    kind: Literal["gine"] = Field(default="gine", description="GINE")

    @property
    def reads_distances(self) -> bool:
        """True in a GPS layer, whose messages they scale; no stack with distances is published."""
        return self.stack == "none"

    @property
    def takes_inputs(self) -> bool:
        """False: nodes are added to edge features, so their channels must agree."""
        return False

    def build(self, layer: LayerInfo) -> nn.Module:
        """Make a :class:`~kmip_data.models.layers.convolutions.GINE`."""
        return self.convolution(layer, by_distance=layer.distances)


class MLPComponent(StackComponent):
    """Each node alone: a network without the graph."""

    kind: Literal["mlp"] = Field(
        default="mlp", description="no message passing: a linear layer on each node"
    )


#: All kinds, in the order that lists of keys show.
COMPONENTS: tuple[type[MessagePassing], ...] = (
    GatedGCNComponent,
    GCNComponent,
    GCNEComponent,
    SAGEComponent,
    GATComponent,
    GINEComponent,
    MLPComponent,
)
