"""The page of what there is to explore: builds and runs, dataset by dataset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from kmip_data.drawing.maps.page import asset, embedded, page_style, write_filled

PAGE: Final = "explore.html"  #: in the folder of a build or run, and in the home folder


@dataclass(frozen=True)
class Entry:
    """A build or run in its list."""

    cells: tuple[str, ...]  #: folder and graphs of a build; path, state, epochs and test metric of a run
    page: str | None  #: address of its page, where it has one
    command: str  #: that writes the page, or goes on with a run that is not done; empty: none


@dataclass(frozen=True)
class Section:
    """What there is of a dataset."""

    title: str
    builds: Sequence[Entry]
    runs: Sequence[Entry]
    curves: Sequence[Any]  #: as :func:`~kmip_data.drawing.explorer.page.draw_explorer` takes them


def entry(cells: tuple[str, ...], folder: Path, command: str) -> Entry:
    """Return the entry of a folder, whose page may be there already."""
    page = folder / PAGE
    return Entry(cells, page.absolute().as_uri() if page.is_file() else None, command)


def draw_overview(home: Path, sections: Sequence[Section], path: Path) -> None:
    """Write one file that needs no network."""
    own = files("kmip_data.drawing.explorer") / "assets"
    texts = [(own / name).read_text("utf-8") for name in ("figures.js", "overview.js")]
    fields = {
        "style": page_style() + "\n" + (own / "explore.css").read_text("utf-8"),
        "header": embedded({"home": str(home), "datasets": list(map(asdict, sections))}),
        "script": "\n".join([asset("elements.js"), *texts]),
    }
    write_filled((own / "overview.html").read_text("utf-8"), fields, path)
