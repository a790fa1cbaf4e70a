"""Card of a build: the file ``card.json``, written last, which describes its folder."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    FailFast,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from kmip_data.errors import Command, Step, UsageError
from kmip_data.files.folder_marker import read_marker
from kmip_data.files.path_errors import raise_damaged
from kmip_data.files.small_files import read_model, read_small_file, sealed_json
from kmip_data.format.schema import FieldKind, Schema, parse_schema, shard_member_name
from kmip_data.format.split_files import parts_in_order
from kmip_data.manifest import Standardisation, dataset_names, load_manifest
from kmip_data.strict_model import StrictModel
from kmip_data.text import count_with_noun, format_parameters, one_line

_NAME = r"[A-Za-z0-9_][A-Za-z0-9 ._+=,()@-]{0,199}"
NAME_RULE = "letters, digits and ' ._+=,()@-', beginning with a letter, digit or '_'"

PathComponent = Annotated[str, Field(pattern=f"^{_NAME}$")]  #: one component of a path
ShardPath = Annotated[str, Field(pattern=f"^shards/{_NAME}$")]
SplitPath = Annotated[str, Field(pattern=f"^splits/{_NAME}$")]
#: A path of up to three components.
RelativePath = Annotated[str, Field(pattern=rf"^(?:{_NAME}/){{0,2}}{_NAME}$")]
Count = Annotated[int, Field(ge=0, lt=2**63)]
Crc32 = Annotated[str, Field(pattern="^[0-9a-f]{8}$")]
Number = Annotated[float | int, Field(ge=-1e300, le=1e300)]
_Counts = Annotated[list[Count], FailFast()]


def is_path_component(text: str) -> bool:
    """True if ``text`` is a valid :data:`PathComponent`."""
    return re.fullmatch(_NAME, text) is not None


def _check_parameters(parameters: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Refuse parameters that no command-line option could set."""
    # Nested values could not be compared, printed and typed.
    for name, value in parameters.items():
        items = value if isinstance(value, list) else [value]
        if any(isinstance(item, dict | list) for item in items):
            raise ValueError(
                f"{name[:80]} is neither a number, a string, a boolean nor a list of these"
            )
    # The reader and the builder rely on the type of these two.
    for name in ("k", "limit"):
        value = parameters.get(name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise ValueError(f"{name} has the wrong type")
    return parameters


Parameters = Annotated[dict[str, Any], AfterValidator(_check_parameters)]


# Models of the known statistics; a writer may add other keys.
class _Histogram(BaseModel):
    low: _Counts
    high: _Counts
    count: _Counts

    @model_validator(mode="after")
    def _check_lengths(self) -> _Histogram:
        if not len(self.low) == len(self.high) == len(self.count) > 0:
            raise ValueError("low, high and count differ in length")
        return self


class _Spread(BaseModel):
    min: Number
    mean: Number
    max: Number
    histogram: _Histogram


class _Classes(BaseModel):
    total: _Counts = []
    splits: dict[PathComponent, dict[PathComponent, _Counts]] = {}

    @model_validator(mode="after")
    def _check_class_counts(self) -> _Classes:
        rows = (row for parts in self.splits.values() for row in parts.values())
        if self.total and any(len(row) != len(self.total) for row in rows):
            raise ValueError("a part has another number of classes than the whole dataset")
        return self


_Range = Annotated[list[Number], Field(min_length=2, max_length=2)]


class _Features(BaseModel):
    mean: list[Number]
    std: list[Number]
    coordinate_range: Annotated[list[_Range], Field(min_length=2, max_length=2)]


_Empty = Annotated[dict[str, object], Field(max_length=0)]


#: Well-known text of a kind that cannot be nested, without NaN and infinity.
_Shape = Annotated[str, Field(pattern=r"^(MULTIPOLYGON|MULTIPOINT) (EMPTY|[-+.,()e\d ]+)$")]


class _City(BaseModel):
    features: _Features | _Empty = {}
    vocabulary: dict[str, list[str]] | None = None
    places: list[tuple[str, Number, Number]] = []
    ground: dict[str, _Shape] = {}
    bends: dict[Annotated[str, Field(pattern=r"^\d{1,10} \d{1,10}$")], _Shape] = {}
    warnings: list[str] = []


class Repeats(BaseModel):
    """Equal items of a split of your own data: graphs, or nodes of a single graph."""

    test: Count  #: items of test
    test_in_train: Count  #: those that equal an item of train
    items: Count  #: items of all parts
    other_target: Count  #: those that equal an item with another target


class _Files(BaseModel):
    columns: dict[str, JsonValue] | None = None
    parameters: dict[str, JsonValue] = {}


class _Statistics(BaseModel):
    nodes_per_graph: _Spread | _Empty = {}
    edges_per_graph: _Spread | _Empty = {}
    in_degree: _Spread | _Empty = {}
    out_degree: _Spread | _Empty = {}
    classes: _Classes = _Classes()
    city: _City = _City()
    standardisation: dict[str, Standardisation] = {}
    kinds: dict[str, list[FieldKind]] = {}
    repeats: dict[PathComponent, Repeats] = {}
    files: _Files = _Files()
    skipped: list[tuple[str, str]] = []


def _check_statistics(statistics: dict[str, object]) -> dict[str, object]:
    _Statistics.model_validate(statistics)
    return statistics


CARD_NAME = "card.json"
CARD_VERSION = 3
INCOMPLETE = "part of the published set"
COMPLETE_BY_COUNTS = "complete by counts, bytes not pinned"

#: Note below results on a sample.
SAMPLE_NOTE = "A sample is generated: its results say nothing about the model or the dataset."


def label_of_dataset(dataset: str, *, sample: bool) -> str:
    """Return the dataset's name, followed by ``-sample`` for a sample."""
    return f"{dataset}-sample" if sample else dataset


def coverage_suffix(sample: bool, complete: bool | None) -> str:
    """Return the suffix that follows the name of a sample or of an incomplete dataset."""
    if sample:
        return " (sample: generated, not the real data)"
    return f" ({INCOMPLETE})" if complete is False else ""


class FileDigests(StrictModel):
    """Size and digests of one file on disk; a large shard is split over several."""

    sha256: str
    crc32: Crc32
    bytes: Count


class FileEntry(StrictModel):
    """Records of one shard: digests and counts; a large shard is split into member files."""

    file: PathComponent  #: name relative to its folder
    sha256: str  #: digest of the bytes of all members in order
    crc32: Crc32  #: CRC-32 of the same bytes, compared when the file is opened
    bytes: Count
    graphs: Count
    nodes: Count
    edges: Count
    members: Annotated[list[FileDigests], FailFast(), Field(default_factory=list)]

    @model_serializer(mode="wrap")
    def _omit_empty_fields(self, serialise: SerializerFunctionWrapHandler) -> dict[str, object]:
        return {name: value for name, value in serialise(self).items() if value != []}

    @property
    def files(self) -> dict[str, FileDigests]:
        """Files on disk by name: ``file`` itself, or its members."""
        if not self.members:
            return {self.file: FileDigests(sha256=self.sha256, crc32=self.crc32, bytes=self.bytes)}
        return {shard_member_name(self.file, i): member for i, member in enumerate(self.members)}


class ShardEntry(FileEntry):
    """Records of one shard; ``file`` is relative to the build folder."""

    file: ShardPath


class SplitPart(StrictModel):
    """One part (train, val or test) of a split: counts, and the digest of its ordered keys."""

    graphs: Count
    nodes: Count
    edges: Count
    digest: str


class SplitEntry(StrictModel):
    """Split file of a build: its rule, parameters and parts."""

    file: SplitPath
    sha256: str
    rule: str
    parameters: Parameters
    parts: dict[PathComponent, SplitPart]
    note: str = ""

    def ordered_parts(self) -> list[tuple[str, SplitPart]]:
        """Return the parts in the order train, val, test."""
        return [(part, self.parts[part]) for part in parts_in_order(self.parts)]


class Receipt(StrictModel):
    """Origin of a raw file, without a timestamp: equal inputs give equal cards."""

    name: str
    origin: str  #: URL, archive file name or 'generated sample'
    sha256: str
    bytes: int


class Card(StrictModel, frozen=False):
    """Identity, provenance and content of a build.

    ``version`` increases with every change of the fields; a reader accepts its own version only.
    """

    version: Literal[3] = 3
    #: name of the dataset that users type: a shipped name, or the name they gave their own data
    dataset: PathComponent
    #: name of the manifest it was built with: the recipe for your own data; empty if saved in Python
    manifest: PathComponent | Literal[""] = ""
    #: last word of the pipeline's module; empty if saved in Python
    pipeline: PathComponent | Literal[""] = ""
    title: str
    key: PathComponent  #: digest of everything that determines the bytes of the shards
    sample: bool  #: True if generated in the layout of the raw files; not the real data
    complete: bool | None  #: True if the counts are the published ones; null if none are published
    pinned: bool = False  #: True if the manifest pins a digest of every raw file
    parameters: Parameters
    pipeline_version: int
    format_version: int
    license: dict[str, str | bool]
    citation: str
    receipts: Annotated[list[Receipt], FailFast()]
    content_digest: str  #: SHA-256 over the digests of the raw members used
    data_schema: dict[str, object]
    default_split: str  #: key in ``splits`` that dataset classes use by default
    class_names: Annotated[list[str], FailFast()]
    shards: Annotated[list[ShardEntry], FailFast(), Field(min_length=1)]
    splits: dict[PathComponent, SplitEntry]
    counts: dict[str, Count]
    statistics: Annotated[dict[str, Any], AfterValidator(_check_statistics)]
    versions: dict[str, str]
    notes: Annotated[list[str], FailFast()]  #: notes of the manifest, the pipeline and the build
    #: SHA-256 of this card without this field; set by ``to_json``, checked by ``read_card``
    digest: str = ""

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        """Check fields against each other: a card may be an untrusted file."""
        # Parse the schema only to check it; readers use the property ``schema_``.
        parse_schema(json.dumps(self.data_schema))
        for unit in ("edges", "graphs", "nodes"):
            if unit not in self.counts:
                raise ValueError(f"counts has no {unit}")
        if self.default_split and self.default_split not in self.splits:
            raise ValueError("default_split is not one of splits")
        if self.license.get("url") and "name" not in self.license:
            raise ValueError("license has no name")
        return self

    @property
    def heading(self) -> str:
        """Title, with the dataset's name in front if it lacks it, and the coverage suffix."""
        heading = one_line(self.title)
        if self.dataset.lower() not in heading.lower():
            heading = f"{self.dataset}: {heading}"
        # One pair of brackets, if the title ends with brackets of its own.
        return f"{heading}{self.coverage_suffix}".replace(") (", "; ")

    @property
    def caption_title(self) -> str:
        """Name of your own data, or the title of a published dataset with the coverage suffix."""
        title = self.dataset if self.sources else self.title
        return f"{title}{self.coverage_suffix}".replace(") (", "; ")

    @property
    def about(self) -> str:
        """Sentence for a caption: what the data are, from the manifest, or about your files."""
        if self.sources:
            labels = self.schema_.y_column
            target = f"; the target is {labels.doc}" if labels and labels.doc else ""
            return f"Your data {self.sources}{target}."
        if self.manifest not in dataset_names():
            return ""
        summary = load_manifest(self.manifest).summary
        if self.sample:
            return f"A generated sample. The published data: {summary}"
        if self.coverage:
            graphs = count_with_noun(self.counts["graphs"], "graph")
            return f"This part: {graphs}. The published data: {summary}"
        return summary

    @property
    def credit(self) -> str:
        """Attribution that the license requires; empty for a sample, which has none of the data."""
        return "" if self.sample else str(self.license.get("notice", ""))

    @property
    def dataset_label(self) -> str:
        """Dataset name, followed by ``-sample`` for a sample: the folder of its runs."""
        return label_of_dataset(self.dataset, sample=self.sample)

    @property
    def coverage_suffix(self) -> str:
        """Suffix of the name of a sample or of an incomplete dataset."""
        return coverage_suffix(self.sample, self.complete)

    def has_parameters(self, values: Mapping[str, object]) -> bool:
        """True if the build has all ``values``, where ``None`` stands for an absent parameter."""
        return all(self.parameters.get(name) == value for name, value in values.items())

    @property
    def parameters_and_sources(self) -> str:
        """Parameters and, for your own data, the source files, as one line."""
        parameters = dict(self.parameters)
        files = self.statistics.get("files", {})
        if "parameters" in files:  # a default number of classes is not that of the files
            parameters["classes"] = files["parameters"].get("classes")
        return one_line("; ".join(filter(None, [format_parameters(parameters), self.sources])))

    @property
    def sources(self) -> str:
        """Your own files that it was built from, after ``from``; empty for a published dataset."""
        origins = list(dict.fromkeys(entry.origin for entry in self.receipts))
        if not origins or self.manifest in {"", self.dataset}:
            return ""
        listed = ", ".join(origins[:3])
        return f"from {listed}, …" if len(origins) > 3 else f"from {listed}"

    @property
    def coverage(self) -> str:
        """``sample``, ``part of the published set``, or an empty string."""
        if self.sample:
            return "sample"
        return INCOMPLETE if self.complete is False else ""

    @property
    def raw_file_status(self) -> str:
        """``the published files``; ``complete by counts, bytes not pinned``; or an empty string."""
        if self.pinned:
            return "the published files"
        return COMPLETE_BY_COUNTS if self.complete else ""

    @property
    def schema_(self) -> Schema:
        """Schema of the records, parsed."""
        return parse_schema(json.dumps(self.data_schema))[0]

    @property
    def vocabulary(self) -> dict[str, list[str]]:
        """Categories of the one-hot fields of a city; empty if unknown."""
        return self.statistics.get("city", {}).get("vocabulary") or {}

    def class_name(self, number: int) -> str:
        """Return the name of a class, or its number if the classes have no names."""
        return self.class_names[number] if number < len(self.class_names) else str(number)

    def field_kinds(self, key: str) -> tuple[FieldKind, ...]:
        """Return the kind of each field of the column ``key``, such as ``node/x``; empty if unknown.

        Your own tables have kinds by the roles of their columns. The kinds of other columns follow
        from their schema, if it bounds them by 0 and 1, or if they are integers of a published dataset.
        """
        if kinds := self.statistics.get("kinds", {}).get(key):
            return tuple(kinds)
        column = self.schema_.column(key)
        kind: FieldKind = "category"
        integers = ("int", "uint")
        if column.stored.startswith(integers) and (column.low, column.high) == (0, 1):
            kind = "boolean"
        elif self.dataset != self.manifest or not column.presented.startswith(integers):
            return ()
        return (kind,) * math.prod(column.shape)

    @property
    def identity(self) -> dict[str, object]:
        """Fields that identify the data of a result."""
        return {
            "dataset": self.dataset,
            "sample": self.sample,
            "complete": self.complete,
            "build_key": self.key,
        }

    @property
    def split_records(self) -> int:
        """Number of records that a split divides: graphs, or nodes if there is only one graph."""
        return self.counts["nodes"] if self.counts["graphs"] == 1 else self.counts["graphs"]

    @property
    def files(self) -> dict[str, FileDigests]:
        """Files of all shards by name."""
        files = {}
        for entry in self.shards:
            files.update(entry.files)
        return files

    @property
    def digests(self) -> dict[str, str]:
        """SHA-256 of each file on disk of a shard or split."""
        shards = {file: member.sha256 for file, member in self.files.items()}
        return shards | {entry.file: entry.sha256 for entry in self.splits.values()}

    def to_json(self) -> str:
        """Return the card as readable JSON with a new ``digest``; equal cards give equal bytes."""
        return sealed_json(self.model_dump(mode="json"))


class _Version(BaseModel):
    version: int


def read_card(folder: Path) -> Card:
    """Read the card of a build folder.

    Raises ``UsageError`` if the folder has no card (an unfinished build), or if a newer kmip-data
    wrote it: such a build is sound, and this version must not repair it. Raises ``DamagedInput`` if
    the card does not follow the model, or was changed after it was written.
    """
    path = folder / CARD_NAME
    remedy = f"move {path} away, and build it again with the same command: its shards stay"
    problem = "cannot be read as a card"
    try:
        # Check the version first: a newer card may have other fields.
        version = read_model(path, _Version, problem, steps=remedy).version
    except FileNotFoundError as error:
        step: Step = Command("kmip-data list")
        if any("build" in line for line in read_marker(folder)[:1]):
            step = "build it again with the same command: finished shards stay"
        raise UsageError(
            f"{folder} is not a finished build: it has no {CARD_NAME}.", steps=step
        ) from error
    except NotADirectoryError as error:
        raise UsageError(
            f"{folder} is no folder, but a file or a path below one.",
            steps=Command("kmip-data list"),
        ) from error
    if version > CARD_VERSION:
        raise UsageError(
            f"{folder} was written by a newer kmip-data: its card has version {version}, not {CARD_VERSION}.",
            steps="upgrade kmip-data, or use another home or output folder with this version",
        )
    card = read_model(path, Card, problem, steps=remedy)
    if read_small_file(path) != card.to_json().encode():
        raise_damaged(path, "was changed after it was written", remedy=remedy)
    return card
