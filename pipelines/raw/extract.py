"""Recognise the data of a dataset in an archive by content, and write its members, or nothing at all."""

from __future__ import annotations

import fnmatch
import hashlib
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

from kmip_data.errors import DamagedInput, UsageError, require_room, writing
from kmip_data.files.changes import remove_made
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

_MAX_ROOTS = 16
_MAX_ENTRIES = (
    100_000  #: files of an archive, whatever of it is wanted; their names alone fill memory
)
_MAX_RATIO = 100  #: a compressed tar that grows more than this is a bomb


@dataclass(frozen=True)
class Selection:
    """The members of an archive that are wanted."""

    archive: Archive
    root: str  #: path inside the archive below which the data lie (``""`` or ending in ``/``)
    members: Mapping[str, Entry]  #: by path below ``root``, sorted

    @property
    def bytes(self) -> int:
        """Declared size of all members."""
        return sum(entry.size for entry in self.members.values())

    def fingerprint(self) -> tuple[str, int]:
        """Return SHA-256 and bytes of the file; of a folder, digest and total size of its members."""
        if not isinstance(self.archive, FolderArchive):
            return sha256_file(self.archive.path)
        digests = {}
        for entry, pieces in itertools.groupby(
            self.archive.pieces(self.members.values()), itemgetter(0)
        ):
            digest = hashlib.sha256()
            for _, piece in pieces:
                digest.update(piece)
            digests[entry.name[len(self.root) :]] = digest.hexdigest()
        return json_digest(digests), self.bytes


def recognise(archive: Archive, content: Content) -> Selection:
    """Find the data in an archive: the one folder with the anchor and the members next to it.

    Raises ``DamagedInput`` where the archive is hostile, damaged or incomplete, or holds something else;
    ``UsageError`` where it holds the data more than once.
    """
    wanted = sum(member.max_count for member in content.members)
    # Other members are not judged: the sizes of wanted ones alone are limited below.
    unpacked = max(4 * content.max_total_bytes, _MAX_RATIO * archive.path.stat().st_size)
    entries = archive.files(max(_MAX_ENTRIES, 4 * wanted), unpacked)
    roots = _roots(entries, content.anchor)
    complete = []
    faults = []
    for root in roots[:_MAX_ROOTS]:
        chosen = Selection(archive, root, _select(archive, entries, root, content))
        wrong = _check_members(chosen, content)
        faults += wrong
        if not wrong:
            complete.append(chosen)
    if len(complete) > 1 or len(roots) > _MAX_ROOTS:
        folders = ", ".join(ascii(chosen.root or "./") for chosen in complete)
        what = f"{archive.path} holds {content.anchor} in {len(roots)} folders: {folders}."
        raise UsageError(what, next="give --archive the folder that is meant")
    if not complete:
        raise _not_recognised(archive, entries, content, faults)
    (chosen,) = complete
    if chosen.bytes > content.max_total_bytes:
        largest = max(chosen.members.values(), key=lambda entry: entry.size).name
        why = f"and the others declare {chosen.bytes} bytes, and {content.max_total_bytes} are allowed"
        raise refusal(archive.path, largest, why)
    return chosen


def _roots(entries: Sequence[Entry], anchor: str) -> list[str]:
    """Return the folders, each once, below which a file lies at ``anchor``."""
    depth = anchor.count("/") + 1
    split = (entry.name.split("/") for entry in entries)
    found = (parts[:-depth] for parts in split if _matches("/".join(parts[-depth:]), anchor))
    return list(dict.fromkeys("".join(f"{part}/" for part in parts) for parts in found))


def _select(
    archive: Archive, entries: Sequence[Entry], root: str, content: Content
) -> dict[str, Entry]:
    """Return the members below ``root``, whose names any file system can hold next to each other."""
    chosen: dict[str, Entry] = {}
    seen: set[str] = set()
    for entry in entries:
        name = entry.name[len(root) :]
        if not entry.name.startswith(root) or not any(
            _matches(name, m.pattern) for m in content.members
        ):
            continue
        if entry.fault:
            raise refusal(archive.path, entry.name, entry.fault)
        if folded(check_name(archive.path, name)) in seen:
            raise refusal(
                archive.path, entry.name, "is there twice, or differs only by case or Unicode form"
            )
        seen.add(folded(name))
        chosen[name] = entry
    return dict(sorted(chosen.items()))


def _matches(name: str, pattern: str) -> bool:
    # Part by part, because "*" must not reach into sub-folders, nor take the hidden files of some system.
    return name.count("/") == pattern.count("/") and all(
        fnmatch.fnmatchcase(part, wanted) and (not part.startswith(".") or wanted.startswith("."))
        for part, wanted in zip(name.split("/"), pattern.split("/"), strict=True)
    )


def _check_members(chosen: Selection, content: Content) -> list[str]:
    """Return the wanted members of which there are too few or too many."""
    faults = []
    for member in content.members:
        entries = [
            entry for name, entry in chosen.members.items() if _matches(name, member.pattern)
        ]
        if not member.min_count <= len(entries) <= member.max_count:
            faults.append(f"{len(entries)} of {member.pattern} (expected {_count(member)})")
        for entry in entries:
            if entry.size > member.max_bytes:
                why = f"declares {entry.size} bytes, and {member.max_bytes} are allowed"
                raise refusal(chosen.archive.path, entry.name, why)
    return faults


def _count(member: Member) -> str:
    same = member.min_count == member.max_count
    return str(member.min_count) if same else f"{member.min_count} to {member.max_count}"


def _not_recognised(
    archive: Archive, entries: Sequence[Entry], content: Content, faults: Sequence[str]
) -> DamagedInput:
    """Return the error, which lists what the archive has at its top."""
    members = ", ".join(f"{_count(member)} × {member.pattern}" for member in content.members)
    tops = Counter(
        name + "/" * bool(rest) for name, _, rest in (e.name.partition("/") for e in entries)
    )
    shown = (
        ", ".join(ascii(name)[1:-1] for name, _ in tops.most_common(8))
        or f"an empty {archive.kind}"
    )
    what = f"{archive.path} is not the data that were expected."
    again = "give --archive a zip, a tar or a folder with these files (links to folders are not followed)"
    ends = (entry.name.rpartition("/")[2] for entry in entries)
    if mistaken := [content.mistaken[name] for name in ends if name in content.mistaken]:
        what = f"{archive.path} holds {mistaken[0]}"
    elif archive.kind == "file":
        with archive.path.open("rb") as file:
            first = file.read(HEAD)
        kind = kind_of(first)
        shown = f"a file that is neither zip nor tar and begins with {first[:24]!r}"
        if kind in {"zip", "tar"}:  # a source that is a single file is never opened as an archive
            shown = f"a {kind}, where the file itself is wanted"
            again = "unpack it, and give --archive the folder or the file"
    expected = members
    if any(member.pattern != content.anchor for member in content.members):
        expected = f"{content.anchor} and next to it {members}"
    return DamagedInput(what, expected=expected, found="; ".join([*faults, shown]), next=again)


def write_members(selection: Selection, target: Path, *, quiet: bool = True) -> dict[str, str]:
    """Write the members of ``selection``, none of which is there, below ``target``; on any error remove it.

    Returns member path to SHA-256, sorted. Raises ``DamagedInput`` where the archive is damaged, and
    ``OutOfResources`` or ``UsageError`` where ``target`` cannot be written.
    """
    archive = selection.archive
    with writing(target):
        require_room(target.parent, selection.bytes, f"Unpacking {archive.path.name}")
        target.mkdir(mode=0o755, exist_ok=True)
    digests: dict[str, str] = {}
    try:
        with Progress(
            f"unpack {archive.path.name}", selection.bytes, unit="B", quiet=quiet
        ) as progress:
            for entry, parts in itertools.groupby(
                archive.pieces(selection.members.values()), itemgetter(0)
            ):
                name = entry.name[len(selection.root) :]
                digests[name] = _write_member(
                    archive, entry, (p for _, p in parts), target / name, progress
                )
    except BaseException:
        remove_made(target)
        raise
    return dict(sorted(digests.items()))


def _write_member(
    archive: Archive, entry: Entry, pieces: Iterable[bytes], path: Path, progress: Progress
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
        raise refusal(archive.path, entry.name, f"holds {amount}, and declares {entry.size}")
    return digest.hexdigest()
