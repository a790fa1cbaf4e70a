"""Download a source: mirror after mirror, resumed where it was cut, checked, and renamed in when whole."""

from __future__ import annotations

import contextlib
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kmip_data.errors import DamagedInput, SourceUnavailable, UsageError
from kmip_data.files.changes import fsync_path, write_json
from kmip_data.files.digests import git_blob, md5_file
from kmip_data.files.disk import human_bytes
from kmip_data.files.errors import writing
from kmip_data.files.locking import build_lock
from kmip_data.format.card import Receipt
from kmip_data.manifest import Mirror, Source
from kmip_data.pipelines.download.partial import Partial
from kmip_data.pipelines.download.receipts import DownloadReceipt, receipt_path, verified_receipt
from kmip_data.pipelines.download.transfer import Download, transfer
from kmip_data.runtime.http_errors import MirrorFailed
from kmip_data.runtime.progress import say
from kmip_data.wording import timestamp

if TYPE_CHECKING:
    from kmip_data.runtime.http_client import Patience

_MAX_TRIES = 200  #: requests to one mirror, even when each brings something


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
    """Bring a source to ``target``; nothing is done when it is there with a receipt that holds.

    Mirrors are tried in order, the one that an unfinished download came from first. Each gets a
    few tries; a download that was cut goes on with a Range request. While it is unfinished it is
    called ``NAME.partial``; ``target`` appears whole or not at all, its receipt before it.

    ``hint`` is the way on, for the error where no mirror gives the file. A mirror without a pinned size sends
    at most ``max_bytes``. ``check`` is called with the whole file before it is renamed; DamagedInput from it
    rejects the mirror. ``patience``, time-outs and tries, is by default that of the environment.

    Raises ``SourceUnavailable``, which names each mirror with its reason, where none gave the file;
    ``OutOfResources`` or ``UsageError`` where the disk is full or the folder cannot be written. The
    unfinished part stays.
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
        return _ask_mirrors(Download(source, target, partial, patience, quiet, max_bytes, check), hint)


def _ask_mirrors(job: Download, hint: str) -> Receipt:
    """Ask one mirror after the other; ``hint`` is the way on where none gives the file."""
    partial, failures = job.partial, []
    for mirror in sorted(job.source.mirrors, key=lambda mirror: not partial.belongs_to(mirror)):
        try:
            return _from_mirror(job, mirror)
        except MirrorFailed as failure:
            failures.append(f"\n    {mirror.address}: {failure.reason}")
            say(f"{_host(mirror)} {failure.reason}", quiet=job.quiet)
    raise SourceUnavailable(
        f"No mirror gave {job.source.name}.",
        expected="one whole copy from one of its mirrors",
        found="".join(failures) or "no mirror is known",
        left=partial.left,
        next=hint,
    )


def _host(mirror: Mirror) -> str:
    return urllib.parse.urlsplit(mirror.address).netloc


def _from_mirror(job: Download, mirror: Mirror) -> Receipt:
    """Ask one mirror until the file is whole, or it is clear that it will not be."""
    partial = job.partial
    fruitless, rejected = 0, False
    for _ in range(_MAX_TRIES):
        before = partial.received
        try:
            if not partial.is_whole(mirror):
                transfer(job, mirror)
        except MirrorFailed as failure:
            gained = partial.received - before
            fruitless = 0 if gained >= partial.progress else fruitless + 1
            if not failure.again or fruitless >= (1 if failure.stalled else job.patience.attempts):
                raise
            wait = failure.wait
            if wait is None:
                wait = job.patience.pause * 2 ** max(0, fruitless - 1)
            say(f"{_host(mirror)} {failure.reason}; it is asked again in {wait:g} s", quiet=job.quiet)
            time.sleep(wait)
            continue
        reason = _reject(job, mirror)
        if reason is None:
            return _finish(job, mirror)
        # Bytes of an earlier answer may be the cause: one fresh start is worth it.
        retry = partial.joined and not rejected
        partial.discard()
        if not retry:
            raise MirrorFailed(reason)
        rejected = True
    raise MirrorFailed(f"was asked {_MAX_TRIES} times")


def _reject(job: Download, mirror: Mirror) -> str | None:
    """Return why the whole file is not the source, if so."""
    partial = job.partial
    if mirror.bytes is not None and partial.size != mirror.bytes:
        return f"sent {partial.size} bytes, expected {mirror.bytes}"
    for kind, pinned, digest, remark in (
        ("a file with SHA-256", mirror.sha256, lambda _: partial.sha256, ""),
        ("a file with MD5", mirror.md5, md5_file, ""),
        ("git blob", mirror.git_blob, git_blob, ": another generation of this path"),
    ):
        if pinned is not None and (found := digest(partial.path)) != pinned:
            return f"sent {kind} {found[:12]}…, expected {pinned[:12]}…{remark}"
    if job.check is not None:
        try:
            job.check(partial.path)
        except (DamagedInput, UsageError) as error:
            return f"sent a file that is refused: {error.what}"
    return None


def _finish(job: Download, mirror: Mirror) -> Receipt:
    """Write the receipt of the checked file and rename the file to its name."""
    partial, state = job.partial, job.partial.state
    entry = DownloadReceipt(
        name=job.source.name,
        url=state.url if state else mirror.address,  # another one, if both have the same pinned digest
        sha256=partial.sha256,
        bytes=partial.size,
        time=timestamp(),
        etag=state.etag if state else None,
        last_modified=state.last_modified if state else None,
    )
    # The receipt first: a file without one would not be known as a download.
    write_json(receipt_path(job.target), entry.model_dump())
    partial.finish(job.target)
    with writing(job.target):
        fsync_path(job.target.parent)
    text = f"fetched {job.source.name}: {human_bytes(entry.bytes)}, sha256 {entry.sha256}"
    say(text, quiet=job.quiet)
    return Receipt(name=entry.name, origin=entry.url, sha256=entry.sha256, bytes=entry.bytes)
