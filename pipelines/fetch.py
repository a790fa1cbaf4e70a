"""Download a source from its mirrors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kmip_data.card import Receipt
from kmip_data.errors import SourceUnavailable
from kmip_data.manifest import Manifest, Source


def read_receipt(target: Path) -> Receipt | None:
    """Return the receipt of a finished download, if it has a valid one."""
    return None


def fetch_source(
    source: Source,
    target: Path,
    *,
    dataset: str,
    quiet: bool = False,
    max_bytes: int | None = None,
    check: Callable[[Path], object] | None = None,
) -> Receipt:
    """Download ``source``; under construction: local archives work already."""
    raise SourceUnavailable(
        f"{source.name} cannot be downloaded yet.", next=f"kmip-data build {dataset} --archive PATH"
    )


def unavailable(
    manifest: Manifest,
    sources: Sequence[Source],
    *,
    reasons: Mapping[str, str] | None = None,
    command: str = "build",
) -> SourceUnavailable:
    """Return the error for sources that could not be had, naming each mirror."""
    mirrors = "".join(f"\n    {m.url}" for source in sources for m in source.mirrors)
    return SourceUnavailable(
        f"The raw data of {manifest.name} are not here, and --offline opens no connection.",
        expected=f"a local archive, a copy in the home folder, or one of{mirrors}",
        found="none",
        left="nothing was changed",
        next=f"kmip-data {command} {manifest.name} --archive PATH",
    )
