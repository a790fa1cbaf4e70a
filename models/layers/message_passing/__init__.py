"""Kinds of message passing, one module each, discovered by ``COMPONENT``, and their base classes."""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from kmip_data.models.components import Activation, Component, LayerInfo

if TYPE_CHECKING:
    from torch import nn


class MessagePassingComponent(Component):
    """Base of the kinds of message passing, the local branch of a GPS layer."""


class ConvolutionComponent(MessagePassingComponent):
    """Base of kinds built as a :class:`~kmip_data.models.layers.convolutions.Convolution`."""

    convolution_class: ClassVar[str]  #: ``module:name`` of the convolution, imported when built

    residual: Literal["none", "inside", "outside", "linear"] = Field(
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
        """True for inside and outside residuals, which are equal here: both follow dropout."""
        return self.residual in {"inside", "outside"}

    @property
    def accepts_input_dim(self) -> bool:
        """True unless a residual connection adds the input unchanged."""
        return not self.adds_input

    def reinitialise_encoders(self, *encoders: nn.Module) -> None:
        """Redraw the encoders' linear layers for the stack ``graphgym``, as GraphGym does."""
        from torch import nn

        for layer in (module for encoder in encoders for module in encoder.modules()):
            if self.stack == "graphgym" and isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight, nn.init.calculate_gain("relu"))
                nn.init.zeros_(layer.bias)

    def build(self, layer: LayerInfo) -> nn.Module:
        """Build the convolution of one layer."""
        return self.build_convolution(layer)

    def build_convolution(self, layer: LayerInfo, **kind_options: object) -> nn.Module:
        """Build the convolution with the common options and the options of its kind."""
        convolution: type[nn.Module] = pkgutil.resolve_name(self.convolution_class)
        return convolution(
            layer.dim,
            dropout=layer.dropout,
            stack=self.stack,
            activation=self.activation,
            input_dim=layer.input_dim,
            linear_residual=self.residual == "linear",
            **kind_options,
        )
