"""Folders of a home that can be removed: found by name, and the files in them that kmip-data wrote."""

from __future__ import annotations

import contextlib
import os
import tomllib
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

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

SHOWN = 5  #: names that a message lists
_WRONG = (OSError, ValueError, zipfile.BadZipFile)  #: reading a file that is not what its name says


@dataclass(frozen=True)
class Belonging:
    """A folder that can be removed as a whole."""

    kind: Literal["build", "unfinished build", "raw files", "run"]
    path: Path
    name: str  #: below the home
    top: Path  #: ``built/``, ``raw/`` or ``runs/`` of the home


def belongings(home: Home) -> list[Belonging]:
    """Return all builds, raw files and runs of a home, without links and hidden folders."""
    found = []
    for top, pattern in {home.built: "*", home.raw: "*", home.runs: "*/*/*"}.items():
        for path in sorted(top.glob(pattern)):
            hidden = path.name.startswith(
                "."
            ) or path.resolve() != top.resolve() / path.relative_to(top)
            if path.is_dir() and not hidden:
                built = "build" if (path / CARD_NAME).is_file() else "unfinished build"
                kind: Any = {home.raw: "raw files", home.runs: "run"}.get(top, built)
                found.append(Belonging(kind, path, path.relative_to(home.root).as_posix(), top))
    return found


def find(target: str, home: Home) -> Belonging:
    """Return the belonging in a folder, or at the end of its path below the home; raw files as ``raw/NAME``.

    Raises ``UsageError`` where that is nothing, several, or outside of the home's builds, raw files and runs.
    """
    known = belongings(home)
    full = Path(os.path.abspath(os.path.expanduser(target)))  # noqa: PTH100, PTH111 -- no error, links stay
    path = Path(target)
    parts = Path(target).parts
    matches = [
        each
        for each in known
        if each.path == full
        or (parts and each.path.parts[-len(parts) :] == parts and each.kind != "raw files")
        or each.name == path.as_posix()
    ]
    if len(matches) == 1:
        return matches[0]
    if matches:
        names = "\n    ".join(["", *(each.name for each in matches)])
        raise UsageError(
            f"{len(matches)} folders are called {target!r}.", found=names, next="one of them"
        )
    if os.path.isdir(full) and (os.sep in target or target in {".", "..", "~"}):  # noqa: PTH112
        found: list[str] = []
        for kind in ("build", "unfinished build", "run"):
            with contextlib.suppress(KmipDataError, OSError):
                names_there = _own_files(Belonging(kind, full, "", full))
                found += [name for name in names_there if (full / name).is_file()]
        raise UsageError(
            f"{full} is not a build, raw files or a run in {home.root}, so nothing in it is removed.",
            found=f"files of kmip-data: {some(found)}" if found else "no file of kmip-data",
            next="delete these yourself" if found else "kmip-data list lists the folders",
        )
    # Raw files may have taken hours to download: they are suggested only where raw/ is written.
    rest = [each for each in known if each.kind != "raw files" or target.startswith("raw")]
    of_dataset = [each.name for each in rest if each.path.name.startswith(f"{target}-")]
    close = of_dataset[0] if len(of_dataset) == 1 else nearest(target, [each.name for each in rest])
    step = f"kmip-data remove {close}" if close else "kmip-data list lists the folders"
    raise UsageError(
        f"There is no {target!r}: the folder of a build or run, or raw/NAME.", next=step
    )


def some(names: Sequence[str]) -> str:
    """Return the first few names for a message."""
    return ", ".join(names[:SHOWN]) + (
        f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    )


def bytes_below(folder: Path) -> int:
    """Bytes of all files below a folder; links are not followed."""
    found = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # removed meanwhile
                found += os.lstat(os.path.join(parent, name)).st_size  # noqa: PTH118
    return found


def remove(those: Sequence[Belonging]) -> None:
    """Remove from each what kmip-data wrote, by name; all of them must be free, or none is touched.

    Raises ``UsageError`` where one lies behind a link, another process works in it, or nothing in it is
    known to be of kmip-data; ``DamagedInput`` where the card that lists the files of a build is damaged;
    ``OutOfResources`` where a file cannot be removed: the proof of the rest stays.
    """
    with contextlib.ExitStack() as locks:
        for each in those:
            files.refuse_links_below(each.top, each.path)
            locks.enter_context(build_lock(each.path, quiet=True, wait=False))
        names = [_own_files(each) for each in those]
        for each, own in zip(those, names, strict=True):
            if not own and any(not path.is_dir() for path in each.path.rglob("*")):
                what = f"Nothing in {each.path} proves that kmip-data wrote it, so nothing in it is removed."
                raise UsageError(what, next="delete what you do not need yourself")
        # Every folder below built/, raw/ or runs/ is opened anew, and none through a link: one that was put
        # in since the question leads nowhere.
        for each, own in zip(those, names, strict=True):
            below = each.path.relative_to(each.top).as_posix()
            files.refuse_links_below(each.top, each.path)
            for folder in {"", *(str(PurePosixPath(name).parent) for name in own)}:
                with contextlib.suppress(OSError, ValueError):  # a link, or NUL in a name
                    files.remove_partials(each.path / folder, root=each.top)
            folders = [f"{below}/{name}" for name in _own_folders(each)]
            # The proof goes last, after the folders, so that a removal that was stopped can be resumed.
            paths = [f"{below}/{name}" for name in own]
            files.remove_files(each.top, paths[:-1], folders=folders, strict=True)
            files.remove_files(each.top, paths[-1:], strict=True)
    for each in those:
        path = PurePosixPath(each.path.relative_to(each.top).as_posix())
        files.remove_files(each.top, [], folders=[str(path), *map(str, path.parents[:-1])])


def _own_files(item: Belonging) -> list[str]:
    """Names of the files below it that kmip-data wrote; the proof comes last, so that it can be resumed."""
    if item.kind == "raw files":
        return files_of_raw(item.path)
    if item.kind == "run":
        return files_of_run(item.path) if _is_run(item.path) else []
    if item.kind == "unfinished build":
        return files_of_unfinished(item.path) or []
    build = Build(item.path, read_card(item.path))
    return files_of_build(build)


def _own_folders(item: Belonging) -> list[str]:
    """Names of folders that kmip-data makes there, which go where they are empty."""
    if item.kind == "run":
        return ["checkpoints"]
    begun = [
        f"work/{path.name}" for path in (item.path / "work").glob("prepared*") if path.is_dir()
    ]
    columns = [f"{COLUMNS}/{path.name}" for path in (item.path / COLUMNS).glob("*")]
    return [*begun, "work", "shards", "splits", *columns, COLUMNS]


def _is_run(folder: Path) -> bool:
    """True if a folder is proven to be a run: by its result, or a checkpoint with its configuration.

    A run that was stopped before its first checkpoint has a configuration, and no file of another name.
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
        there = [each.name for each in folder.rglob("*") if not each.is_dir()]
        return sum(not name.startswith(".lock") for name in there) == len(files_of_run(folder))
    return False
