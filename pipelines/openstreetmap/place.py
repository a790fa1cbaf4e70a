"""Download streets and land use of a place by its name, with OSMnx: the only part that needs a network."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kmip_data.errors import DamagedInput, SourceUnavailable, UsageError
from kmip_data.files.errors import writing
from kmip_data.pipelines.openstreetmap.city_source import GRAPHML, LAND_USE


def origin(place: str, network_type: str) -> str:
    """Return what a receipt says of a place; the same question finds its copy again."""
    return f"OpenStreetMap by OSMnx: {place} ({network_type})"


def download(place: str, network_type: str, folder: Path, *, dataset: str, offline: bool) -> list[Path]:
    """Write the simplified street graph of a place and its land use, where it has any, into ``folder``.

    Raises ``SourceUnavailable`` where ``offline``, or the servers of OpenStreetMap do not answer;
    ``UsageError`` where no place with an outline has this name; ``DamagedInput`` where it has no streets.
    """
    if offline:
        raise _unavailable(place, dataset, "offline nothing is downloaded")
    import osmnx

    any_way = '["highway"]' if network_type == "any" else None
    with _asking(place, dataset):
        outline = _outline(place, dataset)
        try:
            graph = osmnx.graph_from_polygon(
                outline, network_type="all" if any_way else network_type, custom_filter=any_way
            )
        except ValueError as error:  # "Found no graph nodes within the requested polygon."
            raise DamagedInput(
                f"{place} has no streets.",
                expected="ways of the network type inside its outline",
                found=str(error)[:200],
                left="nothing was built",
                next="give a larger place, or another network_type",
            ) from error
        areas = _land_use(outline)
    written = [folder / GRAPHML]
    with writing(folder / GRAPHML):
        osmnx.save_graphml(graph, folder / GRAPHML)
        if areas:
            written.append(folder / LAND_USE)
            text = json.dumps({"type": "FeatureCollection", "features": areas}, ensure_ascii=False)
            written[1].write_text(text, "utf-8")
    return written


def _outline(place: str, dataset: str) -> Any:
    """Return the outline of a place, as OSMnx takes it for the streets of a place."""
    import osmnx

    try:
        return osmnx.geocode_to_gdf(place).union_all()
    except (ValueError, TypeError) as error:
        raise UsageError(
            f"OpenStreetMap has no outline of a place called {place!r}.",
            expected="a place with an outline, as https://nominatim.openstreetmap.org finds it",
            found=str(error)[:200],
            next=f"kmip-data build city --name {dataset} --place 'City, Country'",
        ) from error


def _land_use(outline: Any) -> list[dict[str, Any]]:
    """Return the areas of land use as GeoJSON features: ways, then relations, each by number."""
    import osmnx

    try:
        found = osmnx.features_from_polygon(outline, tags={"landuse": True})
    except ValueError:  # there is none
        return []
    found = found[found.geometry.geom_type.isin(["Polygon", "MultiPolygon"])]
    order = sorted(range(len(found)), key=lambda i: (found.index[i][0] != "way", *found.index[i]))
    return [
        {
            "type": "Feature",
            "properties": {"landuse": str(found["landuse"].iloc[i])},
            "geometry": found.geometry.iloc[i].__geo_interface__,
        }
        for i in order
    ]


@contextmanager
def _asking(place: str, dataset: str) -> Iterator[None]:
    """Let OSMnx ask its servers, each answer looked at first; its cache in the working folder stays unused.

    OSMnx takes an answer that is not whole, with an error in its ``remark``, and gives a part of the city.
    """
    import osmnx
    from requests.exceptions import RequestException

    def look(response: Any, **_: Any) -> None:
        if response.url.endswith("/status") or response.status_code in {429, 504}:
            return  # OSMnx waits and asks again
        if not response.ok:
            raise _unavailable(place, dataset, f"{response.url} answers {response.status_code}")
        data = response.content
        if data.lstrip()[:1] not in (b"{", b"["):
            raise _unavailable(place, dataset, f"{response.url} answers with no JSON")
        if b'"remark"' in data[-4096:] and "error" in (remark := str(response.json().get("remark", ""))):
            raise _unavailable(place, dataset, f"{response.url} remarks: {remark}")

    settings = osmnx.settings
    before = settings.use_cache, settings.requests_kwargs
    settings.use_cache, settings.requests_kwargs = (
        False,
        {**settings.requests_kwargs, "hooks": {"response": look}},
    )
    try:
        yield
    except (RequestException, OSError) as error:
        raise _unavailable(place, dataset, f"{type(error).__name__}: {str(error)[:200]}") from error
    finally:
        settings.use_cache, settings.requests_kwargs = before


def _unavailable(place: str, dataset: str, found: str) -> SourceUnavailable:
    return SourceUnavailable(
        f"The streets of {place} are not here.",
        expected="an earlier download, or the servers of OpenStreetMap",
        found=found,
        left="nothing was changed",
        next=f"kmip-data build city --name {dataset} --archive FILE (an extract of the place)",
    )
