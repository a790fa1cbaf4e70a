"""Free disk space, and sizes in words."""

from __future__ import annotations

import shutil
from pathlib import Path

from kmip_data.errors import OutOfResources


def left_in(folder: Path) -> str:
    """Return what is left of a folder whose files were removed by name, as words."""
    if folder.is_dir() and any(folder.iterdir()):
        return f"in {folder} what kmip-data did not write, and nothing else"
    return "nothing"


def require_room(folder: Path, needed: int, purpose: str) -> None:
    """Raise OutOfResources when ``needed`` bytes do not fit on the disk of ``folder``."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise OutOfResources(
            f"{purpose} does not fit on the disk.",
            expected=f"{human_bytes(needed)} free in {folder}",
            found=f"{human_bytes(free)}",
            left="nothing of it was written",
            next="free some space, or choose another disk with --home DIR (or KMIP_DATA_HOME)",
        )


def human_bytes(count: float) -> str:
    """Bytes for people, decimal: ``3 kB``, ``1.7 GB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit in {"B", "kB"} else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
