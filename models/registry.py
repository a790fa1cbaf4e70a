"""Names of architectures: which there are, and how each is made from a configuration."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Protocol

from torch import nn

from kmip_data.errors import UsageError
from kmip_data.models.config import ModelConfig


class Builder(Protocol):
    """Makes a network whose ``forward(batch)`` gives logits (ΣN, C)."""

    def __call__(
        self, config: ModelConfig, *, in_channels: int, num_classes: int, edge_channels: int | None
    ) -> nn.Module:
        """Make it."""
        ...


_builders: dict[str, Builder] = {}


def register_model(name: str) -> Callable[[Builder], Builder]:
    """Decorator that makes a builder known as ``name``."""

    def register(builder: Builder) -> Builder:
        _builders[name] = builder
        return builder

    return register


def model_names() -> tuple[str, ...]:
    """All known architectures."""
    from kmip_data.models import network  # noqa: F401 -- importing it registers them

    return tuple(sorted(_builders))


def builder(name: str) -> Builder:
    """The builder of that name; an unknown one is an error that names the nearest."""
    names = model_names()
    if name not in names:
        near = difflib.get_close_matches(name, names, 1)
        raise UsageError(
            f"no model is called {name!r}",
            expected="one of " + ", ".join(names),
            found=name,
            next=f"did you mean {near[0]!r}?" if near else None,
        )
    return _builders[name]
