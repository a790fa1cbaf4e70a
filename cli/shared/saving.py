"""Where the results of a command may be saved, told before the work."""

from __future__ import annotations

import os
from pathlib import Path

from kmip_data.errors import UsageError


def check_prefix(prefix: Path) -> None:
    """Raise UsageError now, not after the work, where files beginning with ``prefix`` cannot be written."""
    if not prefix.name or not prefix.parent.is_dir() or not os.access(prefix.parent, os.W_OK):
        raise UsageError(
            "Results cannot be saved there.",
            expected="--save FOLDER/NAME in a folder that exists and may be written to",
            found=str(prefix),
            left="nothing was written",
            next="another --save",
        )
