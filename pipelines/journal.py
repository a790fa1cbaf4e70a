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
from types import TracebackType
from typing import Any, Self

from kmip_data.errors import OutOfResources, UsageError
from kmip_data.pipelines.disk import writing

JOURNAL_VERSION = 1


class Journal:
    """Append-only JSON lines, opened (or begun) for one build key.

    Parameters
    ----------
    path
        The file; its folder exists.
    key
        Build key, written into the first line.

    Attributes
    ----------
    entries
        Every readable line after the first, oldest first.

    Raises
    ------
    UsageError
        The journal is of another build: the folder was given to a build with other parameters. Or
        the file may not be written to.
    """

    def __init__(self, path: Path, key: str) -> None:
        self.path = path
        self.entries: list[dict[str, Any]] = []
        text = path.read_bytes() if path.exists() else b""
        whole = text[: text.rfind(b"\n") + 1]
        lines = [entry for line in whole.splitlines() if (entry := _parse(line)) is not None]
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
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        if not header:
            os.ftruncate(self._fd, 0)
            self._write({"journal": JOURNAL_VERSION, "key": key})
        elif len(whole) < len(text):
            os.ftruncate(self._fd, len(whole))

    def append(self, entry: Mapping[str, Any]) -> None:
        """Write one line and wait until it is on disk.

        Raises
        ------
        OutOfResources
            The disk is full; the torn line is cut off when the journal is opened again.
        """
        self._write(entry)
        self.entries.append(dict(entry))

    def _write(self, entry: Mapping[str, Any]) -> None:
        line = json.dumps(entry, sort_keys=True, separators=(",", ":")).encode() + b"\n"
        try:
            while line:
                line = line[os.write(self._fd, line) :]
            os.fsync(self._fd)
        except OSError as error:
            raise OutOfResources(
                f"The journal {self.path} could not be written.",
                expected="room on the disk for a few hundred bytes",
                found=str(error),
                left="the shards that are finished; the next run goes on from them",
                next="make room and run the same command again",
            ) from error

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None
