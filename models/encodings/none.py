"""No positional encoding."""

from __future__ import annotations

from kmip_data.models.kinds import Positional

POSITIONAL = Positional("none", takes_padding=True)
