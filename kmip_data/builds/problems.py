"""Problems of a file of a build."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path

from kmip_data.errors import DamagedInput
from kmip_data.files.changes import is_being_written
from kmip_data.files.small import read_small
from kmip_data.format.card import FileEntry, ShardEntry, SplitEntry
from kmip_data.format.refusals import check_resources


@dataclass(frozen=True)
class Problem:
    """One problem, and the file (relative to the build) that has it."""

    file: str
    what: str
    expected: str = ""
    found: str = ""

    def __str__(self) -> str:
        known = [f"{name} {text}" for name in ("expected", "found") if (text := getattr(self, name))]
        return f"{self.file}: {self.what}" + (f" ({', '.join(known)})" if known else "")


def file_problems(path: Path, entry: FileEntry | SplitEntry) -> Iterator[Problem]:
    """Yield problems of a file's presence and bytes."""
    if not (path / entry.file).is_file():  # a device or a pipe may have no end
        yield Problem(entry.file, "is missing", "the file that the card names", "no such file")
        return
    try:
        with (path / entry.file).open("rb") as file:
            digest, size = hashlib.file_digest(file, "sha256").hexdigest(), file.tell()
    except OSError as error:
        check_resources(path / entry.file, error)
        yield Problem(entry.file, "cannot be read", "a readable file", error.strerror or str(error))
        return
    if isinstance(entry, ShardEntry) and size != entry.bytes:
        yield Problem(entry.file, "has another size", f"{entry.bytes:,} bytes", f"{size:,} bytes")
    if digest != entry.sha256:
        yield Problem(entry.file, "has other bytes", f"SHA-256 {entry.sha256}", digest)


def changes(path: Path, file: str, text: str) -> Iterator[Problem]:
    """Yield a problem if a card is not, to the bit, the text that was written."""
    if read_small(path / file) != text.encode():
        yield Problem(file, "was changed after it was written", "the text that its content and digest give")


def unequal(file: str, *compared: tuple[str, str, str]) -> Iterator[Problem]:
    """Yield a problem for each (what, expected, found) of a file whose last two differ."""
    for what, expected, found in compared:
        if expected != found:
            yield Problem(file, what, expected, found)


def strays(path: Path, folder: str, known: Container[str]) -> Iterator[str]:
    """Yield a remark on each file in a folder of a build that its card does not name; such files stay."""
    there = path / folder
    for entry in sorted(there.iterdir() if there.is_dir() else ()):
        if (file := f"{folder}/{entry.name}") not in known and not is_being_written(entry):
            yield f"{file} is not part of the build; it is left as it is"


def damage(path: Path, file: str, error: DamagedInput) -> Iterator[Problem]:
    """Turn a reader's error about a file into a problem; a missing file has one already."""
    if (path / file).is_file():
        what = error.what.removeprefix(f"{path / file} ").removesuffix(".")
        yield Problem(file, what, error.parts["expected"] or "", error.parts["found"] or "")
