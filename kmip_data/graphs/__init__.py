"""Graph construction: neighbours, eccentricity, encodings, splits and statistics.

Public names are imported on first use (PEP 562), as those of :mod:`kmip_data`.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from kmip_data import NAMES, public_name

_STUB = Path(__file__).with_suffix(".pyi").read_text("utf-8")
__all__ = NAMES.findall(_STUB)  # noqa: PLE0605 -- a list
__getattr__ = partial(public_name, __name__, _STUB)
__dir__ = partial(sorted, __all__)
