"""Check the added columns of a build against their cards and its shards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from kmip_data.builds.columns import (
    COLUMNS,
    ColumnsCard,
    added_names,
    columns_key,
    columns_schema,
    read_columns,
)
from kmip_data.builds.home import Build
from kmip_data.builds.problems import Problem, changes, damage, file_problems, strays, unequal
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.format.card import CARD_NAME, FileEntry
from kmip_data.format.contents import content_faults
from kmip_data.format.reader import Shard
from kmip_data.graphs.encodings import parse_encoding


def column_problems(build: Build, shards: Sequence[Shard] | None, remarks: list[str]) -> Iterator[Problem]:
    """Yield what is wrong with the added columns of a build; unfinished ones have no card and are left out.

    ``shards`` are those of the build; ``None`` where some cannot be read. Files that are not of the build are
    added to ``remarks``.
    """
    for name in added_names(build.path):
        folder = f"{COLUMNS}/{name}"
        try:
            card = read_columns(build, name)
        except DamagedInput as error:
            if not _is_encoding(name):
                remarks.append(f"{folder} is not part of the build; it is left as it is")
                continue
            parts = (str(error.parts[name]) for name in ("expected", "found"))
            yield Problem(f"{folder}/{CARD_NAME}", error.what, *parts)
            continue
        problems = list(_card_problems(build, folder, card))
        yield from problems
        if not problems:
            known = {f"{folder}/{file}" for file in (CARD_NAME, *(entry.file for entry in card.files))}
            remarks += strays(build.path, folder, known)
            for position, entry in enumerate(card.files):
                shard = None if shards is None else shards[position]
                yield from _column_file_problems(build.path, folder, card, entry, shard)


def _is_encoding(name: str) -> bool:
    try:
        parse_encoding(name)
    except UsageError:
        return False
    return True


def _card_problems(build: Build, folder: str, card: ColumnsCard) -> Iterator[Problem]:
    file = f"{folder}/{CARD_NAME}"
    if changed := list(changes(build.path, file, card.to_json())):
        yield from changed
        return
    try:
        encoding = parse_encoding(card.name)
    except UsageError:
        return  # of another version of this package
    if card.encoding_version == encoding.version:
        yield from unequal(file, ("belongs to another build", columns_key(encoding, build.card), card.key))
        if card.schema_ != columns_schema(encoding, build.card.schema_):
            yield Problem(file, "has another schema", f"that of {card.name}", "another")
    wanted = [PurePosixPath(shard.file).name for shard in build.card.shards]
    if [entry.file for entry in card.files] != wanted:
        yield Problem(file, "names other files", "one for each shard", f"{len(card.files)} files")


def _column_file_problems(
    path: Path, folder: str, card: ColumnsCard, entry: FileEntry, shard: Shard | None
) -> Iterator[Problem]:
    file = f"{folder}/{entry.file}"
    yield from file_problems(path, entry.model_copy(update={"file": file}))
    try:
        found = Shard(path / file)
        if (found.build_key, found.schema) != (card.key, card.schema_):
            yield Problem(file, "belongs to another column", f"key {card.key}", f"key {found.build_key}")
            return
        if shard is not None and not (
            np.array_equal(found.node_ptr, shard.node_ptr) and found.keys == shard.keys
        ):
            yield Problem(file, "has other records than its shard", "the same keys and sizes", "others")
        for fault in content_faults(found):
            yield Problem(file, *fault)
    except DamagedInput as error:
        yield from damage(path, file, error)
