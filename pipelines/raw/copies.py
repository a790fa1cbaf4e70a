"""Copies of raw data in ``raw/<dataset>/members-<digest>``: complete, with a receipt, verified on each use.

A folder is copied, too, not linked: later edits of the original change nothing here. The receipt is
written last and the folder renamed in; every use hashes all members again (1.65 GB a second).
Downloads lie next to the copies, each with a receipt of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import field_validator

from kmip_data.errors import DamagedInput, UsageError, writing
from kmip_data.files import changes as files
from kmip_data.files.reading import json_digest, open_regular, read_small, sha256_file
from kmip_data.format.card import Receipt
from kmip_data.manifest import Manifest, Mirror, Strict
from kmip_data.pipelines.base import RawFolder
from kmip_data.pipelines.raw.archives import Archive, check_name
from kmip_data.pipelines.raw.extract import recognise, write_members
from kmip_data.wording import shown_address, timestamp

RAW = "raw files"  #: what the marker of a folder of downloads and copies says
RECEIPT_NAME = "receipt.json"
_DOWNLOADED = ".receipt.json"  #: ends the name of a download's receipt
_PREFIX = "members-"
_STAGE = ".unpacking-"
_STAGES = re.compile(r"\.unpacking-[a-z0-9_]{8}")
_FLUSH_THREADS = 16
FIRST_BYTES = 64  #: bytes of an unfinished download that its side file has, too


class StoredMember(Strict):
    """Digest and size of one member."""

    sha256: str
    bytes: int


class StoredSource(Strict):
    """Origin of the members of one source."""

    receipt: Receipt
    downloaded: bool = False
    #: true if the bytes are those that the manifest pins, false if they differ; null: none pinned
    pinned: bool | None = None


class CopyReceipt(Strict):
    """``receipt.json`` of a copy."""

    version: Literal[2] = 2
    dataset: str
    sources: tuple[StoredSource, ...]
    members: dict[str, StoredMember]
    time: str
    sample: dict[str, Any] | None = None  #: settings that a generated sample was made with

    @field_validator("members")
    @classmethod
    def _stay_inside(cls, members: dict[str, StoredMember]) -> dict[str, StoredMember]:
        """Refuse names that lead out of the folder, or that no file can have."""
        for name in members:
            try:
                check_name(Path(RECEIPT_NAME), name)
            except DamagedInput as error:
                raise ValueError(error.what) from error
        return members


class DownloadReceipt(Strict):
    """``NAME.receipt.json`` of a complete download."""

    name: str
    url: str
    sha256: str
    bytes: int
    time: str
    etag: str | None = None
    last_modified: str | None = None


@dataclass(frozen=True)
class RawCopy(RawFolder):
    """A copy on disk: the members that pipelines see, and more of its receipt."""

    downloaded: bool = False  #: True if every source was downloaded
    differs: bool = False  #: True if a source has other bytes than those pinned
    made: Mapping[str, Any] | None = None  #: settings that a generated sample was made with

    @classmethod
    def of(cls, path: Path, receipt: CopyReceipt) -> Self:
        """Return the copy in the folder ``path``."""
        return cls(
            path=path,
            members={name: member.sha256 for name, member in sorted(receipt.members.items())},
            receipts=tuple(source.receipt for source in receipt.sources),
            sample=receipt.sample is not None,
            pinned=all(source.pinned for source in receipt.sources),
            downloaded=all(source.downloaded for source in receipt.sources),
            differs=any(source.pinned is False for source in receipt.sources),
            made=receipt.sample,
        )

    @property
    def content_digest(self) -> str:
        """Digest of the members, by which the folder is named."""
        return json_digest(self.members)

    @property
    def origin(self) -> str:
        """Origin of its sources, for messages."""
        return ", ".join(receipt.origin for receipt in self.receipts)

    def is_complete(self, manifest: Manifest) -> bool:
        """True if it has every member whose published digest is known; False if none is known."""
        known = manifest.known_sha256
        return bool(known) and known.items() <= self.members.items()

    def problems(self) -> list[str]:
        """Read every member again and return what differs from the receipt."""
        if self.path.name != _name(self.members):
            return [f"{RECEIPT_NAME} does not belong to this folder"]
        problems = []
        for name, sha256 in self.members.items():
            path = self.path / name
            try:
                # A link in the place of a member would show files that the receipt never saw.
                with open_regular(path, follow=False) as file:
                    if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
                        problems.append(f"{path.name}: another content")
            except OSError as error:
                problems.append(f"{path.name}: {error.strerror or error}")
        return problems


def _name(members: Mapping[str, str]) -> str:
    return _PREFIX + json_digest(members)[:12]


def local_source(
    name: str,
    origin: str,
    members: Mapping[str, str],
    size: int,
) -> StoredSource:
    """Describe files of ``size`` bytes that were made or copied here, not downloaded."""
    receipt = Receipt(
        name=name,
        origin=origin,
        sha256=json_digest(members),
        bytes=size,
    )
    return StoredSource(receipt=receipt)


def differing_pin(mirror: Mirror, path: Path, sha256: str) -> tuple[str, str, str] | None:
    """Return the kind, the published and the actual value of a digest in which a file differs.

    ``None`` if the file, whose SHA-256 is known, has every digest that the mirror pins.
    """
    pins = [("SHA-256", mirror.sha256, sha256)]
    if mirror.md5:
        md5 = hashlib.md5(usedforsecurity=False)
        pins.append(("MD5", mirror.md5, sha256_file(path, md5.copy)[0]))
    if mirror.git_blob:
        head = f"blob {path.stat().st_size}\0".encode()  # as git names content
        blob = hashlib.sha1(head, usedforsecurity=False)
        pins.append(("git blob", mirror.git_blob, sha256_file(path, blob.copy)[0]))
    for kind, expected, actual in pins:
        if expected is not None and expected != actual:
            return kind, expected, actual
    return None


def list_copies(folder: Path) -> list[RawCopy]:
    """All finished copies below ``folder``, by name; those without a valid receipt are left out."""
    copies = []
    for path in sorted(folder.glob(f"{_PREFIX}*/{RECEIPT_NAME}")):
        with contextlib.suppress(OSError, ValueError):
            receipt = CopyReceipt.model_validate_json(read_small(path))
            copies.append(RawCopy.of(path.parent, receipt))
    return copies


@contextlib.contextmanager
def locked(folder: Path, *, quiet: bool) -> Iterator[None]:
    """Make ``folder`` and hold its lock: one process at a time imports."""
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
    with files.build_lock(folder, quiet=quiet):
        files.begin_folder(folder, RAW)
        yield


@contextlib.contextmanager
def staging(folder: Path) -> Iterator[Path]:
    """Give a new folder inside ``folder``, whose lock the caller holds."""
    files.refuse_links(folder)
    files.remove_partials(folder, root=folder)
    with writing(folder):
        # What an import that was killed left behind goes first: the lock proves that none runs.
        for stale in folder.iterdir():
            if _STAGES.fullmatch(stale.name):
                files.remove_tree(stale, root=folder)
    with files.scratch(folder / f"{_STAGE}{secrets.token_hex(4)}") as stage:
        yield stage


def store(
    folder: Path,
    staged: Path,
    members: Mapping[str, str],
    sources: Sequence[StoredSource],
    *,
    dataset: str,
    sample: Mapping[str, Any] | None = None,
) -> RawCopy:
    """Rename ``staged``, inside a :func:`staging` folder, in as a copy.

    Its receipt is written last.

    A sound copy with the same content stays as it is and is returned; a damaged one is replaced.
    """
    if RECEIPT_NAME in members:
        raise DamagedInput(
            f"The data of {dataset} have a member called {RECEIPT_NAME}: this name is taken."
        )
    # Sizes are taken from the staged files, not from what an archive declared.
    stored = {}
    for name, sha256 in members.items():
        size = (staged / name).stat().st_size
        stored[name] = StoredMember(sha256=sha256, bytes=size)
    receipt = CopyReceipt(
        dataset=dataset,
        sources=tuple(sources),
        members=stored,
        time=timestamp(),
        sample=None if sample is None else dict(sample),
    )
    # The folder is named by the digest of its members: equal data have one place.
    target = folder / _name(members)
    new = RawCopy.of(target, receipt)
    earlier = [copy for copy in list_copies(folder) if copy.path == target]
    with writing(target):
        if earlier and not earlier[0].problems():
            # Other settings made the same sample, or what was imported is now downloaded, or in an
            # archive that is pinned.
            known = new.downloaded <= earlier[0].downloaded and new.pinned <= earlier[0].pinned
            if new.made == earlier[0].made and known:
                return earlier[0]
            files.write_json(target / RECEIPT_NAME, receipt.model_dump(), root=folder)
            return new

        # Many at a time: the file system commits them together, 3,000 files in 0.4 s instead of 12
        # to 18.
        inner = {str(parent) for name in members for parent in Path(name).parents}
        with ThreadPoolExecutor(_FLUSH_THREADS) as pool:
            list(pool.map(files.fsync_path, [staged / name for name in (*members, *inner)]))
        # All members are on disk: now the receipt, and then the name by which it counts.
        files.write_json(staged / RECEIPT_NAME, receipt.model_dump())
        _make_way(target, members)
        files.move(staged, target)
        files.fsync_path(folder)
    return new


def store_own(
    folder: Path,
    make: Callable[[Path], tuple[dict[str, str], Sequence[StoredSource]]],
    *,
    quiet: bool,
) -> tuple[RawCopy, bool]:
    """Import the files of a dataset of the user's own into ``folder``.

    Returns the copy, and True if it is new.

    ``make`` writes them into a new folder and returns members with digests, and sources.
    """
    before = {copy.path for copy in list_copies(folder)}
    try:
        with locked(folder, quiet=quiet), staging(folder) as stage:
            members, sources = make(stage / "0")
            copy = store(
                folder,
                stage / "0",
                members,
                sources,
                dataset=folder.name,
            )
    finally:
        files.remove_empty(folder)  # after an error
    return copy, copy.path not in before


def unpack(
    archive: Archive, manifest: Manifest, target: Path, *, quiet: bool
) -> tuple[dict[str, str], list[StoredSource]]:
    """Write the members of an archive into the new folder ``target``; return them and their source."""
    plan = recognise(archive, manifest.content)
    members = write_members(plan, target, quiet=quiet)
    digest, size = plan.fingerprint()
    name = archive.path.resolve().name
    receipt = Receipt(name=name, origin=name, sha256=digest, bytes=size)
    return members, [StoredSource(receipt=receipt)]


def _make_way(target: Path, members: Collection[str]) -> None:
    """Remove a damaged copy; refuse one in which files of somebody else lie."""
    ours = {target / name for name in (*members, RECEIPT_NAME)}
    inside = [path for path in sorted(target.rglob("*")) if not path.is_dir()]
    others = [path.relative_to(target).as_posix() for path in inside if path not in ours]
    if others:
        raise UsageError(
            f"{target} is damaged, and holds more than its members: {', '.join(others[:5])}.",
            next=f"move what is yours out of {target}, then run the same command again",
        )
    remove_copy(RawFolder(target, dict.fromkeys(members, ""), ()))


def remove_copy(copy: RawFolder) -> None:
    """Remove the members of a copy and its receipt; what else lies in its folder stays."""
    folder = copy.path.name
    names = [f"{folder}/{name}" for name in (RECEIPT_NAME, *copy.members)]
    files.remove_files(copy.path.parent, names, folders=[folder])


class PartialState(Strict):
    """Identity of the file that ``NAME.partial`` is the beginning of."""

    url: str  #: address of the mirror, before redirects
    sha256: str | None  #: pinned by the manifest for this mirror
    etag: str | None
    last_modified: str | None
    total: int | None
    #: First bytes (hex): with them the side file proves that the beginning is ours.
    first: str = ""

    @property
    def validator(self) -> str | None:
        """Value for ``If-Range`` (RFC 9110, 13.1.5: a strong ETag, else a date)."""
        if self.etag and not self.etag.startswith("W/"):
            return self.etag
        return self.last_modified


def partial_paths(target: Path) -> tuple[Path, Path]:
    """Return the paths of an unfinished download and of the side file that identifies it."""
    partial = target.with_name(f"{target.name}.partial")
    return partial, partial.with_name(f"{partial.name}.json")


def read_state(target: Path) -> PartialState | None:
    """Return what identifies an unfinished download.

    Returns ``None`` where the side file does not fit the bytes.
    """
    path, state_path = partial_paths(target)
    with contextlib.suppress(OSError, ValueError):
        # The side file must fit the bytes: a file of somebody else is never appended to.
        state = PartialState.model_validate_json(read_small(state_path))
        if not os.path.lexists(path):
            return state
        with open_regular(path, follow=False) as file:
            first = bytes.fromhex(state.first)
            begin = file.read(len(first))
            return state if first.startswith(begin) or not first else None
    return None


def receipt_path(target: Path) -> Path:
    """Return the path of the receipt of a download."""
    return target.with_name(f"{target.name}{_DOWNLOADED}")


def read_receipt(target: Path) -> Receipt | None:
    """Return the receipt of a complete download; ``None`` without a valid one."""
    try:
        entry = DownloadReceipt.model_validate_json(read_small(receipt_path(target)))
    except (OSError, ValueError):
        return None
    return Receipt(
        name=entry.name,
        origin=shown_address(entry.url),
        sha256=entry.sha256,
        bytes=entry.bytes,
    )


def verified_receipt(target: Path) -> Receipt | None:
    """Return the receipt if the complete file exists and still has its digest."""
    receipt = read_receipt(target) if target.is_file() else None
    return receipt if receipt and sha256_file(target) == (receipt.sha256, receipt.bytes) else None


def discard_download(target: Path) -> None:
    """Remove a download that turned out to be damaged, and its receipt."""
    with writing(target):
        files.remove_file(receipt_path(target))
        files.remove_file(target)


def files_of_raw(folder: Path) -> list[str]:
    """Names of copies, downloads and parts of downloads in ``raw/<dataset>``, receipts after their files."""
    names = []
    for copy in list_copies(folder):
        names += [f"{copy.path.name}/{name}" for name in (*copy.members, RECEIPT_NAME)]
    for path in folder.glob(f"*{_DOWNLOADED}"):
        names += [path.name.removesuffix(_DOWNLOADED), path.name]
    for path in folder.glob("*.partial.json"):
        names += [path.stem, path.name]
    return names
