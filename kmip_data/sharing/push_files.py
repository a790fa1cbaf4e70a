"""The files of a push besides its content: ``push.json``, ``blocks.sha256`` and ``share.json``."""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal, Self, TypeVar

from pydantic import FailFast, Field, model_validator

from kmip_data.errors import DamagedInput
from kmip_data.files.reading import first_problem, json_digest, sealed_json
from kmip_data.format.card import Card, Count, PathComponent, RelativePath
from kmip_data.strict_model import Digest, Strict

PUSH_NAME = "push.json"  #: written first: marker of an address
SHARE_NAME = "share.json"  #: written last: a folder without it is not a push
BLOCKS_NAME = "blocks.sha256"
MAX_FILES = 100_000  #: most files of one push
#: Files of a shared run in writing order: a folder with its configuration counts as a run.
RUN_FILES = ("metrics.csv", "model.safetensors", "result.json", "config.toml")
BLOCK = 2**20  #: bytes per hashed block
_DIGEST = hashlib.sha256().digest_size
_MAX_BYTES = 2**43  #: most bytes of a push, so that the digests of a hostile one fit into memory


class SharedFile(Strict):
    """One file of a push, relative to its address."""

    file: RelativePath
    sha256: Digest
    bytes: Count

    @property
    def blocks(self) -> int:
        """Number of blocks; the last one may be shorter, and an empty file has none."""
        return -(-self.bytes // BLOCK)


class PushMark(Strict):
    """Content of ``push.json``: the build or run whose files an address holds, now or soon."""

    version: Literal[2] = 2
    kind: Literal["build", "run"]
    key: PathComponent  #: build key, or the first digits of the SHA-256 of a run's weights


class Share(Strict):
    """Content of ``share.json``, the manifest of a push."""

    version: Literal[1] = 1
    kind: Literal["build", "run"]
    name: PathComponent  #: name of the folder that was pushed
    files: Annotated[list[SharedFile], FailFast(), Field(min_length=1, max_length=MAX_FILES)]
    blocks: Digest  #: SHA-256 of ``blocks.sha256``
    digest: str = ""  #: SHA-256 of all other fields, as on a card

    @model_validator(mode="after")
    def _check_files(self) -> Self:
        names = [entry.file for entry in self.files]
        if len({PUSH_NAME, SHARE_NAME, BLOCKS_NAME, *names}) != len(names) + 3:
            raise ValueError("files has a name twice, or a reserved one")
        if sum(entry.bytes for entry in self.files) > _MAX_BYTES:
            raise ValueError(f"files have more than {_MAX_BYTES:,} bytes together")
        return self

    @property
    def blocks_bytes(self) -> int:
        """Size of ``blocks.sha256``."""
        return _DIGEST * sum(entry.blocks for entry in self.files)

    def to_json(self) -> str:
        """Stable, readable JSON; ``digest`` is made anew."""
        return sealed_json(self.model_dump(mode="json"))

    @property
    def computed_digest(self) -> str:
        """Digest of all other fields; equal digests mean equal pushes."""
        return json_digest(self.model_dump(mode="json", exclude={"digest"}))


Sealed = TypeVar("Sealed", Share, Card)


class BlockDigests:
    """The SHA-256 of each block of each file of a push, from the ``blocks.sha256`` that ``share`` names."""

    def __init__(self, share: Share, data: bytes, address: str) -> None:
        if len(data) != share.blocks_bytes or hashlib.sha256(data).hexdigest() != share.blocks:
            raise damaged_error(
                f"{address}/{BLOCKS_NAME}",
                f"{share.blocks_bytes:,} bytes of SHA-256 {share.blocks}",
                f"{len(data):,} bytes",
            )
        self._first: dict[str, int] = {}  # file -> number of its first block in the push
        blocks = 0
        for entry in share.files:
            self._first[entry.file] = blocks
            blocks += entry.blocks
        self._data = data
        self._address = address

    def digest(self, file: str, block: int) -> str:
        """SHA-256 (hex) of a block."""
        offset = _DIGEST * (self._first[file] + block)
        return self._data[offset : offset + _DIGEST].hex()

    def check(self, file: str, first: int, data: bytes | memoryview) -> None:
        """Raise DamagedInput unless ``data`` are the blocks of ``file`` from block ``first`` on."""
        for block, start in enumerate(range(0, len(data), BLOCK), start=first):
            expected = self.digest(file, block)
            digest = hashlib.sha256(data[start : start + BLOCK]).hexdigest()
            if digest != expected:
                raise damaged_error(
                    f"block {block} of {self._address}/{file}", f"SHA-256 {expected}", digest
                )


def parse_pushed(data: bytes, model: type[Sealed], address: str) -> Sealed:
    """Return a push's manifest or card; raise DamagedInput if the bytes are invalid or were changed."""
    try:
        pushed = model.model_validate_json(data)
    except (ValueError, RecursionError) as error:
        version = model.model_fields["version"].default
        raise damaged_error(address, f"JSON of version {version}", first_problem(error)) from error
    if pushed.to_json().encode() != data:
        raise damaged_error(address, "the text as kmip-data wrote it", "another")
    return pushed


def damaged_error(address: str, expected: str, content: str) -> DamagedInput:
    """Return the error for data at an address that differ from what was pushed."""
    return DamagedInput(
        f"{address} is not what was pushed.",
        expected=expected,
        found=content,
        left="nothing that was not verified",
        next="ask whoever pushed it to push it again",
    )
