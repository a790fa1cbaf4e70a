"""Added columns of a build: ``columns/<name>/``, one file per shard and a card."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import FailFast, model_validator

from kmip_data.builds.home import COLUMNS, Build, added_names
from kmip_data.errors import DamagedInput
from kmip_data.files.changes import has_size, is_ours
from kmip_data.files.reading import json_digest, open_regular, read_model, read_small, sealed_json
from kmip_data.format.build_files import card_files
from kmip_data.format.card import CARD_NAME, Card, FileEntry, Member, Name
from kmip_data.format.schema import Schema, parse_schema
from kmip_data.graphs.encoding import Encoding
from kmip_data.manifest import Strict, unknown_name

_HDF5 = b"\x89HDF\r\n\x1a\n"  #: first bytes of a file
_ROOT = 2**17  #: bytes in which the attributes of the root lie, of at most 64 kB each


class ColumnsCard(Strict):
    """Card of an added column: its definition and the shards it belongs to."""

    version: Literal[2] = 2
    name: Name
    definition: str
    encoding_version: int
    key: Name
    build_key: Name
    shards_digest: str
    data_schema: dict[str, Any]
    files: Annotated[list[FileEntry], FailFast()]
    versions: dict[str, str]
    note: str = ""
    digest: str = ""

    @property
    def parts(self) -> dict[str, Member]:
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
    repair = f"kmip-data verify {shlex.quote(str(build.path))} --repair"
    try:
        card = read_model(
            path,
            ColumnsCard,
            "cannot be read as the card of an added column",
            next=repair,
        )
    except FileNotFoundError as error:
        raise unknown_name(
            "added column",
            name,
            added_names(build.path),
            command="kmip-data encode TARGET --help",
        ) from error
    if read_small(path) != card.to_json().encode():
        raise DamagedInput(f"{path} was changed after it was written.", next=repair)
    if card.shards_digest != shards_digest(build.card) or card.name != name:
        raise DamagedInput(
            f"{path} belongs to other shards.",
            found=f"{card.name} of build {card.build_key}",
            next=repair,
        )
    return card


def proven(
    folder: Path,
    card: Card | ColumnsCard,
    *,
    damaged: bool = False,
) -> list[str]:
    """Names of the files on a card, itself last, that are proven to be ours.

    Returns ``None`` where the seal of the card is broken.

    They have the size on the card: files of shards are large. With ``damaged`` also what a disk
    leaves of one: nothing, or the beginning of an HDF5 file with our format.
    """
    if not is_ours(folder / CARD_NAME, card.to_json().encode()):
        return []
    parts = card.files if isinstance(card, Card) else card.parts
    names = []
    for name in card.digests:
        path = folder / name
        complete = name in parts and has_size(path, parts[name].bytes)
        if complete or (damaged and _is_remnant(path)):
            names.append(name)
    return [*names, CARD_NAME]


def _is_remnant(path: Path) -> bool:
    """True if a file is missing, empty, or begins like HDF5 whose root names a format of ours."""
    with contextlib.suppress(OSError), open_regular(path, follow=False) as file:
        start = file.read(_ROOT)
        return not start or (start.startswith(_HDF5) and b"kmip-data" in start)
    return not os.path.lexists(path)


def files_of_build(build: Build) -> list[str]:
    """Names of the files that are proven to be of a build and its columns; the card is last."""
    card = build.card
    folder = build.path
    names = []
    for column in added_names(folder):
        with contextlib.suppress(DamagedInput):  # of somebody else, then
            inside = proven(folder / COLUMNS / column, read_columns(build, column))
            names += [f"{COLUMNS}/{column}/{name}" for name in inside]
    shards = proven(folder, card)
    if not shards:
        return []

    names += shards[:-1]
    texts = {entry.file: entry.sha256 for entry in card.splits.values()}
    for name, proof in (texts | card_files(card)).items():
        if is_ours(folder / name, proof):
            names.append(name)
    return names


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


def added_facts(build: Build) -> list[dict[str, Any]]:
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
