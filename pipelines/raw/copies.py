"""Copies of raw data in ``raw/<dataset>/members-<digest>``: complete, with a receipt, verified on each use.

A folder is copied, too, not linked: later edits of the original change nothing here. The receipt is written
last and the folder renamed in; every use hashes all members again (1.65 GB a second).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import field_validator

from kmip_data.errors import DamagedInput, UsageError
from kmip_data.files import changes as files
from kmip_data.files.changes import fsync_path, write_json
from kmip_data.files.errors import writing
from kmip_data.files.locking import build_lock
from kmip_data.files.reading import content_digest, open_regular, read_model, read_small
from kmip_data.format.card import Receipt
from kmip_data.manifest import Manifest
from kmip_data.pipelines.archives.reader import check_name
from kmip_data.pipelines.base import RawFolder
from kmip_data.runtime.progress import say
from kmip_data.strict import Strict
from kmip_data.wording import timestamp

RECEIPT_NAME = "receipt.json"
PIN_NAME = "pinned.json"
_PREFIX = "members-"
_STAGE = ".unpacking-"
_STAGES = re.compile(r"\.unpacking-[a-z0-9_]{8}")
_FLUSH_THREADS = 16


class StoredMember(Strict):
    """Digest and size of one member."""

    sha256: str
    bytes: int


class StoredSource(Strict):
    """Origin of the members of one source."""

    receipt: Receipt
    downloaded: bool = False


class CopyReceipt(Strict):
    """``receipt.json`` of a copy."""

    version: Literal[1] = 1
    dataset: str
    sources: tuple[StoredSource, ...]
    members: dict[str, StoredMember]
    time: str
    sample: dict[str, Any] | None = None  #: what a generated sample was made with

    @field_validator("members")
    @classmethod
    def _stay_inside(cls, members: dict[str, StoredMember]) -> dict[str, StoredMember]:
        """Refuse names that lead out of the folder, or that no file can have."""
        for name in members:
            if check_name(Path(RECEIPT_NAME), name) != name:
                raise ValueError(f"a member called {name!a}")
        return members


@dataclass(frozen=True)
class RawCopy(RawFolder):
    """A copy on disk: what pipelines see of it, and more of its receipt."""

    sizes: Mapping[str, int] = field(default_factory=dict)  #: bytes of each member
    downloaded: bool = False  #: True if every source was downloaded
    made: Mapping[str, Any] | None = None  #: what a generated sample was made with

    @classmethod
    def of(cls, path: Path, receipt: CopyReceipt) -> Self:
        """Return the copy in the folder ``path``."""
        members = dict(sorted(receipt.members.items()))
        return cls(
            path=path,
            members={name: member.sha256 for name, member in members.items()},
            receipts=tuple(source.receipt for source in receipt.sources),
            sample=receipt.sample is not None,
            sizes={name: member.bytes for name, member in members.items()},
            downloaded=all(source.downloaded for source in receipt.sources),
            made=receipt.sample,
        )

    @property
    def content_digest(self) -> str:
        """Digest of the members, by which the folder is named."""
        return content_digest(self.members)

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
        if self.path.name != _name(self.content_digest):
            return [f"{RECEIPT_NAME} does not belong to this folder"]
        found = (_check(self.path / name, self.sizes[name], digest) for name, digest in self.members.items())
        return [problem for problem in found if problem]


class Pin(Strict):
    """``pinned.json``: content of the first complete download, if nobody published a digest.

    A later download must have it. The digest is of the members, since mirrors pack them anew.
    """

    version: Literal[1] = 1
    content_digest: str
    members: int
    sources: dict[str, str]  #: name of a source -> where it came from and the SHA-256 of its archive
    time: str


def _name(digest: str) -> str:
    return _PREFIX + digest[:12]


def local_source(name: str, origin: str, members: Mapping[str, str], size: int) -> StoredSource:
    """Describe files of ``size`` bytes that were made or copied here, not downloaded."""
    return StoredSource(receipt=Receipt(name=name, origin=origin, sha256=content_digest(members), bytes=size))


def list_copies(folder: Path) -> list[RawCopy]:
    """All finished copies below ``folder``, by name; those without a valid receipt are left out."""
    copies = []
    for path in sorted(folder.glob(f"{_PREFIX}*/{RECEIPT_NAME}")):
        with contextlib.suppress(OSError, ValueError):
            copies.append(RawCopy.of(path.parent, CopyReceipt.model_validate_json(read_small(path))))
    return copies


@contextlib.contextmanager
def locked(folder: Path, *, quiet: bool) -> Iterator[None]:
    """Make ``folder`` and hold its lock: one process at a time brings things in."""
    with contextlib.ExitStack() as stack:
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(build_lock(folder, quiet=quiet))
        yield


@contextlib.contextmanager
def staging(folder: Path) -> Iterator[Path]:
    """Give a new folder inside ``folder`` and remove it in the end, with those of killed runs.

    The caller holds the lock of ``folder``.
    """
    files.refuse_links(folder)
    with writing(folder):
        for stale in folder.iterdir():
            if _STAGES.fullmatch(stale.name):
                files.remove_scratch(stale)
        stage = Path(tempfile.mkdtemp(prefix=_STAGE, dir=folder))
    try:
        yield stage
    finally:
        files.remove_scratch(stage)


def store(
    folder: Path,
    staged: Path,
    members: Mapping[str, str],
    sources: Sequence[StoredSource],
    *,
    dataset: str,
    sample: Mapping[str, Any] | None = None,
) -> RawCopy:
    """Rename the folder ``staged``, in a :func:`staging` folder, in as a copy; its receipt is written last.

    A sound copy with the same content stays as it is and is returned; a damaged one is replaced.
    """
    receipt = CopyReceipt(
        dataset=dataset,
        sources=tuple(sources),
        members={
            name: StoredMember(sha256=digest, bytes=(staged / name).stat().st_size)
            for name, digest in members.items()
        },
        time=timestamp(),
        sample=None if sample is None else dict(sample),
    )
    if RECEIPT_NAME in members:
        raise DamagedInput(
            f"The data of {dataset} have a member called {RECEIPT_NAME}.",
            expected="another name: this one is taken",
        )
    target = folder / _name(content_digest(members))
    for copy in list_copies(folder):
        if copy.path == target and not copy.problems():
            new = RawCopy.of(target, receipt)
            # Other settings made the same sample, or what was imported is now downloaded too.
            if new.made == copy.made and new.downloaded <= copy.downloaded:
                return copy
            write_json(target / RECEIPT_NAME, receipt.model_dump(), root=folder)
            return new
    with writing(target):
        _flush(staged, members)
        write_json(staged / RECEIPT_NAME, receipt.model_dump())
        _make_way(target, members)
        files.move(staged, target)
        fsync_path(folder)
    return RawCopy.of(target, receipt)


def store_own(
    folder: Path, make: Callable[[Path], tuple[dict[str, str], Sequence[StoredSource]]], *, quiet: bool
) -> tuple[RawCopy, bool]:
    """Bring the files of a dataset of the user's own into ``folder``; return the copy and whether it is new.

    ``make`` writes them into the new folder that it is given; it returns members with digests, and sources.
    """
    before = {copy.path for copy in list_copies(folder)}
    try:
        with locked(folder, quiet=quiet), staging(folder) as stage:
            members, sources = make(stage / "0")
            copy = store(folder, stage / "0", members, sources, dataset=folder.name)
    except BaseException:
        files.remove_empty(folder)
        raise
    return copy, copy.path not in before


def _make_way(target: Path, members: Collection[str]) -> None:
    """Remove a damaged copy, member by member; refuse one in which files of somebody else lie."""
    ours = {target / name for name in (*members, RECEIPT_NAME)}
    if other := [path for path in sorted(target.rglob("*")) if not path.is_dir() and path not in ours]:
        raise UsageError(
            f"{target} is damaged, and holds more than its members.",
            expected="nothing but the members: it is replaced by a sound copy",
            found=", ".join(path.relative_to(target).as_posix() for path in other[:5]),
            next=f"move what is yours out of {target}, then run the same command again",
        )
    remove_copy(RawFolder(target, dict.fromkeys(members, ""), ()))


def remove_copy(copy: RawFolder) -> None:
    """Remove the members of a copy and its receipt; what else lies in its folder stays."""
    folder = copy.path.name
    names = [f"{folder}/{name}" for name in (RECEIPT_NAME, *copy.members)]
    files.remove_files(copy.path.parent, names, folders=[folder])


def files_of_raw(folder: Path) -> list[str]:
    """Names of copies, downloads and parts of downloads in ``raw/<dataset>``, receipts after their files.

    What is pinned stays: a later download must have it.
    """
    from kmip_data.pipelines.download.partial import read_receipt

    names = []
    for copy in list_copies(folder):
        names += [f"{copy.path.name}/{name}" for name in (*copy.members, RECEIPT_NAME)]
    for receipt in folder.glob("*.receipt.json"):
        target = receipt.with_name(receipt.name.removesuffix(".receipt.json"))
        names += [target.name, receipt.name] if read_receipt(target) is not None else []
    for state in folder.glob("*.partial.json"):
        names += [state.stem, state.name]
    return names


def _flush(folder: Path, members: Collection[str]) -> None:
    """Make the members below ``folder`` and all folder names durable.

    Many at a time, so that the file system commits them together: 3,000 files took 0.4 s instead
    of 12 to 18 one by one.
    """
    inner: set[str] = set()
    for name in members:
        while (name := name.rpartition("/")[0]) and name not in inner:
            inner.add(name)
    with ThreadPoolExecutor(_FLUSH_THREADS) as pool:
        list(pool.map(fsync_path, [folder, *(folder / name for name in (*members, *inner))]))


def _check(path: Path, size: int, sha256: str) -> str | None:
    """Return what is wrong with a member, if anything."""
    try:
        with open_regular(path, follow=False) as file:
            found = os.fstat(file.fileno()).st_size
            if found != size:
                return f"{path.name}: {found} bytes instead of {size}"
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        return f"{path.name}: {error.strerror or error}"
    return None if digest == sha256 else f"{path.name}: another SHA-256"


def read_pin(folder: Path) -> Pin | None:
    """Return what is pinned for the dataset with the raw folder ``folder``, if anything is.

    Raises ``DamagedInput`` where there is a pin that cannot be read: without it anything would be the first
    again.
    """
    path = folder / PIN_NAME
    with contextlib.suppress(FileNotFoundError):
        return read_model(
            path,
            Pin,
            "is damaged",
            expected="the digest of the first complete download",
            next=f"rm {path} (the next complete download is pinned then)",
        )
    return None


def pin_first(manifest: Manifest, folder: Path, raw: RawFolder, *, quiet: bool) -> None:
    """Pin a download that gave a complete build, where nobody published a digest and none is pinned yet."""
    mirrors = [mirror for source in manifest.sources for mirror in source.mirrors]
    if any(mirror.sha256 or mirror.md5 or mirror.git_blob for mirror in mirrors) or read_pin(folder):
        return
    if not any(copy.path == raw.path and copy.downloaded for copy in list_copies(folder)):
        return
    pin = Pin(
        content_digest=content_digest(raw.members),
        members=len(raw.members),
        sources={entry.name: f"{entry.origin}, sha256 {entry.sha256}" for entry in raw.receipts},
        time=timestamp(),
    )
    write_json(folder / PIN_NAME, pin.model_dump())
    text = f"pinned {manifest.name}: content {pin.content_digest[:12]}…, which later downloads must have"
    say(text, quiet=quiet)


def compare_with_pin(folder: Path, members: Mapping[str, str], *, command: str) -> None:
    """Refuse downloaded members that are not those of the first complete download."""
    pin = read_pin(folder)
    found = content_digest(members)
    if pin is None or pin.content_digest == found:
        return
    raise DamagedInput(
        f"What was downloaded for {folder.name} is not what the first complete download was.",
        expected=f"{pin.members:,} members of content {pin.content_digest}, pinned {pin.time} in "
        f"{folder / PIN_NAME}",
        found=f"{len(members):,} members of content {found}",
        left="the download, unused",
        next=f"rm {folder / PIN_NAME} && kmip-data {command} {folder.name} (to accept the new content)",
    )
