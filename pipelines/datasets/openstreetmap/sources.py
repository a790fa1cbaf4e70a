"""Obtain the source of a city: a map, street graph, tensor archive, or place for OSMnx."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kmip_data.builds.home import Home
from kmip_data.errors import Command, DamagedInput, Setting, SourceUnavailable, UsageError
from kmip_data.files.atomic_writes import write_json
from kmip_data.files.path_errors import convert_write_errors, require_disk_space
from kmip_data.files.small_files import sha256_file
from kmip_data.format.card import Receipt
from kmip_data.manifest import Manifest
from kmip_data.pipelines.base import RawCopy
from kmip_data.pipelines.datasets.openstreetmap.city_arrays import Vocabulary
from kmip_data.pipelines.datasets.openstreetmap.extract import file_format
from kmip_data.pipelines.datasets.openstreetmap.parameters import (
    GRAPHML_FILE,
    LAND_USE_FILE,
    POLYGON_FILE,
    VOCABULARY_FILE,
    CitySource,
)
from kmip_data.pipelines.find_builds import find_build
from kmip_data.pipelines.own_pipeline import existing_file
from kmip_data.pipelines.raw.copies import (
    copy_problems,
    list_copies,
    store_own_files,
    unpack_archive,
)

if TYPE_CHECKING:
    from requests import Response


def store_raw_city(
    manifest: Manifest,
    source: CitySource,
    home: Home,
    *,
    network_type: str,
    offline: bool,
    quiet: bool,
) -> tuple[RawCopy, bool]:
    """Return the raw copy of a city, and True if it is new."""
    folder = home.raw / manifest.name
    origin = f"OpenStreetMap by OSMnx: {source.place} ({network_type})"
    vocabulary = None
    if source.vocabulary is not None:
        vocabulary = _read_vocabulary(source.vocabulary, home)

    # Do not download a place twice.
    if source.place is not None and source.polygon is None and vocabulary is None:
        for copy in list_copies(folder):
            origins = {receipt.origin for receipt in copy.receipts}
            if origins == {origin} and not copy_problems(copy):
                return copy, False

    def copy_source(destination: Path) -> tuple[dict[str, str], list[Receipt]]:
        if source.archive is not None:
            return unpack_archive(source.archive, manifest, destination, quiet=quiet)
        with convert_write_errors(destination):
            destination.mkdir()

        if source.place is not None:
            written = download_place(
                source.place,
                network_type,
                destination,
                dataset=manifest.name,
                offline=offline,
            )
            receipts = [_file_receipt(path, origin) for path in written]
        elif source.graphml is not None:
            receipts = [_copy_file(existing_file(source.graphml), destination / GRAPHML_FILE)]
        else:
            path = existing_file(source.osm_file or Path())
            receipts = [_copy_file(path, destination / f"extract.{file_format(path)}")]
        if source.polygon is not None:
            receipts.append(_copy_file(existing_file(source.polygon), destination / POLYGON_FILE))
        if vocabulary is not None:
            write_json(destination / VOCABULARY_FILE, vocabulary.model_dump(mode="json"))
            receipts.append(
                _file_receipt(destination / VOCABULARY_FILE, f"vocabulary of {source.vocabulary}")
            )

        # Sort by name, so that the copy's digest does not depend on the order of options.
        by_name = sorted(receipts, key=lambda receipt: receipt.name)
        members = {receipt.name: receipt.sha256 for receipt in by_name}
        return members, receipts

    return store_own_files(folder, copy_source, quiet=quiet)


def _copy_file(path: Path, destination: Path) -> Receipt:
    with convert_write_errors(destination):
        require_disk_space(destination.parent, path.stat().st_size, f"A copy of {path.name}")
        shutil.copyfile(path, destination)
    return _file_receipt(destination, path.resolve().name)


def _file_receipt(path: Path, origin: str) -> Receipt:
    digest, size = sha256_file(path)
    return Receipt(name=path.name, origin=origin, sha256=digest, bytes=size)


def _read_vocabulary(name: str, home: Home) -> Vocabulary:
    """Return the vocabulary from the card of a build."""
    build = find_build(name, home=home)
    try:
        return Vocabulary.model_validate_json(json.dumps(build.card.vocabulary))
    except ValueError as error:
        raise UsageError(
            f"{build.path} has no vocabulary: only cities built from OpenStreetMap do.",
            steps=Setting(vocabulary=None),
        ) from error


def download_place(
    place: str,
    network_type: str,
    folder: Path,
    *,
    dataset: str,
    offline: bool,
) -> list[Path]:
    """Download the simplified street graph of a place, and its land use if any, to ``folder``."""
    if offline:
        raise _unavailable_error(place, dataset, "nothing is downloaded offline")
    import osmnx

    # OSMnx has no network type for all ways, so pass a filter.
    custom_filter = None
    if network_type == "any":
        custom_filter = '["highway"]'
        network_type = "all"
    with _checking_answers(place, dataset):
        try:
            outline = osmnx.geocode_to_gdf(place).union_all()
        except (ValueError, TypeError) as error:
            raise UsageError(
                f"OpenStreetMap has no outline of a place called {place!r}: {str(error)[:200]}",
                steps="name another place, such as 'City, Country'",
            ) from error
        try:
            graph = osmnx.graph_from_polygon(
                outline, network_type=network_type, custom_filter=custom_filter
            )
        except ValueError as error:  # "Found no graph nodes within the requested polygon."
            raise DamagedInput(
                f"{place} has no streets of this network type: {str(error)[:200]}",
                steps="use a larger place, or another network_type",
            ) from error
        areas = _download_land_use(outline)

    # Write only when both answers are complete.
    written = [folder / GRAPHML_FILE]
    with convert_write_errors(folder / GRAPHML_FILE):
        osmnx.save_graphml(graph, folder / GRAPHML_FILE)
        if areas:
            text = json.dumps({"type": "FeatureCollection", "features": areas}, ensure_ascii=False)
            (folder / LAND_USE_FILE).write_text(text, "utf-8")
            written.append(folder / LAND_USE_FILE)
    return written


def _download_land_use(outline: object) -> list[dict[str, object]]:
    """Return the land-use areas as GeoJSON features: ways by id, then relations by id."""
    import osmnx

    try:
        areas = osmnx.features_from_polygon(outline, tags={"landuse": True})
    except ValueError:  # no areas
        return []
    # Ignore points and lines tagged landuse.
    areas = areas[areas.geometry.geom_type.isin(["Polygon", "MultiPolygon"])]
    rows = zip(areas.index, areas["landuse"], areas.geometry, strict=True)
    features = []
    for _, use, area in sorted(rows, key=lambda row: (row[0][0] != "way", *row[0])):
        features.append(
            {
                "type": "Feature",
                "properties": {"landuse": str(use)},
                "geometry": area.__geo_interface__,
            }
        )
    return features


@contextmanager
def _checking_answers(place: str, dataset: str) -> Iterator[None]:
    """Check every server answer to OSMnx, and disable its cache in the working folder.

    OSMnx accepts an incomplete answer with an error in its ``remark``, and returns part of the city.
    """
    import osmnx
    from requests.exceptions import RequestException

    from kmip_data.runtime.http_client import failure_of_exception

    def check_answer(response: Response, **_: object) -> None:
        if response.url.endswith("/status") or response.status_code in {429, 504}:
            return  # OSMnx waits and retries
        answer_problem = _answer_problem(response)
        if answer_problem:
            raise _unavailable_error(place, dataset, f"{response.url} {answer_problem}")

    settings = osmnx.settings
    previous = settings.use_cache, settings.requests_kwargs
    settings.use_cache = False
    settings.requests_kwargs = {**settings.requests_kwargs, "hooks": {"response": check_answer}}
    try:
        yield
    except RequestException as error:
        raise _unavailable_error(
            place, dataset, f"it {failure_of_exception(error).reason}"
        ) from error
    except OSError as error:
        raise _unavailable_error(place, dataset, f"{type(error).__name__}: {error}") from error
    finally:
        settings.use_cache, settings.requests_kwargs = previous


def _answer_problem(response: Response) -> str:
    """Return the problem of a server's answer; empty if it is usable."""
    if not response.ok:
        return f"answers {response.status_code}"
    data = response.content
    if data.lstrip()[:1] not in (b"{", b"["):
        return "does not answer with JSON"
    if b'"remark"' in data[-4096:]:
        remark = str(response.json().get("remark", ""))
        if "error" in remark:
            return f"remarks: {remark}"
    return ""


def _unavailable_error(place: str, dataset: str, answer_problem: str) -> SourceUnavailable:
    return SourceUnavailable(
        f"OpenStreetMap returned no streets of {place}: {answer_problem}.",
        steps=[
            "FILE is an extract of the place",
            Command("kmip-data build city --name {} --archive FILE", dataset),
        ],
    )
