"""Recognise a dataset in an archive, and extract either all of its members or none."""

from __future__ import annotations

import fnmatch
import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from kmip_data.errors import DamagedInput, Setting, UsageError
from kmip_data.files.atomic_writes import remove_tree
from kmip_data.files.path_errors import convert_write_errors, require_disk_space
from kmip_data.files.small_files import json_digest, sha256_file
from kmip_data.format.card import Receipt
from kmip_data.manifest import Content, MemberPattern
from kmip_data.pipelines.raw.archives import ArchiveEntry, files_in, first_bytes, sniff_format
from kmip_data.runtime.progress import Progress
from kmip_data.text import list_names

#: Lock of Excel, copy of an editor, and files of Windows.
_LEFTOVER = re.compile(r"~\$.*|.*~|desktop\.ini|thumbs\.db", re.IGNORECASE)
_MAX_ENTRIES = 100_000  #: limit of files in an archive, including other files


@dataclass(frozen=True)
class SelectedMembers:
    """Members of an archive that belong to a dataset."""

    archive: Path
    as_member: str  #: member name of an archive that is not opened; else empty
    root: str  #: folder of the data inside the archive: empty, or a path that ends in ``/``
    members: Mapping[str, int]  #: path below ``root`` -> declared bytes, sorted

    @property
    def bytes(self) -> int:
        """Declared size of all members."""
        return sum(self.members.values())

    def receipt(self, name: str = "") -> Receipt:
        """Return the receipt of the archive. A folder has the digest and total size of its members."""
        origin = self.archive.resolve().name
        if self.archive.is_file():
            digest, size = sha256_file(self.archive)
        else:
            folder = self.archive / self.root
            digest = json_digest({name: sha256_file(folder / name)[0] for name in self.members})
            size = self.bytes
        return Receipt(name=name or origin, origin=origin, sha256=digest, bytes=size)


def recognise_dataset(archive: Path, content: Content, as_member: str = "") -> SelectedMembers:
    """Find the folder of an archive that has the anchor and all members.

    Raises ``DamagedInput`` if the archive is damaged, incomplete or has other content, or if a
    member is refused; ``UsageError`` if the archive has the data more than once.
    """
    # 1. List the files.
    max_entries = max(member.max_count for member in content.members)
    remedy = "join the data in fewer files, or build them in several parts"
    if content.anchor != "*":  # other files may surround the data
        expected_entries = sum(member.max_count for member in content.members)
        max_entries = max(_MAX_ENTRIES, 4 * expected_entries)
        remedy = "use the folder that holds the data itself as archive"
    entries = list(islice(files_in(archive, as_member), max_entries + 1))
    if len(entries) > max_entries:
        raise UsageError(
            f"{archive} holds more than {max_entries:,} files, too many to be searched.",
            steps=remedy,
        )

    # 2. Try each folder with the anchor.
    complete = []
    counts = []
    for root in _folders_with_anchor(entries, content.anchor):
        members, miscounted = _select_members(entries, root, content)
        counts += miscounted
        if not miscounted:
            complete.append(SelectedMembers(archive, as_member, root, members))
    # A folder may hold the others, as the folder of a table holds the one of its graphs.
    complete.sort(key=lambda selection: len(selection.root))
    if complete and all(
        {other.root + name for name in other.members}
        <= {complete[0].root + name for name in complete[0].members}
        for other in complete
    ):
        del complete[1:]
    complete = _joined_siblings(complete, content)
    if len(complete) > 1:
        folders = list_names(ascii(selection.root or "./") for selection in complete)
        wanted = "files" if "*" in content.anchor else content.anchor
        error = UsageError(
            f"{archive} has {wanted} in {len(complete)} folders: {folders}.",
            steps="unpack it, and use the folder that is meant as archive",
        )
        if content.anchor == "*":
            error.steps = ["use the folder that is meant, or move the files of all into one folder"]
        elif archive.is_dir():
            # The folder itself cannot be chosen: it holds the others.
            largest = max(complete, key=lambda found: (found.root != "", len(found.members)))
            folder = archive / largest.root
            error.steps = [Setting(archive=folder)]
            error.correction = (str(archive), str(folder))  # other archives may be typed
        raise error
    if not complete:
        raise _not_recognised_error(archive, as_member, entries, content, counts)

    # 3. Limit the total size.
    (selection,) = complete
    if selection.bytes > content.max_total_bytes:
        raise DamagedInput(
            f"{archive} is refused: its members declare {selection.bytes} bytes, "
            f"and {content.max_total_bytes} are allowed."
        )
    return selection


def _joined_siblings(complete: list[SelectedMembers], content: Content) -> list[SelectedMembers]:
    """Return folders of one folder as one selection, if the data may lie in folders.

    A folder above them, which has files such as a table of labels, joins them.
    """
    may_lie_in_folders = any(member.pattern == "*/*" for member in content.members)
    roots = [selection.root for selection in complete]
    above = {
        root for root in roots if all(other.startswith(root) for other in roots if other != root)
    }
    parents = {root.rstrip("/").rpartition("/")[0] for root in roots if root not in above}
    if len(complete) < 2 or len(parents) > 1 or not may_lie_in_folders:
        return complete
    parent = min(above, key=len, default="".join(f"{name}/" for name in parents if name))
    members = {
        selection.root.removeprefix(parent) + name: size
        for selection in complete
        for name, size in selection.members.items()
    }
    return [SelectedMembers(complete[0].archive, complete[0].as_member, parent, members)]


def _folders_with_anchor(entries: Sequence[ArchiveEntry], anchor: str) -> list[str]:
    """Return the folders that have a file at the relative path ``anchor``."""
    depth = anchor.count("/") + 1
    roots: dict[str, None] = {}
    for entry in entries:
        parts = entry.name.split("/")
        if _matches("/".join(parts[-depth:]), anchor):
            root = "".join(f"{name}/" for name in parts[:-depth])
            roots[root] = None
    return list(roots)


def _select_members(
    entries: Sequence[ArchiveEntry], root: str, content: Content
) -> tuple[dict[str, int], list[str]]:
    """Return the sizes of the members below ``root``, and the patterns with a wrong number of files."""
    sizes: dict[str, int] = {}
    counts: Counter[str] = Counter()
    for entry in entries:
        if not entry.name.startswith(root):
            continue
        name = entry.name.removeprefix(root)
        matching = [member for member in content.members if _matches(name, member.pattern)]
        if not matching:
            continue
        limit = min(member.max_bytes for member in matching)
        problem = entry.problem
        if not is_safe_path(name):
            problem = "has a name with '..', an empty part, a backslash or characters that cannot be printed"
        elif name in sizes:
            problem = "occurs twice"
        elif entry.size > limit:
            problem = f"declares {entry.size} bytes, and {limit} are allowed"
        if problem:
            raise _member_error(entry, problem)
        sizes[name] = entry.size
        counts.update(member.pattern for member in matching)

    miscounted = []
    for member in content.members:
        count = counts[member.pattern]
        if not member.min_count <= count <= member.max_count:
            miscounted.append(f"{count} of {member.pattern} (expected {_expected_count(member)})")
    return dict(sorted(sizes.items())), miscounted


def is_safe_path(name: str) -> bool:
    """True if a name is a relative path that is safe in terminals and file systems."""
    return name.isprintable() and "\\" not in name and not {"", ".", ".."} & {*name.split("/")}


def _member_error(entry: ArchiveEntry, problem: str) -> DamagedInput:
    """Return the error for a member; ``problem`` is the predicate of its sentence."""
    return DamagedInput(
        f"{entry.archive} is refused: its member {entry.name[-100:]!a} {problem}.",
        steps="use a fresh copy from one of the sources of the dataset",
    )


def _matches(name: str, pattern: str) -> bool:
    # Match component by component: "*" must match neither sub-folders, nor hidden files, nor those
    # that editors and offices leave next to a file.
    if name.count("/") != pattern.count("/"):
        return False
    for component, wanted in zip(name.split("/"), pattern.split("/"), strict=True):
        is_hidden = component.startswith(".") and not wanted.startswith(".")
        is_leftover = component != wanted and _LEFTOVER.fullmatch(component) is not None
        if is_hidden or is_leftover or not fnmatch.fnmatchcase(component, wanted):
            return False
    return True


def _expected_count(member: MemberPattern) -> str:
    same = member.min_count == member.max_count
    return str(member.min_count) if same else f"{member.min_count} to {member.max_count}"


def _not_recognised_error(
    archive: Path,
    as_member: str,
    entries: Sequence[ArchiveEntry],
    content: Content,
    counts: Sequence[str],
) -> DamagedInput:
    """Return the error for an archive without the data; it lists the archive's top level."""
    # 1. Describe the archive, and data that are often mistaken for these.
    problem = f"{archive} does not have the expected data."
    for entry in entries:
        name = entry.name.rpartition("/")[2]
        if name in content.other_data:
            problem = f"{archive} holds {content.other_data[name]}"

    tops = {entry.name.partition("/")[0] for entry in entries}
    shown = ", ".join(ascii(top)[1:-1] for top in sorted(tops)[:8]) or "nothing"
    step = "use a folder with these files (links to folders are not followed)"
    if not as_member:
        step += ", or a zip or tar of it"
    if as_member or tops == {archive.name}:
        first = first_bytes(archive)
        archive_format = sniff_format(first) or "neither zip nor tar"
        shown = f"a single file, {archive_format}, which begins with {first[:24]!r}"

    # 2. Describe the expected members.
    expected = ", ".join(
        f"{_expected_count(member)} × {member.pattern}" for member in content.members
    )
    return DamagedInput(problem, expected=expected, found="; ".join([*counts, shown]), steps=step)


def write_members(
    selection: SelectedMembers, destination: Path, *, quiet: bool = True
) -> dict[str, str]:
    """Extract the members of ``selection`` to ``destination``; return their SHA-256 by path.

    Existing files are never overwritten. On any error, ``destination`` is removed. Raises
    ``DamagedInput`` if the archive is damaged, and ``OutOfResources`` or ``UsageError`` if
    ``destination`` cannot be written.
    """
    archive = selection.archive
    with convert_write_errors(destination):
        require_disk_space(destination.parent, selection.bytes, f"Unpacking {archive.name}")
        destination.mkdir(mode=0o755, exist_ok=True)
    digests = {}
    title = f"unpack {archive.name}"
    try:
        with Progress(title, selection.bytes, unit="B", quiet=quiet) as progress:
            for entry in files_in(archive, selection.as_member):
                name = entry.name.removeprefix(selection.root)
                if entry.name.startswith(selection.root) and name in selection.members:
                    digests[name] = _write_member(entry, destination / name, progress)
    except BaseException:
        remove_tree(destination)
        raise
    return dict(sorted(digests.items()))


def _write_member(entry: ArchiveEntry, path: Path, progress: Progress) -> str:
    """Write one member to the new file ``path`` and return its SHA-256."""
    digest = hashlib.sha256()
    size = 0
    with convert_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:  # ignores the mode bits in the archive
            for chunk in entry.chunks():
                size += len(chunk)
                digest.update(chunk)
                file.write(chunk)
                progress.update(len(chunk))
    if size != entry.size:
        raise _member_error(entry, f"holds {size} bytes, and declares {entry.size}")
    return digest.hexdigest()
