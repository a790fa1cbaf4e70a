"""Means and standard deviations that superpixel features are standardised with.

They stand in the manifests (``standardisation``), where the dataset classes read them too.
"""

from __future__ import annotations

from kmip_data.manifest import Standardisation, load_manifest


def constants_of(dataset: str, column: str) -> Standardisation:
    """Return the published constants of a column, such as ``node/x``."""
    return load_manifest(dataset).standardisation[column]
