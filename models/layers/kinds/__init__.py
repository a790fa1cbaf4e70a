"""Kinds of message passing, one per module, discovered by its ``COMPONENT``; their base classes."""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING, ClassVar, Literal

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


class StackComponent(MessagePassing):
    """A subclass of :class:`kmip_data.models.layers.convolutions.Convolution`, with its stack."""

    reads_edges = False
    convolution_class: ClassVar[str]  #: ``module:name`` of the convolution, imported when built

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
        """Make the convolution of one layer."""
        return self.build_convolution(layer)

    def build_convolution(self, layer: LayerInfo, **own_options: object) -> nn.Module:
        """Make the convolution with the options of every stack and those of its kind."""
        convolution: type[nn.Module] = pkgutil.resolve_name(self.convolution_class)
        return convolution(
            layer.dim,
            dropout=layer.dropout,
            stack=self.stack,
            activation=self.activation,
            inputs=layer.inputs,
            linear_residual=self.residual == "linear",
            **own_options,
        )
