"""Draw the pictures of the pages again: ``python docs/site/pictures.py``, which ``make docs`` does.

The commands come from ``docs/gallery.md``, in a home of their own that is removed. Pictures become PNG of
few colours, 1,000 pixels wide and 1,300 high at most, for all of them stay in the repository.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from figures import draw
from influence import draw_influence
from PIL import Image

from kmip_data.builds.home import Home

DOCS = Path(__file__).parents[1]
PICTURES = DOCS / "pictures"
WIDEST, HIGHEST, COLOURS = 1000, 1300, 64
MAX_BYTES = 440_000  #: bytes of all pictures together


def commands(page: str) -> list[list[str]]:
    """The words of each command of the page."""
    return [
        shlex.split(line)[1:] for line in re.findall(r"^    (kmip-data .+)$", page, re.MULTILINE)
    ]


def run(words: list[str], folder: Path) -> None:
    """Run one of them, quietly unless it fails."""
    environment = {**os.environ, "KMIP_DATA_HOME": str(folder / "home")}
    done = subprocess.run(
        [sys.executable, "-m", "kmip_data", *words],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"kmip-data {shlex.join(words)}\n{done.stderr}")


def shrink(path: Path) -> bytes:
    """The picture with as few pixels and colours as a page needs."""
    picture = Image.open(path, formats=("PNG",)).convert("RGB")
    picture.thumbnail((WIDEST, HIGHEST), Image.Resampling.LANCZOS)
    # Of few colours those that differ most: a rare class keeps its own.
    few = picture.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE)
    written = io.BytesIO()
    few.save(written, format="PNG", optimize=True)
    return written.getvalue()


def main() -> None:
    """Run the commands, and put their pictures in the place of the old ones."""
    PICTURES.mkdir(exist_ok=True)
    draw(PICTURES)
    page = (DOCS / "gallery.md").read_text("utf-8")
    with tempfile.TemporaryDirectory() as temporary:
        for words in commands(page):
            run(words, Path(temporary))
        for name in re.findall(r"\(pictures/(.+\.png)\)", page):
            (PICTURES / name).write_bytes(shrink(Path(temporary, name)))
        draw_influence(Home(Path(temporary, "home")), PICTURES / "influence.svg")
    size = sum(path.stat().st_size for path in PICTURES.iterdir())
    if size > MAX_BYTES:
        raise SystemExit(f"the pictures have {size:,} bytes together; at most {MAX_BYTES:,}")


if __name__ == "__main__":
    main()
