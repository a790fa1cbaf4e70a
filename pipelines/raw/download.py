"""Download a source: try mirrors, resume, check, and rename into place when complete.

An unfinished download is ``NAME.partial``. It never mixes two files: it resumes only on the same
mirror, with a strong validator or a pinned digest.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

from requests import Response

from kmip_data.errors import DamagedInput, SourceUnavailable, UsageError
from kmip_data.files import changes as files
from kmip_data.files.faults import require_room, writing
from kmip_data.files.reading import read_json, sha256_file
from kmip_data.format.card import Receipt
from kmip_data.manifest import Mirror, Source
from kmip_data.pipelines.raw.archives import HEAD, kind_of
from kmip_data.pipelines.raw.copies import differing_pin, receipt_path, verified_receipt
from kmip_data.pipelines.raw.extract import recognise
from kmip_data.runtime import http_client as http
from kmip_data.runtime.http_client import MirrorFailed
from kmip_data.runtime.progress import Progress, say
from kmip_data.shipped import Strict
from kmip_data.wording import human_bytes, timestamp

_ATTEMPTS = 3  #: consecutive fruitless tries at one mirror
_MAX_TRIES = 200  #: most requests to one mirror, even with progress


def fetch(source: Source, folder: Path, *, hint: str, quiet: bool = False) -> Receipt:
    """Return the receipt of ``source`` in ``folder``, downloaded unless its file exists with a receipt.

    Mirrors are tried in order, first the one that an unfinished download came from. Each gets a few
    tries; an interrupted download resumes with a Range request. The file appears complete, with the
    content of the source, or not at all.

    ``hint`` is the next step in the error if no mirror gives the file. Raises ``SourceUnavailable``
    with the reason of each mirror if all fail; ``OutOfResources`` or ``UsageError`` if it cannot be
    written. The unfinished part stays.
    """
    target = folder / source.name
    with writing(target):
        folder.mkdir(parents=True, exist_ok=True)
    with files.build_lock(target, quiet=quiet):
        # Another process may have downloaded it while this one waited for the lock.
        return verified_receipt(target) or _Download(source, target, quiet=quiet).run(hint)


class Partial(Strict):
    """Identity of the file of which ``NAME.partial`` is the beginning."""

    url: str  #: address of the mirror, before redirects
    validator: str | None = None  #: for ``If-Range`` (RFC 9110, 13.1.5): a strong ETag, else a date
    total: int | None = None  #: bytes


class _Download:
    """An unfinished download of a source, kept across runs."""

    def __init__(self, source: Source, target: Path, *, quiet: bool) -> None:
        self.source = source
        self.target = target
        self.quiet = quiet
        self.path = target.with_name(f"{target.name}.partial")
        self.side_path = target.with_name(f"{target.name}.partial.json")
        self.partial: Partial | None = None
        with contextlib.suppress(OSError, ValueError):
            self.partial = Partial.model_validate(read_json(self.side_path))
        self.size = 0
        self.received = 0  #: bytes that this run appended, kept or not
        if os.path.lexists(self.path):
            with writing(self.path):
                descriptor = files.open_partial(self.path)  # no link, nor a special file
                self.size = os.fstat(descriptor).st_size
                os.close(descriptor)

    def run(self, hint: str) -> Receipt:
        """Ask one mirror after the other; ``hint`` is the next step if none gives the file."""
        failures = []
        for mirror in sorted(self.source.mirrors, key=lambda mirror: not self._belongs_to(mirror)):
            try:
                return self._from_mirror(mirror)
            except MirrorFailed as failure:
                failures.append(f"\n    {mirror.address}: {failure.reason}")
                self._say(mirror, failure.reason)
        raise SourceUnavailable(
            f"No mirror gave {self.source.name}.",
            found="".join(failures) or "no mirror is known",
            left=self._left,
            next=hint,
        )

    def _from_mirror(self, mirror: Mirror) -> Receipt:
        """Ask one mirror until the file is complete, or it is clear that it will not be."""
        fruitless = 0
        for _ in range(_MAX_TRIES):
            before = self.received
            try:
                # Nothing is missing after a run that ended just before the renaming.
                if not (self._belongs_to(mirror) and self.size == self._total):
                    self._request(mirror)
                return self._finish(mirror)
            except MirrorFailed as failure:
                # Progress means one per cent of the file, at most 1 MiB: not a byte per second.
                least = min(2**20, (self._total or 2**30) // 100)
                fruitless = 0 if self.received - before > least else fruitless + 1
                if not failure.retry or fruitless >= (1 if failure.stalled else _ATTEMPTS):
                    raise
                wait = failure.wait or http.PAUSE * 2 ** max(0, fruitless - 1)
                self._say(mirror, f"{failure.reason}; retrying in {wait:g} s")
                time.sleep(wait)
        raise MirrorFailed(f"failed {_MAX_TRIES} times")

    @property
    def _total(self) -> int | None:
        return self.partial.total if self.partial else None

    def _belongs_to(self, mirror: Mirror) -> bool:
        """True if the bytes came from ``mirror``, and a validator or digest proves what continues them."""
        known = self.partial
        if known is None or not self.size or mirror.address != known.url:
            return False
        return mirror.pinned or known.validator is not None

    def _request(self, mirror: Mirror) -> None:
        """Make one request and append the answer to the partial file, which is complete on return."""
        headers = {}
        resumes = self._belongs_to(mirror)
        if resumes and self.partial:
            headers["Range"] = f"bytes={self.size}-"
            if self.partial.validator:
                headers["If-Range"] = self.partial.validator
        with http.open_response(mirror.url, headers) as response:
            pieces = http.body(response)
            status = response.status_code
            # 416: the file is shorter than the part here; another range would mix two files.
            if resumes and (status == 416 or (status == 206 and not self._continues(response))):
                self._discard()
                raise MirrorFailed("now has another file", retry=True)
            if status == 200:
                pieces = self._start(mirror, response, pieces)
            elif status != 206 or not resumes:
                raise http.from_status(response)
            self._receive(mirror, pieces)

    def _continues(self, response: Response) -> bool:
        """True if an answer continues the same file exactly at the end of the partial one."""
        span = http.content_range(response)
        if span is None or self.partial is None or span[0] != self.size:
            return False
        same_total = None in {span[2], self._total} or span[2] == self._total
        return same_total and _validator(response) in {None, self.partial.validator}

    def _start(
        self, mirror: Mirror, response: Response, pieces: Iterator[bytes]
    ) -> Iterator[bytes]:
        """Check the size and the first bytes of a new file, and only then drop the previous partial file."""
        total = http.declared_length(response)
        kind = response.headers.get("Content-Type", "no type").split(";")[0][:60]
        most = self._most(mirror)
        if total is not None and total > most:
            raise MirrorFailed(f"has {total} bytes of {kind}, and {most} are expected at most")
        # Read enough to tell an archive from the web page of a dead host.
        head = b""
        for piece in pieces:
            head += piece
            if len(head) >= HEAD:
                break
        if not _plausible(self.source, head, kind):
            size = human_bytes(len(head) if total is None else total)
            raise MirrorFailed(f"sent no archive: got {kind}, {size}")
        if total is not None:
            require_room(self.target.parent, total, f"Downloading {self.source.name}")
        # The new file has passed its checks: only now drop the old part.
        self._discard()
        self.partial = Partial(url=mirror.address, validator=_validator(response), total=total)
        files.write_json(self.side_path, self.partial.model_dump())
        return itertools.chain([head], pieces)

    def _most(self, mirror: Mirror) -> float:
        content = self.source.content
        return mirror.bytes or (content.max_total_bytes if content else math.inf)

    def _receive(self, mirror: Mirror, pieces: Iterator[bytes]) -> None:
        total = self._total
        most = self._most(mirror)
        with writing(self.path, left=self._left):
            descriptor = files.open_partial(self.path)
        name = f"fetch {self.source.name}"
        with (
            os.fdopen(descriptor, "r+b", buffering=0) as file,
            Progress(name, total, unit="B", initial=self.size, quiet=self.quiet) as progress,
        ):
            file.seek(self.size)
            # Count pieces as they are written: a server may send more than it declared.
            for piece in pieces:
                with writing(self.path, left=self._left):
                    files.write_all(descriptor, piece)
                self.size += len(piece)
                self.received += len(piece)
                progress.update(len(piece))
                if self.size > most:
                    self._discard()
                    raise MirrorFailed(f"sent more than {most} bytes")
        if total is not None and self.size < total:
            raise MirrorFailed("cut the connection", retry=True)

    def _finish(self, mirror: Mirror) -> Receipt:
        """Check the complete file, write its receipt and rename the file to its name."""
        digest, size = sha256_file(self.path)
        # Drop a complete file with other content: no later run can continue it.
        fault = self._fault(mirror, digest)
        if fault:
            self._discard()
            raise MirrorFailed(fault)
        receipt = Receipt(name=self.source.name, origin=mirror.address, sha256=digest, bytes=size)
        # The receipt first: a file without one would not be recognised as a download.
        files.write_json(receipt_path(self.target), {**receipt.model_dump(), "time": timestamp()})
        with writing(self.target, left=self._left):
            files.fsync_path(self.path)
            files.move(self.path, self.target)
            files.remove_file(self.side_path)
            files.fsync_path(self.target.parent)
        say(f"fetched {receipt.name}: {human_bytes(size)}, sha256 {digest}", quiet=self.quiet)
        return receipt

    def _fault(self, mirror: Mirror, digest: str) -> str:
        """Return why the complete file is not the source; empty if it matches."""
        if mirror.bytes not in {None, self.size}:
            return f"sent {self.size} bytes, expected {mirror.bytes}"
        differing = differing_pin(mirror, self.path, digest)
        if differing is not None:
            kind, expected, actual = differing
            return f"sent a file with {kind} {actual[:12]}…, expected {expected[:12]}…"
        if self.source.container == "archive" and self.source.content:
            try:
                recognise(self.path, self.source.content)
            except (DamagedInput, UsageError) as error:
                return f"sent a file that is refused: {error.what}"
        return ""

    def _discard(self) -> None:
        with writing(self.path):
            files.remove_file(self.path)
            files.remove_file(self.side_path)
        self.size = 0
        self.partial = None

    @property
    def _left(self) -> str | None:
        """Unfinished part on disk, for messages; ``None`` if there is none."""
        if not self.size:
            return None
        size = human_bytes(self.size)
        if self._total:
            size += f" of {human_bytes(self._total)}"
        return f"{self.path} ({size}); the next run resumes there"

    def _say(self, mirror: Mirror, text: str) -> None:
        say(f"{urllib.parse.urlsplit(mirror.address).netloc} {text}", quiet=self.quiet)


def _validator(response: Response) -> str | None:
    """Return the validator for ``If-Range``: a strong ETag, else the date."""
    etag = response.headers.get("ETag", "")
    value = response.headers.get("Last-Modified") if etag[:2] in {"", "W/"} else etag
    return value if value and value.isascii() and value.isprintable() else None


def _plausible(source: Source, head: bytes, kind: str) -> bool:
    """True if the first bytes can be the source's: dead hosts like to answer 200 with a web page."""
    if source.container == "archive":
        return bool(kind_of(head))
    page = head.lstrip()[:15].lower().startswith((b"<!doctype html", b"<html"))
    return bool(head) and not page and "text/html" not in kind
