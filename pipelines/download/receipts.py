"""The receipt of a finished download: where it came from and the digest it must keep."""

from __future__ import annotations

from pathlib import Path

from kmip_data.files.changes import remove_file
from kmip_data.files.digests import sha256_file
from kmip_data.files.errors import writing
from kmip_data.files.small import read_small
from kmip_data.format.card import Receipt
from kmip_data.strict import Strict
from kmip_data.wording import shown_address


class DownloadReceipt(Strict):
    """``NAME.receipt.json`` beside a finished download."""

    name: str
    url: str
    sha256: str
    bytes: int
    time: str
    etag: str | None = None
    last_modified: str | None = None


def receipt_path(target: Path) -> Path:
    """Where the receipt of a download lies."""
    return target.with_name(f"{target.name}.receipt.json")


def read_receipt(target: Path) -> Receipt | None:
    """Return the receipt of a finished download; ``None`` without a valid one."""
    try:
        entry = DownloadReceipt.model_validate_json(read_small(receipt_path(target)))
    except (OSError, ValueError):
        return None
    return Receipt(name=entry.name, origin=shown_address(entry.url), sha256=entry.sha256, bytes=entry.bytes)


def verified_receipt(target: Path) -> Receipt | None:
    """Return the receipt when the finished file is there and still has its digest."""
    receipt = read_receipt(target)
    if receipt is None or not target.is_file():
        return None
    return receipt if sha256_file(target) == (receipt.sha256, receipt.bytes) else None


def discard_download(target: Path) -> None:
    """Remove a download that turned out to be damaged, and its receipt."""
    with writing(target):
        remove_file(receipt_path(target))
        remove_file(target)
