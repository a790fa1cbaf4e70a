"""Folders of a home that can be removed: found by name, and the files in them that kmip-data wrote."""

from __future__ import annotations

import contextlib
import os
import tomllib
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from kmip_data.builds.columns import files_of_build
from kmip_data.builds.home import COLUMNS, Build, Home
from kmip_data.errors import KmipDataError, UsageError
from kmip_data.files import changes as files
from kmip_data.files.changes import build_lock
from kmip_data.files.reading import read_json, read_small
from kmip_data.format.card import CARD_NAME, read_card
from kmip_data.models.training.run.folder import CONFIG_NAME, RESULT_NAME, files_of_run
from kmip_data.pipelines.engine.journal import files_of_unfinished
from kmip_data.pipelines.raw.copies import files_of_raw
from kmip_data.wording import nearest

Kind = Literal["build", "unfinished build", "raw files", "run"]
#: Kinds that a folder outside of the home is looked through for.
OUTSIDE: tuple[Kind, ...] = ("build", "unfinished build", "run")
SHOWN = 5  #: names that a message lists
_WRONG = (OSError, ValueError, zipfile.BadZipFile)  #: reading a file that is not what its name says


@dataclass(frozen=True)
class Belonging:
    """A folder that can be removed as a whole."""

    kind: Kind
    path: Path
    name: str  #: below the home
    top: Path  #: ``built/``, ``raw/`` or ``runs/`` of the home


def belongings(home: Home) -> list[Belonging]:
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
            items.append(Belonging(kind, path, path.relative_to(home.root).as_posix(), top))
    return items


def find(target: str, home: Home) -> Belonging:
    """Return the belonging in a folder, or at a path below the home (raw files: ``raw/NAME``).

    Raises ``UsageError`` where that is nothing, several, or outside of the home's builds, raw files
    and runs.
    """
    # 1. A folder, its name below the home, or the end of its path: of raw files, which may have
    #    taken hours to download, never the end alone.
    known = belongings(home)
    full = Path(os.path.abspath(os.path.expanduser(target)))  # noqa: PTH100, PTH111 -- no error, links stay
    path = Path(target)
    matches = []
    for item in known:
        ends_so = path.parts and item.path.parts[-len(path.parts) :] == path.parts
        if (
            item.path == full
            or item.name == path.as_posix()
            or (ends_so and item.kind != "raw files")
        ):
            matches.append(item)

    # 2. One is meant; of several none is guessed.
    if len(matches) == 1:
        return matches[0]
    if matches:
        names = "\n    ".join(["", *(item.name for item in matches)])
        raise UsageError(
            f"{len(matches)} folders are called {target!r}.", found=names, next="one of them"
        )
    if os.path.isdir(full) and (os.sep in target or target in {".", "..", "~"}):  # noqa: PTH112
        raise _outside(full, home)

    # 3. Nothing: suggest the nearest name. Raw files only where raw/ is written.
    suggested = [
        item.name for item in known if item.kind != "raw files" or target.startswith("raw")
    ]
    of_dataset = [name for name in suggested if Path(name).name.startswith(f"{target}-")]
    close = nearest(target, suggested)
    if len(of_dataset) == 1:
        close = of_dataset[0]
    step = f"kmip-data remove {close}" if close else "kmip-data list lists the folders"
    raise UsageError(
        f"There is no {target!r}: the folder of a build or run, or raw/NAME.", next=step
    )


def _outside(folder: Path, home: Home) -> UsageError:
    """Return the error for a folder outside of the home's: it names the files that kmip-data wrote there."""
    names = []
    for kind in OUTSIDE:
        with contextlib.suppress(KmipDataError, OSError):
            written = _files_of(Belonging(kind, folder, "", folder))
            names += [name for name in written if (folder / name).is_file()]
    listed = "no file of kmip-data"
    step = "kmip-data list lists the folders"
    if names:
        listed = f"files of kmip-data: {some(names)}"
        step = "delete these yourself"
    return UsageError(
        f"{folder} is not a build, raw files or a run in {home.root}, so nothing in it is removed.",
        found=listed,
        next=step,
    )


def some(names: Sequence[str]) -> str:
    """Return the first few names for a message."""
    text = ", ".join(names[:SHOWN])
    if len(names) > SHOWN:
        text += f" and {len(names) - SHOWN:,} more"
    return text


def bytes_below(folder: Path) -> int:
    """Return the bytes of all files below a folder; links are not followed."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # removed meanwhile
                total += os.lstat(os.path.join(parent, name)).st_size  # noqa: PTH118
    return total


def remove(items: Sequence[Belonging]) -> None:
    """Remove from each what kmip-data wrote, by name; all of them must be free, or none is touched.

    Raises ``UsageError`` where one lies behind a link, another process works in it, or nothing in
    it is known to be of kmip-data; ``DamagedInput`` where the card that lists the files of a build
    is damaged; ``OutOfResources`` where a file cannot be removed: the proof of the rest stays.
    """
    with contextlib.ExitStack() as locks:
        # 1. Lock every folder, and list what may go, before anything does.
        for item in items:
            files.refuse_links_below(item.top, item.path)
            locks.enter_context(build_lock(item.path, quiet=True, wait=False))
        files_of = [(item, _files_of(item)) for item in items]
        for item, names in files_of:
            if not names and any(not path.is_dir() for path in item.path.rglob("*")):
                raise UsageError(
                    f"Nothing in {item.path} proves that kmip-data wrote it, so nothing in it is removed.",
                    next="delete what you do not need yourself",
                )

        # 2. Open every folder below built/, raw/ or runs/ anew, and none through a link: one that
        #    was put in since the question leads nowhere.
        for item, names in files_of:
            below = item.path.relative_to(item.top).as_posix()
            files.refuse_links_below(item.top, item.path)
            for folder in {"", *(str(PurePosixPath(name).parent) for name in names)}:
                with contextlib.suppress(OSError, ValueError):  # a link, or NUL in a name
                    files.remove_partials(item.path / folder, root=item.top)
            # The proof goes last, after the folders, so that a removal that was stopped can be
            # resumed.
            folders = [f"{below}/{name}" for name in _folders_of(item)]
            paths = [f"{below}/{name}" for name in names]
            files.remove_files(item.top, paths[:-1], folders=folders, strict=True)
            files.remove_files(item.top, paths[-1:], strict=True)

    # 3. Without the locks, which lie in the folders: the folders themselves, where they are empty.
    for item in items:
        path = PurePosixPath(item.path.relative_to(item.top).as_posix())
        files.remove_files(item.top, [], folders=[str(path), *map(str, path.parents[:-1])])


def _files_of(item: Belonging) -> list[str]:
    """Names of the files below it that kmip-data wrote.

    The proof comes last, so that it can be resumed.
    """
    if item.kind == "raw files":
        return files_of_raw(item.path)
    if item.kind == "run":
        return files_of_run(item.path) if _is_run(item.path) else []
    if item.kind == "unfinished build":
        return files_of_unfinished(item.path) or []
    build = Build(item.path, read_card(item.path))
    return files_of_build(build)


def _folders_of(item: Belonging) -> list[str]:
    """Names of the folders that kmip-data makes in it, which go where they are empty."""
    if item.kind == "run":
        return ["checkpoints"]
    prepared = [path for path in (item.path / "work").glob("prepared*") if path.is_dir()]
    columns = (item.path / COLUMNS).glob("*")
    inner = [path.relative_to(item.path).as_posix() for path in (*prepared, *columns)]
    return [*inner, "work", "shards", "splits", COLUMNS]


def _is_run(folder: Path) -> bool:
    """True if a folder is proven to be a run: by its result, or a checkpoint with its configuration.

    A run that was stopped before its first checkpoint has a configuration, and no file of another
    name.
    """
    with contextlib.suppress(*_WRONG):
        result = read_json(folder / RESULT_NAME)
        if isinstance(result, dict) and {"build_key", "config", "metrics"} <= result.keys():
            return True
    with contextlib.suppress(*_WRONG):
        config = tomllib.loads(read_small(folder / CONFIG_NAME).decode())
        if not {"data", "model", "training", "variant"} <= config.keys():
            return False
        with (
            contextlib.suppress(*_WRONG),
            zipfile.ZipFile(folder / "checkpoints/last.ckpt") as checkpoint,
        ):
            return any(name.endswith("/data.pkl") for name in checkpoint.namelist())
        # Nothing but what a run writes: a folder with another file is not proven to be one.
        count = 0
        for path in folder.rglob("*"):
            if not path.is_dir() and not path.name.startswith(".lock"):
                count += 1
        return count == len(files_of_run(folder))
    return False
