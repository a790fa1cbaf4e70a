"""Any OpenStreetMap city as a long-range benchmark graph in the style of City-Networks.

An extract, street graph or tensor archive becomes one record. ``prepare`` computes the tensors
once; the record adds eccentricity and labels. Facts: ``docs/cities.md``; deviations from
City-Networks' generator: ``docs/fidelity.md``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kmip_data.builds.home import Home
from kmip_data.pipelines.base import Prepared, RawCopy
from kmip_data.pipelines.datasets.openstreetmap.parameters import (
    CitySource,
    OpenStreetMapParams,
    check_source,
)
from kmip_data.pipelines.domains.cities import CityPipeline, check_city, quantile_labels, store_city
from kmip_data.pipelines.raw.licenses import show_license


class OpenStreetMapPipeline(CityPipeline[OpenStreetMapParams]):
    """Pipeline of Helsinki and of the recipe ``city``."""

    Params = OpenStreetMapParams
    stores_osm_ids = True
    Source = CitySource

    def store_raw_files(
        self,
        source: CitySource,
        params: OpenStreetMapParams,
        home: Home,
        *,
        offline: bool,
        quiet: bool,
    ) -> tuple[RawCopy, bool]:
        """Copy or download the source of a city; return the copy and True if it is new."""
        from kmip_data.pipelines.datasets.openstreetmap.sources import store_raw_city

        check_source(source, params.model_dump(include=params.model_fields_set))
        if not quiet:
            show_license(self.manifest)
        return store_raw_city(
            self.manifest,
            source,
            home,
            network_type=params.network_type,
            offline=offline,
            quiet=quiet,
        )

    def write_sample(self, folder: Path, *, limit: int | None, seed: int = 0) -> None:
        """Write an extract of a generated city."""
        from kmip_data.pipelines.datasets.openstreetmap.sample import write_sample

        write_sample(folder / self.manifest.content.anchor, limit=limit, seed=seed)

    def prepare(self, raw: RawCopy, params: OpenStreetMapParams, workdir: Path) -> Prepared:
        """Read the map and store the arrays of the city."""
        # Import lazily: this loads pyosmium.
        from kmip_data.pipelines.datasets.openstreetmap.city_reader import read_city

        city = read_city(raw, params, workdir)
        check_city(city, self.manifest.name)
        # Fail early if the city has too few nodes for the number of classes.
        quantile_labels(np.zeros(len(city.features), np.float32), params.classes)
        return store_city(city, workdir)

    def folder_name_pieces(self, params: OpenStreetMapParams) -> list[str]:
        """Return folder name parts for non-default values."""
        parts = [] if params.network_type == "all" else [params.network_type.replace("_", "-")]
        return [*parts, *(["bbox"] if params.bbox else []), *super().folder_name_pieces(params)]


PIPELINE = OpenStreetMapPipeline
