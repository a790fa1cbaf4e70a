"""Metadata files of a push: ``push.json``, ``blocks.sha256`` and ``share.json``."""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal, Self, TypeVar

from pydantic import FailFast, Field, model_validator

from kmip_data.errors import DamagedInput
from kmip_data.files.small_files import first_problem, json_digest, sealed_json
from kmip_data.format.card import Card, Count, PathComponent, RelativePath
from kmip_data.strict_model import Digest, StrictModel

PUSH_NAME = "push.json"  #: written first, to mark the address
SHARE_NAME = "share.json"  #: written last: an address without it has no complete push
BLOCKS_NAME = "blocks.sha256"
MAX_FILES = 100_000  #: maximum number of files in a push
#: Files of a shared run in writing order: the configuration, which identifies a run, comes last.
RUN_FILES = ("metrics.csv", "model.safetensors", "result.json", "config.toml")
BLOCK_BYTES = 2**20  #: bytes per hashed block
_DIGEST_BYTES = hashlib.sha256().digest_size
_MAX_PUSH_BYTES = 2**43  #: maximum size of a push, so that digests of a hostile one fit into memory


class PushedFile(StrictModel):
    """One file of a push, relative to its address."""

    file: RelativePath
    sha256: Digest
    bytes: Count

    @property
    def blocks(self) -> int:
        """Number of blocks; the last one may be shorter, and an empty file has none."""
        return -(-self.bytes // BLOCK_BYTES)


class PushMark(StrictModel):
    """Content of ``push.json``: the build or run that an address is for, complete or not."""

    version: Literal[2] = 2
    kind: Literal["build", "run"]
    key: PathComponent  #: build key, or the beginning of the SHA-256 of a run's weights


class PushIndex(StrictModel):
    """Content of ``share.json``, the index of a push."""

    version: Literal[1] = 1
    kind: Literal["build", "run"]
    name: PathComponent  #: name of the folder that was pushed
    files: Annotated[list[PushedFile], FailFast(), Field(min_length=1, max_length=MAX_FILES)]
    blocks: Digest  #: SHA-256 of ``blocks.sha256``
    digest: str = ""  #: SHA-256 of all other fields, as on a card

    @model_validator(mode="after")
    def _check_files(self) -> Self:
        names = [entry.file for entry in self.files]
        if len({PUSH_NAME, SHARE_NAME, BLOCKS_NAME, *names}) != len(names) + 3:
            raise ValueError("files has a duplicate or reserved name")
        if sum(entry.bytes for entry in self.files) > _MAX_PUSH_BYTES:
            raise ValueError(f"files have more than {_MAX_PUSH_BYTES:,} bytes in total")
        return self

    @property
    def blocks_bytes(self) -> int:
        """Size of ``blocks.sha256``."""
        return _DIGEST_BYTES * sum(entry.blocks for entry in self.files)

    def to_json(self) -> str:
        """Return stable, readable JSON with a new ``digest``."""
        return sealed_json(self.model_dump(mode="json"))

    @property
    def computed_digest(self) -> str:
        """Digest of all other fields; equal digests mean equal pushes."""
        return json_digest(self.model_dump(mode="json", exclude={"digest"}))


Sealed = TypeVar("Sealed", PushIndex, Card)


class BlockDigests:
    """SHA-256 of each block of a push, from ``blocks.sha256``, which is checked against ``index``."""

    def __init__(self, index: PushIndex, data: bytes, address: str) -> None:
        if len(data) != index.blocks_bytes or hashlib.sha256(data).hexdigest() != index.blocks:
            raise damaged_error(
                f"{address}/{BLOCKS_NAME}",
                f"{index.blocks_bytes:,} bytes of SHA-256 {index.blocks}",
                f"{len(data):,} bytes",
            )
        self._first_block: dict[str, int] = {}  # file -> index of its first block in the push
        blocks = 0
        for entry in index.files:
            self._first_block[entry.file] = blocks
            blocks += entry.blocks
        self._data = data
        self._address = address

    def digest(self, file: str, block: int) -> str:
        """Return the SHA-256 (hex) of a block."""
        offset = _DIGEST_BYTES * (self._first_block[file] + block)
        return self._data[offset : offset + _DIGEST_BYTES].hex()

    def check(self, file: str, first: int, data: bytes | memoryview) -> None:
        """Raise ``DamagedInput`` unless ``data`` are the blocks of ``file`` from ``first`` on."""
        for block, start in enumerate(range(0, len(data), BLOCK_BYTES), start=first):
            expected = self.digest(file, block)
            digest = hashlib.sha256(data[start : start + BLOCK_BYTES]).hexdigest()
            if digest != expected:
                raise damaged_error(
                    f"block {block} of {self._address}/{file}", f"SHA-256 {expected}", digest
                )


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
        left="only verified data",
        next="ask whoever pushed it to push it again",
    )
