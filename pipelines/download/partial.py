"""Files of a download: ``NAME.partial`` with what it is a part of, and the receipt of a complete one."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

from kmip_data.errors import UsageError
from kmip_data.files.changes import fsync_path, move, open_partial, remove_file, write_all, write_json
from kmip_data.files.errors import human_bytes, writing
from kmip_data.files.reading import read_small, sha256_file
from kmip_data.format.card import Receipt
from kmip_data.manifest import Mirror
from kmip_data.strict import Strict
from kmip_data.wording import shown_address, timestamp


class PartialState(Strict):
    """Identity of the file that ``NAME.partial`` is the beginning of."""

    url: str  #: address of the mirror, before redirects
    sha256: str | None  #: that the manifest pins for this mirror
    etag: str | None
    last_modified: str | None
    total: int | None

    @property
    def validator(self) -> str | None:
        """Value for ``If-Range`` (RFC 9110, 13.1.5: a strong ETag, else a date)."""
        if self.etag and not self.etag.startswith("W/"):
            return self.etag
        return self.last_modified


class DownloadReceipt(Strict):
    """``NAME.receipt.json`` of a complete download."""

    name: str
    url: str
    sha256: str
    bytes: int
    time: str
    etag: str | None = None
    last_modified: str | None = None


def receipt_path(target: Path) -> Path:
    """Return the path of the receipt of a download."""
    return target.with_name(f"{target.name}.receipt.json")


def read_receipt(target: Path) -> Receipt | None:
    """Return the receipt of a complete download; ``None`` without a valid one."""
    try:
        entry = DownloadReceipt.model_validate_json(read_small(receipt_path(target)))
    except (OSError, ValueError):
        return None
    return Receipt(name=entry.name, origin=shown_address(entry.url), sha256=entry.sha256, bytes=entry.bytes)


def verified_receipt(target: Path) -> Receipt | None:
    """Return the receipt if the complete file is there and still has its digest."""
    receipt = read_receipt(target)
    if receipt is None or not target.is_file():
        return None
    return receipt if sha256_file(target) == (receipt.sha256, receipt.bytes) else None


def discard_download(target: Path) -> None:
    """Remove a download that turned out to be damaged, and its receipt."""
    with writing(target):
        remove_file(receipt_path(target))
        remove_file(target)


class Partial:
    """An unfinished download, kept across runs; never the bytes of two different files.

    Raises ``UsageError`` where a link, or something that is not a regular file of its own, lies at
    ``NAME.partial``.
    """

    def __init__(self, target: Path) -> None:
        self.path = target.with_name(f"{target.name}.partial")
        self.state_path = target.with_name(f"{target.name}.partial.json")
        self._descriptor: int | None = None
        self.size = 0
        self.received = 0  #: bytes appended by this object, kept or not
        self.joined = False  #: the bytes come from more than one answer
        self._digest = hashlib.sha256()
        self.state = self._load_state()
        if self.state is None or not os.path.lexists(self.path):
            self.state = None
            return
        self._open()
        self._hash()
        self.joined = self.size > 0

    def _load_state(self) -> PartialState | None:
        with contextlib.suppress(OSError, ValueError):
            return PartialState.model_validate_json(read_small(self.state_path))
        return None

    def _open(self) -> None:
        with writing(self.path):
            self._descriptor = open_partial(self.path)

    def _hash(self) -> None:
        assert self._descriptor is not None
        with writing(self.path), open(self._descriptor, "rb", buffering=0, closefd=False) as file:
            self._digest = hashlib.file_digest(file, "sha256")
            self.size = file.tell()

    @property
    def sha256(self) -> str:
        """Digest of the bytes so far."""
        return self._digest.hexdigest()

    @property
    def left(self) -> str | None:
        """Unfinished part on disk, for messages; ``None`` if there is none."""
        if self.state is None or not self.size:
            return None
        of = f" of {human_bytes(self.state.total)}" if self.state.total else ""
        return f"{self.path} ({human_bytes(self.size)}{of}); the next run resumes there"

    def belongs_to(self, mirror: Mirror) -> bool:
        """True if the bytes are the beginning of what ``mirror`` gives.

        They are when they came from it and it gave a validator by which a change is noticed, or
        when both have the same pinned digest, which the whole file is checked against.
        """
        if self.state is None or not self.size:
            return False
        if mirror.sha256 is not None and mirror.sha256 == self.state.sha256:
            return True
        return (
            mirror.address == self.state.url
            and mirror.sha256 == self.state.sha256
            and self.state.validator is not None
        )

    def is_complete(self, mirror: Mirror) -> bool:
        """True if nothing is missing, as after a run that ended just before the renaming."""
        return self.belongs_to(mirror) and self.state is not None and self.size == self.state.total

    @property
    def progress(self) -> int:
        """Bytes in one answer that count as progress: 1 % of the file, at most 1 MiB."""
        total = self.state.total if self.state else None
        return max(1, min(2**20, (total or 2**30) // 100))

    def begin(self, state: PartialState) -> None:
        """Drop the bytes so far and start on the file that ``state`` describes."""
        self.discard()
        self._open()
        assert self._descriptor is not None
        with writing(self.path):
            os.ftruncate(self._descriptor, 0)
            write_json(self.state_path, state.model_dump())
        self.state = state

    def append(self, piece: bytes) -> None:
        """Add the next bytes; they are in the file, not in a buffer, when this returns."""
        assert self._descriptor is not None
        with writing(self.path, left=self.left):
            write_all(self._descriptor, piece)
        self._digest.update(piece)
        self.size += len(piece)
        self.received += len(piece)

    def discard(self) -> None:
        """Remove what is here."""
        self.close()
        with writing(self.path):
            remove_file(self.path)
            remove_file(self.state_path)
        self.size, self.state, self.joined = 0, None, False
        self._digest = hashlib.sha256()

    def finish(self, target: Path, name: str, url: str) -> Receipt:
        """Write the receipt, make the bytes durable and rename them to ``target``.

        ``url`` is the mirror that was asked last; the bytes may come from another one with the same digest.
        """
        assert self._descriptor is not None
        state = self.state
        entry = DownloadReceipt(
            name=name,
            url=state.url if state else url,
            sha256=self.sha256,
            bytes=self.size,
            time=timestamp(),
            etag=state.etag if state else None,
            last_modified=state.last_modified if state else None,
        )
        # The receipt first: a file without one would not be recognised as a download.
        write_json(receipt_path(target), entry.model_dump())
        with writing(target, left=self.left):
            os.fsync(self._descriptor)
            self._check_name()
            self.close()
            move(self.path, target)
            remove_file(self.state_path)
            fsync_path(target.parent)
        return Receipt(name=entry.name, origin=entry.url, sha256=entry.sha256, bytes=entry.bytes)

    def _check_name(self) -> None:
        """Refuse to rename bytes that are not those written here: a lock can be lost on network disks."""
        assert self._descriptor is not None
        here = os.fstat(self._descriptor)
        with contextlib.suppress(FileNotFoundError):
            there = self.path.lstat()
            if os.path.samestat(here, there) and here.st_size == self.size:
                return
        raise UsageError(
            f"Another process took {self.path} over.",
            expected="one download of a file at a time",
            found="another file of that name, or none",
            left="what the other process has written",
            next="wait until the other download has ended, then run the same command again",
        )

    def close(self) -> None:
        """Let go of the file; it stays."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
