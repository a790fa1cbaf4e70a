"""Graph algorithms: nearest neighbours, eccentricity, encodings, splits and statistics.

Public names are imported on first use (PEP 562), as in :mod:`kmip_data`.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
