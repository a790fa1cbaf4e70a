"""The shipped datasets, as far as tests go through them."""

from __future__ import annotations

from kmip_data.manifest import load_manifest
from kmip_data.strict_model import shipped_datasets


def datasets() -> list[str]:
    """Every shipped dataset but the recipes, whose graphs are the user's."""
    return [name for name in shipped_datasets() if not load_manifest(name).recipe]


def one_of_each() -> list[str]:
    """The first dataset of each pipeline and task; the others differ in their files alone."""
    names: dict[tuple[str, str], str] = {}
    for name in datasets():
        manifest = load_manifest(name)
        names.setdefault((manifest.pipeline, manifest.task), name)
    return list(names.values())
