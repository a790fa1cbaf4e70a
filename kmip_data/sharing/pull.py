"""Pull a build or a run from an address into a folder; the card, or the configuration, comes last.

Files of a push are untrusted: they are copied block by block, each one verified before it is written.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path, PurePosixPath
from typing import Final

from kmip_data.builds.columns import read_columns, shards_digest
from kmip_data.builds.home import COLUMNS, Build, Home
from kmip_data.errors import (
    DamagedInput,
    SourceUnavailable,
    UsageError,
    located,
    occupied,
    require_room,
    writing,
)
from kmip_data.files.changes import (
    PARTIAL,
    build_lock,
    continued_file,
    has_size,
    refuse_link,
    remove_file,
    write_all,
)
from kmip_data.files.reading import MAX_BYTES, first_fault, read_small, sha256_file
from kmip_data.format.build_files import PAGE_NAME, card_files, protect, write_card
from kmip_data.format.card import CARD_NAME, CARD_VERSION, Card, read_card
from kmip_data.manifest import unknown_name
from kmip_data.runtime.progress import Progress
from kmip_data.sharing.remote import Remote, exactly, folder_for, read_share
from kmip_data.sharing.share import BLOCK, RUN_FILES, RUN_PROOF, Share, SharedFile, damaged

UNFINISHED: Final = "a new folder, or the same pull unfinished"
_TRIES: Final = 5  #: tries for one file, each of which must bring something


@dataclass(frozen=True)
class Pulled:
    """Result of a pull."""

    path: Path
    share: Share
    card: Card | None  #: of a build
    files: list[str]  #: relative to ``path``
    there: bool  #: everything was there already


def pull(
    address: str,
    home: Home,
    *,
    to: Path | None = None,
    columns: Sequence[str] | None = None,
    quiet: bool = False,
) -> Pulled:
    """Download what was pushed to ``address``, checking every digest; resume a pull that was stopped.

    It becomes the folder ``to``; by default that of its name below ``home``, and for a run in the working
    folder: only what lies below ``home`` is taken as the user's own. ``columns`` are the added ones to take,
    by default all; shards hold the stored ones.

    Raises ``UsageError`` where nothing was pushed there, a name is wrong, or the folder holds something else;
    ``DamagedInput`` where something is not what was pushed; ``SourceUnavailable`` or ``OutOfResources`` where
    the address cannot be reached, or the disk is full: the same call goes on.
    """
    received = Received(address)
    is_run = received.share.kind == "run"
    if is_run and columns is not None:
        raise UsageError(f"{received.remote.address} is a run, which has no --columns.")
    default = (Path.cwd() if is_run else home.built) / received.share.name
    folder = default if to is None else located(to, "folder")
    if to is None and not (folder / CARD_NAME).is_file():  # a place that nobody has named
        refuse_link(folder)
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
    with build_lock(folder, quiet=quiet):
        if is_run:
            return _pull_run(received, folder, quiet=quiet)
        return _pull_build(received, folder, columns, quiet=quiet)


def _pull_build(
    received: Received, folder: Path, columns: Sequence[str] | None, *, quiet: bool
) -> Pulled:
    card = _card(received)
    entries = received.entries
    added = {
        name: [entry for entry in entries.values() if entry.file.startswith(f"{COLUMNS}/{name}/")]
        for name in sorted(
            PurePosixPath(file).parts[1] for file in entries if _is_column_card(file)
        )
    }
    if unknown := [name for name in columns or () if name not in added]:
        raise unknown_name(
            "added column", unknown[0], list(added), command="kmip-data pull ADDRESS"
        )
    wanted = [name for name in added if columns is None or name in columns]
    files = [entries[name] for name in card.digests]
    there = _card_there(folder, card)
    if there is not None:  # it may have other splits by now, which are left as they are
        files = [entry for entry in files if there.digests.get(entry.file) == entry.sha256]
    # Without its card a folder is a copy if all data are those of the push: it was stopped, or damaged there.
    complete = all((folder / entry.file).is_file() for entry in files)  # before anything is hashed
    complete = complete and all(is_whole(folder / entry.file, entry) for entry in files)
    if there is None and not complete:
        _refuse_others(folder, [*files, *itertools.chain(*added.values())])
    # A damaged file is replaced next to one that is whole: a card alone proves nothing.
    ours = _of_copy(folder, files) if there is not None else set()
    for name in wanted:  # the card of a column comes last
        group = sorted(added[name], key=lambda entry: _is_column_card(entry.file))
        ours |= _of_copy(folder, group) if there is not None else set()
        files += group
    came = received.take(files, folder, ours=ours, quiet=quiet)
    for file in card.files:
        protect(folder / file)
    came += _end(folder, there or card)
    for name in wanted:
        read_columns(Build(folder, card), name)
    return Pulled(folder, received.share, card, [entry.file for entry in files], not came)


def _of_copy(folder: Path, files: Sequence[SharedFile]) -> set[str]:
    """Return the names of files that are mended together: all, if one of them has its size, else none."""
    for entry in files:
        path = folder / entry.file
        if path.is_file() and path.stat().st_size == entry.bytes > 0:
            return {entry.file for entry in files}
    return set()


def _is_column_card(file: str) -> bool:
    return PurePosixPath(file).match(f"{COLUMNS}/*/{CARD_NAME}")


def _card_there(folder: Path, card: Card) -> Card | None:
    """Return the card of a finished copy; ``None`` without one, or where it is not what was written.

    Raises ``UsageError`` where it is that of another build.
    """
    if not os.path.lexists(folder / CARD_NAME):
        return None
    try:
        there = read_card(folder)
        sound = there.to_json().encode() == read_small(folder / CARD_NAME)
    except DamagedInput:
        return None
    if (there.key, shards_digest(there)) == (card.key, shards_digest(card)):
        return there if sound else None
    if not sound:
        return None
    raise occupied(
        folder, f"nothing, or the build of key {card.key}", f"build key {there.key}", "--to"
    )


def _end(folder: Path, card: Card) -> bool:
    """Write page, Croissant and card where they are missing; return True if one was.

    An empty card is replaced; one that was changed is in the way, and an edited text stays.
    """
    texts = card_files(card)
    for name in texts:
        refuse_link(folder / name)
    if has_size(folder / CARD_NAME, 0):
        remove_file(folder / CARD_NAME)
    missing = [name for name in texts if not os.path.lexists(folder / name)]
    write_card(folder, card)
    return bool(missing)


def _card(received: Received) -> Card:
    """Return the card of a push, once the files it names are those that were pushed."""
    where = f"{received.remote.address}/{CARD_NAME}"
    data = received.read(CARD_NAME)
    try:
        card = Card.model_validate_json(data)
    except (ValueError, RecursionError) as error:
        raise damaged(
            where, f"a JSON card of version {CARD_VERSION}", first_fault(error)
        ) from error
    for name, digest in card.digests.items():
        if name not in received.entries or received.entries[name].sha256 != digest:
            raise damaged(
                where, f"a card of the files next to it: {name}", f"one of SHA-256 {digest}"
            )
    if card.to_json().encode() != data:
        raise damaged(where, "the text that its content and digest give", "another")
    return card


def _refuse_others(folder: Path, own: Collection[SharedFile]) -> None:
    """Refuse a folder that holds more than an earlier pull of the same push left there."""
    known = {entry.file for entry in own} | {PAGE_NAME}
    known |= {str(PurePosixPath(entry.file).with_name(partial_name(entry))) for entry in own}
    there = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())
    others = (name for name in there if name not in known and not name.startswith(".lock"))
    if found := sorted(itertools.islice(others, 5)):  # of a folder that may hold a whole disk
        raise occupied(folder, UNFINISHED, ", ".join(found), "--to")


def _pull_run(received: Received, folder: Path, *, quiet: bool) -> Pulled:
    entries = received.entries
    if others := sorted(entries.keys() - set(RUN_FILES)):
        raise damaged(
            received.remote.address, f"a run of {', '.join(RUN_FILES)}", ", ".join(others[:5])
        )
    files = [entries[name] for name in RUN_FILES if name in entries]
    names = {entry.file for entry in files}
    # No other run has these weights or this result: the folder is a copy of the push.
    ours = any(is_whole(folder / entry.file, entry) for entry in files if entry.file in RUN_PROOF)
    if not ours:
        _refuse_others(folder, files)
    came = received.take(files, folder, ours=names if ours else set(), quiet=quiet)
    return Pulled(folder, received.share, None, list(entries), not came)


class Received:
    """A push at an address, untrusted; raises as :func:`read_share`."""

    def __init__(self, address: str) -> None:
        self.remote = Remote(address)
        self.share, self.digests = read_share(self.remote)
        # Earlier pushes list their page, which may have been edited since.
        listed = (entry for entry in self.share.files if entry.file != PAGE_NAME)
        self.entries = {entry.file: entry for entry in listed}

    def read(self, file: str) -> bytes:
        """Return the bytes of a small file."""
        entry = self.entries.get(file)
        if entry is None or entry.bytes > MAX_BYTES:
            raise damaged(self.remote.address, f"{file}, of at most {MAX_BYTES:,} bytes", "none")
        data = b"".join(self.remote.pieces(file, 0, entry.bytes))
        self.digests.check(file, 0, data)
        return data

    def take(
        self, files: Sequence[SharedFile], folder: Path, *, ours: Collection[str], quiet: bool
    ) -> int:
        """Bring files into ``folder``, in this order, and return how many came; whole ones stay as they are.

        A file of the same name with other bytes is replaced if it is among ``ours``, files of a copy of this
        push, and damaged rather than edited; else it is a ``UsageError``. What was verified stays on disk as
        ``.SHA-256.partial``, and the next call resumes from it; no name in a push begins with a dot.
        """
        for entry in files:  # all, for a file behind a link is not of this folder
            folder_for(entry.file, folder)
        missing = [entry for entry in files if not is_whole(folder / entry.file, entry)]
        others = []
        for entry in missing:
            with contextlib.suppress(FileNotFoundError):
                size = (folder / entry.file).lstat().st_size
                if entry.file not in ours or not entry.is_damaged(size):
                    others.append(entry.file)
        if others:
            raise occupied(folder, UNFINISHED, ", ".join(others[:5]), "--to")
        total = sum(entry.bytes for entry in missing)
        require_room(folder, total, f"What is missing of {self.remote.address}")
        with Progress(f"pull {self.share.name}", total, unit="B", quiet=quiet) as progress:
            for entry in missing:
                with continued_file(folder / entry.file, partial_name(entry), root=folder) as file:
                    self._complete(file, entry, progress)
        return len(missing)

    def _complete(self, file: FileIO, entry: SharedFile, progress: Progress) -> None:
        """Append what is missing of a file; each try must bring something."""
        start = self._verified(file, entry)
        progress.update(start)
        for left in reversed(range(_TRIES)):
            begun = start
            try:
                file.seek(start)
                for piece in self.remote.pieces(entry.file, start, entry.bytes):
                    self.digests.check(entry.file, start // BLOCK, piece)
                    write_all(file.fileno(), piece)
                    start += len(piece)
                    progress.update(len(piece))
                break
            except SourceUnavailable:
                if not left or start == 0:
                    raise
                if (
                    start == begun
                ):  # nothing comes behind the part that is here: the server knows no ranges
                    progress.update(-start)
                    start = 0
        file.truncate(entry.bytes)
        file.seek(0)
        if (found := hashlib.file_digest(file, "sha256").hexdigest()) != entry.sha256:
            raise damaged(f"{self.remote.address}/{entry.file}", f"SHA-256 {entry.sha256}", found)

    def _verified(self, file: FileIO, entry: SharedFile) -> int:
        """Return the bytes of an earlier try that are verified blocks from the beginning."""
        size = 0
        while size < entry.bytes and (block := exactly(file, min(BLOCK, entry.bytes - size))):
            try:
                self.digests.check(entry.file, size // BLOCK, block)
            except DamagedInput:
                break
            size += len(block)
        return size


def partial_name(entry: SharedFile) -> str:
    """Return the name of a file while it comes."""
    return f".{entry.sha256}{PARTIAL}"


def is_whole(path: Path, entry: SharedFile) -> bool:
    """True if a regular file exists with the right bytes."""
    regular = path.is_file() and not path.is_symlink()
    return regular and path.stat().st_size == entry.bytes and sha256_file(path)[0] == entry.sha256
