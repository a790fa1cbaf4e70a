"""The journal of an unfinished build: one JSON line for each thing that is done and on disk.

A line is appended and fsynced only after what it names is itself on disk. A process killed in the
middle of a line leaves a torn one; it is cut off when the journal is opened again, and the step it
meant to name is done once more. Lines prove nothing by themselves: a shard counts as done only
when the digest of its file is the one in its line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from kmip_data.errors import UsageError
from kmip_data.files.changes import write_all
from kmip_data.files.errors import disk_error, writing
from kmip_data.files.reading import canonical_json, read_small

JOURNAL_VERSION = 1
_BEGINNING = b'{"journal":'
_MOST_UNITS = 10**9  #: a count above it is not ours, and its shards are not either
MAX_JOURNAL_BYTES = 2**28  #: it has what every shard counts


class Journal:
    """Append-only JSON lines, opened (or begun) for one build key, which is in the first line.

    ``entries`` are the readable lines after the first, oldest first. Raises ``UsageError`` where the journal
    is of another build, or may not be written to.
    """

    def __init__(self, path: Path, key: str) -> None:
        self.path = path
        self.entries: list[dict[str, Any]] = []
        text, whole, lines = _read(path)
        if not text.startswith(_BEGINNING[: len(text)]):
            raise UsageError(
                f"{path} is not the journal of a build.",
                expected=f"a file that begins with {_BEGINNING.decode()}, or none",
                found=repr(text[:20].decode(errors="replace")),
                next="move that file, or give another --output folder",
            )
        if lines and lines[0].get("key") not in (None, key):
            raise UsageError(
                f"{path.parent} holds an unfinished build with other parameters.",
                expected=f"build key {key}",
                found=f"build key {lines[0]['key']}",
                left="that build is as it was",
                next="finish that build with its own parameters, or give another --output folder",
            )
        # Of another version the lines may mean other things: what they name is done again.
        header = bool(lines) and lines[0] == {"journal": JOURNAL_VERSION, "key": key}
        self.entries = lines[1:] if header else []
        with writing(path):
            self._fd = os.open(
                path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666
            )
        if not header:
            os.ftruncate(self._fd, 0)
            self._write({"journal": JOURNAL_VERSION, "key": key})
        elif len(whole) < len(text):
            os.ftruncate(self._fd, len(whole))

    def append(self, entry: Mapping[str, Any]) -> None:
        """Write one line and wait until it is on disk; a torn one is cut off at the next opening."""
        self._write(entry)
        self.entries.append(dict(entry))

    def _write(self, entry: Mapping[str, Any]) -> None:
        try:
            write_all(self._fd, canonical_json(entry).encode() + b"\n")
            os.fsync(self._fd)
        except OSError as error:
            left = "finished shards; the next run resumes from them"
            raise disk_error(error, self.path, left=left) from error

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def journal_entries(path: Path, key: str | None = None) -> list[dict[str, Any]] | None:
    """Return the lines of a journal after the first; ``None`` where there is none (of the build ``key``)."""
    if is_torn(path):
        return []
    lines = _read(path)[2]
    header = lines[0] if lines else {}
    if header.keys() != {"journal", "key"} or key not in (None, header["key"]):
        return None
    return lines[1:]


def is_torn(path: Path) -> bool:
    """True if a journal has but a part of its first line: the build was stopped while it wrote that."""
    text, whole, _ = _read(path)
    return not whole and path.is_file() and text.startswith(_BEGINNING[: len(text)])


def planned_units(path: Path, key: str | None = None) -> int | None:
    """Return how many units a build will have, by its journal; ``None`` where that is not known."""
    return max(
        (entry["units"] for entry in journal_entries(path, key) or [] if "units" in entry), default=None
    )


def _read(path: Path) -> tuple[bytes, bytes, list[dict[str, Any]]]:
    """Return a journal's bytes, those in whole lines, and these lines."""
    try:
        text = read_small(path, MAX_JOURNAL_BYTES) if path.is_file() and not path.is_symlink() else b""
    except OSError as error:
        raise UsageError(
            f"{path} is not the journal of a build.",
            expected=f"a file of at most {MAX_JOURNAL_BYTES:,} bytes",
            found=str(error),
            next="give another --output folder",
        ) from error
    whole = text[: text.rfind(b"\n") + 1]
    return text, whole, [entry for line in whole.splitlines() if (entry := _parse(line)) is not None]


def _parse(line: bytes) -> dict[str, Any] | None:
    """Return the entry in a line; ``None`` where it is torn, or none that this package writes."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) and _is_sound(entry) else None


def _is_sound(entry: Mapping[str, Any]) -> bool:
    """True if what a line says of prepared files and of units has the right types."""
    units, prepared = entry.get("units", 0), entry.get("prepared", {})
    if type(units) is not int or not 0 <= units <= _MOST_UNITS or not isinstance(prepared, dict):
        return False
    names = prepared.get("files", [])
    texts = [
        prepared.get("folder", ""),
        prepared.get("inside") or "",
        *(names if isinstance(names, list) else [0]),
    ]
    return isinstance(prepared.get("plan", {}), dict) and all(isinstance(text, str) for text in texts)
