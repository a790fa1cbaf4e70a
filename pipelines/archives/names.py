"""Decide whether the name of an archive member may become a file, before anything is written."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

from kmip_data.errors import DamagedInput

MAX_COMPONENT = 255  #: bytes of one part of a name, the limit of common file systems
MAX_NAME = 4096  #: bytes of a whole name
MAX_NAMES = 32 * 2**20  #: characters of all names of an archive and of the folders they imply
_DRIVE = re.compile(r"^[A-Za-z]:")


def refusal(archive: Path, member: str, why: str) -> DamagedInput:
    """Return the error for a member that is refused; ``why`` goes on after its name."""
    shown = ascii(member if len(member) <= 100 else f"{member[:60]}…{member[-30:]}")
    return DamagedInput(
        f"{archive.name} is refused: its member {shown} {why}.",
        expected="regular files with relative, distinct names, as their headers declare them",
        found=f"{archive}",
        next="use a fresh copy from one of the sources that `kmip-data info NAME` lists",
    )


def check_name(archive: Path, name: str) -> str:
    """Return ``name`` as a clean relative path with ``/``; leading ``./`` and a trailing ``/`` are dropped.

    Returns ``""`` for the root folder itself (``./``). Raises ``DamagedInput`` where the name is empty,
    absolute, climbs out, or no file system could hold it safely.
    """
    if not name:
        raise refusal(archive, name, "has an empty name")
    if "\0" in name:
        raise refusal(archive, name, "has a NUL byte in its name")
    try:
        encoded = name.encode("utf-8")
    except UnicodeEncodeError:
        raise refusal(archive, name, "has a name that is not valid UTF-8") from None
    if "\\" in name:
        raise refusal(archive, name, "has a backslash in its name")
    if name.startswith("/"):
        raise refusal(archive, name, "has an absolute name")
    if _DRIVE.match(name):
        raise refusal(archive, name, "has a drive letter in its name")
    if len(encoded) > MAX_NAME:
        raise refusal(archive, name, f"has a name of {len(encoded)} bytes, longer than {MAX_NAME}")
    if not name.isprintable() and any(unicodedata.category(c) in {"Cc", "Cf", "Zl", "Zp"} for c in name):
        raise refusal(archive, name, "has control characters in its name")
    parts = name.removesuffix("/").split("/")
    while parts and parts[0] == ".":
        parts = parts[1:]
    for part in parts:
        if part in {"", ".", ".."}:
            raise refusal(archive, name, f"has the part {part!r} in its name")
        if (not part.isascii() and len(part.encode()) > MAX_COMPONENT) or len(part) > MAX_COMPONENT:
            raise refusal(archive, name, f"has a part longer than {MAX_COMPONENT} bytes in its name")
    return "/".join(parts)


class NameLedger:
    """Remember the names of one archive and refuse those that would meet on some file system."""

    def __init__(self, archive: Path) -> None:
        self._archive = archive
        self._room = MAX_NAMES
        self._folders: set[str] = set()
        self._seen: dict[str, tuple[str, bool]] = {}

    def add(self, name: str, *, folder: bool) -> None:
        """Take in a checked name.

        Raises ``DamagedInput`` where it is there already, differs from another only by case or Unicode form,
        is at once a file and a folder, or is one too many.
        """
        if not folder:
            self._enter(name, folder=False)
        elif name:
            self._add_folder(name)
        self._add_folder(name.rpartition("/")[0])

    def _add_folder(self, name: str) -> None:
        while name and name not in self._folders:
            self._enter(name, folder=True)
            self._folders.add(name)
            name = name.rpartition("/")[0]

    def _enter(self, name: str, *, folder: bool) -> None:
        key = _fold(name)
        if key not in self._seen:
            self._seen[key] = (name, folder)
            self._room -= len(name)
            if self._room < 0:
                raise refusal(self._archive, name, f"brings the names to more than {MAX_NAMES} characters")
            return
        first, was_folder = self._seen[key]
        if first != name:
            raise refusal(self._archive, name, f"differs from {first!a} only by case or Unicode form")
        if was_folder != folder:
            raise refusal(self._archive, name, "is both a file and a folder")
        if not folder:
            raise refusal(self._archive, name, "is there twice")


def _fold(name: str) -> str:
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", name).casefold())
