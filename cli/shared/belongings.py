"""What lies in a home, folder by folder: what it is, how large, and which files of it kmip-data wrote."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kmip_data.builds.columns import COLUMNS, added_names, read_columns
from kmip_data.builds.home import Build, Home
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.files import changes as files
from kmip_data.files.locking import build_lock
from kmip_data.format.card import CARD_NAME, read_card
from kmip_data.format.card_page import PAGE_NAME
from kmip_data.models.training.run.folders import CONFIG_NAME, files_of_run
from kmip_data.pipelines.engine.folders import remove_unfinished
from kmip_data.pipelines.raw.copies import files_of_raw
from kmip_data.wording import nearest

#: What commands put beside a card unless told otherwise.
BESIDE = ("preview.png", "preview.html", "explore.html", "croissant.json")


@dataclass(frozen=True)
class Belonging:
    """A folder that can be removed as a whole."""

    kind: Literal["build", "unfinished build", "raw files", "run"]
    path: Path
    name: str  #: below the home


def belongings(home: Home) -> list[Belonging]:
    """Everything in a home that has a name of its own, links and hidden folders left out."""
    patterns = {home.built: "*", home.raw: "*", home.runs: "*/*/*"}
    return [
        Belonging(_kind(path, home), path, path.relative_to(home.root).as_posix())
        for top, pattern in patterns.items()
        for path in sorted(top.glob(pattern))
        if path.is_dir()
        and not path.name.startswith(".")
        and path.resolve() == top.resolve() / path.relative_to(top)
    ]


def _kind(path: Path, home: Home) -> Literal["build", "unfinished build", "raw files", "run"]:
    if path.is_relative_to(home.runs) or (path / CONFIG_NAME).is_file():
        return "run"
    if path.is_relative_to(home.raw):
        return "raw files"
    return "build" if (path / CARD_NAME).is_file() else "unfinished build"


def find(target: str, home: Home) -> Belonging:
    """Return what a folder, or the end of its path below the home, means; ``raw/NAME`` must be written out.

    Raises ``UsageError`` where that is nothing, or several.
    """
    path, known = Path(target).expanduser(), belongings(home)
    place, parts = Path(os.path.abspath(path)), path.parts  # noqa: PTH100 -- .. is taken out, links are not
    matches = [
        each
        for each in known
        if each.path == place
        or (parts and each.path.parts[-len(parts) :] == parts and each.kind != "raw files")
        or each.name == path.as_posix()
    ]
    if not matches and any((place / name).is_file() for name in (CARD_NAME, CONFIG_NAME)):  # of --output
        matches = [Belonging(_kind(place, home), place, str(place))]
    if len(matches) == 1:
        return matches[0]
    # Raw files may have taken hours to come: only who writes raw/ is led to them.
    rest = [each for each in known if each.kind != "raw files" or target.startswith("raw")]
    of_dataset = [each.name for each in rest if each.path.name.startswith(f"{target}-")]
    close = of_dataset[0] if len(of_dataset) == 1 else nearest(target, [each.name for each in rest])
    raise UsageError(
        f"{len(matches)} folders are called {target!r}." if matches else f"There is no {target!r}.",
        expected="the folder of a build or run, such as kmip-data du shows it, or raw/NAME",
        found="\n    ".join(["", *(each.name for each in matches)]) if matches else "no such folder",
        left="nothing was removed",
        next=f"kmip-data remove {close}" if close and not matches else "kmip-data du lists the folders",
    )


def bytes_below(folder: Path) -> int:
    """Bytes of all files below a folder; links are not followed."""
    found = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # removed meanwhile
                found += os.lstat(os.path.join(place, name)).st_size  # noqa: PTH118
    return found


def remove(those: Sequence[Belonging], home: Home) -> None:
    """Remove of each what kmip-data wrote, by name; all of them must be free, or none is touched.

    Raises ``UsageError`` where one is a link, or another process works in it; ``DamagedInput`` where the card
    of a build, which says what belongs to it, cannot be read.
    """
    with contextlib.ExitStack() as locks:
        for each in those:
            files.refuse_link(each.path)
            locks.enter_context(build_lock(each.path, quiet=True, wait=False))
        names = [_own_files(each) for each in those]
        for each, own in zip(those, names, strict=True):
            if each.kind == "unfinished build":
                remove_unfinished(each.path, None)
            files.remove_partials(each.path, root=each.path)
            files.remove_files(each.path.parent, [f"{each.path.name}/{name}" for name in own])
    for each in those:
        files.remove_empty(each.path)
        if each.kind == "run" and each.path.is_relative_to(home.runs):
            for folder in each.path.parents[:2]:
                files.remove_empty(folder)


def _own_files(item: Belonging) -> list[str]:
    """Names of the files below it that kmip-data wrote; what says so comes last, so that it can go on."""
    if item.kind == "build":
        return _files_of_build(Build(item.path, read_card(item.path)))
    if item.kind == "raw files":
        return files_of_raw(item.path)
    return files_of_run(item.path) if item.kind == "run" else []


def _files_of_build(build: Build) -> list[str]:
    """Names, below its folder, of what a build consists of and what commands put there; the card last."""
    card, names = build.card, list(BESIDE)
    for column in added_names(build.path):
        with contextlib.suppress(DamagedInput):
            names += [f"{COLUMNS}/{column}/{entry.file}" for entry in read_columns(build, column).files]
        names.append(f"{COLUMNS}/{column}/{CARD_NAME}")
    names += [shard.file for shard in card.shards] + [split.file for split in card.splits.values()]
    return [*names, PAGE_NAME, CARD_NAME]
