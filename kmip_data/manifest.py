"""Dataset manifests: models of ``manifests/datasets/*/dataset.toml``, and functions that load them."""

from __future__ import annotations

import fnmatch
import functools
import tomllib
from collections.abc import Sequence
from operator import not_
from typing import Annotated, Literal

from pydantic import Field, ValidationError, ValidationInfo, field_validator

from kmip_data.errors import Command, DamagedInput, UsageError, unknown_name_error
from kmip_data.registry import PLUGIN_OBJECTS
from kmip_data.strict_model import Digest, StrictModel, read_shipped, shipped_datasets
from kmip_data.text import address_without_secrets

PACKAGE_PREFIX = "package:"  #: begins the address of a file inside an installed Python package
Md5 = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class License(StrictModel):
    """Terms under which the owner distributes the data."""

    name: str
    url: str
    notice: str  #: one line, shown on every card and before every download
    agreement: bool = False  #: True if users must agree before a download


class ResponsibleAI(StrictModel):
    """Statements in Croissant's vocabulary of responsible AI; empty if the owner made none."""

    collection: str = ""
    biases: str = ""
    uses: str = ""
    personal: str = ""  #: personal data in the files
    limitations: str = ""
    impact: str = ""  #: effects on society, including misuse


class Mirror(StrictModel):
    """One address of a source; mirrors repack archives, so each has its own size and digest."""

    url: str  #: requested as it stands; messages and cards show ``address``
    bytes: int | None = None
    sha256: Digest | None = None
    md5: Md5 | None = None  #: used if the owner publishes no other digest
    #: git's digest of a file: SHA-1 of ``blob <size>``, a zero byte and the content
    git_blob: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] | None = None
    #: digest of the members' digests, for an archive that is packed anew for each request
    members_sha256: Digest | None = None
    pin_source: str = ""  #: publication that states the digest; git blobs need none
    note: str = ""

    @property
    def pins(self) -> dict[str, str]:
        """Known digests of the file, by algorithm."""
        digests = {"SHA-256": self.sha256, "MD5": self.md5, "git blob": self.git_blob}
        return {algorithm: digest for algorithm, digest in digests.items() if digest}

    @property
    def is_pinned(self) -> bool:
        """True if a digest of the file is known."""
        return bool(self.pins)

    @property
    def address(self) -> str:
        """URL without secrets, for messages, receipts and cards."""
        return address_without_secrets(self.url)


class MemberPattern(StrictModel):
    """Pattern of the archive members that the pipeline reads, and limits of their size and number.

    ``pattern`` is a :func:`fnmatch.fnmatchcase` pattern of paths below the folder that holds
    ``anchor`` (see :class:`Content`), because mirrors rename the root folder.
    """

    pattern: str
    max_bytes: int
    min_count: int = 1
    max_count: int = 1


class Content(StrictModel):
    """Files that a local archive or folder must hold to be recognised, and their limits."""

    anchor: str  #: path or pattern of a file in the root folder of the data
    members: tuple[MemberPattern, ...]
    max_total_bytes: int
    #: file name that occurs only in other data, such as an older release -> description of that data
    other_data: dict[str, str] = Field(default_factory=dict)
    #: member path -> published digest; an archive with another digest is refused
    known_sha256: dict[str, Digest] = Field(default_factory=dict)
    #: as ``known_sha256``, if only MD5 is published
    known_md5: dict[str, Md5] = Field(default_factory=dict)
    pin_source: str = ""  #: publication that states the digests

    @classmethod
    def joined(cls, contents: Sequence[Content]) -> Content:
        """Return the content of several sources together, with the anchor of the first."""
        joined = contents[0]
        for content in contents[1:]:
            joined = cls(
                anchor=joined.anchor,
                members=joined.members + content.members,
                max_total_bytes=joined.max_total_bytes + content.max_total_bytes,
                other_data=joined.other_data | content.other_data,
                known_sha256=joined.known_sha256 | content.known_sha256,
                known_md5=joined.known_md5 | content.known_md5,
                pin_source=joined.pin_source or content.pin_source,
            )
        return joined


NO_CONTENT = Content(anchor="", members=(), max_total_bytes=0)


class Source(StrictModel):
    """One raw file and its mirrors, best first."""

    name: str  #: file name under ``raw/<dataset>/``
    container: Literal["archive", "file"] = "archive"
    mirrors: tuple[Mirror, ...]
    #: members of this source if a dataset has several; by default, the manifest's ``[content]``
    content: Content | None = None

    @property
    def is_packaged(self) -> bool:
        """True if the file comes with an installed Python package."""
        return any(mirror.url.startswith(PACKAGE_PREFIX) for mirror in self.mirrors)


class Publisher(StrictModel):
    """Publisher of addresses, for docs/sources.md; of several, the one with the longest beginning."""

    begins: str  #: beginning of the addresses
    by: str
    named: str  #: public repository or thread that names the address
    since: str = ""  #: day from which it does


class ExpectedCounts(StrictModel):
    """Counts of the complete published set; a build with the same counts is complete."""

    graphs: int | None = None
    #: split rule -> {train, val, test: graphs}
    splits: dict[str, dict[str, int]] = Field(default_factory=dict)
    classes: int | None = None  #: number of classes, labels or targets
    avg_nodes: float | None = None
    avg_edges: float | None = None


class Standardisation(StrictModel):
    """Mean and standard deviation of each component of a column, as published."""

    mean: tuple[float, ...]
    std: tuple[Annotated[float, Field(gt=0)], ...]


class ColumnLayout(StrictModel):
    """Column of a :class:`Layout`, with fields of :class:`~kmip_data.format.schema.Column`."""

    shape: tuple[int, ...] = ()
    stored: str = "float32"
    presented: str = "float32"
    low: int | float | None = None
    high: int | float | None = None
    classes: int | None = None  #: number of classes of the label, whose only other field is ``doc``
    #: name of the attribute on records; by default, the name in the key
    attribute: str = Field(default="", exclude_if=not_)
    doc: str = ""
    unit: str = Field(default="", exclude_if=not_)
    fields: tuple[str, ...] = Field(default=(), exclude_if=not_)


class Layout(StrictModel):
    """Splits and columns of a dataset read by :mod:`kmip_data.pipelines.layout_pipelines`."""

    undirected: bool = False  #: True if the build adds the reverse of each edge, after checking
    #: set if the files have both directions of each edge: stated by them, or checked by the build
    both_ways: Literal["", "stated", "checked"] = Field(default="", exclude_if=not_)
    folds: int = 1  #: number of published splits
    split_note: str = ""  #: note on the published split
    #: parameters of the splits written with every build, the default first
    default_splits: tuple[dict[str, object], ...] = Field(default=(), exclude_if=not_)
    #: attribute -> column, first and last component that it also presents
    views: dict[str, tuple[str, int, int]] = Field(default={}, exclude_if=not_)
    #: columns by key, such as ``node/x``, in the order of the shards
    columns: dict[str, ColumnLayout] = Field(default_factory=dict)
    #: False if build keys leave out the columns, as in older datasets; a test pins their sample
    columns_in_key: bool = Field(default=True, exclude=True)


class Manifest(StrictModel):
    """Description of a dataset: identity, license, sources, content, expected counts, defaults."""

    #: name of the dataset that users type; the card's ``dataset``
    name: str
    title: str
    summary: str
    #: name of the manifest for :func:`load_manifest`; the card's ``manifest``. Equals ``name``,
    #: except in a build of your own data, where it is the recipe.
    registered_name: str = ""
    #: module of the pipeline; its last word is the family's folder and the card's ``pipeline``
    pipeline: str
    task: str
    #: kind of targets -> metric, if not the default of :data:`~.format.targets.DEFAULT_METRICS`
    metrics: dict[str, str] = Field(default_factory=dict)
    homepage: str
    published: Annotated[str, Field(pattern=r"^(\d{4}-\d\d-\d\d)?$")] = ""  #: date, if known
    #: real raw files that the pipeline was run on; stated for the paper's datasets
    tested_on: str = ""
    license: License
    responsible: ResponsibleAI = ResponsibleAI()
    #: True if the data were generated, not collected; ``None`` if only the owner knows
    synthetic: bool | None = None
    citation: str  #: BibTeX
    class_names: tuple[str, ...] = ()
    #: True if records are computed from parameters, without sources and content
    generated: bool = False
    sources: tuple[Source, ...] = ()  #: empty if raw data must be passed with ``--archive``
    publishers: tuple[Publisher, ...] = ()  #: of addresses in ``sources``, also of other datasets
    #: ``[content]``, or the content of all sources together
    content: Content = Field(default=NO_CONTENT, validate_default=True)
    expected: ExpectedCounts = ExpectedCounts()
    max_nodes: int  #: largest graph allowed; sets the index width
    dataset_class: str = ""  #: public class in ``kmip_data``, if it has one
    pyg: str = ""  #: PyTorch Geometric class that covers several datasets and takes this name
    recipe: str = ""  #: set for a recipe, which builds your own data: description of its datasets
    up_axis: Literal["y", "z"] = "z"  #: axis that points up in drawings
    #: key of a column -> constants with which models standardise it
    standardisation: dict[str, Standardisation] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()
    layout: Layout = Layout()

    @field_validator("content")
    @classmethod
    def _join_contents_of_sources(cls, content: Content, info: ValidationInfo) -> Content:
        sources = info.data.get("sources", ())
        contents = [source.content for source in sources if source.content is not None]
        if not contents:
            return content
        if content != NO_CONTENT or len(contents) < len(sources):
            raise ValueError("give either [content] or the content of every source, not both")
        return Content.joined(contents)

    @property
    def is_from_plugin(self) -> bool:
        """True if a loaded plugin added the dataset, so the package has no files of it."""
        return self.registered_name in PLUGIN_OBJECTS["datasets"]

    @property
    def pins(self) -> dict[str, list[str]]:
        """Algorithms of the digests that pin each source: of a mirror, or of all its members."""
        known = {"MD5": self.content.known_md5, "SHA-256": self.content.known_sha256}
        names = [name for digests in known.values() for name in digests]
        pins = {}
        for source in self.sources or (Source(name=self.name, mirrors=()),):
            algorithms = {algorithm for mirror in source.mirrors for algorithm in mirror.pins}
            if any(mirror.members_sha256 for mirror in source.mirrors):
                algorithms.add("SHA-256 of the members")

            patterns = [member.pattern for member in (source.content or self.content).members]
            if patterns and all(fnmatch.filter(names, pattern) for pattern in patterns):
                suffix = " of the members" if source.container == "archive" else ""
                for algorithm, digests in known.items():
                    if any(fnmatch.filter(digests, pattern) for pattern in patterns):
                        algorithms.add(f"{algorithm}{suffix}")
            if algorithms:
                pins[source.name] = sorted(algorithms)
        return pins


def describe_digests(manifest: Manifest) -> str:
    """Describe how many raw files are pinned and by which digests; empty without raw files."""
    num_files = len(manifest.sources)
    if not num_files:
        return ""
    pins = manifest.pins
    algorithms = " and ".join(sorted({name for names in pins.values() for name in names}))
    if len(pins) == num_files:
        return f"every raw file is pinned, by {algorithms}"
    pinned = "no raw file is pinned"
    if pins:
        pinned = f"{len(pins)} of {num_files} raw files are pinned, by {algorithms}"
    return f"{pinned}; builds check only structure and counts"


def dataset_names() -> list[str]:
    """Return the sorted names of all datasets, both shipped and added by loaded plugins."""
    return sorted([*shipped_datasets(), *PLUGIN_OBJECTS["datasets"]])


@functools.cache
def load_manifest(name: str) -> Manifest:
    """Read and check the manifest of dataset ``name``; keys that it lacks come from its ``base``.

    Raises ``UsageError`` with the nearest name if there is no such dataset, and ``DamagedInput``
    with every problem if the file does not follow the model.
    """
    # The manifest of a plugin's dataset is a Python object, checked when it was added.
    if name in PLUGIN_OBJECTS["datasets"]:
        added: Manifest = PLUGIN_OBJECTS["datasets"][name].value.manifest
        return added
    if name not in (names := dataset_names()):
        raise unknown_name_error("dataset", name, names)
    try:
        values = read_shipped(f"datasets/{name}", "dataset")
        # A family shares one file; the dataset's own keys override the keys of its base.
        while "base" in values:
            base = values.pop("base")
            values = read_shipped(f"datasets/{base}", "dataset") | values
        return Manifest.model_validate(values | {"registered_name": name})
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise DamagedInput(
            f"The manifest of {name!r} is not valid.",
            found=str(error),
            steps=f"correct manifests/datasets/{name}/dataset.toml",
        ) from error


def with_build_name(manifest: Manifest, name: str) -> Manifest:
    """Return ``manifest`` for a dataset called ``name``; a recipe's title then starts with it."""
    title = f"{name}: {manifest.recipe}" if manifest.recipe else manifest.title
    return manifest.model_copy(update={"name": name, "title": title})


def require_dataset(manifest: Manifest) -> Manifest:
    """Return ``manifest``; raise ``UsageError`` for a recipe, which is not a dataset itself."""
    if manifest.recipe and manifest.name == manifest.registered_name:
        raise UsageError(
            f"{manifest.name!r} is a recipe that builds datasets, not a dataset.",
            steps=Command("kmip-data info", manifest.name),
        )
    return manifest


def up_axis_name(dataset: str) -> Literal["y", "z"]:
    """Return the axis that points up in the point clouds of a dataset; z if it has no manifest."""
    return load_manifest(dataset).up_axis if dataset in dataset_names() else "z"
