"""Push a build, or the files of a run, to an address: everything verified before, ``share.json`` last."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from kmip_data.builds.columns import COLUMNS, added_names, read_columns
from kmip_data.builds.home import Build
from kmip_data.errors import DamagedInput, LicenseNotAccepted, UsageError
from kmip_data.files.digests import readable_json
from kmip_data.format.card import CARD_NAME, NAME_WORDS, Card, is_name
from kmip_data.format.card_page import PAGE_NAME
from kmip_data.format.croissant import CROISSANT_NAME, build_croissant
from kmip_data.manifest import dataset_names, load_manifest
from kmip_data.runtime.progress import Progress
from kmip_data.sharing.hub import dataset_page
from kmip_data.sharing.places import Place, blocks_of
from kmip_data.sharing.share import BLOCKS_NAME, RUN_FILES, SHARE_NAME, Share, SharedFile, parse_share

#: What may lie in a folder that is no push yet: what an earlier try put there before the page.
_BEGUN: Final = {"shards", "splits", COLUMNS, CARD_NAME, CROISSANT_NAME, *RUN_FILES} - {PAGE_NAME}


def push_build(build: Build, address: str, *, quiet: bool = False) -> Share:
    """Push a finished build with its added columns, page and Croissant.

    Raises ``LicenseNotAccepted`` where its licence does not let it be passed on; ``DamagedInput`` where a
    file is not what the card says; else as :func:`push`.
    """
    card, path = build.card, build.path
    _refuse_license(card)
    known = card.digests
    for name in added_names(path):
        folder, columns = f"{COLUMNS}/{name}", read_columns(build, name)
        known |= {f"{folder}/{entry.file}": entry.sha256 for entry in columns.files}
        known[f"{folder}/{CARD_NAME}"] = hashlib.sha256(columns.to_json().encode()).hexdigest()
    content: dict[str, Path | bytes] = {file: path / file for file in known}
    content |= {
        CARD_NAME: card.to_json().encode(),
        CROISSANT_NAME: readable_json(build_croissant(card)).encode(),
        PAGE_NAME: dataset_page(card),
    }
    return push(address, "build", path.name, content, known=known, quiet=quiet)


def _refuse_license(card: Card) -> None:
    shipped = load_manifest(card.manifest).license.model_dump() if card.manifest in dataset_names() else {}
    terms = shipped if shipped.get("agreement") else card.license
    if terms.get("agreement"):
        raise LicenseNotAccepted(
            f"The licence of {card.dataset} does not let it be passed on.",
            expected="a licence under which anybody may have it",
            found=f"{terms.get('name')}: {terms.get('notice')}",
            left="nothing was pushed",
            next=f"tell others to build it: kmip-data build {card.manifest or card.dataset}",
        )


def push(
    address: str,
    kind: Literal["build", "run"],
    name: str,
    content: Mapping[str, Path | bytes],
    *,
    known: Mapping[str, str] | None = None,
    quiet: bool = False,
) -> Share:
    """Put files and, last, the manifest at an address; what an earlier push has there stays where it is.

    ``name`` is that of the folder that is pushed; ``content`` maps a file to its bytes, or to where they lie,
    in the order in which they are written: the page last, for a folder that has one and no manifest is
    somebody else's. ``known`` maps a file to the SHA-256 (hex) that it must have.

    Raises ``DamagedInput`` where a file is not there or has another digest: nothing was pushed;
    ``UsageError`` where ``name`` is none, the address holds something else, or cannot be reached from here;
    ``SourceUnavailable`` where reading or writing there failed: the same call goes on.
    """
    if not is_name(name):
        raise UsageError(
            f"The folder {name!r} cannot be pushed under its name.",
            expected=NAME_WORDS,
            found=name,
            left="nothing was pushed",
            next=f"rename the folder of the {kind}, and push that",
        )
    place = Place(address)
    share, blocks = _described(kind, name, content, known or {})
    before = _at(place, share)
    if before is not None and before.to_json() == share.to_json():
        return share
    there = {} if before is None else before.by_name()
    new = [entry for entry in share.files if there.get(entry.file) != entry]
    total = sum(entry.bytes for entry in new)
    with (
        place.at_once(f"kmip-data push {name}") as at_once,
        Progress(f"push {name}", total, unit="B", quiet=quiet) as progress,
    ):
        if before is not None and not at_once:
            place.remove(SHARE_NAME)  # while files of it change, what lies there is no push
        for entry in new:
            place.put(entry.file, content[entry.file])
            progress.update(entry.bytes)
        place.put(BLOCKS_NAME, blocks)
        place.put(SHARE_NAME, share.to_json().encode())
    return share


def _described(
    kind: Literal["build", "run"], name: str, content: Mapping[str, Path | bytes], known: Mapping[str, str]
) -> tuple[Share, bytes]:
    """Read every file once: the manifest and the bytes of its side file."""
    files, blocks = [], bytearray()
    for file, source in content.items():
        whole, size = hashlib.sha256(), 0
        try:
            for block in blocks_of(source):
                whole.update(block)
                size += len(block)
                blocks += hashlib.sha256(block).digest()
        except OSError as error:
            raise _wrong(f"{file} cannot be read.", "a file of what is pushed", str(error)) from error
        found = whole.hexdigest()
        if known.get(file, found) != found:
            raise _wrong(f"{file} has other bytes than its card says.", f"SHA-256 {known[file]}", found)
        files.append(SharedFile(file=file, sha256=found, bytes=size))
    return Share(kind=kind, name=name, files=files, blocks=hashlib.sha256(blocks).hexdigest()), bytes(blocks)


def _wrong(what: str, expected: str, found: str) -> DamagedInput:
    left, following = "nothing was pushed", "kmip-data verify TARGET --repair"
    return DamagedInput(what, expected=expected, found=found, left=left, next=following)


def _at(place: Place, share: Share) -> Share | None:
    """Return what was pushed to a place before; UsageError where it holds anything else."""
    data = place.read(SHARE_NAME)
    before = None if data is None else parse_share(data, place.address)
    if before is not None and (before.kind, before.name) == (share.kind, share.name):
        return before
    found = f"the {before.kind} {before.name}" if before else ""
    if before is None and place.folder is not None and place.folder.exists():
        found = ", ".join(sorted({path.name for path in place.folder.iterdir()} - _BEGUN)[:5])
    if not found:
        return None
    raise UsageError(
        f"{place.address} holds something else.",
        expected=f"nothing, or the {share.kind} {share.name}",
        found=found,
        next="push to another address",
    )
