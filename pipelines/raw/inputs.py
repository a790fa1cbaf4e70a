"""Find each source of a dataset: among given archives, in the home folder, in a package, or by download."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from kmip_data.builds.home import BuildOptions, Home
from kmip_data.errors import DamagedInput, KmipDataError, SourceUnavailable, UsageError
from kmip_data.files.reading import sha256_file
from kmip_data.format.card import Receipt
from kmip_data.manifest import PACKAGE, Content, Manifest, Source
from kmip_data.pipelines.archives.extract import Selection, fingerprint, open_archive, recognise
from kmip_data.pipelines.archives.reader import Archive, BareFile, FolderArchive
from kmip_data.pipelines.download.fetch import fetch_source
from kmip_data.pipelines.download.partial import read_receipt, verified_receipt
from kmip_data.pipelines.raw.copies import StoredSource
from kmip_data.pipelines.raw.license import require_agreement, show_license
from kmip_data.runtime.progress import say

_MAX_INNER = 64  #: files of a given folder that are looked into for an archive


@dataclass(frozen=True)
class Request:
    """A dataset whose raw data are wanted, and the options of the command."""

    manifest: Manifest
    home: Home
    options: BuildOptions
    command: str  #: the command that next steps name

    @property
    def archives(self) -> list[Path]:
        """The local copies that were given."""
        return [Path(path) for path in self.options.archives]

    @property
    def folder(self) -> Path:
        """Folder of the raw data of the dataset."""
        return self.home.raw / self.manifest.name

    @property
    def sources(self) -> tuple[Source, ...]:
        """Sources of the manifest; where it has none, a single one that no mirror holds."""
        return self.manifest.sources or (Source(name=self.manifest.name, mirrors=()),)

    def say(self, text: str) -> None:
        """Print a line on stderr, unless quiet."""
        say(text, quiet=self.options.quiet)

    def content_of(self, source: Source) -> Content:
        """Members of a source."""
        return source.content or self.manifest.content

    def archive_hint(self, source: Source) -> str:
        """Return the command that takes a local copy of a source."""
        holds = f"a zip, a tar or a folder that holds {self.content_of(source).anchor}"
        return f"kmip-data {self.command} {self.manifest.name} --archive PATH   (PATH: {holds})"


@dataclass(frozen=True)
class Input:
    """A source with the members of an archive that hold it."""

    source: Source
    selection: Selection
    stored: StoredSource


def gather_inputs(request: Request) -> list[Input]:
    """Return an archive for each source, in the order of the manifest; see ``obtain_raw`` for errors."""
    inputs = {entry.source.name: entry for entry in _given(request)}
    missing = [source for source in request.sources if source.name not in inputs]
    if inputs and missing:
        names = ", ".join(source.name for source in missing)
        request.say(f"not in the given archives, so looked for elsewhere: {names}")
    inputs.update((source.name, _download(request, source, missing)) for source in missing)
    return [inputs[source.name] for source in request.sources]


def _select(archive: Archive, source: Source, request: Request, *, known: bool = False) -> Selection:
    """Return what an archive holds of ``source``; a file that is ``known`` to be it may have any name."""
    content = request.content_of(source)
    bare = source.container == "file" or archive.path.name == content.anchor
    if bare and not isinstance(archive, FolderArchive):
        # As it is, also where it could be opened: a .pt file is a zip.
        archive = BareFile(archive.path, content.anchor if known else None)
    try:
        return recognise(archive, content)
    except DamagedInput:
        for other in () if source.content else request.manifest.alternatives:
            with contextlib.suppress(DamagedInput):
                return recognise(archive, other)
        raise


def _given(request: Request) -> list[Input]:
    """Find out which sources the given archives are."""
    inputs: list[Input] = []
    refused: list[tuple[Path, KmipDataError]] = []
    for path in request.archives:
        try:
            found = _recognise_path(path, request)
        except (DamagedInput, UsageError) as error:
            refused.append((path, error))
            continue
        for entry in found:
            if any(entry.source == other.source for other in inputs):
                raise UsageError(
                    f"Two of the given archives are {entry.source.name}.",
                    expected="one --archive per source",
                    found=", ".join(map(str, request.archives)),
                    next="give one of them",
                )
        inputs += found
    if refused:
        inputs.append(_by_exclusion(refused, inputs, request))
    return inputs


def _by_exclusion(
    refused: Sequence[tuple[Path, KmipDataError]], inputs: Sequence[Input], request: Request
) -> Input:
    """Take the only file that was not recognised for the only source left, if that is a file; else raise."""
    path, error = refused[0]
    left = [source for source in request.sources if all(source != entry.source for entry in inputs)]
    if len(refused) > 1 or [source.container for source in left] != ["file"] or not path.is_file():
        raise error
    request.say(f"using {path} as {left[0].name}")
    return _input(left[0], _select(BareFile(path), left[0], request, known=True))


def _recognise_path(path: Path, request: Request) -> list[Input]:
    """Return the sources that ``path`` holds, itself or in archives inside the folder it is."""
    archive = open_archive(path)
    found, errors = _recognise_sources(archive, request.sources, request)
    missing = [source for source in request.sources if all(source != e.source for e in found)]
    if isinstance(archive, FolderArchive) and missing:
        inner_errors: list[KmipDataError] = []
        files = sorted(inner for inner in path.iterdir() if inner.is_file())
        for inside in map(open_archive, files[:_MAX_INNER]):
            if not isinstance(inside, BareFile):
                inputs, refused = _recognise_sources(inside, missing, request)
                found += inputs
                inner_errors += [] if inputs else refused[:1]
        # The only archive in the folder is the one that was meant: say what is wrong with it.
        errors = inner_errors if len(inner_errors) == 1 else errors
    if not found:
        raise errors[0]
    for entry in found:
        same = [other.selection.archive.path for other in found if other.source == entry.source]
        if len(same) > 1:
            raise UsageError(
                f"{path} holds {entry.source.name} more than once.",
                expected="one archive of it",
                found=", ".join(map(str, same)),
                next=f"kmip-data {request.command} {request.manifest.name} "
                f"--archive {entry.selection.archive.path}",
            )
        if entry.selection.archive.path != path:
            request.say(f"using {entry.selection.archive.path}")
    return found


def _recognise_sources(
    archive: Archive, sources: Sequence[Source], request: Request
) -> tuple[list[Input], list[KmipDataError]]:
    """Return which of the sources an archive holds, and why it does not hold the others."""
    inputs: list[Input] = []
    errors: list[KmipDataError] = []
    for source in sources:
        try:
            selection = _select(archive, source, request)
        except (DamagedInput, UsageError) as error:
            errors.append(error)
        else:
            inputs.append(_input(source, selection))
    return inputs, errors


def _input(source: Source, selection: Selection) -> Input:
    digest, size = fingerprint(selection)
    origin = selection.archive.path.resolve().name
    receipt = Receipt(name=source.name, origin=origin, sha256=digest, bytes=size)
    return Input(source, selection, StoredSource(receipt=receipt))


def _download(request: Request, source: Source, missing: Sequence[Source]) -> Input:
    """Return a source from ``raw/<dataset>/``, downloaded first where it is missing."""
    manifest, target = request.manifest, request.folder / source.name
    content = request.content_of(source)
    receipt = read_receipt(target)
    if target.is_file() and receipt is None:
        request.say(f"{target} has no receipt: it is taken as a local archive")
        return _input(source, _select(open_archive(target), source, request, known=True))
    if target.is_file() and (receipt := verified_receipt(target)):
        return _downloaded(open_archive(target), receipt, source, request)
    if target.is_file():
        request.say(f"{target} differs from its receipt and is downloaded again")
    if packaged := _find_packaged(source, dataset=manifest.name):
        path, receipt = packaged
        return _downloaded(BareFile(path), receipt, source, request)
    if request.options.offline:
        raise not_here(request, missing)
    if request.options.quiet:
        show_license(manifest)
    require_agreement(manifest, request.home, request.options.accept_license)

    def check(path: Path) -> None:
        if source.container == "archive":
            recognise(open_archive(path), content)

    receipt = fetch_source(
        source,
        target,
        hint=request.archive_hint(source),
        quiet=request.options.quiet,
        max_bytes=content.max_total_bytes,
        check=check,
    )
    return _downloaded(open_archive(target), receipt, source, request)


def _downloaded(archive: Archive, receipt: Receipt, source: Source, request: Request) -> Input:
    selection = _select(archive, source, request, known=True)
    return Input(source, selection, StoredSource(receipt=receipt, downloaded=True))


def not_here(request: Request, sources: Sequence[Source]) -> SourceUnavailable:
    """Return the error for sources that are not here while ``offline`` forbids to download them."""
    named = "".join(f"\n    {source.name}: {m.address}" for source in sources for m in source.mirrors)
    return SourceUnavailable(
        f"The raw data of {request.manifest.name} are not here, and offline nothing is downloaded.",
        expected="a copy in the home folder, a local archive"
        + (f", or without --offline one of{named}" if named else ""),
        found="none",
        next=request.archive_hint(sources[0]),
    )


def _find_packaged(source: Source, *, dataset: str) -> tuple[Path, Receipt] | None:
    """Return the file of a source that a package ships and where it came from; ``None`` for other sources.

    The package is found, not imported. Raises :class:`SourceUnavailable` where it is not installed, or its
    version ships another file.
    """
    mirrors = [mirror for mirror in source.mirrors if mirror.url.startswith(PACKAGE)]
    if not mirrors:
        return None
    failures = []
    for mirror in mirrors:
        package, _, member = mirror.url.removeprefix(PACKAGE).partition("/")
        path = _locate(package, member)
        if path is None:
            failures.append(f"{package} is not installed, or has no {member}")
            continue
        digest, size = sha256_file(path)
        origin = f"{package} {importlib.metadata.version(package)}, {member}"
        if mirror.sha256 in {None, digest}:
            return path, Receipt(name=source.name, origin=origin, sha256=digest, bytes=size)
        failures.append(f"{origin} has SHA-256 {digest[:12]}…")
    pinned = mirrors[0]
    package = pinned.url.removeprefix(PACKAGE).partition("/")[0]
    raise SourceUnavailable(
        f"The raw data of {dataset} come with the Python package {package}.",
        expected=f"{source.name} with SHA-256 {(pinned.sha256 or '')[:12]}… ({pinned.note})",
        found="; ".join(failures),
        next=f"python -m pip install --force-reinstall {pinned.note or package}",
    )


def _locate(package: str, member: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        path = Path(folder).joinpath(*PurePosixPath(member).parts)
        if path.is_file():
            return path
    return None
