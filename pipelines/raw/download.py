"""Download a source: try mirrors, resume, check, and rename into place when complete.

An unfinished download is ``NAME.partial``. It never mixes two files: it resumes only on the same
mirror, with a strong ETag or a pinned digest. A file whose end no header tells is complete if the
checksums of an archive say so.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import time
import urllib.parse
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

from requests import Response

from kmip_data.errors import DamagedInput, SourceUnavailable, UsageError
from kmip_data.files import atomic_writes
from kmip_data.files.path_errors import convert_write_errors, require_room
from kmip_data.files.reading import read_json, sha256_file
from kmip_data.format.card import Receipt
from kmip_data.manifest import Mirror, Source
from kmip_data.pipelines.raw.archives import HEAD, check_archive, sniff_format
from kmip_data.pipelines.raw.copies import differing_pin, receipt_path, verified_receipt
from kmip_data.pipelines.raw.extract import recognise_dataset
from kmip_data.runtime import http_client
from kmip_data.runtime.http_client import MirrorFailed
from kmip_data.runtime.progress import Progress, print_status
from kmip_data.strict_model import Strict
from kmip_data.text import human_bytes, timestamp

_ATTEMPTS = 3  #: consecutive fruitless tries at one mirror


def download_source(source: Source, folder: Path, *, hint: str, quiet: bool = False) -> Receipt:
    """Return the receipt of ``source`` in ``folder``, downloaded unless its file exists with a receipt.

    Mirrors are tried in order, first the one that an unfinished download came from. Each gets a few
    tries; an interrupted download resumes with a Range request. The file appears complete, with the
    content of the source, or not at all.

    ``hint`` is the next step in the error if no mirror gives the file. Raises ``SourceUnavailable``
    with the reason of each mirror if all fail; ``OutOfResources`` or ``UsageError`` if it cannot be
    written. The unfinished part stays.
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
                receipt = _Download(source, partial, file, quiet=quiet).run(hint)
                # Before the rename: a file without a receipt would not be recognised as a download.
                entry = {**receipt.model_dump(), "time": timestamp()}
                atomic_writes.write_json(receipt_path(archive), entry)
            atomic_writes.remove_file(_side_path(partial))
            size = human_bytes(receipt.bytes)
            print_status(f"fetched {receipt.name}: {size}, sha256 {receipt.sha256}", quiet=quiet)
        return receipt


def _side_path(partial: Path) -> Path:
    return partial.with_name(f"{partial.name}.json")


class Partial(Strict):
    """Identity of the file of which ``NAME.partial`` is the beginning."""

    url: str = ""  #: address of the mirror, before redirects
    etag: str | None = None  #: strong ETag, for ``If-Range`` (RFC 9110, 13.1.5)
    total: int | None = None  #: bytes


class _Download:
    """An unfinished download of a source, kept across runs in the open ``file`` at ``path``."""

    def __init__(self, source: Source, path: Path, file: FileIO, *, quiet: bool) -> None:
        self.source = source
        self.path = path
        self.file = file
        self.quiet = quiet
        self.partial = Partial()
        self.has_end = True  #: False where the end of the answer cannot be told from a cut
        with contextlib.suppress(OSError, ValueError):
            self.partial = Partial.model_validate(read_json(_side_path(path)))

    @property
    def size(self) -> int:
        """Bytes so far."""
        return os.fstat(self.file.fileno()).st_size

    def run(self, hint: str) -> Receipt:
        """Ask one mirror after the other; ``hint`` is the next step if none gives the file."""
        mirrors = sorted(self.source.mirrors, key=lambda mirror: not self._belongs_to(mirror))
        failures = []
        for number, mirror in enumerate(mirrors, 1):
            try:
                return self._from_mirror(mirror)
            except MirrorFailed as failure:
                failures.append(f"{mirror.address}: {failure.reason}")
                if number < len(mirrors):
                    self._say(mirror, failure.reason)

        left = None
        if self.size:
            total = f" of {human_bytes(self.partial.total)}" if self.partial.total else ""
            left = f"{self.path} ({human_bytes(self.size)}{total}); the next run resumes there"
        raise SourceUnavailable(
            f"No mirror gave {self.source.name}.",
            found="\n    ".join(failures),
            left=left,
            next=hint,
        )

    def _from_mirror(self, mirror: Mirror) -> Receipt:
        """Ask one mirror until the file is complete, or several tries in a row brought nothing new."""
        fruitless = 0
        longest = 0
        while True:
            try:
                # Nothing is missing after a run that ended just before the renaming.
                if not (self._belongs_to(mirror) and self.size == self.partial.total):
                    self._request(mirror)
                return self._checked_receipt(mirror)
            except MirrorFailed as failure:
                fruitless += 1
                # A byte per connection is no progress.
                if self.size > longest + http_client.MIN_RATE * http_client.STALL_SECONDS:
                    longest = self.size
                    fruitless = 0
                if not failure.retry or fruitless >= (1 if failure.stalled else _ATTEMPTS):
                    raise
                wait = failure.wait or http_client.PAUSE_SECONDS * 2**fruitless
                self._say(mirror, f"{failure.reason}; retrying in {wait:g} s")
                time.sleep(wait)

    def _belongs_to(self, mirror: Mirror) -> bool:
        """True if the bytes came from ``mirror``, and an ETag or digest proves what continues them."""
        proven = mirror.is_pinned or self.partial.etag is not None
        return proven and self.size > 0 and self.partial.url == mirror.address

    def _request(self, mirror: Mirror) -> None:
        """Make one request and append the answer to the partial file, which is complete on return."""
        headers: dict[str, str | None] = {}
        resumes = self._belongs_to(mirror)
        if resumes:
            headers = {"Range": f"bytes={self.size}-", "If-Range": self.partial.etag}
        with http_client.open_response(mirror.url, headers) as response:
            pieces = http_client.response_body(response)
            status = response.status_code
            # Some hosts label a .gz file so, which only a digest tells from one that is packed here.
            coding = response.headers.get("Content-Encoding", "identity")
            if coding.lower() != "identity" and not mirror.is_pinned:
                raise MirrorFailed(f"sends it packed ({coding[:20]}), which was not asked for")
            self.has_end = response.raw.length_remaining is not None or response.raw.chunked
            # 416: the file is shorter than the part here; another range would mix two files.
            differs = status == 206 and not self._is_continuation(mirror, response)
            if resumes and (status == 416 or differs):
                self._discard()
                raise MirrorFailed("now has another file", retry=True)
            if status == 200:
                pieces = self._start(mirror, response, pieces)
            elif status != 206 or not resumes:
                raise http_client.failure_of_status(response)
            self._receive(mirror, pieces)

    def _is_continuation(self, mirror: Mirror, response: Response) -> bool:
        """True if an answer continues the same file exactly at the end of the partial one."""
        span = http_client.parse_content_range(response)
        etag = _strong_etag(response)
        same = etag == self.partial.etag or (etag is None and mirror.is_pinned)
        return same and span is not None and span[0] == self.size

    def _start(
        self, mirror: Mirror, response: Response, pieces: Iterator[bytes]
    ) -> Iterator[bytes]:
        """Check the size and the first bytes of a new file, and only then drop the previous partial file."""
        total = response.raw.length_remaining
        content_type = response.headers.get("Content-Type", "no type").split(";")[0][:60]
        most = self._size_limit(mirror)
        if total is not None and total > most:
            raise MirrorFailed(
                f"has {total} bytes of {content_type}, and {most} are expected at most"
            )
        # Read enough to tell an archive from the web page of a dead host.
        head = b""
        for piece in pieces:
            head += piece
            if len(head) >= HEAD:
                break
        if not _may_be_source(self.source, head, content_type):
            raise MirrorFailed(f"sent no archive: {content_type}, which begins with {head[:16]!r}")
        if total is not None:
            require_room(self.path.parent, total, f"Downloading {self.source.name}")
        # The new file has passed its checks: only now drop the old part.
        self._discard()
        self.partial = Partial(url=mirror.address, etag=_strong_etag(response), total=total)
        atomic_writes.write_json(_side_path(self.path), self.partial.model_dump())
        return itertools.chain([head], pieces)

    def _size_limit(self, mirror: Mirror) -> float:
        content = self.source.content
        return mirror.bytes or (content.max_total_bytes if content else math.inf)

    def _receive(self, mirror: Mirror, pieces: Iterator[bytes]) -> None:
        total = self.partial.total
        size = self.file.seek(0, os.SEEK_END)
        name = f"fetch {self.source.name}"
        with Progress(name, total, unit="B", initial=size, quiet=self.quiet) as progress:
            # Count pieces as they are written: a server may send more than it declared.
            for piece in pieces:
                atomic_writes.write_all(self.file.fileno(), piece)
                size += len(piece)
                progress.update(len(piece))
                if size > self._size_limit(mirror):
                    self._discard()
                    raise MirrorFailed(f"sent more than {self._size_limit(mirror)} bytes")
        # One of another length is noticed by the next request.
        if total not in {None, size}:
            raise MirrorFailed("cut the connection", retry=True)

    def _checked_receipt(self, mirror: Mirror) -> Receipt:
        """Return the receipt of the complete file, which must be the source."""
        digest, size = sha256_file(self.path)
        problem = self._find_mismatch(mirror, digest)
        # Drop a complete file with other content: no later run can continue it.
        if problem:
            self._discard()
            raise MirrorFailed(problem, retry=not self.has_end)
        origin = mirror.address
        if not (self.has_end or mirror.is_pinned):
            origin += " (sent without its length; complete by the checksums of the archive)"
        return Receipt(name=self.source.name, origin=origin, sha256=digest, bytes=size)

    def _find_mismatch(self, mirror: Mirror, digest: str) -> str:
        """Return why the complete file is not the source; empty if it matches."""
        if mirror.bytes not in {None, self.size}:
            return f"sent {self.size} bytes, expected {mirror.bytes}"
        differing = differing_pin(mirror, self.path, digest)
        if differing is not None:
            algorithm, expected, actual = differing
            return f"sent a file with {algorithm} {actual[:12]}…, expected {expected[:12]}…"
        if not (self.has_end or mirror.is_pinned):
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

    def _discard(self) -> None:
        self.file.truncate(0)
        self.partial = Partial()
        atomic_writes.remove_file(_side_path(self.path))

    def _say(self, mirror: Mirror, text: str) -> None:
        print_status(f"{urllib.parse.urlsplit(mirror.address).netloc} {text}", quiet=self.quiet)


def _strong_etag(response: Response) -> str | None:
    """Return the ETag of an answer if equal ones mean equal bytes: a date or a weak one does not."""
    etag = response.headers.get("ETag", "")
    is_strong = etag.startswith('"') and etag.isascii() and etag.isprintable()
    return etag if is_strong else None


def _may_be_source(source: Source, head: bytes, content_type: str) -> bool:
    """True if the first bytes can be the source's: dead hosts like to answer 200 with a web page."""
    if source.container == "archive":
        return bool(sniff_format(head))
    page = head.lstrip()[:15].lower().startswith((b"<!doctype html", b"<html"))
    return bool(head) and not page and "text/html" not in content_type
