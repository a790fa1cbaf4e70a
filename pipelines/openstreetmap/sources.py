"""Bring in what a city is built from: one of four sources, and what narrows or names it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from kmip_data.builds.home import Home, build_in, named_build
from kmip_data.errors import UsageError
from kmip_data.files.changes import write_json
from kmip_data.files.errors import require_room, writing
from kmip_data.files.reading import sha256_file
from kmip_data.format.card import Receipt
from kmip_data.manifest import Manifest
from kmip_data.pipelines.archives.extract import fingerprint, open_archive, recognise, write_members
from kmip_data.pipelines.openstreetmap.city_source import GRAPHML, POLYGON, VOCABULARY, CitySource
from kmip_data.pipelines.openstreetmap.extract import file_format
from kmip_data.pipelines.openstreetmap.vocabulary import Vocabulary, vocabulary_of_card
from kmip_data.pipelines.raw.copies import RawCopy, StoredSource, list_copies, store_own
from kmip_data.pipelines.raw.own_files import given_file


def obtain_city(
    manifest: Manifest, source: CitySource, home: Home, *, network_type: str, offline: bool, quiet: bool
) -> tuple[RawCopy, bool]:
    """Return the raw copy of a city, brought in where it is missing, and whether it is new.

    Raises ``UsageError`` where a file or a build that is named is not there, or no place has that name;
    ``SourceUnavailable``, ``DamagedInput`` and ``OutOfResources`` as for any raw data.
    """
    folder = home.raw / manifest.name
    words = None if source.vocabulary is None else _vocabulary(source.vocabulary, home)
    if source.place is not None and (copy := _downloaded(list_copies(folder), source, network_type)):
        return copy, False

    def make(target: Path) -> tuple[dict[str, str], list[StoredSource]]:
        receipts = _bring(source, manifest, target, network_type, offline=offline, quiet=quiet)
        if source.polygon is not None:
            receipts.append(_copy(given_file(source.polygon, "--set polygon="), target / POLYGON))
        if words is not None:
            write_json(target / VOCABULARY, words.model_dump(mode="json"))
            receipts.append(_receipt(target / VOCABULARY, f"vocabulary of {source.vocabulary}"))
        paths = [path for path in sorted(target.rglob("*")) if path.is_file()]
        members = {path.relative_to(target).as_posix(): sha256_file(path)[0] for path in paths}
        downloaded = source.place is not None
        return members, [StoredSource(receipt=receipt, downloaded=downloaded) for receipt in receipts]

    return store_own(folder, make, quiet=quiet)


def _downloaded(copies: Sequence[RawCopy], source: CitySource, network_type: str) -> RawCopy | None:
    """Return the sound copy of a place that was downloaded before."""
    from kmip_data.pipelines.openstreetmap import place

    if source.polygon is not None or source.vocabulary is not None:
        return None
    origin = place.origin(str(source.place), network_type)
    for copy in copies:
        if {receipt.origin for receipt in copy.receipts} == {origin} and not copy.problems():
            return copy
    return None


def _bring(
    source: CitySource, manifest: Manifest, target: Path, network_type: str, *, offline: bool, quiet: bool
) -> list[Receipt]:
    """Write the members of the one source into the new folder ``target``."""
    if source.archive is not None:
        plan = recognise(open_archive(source.archive), manifest.content)
        write_members(plan, target, quiet=quiet)
        digest, size = fingerprint(plan)
        name = source.archive.resolve().name
        return [Receipt(name=name, origin=name, sha256=digest, bytes=size)]
    with writing(target):
        target.mkdir()
    if source.osm_file is not None:
        path = given_file(source.osm_file, "--archive")
        return [_copy(path, target / f"extract.{file_format(path)}")]
    if source.graphml is not None:
        return [_copy(given_file(source.graphml, "--archive"), target / GRAPHML)]
    from kmip_data.pipelines.openstreetmap import place

    name = str(source.place)
    written = place.download(name, network_type, target, dataset=manifest.name, offline=offline)
    return [_receipt(path, place.origin(name, network_type)) for path in written]


def _copy(path: Path, target: Path) -> Receipt:
    with writing(target):
        require_room(target.parent, path.stat().st_size, f"A copy of {path.name}")
        shutil.copyfile(path, target)
    return _receipt(target, path.resolve().name)


def _receipt(path: Path, origin: str) -> Receipt:
    digest, size = sha256_file(path)
    return Receipt(name=path.name, origin=origin, sha256=digest, bytes=size)


def _vocabulary(target: str, home: Home) -> Vocabulary:
    """Return the vocabulary on the card of a build."""
    build = build_in(target) or named_build(home, target)
    found = vocabulary_of_card(build.card.statistics)
    if found is None:
        raise UsageError(
            f"The card of {build.path} has no vocabulary.",
            expected="a city that was built from OpenStreetMap",
            found=f"{build.card.dataset}; published cities do not carry theirs",
            next="another --set vocabulary=TARGET, or none",
        )
    return found
