"""Typed model of ``manifests/datasets/*/dataset.toml``: identity, sources and content of a dataset."""

from __future__ import annotations

import fnmatch
import functools
import tomllib
from collections.abc import Sequence
from operator import not_
from typing import Annotated, Literal

from pydantic import Field, ValidationError, ValidationInfo, field_validator

from kmip_data.errors import DamagedInput, UsageError, unknown_name_error
from kmip_data.registry import ADDED
from kmip_data.strict_model import Digest, Strict, read_shipped, shipped_datasets
from kmip_data.text import address_without_secrets

PACKAGE = "package:"  #: begins the address of a file inside an installed Python package
Md5 = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class License(Strict):
    """Terms under which the owner distributes the data."""

    name: str
    url: str
    notice: str  #: one line that every card and download shows
    agreement: bool = False  #: ask before downloading


class Responsible(Strict):
    """Statements in the terms of Croissant's RAI vocabulary; empty where nobody made one."""

    collection: str = ""
    biases: str = ""
    uses: str = ""
    personal: str = ""  #: personal data in the files
    limitations: str = ""
    impact: str = ""  #: effects on society, also of misuse


class Mirror(Strict):
    """One address of a source, with a size and digest of its own, because mirrors repack."""

    url: str  #: requested unchanged; printed and recorded as ``address``
    bytes: int | None = None
    sha256: Digest | None = None
    #: if the owner publishes no other digest
    md5: Md5 | None = None
    #: SHA-1 of "blob <size>", a zero and the bytes: git's name for a file
    git_blob: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] | None = None
    #: over the digests of the members, of an archive that is packed anew for each request
    members_sha256: Digest | None = None
    pin_source: str = ""  #: publication that states the digest; git blobs need none
    note: str = ""

    @property
    def pins(self) -> dict[str, str]:
        """Known digests of the file, by kind."""
        digests = {"SHA-256": self.sha256, "MD5": self.md5, "git blob": self.git_blob}
        return {algorithm: digest for algorithm, digest in digests.items() if digest}

    @property
    def is_pinned(self) -> bool:
        """True if a digest of the file is known."""
        return bool(self.pins)

    @property
    def address(self) -> str:
        """The URL as it may be shown, for messages, receipts and cards."""
        return address_without_secrets(self.url)


class Member(Strict):
    """Members of the archive that the pipeline reads, by the end of their path.

    ``pattern`` is a :func:`fnmatch.fnmatchcase` pattern applied to the path below the folder that
    holds ``anchor`` (see :class:`Content`), because mirrors rename the root folder.
    """

    pattern: str
    max_bytes: int
    min_count: int = 1
    max_count: int = 1


class Content(Strict):
    """Signs by which a local archive or folder is recognised, and limits of its members."""

    anchor: str  #: path, or pattern, of a file that lies in the root of the data
    members: tuple[Member, ...]
    max_total_bytes: int
    #: file name that only other data have, such as an older release -> description of those
    mistaken: dict[str, str] = Field(default_factory=dict)
    #: member path -> digest in the complete published set, which other archives may not differ from
    known_sha256: dict[str, Digest] = Field(default_factory=dict)
    #: the same where only MD5 is published
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
                mistaken=joined.mistaken | content.mistaken,
                known_sha256=joined.known_sha256 | content.known_sha256,
                known_md5=joined.known_md5 | content.known_md5,
                pin_source=joined.pin_source or content.pin_source,
            )
        return joined


NO_CONTENT = Content(anchor="", members=(), max_total_bytes=0)


class Source(Strict):
    """One raw file and its mirrors, best first."""

    name: str  #: file name under ``raw/<dataset>/``
    container: Literal["archive", "file"] = "archive"
    mirrors: tuple[Mirror, ...]
    #: members of this source, if a dataset has several; else ``[content]`` of the manifest
    content: Content | None = None

    @property
    def is_packaged(self) -> bool:
        """True if an installed Python package contains it."""
        return any(mirror.url.startswith(PACKAGE) for mirror in self.mirrors)


class ExpectedCounts(Strict):
    """Counts of the complete published set; a build with these counts is called complete."""

    graphs: int | None = None
    #: split rule -> {train, val, test: graphs}
    splits: dict[str, dict[str, int]] = Field(default_factory=dict)
    classes: int | None = None  #: number of classes, labels or targets
    avg_nodes: float | None = None
    avg_edges: float | None = None


class Standardisation(Strict):
    """Mean and standard deviation of each component of a column, as published."""

    mean: tuple[float, ...]
    std: tuple[Annotated[float, Field(gt=0)], ...]


class ColumnForm(Strict):
    """A column of :class:`Layout`; fields as of :class:`~kmip_data.format.schema.Column`."""

    shape: tuple[int, ...] = ()
    stored: str = "float32"
    presented: str = "float32"
    low: int | float | None = None
    high: int | float | None = None
    classes: int | None = None  #: classes of the label, which has no other field but ``doc``
    #: name on the item, unless it is the name in the key
    attribute: str = Field(default="", exclude_if=not_)
    doc: str = ""
    unit: str = Field(default="", exclude_if=not_)
    fields: tuple[str, ...] = Field(default=(), exclude_if=not_)


class Layout(Strict):
    """Published splits, and records of a dataset of :mod:`kmip_data.pipelines.manifest_pipelines`."""

    undirected: bool = False  #: edges get their other direction, after they are checked
    #: Set if the files have both directions of each edge: stated by them, or checked by the build.
    both_ways: Literal["", "stated", "checked"] = Field(default="", exclude_if=not_)
    folds: int = 1  #: number of published splits
    split_note: str = ""  #: remark on the published split
    #: parameters of the splits that every build has; the first is the build's default
    default_splits: tuple[dict[str, object], ...] = Field(default=(), exclude_if=not_)
    #: attribute -> column and first and last component of it that are presented under that name, too
    views: dict[str, tuple[str, int, int]] = Field(default={}, exclude_if=not_)
    #: by key, in the order of the shards: ``node/x``, ``node/y``
    columns: dict[str, ColumnForm] = Field(default_factory=dict)
    #: False for a dataset from before columns were in build keys: a test pins its sample instead
    keyed: bool = Field(default=True, exclude=True)


class Manifest(Strict):
    """A dataset: identity, license, sources, content, expected counts, defaults."""

    name: str
    title: str
    summary: str
    #: name that :func:`load_manifest` knows it by, also in builds that a recipe makes under others
    registered_name: str = ""
    #: its last word is the family's folder in ``pipelines/datasets``; stands on cards
    pipeline: str
    task: str
    #: Kind of the targets -> its metric, where it is not the usual one
    #: (:data:`~.format.targets.USUAL_METRICS`).
    metrics: dict[str, str] = Field(default_factory=dict)
    homepage: str
    #: day of publication, as far as it is known; empty for a recipe
    published: Annotated[str, Field(pattern=r"^(\d{4}-\d\d-\d\d)?$")] = ""
    read_here: str = (
        ""  #: real raw files that the pipeline was run on; stated for the paper's datasets
    )
    license: License
    responsible: Responsible = Responsible()
    #: True if the data are generated, not collected; ``None`` where only their owner knows
    synthetic: bool | None = None
    citation: str  #: BibTeX
    class_names: tuple[str, ...] = ()
    #: True if records are made from parameters alone, without sources and content
    generated: bool = False
    sources: tuple[Source, ...] = ()  #: none if raw data come by --archive alone
    #: ``[content]``, or the content of all sources together
    content: Content = Field(default=NO_CONTENT, validate_default=True)
    expected: ExpectedCounts = ExpectedCounts()
    max_nodes: int  #: largest graph allowed; sets the index width
    dataset_class: str  #: public class in ``kmip_data``
    pyg: str = ""  #: class of PyTorch Geometric that has several datasets, this one by its name
    #: ``dataset.format`` and ``dataset.name`` in the configurations of GraphGPS
    graphgps: tuple[str, str] | None = None
    recipe: str = ""  #: for a recipe, which makes datasets of any name: a description of them
    up_axis: Literal["y", "z"] = "z"  #: axis that points up when drawn
    #: key of a column -> constants by which models standardise it
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
    def is_of_plugin(self) -> bool:
        """True if a loaded plugin adds the dataset, so that it has no files in the package."""
        return self.registered_name in ADDED["datasets"]

    @property
    def pins(self) -> dict[str, list[str]]:
        """Kinds of the digests that pin a source, by its name: of a mirror, or of all its members."""
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
    """Describe how many raw files have a known digest, and its kinds; empty without raw files."""
    number = len(manifest.sources)
    if not number:
        return ""
    pins = manifest.pins
    algorithms = " and ".join(sorted({name for names in pins.values() for name in names}))
    if len(pins) == number:
        return f"every raw file is pinned, by {algorithms}"
    known = (
        f"{len(pins)} of {number} raw files are pinned, by {algorithms}"
        if pins
        else "no raw file is pinned"
    )
    return f"{known}; builds are checked by structure and counts only"


def dataset_names() -> list[str]:
    """Return the names of all datasets, shipped and of loaded plugins, sorted."""
    return sorted([*shipped_datasets(), *ADDED["datasets"]])


@functools.cache
def load_manifest(name: str) -> Manifest:
    """Read and check the manifest of dataset ``name``, with the keys of its ``base`` that it lacks.

    Raises ``UsageError``, with the nearest name, if there is no such dataset; ``DamagedInput``,
    with every problem, if the file does not follow the model.
    """
    # A plugin's dataset has its manifest in Python, checked when it was added.
    if name in ADDED["datasets"]:
        added: Manifest = ADDED["datasets"][name].value.manifest
        return added
    if name not in (names := dataset_names()):
        raise unknown_name_error("dataset", name, names)
    try:
        values = read_shipped(f"datasets/{name}", "dataset")
        # A family shares one file: the keys of a dataset win over the keys of its base.
        while "base" in values:
            base = values.pop("base")
            values = read_shipped(f"datasets/{base}", "dataset") | values
        return Manifest.model_validate(values | {"registered_name": name})
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise DamagedInput(
            f"The manifest of {name!r} is not valid.",
            found=str(error),
            next=f"correct manifests/datasets/{name}/dataset.toml",
        ) from error


def with_build_name(manifest: Manifest, name: str) -> Manifest:
    """Return ``manifest`` for a build called ``name``, which the title of a recipe then includes."""
    title = f"{name}: {manifest.recipe}" if manifest.recipe else manifest.title
    return manifest.model_copy(update={"name": name, "title": title})


def require_dataset(manifest: Manifest) -> Manifest:
    """Return ``manifest``; ``UsageError`` for a recipe, which is not a dataset itself."""
    if manifest.recipe and manifest.name == manifest.registered_name:
        raise UsageError(
            f"{manifest.name!r} is not a dataset: it makes one.",
            next=f"kmip-data info {manifest.name}",
        )
    return manifest
