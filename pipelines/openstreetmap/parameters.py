"""Parameters of a city of OpenStreetMap that change its record."""

from __future__ import annotations

from pydantic import Field, field_validator

from kmip_data.pipelines.cities.graph import CityParams
from kmip_data.pipelines.openstreetmap.area import parse_bbox
from kmip_data.pipelines.openstreetmap.network.streets import NetworkType


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
