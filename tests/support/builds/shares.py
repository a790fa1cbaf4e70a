"""A build as a push has it, by hand."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Literal

from kmip_data.sharing.push_metadata import (
    BLOCK_BYTES,
    BLOCKS_NAME,
    SHARE_NAME,
    PushedFile,
    PushIndex,
)


def share_folder(source: Path, target: Path, kind: Literal["build", "run"] = "build") -> PushIndex:
    """Copy a folder without its page and marker, and put next to it what a push does."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("README.md", ".*"))
    files, blocks = [], b""
    for path in sorted(path for path in target.rglob("*") if path.is_file()):
        data = path.read_bytes()
        name = path.relative_to(target).as_posix()
        files.append(
            PushedFile(file=name, sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))
        )
        blocks += b"".join(
            hashlib.sha256(data[at : at + BLOCK_BYTES]).digest()
            for at in range(0, len(data), BLOCK_BYTES)
        )
    index = PushIndex(
        kind=kind, name=source.name, files=files, blocks=hashlib.sha256(blocks).hexdigest()
    )
    (target / BLOCKS_NAME).write_bytes(blocks)
    text = index.to_json()
    (target / SHARE_NAME).write_text(text)
    return PushIndex.model_validate_json(text)
