"""The digest of a dataset that nobody published: pinned at the first complete download, then compared."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from kmip_data.errors import DamagedInput
from kmip_data.files.changes import write_json
from kmip_data.files.digests import content_digest
from kmip_data.files.small import read_model
from kmip_data.manifest import Manifest
from kmip_data.pipelines.base import RawFolder
from kmip_data.pipelines.raw.copies import list_copies
from kmip_data.runtime.progress import say
from kmip_data.strict import Strict
from kmip_data.wording import timestamp

PIN_NAME = "pinned.json"


class Pin(Strict):
    """``raw/<dataset>/pinned.json``: the content, because mirrors pack the same members anew."""

    version: Literal[1] = 1
    content_digest: str
    members: int
    sources: dict[str, str]  #: name of a source -> where it came from and the SHA-256 of its archive
    time: str


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
