"""Pull a build or a run from an address into a folder; the card, or the configuration, comes last."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from kmip_data.builds.columns import COLUMNS, read_columns, shards_digest
from kmip_data.builds.home import Build, Home
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.files.changes import refuse_link
from kmip_data.files.errors import located, occupied, writing
from kmip_data.files.locking import build_lock
from kmip_data.files.reading import first_fault, read_small, readable_json
from kmip_data.format.build_files import protect, write_card
from kmip_data.format.card import CARD_NAME, CARD_VERSION, Card, read_card
from kmip_data.format.card_page import CROISSANT_NAME, PAGE_NAME, build_croissant, render_card
from kmip_data.manifest import unknown_name
from kmip_data.sharing.received import UNFINISHED, Received, is_whole, partial_name
from kmip_data.sharing.share import RUN_FILES, RUN_PROOF, Share, SharedFile, damaged


@dataclass(frozen=True)
class Pulled:
    """Result of a pull."""

    path: Path
    share: Share
    card: Card | None  #: of a build
    files: list[str]  #: requested files, relative to ``path``
    there: bool  #: everything was there already
    notes: list[str] = field(default_factory=list)  #: what was taken completely although a part was requested


def pull(
    address: str,
    home: Home,
    *,
    to: Path | None = None,
    split: str | None = None,
    columns: Sequence[str] | None = None,
    quiet: bool = False,
) -> Pulled:
    """Bring what was pushed to ``address`` here, every digest checked; a pull that was stopped goes on.

    It becomes the folder ``to``; by default that of its name below ``home``, and for a run in the working
    folder: only what lies below ``home`` is taken as the user's own. Shards hold the records of every
    ``split``, or part of one, so a note says that all came; ``columns`` are added ones to take (all by
    default), and a note says that stored ones lie in the shards.

    Raises ``UsageError`` where nothing was pushed there, a name is wrong, or the folder holds something else;
    ``DamagedInput`` where something is not what was pushed, or not what it claims to be;
    ``SourceUnavailable`` or ``OutOfResources`` where the address cannot be reached, or the disk is full: the
    same call goes on.
    """
    received = Received(address)
    name, kind = received.share.name, received.share.kind
    if kind == "run" and (split is not None or columns is not None):
        raise UsageError(
            f"{received.place.address} is a run, which is taken whole.",
            expected="a build with --columns",
            found="a run",
            next="the same command without them",
        )
    default = Path.cwd() / name if kind == "run" else home.built / name
    folder = default if to is None else located(to, "folder")
    if to is None and not (folder / CARD_NAME).is_file():  # a place that nobody has named
        refuse_link(folder)
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
    with build_lock(folder, quiet=quiet):
        if kind == "run":
            return _pull_run(received, folder, quiet=quiet)
        return _pull_build(received, folder, split, columns, quiet=quiet)


def _pull_build(
    received: Received, folder: Path, split: str | None, columns: Sequence[str] | None, *, quiet: bool
) -> Pulled:
    card = _card(received)
    entries = received.share.by_name()
    added = {name: _column_files(received, name) for name in _added(entries)}
    notes = _notes(card, list(added), split, columns)
    wanted = list(added) if columns is None else [name for name in added if name in columns]
    files = [entries[name] for name in card.digests]
    there = _card_there(folder, card)
    if there is not None:  # it may have other splits by now, which are left as they are
        files = [entry for entry in files if there.digests.get(entry.file) == entry.sha256]
    # Without its card a folder is a copy if all data are those of the push: it was stopped, or damaged there.
    complete = all((folder / entry.file).is_file() for entry in files)  # before anything is hashed
    ours = there is not None or (complete and all(is_whole(folder / entry.file, entry) for entry in files))
    if not ours:
        _refuse_others(folder, [*files, *(entry for column in added.values() for entry in column)])
    came = received.take(files, folder, ours=ours, quiet=quiet)
    for name in wanted:
        came += received.take(added[name], folder, ours=ours, quiet=quiet)
    for shard in card.shards:
        protect(folder / shard.file)
    came += _end(folder, there or card)
    for name in wanted:
        read_columns(Build(folder, card), name)
    names = [entry.file for entry in (*files, *(entry for name in wanted for entry in added[name]))]
    return Pulled(folder, received.share, card, names, not came, notes)


def _card_there(folder: Path, card: Card) -> Card | None:
    """Return the card of a finished copy; ``None`` without one, or where it is damaged.

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
        return there if sound else card
    if not sound:
        return None
    raise occupied(folder, f"nothing, or the build of key {card.key}", f"build key {there.key}", "--to")


def _end(folder: Path, card: Card) -> bool:
    """Write page, Croissant and card unless all are there; return whether they were written."""
    texts = {
        PAGE_NAME: render_card(card).encode(),
        CROISSANT_NAME: readable_json(build_croissant(card)).encode(),
        CARD_NAME: card.to_json().encode(),
    }
    for name, text in texts.items():
        refuse_link(folder / name)
        with contextlib.suppress(OSError):
            if read_small(folder / name, len(text)) == text:
                continue
        write_card(folder, card)
        return True
    return False


def _card(received: Received) -> Card:
    """Return the card of a push, once the files it names are those that were pushed."""
    where, data = f"{received.place.address}/{CARD_NAME}", received.read(CARD_NAME)
    try:
        card = Card.model_validate_json(data)
    except (ValueError, RecursionError) as error:
        raise damaged(where, f"a JSON card of version {CARD_VERSION}", first_fault(error)) from error
    entries = received.share.by_name()
    for name, digest in card.digests.items():
        if name not in entries or entries[name].sha256 != digest:
            raise damaged(where, f"a card of the files beside it: {name}", f"one of SHA-256 {digest}")
    if card.to_json().encode() != data:
        raise damaged(where, "the text that its content and digest give", "another")
    return card


def _added(files: dict[str, SharedFile]) -> list[str]:
    """Names of the added columns of a push: those that have a card."""
    parts = (file.split("/") for file in files)
    return sorted(part[1] for part in parts if part[0] == COLUMNS and part[2:] == [CARD_NAME])


def _column_files(received: Received, name: str) -> list[SharedFile]:
    """Return the files of an added column, its card last."""
    found = [entry for entry in received.share.files if entry.file.startswith(f"{COLUMNS}/{name}/")]
    return sorted(found, key=lambda entry: entry.file.endswith(f"/{CARD_NAME}"))


def _notes(card: Card, added: list[str], split: str | None, columns: Sequence[str] | None) -> list[str]:
    """Return notes on what cannot be taken in part; UsageError for an unknown name."""
    schema, notes = card.schema_, []
    stored = [column.attribute for column in schema.columns] + [view.attribute for view in schema.views]
    for name in columns or ():
        if name not in (*added, *stored):
            raise unknown_name("column", name, [*added, *stored], command="kmip-data pull ADDRESS")
    if set(columns or ()) & set(stored):
        notes.append(f"Shards hold all stored columns ({', '.join(stored)}): they are taken whole.")
    splits = [*card.splits, *{part for entry in card.splits.values() for part in entry.parts}]
    if split is not None and split not in splits:
        raise unknown_name("split", split, splits, command="kmip-data pull ADDRESS")
    if split is not None:
        notes.append(f"No shard knows a split, and the card names all of them: {split} came with the others.")
    return notes


def _refuse_others(folder: Path, own: Collection[SharedFile]) -> None:
    """Refuse a folder that holds more than an earlier pull of the same push left there."""
    known = {entry.file for entry in own}
    known |= {str(PurePosixPath(entry.file).with_name(partial_name(entry))) for entry in own}
    there = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())
    others = (name for name in there if name not in known and not name.startswith(".lock"))
    if found := sorted(itertools.islice(others, 5)):  # of a folder that may hold a whole disk
        raise occupied(folder, UNFINISHED, ", ".join(found), "--to")


def _pull_run(received: Received, folder: Path, *, quiet: bool) -> Pulled:
    entries = received.share.by_name()
    if others := sorted(entries.keys() - set(RUN_FILES)):
        raise damaged(received.place.address, f"a run of {', '.join(RUN_FILES)}", ", ".join(others[:5]))
    files = [entries[name] for name in RUN_FILES if name in entries]
    # No other run has these weights or this result: the folder is a copy of the push.
    ours = any(is_whole(folder / entry.file, entry) for entry in files if entry.file in RUN_PROOF)
    if not ours:
        _refuse_others(folder, files)
    came = received.take(files, folder, ours=ours, quiet=quiet)
    return Pulled(folder, received.share, None, list(entries), not came)
