"""Tensors of a city between ``prepare``, which makes them once, and the record."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from kmip_data.pipelines.base import About, Prepared
from kmip_data.pipelines.cities.graph import CityTensors, feature_statistics

_ARRAYS: Final = ("features", "edge_index", "edge_length", "edge_speed", "node_ids", "eccentricity", "labels")
_FILE: Final = "tensors.npz"


def store_city(tensors: CityTensors, workdir: Path) -> Prepared:
    """Write the arrays into ``workdir``; the plan has what the card says about them."""
    arrays = {name: getattr(tensors, name) for name in _ARRAYS if getattr(tensors, name) is not None}
    np.savez(workdir / _FILE, **arrays)
    plan = {
        "facts": dict(tensors.facts),
        "warnings": list(tensors.warnings),
        "features": feature_statistics(tensors),
    }
    return Prepared(workdir, plan)


def load_city(prepared: Prepared) -> CityTensors:
    """Read the arrays that :func:`store_city` wrote."""
    with np.load(prepared.path / _FILE, allow_pickle=False) as stored:
        return CityTensors(**{name: stored[name] for name in stored.files})


def about_city(prepared: Prepared) -> About:
    """Return counts, vocabulary and what standardises the features for the card; warnings as notes."""
    plan = prepared.plan
    facts = {**plan["facts"], "warnings": plan["warnings"], "features": plan["features"]}
    return About({"city": facts}, plan["warnings"])
