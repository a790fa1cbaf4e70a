"""Download a source from its mirrors: retry, resume, verify, and rename into place.

An unfinished download is ``NAME.partial``. It resumes only from the same mirror, and only with a
strong ETag or a pinned digest, so that it never mixes two files. If no response states the length of
the file, the checksums of an archive decide whether it is complete.

A killed process loses nothing that it wrote, but after a crash of the machine the end of a file may be
zeros. So ``NAME.partial.json`` records how much was flushed to disk, and in which boot of the machine;
in another boot, the rest is downloaded again.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from io import FileIO
from pathlib import Path

from requests import Response

from kmip_data.errors import DamagedInput, SourceUnavailable, Step, UsageError
from kmip_data.files import atomic_writes
from kmip_data.files.path_errors import convert_write_errors, require_disk_space
from kmip_data.files.small_files import read_json, sha256_file
from kmip_data.format.card import Receipt
from kmip_data.manifest import Mirror, Source
from kmip_data.pipelines.raw.archives import HEAD_BYTES, check_archive, sniff_format
from kmip_data.pipelines.raw.copies import first_differing_digest, receipt_path, verified_receipt
from kmip_data.pipelines.raw.extract import recognise_dataset
from kmip_data.runtime import http_client
from kmip_data.runtime.http_client import RequestFailed
from kmip_data.runtime.progress import Progress, print_status
from kmip_data.strict_model import StrictModel
from kmip_data.text import human_bytes, timestamp

SYNC_BYTES = 2**26  #: bytes between two flushes, which a crash loses at most
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")  #: differs after each start of the machine
_MAX_FAILURES = 3  #: consecutive attempts without progress at one mirror


def download_source(
    source: Source, folder: Path, *, remedy: Sequence[Step], quiet: bool = False
) -> Receipt:
    """Download ``source`` into ``folder``, unless it exists, and return its receipt.

    Mirrors are tried in order, starting with the mirror of an unfinished download, and a few times
    each. An interrupted download resumes with a Range request. The file appears only when it is
    complete and verified.

    ``remedy`` has the steps of the error if all mirrors fail. Raises ``SourceUnavailable`` with
    the reason of each mirror if all fail, and ``OutOfResources`` or ``UsageError`` if the file
    cannot be written. The unfinished part stays.
    """
    archive = folder / source.name
    with convert_write_errors(archive):
        folder.mkdir(parents=True, exist_ok=True)
    with atomic_writes.folder_lock(archive, quiet=quiet):
        # Another process may have downloaded it while this one waited for the lock.
        receipt = verified_receipt(archive)
        if receipt is None:
            partial = archive.with_name(f"{archive.name}.partial")
            with atomic_writes.open_resumable_file(archive, partial.name, root=folder) as file:
                receipt = _Download(source, partial, file, quiet=quiet).run(remedy)
                # Write the receipt before the rename: a file without one is not a download.
                entry = {**receipt.model_dump(), "time": timestamp()}
                atomic_writes.write_json(receipt_path(archive), entry)
            atomic_writes.remove_file(_partial_info_path(partial))
            size = human_bytes(receipt.bytes)
            print_status(f"fetched {receipt.name}: {size}, sha256 {receipt.sha256}", quiet=quiet)
        return receipt


def _partial_info_path(partial: Path) -> Path:
    return partial.with_name(f"{partial.name}.json")


class PartialInfo(StrictModel):
    """Identity of the file whose beginning is ``NAME.partial``."""

    url: str = ""  #: address of the mirror, before redirects
    etag: str | None = None  #: strong ETag, for ``If-Range`` (RFC 9110, 13.1.5)
    total: int | None = None  #: bytes
    synced: int = 0  #: bytes that were flushed to disk
    boot: str = ""  #: boot of the machine that wrote the bytes; empty if unknown


def _current_boot() -> str:
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


class _Download:
    """Unfinished download of a source, kept across runs in ``file``, which is open at ``path``."""

    def __init__(self, source: Source, path: Path, file: FileIO, *, quiet: bool) -> None:
        self.source = source
        self.path = path
        self.file = file
        self.quiet = quiet
        self.partial = PartialInfo()
        #: False if nothing tells the end of the file from a lost connection
        self.has_known_length = True
        with contextlib.suppress(OSError, ValueError):
            self.partial = PartialInfo.model_validate(read_json(_partial_info_path(path)))
        if not self.partial.boot or self.partial.boot != _current_boot():
            file.truncate(min(self.size, self.partial.synced))

    @property
    def size(self) -> int:
        """Number of bytes downloaded so far."""
        return os.fstat(self.file.fileno()).st_size

    def run(self, remedy: Sequence[Step]) -> Receipt:
        """Try one mirror after the other; ``remedy`` has the steps if all fail."""
        mirrors = sorted(self.source.mirrors, key=lambda mirror: not self._belongs_to(mirror))
        failures = []
        for number, mirror in enumerate(mirrors, 1):
            try:
                return self._from_mirror(mirror)
            except RequestFailed as failure:
                failures.append(f"{mirror.address}: {failure.reason}")
                if number < len(mirrors):
                    self._say(mirror, failure.reason)

        left = None
        if self.size:
            total = f" of {human_bytes(self.partial.total)}" if self.partial.total else ""
            left = f"{self.path} ({human_bytes(self.size)}{total}); the next run resumes there"
        raise SourceUnavailable(
            f"No mirror provided {self.source.name}.",
            found=failures,
            left=left,
            steps=remedy,
        )

    def _from_mirror(self, mirror: Mirror) -> Receipt:
        """Try one mirror until the file is complete, or several attempts in a row make no progress."""
        failures = 0
        last_size = 0
        while True:
            try:
                # The file may be complete: an earlier run may have ended just before the rename.
                if not (self._belongs_to(mirror) and self.size == self.partial.total):
                    self._request(mirror)
                return self._checked_receipt(mirror)
            except RequestFailed as failure:
                failures += 1
                # A few bytes per connection are not progress.
                if (
                    self.size
                    > last_size + http_client.MIN_BYTES_PER_SECOND * http_client.STALL_SECONDS
                ):
                    last_size = self.size
                    failures = 0
                max_failures = 1 if failure.stalled else _MAX_FAILURES
                if not failure.retry or failures >= max_failures:
                    raise
                wait = failure.wait or http_client.RETRY_DELAY_SECONDS * 2**failures
                self._say(mirror, f"{failure.reason}; retrying in {wait:g} s")
                time.sleep(wait)

    def _belongs_to(self, mirror: Mirror) -> bool:
        """True if the bytes came from ``mirror``, and an ETag or digest allows resuming there."""
        can_verify = mirror.is_pinned or self.partial.etag is not None
        return can_verify and self.size > 0 and self.partial.url == mirror.address

    def _request(self, mirror: Mirror) -> None:
        """Make one request and append the response; on return, the partial file is complete."""
        headers: dict[str, str | None] = {}
        resumes = self._belongs_to(mirror)
        if resumes:
            headers = {"Range": f"bytes={self.size}-", "If-Range": self.partial.etag}
        with http_client.open_response(mirror.url, headers) as response:
            pieces = http_client.response_body(response)
            status = response.status_code
            # Some hosts label .gz files like compressed responses; only a digest can tell which it is.
            coding = response.headers.get("Content-Encoding", "identity")
            if coding.lower() != "identity" and not mirror.is_pinned:
                raise RequestFailed(f"sends it packed ({coding[:20]}), which was not requested")
            # Status 416: the file is shorter than our part. Any other range would mix two files.
            is_other_file = status == 206 and not self._is_continuation(mirror, response)
            if resumes and (status == 416 or is_other_file):
                self._discard()
                raise RequestFailed("now has another file", retry=True)
            if status == 200:
                pieces = self._start_new_file(mirror, response, pieces)
            elif status != 206 or not resumes:
                raise http_client.failure_of_status(response)
            else:
                total = self.partial.total or _total_of_range(response)
                self._record(total=total, boot=_current_boot())
            # The length of a range says nothing about the file, whose end may lie behind it.
            is_whole_and_chunked = status == 200 and response.raw.chunked
            self.has_known_length = self.partial.total is not None or is_whole_and_chunked
            self._receive(mirror, pieces)

    def _is_continuation(self, mirror: Mirror, response: Response) -> bool:
        """True if a response continues the same file exactly at the end of our part."""
        span = http_client.parse_content_range(response)
        if span is None or span[0] != self.size:
            return False
        if None not in {span[2], self.partial.total} and span[2] != self.partial.total:
            return False
        etag = _strong_etag(response)
        return etag == self.partial.etag or (etag is None and mirror.is_pinned)

    def _start_new_file(
        self, mirror: Mirror, response: Response, pieces: Iterator[bytes]
    ) -> Iterator[bytes]:
        """Check size and first bytes of a new file, then discard the previous partial file."""
        total = response.raw.length_remaining
        content_type = response.headers.get("Content-Type", "no type").split(";")[0][:60]
        max_bytes = self._size_limit(mirror)
        if total is not None and total > max_bytes:
            raise RequestFailed(
                f"has {total} bytes of {content_type}, and {max_bytes} are expected at most"
            )
        # Read enough to tell an archive from the web page of a defunct host.
        head = b""
        for piece in pieces:
            head += piece
            if len(head) >= HEAD_BYTES:
                break
        if not _may_be_source(self.source, head, content_type):
            raise RequestFailed(f"sent no archive: {content_type}, which begins with {head[:16]!r}")
        if total is not None:
            require_disk_space(self.path.parent, total, f"Downloading {self.source.name}")
        self._discard()
        self._record(
            url=mirror.address,
            etag=_strong_etag(response),
            total=total,
            boot=_current_boot(),
        )
        return itertools.chain([head], pieces)

    def _size_limit(self, mirror: Mirror) -> float:
        content = self.source.content
        return mirror.bytes or (content.max_total_bytes if content else math.inf)

    def _receive(self, mirror: Mirror, pieces: Iterator[bytes]) -> None:
        total = self.partial.total
        size = self.file.seek(0, os.SEEK_END)
        synced = size
        name = f"fetch {self.source.name}"
        with Progress(name, total, unit="B", initial=size, quiet=self.quiet) as progress:
            # Check the size as it grows: a server may send more than it declared.
            for piece in pieces:
                atomic_writes.write_all(self.file.fileno(), piece)
                size += len(piece)
                progress.update(len(piece))
                if size > self._size_limit(mirror):
                    self._discard()
                    raise RequestFailed(f"sent more than {self._size_limit(mirror)} bytes")
                if size >= synced + SYNC_BYTES:
                    os.fsync(self.file.fileno())
                    self._record(synced=size)
                    synced = size
        if total not in {None, size}:
            raise RequestFailed("cut the connection", retry=True)

    def _checked_receipt(self, mirror: Mirror) -> Receipt:
        """Verify the complete file and return its receipt."""
        digest, size = sha256_file(self.path)
        problem = self._find_mismatch(mirror, digest)
        # Later runs cannot continue a complete file with other content.
        if problem:
            self._discard()
            raise RequestFailed(problem, retry=not self.has_known_length)
        origin = mirror.address
        if not (self.has_known_length or mirror.is_pinned):
            origin += " (sent without its length; complete by the checksums of the archive)"
        return Receipt(name=self.source.name, origin=origin, sha256=digest, bytes=size)

    def _find_mismatch(self, mirror: Mirror, digest: str) -> str:
        """Describe why the complete file is not the source; empty if it is."""
        if mirror.bytes not in {None, self.size}:
            return f"sent {self.size} bytes, expected {mirror.bytes}"
        differing = first_differing_digest(mirror, self.path, digest)
        if differing is not None:
            algorithm, expected, actual = differing
            return f"sent a file with {algorithm} {actual[:12]}…, expected {expected[:12]}…"
        if not (self.has_known_length or mirror.is_pinned):
            try:
                check_archive(self.path)
            except DamagedInput as error:
                return f"sent no length, and {error.message}"
        if self.source.container == "archive" and self.source.content:
            try:
                recognise_dataset(self.path, self.source.content)
            except (DamagedInput, UsageError) as error:
                return f"sent a file that is refused: {error.message}"
        return ""

    def _record(self, **changes: str | int | None) -> None:
        """Change the description of the partial file, on disk too."""
        self.partial = self.partial.model_copy(update=changes)
        atomic_writes.write_json(_partial_info_path(self.path), self.partial.model_dump())

    def _discard(self) -> None:
        self.file.truncate(0)
        self.partial = PartialInfo()
        atomic_writes.remove_file(_partial_info_path(self.path))

    def _say(self, mirror: Mirror, text: str) -> None:
        print_status(f"{urllib.parse.urlsplit(mirror.address).netloc} {text}", quiet=self.quiet)


def _strong_etag(response: Response) -> str | None:
    """Return the ETag of a response if it is strong, so that equal ETags mean equal bytes."""
    etag = response.headers.get("ETag", "")
    is_strong = etag.startswith('"') and etag.isascii() and etag.isprintable()
    return etag if is_strong else None


def _total_of_range(response: Response) -> int | None:
    """Return the size of the file that a partial response states, if it does."""
    span = http_client.parse_content_range(response)
    return span and span[2]


def _may_be_source(source: Source, head: bytes, content_type: str) -> bool:
    """True if the first bytes can be the source; defunct hosts often return a web page instead."""
    if source.container == "archive":
        return bool(sniff_format(head))
    is_web_page = head.lstrip()[:15].lower().startswith((b"<!doctype html", b"<html"))
    return bool(head) and not is_web_page and "text/html" not in content_type
