"""Sources and parameters of a city; imports no map reader."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from kmip_data.errors import Command, Setting, UsageError
from kmip_data.pipelines.domains.cities import CityParams
from kmip_data.strict_model import StrictModel

#: Raw members other than the map itself.
POLYGON_FILE = "area.geojson"
VOCABULARY_FILE = "vocabulary.json"
LAND_USE_FILE = "land_use.geojson"
GRAPHML_FILE = "network.graphml"


def parse_bbox(text: str) -> tuple[float, float, float, float]:
    """Parse ``W,S,E,N`` in degrees; raises ``ValueError`` if they are not a box on the map.

    >>> parse_bbox("24.93,60.16,24.95,60.18")
    (24.93, 60.16, 24.95, 60.18)
    """
    degrees = [float(number) for number in text.split(",")]
    west, south, east, north = degrees if len(degrees) == 4 else [math.nan] * 4
    if not (-180 <= west < east <= 180 and -90 <= south < north <= 90):
        raise ValueError(
            "give west, south, east, north in degrees, such as 24.93,60.16,24.95,60.18"
        )
    return west, south, east, north


NetworkType = Literal["all", "all_public", "any", "bike", "drive", "drive_service", "walk"]


class CitySource(StrictModel):
    """Source of a city. Field descriptions are the command line's help."""

    osm_file: Path | None = Field(
        default=None, description="an extract of OpenStreetMap: .osm.pbf, .osm, .osm.gz or .osm.bz2"
    )
    graphml: Path | None = Field(default=None, description="a street graph that OSMnx saved")
    place: str | None = Field(
        default=None, description="name of a place, such as 'Oslo, Norway', downloaded by OSMnx"
    )
    archive: Path | None = Field(default=None, description="tensors in the layout of City-Networks")
    polygon: Path | None = Field(
        default=None, description="GeoJSON file with the outline of the part to use"
    )
    vocabulary: str | None = Field(
        default=None,
        description="build with the categories of the one-hot columns, so that its models can read this city",
    )


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
    def _check_box(cls, value: str | None) -> str | None:
        return (
            None if value is None else ",".join(f"{degrees:.10g}" for degrees in parse_bbox(value))
        )


def check_source(source: CitySource, parameters: Mapping[str, object]) -> None:
    """Raise ``UsageError`` unless there is one source, and all ``parameters`` apply to it."""
    all_sources = ("osm_file", "graphml", "place", "archive")
    sources = [name for name in all_sources if getattr(source, name) is not None]
    if len(sources) != 1:
        raise UsageError(
            "A city is built from one source.",
            expected="an archive (a map, street graph or tensors) or a place",
            found=" and ".join(sources) or "none",
            steps=Command("kmip-data build city --name NAME --archive FILE"),
        )
    inapplicable = {
        "graphml": {"network_type"},
        "archive": {"network_type", "bbox", "polygon", "vocabulary"},
    }.get(sources[0], set())
    for name, value in {**parameters, **source.model_dump()}.items():
        if name in inapplicable and value is not None:
            raise UsageError(
                f"{name} has no effect on a finished street graph or tensors.",
                steps=Setting({name: None}),
            )
