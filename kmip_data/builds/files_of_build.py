"""Files of a build folder, finished or not, and notes on files that do not belong to it."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Literal

from pydantic import TypeAdapter

from kmip_data.builds.added_columns import AddedColumnCard, find_encoding
from kmip_data.builds.home import COLUMNS_FOLDER
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.files.atomic_writes import final_name
from kmip_data.files.folder_marker import MARKER_NAME, unchanged_outputs
from kmip_data.files.small_files import read_json, read_model
from kmip_data.format.build_files import CROISSANT_NAME, PAGE_NAME
from kmip_data.format.card import CARD_NAME, RelativePath, read_card
from kmip_data.format.reader import shard_member_paths

WORK_FOLDER = "work"  #: folder of temporary files in an unfinished build or in ``columns``
#: JSON files in ``work`` whose key ``files`` lists the files that a step is about to write.
WRITE_LISTS = ("units", "splits")
_WRITE_LIST = TypeAdapter(dict[Literal["files"], list[RelativePath]])


def files_of_build(folder: Path) -> list[str]:
    """Return the names of the existing files of a build, finished or not; the card comes last.

    They are listed by the cards, by the write lists of unfinished work, and by the marker. Without a card
    or write list, shards are the files numbered consecutively from 0.
    """
    # 1. Shards, splits and pages.
    names = [PAGE_NAME, CROISSANT_NAME, CARD_NAME, *unchanged_outputs(folder)]
    shards = _listed_files(folder / WORK_FOLDER)
    with contextlib.suppress(DamagedInput, UsageError):
        card = read_card(folder)
        names += card.digests
        shards += [entry.file for entry in card.shards]
    if not shards:
        for number in itertools.count():
            name = f"shards/{number:05}.h5"
            if not shard_member_paths(folder / name)[0].is_file():
                break
            shards.append(name)
    names += _member_names_of_shards(folder, shards)

    # 2. Columns: the files on their cards; without a card, a file per shard.
    names += _listed_files(folder / COLUMNS_FOLDER / WORK_FOLDER)
    for path in (folder / COLUMNS_FOLDER).glob("*/"):
        files = [CARD_NAME]
        try:
            files += read_model(path / CARD_NAME, AddedColumnCard, "", steps="").digests
        except (DamagedInput, FileNotFoundError):
            if find_encoding(path.name) is None:
                continue  # it may not be a column at all
            files += _member_names_of_shards(path, [Path(shard).name for shard in shards])
        names += [f"{COLUMNS_FOLDER}/{path.name}/{file}" for file in files]

    # 3. Temporary files.
    for work in (folder / WORK_FOLDER, folder / COLUMNS_FOLDER / WORK_FOLDER):
        names += [path.relative_to(folder).as_posix() for path in work.rglob("*")]
    existing = [
        name
        for name in dict.fromkeys(names)
        if os.path.lexists(folder / name) and not (folder / name).is_dir()
    ]
    return sorted(existing, key=lambda name: (name == CARD_NAME, name))


def _listed_files(work: Path) -> list[str]:
    """Return the files that unfinished work lists before writing them."""
    names = []
    for name in WRITE_LISTS:
        with contextlib.suppress(OSError, ValueError, TypeError):
            names += _WRITE_LIST.validate_python(read_json(work / f"{name}.json"))["files"]
    return names


def _member_names_of_shards(folder: Path, shards: Iterable[str]) -> list[str]:
    """Return the names of the files of all shards, which may be split into members."""
    names = []
    for shard in shards:
        names += [
            str(Path(shard).with_name(path.name)) for path in shard_member_paths(folder / shard)
        ]
    return names


def foreign_file_notes(folder: Path) -> Iterator[str]:
    """Yield a note on each file, or folder of files, that does not belong to the build."""
    build_files = {*files_of_build(folder), MARKER_NAME}
    build_folders = {parent for name in build_files for parent in PurePosixPath(name).parents}
    foreign: dict[PurePosixPath, None] = {}
    for path in sorted(folder.rglob("*")):
        name = PurePosixPath(path.relative_to(folder).as_posix())
        is_file = path.is_symlink() or not path.is_dir()
        if is_file and str(name) not in build_files and final_name(name.name) is None:
            # Report a folder without files of the build once.
            folders = [parent for parent in name.parents if parent not in build_folders]
            foreign[folders[-1] if folders else name] = None
    for name in foreign:
        yield f"{name} is not part of the build, and is left unchanged"
