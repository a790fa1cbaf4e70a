"""Folders of a home that can be removed: found by name, and the names in them that are ours."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from kmip_data.builds.home import Home, list_builds
from kmip_data.errors import UsageError, unknown_name_error
from kmip_data.files import atomic_writes
from kmip_data.files.atomic_writes import folder_lock
from kmip_data.files.folder_marker import MARKER
from kmip_data.files.reading import read_json
from kmip_data.format.card import CARD_NAME

Kind = Literal["build", "unfinished build", "raw files", "run"]
MAX_SHOWN = 5  #: names that a message lists


@dataclass(frozen=True)
class Removable:
    """A folder that can be removed as a whole."""

    kind: Kind
    path: Path
    name: str  #: below the home
    top: Path  #: ``built/``, ``raw/`` or ``runs/`` of the home


def removable_folders(home: Home) -> list[Removable]:
    """Return all builds, raw files and runs of a home, without links and hidden folders."""
    items = []
    for top, pattern in {home.built: "*", home.raw: "*", home.runs: "*/*/*"}.items():
        for path in sorted(top.glob(pattern)):
            name = path.relative_to(top)
            linked = path.resolve() != top.resolve() / name
            if linked or path.name.startswith(".") or not path.is_dir():
                continue
            kind: Kind = "unfinished build"
            if top == home.raw:
                kind = "raw files"
            elif top == home.runs:
                kind = "run"
            elif (path / CARD_NAME).is_file():
                kind = "build"
            items.append(Removable(kind, path, path.relative_to(home.path).as_posix(), top))
    return items


def find_removable(name: str, home: Home) -> Removable:
    """Return the removable folder at a path, absolute or below the home (raw files: ``raw/NAME``).

    Raises ``UsageError`` where that is nothing, several, or outside of the home's builds, raw files
    and runs.
    """
    # 1. A folder, its name below the home, or the end of its path: of raw files, which may have
    #    taken hours to download, never the end alone.
    known = removable_folders(home)
    full = Path(os.path.abspath(os.path.expanduser(name)))  # noqa: PTH100, PTH111 -- no error, links stay
    path = Path(name)
    matches = []
    for item in known:
        ends_so = path.parts and item.path.parts[-len(path.parts) :] == path.parts
        if (
            item.path == full
            or item.name == path.as_posix()
            or (ends_so and item.kind != "raw files")
        ):
            matches.append(item)

    # 2. Else the builds of a dataset of this name.
    if not matches:
        of_dataset = {build.path for build in list_builds(home, name)}
        matches = [item for item in known if item.path in of_dataset]

    # 3. The match must be unique: never guess among several.
    if len(matches) == 1:
        return matches[0]
    if matches:
        names = "\n    ".join(["", *(item.name for item in matches)])
        trained_on = _builds_with_runs(home)
        unused = [item for item in matches if item.path not in trained_on]
        step = f"all of them: kmip-data remove {shlex.join(item.name for item in matches)}"
        if 0 < len(unused) < len(matches):
            step = f"only without runs: kmip-data remove {shlex.join(item.name for item in unused)}"
        raise UsageError(f"{len(matches)} folders are called {name!r}.", found=names, next=step)
    # 4. Nothing: suggest the nearest name. Raw files only where raw/ is written.
    known_names = [
        item.name for item in known if item.kind != "raw files" or name.startswith("raw")
    ]
    known_names += sorted({build.card.dataset for build in list_builds(home)})
    raise unknown_name_error(
        "build, run or raw/NAME", name, known_names, command="kmip-data list", where="in the home"
    )


def _builds_with_runs(home: Home) -> set[Path]:
    """Return the builds of a home that its finished runs were trained on."""
    keys = set()
    for file in home.runs.glob("*/*/*/result.json"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            keys.add(read_json(file)["build_key"])
    return {build.path for build in list_builds(home) if build.card.key in keys}


def folder_bytes(folder: Path) -> int:
    """Return the bytes of all files below a folder; links are not followed."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # removed meanwhile
                total += os.lstat(os.path.join(parent, name)).st_size  # noqa: PTH118
    return total


def remove_folders(items: Sequence[Removable]) -> None:
    """Remove from each what kmip-data wrote, by name; all of them must be free, or none is touched.

    Raises ``UsageError`` where one lies behind a link, has no marker, or another process works in
    it; ``OutOfResources`` where a file cannot be removed: the same call resumes.
    """
    from kmip_data.builds.added_columns import files_of_build
    from kmip_data.models.training.run.run_folder import files_of_run
    from kmip_data.pipelines.raw.copies import files_of_raw

    with contextlib.ExitStack() as locks:
        # 1. Lock every folder before anything is removed.
        for item in items:
            atomic_writes.refuse_links_below(item.top, item.path)
            names = sorted(path.name for path in item.path.iterdir())
            # Raw files have receipts: archives of the user's may lie between them.
            marked = item.kind == "raw files" or atomic_writes.marker_content(item.path) is not None
            if names and not marked:
                raise atomic_writes.foreign_files_error(item.path, names[:MAX_SHOWN])
            locks.enter_context(folder_lock(item.path, quiet=True, wait=False))

        # 2. Open every folder below built/, raw/ or runs/ anew, and none through a link: one that
        #    was put in since the question leads nowhere.
        for item in items:
            below = item.path.relative_to(item.top).as_posix()
            atomic_writes.refuse_links_below(item.top, item.path)
            files_of = {"raw files": files_of_raw, "run": files_of_run}
            names = files_of.get(item.kind, files_of_build)(item.path)
            paths = [PurePosixPath(below, name) for name in names]
            # Folders in it go where they are empty, with half-written files in them.
            inside = item.path.rglob("*/")
            folders = [below, *(path.relative_to(item.top).as_posix() for path in inside)]
            for folder in folders:
                with contextlib.suppress(OSError, ValueError):  # a link, or NUL in a name
                    atomic_writes.remove_partials(item.top / folder, root=item.top)
            atomic_writes.remove_files(item.top, map(str, paths), folders=folders, strict=True)
            # The marker goes last, so that a removal that was stopped can be resumed.
            atomic_writes.remove_files(item.top, [f"{below}/{MARKER}"], strict=True)

    # 3. Without the locks, which lie in the folders: the folders themselves, where they are empty.
    for item in items:
        path = PurePosixPath(item.path.relative_to(item.top).as_posix())
        atomic_writes.remove_files(item.top, [], folders=[str(path), *map(str, path.parents[:-1])])
