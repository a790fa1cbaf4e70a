"""Graph construction: neighbours, eccentricity, encodings, splits and statistics.

Public names are imported on first use (PEP 562), as those of :mod:`kmip_data`.
"""

from __future__ import annotations

import importlib
from typing import Any

from kmip_data.runtime.presence import names_in_stub

_PUBLIC = names_in_stub(__file__)

__all__ = list(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)
