"""Files that people bring themselves: which there are, what they are called, and a copy of them."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from kmip_data.builds.home import Home
from kmip_data.errors import UsageError, require_room, writing
from kmip_data.files.reading import CHUNK
from kmip_data.pipelines.raw.copies import RawCopy, StoredSource, local_source, store_own

_THREADS: Final = 8  #: files copied at a time; most are small and wait for the disk


def _located(path: Path) -> tuple[Path, str]:
    """Return the absolute path and its kind: a file, a folder, or the reason why neither."""
    try:
        path = path.expanduser().absolute()
        mode = path.stat().st_mode
    except FileNotFoundError:
        return path, "nothing"
    except (OSError, RuntimeError, ValueError) as error:  # too long, ~ of nobody, NUL
        return path, getattr(error, "strerror", None) or str(error)
    kinds = {stat.S_IFREG: "a file", stat.S_IFDIR: "a folder"}
    return path, kinds.get(stat.S_IFMT(mode), stat.filemode(mode))


def given_file(path: Path, option: str) -> Path:
    """Return the absolute path of the file that an option names; an error where there is none."""
    path, found = _located(path)
    if found != "a file":
        raise UsageError(
            f"{path} is not a regular file.",
            expected=f"a file, as {option} names it",
            found=found,
            next=f"check the path given to {option}",
        )
    return path


def files_below(folder: Path | None, option: str, suffixes: Collection[str]) -> dict[str, Path]:
    """Return the files of a folder and its sub-folders that end in one of ``suffixes``, by path below it.

    Hidden files and links to folders are left out; one file may be given instead of a folder. Raises
    ``UsageError`` where the folder is not given, not there, or has no such file.
    """
    names = ", ".join(sorted(suffixes))

    def refused(what: str, found: str, next_step: str = f"check the path given to {option}") -> UsageError:
        wanted = f"a folder of {names} files, as {option} names it"
        return UsageError(what, expected=wanted, found=found, next=next_step)

    if folder is None:
        raise refused(f"{option} is missing.", "none", f"give {option} DIR")
    folder, kind = _located(folder)
    if kind == "a file" and folder.suffix.lower() in suffixes:
        return {folder.name: folder}
    if kind != "a folder":
        raise refused(f"There is no folder {folder}.", kind)
    found: dict[str, Path] = {}
    for place, inner, files in os.walk(folder):
        inner[:] = [name for name in inner if not name.startswith(".")]
        for name in files:
            path = Path(place, name)
            if not name.startswith(".") and path.suffix.lower() in suffixes and path.is_file():
                key = path.relative_to(folder).as_posix()
                if key.encode("utf-8", "ignore").decode() != key:
                    raise refused(f"{folder} has a file whose name is not UTF-8.", ascii(key), "rename it")
                found[key] = path
    if not found:
        raise refused(f"{folder} has no usable file.", "none")
    return dict(sorted(found.items()))


def ascii_key(name: str, length: int) -> str:
    """Return a name as the key of a record: ASCII, and cut with a digest where it is too long."""
    key = name.encode("ascii", "backslashreplace").decode()
    if len(key) <= length:
        return key
    return f"{key[: length - 13]}~{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def copy_in(
    dataset: str, files: Mapping[str, Path], origin: str, home: Home, *, quiet: bool
) -> tuple[RawCopy, bool]:
    """Copy files into ``raw/<dataset>``, all or none; return the copy and whether it is new.

    A build can so be verified and repaired whatever becomes of the originals. ``files`` maps the name in the
    copy to the file. Raises ``UsageError`` or ``OutOfResources`` where a file cannot be read, or the disk is
    full.
    """
    folder = home.raw / dataset

    def make(target: Path) -> tuple[dict[str, str], list[StoredSource]]:
        with writing(target):
            target.mkdir()
            require_room(folder, sum(path.stat().st_size for path in files.values()), "A copy of the files")
            for place in {(target / name).parent for name in files}:
                place.mkdir(parents=True, exist_ok=True)
            with ThreadPoolExecutor(_THREADS) as pool:
                copied = list(pool.map(_copy, files.values(), (target / name for name in files)))
        members = dict(zip(files, (digest for digest, _ in copied), strict=True))
        return members, [local_source(dataset, origin, members, sum(size for _, size in copied))]

    return store_own(folder, make, quiet=quiet)


def _copy(path: Path, target: Path) -> tuple[str, int]:
    """Copy one file and return digest and size of what was written."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as source, target.open("xb") as copy:
        while piece := source.read(CHUNK):
            digest.update(piece)
            size += copy.write(piece)
    return digest.hexdigest(), size
