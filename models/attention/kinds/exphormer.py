"""Configuration of Exphormer's sparse attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from kmip_data.graphs.encodings.expander import Expander
from kmip_data.models.components import Fraction, LayerInfo, MultiHeadComponent

if TYPE_CHECKING:
    from torch import nn


class ExphormerComponent(MultiHeadComponent):
    """Attention along the graph's edges, along an expander's edges, and to virtual nodes."""

    kind: Literal["exphormer"] = Field(
        default="exphormer", description="Exphormer's sparse attention"
    )
    expander: int = Field(
        default=3,
        ge=0,
        le=1024,
        description="permutations of the expander, each with edges in both directions; 0: no expander",
    )
    expander_seed: int = Field(
        default=0,
        ge=0,
        lt=10**9,
        description="seed of the permutations",
    )
    self_loops: bool = Field(
        default=True, description="keep expander edges from a node to itself, as upstream"
    )
    real_edges: bool = Field(default=True, description="attend along the graph's edges")
    virtual_nodes: int = Field(default=3, ge=0, description="virtual nodes per graph")
    clamp: float = Field(
        default=5.0,
        gt=0,
        le=50,
        description="bound of the scores' absolute value",
    )
    output_projection: bool = Field(
        default=False, description="linear layer W_O after the heads (text)"
    )
    dropout: Fraction = Field(default=0.0, description="dropout of attention weights")

    @property
    def reads_edges(self) -> bool:  # type: ignore[override]
        """True if it attends along the graph's edges."""
        return self.real_edges

    @property
    def encoding(self) -> Expander | None:
        """Column of expander permutations."""
        return Expander(self.expander, self.expander_seed) if self.expander else None

    def check(self, layers: int, dim: int | None) -> None:
        """Check that there are edges to attend along, and that the heads divide the channels."""
        if not (self.real_edges or self.expander or self.virtual_nodes):
            msg = "real_edges is off, expander and virtual_nodes are 0: there are no edges to attend along"
            raise ValueError(msg)
        super().check(layers, dim)

    @property
    def why_not_capturable(self) -> str | None:
        """The expander's check."""
        return "Exphormer's expander is checked on the host" if self.expander else None

    def build_initial_state(self, dim: int) -> nn.Module:
        """Build an :class:`~kmip_data.models.attention.exphormer.ExphormerInitialState`."""
        from kmip_data.models.attention.exphormer import ExphormerInitialState

        options = self.model_dump(include={"virtual_nodes", "self_loops", "real_edges"})
        return ExphormerInitialState(dim, expander=self.expander > 0, **options)

    def build(self, layer: LayerInfo) -> nn.Module:
        """Build an :class:`~kmip_data.models.attention.exphormer.ExphormerAttention`."""
        from kmip_data.models.attention.exphormer import ExphormerAttention

        options = self.model_dump(
            include={"heads", "clamp", "output_projection", "dropout", "gate"}
        )
        return ExphormerAttention(layer.dim, **options)


COMPONENT = ExphormerComponent
