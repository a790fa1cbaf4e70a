"""Recognise the data of a dataset in an archive by content, and write its members, or nothing at all."""

from __future__ import annotations

import fnmatch
import hashlib
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

from kmip_data.errors import DamagedInput, UsageError, require_room, writing
from kmip_data.files.changes import remove_tree
from kmip_data.files.reading import json_digest, sha256_file
from kmip_data.manifest import Content, Member
from kmip_data.pipelines.raw.archives import (
    HEAD,
    Archive,
    Entry,
    FolderArchive,
    check_name,
    folded,
    kind_of,
    refusal,
)
from kmip_data.runtime.progress import Progress

Piece = bytes  #: part of a member

_MAX_ROOTS = 16
_MAX_ENTRIES = 100_000  #: files of an archive, wanted or not: their names alone fill memory
_MAX_RATIO = 100  #: growth of a compressed tar; more is a bomb


@dataclass(frozen=True)
class Selection:
    """Wanted members of an archive."""

    archive: Archive
    root: str  #: path inside the archive below which the data lie (``""`` or ending in ``/``)
    members: Mapping[str, Entry]  #: by path below ``root``, sorted

    @property
    def bytes(self) -> int:
        """Declared size of all members."""
        return sum(entry.size for entry in self.members.values())

    def fingerprint(self) -> tuple[str, int]:
        """Return SHA-256 and bytes of the file.

        A folder has the digest and the total size of its members.
        """
        if not isinstance(self.archive, FolderArchive):
            return sha256_file(self.archive.path)
        digests = {}
        for name, _, pieces in self.contents():
            digest = hashlib.sha256()
            for piece in pieces:
                digest.update(piece)
            digests[name] = digest.hexdigest()
        return json_digest(digests), self.bytes

    def contents(self) -> Iterator[tuple[str, Entry, Iterator[Piece]]]:
        """Yield name, entry and bytes of each member, in the archive's order."""
        pieces = self.archive.pieces(self.members.values())
        for entry, group in itertools.groupby(pieces, itemgetter(0)):
            name = entry.name[len(self.root) :]
            yield name, entry, map(itemgetter(1), group)


def recognise(archive: Archive, content: Content) -> Selection:
    """Find the data in an archive: the one folder with the anchor and the members next to it.

    Raises ``DamagedInput`` where the archive is hostile, damaged or incomplete, or holds something
    else; ``UsageError`` where it holds the data more than once.
    """
    # 1. List the files. Other members are not judged: the sizes of wanted ones alone are limited
    #    below.
    wanted = sum(member.max_count for member in content.members)
    unpacked = max(4 * content.max_total_bytes, _MAX_RATIO * archive.path.stat().st_size)
    entries = archive.files(max(_MAX_ENTRIES, 4 * wanted), unpacked)

    # 2. Try each folder with the anchor.
    roots = _roots(entries, content.anchor)
    complete = []
    faults = []
    for root in roots[:_MAX_ROOTS]:
        members = _select(archive, entries, root, content)
        selection = Selection(archive, root, members)
        root_faults = _check_members(selection, content)
        faults += root_faults
        if not root_faults:
            complete.append(selection)
    if len(complete) > 1 or len(roots) > _MAX_ROOTS:
        folders = ", ".join(ascii(selection.root or "./") for selection in complete)
        raise UsageError(
            f"{archive.path} holds {content.anchor} in {len(roots)} folders: {folders}.",
            next="give --archive the folder that is meant",
        )
    if not complete:
        raise _not_recognised(archive, entries, content, faults)

    # 3. Limit the size of all members together.
    (selection,) = complete
    if selection.bytes > content.max_total_bytes:
        largest = max(selection.members.values(), key=lambda entry: entry.size)
        raise refusal(
            archive.path,
            largest.name,
            f"and the others declare {selection.bytes} bytes, "
            f"and {content.max_total_bytes} are allowed",
        )
    return selection


def _roots(entries: Sequence[Entry], anchor: str) -> list[str]:
    """Return the folders, each once, below which a file lies at ``anchor``."""
    depth = anchor.count("/") + 1
    roots: dict[str, None] = {}
    for entry in entries:
        parts = entry.name.split("/")
        if _matches("/".join(parts[-depth:]), anchor):
            root = "".join(f"{part}/" for part in parts[:-depth])
            roots[root] = None
    return list(roots)


def _select(
    archive: Archive,
    entries: Sequence[Entry],
    root: str,
    content: Content,
) -> dict[str, Entry]:
    """Return the members below ``root``, whose names any file system can hold next to each other."""
    chosen = {}
    seen = set()
    patterns = [member.pattern for member in content.members]
    for entry in entries:
        name = entry.name[len(root) :]
        if not entry.name.startswith(root):
            continue
        if not any(_matches(name, pattern) for pattern in patterns):
            continue
        if entry.fault:
            raise refusal(archive.path, entry.name, entry.fault)
        if folded(check_name(archive.path, name)) in seen:
            raise refusal(
                archive.path,
                entry.name,
                "is there twice, or differs only by case or Unicode form",
            )
        seen.add(folded(name))
        chosen[name] = entry
    return dict(sorted(chosen.items()))


def _matches(name: str, pattern: str) -> bool:
    # Part by part, because "*" must not reach into sub-folders, nor take the hidden files of some
    # system.
    if name.count("/") != pattern.count("/"):
        return False
    for part, wanted in zip(name.split("/"), pattern.split("/"), strict=True):
        hidden = part.startswith(".") and not wanted.startswith(".")
        if hidden or not fnmatch.fnmatchcase(part, wanted):
            return False
    return True


def _check_members(selection: Selection, content: Content) -> list[str]:
    """Return the wanted members of which there are too few or too many."""
    faults = []
    for member in content.members:
        count = 0
        for name, entry in selection.members.items():
            if not _matches(name, member.pattern):
                continue
            count += 1
            if entry.size > member.max_bytes:
                raise refusal(
                    selection.archive.path,
                    entry.name,
                    f"declares {entry.size} bytes, and {member.max_bytes} are allowed",
                )
        if not member.min_count <= count <= member.max_count:
            faults.append(f"{count} of {member.pattern} (expected {_count(member)})")
    return faults


def _count(member: Member) -> str:
    same = member.min_count == member.max_count
    return str(member.min_count) if same else f"{member.min_count} to {member.max_count}"


def _not_recognised(
    archive: Archive,
    entries: Sequence[Entry],
    content: Content,
    faults: Sequence[str],
) -> DamagedInput:
    """Return the error, which lists what the archive has at its top."""
    # 1. The archive: what lies at its top, and files that people often mistake for the data.
    tops: Counter[str] = Counter()
    mistaken = []
    for entry in entries:
        top, slash, _ = entry.name.partition("/")
        tops[top + slash] += 1
        name = entry.name.rpartition("/")[2]
        if name in content.mistaken:
            mistaken.append(content.mistaken[name])

    problem = f"{archive.path} is not the data that were expected."
    shown = ", ".join(ascii(name)[1:-1] for name, _ in tops.most_common(8))
    step = "give --archive a zip, a tar or a folder with these files (links to folders are not followed)"
    if mistaken:
        problem = f"{archive.path} holds {mistaken[0]}"
    elif archive.kind == "file":
        with archive.path.open("rb") as file:
            first = file.read(HEAD)
        kind = kind_of(first)
        shown = f"a file that is neither zip nor tar and begins with {first[:24]!r}"
        if kind in {"zip", "tar"}:  # a source that is a single file is never opened as an archive
            shown = f"a {kind}, where the file itself is wanted"
            step = "unpack it, and give --archive the folder or the file"

    # 2. The data.
    expected = ", ".join(f"{_count(member)} × {member.pattern}" for member in content.members)
    if any(member.pattern != content.anchor for member in content.members):
        expected = f"{content.anchor} and next to it {expected}"
    return DamagedInput(
        problem,
        expected=expected,
        found="; ".join([*faults, shown or f"an empty {archive.kind}"]),
        next=step,
    )


def write_members(
    selection: Selection,
    target: Path,
    *,
    quiet: bool = True,
) -> dict[str, str]:
    """Write the members of ``selection``, none of which is there, below ``target``.

    On any error the folder is removed.

    Returns member path to SHA-256, sorted. Raises ``DamagedInput`` where the archive is damaged,
    and ``OutOfResources`` or ``UsageError`` where ``target`` cannot be written.
    """
    archive = selection.archive
    with writing(target):
        require_room(target.parent, selection.bytes, f"Unpacking {archive.path.name}")
        target.mkdir(mode=0o755, exist_ok=True)
    digests = {}
    title = f"unpack {archive.path.name}"
    try:
        with Progress(title, selection.bytes, unit="B", quiet=quiet) as progress:
            for name, entry, pieces in selection.contents():
                digests[name] = _write_member(
                    archive,
                    entry,
                    pieces,
                    target / name,
                    progress,
                )
    except BaseException:
        remove_tree(target)
        raise
    return dict(sorted(digests.items()))


def _write_member(
    archive: Archive,
    entry: Entry,
    pieces: Iterable[bytes],
    path: Path,
    progress: Progress,
) -> str:
    """Write one member to the new file ``path`` and return its SHA-256."""
    digest = hashlib.sha256()
    size = 0
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:  # mode bits of the archive are never taken over
            for piece in pieces:
                size += len(piece)
                if size > entry.size:
                    break
                digest.update(piece)
                file.write(piece)
                progress.update(len(piece))
    if size != entry.size:
        amount = "more bytes" if size > entry.size else f"{size} bytes"
        raise refusal(
            archive.path,
            entry.name,
            f"holds {amount}, and declares {entry.size}",
        )
    return digest.hexdigest()
