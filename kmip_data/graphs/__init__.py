"""Graph construction: neighbours, eccentricity, encodings, splits and statistics.

Public names are imported on first use (PEP 562), as those of :mod:`kmip_data`.
"""

from __future__ import annotations

from kmip_data import public_names

__all__, __getattr__ = public_names(__name__, __file__)
