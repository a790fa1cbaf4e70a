"""Download a source: mirror after mirror, resumed where it was cut, checked, and renamed in when complete.

An unfinished download is ``NAME.partial`` with a side file that identifies it, and never the bytes
of two different files: it is continued only on the same mirror, with a strong validator or a pinned
digest. The time-outs are those of :mod:`~kmip_data.runtime.http_client`.
"""

from __future__ import annotations

import itertools
import os
import re
import time
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from requests import Response

from kmip_data.errors import (
    DamagedInput,
    SourceUnavailable,
    UsageError,
    human_bytes,
    require_room,
    writing,
)
from kmip_data.files import changes as files
from kmip_data.files.reading import sha256_file
from kmip_data.format.card import Receipt
from kmip_data.manifest import Mirror, Source
from kmip_data.pipelines.raw.archives import HEAD, kind_of
from kmip_data.pipelines.raw.copies import (
    FIRST_BYTES,
    DownloadReceipt,
    PartialState,
    differing_pin,
    partial_paths,
    read_state,
    receipt_path,
    verified_receipt,
)
from kmip_data.runtime import http_client as http
from kmip_data.runtime.http_client import MirrorFailed, Patience
from kmip_data.runtime.progress import Progress, say
from kmip_data.wording import timestamp

_MAX_TRIES = 200  #: requests to one mirror, even when each brings something
_VALIDATOR = re.compile(r"[\x20-\x7e]{1,512}")


def fetch_source(
    source: Source,
    target: Path,
    *,
    hint: str,
    quiet: bool = False,
    max_bytes: int | None = None,
    check: Callable[[Path], object] | None = None,
    patience: Patience | None = None,
) -> Receipt:
    """Download a source to ``target``, unless it exists with a valid receipt.

    Mirrors are tried in order, first the one that an unfinished download came from. Each gets a few
    tries; a download that was cut resumes with a Range request. ``target`` appears complete or not
    at all.

    ``hint`` is the next step in the error if no mirror gives the file. A mirror without a pinned
    size sends at most ``max_bytes``. ``DamagedInput`` from ``check``, called with the complete
    file, rejects the mirror.

    Raises ``SourceUnavailable``, which names each mirror with its reason, if none gave the file;
    ``OutOfResources`` or ``UsageError`` if it cannot be written. The unfinished part stays.
    """
    if receipt := verified_receipt(target):
        return receipt
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    with files.build_lock(target, quiet=quiet):
        if receipt := verified_receipt(target):  # another process downloaded it meanwhile
            return receipt
        download = _Download(
            source,
            target,
            patience or Patience.from_environment(),
            quiet,
            max_bytes,
            check,
        )
        return download.run(hint)


@dataclass
class _Download:
    """An unfinished download of a source, kept across runs."""

    source: Source
    target: Path
    patience: Patience
    quiet: bool
    max_bytes: int | None
    check: Callable[[Path], object] | None
    state: PartialState | None = None
    size: int = 0
    received: int = 0  #: bytes that this run appended, kept or not

    def __post_init__(self) -> None:
        self.path, self.state_path = partial_paths(self.target)
        self.state = read_state(self.target)
        if os.path.lexists(self.path):
            with writing(self.path):
                descriptor = files.open_partial(self.path)  # no link, nor anything not ours
                os.close(descriptor)
            self.size = self.path.stat().st_size

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
                if not (self._belongs_to(mirror) and self.state and self.size == self.state.total):
                    self._request(mirror)
                return self._finish(mirror)
            except MirrorFailed as failure:
                # One per cent of the file, at most 1 MiB, counts as progress: not a byte a second.
                least = max(1, min(2**20, ((self.state and self.state.total) or 2**30) // 100))
                fruitless = 0 if self.received - before >= least else fruitless + 1
                if not failure.again or fruitless >= (
                    1 if failure.stalled else self.patience.attempts
                ):
                    raise
                wait = failure.wait
                if wait is None:
                    wait = self.patience.pause * 2 ** max(0, fruitless - 1)
                self._say(mirror, f"{failure.reason}; it is asked again in {wait:g} s")
                time.sleep(wait)
        raise MirrorFailed(f"was asked {_MAX_TRIES} times")

    def _belongs_to(self, mirror: Mirror) -> bool:
        """True if the bytes came from ``mirror``, and a validator or digest proves what continues them."""
        state = self.state
        if state is None or not self.size:
            return False
        if (mirror.address, mirror.sha256) != (state.url, state.sha256):
            return False
        return (state.validator or state.sha256) is not None

    def _request(self, mirror: Mirror) -> None:
        """Make one request and append the answer to the partial file, which is complete on return."""
        # Compressed in transit, the bytes would be others than those that are counted and hashed.
        headers = {"Accept-Encoding": "identity"}
        # Continue only where a validator or a digest proves that it is the same file.
        offset = self.size if self._belongs_to(mirror) else 0
        if offset and self.state:
            headers["Range"] = f"bytes={offset}-"
            if self.state.validator:
                headers["If-Range"] = self.state.validator
        with http.open_response(mirror.url, headers, self.patience) as response:
            pieces = http.body(response, self.patience)
            status = response.status_code
            # 416: the file is shorter than the part here; another range would mix two files.
            if status == 416 or (status == 206 and offset and not self._continues(response)):
                self._discard()
                raise MirrorFailed("has another file now", again=True)
            if status == 200:
                pieces = self._start(mirror, response, pieces)
            elif status != 206 or not offset:
                raise http.from_status(response, self.patience.longest_wait)
            self._receive(mirror, pieces)

    def _continues(self, response: Response) -> bool:
        """True if an answer continues the same file exactly at the end of the partial one."""
        span = http.content_range(response)
        state = self.state
        etag = response.headers.get("ETag")
        if span is None or state is None or span[0] != self.size:
            return False
        same_total = None in {span[2], state.total} or span[2] == state.total
        return same_total and (None in {etag, state.etag} or etag == state.etag)

    def _start(
        self,
        mirror: Mirror,
        response: Response,
        pieces: Iterator[bytes],
    ) -> Iterator[bytes]:
        """Check the size and the first bytes of a new file, and only then drop the previous partial file."""
        total = http.declared_length(response)
        kind = http.kind_of(response)
        if total is not None and mirror.bytes not in {None, total}:
            raise MirrorFailed(f"has {total} bytes{kind}, expected {mirror.bytes}")
        if total is not None and self.max_bytes is not None and total > self.max_bytes:
            raise MirrorFailed(
                f"has {human_bytes(total)}, and {human_bytes(self.max_bytes)} are allowed"
            )
        # Enough of the beginning to tell an archive from the web page of a dead host.
        head = b""
        for piece in pieces:
            head += piece
            if len(head) >= HEAD:
                break
        if not _plausible(self.source, head, response):
            size = human_bytes(total if total is not None else len(head))
            raise MirrorFailed(f"sent no archive: got{kind or ' bytes of an unknown kind'}, {size}")
        if total is not None:
            require_room(self.target.parent, total, f"Downloading {self.source.name}")
        # The new file has passed its checks: only now the part of the old one goes.
        self._discard()
        self.state = PartialState(
            url=mirror.address,
            sha256=mirror.sha256,
            total=total,
            first=head[:FIRST_BYTES].hex(),
            etag=_validator(response, "ETag"),
            last_modified=_validator(response, "Last-Modified"),
        )
        files.write_json(self.state_path, self.state.model_dump())
        return itertools.chain([head], pieces)

    def _receive(self, mirror: Mirror, pieces: Iterator[bytes]) -> None:
        assert self.state is not None
        total = self.state.total
        most = mirror.bytes or total or self.max_bytes
        name = f"fetch {self.source.name}"
        with writing(self.path, left=self._left):
            descriptor = files.open_partial(self.path)
        with (
            os.fdopen(descriptor, "r+b", buffering=0) as file,
            Progress(name, total, unit="B", initial=self.size, quiet=self.quiet) as progress,
        ):
            file.seek(self.size)
            # Each piece is counted as it is written: a server may send more than it declared.
            for piece in pieces:
                with writing(self.path, left=self._left):
                    files.write_all(descriptor, piece)
                self.size += len(piece)
                self.received += len(piece)
                progress.update(len(piece))
                if most is not None and self.size > most:
                    self._discard()
                    raise MirrorFailed(f"sent more than {most} bytes")
        if total is not None and self.size < total:
            raise MirrorFailed("cut the connection", again=True)

    def _fault(self, mirror: Mirror, digest: str) -> str | None:
        """Return a reason if the complete file is not the source, and ``None`` if it is."""
        if mirror.bytes is not None and self.size != mirror.bytes:
            return f"sent {self.size} bytes, expected {mirror.bytes}"
        differing = differing_pin(mirror, self.path, digest)
        if differing is not None:
            kind, expected, actual = differing
            return f"sent a file with {kind} {actual[:12]}…, expected {expected[:12]}…"
        if self.check is not None:
            try:
                self.check(self.path)
            except (DamagedInput, UsageError) as error:
                return f"sent a file that is refused: {error.what}"
        return None

    def _finish(self, mirror: Mirror) -> Receipt:
        """Check the complete file, write its receipt and rename the file to its name."""
        assert self.state is not None
        digest = sha256_file(self.path)[0]
        state = self.state
        # A complete file that is another one is dropped: no later run can continue it.
        fault = self._fault(mirror, digest)
        if fault is not None:
            self._discard()
            raise MirrorFailed(fault)
        entry = DownloadReceipt(
            name=self.source.name,
            url=state.url,
            sha256=digest,
            bytes=self.size,
            time=timestamp(),
            etag=state.etag,
            last_modified=state.last_modified,
        )
        # The receipt first: a file without one would not be recognised as a download.
        files.write_json(receipt_path(self.target), entry.model_dump())
        with writing(self.target, left=self._left):
            files.fsync_path(self.path)
            files.move(self.path, self.target)
            files.remove_file(self.state_path)
            files.fsync_path(self.target.parent)
        say(f"fetched {entry.name}: {human_bytes(entry.bytes)}, sha256 {digest}", quiet=self.quiet)
        return Receipt(
            name=entry.name,
            origin=entry.url,
            sha256=entry.sha256,
            bytes=entry.bytes,
        )

    def _discard(self) -> None:
        with writing(self.path):
            files.remove_file(self.path)
            files.remove_file(self.state_path)
        self.size = 0
        self.state = None

    @property
    def _left(self) -> str | None:
        """Unfinished part on disk, for messages; ``None`` if there is none."""
        if not self.size:
            return None
        size = human_bytes(self.size)
        if self.state and self.state.total:
            size += f" of {human_bytes(self.state.total)}"
        return f"{self.path} ({size}); the next run resumes there"

    def _say(self, mirror: Mirror, text: str) -> None:
        say(f"{urllib.parse.urlsplit(mirror.address).netloc} {text}", quiet=self.quiet)


def _validator(response: Response, name: str) -> str | None:
    """Return a header that can be sent back as it came; ``None`` for others."""
    text = response.headers.get(name)
    return text if text and _VALIDATOR.fullmatch(text) else None


def _plausible(source: Source, head: bytes, response: Response) -> bool:
    """True if the first bytes can be the source's: dead hosts like to answer 200 with a web page."""
    if source.container == "archive":
        return bool(kind_of(head))
    page = head.lstrip()[:15].lower().startswith((b"<!doctype html", b"<html"))
    return bool(head) and not page and "text/html" not in response.headers.get("Content-Type", "")
