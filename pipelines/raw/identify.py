"""Identification of a file by every digest of raw files, members and builds that is known."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kmip_data.builds.home import Home, list_builds
from kmip_data.builds.verify import published_digests_by_key
from kmip_data.errors import Command
from kmip_data.files.path_errors import absent_file_error, absolute_path
from kmip_data.files.small_files import sha256_file
from kmip_data.manifest import dataset_names, load_manifest
from kmip_data.pipelines.raw.copies import git_blob_of, md5_of


@dataclass(frozen=True)
class KnownFile:
    """File whose digest is known."""

    dataset: str
    name: str  #: file, member of an archive, or file of a build
    version: str  #: day of publication, or the build
    publisher: str  #: publication that states the digest, address, or folder
    command: Command  #: command that builds from the file, or describes the build


def identify(file: str | os.PathLike[str], home: Home) -> tuple[dict[str, str], list[KnownFile]]:
    """Return the digests of a file by algorithm, and each known file with one of them.

    Known are the sources and members of all manifests, the files of published builds, and those of the
    builds in the home with their sources. Raises ``UsageError`` or ``DamagedInput`` if the file
    cannot be read.
    """
    path = absolute_path(file, "file")
    if not path.is_file():
        raise absent_file_error(path, "give the path of a file")
    sha256, _ = sha256_file(path)
    digests = {"SHA-256": sha256, "MD5": md5_of(path), "git blob": git_blob_of(path)}
    candidates = [*_raw_files(path), *_files_of_builds(home)]
    known = [file for digest, file in candidates if digest in digests.values()]
    return digests, list(dict.fromkeys(known))


def _raw_files(path: Path) -> Iterator[tuple[str, KnownFile]]:
    """Yield the digest of each source and member of a manifest, and the file that ``path`` is then."""
    for dataset in dataset_names():
        manifest = load_manifest(dataset)
        for source in manifest.sources:
            archive = path if source.container == "archive" else _folder_with(source.name, path)
            command = Command("kmip-data build {} --archive", dataset, archive)
            publishers = {
                digest: mirror.pin_source or mirror.address
                for mirror in reversed(source.mirrors)
                for digest in mirror.pins.values()
            }
            for digest, publisher in publishers.items():
                yield (
                    digest,
                    KnownFile(dataset, source.name, manifest.published, publisher, command),
                )

        content = manifest.content
        for member, digest in [*content.known_sha256.items(), *content.known_md5.items()]:
            folder = _folder_with(member, path)
            command = Command("kmip-data build {} --archive", dataset, folder)
            publisher = content.pin_source or manifest.homepage
            yield digest, KnownFile(dataset, member, manifest.published, publisher, command)


def _folder_with(member: str, path: Path) -> Path:
    """Return the folder that has the file under the name of a member, or else the file."""
    is_there = path.as_posix().endswith(f"/{member}")
    return path.parents[member.count("/")] if is_there else path


def _files_of_builds(home: Home) -> Iterator[tuple[str, KnownFile]]:
    """Yield the digest of each file of published builds, and of builds in the home and their sources."""
    for key, files in published_digests_by_key().items():
        dataset, _, _ = files["about"].partition(",")
        command = Command("kmip-data info", dataset.removesuffix("-sample"))
        for name, digest in files.items():
            version = f"{files['about']}, key {key}"
            yield digest, KnownFile(dataset, name, version, "kmip-data", command)
    for build in list_builds(home):
        card = build.card
        command = Command("kmip-data info", build.name_or_path)
        files = card.digests | {receipt.name: receipt.sha256 for receipt in card.receipts}
        for name, digest in files.items():
            yield digest, KnownFile(card.dataset, name, card.key, str(build.path), command)
