"""Download streets and land use of a place by its name, with OSMnx: the only part that needs a network."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kmip_data.errors import DamagedInput, SourceUnavailable, UsageError
from kmip_data.pipelines.disk import writing
from kmip_data.pipelines.openstreetmap.pipeline import GRAPHML, LAND_USE


def origin(place: str, network_type: str) -> str:
    """Return what a receipt says of a place; the same question finds its copy again."""
    return f"OpenStreetMap by OSMnx: {place} ({network_type})"


def download(place: str, network_type: str, folder: Path, *, dataset: str, offline: bool) -> list[Path]:
    """Write the simplified street graph of a place and its land use, where it has any, into ``folder``.

    Raises
    ------
    SourceUnavailable
        ``offline``, or the servers of OpenStreetMap do not answer.
    UsageError
        No place, or none with an outline, has this name.
    DamagedInput
        The place has no streets.
    """
    if offline:
        raise _unavailable(place, dataset, "offline nothing is downloaded")
    import osmnx

    any_way = '["highway"]' if network_type == "any" else None
    with _explained(place, dataset):
        graph = osmnx.graph_from_place(
            place, network_type="all" if any_way else network_type, custom_filter=any_way
        )
        areas = _land_use(osmnx, place)
    written = [folder / GRAPHML]
    with writing(folder / GRAPHML):
        osmnx.save_graphml(graph, folder / GRAPHML)
        if areas:
            written.append(folder / LAND_USE)
            text = json.dumps({"type": "FeatureCollection", "features": areas}, ensure_ascii=False)
            written[1].write_text(text, "utf-8")
    return written


def _land_use(osmnx: Any, place: str) -> list[dict[str, Any]]:
    """Return the areas of land use as GeoJSON features: ways, then relations, each by number."""
    from osmnx._errors import InsufficientResponseError

    try:
        found = osmnx.features_from_place(place, tags={"landuse": True})
    except InsufficientResponseError:
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
def _explained(place: str, dataset: str) -> Iterator[None]:
    """Turn what OSMnx raises into errors of ours; its cache folder in the working folder stays unused."""
    import osmnx
    from osmnx._errors import InsufficientResponseError, ResponseStatusCodeError
    from requests.exceptions import RequestException

    cached = osmnx.settings.use_cache
    osmnx.settings.use_cache = False
    try:
        yield
    except (RequestException, ResponseStatusCodeError, OSError) as error:
        raise _unavailable(place, dataset, f"{type(error).__name__}: {str(error)[:200]}") from error
    except (InsufficientResponseError, TypeError) as error:
        raise UsageError(
            f"OpenStreetMap has no streets of a place called {place!r}.",
            expected="a place with an outline, as https://nominatim.openstreetmap.org finds it",
            found=str(error)[:200],
            left="nothing was changed",
            next=f"kmip-data build city --name {dataset} --place 'City, Country'",
        ) from error
    except ValueError as error:  # "Found no graph nodes within the requested polygon."
        raise DamagedInput(
            f"{place} has no streets.",
            expected="ways of the network type inside its outline",
            found=str(error)[:200],
            left="nothing was built",
            next="give a larger place, or another --network-type",
        ) from error
    finally:
        osmnx.settings.use_cache = cached


def _unavailable(place: str, dataset: str, found: str) -> SourceUnavailable:
    return SourceUnavailable(
        f"The streets of {place} are not here.",
        expected="an earlier download, or the servers of OpenStreetMap",
        found=found,
        left="nothing was changed",
        next=f"kmip-data build city --name {dataset} --osm-file FILE (an extract of the place)",
    )
