"""``share.json``, the index of a push."""

from __future__ import annotations

from typing import Annotated, Literal, Self, TypeVar

from pydantic import FailFast, Field, model_validator

from kmip_data.errors import DamagedInput
from kmip_data.files.small_files import first_problem, json_digest, sealed_json
from kmip_data.format.card import Card, Count, PathComponent, RelativePath
from kmip_data.strict_model import Digest, StrictModel

#: Written twice: first without files, which marks the address, and last with all of them.
SHARE_NAME = "share.json"
MAX_FILES = 100_000  #: maximum number of files in a push
#: Files of a shared run in writing order: the configuration, which identifies a run, comes last.
RUN_FILES = ("metrics.csv", "model.safetensors", "result.json", "config.toml")


class PushedFile(StrictModel):
    """One file of a push, relative to its address."""

    file: RelativePath
    sha256: Digest
    bytes: Count


class PushIndex(StrictModel):
    """Content of ``share.json``."""

    version: Literal[2] = 2
    kind: Literal["build", "run"]
    name: PathComponent  #: name of the folder that was pushed
    key: PathComponent  #: build key, or the beginning of the SHA-256 of a run's weights
    #: none while the push is unfinished
    files: Annotated[list[PushedFile], FailFast(), Field(max_length=MAX_FILES)]
    digest: str = ""  #: SHA-256 of all other fields, as on a card

    @model_validator(mode="after")
    def _check_files(self) -> Self:
        names = [entry.file for entry in self.files]
        if len({SHARE_NAME, *names}) != len(names) + 1:
            raise ValueError("files has a duplicate or reserved name")
        return self

    def to_json(self) -> str:
        """Return stable, readable JSON with a new ``digest``."""
        return sealed_json(self.model_dump(mode="json"))

    @property
    def computed_digest(self) -> str:
        """Digest of all other fields; equal digests mean equal pushes."""
        return json_digest(self.model_dump(mode="json", exclude={"digest"}))


Sealed = TypeVar("Sealed", PushIndex, Card)


def parse_pushed(data: bytes, model: type[Sealed], address: str) -> Sealed:
    """Parse the index of a push or a card; ``DamagedInput`` if it is invalid or was changed."""
    try:
        pushed = model.model_validate_json(data)
    except (ValueError, RecursionError) as error:
        version = model.model_fields["version"].default
        raise damaged_error(address, f"JSON of version {version}", first_problem(error)) from error
    if pushed.to_json().encode() != data:
        raise damaged_error(address, "the text that kmip-data wrote", "a changed text")
    return pushed


def damaged_error(address: str, expected: str, content: str) -> DamagedInput:
    """Return the error for data at an address that differ from the push."""
    return DamagedInput(
        f"{address} differs from what was pushed.",
        expected=expected,
        found=content,
        left="only verified files",
        steps="ask whoever pushed it to push it again",
    )
