"""Parts and models that a configuration can name."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from kmip_data.manifest import read_shipped, shipped_names
from kmip_data.models.attention import configuration as attentions
from kmip_data.models.kinds import NoPart, Part
from kmip_data.models.layers import configuration as message_passing


def _parts(module: object) -> dict[str, type[Part]]:
    """Return the parts that a module defines, by the default of their key ``kind``, and none."""
    found = [each for each in vars(module).values() if isinstance(each, type) and issubclass(each, Part)]
    parts: list[type[Part]] = [NoPart, *found]
    named = {part.model_fields["kind"].default: part for part in parts}
    return {kind: part for kind, part in named.items() if isinstance(kind, str)}


ATTENTION = _parts(attentions)  #: by ``model.attention.kind``
MESSAGE_PASSING = _parts(message_passing)  #: by ``model.local.kind``


@functools.cache
def models() -> Mapping[str, dict[str, Any]]:
    """Return the keys of every model by name, from its file in ``manifests/models``."""
    return {name: read_shipped("models", name) for name in shipped_names("models")}
