"""The pipeline: a raw extract, street graph or archive of tensors to the one record of a city.

Everything up to the tensors happens in ``prepare``, once; the record adds eccentricity and labels. Facts:
``docs/cities.md``; deviations from City-Networks' own generator: ``docs/fidelity.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
from pydantic import Field, field_validator

from kmip_data.builds.home import Home
from kmip_data.errors import DamagedInput
from kmip_data.format.record import GraphRecord
from kmip_data.format.schema import Schema
from kmip_data.pipelines.base import About, Pipeline, Prepared, RawFolder, Records, Split, Unit
from kmip_data.pipelines.cities.graph import (
    CityParams,
    check_tensors,
    chunk_labels,
    city_record,
    city_schema,
)
from kmip_data.pipelines.cities.splits import CitySplitParams, city_split
from kmip_data.pipelines.cities.storage import about_city, load_city, store_city
from kmip_data.pipelines.openstreetmap.area import parse_bbox
from kmip_data.pipelines.openstreetmap.city_source import CitySource, check_source
from kmip_data.pipelines.openstreetmap.network.streets import NetworkType
from kmip_data.pipelines.raw.copies import RawCopy
from kmip_data.pipelines.raw.licences import show_licence


class OpenStreetMapParams(CityParams):
    """Parameters that change the record."""

    network_type: NetworkType = Field(
        default="all",
        description="which ways are streets: OSMnx's network types; any: every way tagged highway",
    )
    bbox: str | None = Field(
        default=None,
        description="only the part of the map in W,S,E,N degrees, such as 24.93,60.16,24.95,60.18",
    )

    @field_validator("bbox")
    @classmethod
    def _box(cls, value: str | None) -> str | None:
        return None if value is None else ",".join(f"{degrees:.10g}" for degrees in parse_bbox(value))


class OpenStreetMapPipeline(Pipeline[OpenStreetMapParams, CitySplitParams]):
    """The pipeline of ``manifests/datasets/helsinki.toml`` and of ``city.toml``, whatever name a city has."""

    version = 1
    one_unit = True
    Params: ClassVar[type[OpenStreetMapParams]] = OpenStreetMapParams
    SplitParams: ClassVar[type[CitySplitParams]] = CitySplitParams
    Source: ClassVar[type[CitySource]] = CitySource

    def bring(
        self, source: CitySource, params: OpenStreetMapParams, home: Home, *, offline: bool, quiet: bool
    ) -> tuple[RawCopy, bool]:
        """Copy or download what a city is built from; return the copy and whether it is new."""
        from kmip_data.pipelines.openstreetmap.sources import obtain_city

        check_source(source, params.model_dump(include=params.model_fields_set))
        if not quiet:
            show_licence(self.manifest)
        network = params.network_type
        return obtain_city(self.manifest, source, home, network_type=network, offline=offline, quiet=quiet)

    def schema(self, params: OpenStreetMapParams) -> Schema:
        """Columns of a city, with OpenStreetMap's numbers of the intersections."""
        return city_schema(params, max_nodes=self.manifest.max_nodes, node_ids=True)

    def sample(self, folder: Path, *, limit: int | None, seed: int = 0) -> None:
        """Write a generated city as an extract."""
        from kmip_data.pipelines.samples.openstreetmap import write_sample

        write_sample(folder / self.manifest.content.anchor, intersections=limit, seed=seed)

    def prepare(self, raw: RawFolder, params: OpenStreetMapParams, workdir: Path) -> Prepared:
        """Read the map and make the tensors of the city."""
        from kmip_data.pipelines.openstreetmap.reading import read_city

        tensors = read_city(raw, params, workdir)
        check_tensors(tensors, self.manifest.name)
        # Refused now, before any work: the labels will be chunks of this many nodes.
        chunk_labels(np.zeros(tensors.num_nodes, np.float32), params.classes)
        if tensors.num_nodes > self.manifest.max_nodes:
            raise DamagedInput(
                f"{self.manifest.name} is too large.",
                expected=f"at most {self.manifest.max_nodes:,} intersections",
                found=f"{tensors.num_nodes:,}",
                left="nothing was built",
                next="give a part of the map with --bbox",
            )
        return store_city(tensors, workdir)

    def units(self, prepared: Prepared, params: OpenStreetMapParams) -> list[Unit]:
        """One city, one shard."""
        return [Unit(0, self.manifest.name, {})]

    def records(self, prepared: Prepared, unit: Unit, params: OpenStreetMapParams) -> Iterator[GraphRecord]:
        """Yield the city."""
        tensors = load_city(prepared)
        if tensors.node_ids is None:  # published tensors do not have them
            tensors = replace(tensors, node_ids=np.full(tensors.num_nodes, -1, np.int64))
        key = self.manifest.name.encode("ascii", "replace").decode()[:64]
        yield city_record(tensors, params, key=key, index_dtype=self.schema(params).index_dtype)

    def about(self, prepared: Prepared, params: OpenStreetMapParams) -> About:
        """Counts, vocabulary and what standardises the features; warnings as notes."""
        return about_city(prepared)

    def split(self, records: Records, params: CitySplitParams, raw: Path | None) -> Split:
        """Intersections at random, or blocks of the map."""
        return city_split(records, params)

    def name_parts(self, params: OpenStreetMapParams) -> list[str]:
        """What deviates from the defaults."""
        parts = [] if params.network_type == "all" else [params.network_type.replace("_", "-")]
        return [*parts, *(["bbox"] if params.bbox else []), *params.name_parts]
