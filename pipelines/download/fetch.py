"""Download a source: mirror after mirror, resumed where it was cut, checked, and renamed in when complete."""

from __future__ import annotations

import contextlib
import itertools
import re
import time
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kmip_data.errors import DamagedInput, SourceUnavailable, UsageError
from kmip_data.files.errors import human_bytes, require_room, writing
from kmip_data.files.locking import build_lock
from kmip_data.files.reading import git_blob, md5_file
from kmip_data.format.card import Receipt
from kmip_data.manifest import Mirror, Source
from kmip_data.pipelines.archives.decompression import compression_of
from kmip_data.pipelines.archives.packed import is_tar, is_zip
from kmip_data.pipelines.archives.reader import HEAD
from kmip_data.pipelines.download.partial import Partial, PartialState, verified_receipt
from kmip_data.runtime.http_errors import MirrorFailed, from_status
from kmip_data.runtime.progress import Progress, say

# The HTTP client is imported where it is used: importing it opens a socket (urllib3 looks for IPv6).
if TYPE_CHECKING:
    from requests import Response

    from kmip_data.runtime.http_client import Patience

_MAX_TRIES: Final = 200  #: requests to one mirror, even when each brings something
# Up to 18 digits: a number of thousands of them cannot even be converted.
_LENGTH: Final = re.compile(r"\d{1,18}")
_VALIDATOR: Final = re.compile(r"[\x20-\x7e]{1,512}")


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
    """Bring a source to ``target``; nothing is done if it is there with a receipt that holds.

    Mirrors are tried in order, first the one that an unfinished download came from. Each gets a few tries; a
    download that was cut resumes with a Range request. While it is unfinished it is called ``NAME.partial``;
    ``target`` appears complete or not at all, its receipt before it.

    ``hint`` is the next step in the error if no mirror gives the file. A mirror without a pinned size sends
    at most ``max_bytes``. ``check`` is called with the complete file before it is renamed; ``DamagedInput``
    from it rejects the mirror. ``patience``, time-outs and tries, is by default that of the environment.

    Raises ``SourceUnavailable``, which names each mirror with its reason, if none gave the file;
    ``OutOfResources`` or ``UsageError`` if the disk is full or the folder cannot be written. The unfinished
    part stays.
    """
    if receipt := verified_receipt(target):
        return receipt
    with contextlib.ExitStack() as stack:
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(build_lock(target, quiet=quiet))
        if receipt := verified_receipt(target):  # another process downloaded it meanwhile
            return receipt
        from kmip_data.runtime.http_client import Patience

        partial = Partial(target)
        stack.callback(partial.close)
        patience = patience or Patience.from_environment()
        return _Download(source, target, partial, patience, quiet, max_bytes, check).run(hint)


@dataclass(frozen=True)
class _Download:
    """A source and the options of its download."""

    source: Source
    target: Path
    partial: Partial
    patience: Patience
    quiet: bool
    max_bytes: int | None
    check: Callable[[Path], object] | None

    def run(self, hint: str) -> Receipt:
        """Ask one mirror after the other; ``hint`` is the next step if none gives the file."""
        partial, failures = self.partial, []
        for mirror in sorted(self.source.mirrors, key=lambda mirror: not partial.belongs_to(mirror)):
            try:
                return self._from_mirror(mirror)
            except MirrorFailed as failure:
                failures.append(f"\n    {mirror.address}: {failure.reason}")
                self._say(mirror, failure.reason)
        raise SourceUnavailable(
            f"No mirror gave {self.source.name}.",
            expected="a complete copy from one of its mirrors",
            found="".join(failures) or "no mirror is known",
            left=partial.left,
            next=hint,
        )

    def _say(self, mirror: Mirror, text: str) -> None:
        say(f"{urllib.parse.urlsplit(mirror.address).netloc} {text}", quiet=self.quiet)

    def _from_mirror(self, mirror: Mirror) -> Receipt:
        """Ask one mirror until the file is complete, or it is clear that it will not be."""
        partial = self.partial
        fruitless, rejected = 0, False
        for _ in range(_MAX_TRIES):
            before = partial.received
            try:
                if not partial.is_complete(mirror):
                    self._request(mirror)
            except MirrorFailed as failure:
                gained = partial.received - before
                fruitless = 0 if gained >= partial.progress else fruitless + 1
                if not failure.again or fruitless >= (1 if failure.stalled else self.patience.attempts):
                    raise
                wait = failure.wait
                if wait is None:
                    wait = self.patience.pause * 2 ** max(0, fruitless - 1)
                self._say(mirror, f"{failure.reason}; it is asked again in {wait:g} s")
                time.sleep(wait)
                continue
            reason = self._reject(mirror)
            if reason is None:
                return self._finish(mirror)
            # Bytes of an earlier answer may be the cause: one fresh start is worth it.
            retry = partial.joined and not rejected
            partial.discard()
            if not retry:
                raise MirrorFailed(reason)
            rejected = True
        raise MirrorFailed(f"was asked {_MAX_TRIES} times")

    def _request(self, mirror: Mirror) -> None:
        """Make one request and append what comes to the partial file, which is complete on return.

        Raises :class:`MirrorFailed` if the mirror did not deliver the rest; the partial file keeps what can
        be continued.
        """
        from kmip_data.runtime.http_client import body, open_response

        partial, patience = self.partial, self.patience
        headers = {"Accept-Encoding": "identity"}
        offset = partial.size if partial.belongs_to(mirror) else 0
        if offset and partial.state:
            headers["Range"] = f"bytes={offset}-"
            if partial.state.url == mirror.address and partial.state.validator:
                headers["If-Range"] = partial.state.validator
        with open_response(mirror.url, headers, patience) as response:
            pieces = body(response, patience)
            if response.status_code == 206 and offset:
                self._continue(response, mirror, offset)
            elif response.status_code == 200:
                pieces = self._start(mirror, response, pieces)
            else:
                if response.status_code == 416:
                    partial.discard()
                    raise MirrorFailed("has another file now", again=True)
                raise from_status(response, patience.longest_wait)
            self._receive(mirror, pieces)

    def _continue(self, response: Response, mirror: Mirror, offset: int) -> None:
        """Refuse an answer that does not continue the same file exactly at the end of the partial one."""
        from kmip_data.runtime.http_client import content_range

        span, state = content_range(response), self.partial.state
        etag = response.headers.get("ETag")
        same = (
            span is not None
            and state is not None
            and span[0] == offset
            and (span[2] is None or state.total is None or span[2] == state.total)
            and (state.url != mirror.address or not etag or not state.etag or etag == state.etag)
        )
        if not same:
            self.partial.discard()
            raise MirrorFailed("has another file now", again=True)
        self.partial.joined = True

    def _start(self, mirror: Mirror, response: Response, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Check the size and the first bytes of a new file, and only then drop the previous partial file."""
        total = declared_length(response)
        if total is not None:
            if mirror.bytes is not None and total != mirror.bytes:
                raise MirrorFailed(f"has {total} bytes{kind_of(response)}, expected {mirror.bytes}")
            if self.max_bytes is not None and total > self.max_bytes:
                size, most = human_bytes(total), human_bytes(self.max_bytes)
                raise MirrorFailed(f"has {size}, and {most} are allowed")
        head = b""
        for piece in pieces:
            head += piece
            if len(head) >= HEAD:
                break
        if not _plausible(self.source, head, response):
            size = human_bytes(total if total is not None else len(head))
            kind = kind_of(response) or " bytes of an unknown kind"
            raise MirrorFailed(f"sent no archive: got{kind}, {size}")
        if total is not None:
            require_room(self.target.parent, total, f"Downloading {self.source.name}")
        self.partial.begin(
            PartialState(
                url=mirror.address,
                sha256=mirror.sha256,
                etag=_validator(response, "ETag"),
                last_modified=_validator(response, "Last-Modified"),
                total=total,
            )
        )
        return itertools.chain([head], pieces)

    def _receive(self, mirror: Mirror, pieces: Iterator[bytes]) -> None:
        partial = self.partial
        assert partial.state is not None
        total = partial.state.total
        most = mirror.bytes or total or self.max_bytes
        with Progress(
            f"fetch {self.source.name}", total, unit="B", initial=partial.size, quiet=self.quiet
        ) as progress:
            for piece in pieces:
                partial.append(piece)
                progress.update(len(piece))
                if most is not None and partial.size > most:
                    partial.discard()
                    raise MirrorFailed(f"sent more than {most} bytes")
        if total is not None and partial.size < total:
            raise MirrorFailed("cut the connection", again=True)

    def _reject(self, mirror: Mirror) -> str | None:
        """Return why the complete file is not the source; ``None`` if it is."""
        partial = self.partial
        if mirror.bytes is not None and partial.size != mirror.bytes:
            return f"sent {partial.size} bytes, expected {mirror.bytes}"
        for kind, pinned, digest, remark in (
            ("a file with SHA-256", mirror.sha256, lambda _: partial.sha256, ""),
            ("a file with MD5", mirror.md5, md5_file, ""),
            ("git blob", mirror.git_blob, git_blob, ": another generation of this path"),
        ):
            if pinned is not None and (found := digest(partial.path)) != pinned:
                return f"sent {kind} {found[:12]}…, expected {pinned[:12]}…{remark}"
        if self.check is not None:
            try:
                self.check(partial.path)
            except (DamagedInput, UsageError) as error:
                return f"sent a file that is refused: {error.what}"
        return None

    def _finish(self, mirror: Mirror) -> Receipt:
        """Write the receipt of the checked file and rename the file to its name."""
        receipt = self.partial.finish(self.target, self.source.name, mirror.address)
        text = f"fetched {receipt.name}: {human_bytes(receipt.bytes)}, sha256 {receipt.sha256}"
        say(text, quiet=self.quiet)
        return receipt


def declared_length(response: Response) -> int | None:
    """Return the length that the answer declares; ``None`` if it declares none."""
    text = response.headers.get("Content-Length", "").strip()
    if not text or "chunked" in response.headers.get("Transfer-Encoding", ""):
        return None
    if not _LENGTH.fullmatch(text):
        raise MirrorFailed("declares a length that is not a number of bytes")
    return int(text)


def kind_of(response: Response) -> str:
    """Return a blank and the type that the server gives the file; empty if it gives none."""
    kind = " ".join(response.headers.get("Content-Type", "").split(";")[0].split())
    return f" {kind[:60]}" if kind else ""


def _validator(response: Response, name: str) -> str | None:
    """Return a header by which a change is noticed, if it can be sent back as it came."""
    text = response.headers.get(name, "")
    return text if _VALIDATOR.fullmatch(text) else None


def _plausible(source: Source, head: bytes, response: Response) -> bool:
    """True if the first bytes can be the source's: dead hosts like to answer 200 with a web page."""
    if source.container == "archive":
        return is_zip(head) or compression_of(head) is not None or is_tar(head)
    page = head.lstrip()[:15].lower().startswith((b"<!doctype html", b"<html"))
    return bool(head) and not page and "text/html" not in response.headers.get("Content-Type", "")
