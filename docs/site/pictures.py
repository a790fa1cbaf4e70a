"""Draw the pictures of the pages again: ``python docs/site/pictures.py``, which ``make docs`` does.

The commands come from ``docs/gallery.md``, in a home of their own that is removed. Pictures become small
WEBP, for all of them stay in the repository; pages are photographed by chromium, without which their
pictures stay as they are. ``NAME-dark`` is for a dark page.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from figures import draw
from influence import draw_influence
from PIL import Image

from kmip_data.builds.home import Home
from kmip_data.cli.main import run_command_line
from kmip_data.drawing.style import using_style
from kmip_data.models.analysis.explanations import MetricByDistance, draw_metric_by_distance

DOCS = Path(__file__).parents[1]
PICTURES = DOCS / "pictures"
WIDEST, HIGHEST, QUALITY = 880, 650, 50
#: bytes of all pictures together; a third of them are the dark variants, without which a white sheet
#: glares from a dark page
MAX_BYTES = 690_000
#: Names and state of the explorer for each of its pictures.
EXPLORED = {
    "explorer-city": ("helsinki/gcn/influence helsinki/gps-kmip/influence", ""),
    "explorer-points": ("s3dis --sample --record 2", "by=class"),
}
BROWSER = [
    "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader", "--hide-scrollbars", "--no-first-run", "--virtual-time-budget=20000",
]  # fmt: skip
STYLES = {"light": "", "dark": "-dark"}  #: suffix of a picture by style


def commands(page: str) -> list[list[str]]:
    """The words of each command of the page."""
    return [
        shlex.split(line)[1:] for line in re.findall(r"^    (kmip-data .+)$", page, re.MULTILINE)
    ]


def run(words: list[str], folder: Path) -> str:
    """Run one of them, quietly unless it fails, and return what it prints."""
    environment = {**os.environ, "KMIP_DATA_HOME": str(folder / "home")}
    done = subprocess.run(
        [sys.executable, "-m", "kmip_data", *words],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"kmip-data {shlex.join(words)}\n{done.stderr}")
    return done.stdout


def write_webp(path: Path, name: str, top: int = 0) -> None:
    """Write a picture among those of the pages, without what is above ``top``."""
    picture = Image.open(path, formats=("PNG",)).convert("RGB")
    picture = picture.crop((0, top, picture.width, picture.height))
    picture.thumbnail((WIDEST, HIGHEST), Image.Resampling.LANCZOS)
    picture.save(PICTURES / f"{name}.webp", quality=QUALITY, method=6)


def photograph(
    page: Path, name: str, size: tuple[int, int], *, state: str = "", top: int = 0
) -> None:
    """Write what chromium shows of a page below ``top`` in light and dark mode, if there is one."""
    if shutil.which(BROWSER[0]) is None:
        return
    for number, suffix in enumerate(reversed(STYLES.values())):
        with tempfile.TemporaryDirectory() as profile:
            path = Path(profile, "page.png")
            options = [
                f"--blink-settings=preferredColorScheme={number}",  # 0 is dark
                f"--user-data-dir={profile}",
                f"--window-size={size[0]},{size[1]}",
                f"--screenshot={path}",
            ]
            address = f"{page.absolute().as_uri()}#{state}"
            subprocess.run([*BROWSER, *options, address], capture_output=True, check=True)
            write_webp(path, name + suffix, top)


def draw_demo(facts: dict[str, dict[str, dict[str, object]]], folder: Path) -> None:
    """Draw the accuracy of the demo's models by distance."""
    models = {model: MetricByDistance(**bands) for model, bands in facts["models"].items()}  # type: ignore[arg-type]
    title = "Accuracy by the distance to the answer"
    for style, suffix in STYLES.items():
        with using_style(style):
            draw_metric_by_distance(models, folder / "demo.png", title=title, chance=1 / 8)
        write_webp(folder / "demo.png", f"demo{suffix}")


def main() -> None:
    """Run the commands, and put their pictures in the place of the old ones."""
    PICTURES.mkdir(exist_ok=True)
    draw(PICTURES)
    page = (DOCS / "gallery.md").read_text("utf-8")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for words in commands(page):
            if words[0] == "demo":
                draw_demo(json.loads(run([*words, "--json"], folder)), folder)
            elif words[0] != "explore":
                run(words, folder)
            if words[0] == "preview":
                *others, output = words
                dark = [*others, str(folder / output.replace(".png", "-dark.png"))]
                with using_style("dark"):
                    code = run_command_line([*dark, "--home", str(folder / "home")])
                if code:
                    raise SystemExit(code)
        for name in re.findall(r"pictures/([\w-]+)\.webp", page):
            if (source := folder / f"{name}.png").exists() and name.removesuffix("-dark") != "demo":
                write_webp(source, name)
        draw_influence(Home(folder / "home"), PICTURES / "influence.svg")
        for name, (names, state) in EXPLORED.items():
            explorer = folder / f"{name}.html"
            run(["explore", *names.split(), "--no-open", f"--output={explorer}"], folder)
            photograph(explorer, name, (1160, 640), state=state)
        # Not the heading, which names the folder.
        photograph(folder / "report.html", "report", (1060, 836), top=160)
    size = sum(path.stat().st_size for path in PICTURES.iterdir())
    if size > MAX_BYTES:
        raise SystemExit(f"the pictures have {size:,} bytes together; at most {MAX_BYTES:,}")


if __name__ == "__main__":
    main()
