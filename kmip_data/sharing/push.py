"""Push a build or a run to an address: ``push.json`` first, ``share.json`` last, no other file replaced.

The page of a push has the YAML header that the Hugging Face hub reads. People edit it there:
``share.json`` does not list it, and one whose digest is not in ``push.json`` stays.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shlex
import tempfile
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any, Literal

from kmip_data.builds.columns import read_columns
from kmip_data.builds.home import COLUMNS, Build, added_names
from kmip_data.errors import DamagedInput, LicenseNotAccepted, SourceUnavailable, UsageError
from kmip_data.files.changes import build_lock, remove_partials, written_name
from kmip_data.files.reading import readable_json
from kmip_data.format.build_files import PAGE_NAME, card_files
from kmip_data.format.card import CARD_NAME, NAME_WORDS, Card, is_name
from kmip_data.format.page import render_card
from kmip_data.manifest import dataset_names, load_manifest
from kmip_data.runtime.progress import Progress, say
from kmip_data.sharing.remote import Remote, blocks_of
from kmip_data.sharing.share import (
    BLOCKS_NAME,
    MAX_FILES,
    PUSH_NAME,
    SHARE_NAME,
    PushList,
    Share,
    SharedFile,
)

#: Names of licences on the hub; any other is given by name and link.
_LICENSES = {
    "CC BY 4.0": "cc-by-4.0",
    "CC BY-NC 4.0": "cc-by-nc-4.0",
    "MIT": "mit",
    "ODbL 1.0": "odbl",
}
#: Next step where a file of a build, or a run, is damaged.
_REMEDY = {
    "build": "kmip-data verify {name} --repair",
    "run": "restore the file: the run's result.json has its digest",
}
PARQUET = "parquet"  #: folder of the Parquet view, in a push only

#: Files besides those of a build, some written into a scratch folder; they replace those of the
#: same name.
View = Callable[[Build, Path], Mapping[str, Path | bytes]]


def push_build(
    build: Build,
    address: str,
    *,
    view: View | None = None,
    quiet: bool = False,
) -> Share:
    """Push a finished build with its added columns, page and Croissant, and with the files of a ``view``.

    Raises ``LicenseNotAccepted`` where its licence does not let it be passed on; ``DamagedInput``
    where a file is not what the card says; else as :func:`push`.
    """
    card = build.card
    path = build.path
    _refuse_license(card)
    known = card.digests
    for name in added_names(path):
        folder = f"{COLUMNS}/{name}"
        columns = read_columns(build, name)
        for file, digest in columns.digests.items():
            known[f"{folder}/{file}"] = digest
        known[f"{folder}/{CARD_NAME}"] = _sha256(columns.to_json().encode())

    content: dict[str, Path | bytes] = {file: path / file for file in known}
    content.update(card_files(card))
    content[PAGE_NAME] = dataset_page(card)
    _checked_address(address, "build", path)
    with tempfile.TemporaryDirectory(prefix="kmip-data-", ignore_cleanup_errors=True) as scratch:
        if view is not None:
            content.update(view(build, Path(scratch)))
        return push(
            address,
            "build",
            path,
            card.key,
            content,
            known=known,
            quiet=quiet,
        )


def _sha256(data: bytes | bytearray) -> str:
    return hashlib.sha256(data).hexdigest()


def _refuse_license(card: Card) -> None:
    terms = card.license
    if card.manifest in dataset_names():
        shipped = load_manifest(card.manifest).license.model_dump()
        if shipped.get("agreement"):
            terms = shipped
    if terms.get("agreement"):
        raise LicenseNotAccepted(
            f"The license of {card.dataset} does not let it be passed on: {terms.get('name')}.",
            next=f"others can build it: kmip-data build {card.manifest or card.dataset}",
        )


def push(
    address: str,
    kind: Literal["build", "run"],
    source: Path,
    key: str,
    content: Mapping[str, Path | bytes],
    *,
    known: Mapping[str, str] | None = None,
    quiet: bool = False,
) -> Share:
    """Put the files of a build or run and, last, the manifest at an address.

    1. ``push.json`` with ``key``, names and digests comes first. A file is replaced if it has the
       digest in the list of the same key, or if it is data (HDF5, weights, Parquet) of the right
       size, or empty, among others that are whole; any other is in the way. Files that change are
       written before their new digests.
    2. Files that are missing, or whose bytes have another digest, are written; the rest is left as
       it is. While any is written there is no ``share.json``, so that nobody pulls half of it.
    3. ``blocks.sha256`` and ``share.json`` end it.

    So the same call resumes a push that was killed, and mends one that was damaged. ``source`` is
    the folder that is pushed; ``content`` maps a file to its bytes, or to where they lie; ``known``
    maps a file to the SHA-256 (hex) that it must have.

    Raises ``DamagedInput`` where a file of ``source`` is missing or has another digest;
    ``UsageError`` where the address holds another file, or cannot be written to;
    ``SourceUnavailable`` where that failed.
    """
    remote = _checked_address(address, kind, source)
    share, blocks = _described(kind, source.name, content, known or {})
    with contextlib.ExitStack() as locked:
        if remote.folder is not None:
            locked.enter_context(build_lock(remote.folder, quiet=quiet))
        listed = _listed(remote, share, key)
        digests = listed | {entry.file: entry.sha256 for entry in share.files}
        if PAGE_NAME in content:
            digests[PAGE_NAME] = _sha256(b"".join(blocks_of(content[PAGE_NAME])))

        # Files that change come before their new digests: a killed push leaves bytes that its list
        # has.
        changed = [name for name in content if listed.get(name) not in {None, digests[name]}]
        ordered = {name: content[name] for name in changed}
        push_list = PushList(kind=kind, key=key, files=digests)
        ordered[PUSH_NAME] = readable_json(push_list.model_dump(mode="json")).encode()
        ordered.update(content)
        ordered[BLOCKS_NAME] = blocks
        ordered[SHARE_NAME] = share.to_json().encode()
        _put(remote, share, ordered, listed, quiet=quiet)
    return share


def _checked_address(address: str, kind: str, source: Path) -> Remote:
    """Return the address, unless the folder ``source`` cannot be pushed there."""
    name = source.name
    remote = Remote(address)
    if not is_name(name):
        raise UsageError(
            f"The folder {name!r} cannot be pushed under its name.",
            expected=NAME_WORDS,
        )
    if remote.folder is not None and remote.folder.resolve().is_relative_to(source.resolve()):
        raise UsageError(f"The {kind} {source} cannot be pushed into itself.")
    if not remote.writable:
        raise UsageError(
            f"{remote.address} cannot be pushed to.",
            expected="a folder, hf://, s3:// or gs://",
        )
    return remote


def _put(
    remote: Remote,
    share: Share,
    content: Mapping[str, Path | bytes],
    listed: Mapping[str, str],
    *,
    quiet: bool,
) -> None:
    """Write those files of ``content`` that are missing or differ, in its order."""
    allowed = {*listed, PUSH_NAME, SHARE_NAME, BLOCKS_NAME} if listed else set()
    present = _present_files(remote, allowed, share)

    # 1. Digest and size that each file gets.
    entries = {entry.file: entry for entry in share.files}
    wanted = dict(entries)
    for name, text in content.items():
        if name not in wanted and isinstance(text, bytes):
            wanted[name] = SharedFile(file=name, sha256=_sha256(text), bytes=len(text))

    # 2. New files: missing there, or of other bytes. ``others`` have bytes that no push has
    #    written.
    new = set()
    others = []
    for name, entry in wanted.items():
        if name not in present:
            new.add(name)
            continue
        digest = _digest(remote, name, present[name])
        if digest != entry.sha256:
            new.add(name)
            if digest != listed.get(name):
                others.append(name)
    if PAGE_NAME in others:
        say(f"{remote.address}/{PAGE_NAME} was edited: it stays as it is.")
        new.remove(PAGE_NAME)
        others.remove(PAGE_NAME)

    # 3. Damaged data are replaced where another file is complete; edited files never.
    of_share = [entries[name] for name in others if name in entries]
    edited = [entry.file for entry in of_share if not entry.is_damaged(present[entry.file])]
    all_new = entries.keys() <= new
    if edited or (others != [PUSH_NAME] and others and all_new):
        raise _in_the_way(remote, share, ", ".join(sorted(edited or others)[:5]))
    if not new:
        return

    total = sum(wanted[name].bytes for name in new)
    with (
        remote.at_once(f"kmip-data push {share.name}") as at_once,
        Progress(
            f"push {share.name}",
            total,
            unit="B",
            quiet=quiet,
        ) as progress,
    ):
        if SHARE_NAME in present and not at_once:
            remote.remove(SHARE_NAME)
        for name, data in content.items():
            if name in new or name == SHARE_NAME:
                remote.put(name, data)
                progress.update(wanted[name].bytes)


def _listed(remote: Remote, share: Share, key: str) -> dict[str, str]:
    """Return the files there that a push of the same build or run has written, with their digests.

    ``push.json`` lists them; where that is damaged, ``share.json`` does if it is the same to the
    digest.
    """
    earlier = None
    with contextlib.suppress(ValueError, RecursionError, DamagedInput):
        earlier = PushList.model_validate_json(remote.read(PUSH_NAME) or b"")
    if earlier is not None:
        if (earlier.kind, earlier.key) == (share.kind, key):
            return earlier.files
        content = f"{PUSH_NAME} of the {earlier.kind} with key {earlier.key}"
        raise _in_the_way(remote, share, content)

    listed = {}
    with contextlib.suppress(DamagedInput):
        if remote.read(SHARE_NAME) == share.to_json().encode():
            listed[PAGE_NAME] = ""
            for entry in share.files:
                listed[entry.file] = entry.sha256
    return listed


def _present_files(
    remote: Remote,
    ours: Container[str],
    share: Share,
) -> dict[str, int]:
    """Return the files at an address with their sizes; UsageError where one is not ours."""
    sizes = {}
    for name, size in remote.files():
        if name not in ours and written_name(name) not in ours:
            raise _in_the_way(remote, share, name)
        if remote.folder is not None and name not in ours:
            remove_partials((remote.folder / name).parent, root=remote.folder)
            continue
        sizes[name] = size
    return sizes


def _digest(remote: Remote, name: str, size: int) -> str:
    """Return the SHA-256 (hex) of a file that exists; all of it is read."""
    digest = hashlib.sha256()
    with contextlib.suppress(SourceUnavailable):
        for piece in remote.pieces(name, 0, size):
            digest.update(piece)
    return digest.hexdigest()


def _in_the_way(remote: Remote, share: Share, content: str) -> UsageError:
    return UsageError(
        f"{remote.address} holds something else.",
        expected=f"nothing, or an earlier push of the {share.kind} {share.name}",
        found=content,
    )


def _described(
    kind: Literal["build", "run"],
    name: str,
    content: Mapping[str, Path | bytes],
    known: Mapping[str, str],
) -> tuple[Share, bytes]:
    """Read every file once: the manifest and the bytes of its side file."""
    if len(content) > MAX_FILES:
        raise UsageError(f"{name} has {len(content):,} files; a push has at most {MAX_FILES:,}.")
    files = []
    blocks = bytearray()
    for file, source in content.items():
        if file == PAGE_NAME:
            continue
        running = hashlib.sha256()
        size = 0
        try:
            for block in blocks_of(source):
                running.update(block)
                size += len(block)
                blocks += hashlib.sha256(block).digest()
        except OSError as error:
            raise DamagedInput(
                f"{file} cannot be read: {error}", next=_REMEDY[kind].format(name=shlex.quote(name))
            ) from error
        digest = running.hexdigest()
        if known.get(file, digest) != digest:
            raise DamagedInput(
                f"{file} was changed after it was written.",
                expected=f"SHA-256 {known[file]}",
                found=digest,
                next=_REMEDY[kind].format(name=shlex.quote(name)),
            )
        files.append(SharedFile(file=file, sha256=digest, bytes=size))
    share = Share(kind=kind, name=name, files=files, blocks=_sha256(blocks))
    return share, bytes(blocks)


def header(fields: Mapping[str, Any]) -> str:
    """Return a YAML block; each value is written as JSON, which is YAML."""
    lines = [f"{name}: {json.dumps(value)}" for name, value in fields.items()]
    return "\n".join(["---", *lines, "---", ""])


def license_fields(terms: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields of the hub for a licence as a card has it."""
    name = str(terms.get("name", ""))
    if name in _LICENSES or not name:
        return {"license": _LICENSES.get(name, "unknown")}
    fields = {"license": "other", "license_name": name}
    link = str(terms.get("url", ""))
    if link:
        fields["license_link"] = link
    return fields


def dataset_page(card: Card, parquet: Mapping[str, str] | None = None) -> bytes:
    """Return the page of a build with its header; ``parquet`` has the file of each part in Parquet.

    The viewer of the hub refuses HDF5 with datasets of several lengths, so it is off.
    """
    tags = ["graph", "hdf5", "kmip-data"]
    if card.sample:
        tags.append("sample")
    fields: dict[str, Any] = {
        **license_fields(card.license),
        "pretty_name": card.heading,
        "task_categories": ["graph-ml"],
        "tags": tags,
        "viewer": False,
    }
    if parquet:
        files = [{"split": part, "path": file} for part, file in parquet.items()]
        fields["configs"] = [{"config_name": "default", "data_files": files}]
    return f"{header(fields)}\n{render_card(card)}".encode()
