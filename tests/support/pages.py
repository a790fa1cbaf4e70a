"""Files that a page of the docs creates before its commands."""

from __future__ import annotations

import re
from pathlib import Path


def write_friends(page: str, folder: Path) -> None:
    """Write the tables of the example in docs/own-data.md, whose text is ``page``."""
    (folder / "friends").mkdir()
    here_document = re.compile(r"^cat > (\S+) <<'EOF'\n(.*?)^EOF\n", re.MULTILINE | re.DOTALL)
    for name, text in here_document.findall(page):
        (folder / name).write_text(text)
