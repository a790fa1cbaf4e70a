"""Identification of a file by every digest of raw files, members and builds that is known."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kmip_data.builds.home import Home, list_builds
from kmip_data.builds.verify import published_digests_by_key
from kmip_data.files.path_errors import absent_file_error, absolute_path
from kmip_data.files.small_files import sha256_file
from kmip_data.manifest import Manifest, dataset_names, load_manifest
from kmip_data.pipelines.raw.copies import git_blob_of, list_copies, md5_of


@dataclass(frozen=True)
class KnownFile:
    """File whose digest is known."""

    dataset: str
    name: str  #: file, member of an archive, or file of a build
    version: str  #: day of publication, or the build
    publisher: str  #: publication that states the digest, address, or folder
    command: str  #: command that builds from the file, or the build that has it


def identify(file: str | os.PathLike[str], home: Home) -> tuple[dict[str, str], list[KnownFile]]:
    """Return the digests of a file by algorithm, and each known file with one of them.

    Known are the sources and members of all manifests, the files of published builds, and the files
    of the builds and raw copies in the home. Raises ``UsageError`` or ``DamagedInput`` if the file
    cannot be read.
    """
    path = absolute_path(file, "file")
    if not path.is_file():
        raise absent_file_error(path, "give the path of a file")
    sha256, _ = sha256_file(path)
    digests = {"SHA-256": sha256, "MD5": md5_of(path), "git blob": git_blob_of(path)}
    known = [
        *(
            found
            for name in dataset_names()
            for found in _published(load_manifest(name), path, digests)
        ),
        *_in_published_builds(sha256),
        *_in_home(sha256, home),
    ]
    return digests, list(dict.fromkeys(known))


def _published(manifest: Manifest, path: Path, digests: dict[str, str]) -> Iterator[KnownFile]:
    """Yield the sources and members of a manifest that have one of the digests."""
    is_source = False
    for source in manifest.sources:
        mirrors = [mirror for mirror in source.mirrors if mirror.pins.items() & digests.items()]
        for mirror in mirrors[:1]:
            is_source = True
            command = f"kmip-data build {manifest.name} --archive {shlex.quote(str(path))}"
            if source.container == "file":
                command = _command_of_member(manifest, source.name, path)
            publisher = mirror.pin_source or mirror.address
            yield KnownFile(manifest.name, source.name, manifest.published, publisher, command)
    if is_source:  # also a member of itself
        return

    content = manifest.content
    members = {("SHA-256", digest): name for name, digest in content.known_sha256.items()}
    members |= {("MD5", digest): name for name, digest in content.known_md5.items()}
    for pin in members.keys() & digests.items():
        member = members[pin]
        publisher = content.pin_source or manifest.homepage
        command = _command_of_member(manifest, member, path)
        yield KnownFile(manifest.name, member, manifest.published, publisher, command)


def _command_of_member(manifest: Manifest, member: str, path: Path) -> str:
    """Return the command that builds from the folder of a member, if it has its name there."""
    if not path.as_posix().endswith(f"/{member}"):
        return f"kmip-data info {manifest.name}"
    folder = path.parents[member.count("/")]
    return f"kmip-data build {manifest.name} --archive {shlex.quote(str(folder))}"


def _in_published_builds(sha256: str) -> Iterator[KnownFile]:
    """Yield the files of published builds with this digest."""
    for key, files in published_digests_by_key().items():
        names = [name for name, digest in files.items() if digest == sha256]
        dataset, _, _ = files["about"].partition(",")
        command = f"kmip-data build {dataset}"
        if dataset.endswith("-sample"):
            command = f"kmip-data build {dataset.removesuffix('-sample')} --sample"
        for name in names:
            yield KnownFile(dataset, name, f"{files['about']}, key {key}", "kmip-data", command)


def _in_home(sha256: str, home: Home) -> Iterator[KnownFile]:
    """Yield the files in the home with this digest: of builds, of their sources, and raw copies."""
    for build in list_builds(home):
        card = build.card
        files = {**card.digests, **{receipt.name: receipt.sha256 for receipt in card.receipts}}
        for name, digest in files.items():
            if digest == sha256:
                command = f"kmip-data info {build.name_or_path}"
                yield KnownFile(card.dataset, name, card.key, str(build.path), command)
    for folder in sorted(home.raw.glob("*/")):
        for copy in list_copies(folder):
            for name, digest in copy.members.items():
                if digest == sha256:
                    yield KnownFile(folder.name, name, "", str(copy.path), "kmip-data list")
