"""Pull a build or a run from an address into a folder.

The card of a build, or the configuration of a run, is written last. Pushed files are untrusted: each
block is verified before it is written.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path, PurePosixPath

from kmip_data.builds.added_columns import read_added_column_card, shards_digest
from kmip_data.builds.home import COLUMNS_FOLDER, Build, Home
from kmip_data.errors import DamagedInput, SourceUnavailable
from kmip_data.files.atomic_writes import (
    PARTIAL_SUFFIX,
    build_marker_content,
    create_marked_folder,
    folder_lock,
    open_resumable_file,
    refuse_link,
    write_all,
    write_output,
)
from kmip_data.files.folder_marker import PICTURE_NAME
from kmip_data.files.path_errors import (
    absolute_path,
    convert_write_errors,
    occupied_error,
    require_disk_space,
)
from kmip_data.files.small_files import MAX_BYTES, sha256_file
from kmip_data.format.build_files import has_picture, make_read_only, metadata_files, write_card
from kmip_data.format.card import CARD_NAME, Card, read_card
from kmip_data.runtime.progress import Progress
from kmip_data.sharing.push_metadata import (
    BLOCK_BYTES,
    RUN_FILES,
    PushedFile,
    PushIndex,
    damaged_error,
    parse_pushed,
)
from kmip_data.sharing.remote import Remote, make_parent_folder, read_exactly, read_push_index

_MAX_TRIES = 5  #: maximum number of tries per file


@dataclass(frozen=True)
class PullResult:
    """Result of a pull: folder, index, card and files."""

    path: Path
    push_index: PushIndex
    card: Card | None  #: card of a build; ``None`` for a run
    files: list[str]  #: relative to ``path``
    was_complete: bool  #: True if nothing had to be written


def pull(
    address: str,
    home: Home,
    *,
    output: Path | None = None,
    quiet: bool = False,
) -> PullResult:
    """Download the push at ``address`` and verify all digests; resumes an interrupted pull.

    The default of ``output`` is a folder of the push's name, in ``home`` for a build and in the
    working directory for a run, because runs in ``home`` count as the user's own.

    Raises ``UsageError`` if nothing was pushed there, a name is wrong, or the folder holds something
    else; ``DamagedInput`` if data differ from the push; ``SourceUnavailable`` or ``OutOfResources``
    if the address cannot be reached or the disk is full: the same call resumes.
    """
    push = RemotePush(address)
    is_run = push.index.kind == "run"

    if output is None:
        parent = Path.cwd() if is_run else home.built
        folder = parent / push.index.name
        if not (folder / CARD_NAME).is_file():  # do not follow a link that the user did not name
            refuse_link(folder)
    else:
        folder = absolute_path(output, "folder")
    with convert_write_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
    with folder_lock(folder, quiet=quiet):
        if is_run:
            return _pull_run(push, folder, quiet=quiet)
        return _pull_build(push, folder, quiet=quiet)


def _pull_build(
    push: RemotePush,
    folder: Path,
    *,
    quiet: bool,
) -> PullResult:
    card = _read_checked_card(push)
    entries = push.entries

    # 1. List the added columns.
    names = [PurePosixPath(file).parts[1] for file in entries if _is_column_card(file)]
    added = {}
    for name in sorted(names):
        prefix = f"{COLUMNS_FOLDER}/{name}/"
        added[name] = [entry for entry in entries.values() if entry.file.startswith(prefix)]

    # 2. Copy the files. An existing copy may have other splits by now: keep them.
    create_marked_folder(folder, build_marker_content(card.key))
    existing_card = _existing_card(folder, card)
    files = [entries[name] for name in card.digests]
    if existing_card is not None:
        files = [entry for entry in files if existing_card.digests.get(entry.file) == entry.sha256]
    for column_entries in added.values():
        files += sorted(column_entries, key=lambda entry: _is_column_card(entry.file))
    copied_files = push.copy_files(files, folder, quiet=quiet)

    # 3. Write the card last.
    for file in card.files:
        make_read_only(folder / file)
    picture = [PICTURE_NAME] if PICTURE_NAME in entries else []
    if picture and not os.path.lexists(folder / PICTURE_NAME):
        write_output(folder / PICTURE_NAME, push.read(PICTURE_NAME))
    wrote_metadata = _write_metadata(folder, existing_card or card)
    for name in added:
        read_added_column_card(Build(folder, card), name)
    return PullResult(
        path=folder,
        push_index=push.index,
        card=card,
        files=[*(entry.file for entry in files), *picture, *metadata_files(card)],
        was_complete=not copied_files and not wrote_metadata,
    )


def _is_column_card(file: str) -> bool:
    return PurePosixPath(file).match(f"{COLUMNS_FOLDER}/*/{CARD_NAME}")


def _existing_card(folder: Path, card: Card) -> Card | None:
    """Return the card of a finished copy; ``None`` if it is missing or damaged.

    Raises ``UsageError`` if it belongs to other shards.
    """
    if not (folder / CARD_NAME).is_file():
        return None
    try:
        existing_card = read_card(folder)
    except DamagedInput:
        return None
    if shards_digest(existing_card) != shards_digest(card):
        raise occupied_error(folder, "the pushed shards", "other shards with the same key")
    return existing_card


def _write_metadata(folder: Path, card: Card) -> bool:
    """Write page, Croissant and card unless all exist unchanged; return True if they were written."""
    for name, data in metadata_files(card, picture=has_picture(folder)).items():
        refuse_link(folder / name)
        with contextlib.suppress(OSError):
            if (folder / name).read_bytes() == data:
                continue
        write_card(folder, card)
        return True
    return False


def _read_checked_card(push: RemotePush) -> Card:
    """Return the card of a push, after comparing its digests with the index."""
    address = f"{push.remote.address}/{CARD_NAME}"
    card = parse_pushed(push.read(CARD_NAME), Card, address)
    for name, digest in card.digests.items():
        if name not in push.entries or push.entries[name].sha256 != digest:
            expected = f"the digest of the pushed file {name}"
            raise damaged_error(address, expected, f"SHA-256 {digest}")
    return card


def _pull_run(push: RemotePush, folder: Path, *, quiet: bool) -> PullResult:
    entries = push.entries
    unexpected = sorted(entries.keys() - set(RUN_FILES))
    if unexpected:
        raise damaged_error(
            push.remote.address,
            f"a run of {', '.join(RUN_FILES)}",
            ", ".join(unexpected[:5]),
        )
    files = [entries[name] for name in RUN_FILES if name in entries]
    create_marked_folder(folder, f"run {push.index.digest[:12]}")
    copied_files = push.copy_files(files, folder, quiet=quiet)
    return PullResult(
        path=folder,
        push_index=push.index,
        card=None,
        files=list(entries),
        was_complete=not copied_files,
    )


class RemotePush:
    """An untrusted push at an address; its constructor raises the errors of :func:`read_push_index`."""

    def __init__(self, address: str) -> None:
        self.remote = Remote(address)
        self.index, self.digests = read_push_index(self.remote)
        self.entries = {entry.file: entry for entry in self.index.files}

    def read(self, file: str) -> bytes:
        """Return the bytes of a small file."""
        entry = self.entries.get(file)
        if entry is None or entry.bytes > MAX_BYTES:
            raise damaged_error(
                self.remote.address,
                f"{file}, of at most {MAX_BYTES:,} bytes",
                "none",
            )
        data = b"".join(self.remote.read_pieces(file, 0, entry.bytes))
        self.digests.check(file, 0, data)
        return data

    def copy_files(
        self,
        files: Sequence[PushedFile],
        folder: Path,
        *,
        quiet: bool,
    ) -> int:
        """Copy the missing files into ``folder``, in this order, and return their number.

        Verified bytes are kept as ``.SHA-256.partial``, and the next call resumes from them. This
        conflicts with no pushed name, because none begins with a dot.
        """
        # Check all folders before writing: a link could lead out of ``folder``.
        for entry in files:
            make_parent_folder(entry.file, folder)
        missing = [entry for entry in files if not is_intact_file(folder / entry.file, entry)]
        total = sum(entry.bytes for entry in missing)
        require_disk_space(folder, total, f"The rest of {self.remote.address}")
        with Progress(
            f"pull {self.index.name}",
            total,
            unit="B",
            quiet=quiet,
        ) as progress:
            for entry in missing:
                path = folder / entry.file
                partial = f".{entry.sha256}{PARTIAL_SUFFIX}"
                with open_resumable_file(path, partial, root=folder) as file:
                    self._append_missing_bytes(file, entry, progress)
        return len(missing)

    def _append_missing_bytes(self, file: FileIO, entry: PushedFile, progress: Progress) -> None:
        """Append the missing bytes of a file, and retry if the source is unavailable."""
        start = self._verified_bytes(file, entry)
        progress.update(start)
        for tries_left in reversed(range(_MAX_TRIES)):
            try_start = start
            try:
                file.seek(start)
                for piece in self.remote.read_pieces(entry.file, start, entry.bytes):
                    self.digests.check(entry.file, start // BLOCK_BYTES, piece)
                    write_all(file.fileno(), piece)
                    start += len(piece)
                    progress.update(len(piece))
                break
            except SourceUnavailable:
                if not tries_left:
                    raise
                # Without new bytes, the server may not support ranges: start from the beginning.
                if start == try_start:
                    progress.update(-start)
                    start = 0

        file.truncate(entry.bytes)
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != entry.sha256:
            raise damaged_error(
                f"{self.remote.address}/{entry.file}", f"SHA-256 {entry.sha256}", digest
            )

    def _verified_bytes(self, file: FileIO, entry: PushedFile) -> int:
        """Return the number of leading bytes of a previous try that form verified blocks."""
        size = 0
        while size < entry.bytes:
            block = read_exactly(file, min(BLOCK_BYTES, entry.bytes - size))
            if not block:
                break
            try:
                self.digests.check(entry.file, size // BLOCK_BYTES, block)
            except DamagedInput:
                break
            size += len(block)
        return size


def is_intact_file(path: Path, entry: PushedFile) -> bool:
    """True if ``path`` is a regular file with the size and digest of ``entry``."""
    is_regular = path.is_file() and not path.is_symlink()
    return (
        is_regular and path.stat().st_size == entry.bytes and sha256_file(path)[0] == entry.sha256
    )
