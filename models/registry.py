"""Parts and models that a configuration can name, discovered in their folders."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from kmip_data.manifest import read_shipped, shipped_names
from kmip_data.models.attention import kinds as attentions
from kmip_data.models.kinds import NoPart, Part
from kmip_data.models.layers import kinds as message_passing
from kmip_data.runtime.presence import modules_in


def _parts(package: ModuleType) -> dict[str, type[Part]]:
    parts: list[type[Part]] = [NoPart, *(part for module in modules_in(package) for part in module.PARTS)]
    return {part.model_fields["kind"].default: part for part in parts}


ATTENTION = _parts(attentions)  #: by ``model.attention.kind``
MESSAGE_PASSING = _parts(message_passing)  #: by ``model.local.kind``


@functools.cache
def models() -> Mapping[str, dict[str, Any]]:
    """Return the keys of every model by name, from its file in ``manifests/models``."""
    return {name: read_shipped("models", name) for name in shipped_names("models")}
