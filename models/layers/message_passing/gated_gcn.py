"""Settings of GatedGCN: message passing gated by edge features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from kmip_data.models.components import Activation, LayerInfo
from kmip_data.models.layers.message_passing import MessagePassingComponent

if TYPE_CHECKING:
    from torch import nn


class GatedGCNComponent(MessagePassingComponent):
    """Message passing gated by edge features, which it also updates."""

    reads_edges = True
    updates_edges = True

    kind: Literal["gated-gcn"] = Field(default="gated-gcn", description="GatedGCN")
    residual: Literal["none", "inside", "outside"] = Field(
        default="none",
        description="residual connection: none (code), inside (thesis, Exphormer) or outside (LRGB)",
    )
    activation: Activation = Field(
        default="relu", description="activation: relu (code) or gelu (text)"
    )
    edge_residual: bool = Field(
        default=True,
        description="residual connection of the edges; false in GNN⁺ where nodes have none",
    )

    @property
    def adds_input(self) -> bool:
        """True for an outside residual connection."""
        return self.residual == "outside"

    @property
    def reads_distances(self) -> bool:
        """True: distances scale the gates."""
        return True

    def build(self, layer: LayerInfo) -> nn.Module:
        """Build a :class:`~kmip_data.models.layers.gated_gcn.GatedGCN`."""
        from kmip_data.models.layers.gated_gcn import GatedGCN

        return GatedGCN(
            layer.dim,
            dropout=layer.dropout,
            residual=self.residual == "inside",
            edge_residual=self.edge_residual,
            update_edges=not layer.is_last,
            by_distance=layer.has_distances,
            activation=self.activation,
        )


COMPONENT = GatedGCNComponent
