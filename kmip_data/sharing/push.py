"""Push a build or a run to an address: ``push.json`` first, ``share.json`` last.

The page of a push has the YAML header that the Hugging Face hub reads. Because people edit pages
there, ``share.json`` does not list the page, and an existing page is kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shlex
import tempfile
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Literal

from kmip_data.builds.added_columns import find_encoding, read_added_column_card
from kmip_data.builds.home import COLUMNS_FOLDER, Build, added_column_names
from kmip_data.errors import DamagedInput, LicenseNotAccepted, SourceUnavailable, UsageError
from kmip_data.files.atomic_writes import final_name, folder_lock, remove_partials
from kmip_data.files.folder_marker import PICTURE_NAME
from kmip_data.files.small_files import readable_json
from kmip_data.format.build_files import PAGE_NAME, has_picture, metadata_files
from kmip_data.format.card import CARD_NAME, NAME_RULE, Card, is_path_component
from kmip_data.format.card_page import render_card
from kmip_data.manifest import dataset_names, load_manifest
from kmip_data.runtime.progress import Progress, print_status
from kmip_data.sharing.push_metadata import (
    BLOCKS_NAME,
    MAX_FILES,
    PUSH_NAME,
    SHARE_NAME,
    PushedFile,
    PushIndex,
    PushMark,
)
from kmip_data.sharing.remote import Remote, read_blocks

#: Identifiers of licenses on the hub. Other licenses are described by name and link.
_LICENSES = {
    "CC BY 4.0": "cc-by-4.0",
    "CC BY-NC 4.0": "cc-by-nc-4.0",
    "MIT": "mit",
    "ODbL 1.0": "odbl",
}
#: Remedy if a file of a build or run is damaged.
_REMEDIES = {
    "build": "kmip-data verify {quoted_folder} --repair",
    "run": "restore the file: the run's result.json has its digest",
}
PARQUET_FOLDER = "parquet"  #: folder of the Parquet view, which exists only in pushes

#: Function that returns additional files of a push, and may write them into a scratch folder. They
#: replace files of the build with the same name.
View = Callable[[Build, Path], Mapping[str, Path | bytes]]


def push_build(
    build: Build,
    address: str,
    *,
    view: View | None = None,
    quiet: bool = False,
) -> PushIndex:
    """Push a finished build with its added columns, page and Croissant, and the files of ``view``.

    Raises ``LicenseNotAccepted`` if its license forbids redistribution; ``DamagedInput`` if a file
    does not match the card; otherwise the errors of :func:`push_files`.
    """
    card = build.card
    path = build.path
    _check_license(card)
    expected_digests = card.digests
    for name in added_column_names(path):
        folder = f"{COLUMNS_FOLDER}/{name}"
        try:
            columns = read_added_column_card(build, name)
        except DamagedInput:
            if find_encoding(name) is None:
                continue  # a folder that the user created
            raise
        for file, digest in columns.digests.items():
            expected_digests[f"{folder}/{file}"] = digest
        expected_digests[f"{folder}/{CARD_NAME}"] = _sha256(columns.to_json().encode())

    content: dict[str, Path | bytes] = {file: path / file for file in expected_digests}
    content.update(metadata_files(card))
    content[PAGE_NAME] = dataset_page(build)
    if has_picture(path):
        content[PICTURE_NAME] = path / PICTURE_NAME
    _open_push_address(address, "build", path)
    with tempfile.TemporaryDirectory(prefix="kmip-data-", ignore_cleanup_errors=True) as scratch:
        if view is not None:
            content.update(view(build, Path(scratch)))
        return push_files(
            address,
            "build",
            path,
            card.key,
            content,
            expected_digests=expected_digests,
            quiet=quiet,
        )


def _sha256(data: bytes | bytearray) -> str:
    return hashlib.sha256(data).hexdigest()


def _check_license(card: Card) -> None:
    """Raise ``LicenseNotAccepted`` if the license forbids redistribution."""
    terms = card.license
    if card.manifest in dataset_names():
        shipped = load_manifest(card.manifest).license.model_dump()
        if shipped.get("agreement"):
            terms = shipped
    if terms.get("agreement"):
        raise LicenseNotAccepted(
            f"The license of {card.dataset} does not allow redistribution: {terms.get('name')}.",
            next=f"others can build it: kmip-data build {shlex.quote(card.manifest or card.dataset)}",
        )


def push_files(
    address: str,
    kind: Literal["build", "run"],
    source: Path,
    key: str,
    content: Mapping[str, Path | bytes],
    *,
    expected_digests: Mapping[str, str] | None = None,
    quiet: bool = False,
) -> PushIndex:
    """Write the files of a build or run to an address, with the index last.

    1. Write ``push.json`` with ``key``. An address without it must be empty except for a page; an
       address of another build or run is refused. Other existing files are kept.
    2. Write files that are missing or have another digest. Meanwhile there is no ``share.json``, so
       nobody can pull an incomplete push.
    3. Write ``blocks.sha256`` and ``share.json``.

    The same call therefore resumes an interrupted push and repairs a damaged one. ``source`` is the
    pushed folder; ``content`` maps each file to its bytes or path, ``expected_digests`` to the
    SHA-256 (hex) that it must have.

    Raises ``DamagedInput`` if a file of ``source`` is missing or has another digest; ``UsageError``
    if the address holds something else or is not writable; ``SourceUnavailable`` if writing fails.
    """
    remote = _open_push_address(address, kind, source)
    index, blocks = _describe_files(kind, source, content, expected_digests or {})
    with contextlib.ExitStack() as stack:
        if remote.folder is not None:
            stack.enter_context(folder_lock(remote.folder, quiet=quiet))
        mark = PushMark(kind=kind, key=key)
        files = {PUSH_NAME: readable_json(mark.model_dump(mode="json")).encode(), **content}
        files[BLOCKS_NAME] = blocks
        files[SHARE_NAME] = index.to_json().encode()
        _write_missing_files(remote, index, mark, files, quiet=quiet)
    return index


def _open_push_address(address: str, kind: str, source: Path) -> Remote:
    """Open the address; ``UsageError`` if the folder ``source`` cannot be pushed there."""
    name = source.name
    remote = Remote(address)
    if not is_path_component(name):
        raise UsageError(
            f"The folder {name!r} cannot be pushed under its name.",
            expected=NAME_RULE,
        )
    if remote.folder is not None and remote.folder.resolve().is_relative_to(source.resolve()):
        raise UsageError(f"The {kind} {source} cannot be pushed into itself.")
    if not remote.is_writable:
        raise UsageError(
            f"{remote.address} cannot be pushed to.",
            expected="a folder, hf://, s3:// or gs://",
        )
    return remote


def _write_missing_files(
    remote: Remote,
    index: PushIndex,
    mark: PushMark,
    content: Mapping[str, Path | bytes],
    *,
    quiet: bool,
) -> None:
    """Write the files of ``content`` that are missing or differ, in order."""
    existing = _existing_files(remote, index, mark, content)

    # 1. Collect the digest and size of each file.
    entries = {entry.file: entry for entry in index.files}
    for name, data in content.items():
        if name not in entries and isinstance(data, bytes):
            entries[name] = PushedFile(file=name, sha256=_sha256(data), bytes=len(data))

    # 2. Select files that are missing or differ.
    to_write = set()
    for name, entry in entries.items():
        if name not in existing or _remote_digest(remote, name, existing[name]) != entry.sha256:
            to_write.add(name)
    if PAGE_NAME in to_write and PAGE_NAME in existing:
        print_status(f"{remote.address}/{PAGE_NAME} exists and is kept.")
        to_write.remove(PAGE_NAME)
    if not to_write:
        return

    # 3. Remove the index while files change, so that nobody pulls an incomplete push.
    total = sum(entries[name].bytes for name in to_write)
    with (
        remote.batch_writes(f"Push {index.name} with kmip-data") as is_one_commit,
        Progress(
            f"push {index.name}",
            total,
            unit="B",
            quiet=quiet,
        ) as progress,
    ):
        if SHARE_NAME in existing and not is_one_commit:
            remote.remove_file(SHARE_NAME)
        for name, data in content.items():
            if name in to_write or name == SHARE_NAME:
                remote.write_file(name, data)
                progress.update(entries[name].bytes)


def _existing_files(
    remote: Remote,
    index: PushIndex,
    mark: PushMark,
    content: Container[str],
) -> dict[str, int]:
    """Return the existing files of this push at an address, with their sizes.

    Raises ``UsageError`` if the address holds something else.
    """
    mark_data = remote.read(PUSH_NAME)
    if mark_data is not None:
        try:
            existing_mark = PushMark.model_validate_json(mark_data)
        except (ValueError, RecursionError) as error:
            raise _occupied_address_error(remote, index, f"a damaged {PUSH_NAME}") from error
        if existing_mark != mark:
            contents = f"{PUSH_NAME} of the {existing_mark.kind} with key {existing_mark.key}"
            raise _occupied_address_error(remote, index, contents)

    sizes = {}
    other_files = []
    for name, size in remote.list_files():
        if name in content:
            sizes[name] = size
        elif remote.folder is None or final_name(name) is None:
            other_files.append(name)
        else:
            remove_partials((remote.folder / name).parent, root=remote.folder)
    if mark_data is None and (other_files or sizes.keys() - {PAGE_NAME}):
        contents = ", ".join(sorted([*other_files, *sizes])[:5])
        raise _occupied_address_error(remote, index, contents)
    if other_files:
        names = ", ".join(sorted(other_files)[:5])
        print_status(f"{remote.address} also holds other files, which are kept: {names}")
    return sizes


def _remote_digest(remote: Remote, name: str, size: int) -> str:
    """Download an existing file completely and return its SHA-256 (hex)."""
    digest = hashlib.sha256()
    with contextlib.suppress(SourceUnavailable):
        for piece in remote.read_pieces(name, 0, size):
            digest.update(piece)
    return digest.hexdigest()


def _occupied_address_error(remote: Remote, index: PushIndex, content: str) -> UsageError:
    return UsageError(
        f"{remote.address} holds something else.",
        expected=f"nothing, or an earlier push of the {index.kind} {index.name}",
        found=content,
        next="use another address",
    )


def _describe_files(
    kind: Literal["build", "run"],
    folder: Path,
    content: Mapping[str, Path | bytes],
    expected_digests: Mapping[str, str],
) -> tuple[PushIndex, bytes]:
    """Read every file once; return the index and the content of ``blocks.sha256``."""
    if len(content) > MAX_FILES:
        raise UsageError(f"{folder} has {len(content):,} files; a push has at most {MAX_FILES:,}.")
    remedy = _REMEDIES[kind].format(quoted_folder=shlex.quote(str(folder)))
    files = []
    blocks = bytearray()
    for file, source in content.items():
        if file == PAGE_NAME:
            continue
        hasher = hashlib.sha256()
        size = 0
        try:
            for block in read_blocks(source):
                hasher.update(block)
                size += len(block)
                blocks += hashlib.sha256(block).digest()
        except OSError as error:
            raise DamagedInput(f"{folder / file} cannot be read: {error}", next=remedy) from error
        digest = hasher.hexdigest()
        if expected_digests.get(file, digest) != digest:
            raise DamagedInput(
                f"{folder / file} was changed after it was written.",
                expected=f"SHA-256 {expected_digests[file]}",
                found=digest,
                next=remedy,
            )
        files.append(PushedFile(file=file, sha256=digest, bytes=size))
    index = PushIndex(kind=kind, name=folder.name, files=files, blocks=_sha256(blocks))
    return index, bytes(blocks)


def yaml_header(fields: Mapping[str, object]) -> str:
    """Return a YAML header; values are written as JSON, which is valid YAML."""
    lines = [f"{name}: {json.dumps(value)}" for name, value in fields.items()]
    return "\n".join(["---", *lines, "---", ""])


def license_fields(terms: Mapping[str, object]) -> dict[str, str]:
    """Return the hub's metadata fields for the license on a card."""
    name = str(terms.get("name", ""))
    if name in _LICENSES or not name:
        return {"license": _LICENSES.get(name, "unknown")}
    fields = {"license": "other", "license_name": name}
    link = str(terms.get("url", ""))
    if link:
        fields["license_link"] = link
    return fields


def dataset_page(build: Build, parquet: Mapping[str, str] | None = None) -> bytes:
    """Return the page of a build with its YAML header; ``parquet`` has the Parquet file of each part.

    The hub's viewer is off, because it does not support HDF5 with datasets of different lengths.
    """
    card = build.card
    tags = ["graph", "hdf5", "kmip-data"]
    if card.sample:
        tags.append("sample")
    fields: dict[str, object] = {
        **license_fields(card.license),
        "pretty_name": card.heading,
        "task_categories": ["graph-ml"],
        "tags": tags,
        "viewer": False,
    }
    if parquet:
        files = [{"split": part, "path": file} for part, file in parquet.items()]
        fields["configs"] = [{"config_name": "default", "data_files": files}]
    return f"{yaml_header(fields)}\n{render_card(card, picture=has_picture(build.path))}".encode()
