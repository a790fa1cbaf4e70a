"""Digests of files and values, and canonical JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kmip_data.files.errors import unreadable

CHUNK = 2**20  #: bytes read at a time where a file is streamed


def canonical_json(value: Any) -> str:
    """JSON with sorted keys, no spaces and ASCII only: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def readable_json(value: Mapping[str, Any]) -> str:
    """JSON for people, sorted likewise, with a line feed at its end."""
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def json_digest(value: Any) -> str:
    """SHA-256 (hex) of a value as canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def content_digest(members: Mapping[str, str]) -> str:
    """SHA-256 (hex) over the paths and digests of raw files, whatever container they came in."""
    return json_digest(members)


def sealed_json(content: Mapping[str, Any]) -> str:
    """Readable JSON of ``content`` with ``digest``, made anew from all other fields.

    A card that was changed on disk differs from this, even where it parses to the same values.
    """
    others = {name: value for name, value in content.items() if name != "digest"}
    return readable_json({**others, "digest": json_digest(others)})


def sha256_file(path: Path) -> tuple[str, int]:
    """SHA-256 and size of a file, streamed; raises ``DamagedInput`` where it cannot be read."""
    return _stream(path, hashlib.sha256)


def md5_file(path: Path) -> str:
    """MD5 of a file, by which some owners publish what they give out; raises as :func:`sha256_file`."""
    return _stream(path, lambda: hashlib.md5(usedforsecurity=False))[0]


def git_blob(path: Path) -> str:
    """Return git's name for the content of a file, SHA-1 of size and bytes; raises as :func:`sha256_file`."""

    def start() -> Any:
        return hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)

    return _stream(path, start)[0]


def _stream(path: Path, start: Callable[[], Any]) -> tuple[str, int]:
    try:
        with path.open("rb", buffering=0) as file:
            return hashlib.file_digest(file, start).hexdigest(), file.tell()
    except OSError as error:
        raise unreadable(path, error) from error
