"""Base class of city pipelines: tensors kept by ``prepare``, one unit, one record, splits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Final, TypeVar

import numpy as np

from kmip_data.format.schema import Schema
from kmip_data.format.writer import GraphRecord
from kmip_data.pipelines.base import About, Pipeline, Prepared, Records, Split, Unit
from kmip_data.pipelines.cities.graph import (
    CityParams,
    CityTensors,
    city_record,
    city_schema,
    feature_statistics,
)
from kmip_data.pipelines.cities.splits import CitySplitParams, city_split

P = TypeVar("P", bound=CityParams)

_ARRAYS: Final = ("features", "edge_index", "edge_length", "edge_speed", "node_ids", "eccentricity", "labels")
_FILE: Final = "tensors.npz"


class CityPipeline(Pipeline[P, CitySplitParams]):
    """A dataset of one city; ``prepare`` stores its tensors (:func:`store_city`)."""

    version = 1
    one_unit = True
    Params: ClassVar[type[CityParams]] = CityParams
    SplitParams: ClassVar[type[CitySplitParams]] = CitySplitParams
    node_ids: ClassVar[bool] = False  #: OpenStreetMap's numbers of the intersections are stored, too

    def schema(self, params: P) -> Schema:
        """Columns of a city."""
        return city_schema(params, max_nodes=self.manifest.max_nodes, node_ids=self.node_ids)

    def units(self, prepared: Prepared, params: P) -> list[Unit]:
        """One city, one shard."""
        return [Unit(0, self.manifest.name, {})]

    def records(self, prepared: Prepared, unit: Unit, params: P) -> Iterator[GraphRecord]:
        """Yield the city."""
        with np.load(prepared.path / _FILE, allow_pickle=False) as stored:
            tensors = CityTensors(**{name: stored[name] for name in stored.files})
        if self.node_ids and tensors.node_ids is None:  # published tensors do not have them
            tensors = replace(tensors, node_ids=np.full(tensors.num_nodes, -1, np.int64))
        key = self.manifest.name.encode("ascii", "replace").decode()[:64]
        yield city_record(tensors, params, key=key, index_dtype=self.schema(params).index_dtype)

    def about(self, prepared: Prepared, params: P) -> About:
        """Counts, vocabulary and what standardises the features; warnings as notes."""
        plan = prepared.plan
        facts = {**plan["facts"], "warnings": plan["warnings"], "features": plan["features"]}
        return About({"city": facts}, plan["warnings"])

    def split(self, records: Records, params: CitySplitParams, raw: Path | None) -> Split:
        """Intersections at random, as published, or blocks of the map."""
        return city_split(records, params)

    def name_parts(self, params: P) -> list[str]:
        """Parts of the folder's name for values other than the defaults."""
        return params.name_parts


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
