"""Graph construction: neighbours, eccentricity, encodings, splits and statistics.

Public names are imported on first use (PEP 562), as those of :mod:`kmip_data`.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

# Public name to its module: the stub next to this file, which type checkers read, is the only list of them.
_STUB = Path(__file__).with_suffix(".pyi").read_text("utf-8")
_PUBLIC = dict(re.findall(r"^from (?=\S+ import \w+ as (\w+))(\S+)", _STUB, re.MULTILINE))

__all__ = list(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)
