"""Pull a build or a run from an address into a folder.

The card of a build, or the configuration of a run, is written last. Pushed files are untrusted: each
gets its name only after its digest was verified.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from kmip_data.builds.added_columns import read_added_column_card, shards_digest
from kmip_data.builds.home import COLUMNS_FOLDER, Build, Home
from kmip_data.errors import DamagedInput, SourceUnavailable, UsageError
from kmip_data.files.atomic_writes import (
    build_marker_content,
    create_marked_folder,
    folder_lock,
    refuse_link,
    write_file,
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
from kmip_data.runtime import http_client
from kmip_data.runtime.progress import Progress, print_status
from kmip_data.sharing.push_index import (
    RUN_FILES,
    SHARE_NAME,
    PushedFile,
    PushIndex,
    damaged_error,
    parse_pushed,
)
from kmip_data.sharing.remote import Remote, make_parent_folder
from kmip_data.text import human_bytes

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
    """Download the push at ``address`` with :meth:`RemotePush.pull`."""
    return RemotePush(address).pull(home, output=output, quiet=quiet)


class RemotePush:
    """An untrusted push at an address: its index and, of a build, its card.

    Raises ``UsageError`` if nothing was pushed there; ``DamagedInput`` if index or card differ from
    the push; ``SourceUnavailable`` if the address cannot be reached.
    """

    def __init__(self, address: str) -> None:
        self.remote = Remote(address)
        index = self.remote.read_index()
        if index is None or not index.files:
            problem = f"has no {SHARE_NAME}: nothing was pushed there"
            if index is not None:
                problem = f"has an unfinished push of the {index.kind} {index.name}"
            raise UsageError(
                f"{self.remote.address} {problem}.",
                steps="correct the address, which must be the pushed folder; "
                "or ask whoever pushed to push again",
            )
        self.index = index
        self.entries = {entry.file: entry for entry in index.files}
        self.card: Card | None = None
        if index.kind == "build":
            self.card = self._read_checked_card()
        elif unexpected := sorted(self.entries.keys() - set(RUN_FILES)):
            raise damaged_error(
                self.remote.address,
                f"a run of {', '.join(RUN_FILES)}",
                ", ".join(unexpected[:5]),
            )

    def _read_checked_card(self) -> Card:
        """Return the card, after comparing its digests with the index."""
        address = f"{self.remote.address}/{CARD_NAME}"
        card = parse_pushed(self._read(CARD_NAME), Card, address)
        for name, digest in card.digests.items():
            if name not in self.entries or self.entries[name].sha256 != digest:
                expected = f"the digest of the pushed file {name}"
                raise damaged_error(address, expected, f"SHA-256 {digest}")
        return card

    def _read(self, file: str) -> bytes:
        """Return the bytes of a small file."""
        entry = self.entries.get(file)
        if entry is None or entry.bytes > MAX_BYTES:
            raise damaged_error(
                self.remote.address, f"{file}, of at most {MAX_BYTES:,} bytes", "none"
            )
        return b"".join(self._stream(entry))

    def pull(
        self,
        home: Home,
        *,
        output: Path | None = None,
        verify: bool = True,
        quiet: bool = False,
    ) -> PullResult:
        """Download and verify the files; the same call resumes with the first missing file.

        The default of ``output`` is a folder of the push's name, in ``home`` for a build and in the
        working directory for a run, because runs in ``home`` count as the user's own. Without
        ``verify``, existing files of the right size are not read again.

        Raises ``UsageError`` if the folder holds something else; ``DamagedInput`` if data differ from
        the push; ``SourceUnavailable`` or ``OutOfResources`` if the address cannot be reached or the
        disk is full.
        """
        if output is None:
            parent = Path.cwd() if self.card is None else home.built
            folder = parent / self.index.name
            # Do not follow a link that the user did not name.
            if not (folder / CARD_NAME).is_file():
                refuse_link(folder)
        else:
            folder = absolute_path(output, "folder")
        with convert_write_errors(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
        with folder_lock(folder, quiet=quiet):
            if self.card is None:
                return self._pull_run(folder, verify=verify, quiet=quiet)
            return self._pull_build(folder, self.card, verify=verify, quiet=quiet)

    def _pull_build(self, folder: Path, card: Card, *, verify: bool, quiet: bool) -> PullResult:
        # 1. List the files of the added columns, with their cards last.
        paths = {entry.file: PurePosixPath(entry.file) for entry in self.index.files}
        column_folders = {
            path.parent for path in paths.values() if path.match(f"{COLUMNS_FOLDER}/*/{CARD_NAME}")
        }
        columns = [file for file, path in paths.items() if path.parent in column_folders]
        columns.sort(key=lambda file: paths[file].name == CARD_NAME)

        # 2. Copy the files. An existing copy may have other splits by now: keep them.
        create_marked_folder(folder, build_marker_content(card.key))
        existing_card = _existing_card(folder, card)
        files = [self.entries[name] for name in card.digests]
        if existing_card is not None:
            digests = existing_card.digests
            files = [entry for entry in files if digests.get(entry.file) == entry.sha256]
        files += [self.entries[file] for file in columns]
        copied_files = self._copy_files(files, folder, verify=verify, quiet=quiet)

        # 3. Write the card last.
        for file in card.files:
            make_read_only(folder / file)
        picture = [PICTURE_NAME] if PICTURE_NAME in self.entries else []
        if picture and not os.path.lexists(folder / PICTURE_NAME):
            write_output(folder / PICTURE_NAME, self._read(PICTURE_NAME))
        wrote_metadata = _write_metadata(folder, existing_card or card)
        for column_folder in column_folders:
            read_added_column_card(Build(folder, card), column_folder.name)
        return PullResult(
            path=folder,
            push_index=self.index,
            card=card,
            files=[*(entry.file for entry in files), *picture, *metadata_files(card)],
            was_complete=not copied_files and not wrote_metadata,
        )

    def _pull_run(self, folder: Path, *, verify: bool, quiet: bool) -> PullResult:
        files = [self.entries[name] for name in RUN_FILES if name in self.entries]
        create_marked_folder(folder, f"run {self.index.digest[:12]}")
        copied_files = self._copy_files(files, folder, verify=verify, quiet=quiet)
        return PullResult(
            path=folder,
            push_index=self.index,
            card=None,
            files=list(self.entries),
            was_complete=not copied_files,
        )

    def _copy_files(
        self, files: Sequence[PushedFile], folder: Path, *, verify: bool, quiet: bool
    ) -> int:
        """Copy the missing files into ``folder``, in this order, and return their number."""
        # Check all folders before writing: a link could lead out of ``folder``.
        for entry in files:
            make_parent_folder(entry.file, folder)
        missing = [
            entry for entry in files if not _is_intact(folder / entry.file, entry, verify=verify)
        ]
        total = sum(entry.bytes for entry in missing)
        require_disk_space(folder, total, f"The rest of {self.remote.address}")
        if missing and not quiet:
            print_status(f"{human_bytes(total)} from {self.remote.address} to {folder}")
        with Progress(f"pull {self.index.name}", total, unit="B", quiet=quiet) as progress:
            for entry in missing:
                self._copy_file(entry, folder, progress)
        return len(missing)

    def _copy_file(self, entry: PushedFile, folder: Path, progress: Progress) -> None:
        """Write one file as it arrives, and retry after temporary failures."""
        for attempt in itertools.count(1):
            try:
                write_file(folder / entry.file, self._stream(entry, progress), root=folder)
                return
            except SourceUnavailable as error:
                if attempt == _MAX_TRIES or not getattr(error.__cause__, "retry", False):
                    raise
                pause = http_client.RETRY_DELAY_SECONDS * 2 ** (attempt - 1)
                time.sleep(getattr(error.__cause__, "wait", None) or pause)

    def _stream(self, entry: PushedFile, progress: Progress | None = None) -> Iterator[bytes]:
        """Yield a file in blocks; ``DamagedInput`` at its end if its digest differs."""
        digest = hashlib.sha256()
        size = 0
        for block in self.remote.stream(entry.file, entry.bytes):
            digest.update(block)
            size += len(block)
            if progress is not None:
                progress.update(len(block))
            yield block
        if digest.hexdigest() != entry.sha256:
            raise damaged_error(
                f"{self.remote.address}/{entry.file}",
                f"{entry.bytes:,} bytes of SHA-256 {entry.sha256}",
                f"{size:,} bytes of SHA-256 {digest.hexdigest()}",
            )


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


def _is_intact(path: Path, entry: PushedFile, *, verify: bool) -> bool:
    """True if ``path`` is a regular file with the size and, to ``verify``, the digest of ``entry``."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size != entry.bytes:
        return False
    return not verify or sha256_file(path)[0] == entry.sha256
