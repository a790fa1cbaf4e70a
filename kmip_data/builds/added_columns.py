"""Added columns of a build: folders ``columns/<name>/`` with a card and one file per shard."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

from pydantic import FailFast, model_validator

from kmip_data.builds.home import COLUMNS_FOLDER, Build, added_column_names
from kmip_data.errors import Command, DamagedInput, UsageError, unknown_name_error
from kmip_data.files.path_errors import raise_damaged
from kmip_data.files.small_files import (
    json_digest,
    read_model,
    read_small_file,
    sealed_json,
)
from kmip_data.format.card import (
    CARD_NAME,
    Card,
    FileDigests,
    FileEntry,
    PathComponent,
)
from kmip_data.format.schema import Schema, parse_schema
from kmip_data.graphs.encoding import Encoding, parse_encoding
from kmip_data.strict_model import StrictModel


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


def require_added_columns(build: Build, names: Iterable[str]) -> None:
    """Raise ``UsageError`` with the command that adds the missing columns of ``names``."""
    existing = added_column_names(build.path)
    missing = [name for name in names if name not in existing]
    if missing:
        raise UsageError(
            f"{build.card.dataset} lacks the added column {missing[0]}, which the network reads.",
            steps=[
                Command("kmip-data encode", build.name_or_path, *missing),
                "then the same command again",
            ],
        )


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
            steps=build.remedy,
        )
    except FileNotFoundError as error:
        raise unknown_name_error(
            "added column",
            name,
            added_column_names(build.path),
            command=Command("kmip-data encode --help"),
        ) from error
    if read_small_file(path) != card.to_json().encode():
        raise_damaged(path, "was changed after it was written")
    if card.shards_digest != shards_digest(build.card) or card.name != name:
        raise_damaged(path, "belongs to other shards", f"{card.name} of build {card.build_key}")
    return card


def find_encoding(name: str) -> Encoding | None:
    """Return the encoding of an added column, or ``None`` if this version has none of that name."""
    try:
        return parse_encoding(name)
    except UsageError:
        return None


def facts_of_added_column(build: Build, card: AddedColumnCard) -> dict[str, Any]:
    """Return name, path, attributes, size and digests of an added column, for JSON."""
    return {
        "name": card.name,
        "path": str(build.path / COLUMNS_FOLDER / card.name),
        "attributes": card.schema_.attributes,
        "definition": card.definition,
        "key": card.key,
        "bytes": sum(entry.bytes for entry in card.files),
        "files": card.digests,
    }


def facts_of_added_columns(build: Build) -> list[dict[str, object]]:
    """Return :func:`facts_of_added_column` of all added columns; of a damaged one, ``name`` and ``damaged``."""
    facts = []
    for name in added_column_names(build.path):
        try:
            facts.append(facts_of_added_column(build, read_added_column_card(build, name)))
        except DamagedInput as error:
            facts.append({"name": name, "damaged": error.message})
    return facts
