"""Probe every mirror of a dataset with a request of one byte: status, size, and support of ranges."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from kmip_data.files.errors import human_bytes
from kmip_data.manifest import Manifest, Mirror, Source
from kmip_data.pipelines.download.fetch import declared_length, kind_of
from kmip_data.runtime.http_client import Patience, content_range, open_response
from kmip_data.runtime.http_errors import MirrorFailed, from_status

PROBES_AT_ONCE = 16
PATIENCE = Patience(connect=5.0, stall=10.0)


@dataclass(frozen=True)
class Probe:
    """Answer of a mirror."""

    dataset: str
    source: str
    address: str
    usable: bool  #: a file of the pinned size, if one is pinned, can be asked for
    detail: str
    status: int | None = None  #: of HTTP; ``None`` without an answer
    bytes: int | None = None  #: size of the file, where the server says it
    ranges: bool = False  #: a download that was cut can be resumed


def probe_sources(manifests: Iterable[Manifest], patience: Patience = PATIENCE) -> list[Probe]:
    """Ask all mirrors that are reached by a network, many at a time; nothing is downloaded."""
    asked = [
        (manifest.name, source, mirror)
        for manifest in manifests
        for source in manifest.sources
        if not source.packaged
        for mirror in source.mirrors
    ]
    with ThreadPoolExecutor(PROBES_AT_ONCE) as pool:
        return list(pool.map(lambda job: _probe(*job, patience=patience), asked))


def _probe(dataset: str, source: Source, mirror: Mirror, *, patience: Patience) -> Probe:
    headers = {"Accept-Encoding": "identity", "Range": "bytes=0-0"}
    status: int | None = None
    try:
        # What comes is not read: the connection is closed when the headers are here.
        with open_response(mirror.url, headers, patience) as response:
            status = response.status_code
            if status not in {200, 206}:
                raise from_status(response, patience.longest_wait)
            span = content_range(response) if status == 206 else None
            size = span[2] if span else declared_length(response) if status == 200 else None
            kind = kind_of(response)
    except MirrorFailed as failure:
        return Probe(dataset, source.name, mirror.address, False, failure.reason, status)
    ranges = span is not None and span[:2] == (0, 0)
    parts = [human_bytes(size) if size is not None else "size unknown"]
    parts += ["can be resumed" if ranges else "cannot be resumed"]
    wrong = mirror.bytes is not None and size is not None and size != mirror.bytes
    if wrong:
        parts += [f"expected {mirror.bytes} bytes"]
    page = kind.strip() == "text/html"
    if page:
        parts += ["a web page, not the file"]
    return Probe(
        dataset, source.name, mirror.address, not wrong and not page, ", ".join(parts), status, size, ranges
    )
