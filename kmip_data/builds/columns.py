"""Added columns of a build: ``columns/<name>/``, one file per shard and a card."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import FailFast, model_validator

from kmip_data.builds.home import COLUMNS, Build, added_names
from kmip_data.errors import DamagedInput, unknown_name
from kmip_data.files.reading import json_digest, read_model, read_small, sealed_json
from kmip_data.format.card import CARD_NAME, Card, FileEntry, PathPart, ShardMember
from kmip_data.format.schema import Schema, parse_schema
from kmip_data.graphs.encoding import Encoding
from kmip_data.shipped import Strict

#: Files that commands write into the folder of a build.
_OWN = re.compile(
    r"card\.json|README\.md|croissant\.json|preview\.png|explore\.html|(columns/)?work/.+"
    r"|(shards|columns/[^/]+)/\d{5,}(-\d{5,})?\.h5|columns/[^/]+/card\.json|splits/[^/]+\.h5"
)


class ColumnsCard(Strict):
    """Card of an added column: its definition and the shards it belongs to."""

    version: Literal[2] = 2
    name: PathPart
    definition: str
    encoding_version: int
    key: PathPart
    build_key: PathPart
    shards_digest: str
    data_schema: dict[str, object]
    files: Annotated[list[FileEntry], FailFast()]
    versions: dict[str, str]
    note: str = ""
    digest: str = ""

    @property
    def parts(self) -> dict[str, ShardMember]:
        """Size and digest of each file."""
        parts = {}
        for entry in self.files:
            parts.update(entry.files)
        return parts

    @property
    def digests(self) -> dict[str, str]:
        """SHA-256 of each file."""
        return {file: member.sha256 for file, member in self.parts.items()}

    @property
    def schema_(self) -> Schema:
        """The schema of the files."""
        return parse_schema(json.dumps(self.data_schema))[0]

    @model_validator(mode="after")
    def _of_columns_alone(self) -> Self:
        schema = self.schema_
        # Edges are stored again only to give the rows of an edge column their graphs.
        has_edge_column = any(column.level == "edge" for column in schema.columns)
        has_edges = schema.edges != "none"
        if has_edges != has_edge_column or schema.views or not schema.columns:
            raise ValueError(
                "data_schema has edges without a column of theirs, or views, or no columns"
            )
        return self

    def to_json(self) -> str:
        """Return stable JSON; ``digest`` is over all other fields, as on the card of a build."""
        return sealed_json(self.model_dump(mode="json"))


def shards_digest(card: Card) -> str:
    """Return the SHA-256 over the digests of the shards, from which added columns are computed."""
    digests = "\n".join(shard.sha256 for shard in card.shards)
    return hashlib.sha256(digests.encode()).hexdigest()


def columns_schema(encoding: Encoding, schema: Schema) -> Schema:
    """Return the schema of the files of an added column: keys as in the build, edges for one of edges."""
    columns = encoding.columns()
    has_edge_column = any(column.level == "edge" for column in columns)
    return Schema(
        columns=columns,
        max_nodes=schema.max_nodes,
        key_length=schema.key_length,
        edges=schema.edges if has_edge_column else "none",
        k=schema.k if has_edge_column else None,
    )


def columns_key(encoding: Encoding, card: Card) -> str:
    """Return the first 12 hex digits of the SHA-256 of what decides the bytes of an added column."""
    identity = {
        "name": encoding.name,
        "version": encoding.version,
        "build_key": card.key,
        "shards": shards_digest(card),
    }
    return json_digest(identity)[:12]


def read_columns(build: Build, name: str) -> ColumnsCard:
    """Read the card of an added column.

    Raises ``UsageError``, which names the command that adds it, if none exists;
    ``DamagedInput`` where its card cannot be read, or belongs to other shards.
    """
    path = build.path / COLUMNS / name / CARD_NAME
    try:
        card = read_model(
            path,
            ColumnsCard,
            "cannot be read as the card of an added column",
            next=build.remedy,
        )
    except FileNotFoundError as error:
        raise unknown_name(
            "added column",
            name,
            added_names(build.path),
            command="kmip-data encode TARGET --help",
        ) from error
    if read_small(path) != card.to_json().encode():
        raise DamagedInput(f"{path} was changed after it was written.", next=build.remedy)
    if card.shards_digest != shards_digest(build.card) or card.name != name:
        raise DamagedInput(
            f"{path} belongs to other shards.",
            found=f"{card.name} of build {card.build_key}",
            next=build.remedy,
        )
    return card


def files_of_build(folder: Path) -> list[str]:
    """Names of the files of a build, finished or not, in its folder; the card, if any, is the last."""
    names = []
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if _OWN.fullmatch(name) and not path.is_dir():
            names.append(name)
    return sorted(names, key=lambda name: (name == CARD_NAME, name))


def column_facts(build: Build, card: ColumnsCard) -> dict[str, Any]:
    """Return the facts about an added column, as plain values."""
    return {
        "name": card.name,
        "path": str(build.path / COLUMNS / card.name),
        "attributes": [column.attribute for column in card.schema_.columns],
        "definition": card.definition,
        "key": card.key,
        "bytes": sum(entry.bytes for entry in card.files),
        "files": card.digests,
    }


def added_facts(build: Build) -> list[dict[str, object]]:
    """:func:`column_facts` of all added columns.

    A damaged one has ``name`` and the reason, ``damaged``.
    """
    facts = []
    for name in added_names(build.path):
        try:
            facts.append(column_facts(build, read_columns(build, name)))
        except DamagedInput as error:
            facts.append({"name": name, "damaged": error.what})
    return facts
