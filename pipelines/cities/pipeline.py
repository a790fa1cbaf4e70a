"""What the pipelines of cities do alike: one unit, one record, splits of its intersections."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, TypeVar

import numpy as np

from kmip_data.format.record import GraphRecord
from kmip_data.format.schema import Schema
from kmip_data.pipelines.base import About, Pipeline, Prepared, Records, Split, Unit
from kmip_data.pipelines.cities.graph import CityParams, city_record, city_schema
from kmip_data.pipelines.cities.splits import CitySplitParams, city_split
from kmip_data.pipelines.cities.storage import about_city, load_city

P = TypeVar("P", bound=CityParams)


class CityPipeline(Pipeline[P, CitySplitParams]):
    """A dataset of one city; ``prepare`` stores its tensors (:func:`~.storage.store_city`)."""

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
        tensors = load_city(prepared)
        if self.node_ids and tensors.node_ids is None:  # published tensors do not have them
            tensors = replace(tensors, node_ids=np.full(tensors.num_nodes, -1, np.int64))
        key = self.manifest.name.encode("ascii", "replace").decode()[:64]
        yield city_record(tensors, params, key=key, index_dtype=self.schema(params).index_dtype)

    def about(self, prepared: Prepared, params: P) -> About:
        """Counts, vocabulary and what standardises the features; warnings as notes."""
        return about_city(prepared)

    def split(self, records: Records, params: CitySplitParams, raw: Path | None) -> Split:
        """Intersections at random, as published, or blocks of the map."""
        return city_split(records, params)

    def name_parts(self, params: P) -> list[str]:
        """What deviates from the defaults."""
        return params.name_parts
