"""Check the mirrors of raw files, or pin the digests of one dataset, for ``.github/workflows``.

``python tools/mirrors.py ask [NAME…]`` requests size and first bytes from every mirror, downloads
small files for their digests, and prints a table. ``python tools/mirrors.py pin NAME --home DIR`` builds
a dataset from its mirrors and writes the SHA-256 of each download into the manifests.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import click

from kmip_data.builds.home import Home
from kmip_data.errors import CheckFailed
from kmip_data.manifest import Manifest, Mirror, Source, load_manifest
from kmip_data.pipelines.build import build_dataset
from kmip_data.pipelines.raw.archives import HEAD_BYTES, sniff_format
from kmip_data.pipelines.raw.copies import first_differing_digest, verified_receipt
from kmip_data.runtime import http_client
from kmip_data.runtime.http_client import RequestFailed
from kmip_data.strict_model import shipped_datasets
from kmip_data.text import human_bytes

MANIFESTS = Path(__file__).resolve().parents[1] / "manifests" / "datasets"
MAX_DOWNLOADED_BYTES = 8 * 2**20  #: size up to which a file is downloaded for its digest
PIN_SOURCE = "a build from this mirror with the published counts"


@dataclass(frozen=True)
class Answer:
    """Row of the table for one mirror."""

    dataset: str
    source: str
    address: str
    size: int | None = None
    first: str = ""  #: kind of file, or its first bytes
    digest: str = "not asked"
    problem: str = ""

    @property
    def line(self) -> str:
        """The row as Markdown."""
        size = "–" if self.size is None else f"{self.size:,}"
        cells = [self.dataset, self.source, self.address, size, self.first or "–", self.digest]
        return f"| {' | '.join(cells)} | {self.problem or 'ok'} |"


def ask(manifest: Manifest, source: Source, mirror: Mirror) -> Answer:
    """Request the first bytes of a mirror, and the whole file if it is small."""
    row = {"dataset": manifest.name, "source": source.name, "address": mirror.address}
    try:
        size, head = first_bytes(mirror.url)
        kind = sniff_format(head)
        first = kind or head[:8].hex(" ")
        digest = "not asked"
        problem = ""
        if mirror.bytes not in {None, size}:
            problem = f"{mirror.bytes:,} bytes are pinned"
        elif source.container == "archive" and not kind:
            problem = "no archive"
        elif head.lstrip()[:1] == b"<":
            problem = "a web page"
        elif size is not None and size <= MAX_DOWNLOADED_BYTES:
            digest, problem = digest_of(mirror)
    except RequestFailed as failure:
        return Answer(**row, problem=failure.reason)
    return Answer(**row, size=size, first=first, digest=digest, problem=problem)


def first_bytes(url: str) -> tuple[int | None, bytes]:
    """Return size and first bytes of a file, also from a server that ignores ranges."""
    with http_client.open_response(url, {"Range": f"bytes=0-{HEAD_BYTES - 1}"}) as response:
        if response.status_code not in {200, 206}:
            raise http_client.failure_of_status(response)
        size = response.raw.length_remaining
        if response.status_code == 206:
            span = http_client.parse_content_range(response)
            size = None if span is None else span[2]
        head = b""
        for piece in http_client.response_body(response):
            head += piece
            if len(head) >= HEAD_BYTES:
                break
    return size, head[:HEAD_BYTES]


def digest_of(mirror: Mirror) -> tuple[str, str]:
    """Download a small file; return the beginning of its SHA-256, and how it differs from the pin."""
    with http_client.open_response(mirror.url, {}) as response:
        if response.status_code != 200:
            raise http_client.failure_of_status(response)
        data = b""
        for piece in http_client.response_body(response):
            data += piece
            if len(data) > MAX_DOWNLOADED_BYTES:
                raise RequestFailed("sends more than it declares")
    digest = sha256(data).hexdigest()
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        differing = first_differing_digest(mirror, Path(file.name), digest)
    if differing is None:
        pinned = "as pinned" if mirror.is_pinned else "none is pinned"
        return f"{digest[:12]}…, {pinned}", ""
    kind, expected, actual = differing
    return f"{digest[:12]}…", f"{kind} {actual[:12]}…, pinned {expected[:12]}…"


def answers(names: tuple[str, ...]) -> Iterator[Answer]:
    """Yield the answers of all mirrors of the named datasets, each address once."""
    requested = set()
    for name in names:
        manifest = load_manifest(name)
        for source in manifest.sources:
            for mirror in source.mirrors:
                if source.is_packaged or mirror.url in requested:
                    continue
                requested.add(mirror.url)
                yield ask(manifest, source, mirror)


def pin(name: str, home: Home, folder: Path = MANIFESTS) -> list[str]:
    """Build a dataset from its mirrors, and write digests into the manifests below ``folder``.

    Returns a line for each digest. Raises ``CheckFailed``, without changing manifests, if the counts
    are not the published ones.
    """
    build = build_dataset(name, home=home)
    if build.card.complete is False:
        raise CheckFailed(
            f"The build of {name} has other counts than the published set.",
            found=" ".join(build.card.notes),
            steps="compare it with the manifest; nothing is pinned",
        )

    lines = []
    for source in load_manifest(name).sources:
        receipt = verified_receipt(home.raw / name / source.name)
        if receipt is None:
            continue
        for mirror in source.mirrors:
            # Archives packed for each request have no fixed digest: only their members are pinned.
            if mirror.address != receipt.origin or mirror.is_pinned or mirror.members_sha256:
                continue
            for path in sorted(folder.glob("*/dataset.toml")):
                text = path.read_text("utf-8")
                pinned = with_digest(text, mirror.url, receipt.sha256)
                if pinned != text:
                    path.write_text(pinned, "utf-8")
                    size = human_bytes(receipt.bytes)
                    lines.append(f"{path.parent.name}: {source.name}, {size}: {receipt.sha256}")
    return lines


def with_digest(text: str, url: str, digest: str) -> str:
    """Return a manifest with a pin after the address, in an inline table on the same line."""
    address = re.escape(f'url = "{url}"')
    pin = f'sha256 = "{digest}"', f'pin_source = "{PIN_SOURCE}"'
    text = re.sub(rf"(?m)^{address}$", lambda match: "\n".join([match[0], *pin]), text)
    return re.sub(rf"(?<=\{{ ){address}", lambda match: ", ".join([match[0], *pin]), text)


@click.group()
def main() -> None:
    """Ask the mirrors of raw files, or pin a dataset."""


@main.command("ask")
@click.argument("names", nargs=-1)
def ask_command(names: tuple[str, ...]) -> None:
    """Print the table of all mirrors, or of the mirrors of NAMES; exit code 1 if one is not as pinned."""
    rows = list(answers(names or tuple(shipped_datasets())))
    failed = [row for row in rows if row.problem]
    header = "| dataset | file | mirror | bytes | first bytes | SHA-256 | result |"
    click.echo(f"{len(rows)} mirrors, {len(failed)} of them not as expected.\n")
    click.echo("\n".join([header, "|---" * 7 + "|"]))
    for row in sorted(rows, key=lambda row: not row.problem):
        click.echo(row.line)
    sys.exit(bool(failed))


@main.command("pin")
@click.argument("name")
@click.option("--home", type=click.Path(path_type=Path, file_okay=False), required=True)
def pin_command(name: str, home: Path) -> None:
    """Build NAME from its mirrors and write the digests that it saw into the manifests."""
    for line in pin(name, Home(home)):
        click.echo(line)


if __name__ == "__main__":
    main(prog_name="python tools/mirrors.py")
