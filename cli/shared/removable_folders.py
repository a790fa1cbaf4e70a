"""Folders of a home that can be removed, by name; other files in them stay."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from kmip_data.builds.home import Home, list_builds
from kmip_data.errors import Command, UsageError, unknown_name_error
from kmip_data.files import atomic_writes
from kmip_data.files.atomic_writes import folder_lock
from kmip_data.files.folder_marker import MARKER_NAME, foreign_files_error
from kmip_data.files.small_files import read_json
from kmip_data.format.card import CARD_NAME
from kmip_data.text import count_with_noun, is_likely_typo

FolderKind = Literal["build", "unfinished build", "raw files", "run"]
MAX_LISTED = 5  #: names in a message


@dataclass(frozen=True)
class RemovableFolder:
    """A folder that can be removed as a whole."""

    kind: FolderKind
    path: Path
    name: str  #: path below the home
    top: Path  #: ``built/``, ``raw/`` or ``runs/`` of the home


def removable_folders(home: Home) -> list[RemovableFolder]:
    """Return all builds, raw files and runs of a home, except links and hidden folders."""
    items = []
    kinds: dict[Path, FolderKind] = {home.raw: "raw files", home.runs: "run"}
    for top, pattern in {home.built: "*", home.raw: "*", home.runs: "*/*/*"}.items():
        for path in sorted(top.glob(pattern)):
            name = path.relative_to(top)
            is_linked = path.resolve() != top.resolve() / name
            if is_linked or path.name.startswith(".") or not path.is_dir():
                continue
            is_finished = (path / CARD_NAME).is_file()
            kind = kinds.get(top, "build" if is_finished else "unfinished build")
            items.append(RemovableFolder(kind, path, path.relative_to(home.path).as_posix(), top))
    return items


def find_removable_folder(name: str, home: Home) -> RemovableFolder:
    """Return the removable folder with a path, absolute or below the home, or the end of its path.

    Raises ``UsageError`` unless exactly one folder of the home matches.
    """
    # 1. Match paths. Raw files may have taken hours to download, so the end of their path is not
    #    enough.
    known = removable_folders(home)
    full = Path(os.path.abspath(os.path.expanduser(name)))  # noqa: PTH100, PTH111 -- no error, links stay
    path = Path(name)
    matches = []
    for item in known:
        has_this_end = path.parts and item.path.parts[-len(path.parts) :] == path.parts
        if (
            item.path == full
            or item.name == path.as_posix()
            or (has_this_end and item.kind != "raw files")
        ):
            matches.append(item)

    # 2. Otherwise match the builds of a dataset.
    builds = list_builds(home)
    if not matches:
        named = {build.path for build in builds if build.card.dataset == name}
        matches = [item for item in known if item.path in named]

    # 3. Do not guess among several matches.
    if len(matches) == 1:
        return matches[0]
    if matches:
        names = [item.name for item in matches]
        keys = _build_keys_of_runs(home)
        trained_on = {build.path for build in builds if build.card.key in keys}
        unused = [item for item in matches if item.path not in trained_on]
        words = "all of them"
        removed = names
        if 0 < len(unused) < len(matches):
            words = "only without runs"
            removed = [item.name for item in unused]
        raise UsageError(
            f"{len(matches)} folders are called {name!r}.",
            found=names,
            steps=[words, Command("kmip-data remove", *removed)],
        )

    # 4. A dataset, or a dataset and a model, may be meant for its runs, but must not remove them.
    run_name = path.as_posix().removeprefix("runs/")
    begun = [item.name for item in known if item.name.startswith(f"runs/{run_name}/")]
    if begun:
        raise UsageError(
            f"{name} is not a run but has {count_with_noun(len(begun), 'run')}.",
            found=begun,
            steps="name each run to be removed by its path",
        )

    # 5. Otherwise suggest the nearest name: raw files only for raw/…, runs only of a dataset named
    #    alike, because the model's name alone would match any dataset's runs.
    typed_dataset, slash, _ = run_name.partition("/")
    known_names = []
    for item in known:
        dataset = item.path.relative_to(item.top).parts[0]
        is_alike = not slash or typed_dataset == dataset or is_likely_typo(typed_dataset, dataset)
        is_suggested = {"raw files": name.startswith("raw"), "run": is_alike}
        if is_suggested.get(item.kind, True):
            known_names.append(item.name)
    known_names += sorted({build.card.dataset for build in builds})
    raise unknown_name_error(
        "build, run or raw/NAME",
        name,
        known_names,
        command=Command("kmip-data list"),
        where="in the home",
    )


def _build_keys_of_runs(home: Home) -> set[str]:
    """Return the keys of the builds on which finished runs of the home were trained."""
    keys = set()
    for folder in home.run_folders("result.json"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            keys.add(read_json(folder / "result.json")["build_key"])
    return keys


def folder_bytes(folder: Path) -> int:
    """Return the total size of the files below a folder, without following links."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # removed meanwhile
                total += os.lstat(os.path.join(parent, name)).st_size  # noqa: PTH118
    return total


def remove_folders(items: Sequence[RemovableFolder]) -> None:
    """Remove the files that kmip-data wrote in each folder, after locking all of them.

    Raises ``UsageError`` if a folder is behind a link, has no marker, or is locked by another
    process; ``OutOfResources`` if a file cannot be removed: the same call resumes.
    """
    from kmip_data.builds.files_of_build import files_of_build
    from kmip_data.models.training.run.run_folder import files_of_run
    from kmip_data.pipelines.raw.copies import files_of_raw

    with contextlib.ExitStack() as locks:
        # 1. Lock every folder before anything is removed.
        for item in items:
            atomic_writes.refuse_links_below(item.top, item.path)
            names = sorted(path.name for path in item.path.iterdir())
            # Raw files have receipts instead, as the user's archives may lie between them.
            is_ours = (
                item.kind == "raw files" or atomic_writes.marker_content(item.path) is not None
            )
            if names and not is_ours:
                raise foreign_files_error(item.path, names[:MAX_LISTED])
            locks.enter_context(folder_lock(item.path, quiet=True, wait=False))

        # 2. Remove the files. Refuse links again: one may have been created since the question.
        for item in items:
            below = item.path.relative_to(item.top).as_posix()
            atomic_writes.refuse_links_below(item.top, item.path)
            files_of = {"raw files": files_of_raw, "run": files_of_run}
            names = files_of.get(item.kind, files_of_build)(item.path)
            paths = [PurePosixPath(below, name) for name in names]
            # Subfolders are removed with partial files, if nothing else is left in them.
            subfolders = item.path.rglob("*/")
            folders = [below, *(path.relative_to(item.top).as_posix() for path in subfolders)]
            for folder in folders:
                with contextlib.suppress(OSError, ValueError):  # a link, or NUL in a name
                    atomic_writes.remove_partials(item.top / folder, root=item.top)
            atomic_writes.remove_files(item.top, map(str, paths), folders=folders, strict=True)
            # Remove the marker last, so that a stopped removal can be resumed.
            atomic_writes.remove_files(item.top, [f"{below}/{MARKER_NAME}"], strict=True)

    # 3. Remove the folders that are empty without their lock files.
    for item in items:
        path = PurePosixPath(item.path.relative_to(item.top).as_posix())
        atomic_writes.remove_files(item.top, [], folders=[str(path), *map(str, path.parents[:-1])])
