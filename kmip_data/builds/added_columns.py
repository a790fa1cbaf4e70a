"""Added columns of a build: folders ``columns/<name>/`` with a card and one file per shard."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import FailFast, TypeAdapter, model_validator

from kmip_data.builds.home import COLUMNS_FOLDER, Build, added_column_names
from kmip_data.errors import DamagedInput, UsageError, unknown_name_error
from kmip_data.files.atomic_writes import final_name
from kmip_data.files.folder_marker import MARKER_NAME, unchanged_outputs
from kmip_data.files.small_files import (
    json_digest,
    read_json,
    read_model,
    read_small_file,
    sealed_json,
)
from kmip_data.format.build_files import CROISSANT_NAME, PAGE_NAME
from kmip_data.format.card import (
    CARD_NAME,
    Card,
    FileDigests,
    FileEntry,
    PathComponent,
    RelativePath,
    read_card,
)
from kmip_data.format.reader import shard_member_paths
from kmip_data.format.schema import Schema, parse_schema
from kmip_data.graphs.encoding import Encoding, parse_encoding
from kmip_data.strict_model import StrictModel

WORK_FOLDER = "work"  #: folder of temporary files in an unfinished build or in ``columns``
#: JSON files in ``work`` whose key ``files`` lists the files that a step is about to write.
WRITE_LISTS = ("units", "splits")
_WRITE_LIST = TypeAdapter(dict[Literal["files"], list[RelativePath]])


class AddedColumnCard(StrictModel):
    """Card of an added column: its definition, its files and the shards it belongs to."""

    version: Literal[2] = 2
    name: PathComponent
    definition: str
    encoding_version: int
    key: PathComponent
    build_key: PathComponent
    shards_digest: str
    data_schema: dict[str, object]
    files: Annotated[list[FileEntry], FailFast()]
    versions: dict[str, str]
    note: str = ""
    digest: str = ""

    @property
    def digests_of_file(self) -> dict[str, FileDigests]:
        """Size and digests of each file on disk."""
        members = {}
        for entry in self.files:
            members.update(entry.files)
        return members

    @property
    def digests(self) -> dict[str, str]:
        """SHA-256 of each file."""
        return {file: member.sha256 for file, member in self.digests_of_file.items()}

    @property
    def schema_(self) -> Schema:
        """Schema of the files, parsed."""
        return parse_schema(json.dumps(self.data_schema))[0]

    @model_validator(mode="after")
    def _check_only_columns(self) -> Self:
        schema = self.schema_
        # Edges are stored only with an edge column, to assign its rows to graphs.
        has_edge_column = any(column.level == "edge" for column in schema.columns)
        has_edges = schema.edges != "none"
        if has_edges != has_edge_column or schema.views or not schema.columns:
            raise ValueError("data_schema has edges without an edge column, views, or no columns")
        return self

    def to_json(self) -> str:
        """Return the card as JSON with a new ``digest`` over all other fields."""
        return sealed_json(self.model_dump(mode="json"))


def shards_digest(card: Card) -> str:
    """Return the SHA-256 over the digests of all shards."""
    digests = "\n".join(shard.sha256 for shard in card.shards)
    return hashlib.sha256(digests.encode()).hexdigest()


def added_column_schema(encoding: Encoding, schema: Schema) -> Schema:
    """Return the schema of the files of an added column; edges are included for an edge column."""
    columns = encoding.columns()
    has_edge_column = any(column.level == "edge" for column in columns)
    return Schema(
        columns=columns,
        max_nodes=schema.max_nodes,
        key_length=schema.key_length,
        edges=schema.edges if has_edge_column else "none",
        k=schema.k if has_edge_column else None,
    )


def added_column_key(encoding: Encoding, card: Card) -> str:
    """Return the key of an added column: 12 hex digits of a digest of everything that affects it."""
    identity = {
        "name": encoding.name,
        "version": encoding.version,
        "build_key": card.key,
        "shards": shards_digest(card),
    }
    return json_digest(identity)[:12]


def read_added_column_card(build: Build, name: str) -> AddedColumnCard:
    """Read the card of an added column.

    Raises ``UsageError`` if there is no such column, and ``DamagedInput`` if its card cannot be read
    or belongs to other shards.
    """
    path = build.path / COLUMNS_FOLDER / name / CARD_NAME
    try:
        card = read_model(
            path,
            AddedColumnCard,
            "cannot be read as the card of an added column",
            next=build.remedy,
        )
    except FileNotFoundError as error:
        raise unknown_name_error(
            "added column",
            name,
            added_column_names(build.path),
            command="kmip-data encode NAME --help",
        ) from error
    if read_small_file(path) != card.to_json().encode():
        raise DamagedInput(f"{path} was changed after it was written.", next=build.remedy)
    if card.shards_digest != shards_digest(build.card) or card.name != name:
        raise DamagedInput(
            f"{path} belongs to other shards.",
            found=f"{card.name} of build {card.build_key}",
            next=build.remedy,
        )
    return card


def find_encoding(name: str) -> Encoding | None:
    """Return the encoding of an added column, or ``None`` if this version has none of that name."""
    try:
        return parse_encoding(name)
    except UsageError:
        return None


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
            files += read_model(path / CARD_NAME, AddedColumnCard, "", next="").digests
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


def column_facts(build: Build, card: AddedColumnCard) -> dict[str, Any]:
    """Return name, path, attributes, size and digests of an added column, for JSON."""
    return {
        "name": card.name,
        "path": str(build.path / COLUMNS_FOLDER / card.name),
        "attributes": [column.attribute for column in card.schema_.columns],
        "definition": card.definition,
        "key": card.key,
        "bytes": sum(entry.bytes for entry in card.files),
        "files": card.digests,
    }


def facts_of_added_columns(build: Build) -> list[dict[str, object]]:
    """Return :func:`column_facts` of all added columns; of a damaged one, ``name`` and ``damaged``."""
    facts = []
    for name in added_column_names(build.path):
        try:
            facts.append(column_facts(build, read_added_column_card(build, name)))
        except DamagedInput as error:
            facts.append({"name": name, "damaged": error.message})
    return facts
