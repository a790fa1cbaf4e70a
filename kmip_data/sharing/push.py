"""Push a build or a run to an address, with its index last.

The page of a push has the YAML header that the Hugging Face hub reads. Because people edit pages
there, ``share.json`` does not list the page, and an existing page is kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Literal

from kmip_data.builds.added_columns import find_encoding, read_added_column_card
from kmip_data.builds.home import COLUMNS_FOLDER, Build, added_column_names
from kmip_data.errors import (
    Command,
    DamagedInput,
    KmipDataError,
    LicenseNotAccepted,
    Step,
    UsageError,
)
from kmip_data.files.atomic_writes import final_name, folder_lock
from kmip_data.files.folder_marker import PICTURE_NAME
from kmip_data.format.build_files import PAGE_NAME, has_picture, metadata_files
from kmip_data.format.card import CARD_NAME, NAME_RULE, Card, is_path_component
from kmip_data.format.card_page import render_card
from kmip_data.manifest import dataset_names, load_manifest
from kmip_data.runtime.progress import Progress, print_status
from kmip_data.sharing.push_index import MAX_FILES, SHARE_NAME, PushedFile, PushIndex
from kmip_data.sharing.remote import Remote, read_blocks

#: Identifiers of licenses on the hub. Other licenses are described by name and link.
_LICENSES = {
    "CC BY 4.0": "cc-by-4.0",
    "CC BY-NC 4.0": "cc-by-nc-4.0",
    "MIT": "mit",
    "ODbL 1.0": "odbl",
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
        card_text = columns.to_json().encode()
        expected_digests[f"{folder}/{CARD_NAME}"] = hashlib.sha256(card_text).hexdigest()

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
            steps=[
                "others can build it",
                Command("kmip-data build", card.manifest or card.dataset),
            ],
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

    1. Write ``share.json`` without files, which marks the address. An address without an index must
       be empty except for a page; an address of another build or run is refused.
    2. Write files that are missing or have another digest; other existing files are kept. The digests
       come from the earlier index. If it is unfinished or equal, the existing files are read instead.
    3. Write ``share.json`` with all files. Without it, nobody can pull an incomplete push.

    The same call therefore resumes an interrupted push and repairs a damaged one. ``source`` is the
    pushed folder; ``content`` maps each file to its bytes or path, ``expected_digests`` to the
    SHA-256 (hex) that it must have.

    Raises ``DamagedInput`` if a file of ``source`` is missing or has another digest; ``UsageError``
    if the address holds something else or is not writable; ``SourceUnavailable`` if writing fails.
    """
    remote = _open_push_address(address, kind, source)
    files = _describe_files(kind, source, content, expected_digests or {})
    index = PushIndex(kind=kind, name=source.name, key=key, files=files)
    with contextlib.ExitStack() as stack:
        if remote.folder is not None:
            stack.enter_context(folder_lock(remote.folder, quiet=quiet))
        _write_changed_files(remote, index, content, quiet=quiet)
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


def _write_changed_files(
    remote: Remote,
    index: PushIndex,
    content: Mapping[str, Path | bytes],
    *,
    quiet: bool,
) -> None:
    """Write the files of ``content`` that are missing or differ, in order, and the index."""
    existing = dict(remote.list_files())
    earlier = _earlier_index(remote, index, existing)
    is_same = earlier is not None and earlier.computed_digest == index.computed_digest
    known_digests = {}
    if earlier is not None and not is_same:
        known_digests = {entry.file: entry.sha256 for entry in earlier.files}

    # 1. Select files that are missing or differ.
    changed = []
    for entry in index.files:
        digest = None
        if existing.get(entry.file) == entry.bytes:
            digest = known_digests.get(entry.file) or _remote_digest(remote, entry)
        if digest != entry.sha256:
            changed.append(entry.file)
    if PAGE_NAME not in existing:
        changed.append(PAGE_NAME)
    elif changed:
        print_status(f"{remote.address}/{PAGE_NAME} exists and is kept.")
    if is_same and not changed:
        return

    # 2. Write them after an index without files and before the complete one, so that nobody pulls an
    # incomplete push.
    sizes = {entry.file: entry.bytes for entry in index.files}
    total = sum(sizes.get(name, 0) for name in changed)
    with (
        remote.batch_writes(f"Push {index.name} with kmip-data") as is_one_commit,
        Progress(f"push {index.name}", total, unit="B", quiet=quiet) as progress,
    ):
        if not is_one_commit:
            unfinished = index.model_copy(update={"files": []})
            remote.write_file(SHARE_NAME, unfinished.to_json().encode())
        for name in changed:
            remote.write_file(name, content[name])
            progress.update(sizes.get(name, 0))
        remote.write_file(SHARE_NAME, index.to_json().encode())


def _earlier_index(remote: Remote, index: PushIndex, existing: Iterable[str]) -> PushIndex | None:
    """Return the index of an earlier push of the same build or run, or ``None`` without one.

    Raises ``UsageError`` if the address holds something else.
    """
    try:
        earlier = remote.read_index()
    except DamagedInput as error:
        raise _occupied_address_error(remote, index, f"a damaged {SHARE_NAME}") from error
    if earlier is not None and (earlier.kind, earlier.key) != (index.kind, index.key):
        contents = f"{SHARE_NAME} of the {earlier.kind} with key {earlier.key}"
        raise _occupied_address_error(remote, index, contents)

    pushed = {SHARE_NAME, PAGE_NAME, *(entry.file for entry in index.files)}
    others = []
    for name in sorted(existing):
        is_half_written = remote.folder is not None and final_name(name) is not None
        if not is_half_written and (name not in pushed or earlier is None):
            others.append(name)
    names = ", ".join(others[:5])
    if earlier is None and set(others) - {PAGE_NAME}:
        raise _occupied_address_error(remote, index, names)
    if earlier is not None and others:
        print_status(f"{remote.address} also holds other files, which are kept: {names}")
    return earlier


def _remote_digest(remote: Remote, entry: PushedFile) -> str | None:
    """Read an existing file completely and return its SHA-256 (hex)."""
    digest = hashlib.sha256()
    try:
        for block in remote.stream(entry.file, entry.bytes):
            digest.update(block)
    except KmipDataError:
        return None
    return digest.hexdigest()


def _occupied_address_error(remote: Remote, index: PushIndex, content: str) -> UsageError:
    return UsageError(
        f"{remote.address} holds something else.",
        expected=f"nothing, or an earlier push of the {index.kind} {index.name}",
        found=content,
        steps="use another address",
    )


def _describe_files(
    kind: Literal["build", "run"],
    folder: Path,
    content: Mapping[str, Path | bytes],
    expected_digests: Mapping[str, str],
) -> list[PushedFile]:
    """Read every file once and return its entry of the index, which does not list the page."""
    if len(content) > MAX_FILES:
        raise UsageError(f"{folder} has {len(content):,} files; a push has at most {MAX_FILES:,}.")
    remedy: Step = "restore the file: the run's result.json has its digest"
    if kind == "build":
        remedy = Command("kmip-data verify {} --repair", folder)
    files = []
    for file, source in content.items():
        if file == PAGE_NAME:
            continue
        hasher = hashlib.sha256()
        size = 0
        try:
            for block in read_blocks(source):
                hasher.update(block)
                size += len(block)
        except OSError as error:
            raise DamagedInput(f"{folder / file} cannot be read: {error}", steps=remedy) from error
        digest = hasher.hexdigest()
        if expected_digests.get(file, digest) != digest:
            raise DamagedInput(
                f"{folder / file} was changed after it was written.",
                expected=f"SHA-256 {expected_digests[file]}",
                found=digest,
                steps=remedy,
            )
        files.append(PushedFile(file=file, sha256=digest, bytes=size))
    return files


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
