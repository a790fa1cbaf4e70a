"""Pull a build or a run from an address into a folder; the card, or the configuration, comes last.

Files of a push are untrusted: they are copied block by block, each one verified before it is
written.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path, PurePosixPath

from kmip_data.builds.added_columns import read_columns_card, shards_digest
from kmip_data.builds.home import COLUMNS, Build, Home
from kmip_data.errors import DamagedInput, SourceUnavailable, UsageError, unknown_name_error
from kmip_data.files.atomic_writes import (
    PARTIAL,
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
    require_room,
)
from kmip_data.files.reading import MAX_BYTES, sha256_file
from kmip_data.format.build_files import has_picture, make_read_only, metadata_files, write_card
from kmip_data.format.card import CARD_NAME, Card, read_card
from kmip_data.runtime.progress import Progress
from kmip_data.sharing.push_files import (
    BLOCK,
    RUN_FILES,
    Share,
    SharedFile,
    damaged_error,
    parse_pushed,
)
from kmip_data.sharing.remote import Remote, make_folder_of, read_exactly, read_share

_TRIES = 5  #: tries for one file


@dataclass(frozen=True)
class Pulled:
    """Result of a pull: folder, manifest, card and files."""

    path: Path
    share: Share
    card: Card | None  #: card of a build; ``None`` for a run
    files: list[str]  #: relative to ``path``
    was_complete: bool  #: True if nothing was missing before


def pull(
    address: str,
    home: Home,
    *,
    output: Path | None = None,
    columns: Sequence[str] | None = None,
    quiet: bool = False,
) -> Pulled:
    """Download what was pushed to ``address``, checking every digest.

    A pull that was stopped is resumed.

    It goes to the folder ``output``; by default a build goes to its name below ``home``, and a run to
    its name in the working directory, because runs below ``home`` count as the user's own.
    ``columns`` selects added columns, by default all; shards hold the stored ones.

    Raises ``UsageError`` where nothing was pushed there, a name is wrong, or the folder holds
    something else; ``DamagedInput`` where something is not what was pushed; ``SourceUnavailable``
    or ``OutOfResources`` where the address cannot be reached, or the disk is full: the same call
    resumes.
    """
    received = Received(address)
    is_run = received.share.kind == "run"
    if is_run and columns is not None:
        raise UsageError(f"{received.remote.address} is a run, which has no --columns.")

    if output is None:
        parent = Path.cwd() if is_run else home.built
        folder = parent / received.share.name
        if not (folder / CARD_NAME).is_file():  # the user did not choose this folder
            refuse_link(folder)
    else:
        folder = absolute_path(output, "folder")
    with convert_write_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
    with folder_lock(folder, quiet=quiet):
        if is_run:
            return _pull_run(received, folder, quiet=quiet)
        return _pull_build(received, folder, columns, quiet=quiet)


def _pull_build(
    received: Received,
    folder: Path,
    columns: Sequence[str] | None,
    *,
    quiet: bool,
) -> Pulled:
    card = _read_checked_card(received)
    entries = received.entries

    # 1. The added columns of the push, and the requested columns.
    names = [PurePosixPath(file).parts[1] for file in entries if _is_column_card(file)]
    added = {}
    for name in sorted(names):
        prefix = f"{COLUMNS}/{name}/"
        added[name] = [entry for entry in entries.values() if entry.file.startswith(prefix)]
    for name in columns or ():
        if name not in added:
            raise unknown_name_error(
                "added column",
                name,
                list(added),
                command="kmip-data pull ADDRESS",
            )
    wanted = [name for name in added if columns is None or name in columns]

    # 2. Refuse a folder of something else. A copy may have other splits by now: they stay.
    create_marked_folder(folder, build_marker_content(card.key))
    present = _present_card(folder, card)
    files = [entries[name] for name in card.digests]
    if present is not None:
        files = [entry for entry in files if present.digests.get(entry.file) == entry.sha256]
    for name in wanted:
        files += sorted(added[name], key=lambda entry: _is_column_card(entry.file))
    received_files = received.copy_files(files, folder, quiet=quiet)

    # 3. The card comes last.
    for file in card.files:
        make_read_only(folder / file)
    picture = [PICTURE_NAME] if PICTURE_NAME in entries else []
    if picture and not os.path.lexists(folder / PICTURE_NAME):
        write_output(folder / PICTURE_NAME, received.read(PICTURE_NAME))
    finished = _write_texts(folder, present or card)
    for name in wanted:
        read_columns_card(Build(folder, card), name)
    return Pulled(
        path=folder,
        share=received.share,
        card=card,
        files=[*(entry.file for entry in files), *picture, *metadata_files(card)],
        was_complete=not received_files and not finished,
    )


def _is_column_card(file: str) -> bool:
    return PurePosixPath(file).match(f"{COLUMNS}/*/{CARD_NAME}")


def _present_card(folder: Path, card: Card) -> Card | None:
    """Return the card of a finished copy; ``None`` if it is missing or damaged.

    Raises ``UsageError`` where it belongs to other shards.
    """
    if not (folder / CARD_NAME).is_file():
        return None
    try:
        present = read_card(folder)
    except DamagedInput:
        return None
    if shards_digest(present) != shards_digest(card):
        raise occupied_error(folder, "the shards that were pushed", "others of the same key")
    return present


def _write_texts(folder: Path, card: Card) -> bool:
    """Write page, Croissant and card where one is missing or has other bytes; return True if so."""
    for name, data in metadata_files(card, picture=has_picture(folder)).items():
        refuse_link(folder / name)
        with contextlib.suppress(OSError):
            if (folder / name).read_bytes() == data:
                continue
        write_card(folder, card)
        return True
    return False


def _read_checked_card(received: Received) -> Card:
    """Return the card of a push, after checking that the files it names are the pushed files."""
    address = f"{received.remote.address}/{CARD_NAME}"
    card = parse_pushed(received.read(CARD_NAME), Card, address)
    for name, digest in card.digests.items():
        if name not in received.entries or received.entries[name].sha256 != digest:
            expected = f"a card of the files next to it: {name}"
            raise damaged_error(address, expected, f"one of SHA-256 {digest}")
    return card


def _pull_run(received: Received, folder: Path, *, quiet: bool) -> Pulled:
    entries = received.entries
    others = sorted(entries.keys() - set(RUN_FILES))
    if others:
        raise damaged_error(
            received.remote.address,
            f"a run of {', '.join(RUN_FILES)}",
            ", ".join(others[:5]),
        )
    files = [entries[name] for name in RUN_FILES if name in entries]
    create_marked_folder(folder, f"run {received.share.digest[:12]}")
    received_files = received.copy_files(files, folder, quiet=quiet)
    return Pulled(
        path=folder,
        share=received.share,
        card=None,
        files=list(entries),
        was_complete=not received_files,
    )


class Received:
    """A push at an address, untrusted; raises as :func:`read_share`."""

    def __init__(self, address: str) -> None:
        self.remote = Remote(address)
        self.share, self.digests = read_share(self.remote)
        self.entries = {entry.file: entry for entry in self.share.files}

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
        files: Sequence[SharedFile],
        folder: Path,
        *,
        quiet: bool,
    ) -> int:
        """Copy files into ``folder``, in this order, and return how many.

        Complete ones stay as they are. What was verified stays on disk as ``.SHA-256.partial``,
        and the next call resumes from it; no name in a push begins with a dot.
        """
        for entry in files:  # all of them first: a link could lead out of the folder
            make_folder_of(entry.file, folder)
        missing = [entry for entry in files if not is_intact_file(folder / entry.file, entry)]
        total = sum(entry.bytes for entry in missing)
        require_room(folder, total, f"The missing part of {self.remote.address}")
        with Progress(
            f"pull {self.share.name}",
            total,
            unit="B",
            quiet=quiet,
        ) as progress:
            for entry in missing:
                path = folder / entry.file
                partial = f".{entry.sha256}{PARTIAL}"
                with open_resumable_file(path, partial, root=folder) as file:
                    self._append_missing_bytes(file, entry, progress)
        return len(missing)

    def _append_missing_bytes(self, file: FileIO, entry: SharedFile, progress: Progress) -> None:
        """Append what is missing of a file, in a few tries."""
        start = self._verified_bytes(file, entry)
        progress.update(start)
        for left in reversed(range(_TRIES)):
            begun = start
            try:
                file.seek(start)
                for piece in self.remote.read_pieces(entry.file, start, entry.bytes):
                    self.digests.check(entry.file, start // BLOCK, piece)
                    write_all(file.fileno(), piece)
                    start += len(piece)
                    progress.update(len(piece))
                break
            except SourceUnavailable:
                if not left:
                    raise
                # No new bytes: the server may not support ranges, so start from the beginning.
                if start == begun:
                    progress.update(-start)
                    start = 0

        file.truncate(entry.bytes)
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != entry.sha256:
            raise damaged_error(
                f"{self.remote.address}/{entry.file}", f"SHA-256 {entry.sha256}", digest
            )

    def _verified_bytes(self, file: FileIO, entry: SharedFile) -> int:
        """Return the bytes of an earlier try that are verified blocks from the beginning."""
        size = 0
        while size < entry.bytes:
            block = read_exactly(file, min(BLOCK, entry.bytes - size))
            if not block:
                break
            try:
                self.digests.check(entry.file, size // BLOCK, block)
            except DamagedInput:
                break
            size += len(block)
        return size


def is_intact_file(path: Path, entry: SharedFile) -> bool:
    """True if a regular file exists with the right bytes."""
    regular = path.is_file() and not path.is_symlink()
    return regular and path.stat().st_size == entry.bytes and sha256_file(path)[0] == entry.sha256
