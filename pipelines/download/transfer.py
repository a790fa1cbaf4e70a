"""One request to one mirror: what it must answer before a byte is kept, and what is kept."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kmip_data.files.disk import human_bytes, require_room
from kmip_data.manifest import Mirror, Source
from kmip_data.pipelines.archives.decompression import compression_of
from kmip_data.pipelines.archives.packed import is_tar, is_zip
from kmip_data.pipelines.archives.reader import HEAD
from kmip_data.pipelines.download.partial import Partial, PartialState
from kmip_data.runtime.http_errors import MirrorFailed, from_status
from kmip_data.runtime.progress import Progress

# The HTTP client is imported where it is used: importing it opens a socket (urllib3 looks for IPv6).
if TYPE_CHECKING:
    from requests import Response

    from kmip_data.runtime.http_client import Patience

# Up to 18 digits: a number of thousands of them cannot even be converted.
_LENGTH = re.compile(r"\d{1,18}")
_VALIDATOR = re.compile(r"[\x20-\x7e]{1,512}")


@dataclass(frozen=True)
class Download:
    """A source on its way, and how it is to be brought in."""

    source: Source
    target: Path
    partial: Partial
    patience: Patience
    quiet: bool
    max_bytes: int | None
    check: Callable[[Path], object] | None


def transfer(job: Download, mirror: Mirror) -> None:
    """Make one request and append what comes to ``job.partial``, which is whole when this returns.

    Raises :class:`MirrorFailed` where the mirror did not deliver the rest; what came is kept where it can be
    continued.
    """
    from kmip_data.runtime.http_client import body, open_response

    partial, patience = job.partial, job.patience
    headers = {"Accept-Encoding": "identity"}
    offset = partial.size if partial.belongs_to(mirror) else 0
    if offset and partial.state:
        headers["Range"] = f"bytes={offset}-"
        if partial.state.url == mirror.address and partial.state.validator:
            headers["If-Range"] = partial.state.validator
    with open_response(mirror.url, headers, patience) as response:
        pieces = body(response, patience)
        if response.status_code == 206 and offset:
            _check_range(response, partial, mirror, offset)
        elif response.status_code == 200:
            pieces = _start(job, mirror, response, pieces)
        else:
            if response.status_code == 416:
                partial.discard()
                raise MirrorFailed("has another file now", again=True)
            raise from_status(response, patience.longest_wait)
        _receive(job, mirror, pieces)


def _check_range(response: Response, partial: Partial, mirror: Mirror, offset: int) -> None:
    """Refuse an answer that does not go on exactly where the partial file ends, with the same file."""
    from kmip_data.runtime.http_client import content_range

    told, state = content_range(response), partial.state
    etag = response.headers.get("ETag")
    same = (
        told is not None
        and state is not None
        and told[0] == offset
        and (told[2] is None or state.total is None or told[2] == state.total)
        and (state.url != mirror.address or not etag or not state.etag or etag == state.etag)
    )
    if not same:
        partial.discard()
        raise MirrorFailed("has another file now", again=True)
    partial.joined = True


def _start(job: Download, mirror: Mirror, response: Response, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Check the size and the first bytes of a new file, and only then drop what was there before."""
    total = declared_length(response)
    if total is not None:
        if mirror.bytes is not None and total != mirror.bytes:
            raise MirrorFailed(f"has {total} bytes{kind_of(response)}, expected {mirror.bytes}")
        if job.max_bytes is not None and total > job.max_bytes:
            raise MirrorFailed(f"has {human_bytes(total)}, and {human_bytes(job.max_bytes)} are allowed")
    head = b""
    for piece in pieces:
        head += piece
        if len(head) >= HEAD:
            break
    if not _plausible(job.source, head, response):
        size = human_bytes(total if total is not None else len(head))
        raise MirrorFailed(f"sent no archive: got{kind_of(response) or ' bytes of an unknown kind'}, {size}")
    if total is not None:
        require_room(job.target.parent, total, f"Downloading {job.source.name}")
    job.partial.begin(
        PartialState(
            url=mirror.address,
            sha256=mirror.sha256,
            etag=_validator(response, "ETag"),
            last_modified=_validator(response, "Last-Modified"),
            total=total,
        )
    )
    return itertools.chain([head], pieces)


def declared_length(response: Response) -> int | None:
    """Return the length that the answer has; ``None`` where it is not told."""
    text = response.headers.get("Content-Length", "").strip()
    if not text or "chunked" in response.headers.get("Transfer-Encoding", ""):
        return None
    if not _LENGTH.fullmatch(text):
        raise MirrorFailed("declares a length that is not a number of bytes")
    return int(text)


def _validator(response: Response, name: str) -> str | None:
    """Return a header by which a change is noticed, if it can be sent back as it came."""
    text = response.headers.get(name, "")
    return text if _VALIDATOR.fullmatch(text) else None


def kind_of(response: Response) -> str:
    """Return a blank and the type that the server gives the file; nothing where it gives none."""
    kind = " ".join(response.headers.get("Content-Type", "").split(";")[0].split())
    return f" {kind[:60]}" if kind else ""


def _plausible(source: Source, head: bytes, response: Response) -> bool:
    """Whether the first bytes can be those of the source: dead hosts like to answer 200 with a web page."""
    if source.container == "archive":
        return is_zip(head) or compression_of(head) is not None or is_tar(head)
    page = head.lstrip()[:15].lower().startswith((b"<!doctype html", b"<html"))
    return bool(head) and not page and "text/html" not in response.headers.get("Content-Type", "")


def _receive(job: Download, mirror: Mirror, pieces: Iterator[bytes]) -> None:
    partial = job.partial
    assert partial.state is not None
    total = partial.state.total
    most = mirror.bytes or total or job.max_bytes
    with Progress(
        f"fetch {job.source.name}", total, unit="B", initial=partial.size, quiet=job.quiet
    ) as progress:
        for piece in pieces:
            partial.append(piece)
            progress.update(len(piece))
            if most is not None and partial.size > most:
                partial.discard()
                raise MirrorFailed(f"sent more than {most} bytes")
    if total is not None and partial.size < total:
        raise MirrorFailed("cut the connection", again=True)
