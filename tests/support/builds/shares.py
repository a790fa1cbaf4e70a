"""A build as a push has it, by hand."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Literal

from kmip_data.format.card import CARD_NAME, read_card
from kmip_data.sharing.push_index import SHARE_NAME, PushedFile, PushIndex


def share_folder(source: Path, target: Path, kind: Literal["build", "run"] = "build") -> PushIndex:
    """Copy a folder without its page and marker, and put the index of a push next to it."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("README.md", ".*"))
    files = []
    for path in sorted(path for path in target.rglob("*") if path.is_file()):
        data = path.read_bytes()
        name = path.relative_to(target).as_posix()
        files.append(
            PushedFile(file=name, sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))
        )
    key = read_card(source).key if (source / CARD_NAME).exists() else "0" * 12
    text = PushIndex(kind=kind, name=source.name, key=key, files=files).to_json()
    (target / SHARE_NAME).write_text(text)
    return PushIndex.model_validate_json(text)
