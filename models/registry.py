"""What a network can be made of, found by being there: parts, positional encodings, models by name."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from kmip_data.manifest import read_shipped, shipped_names
from kmip_data.models import encodings
from kmip_data.models.attention import kinds as attentions
from kmip_data.models.kinds import Part, Positional
from kmip_data.models.layers import kinds as message_passing
from kmip_data.runtime.presence import modules_in


def _parts(package: ModuleType) -> dict[str, type[Part]]:
    parts: list[type[Part]] = [module.PART for module in modules_in(package)]
    return {part.model_fields["kind"].default: part for part in parts}


ATTENTION = _parts(attentions)  #: by ``model.attention.kind``
MESSAGE_PASSING = _parts(message_passing)  #: by ``model.local.kind``

_POSITIONAL: list[Positional] = [module.POSITIONAL for module in modules_in(encodings)]
POSITIONAL = {position.name: position for position in _POSITIONAL}  #: by ``model.positional``


@functools.cache
def models() -> Mapping[str, dict[str, Any]]:
    """Keys of every model by name, as its file in ``manifests/models`` has them."""
    return {name: read_shipped("models", name) for name in shipped_names("models")}
