"""The typed model of ``manifests/datasets/*.toml``: what a dataset is and where it comes from."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Sequence
from importlib import resources
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from kmip_data.errors import DamagedInput, UsageError
from kmip_data.strict import Strict
from kmip_data.wording import nearest, shown_address

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Md5 = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
MOST_SHOWN = 40  #: names that an error lists
PACKAGE = "package:"  #: begins the address of a file inside an installed Python package
GitBlob = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]


class License(Strict):
    """Terms under which the owner gives the data out."""

    name: str
    url: str
    notice: str  #: one line that every card and download shows
    agreement: bool = False  #: ask before downloading


class Responsible(Strict):
    """What users of the data should know about where they come from, as Croissant's RAI vocabulary asks."""

    collection: str = "Not stated."
    biases: str = "Not stated."
    uses: str = "Not stated."
    personal: str = "Not stated."  #: about persons, in the data


class Mirror(Strict):
    """One place that holds a source; its own size and digest, because mirrors repack."""

    url: str  #: asked for as it is; shown and kept as ``address``
    bytes: int | None = None
    sha256: Digest | None = None
    md5: Md5 | None = None  #: where its owner gives no other digest
    git_blob: GitBlob | None = None  #: SHA-1 of "blob <size>", a zero and the bytes: git's name for a file
    note: str = ""

    @property
    def address(self) -> str:
        """The URL without what lets one in: for messages, receipts and cards."""
        return shown_address(self.url)


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
    """How a local archive or folder is recognised, and the limits its members must keep."""

    anchor: str  #: path, or pattern, of a file that lies in the root of the data
    members: tuple[Member, ...]
    max_total_bytes: int
    #: name of a file that only an older generation of the data has -> what that is
    older: dict[str, str] = Field(default_factory=dict)
    #: member path -> digest in the complete published set
    known_sha256: dict[str, Digest] = Field(default_factory=dict)


class LinePatch(Strict):
    """A known broken line of a raw file, and what mends it; applied in memory only."""

    file: str  #: regular expression for the whole member path
    line: int = Field(ge=1)  #: number of the line, from 1
    old: str  #: regular expression for the broken bytes; a line without them stays
    new: str
    note: str = ""


class Source(Strict):
    """One raw file and its mirrors, best first."""

    name: str  #: file name under ``raw/<dataset>/``
    container: Literal["archive", "file"] = "archive"
    mirrors: tuple[Mirror, ...]
    #: what this source holds, where a dataset has several; else the manifest's
    content: Content | None = None

    @property
    def packaged(self) -> bool:
        """Whether an installed Python package ships it."""
        return any(mirror.url.startswith(PACKAGE) for mirror in self.mirrors)


class Expected(Strict):
    """Counts of the complete published set, where there is one; a build that has them is called complete."""

    graphs: int | None = None
    #: split rule -> {train, val, test: graphs}
    splits: dict[str, dict[str, int]] = Field(default_factory=dict)
    classes: int | None = None  #: or labels, or targets, of the task
    avg_nodes: float | None = None
    avg_edges: float | None = None


class Standardisation(Strict):
    """Mean and standard deviation of each component of a column, as published."""

    mean: tuple[float, ...]
    std: tuple[Annotated[float, Field(gt=0)], ...]


class Manifest(Strict):
    """A dataset: identity, licence, sources, content, expected counts, defaults."""

    name: str
    title: str
    summary: str
    file: str = ""  #: stem of the TOML file; set when it is read, never in it
    pipeline: str  #: module under ``kmip_data.pipelines``
    task: str
    homepage: str
    #: day on which the data were made public, as far as it is known; empty for a recipe
    published: Annotated[str, Field(pattern=r"^(\d{4}-\d\d-\d\d)?$")] = ""
    license: License
    responsible: Responsible = Responsible()
    citation: str  #: BibTeX
    class_names: tuple[str, ...] = ()
    sources: tuple[Source, ...]  #: none: the raw data come by --archive alone
    content: Content
    #: other forms of the data that --archive takes and the pipeline reads
    alternatives: tuple[Content, ...] = ()
    patches: tuple[LinePatch, ...] = ()
    expected: Expected = Expected()
    max_nodes: int  #: largest graph allowed; sets the index width
    dataset_class: str  #: public class in ``kmip_data``
    recipe: str = ""  #: no dataset but a way to make one: what it makes, under a name of its own each time
    up_axis: Literal["y", "z"] = "z"  #: axis that points up when drawn
    #: key of a column -> constants that models standardise it with
    standardisation: dict[str, Standardisation] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def known_sha256(self) -> dict[str, str]:
        """Members whose digest is published, whichever source holds them."""
        contents = (self.content, *(source.content for source in self.sources if source.content))
        return {name: digest for content in contents for name, digest in content.known_sha256.items()}


def dataset_names() -> list[str]:
    """Names of all shipped datasets, sorted."""
    return shipped_names("datasets")


def shipped_names(folder: str) -> list[str]:
    """Names of the files of ``manifests/<folder>``, without ``.toml``, sorted."""
    files = resources.files(f"kmip_data.manifests.{folder}").iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


def read_shipped(folder: str, name: str) -> dict[str, Any]:
    """Read ``manifests/<folder>/<name>.toml``."""
    file = resources.files(f"kmip_data.manifests.{folder}") / f"{name}.toml"
    return tomllib.loads(file.read_text("utf-8"))


@functools.cache
def load_manifest(name: str) -> Manifest:
    """Read and check the manifest of dataset ``name``.

    Raises ``UsageError``, which suggests the nearest name, where there is no such dataset; ``DamagedInput``,
    which lists every fault, where the file breaks the model.
    """
    names = dataset_names()
    if name not in names:
        raise unknown_name("dataset", name, names)
    try:
        return Manifest.model_validate({**read_shipped("datasets", name), "file": name})
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise DamagedInput(f"The manifest of {name!r} is not valid.", found=str(error)) from error


def unknown_name(
    kind: str, name: str, known: Sequence[str], *, command: str = "kmip-data list"
) -> UsageError:
    """Return the error for a name nobody knows, with the nearest match."""
    close = nearest(name, known)
    hint = f" Did you mean {close!r}?" if close else ""
    shown = ", ".join(known[:MOST_SHOWN]) + (", …" if len(known) > MOST_SHOWN else "")
    return UsageError(f"There is no {kind} called {name!r}.{hint}", expected=shown, found=name, next=command)


def named(manifest: Manifest, name: str) -> Manifest:
    """Return ``manifest`` for a build called ``name``: what a recipe makes has that in its title, too."""
    title = f"{name}: {manifest.recipe}" if manifest.recipe else manifest.title
    return manifest.model_copy(update={"name": name, "title": title})


def no_recipe(manifest: Manifest) -> Manifest:
    """Return ``manifest``; UsageError for that of a recipe: what it makes has its own name and source."""
    if manifest.recipe and manifest.name == manifest.file:
        raise UsageError(
            f"{manifest.name!r} is not a dataset: it makes one.",
            expected="the name that a build was given",
            found=manifest.name,
            next=f"kmip-data build {manifest.name} --help",
        )
    return manifest
