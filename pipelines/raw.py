"""Bring the raw data of a dataset in, verified: a local archive, an earlier copy, a download or a sample."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kmip_data.card import Receipt
from kmip_data.errors import DamagedInput, KmipDataError, UsageError
from kmip_data.home import Home
from kmip_data.manifest import Content, Manifest, Source
from kmip_data.pipelines.archives import fingerprint, open_archive, write_members
from kmip_data.pipelines.base import Pipeline, RawFolder
from kmip_data.pipelines.disk import sha256_file, writing
from kmip_data.pipelines.fetch import fetch_source, read_receipt, unavailable
from kmip_data.pipelines.folder_archive import FolderArchive
from kmip_data.pipelines.identity import content_digest
from kmip_data.pipelines.licences import require_agreement, show_licence
from kmip_data.pipelines.locking import build_lock
from kmip_data.pipelines.raw_copies import RawCopy, StoredSource, list_copies, staging, store
from kmip_data.pipelines.recognition import Plan, recognise

SAMPLE_SEED = 0
_MAX_INNER = 64  #: files of a given folder that are looked into for an archive


@dataclass(frozen=True)
class _Request:
    manifest: Manifest
    home: Home
    archives: tuple[Path, ...]
    offline: bool
    accept_license: bool | None
    quiet: bool
    command: str  #: the command that next steps name

    @property
    def folder(self) -> Path:
        return self.home.raw / self.manifest.name

    def say(self, text: str) -> None:
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)  # noqa: T201


@dataclass(frozen=True)
class _Input:
    """A source with an archive that holds it."""

    source: Source
    plan: Plan
    stored: StoredSource


def obtain_raw(
    manifest: Manifest,
    pipeline: Pipeline[Any, Any],
    home: Home,
    *,
    archives: Sequence[Path] = (),
    offline: bool = False,
    accept_license: bool | None = None,
    sample: bool = False,
    sample_limit: int | None = None,
    quiet: bool = False,
) -> RawFolder:
    """Return a folder with verified raw members; bring them in first where they are missing.

    Parameters
    ----------
    archives
        Local copies of the sources: zip, tar or folder, recognised by content.
    offline
        Open no socket.
    accept_license
        See :func:`kmip_data.pipelines.licences.require_agreement`.
    sample, sample_limit
        Generate a miniature in the upstream layout instead.

    Raises
    ------
    SourceUnavailable
        Neither an archive, nor an earlier copy, nor a mirror.
    DamagedInput
        A given archive is hostile, damaged or not the data.
    LicenseNotAccepted
        A download needs an agreement.
    UsageError
        Several copies are here and none is the complete or downloaded one; or an archive is missing.
    OutOfResources
        The disk is full.
    """
    request = _Request(
        manifest, home, tuple(map(Path, archives)), offline, accept_license, quiet, command="build"
    )
    if sample:
        return _obtain_sample(request, pipeline, sample_limit).raw_folder()
    return _obtain(request, whole=False).raw_folder()


def fetch_dataset(
    manifest: Manifest,
    home: Home,
    *,
    archives: Sequence[Path] = (),
    offline: bool = False,
    accept_license: bool | None = None,
    quiet: bool = False,
) -> list[Receipt]:
    """Bring the raw data in and verify them, so that a build needs no network.

    Other than :func:`obtain_raw`, a partial local copy does not count: without ``archives`` the
    complete set or a download must be there, or is downloaded. Same errors.
    """
    request = _Request(
        manifest, home, tuple(map(Path, archives)), offline, accept_license, quiet, command="fetch"
    )
    return [source.receipt for source in _obtain(request, whole=True).receipt.sources]


def _obtain(request: _Request, *, whole: bool) -> RawCopy:
    if not request.quiet:
        show_licence(request.manifest)
    if not request.archives:
        if copy := _reuse(request, whole=whole):
            return copy
        if request.offline and not request.folder.exists():
            raise unavailable(request.manifest, request.manifest.sources, command=request.command)
    with _locked(request.folder, quiet=request.quiet):
        # Another process may have brought them in while this one waited.
        if not request.archives and (copy := _reuse(request, whole=whole)):
            return copy
        return _import(request)


@contextlib.contextmanager
def _locked(folder: Path, *, quiet: bool) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(build_lock(folder, quiet=quiet))
        yield


def _reuse(request: _Request, *, whole: bool) -> RawCopy | None:
    """Return the one sound copy that is meant, or ``None`` when there is none."""
    manifest, folder = request.manifest, request.folder
    copies = [copy for copy in list_copies(folder) if copy.receipt.sample is None]
    best = [copy for copy in copies if copy.is_complete(manifest)]
    best = best or [copy for copy in copies if copy.downloaded]
    if not best and (whole or all((folder / source.name).is_file() for source in manifest.sources)):
        return None
    choice = best or copies
    choice = [copy for copy in choice if copy.downloaded] or choice
    if not choice:
        return None
    if len(choice) > 1:
        listed = "".join(f"\n    {copy.path} (from {copy.origin})" for copy in choice)
        raise UsageError(
            f"{len(choice)} copies of {manifest.name} are here, and none is known to be the complete one.",
            expected="one copy, or --archive to say which",
            found=listed,
            left="nothing was changed",
            next=f"kmip-data {request.command} {manifest.name} --archive {choice[0].path}",
        )
    copy = choice[0]
    problems = copy.problems()
    if not problems:
        request.say(f"using {copy.path} (from {copy.origin})")
        return copy
    if copy.downloaded:
        request.say(f"{copy.path} is damaged ({problems[0]}) and is made again")
        return None
    raise DamagedInput(
        f"{copy.path} is damaged.",
        expected="the members that its receipt describes",
        found="; ".join(problems[:5]),
        left="the files as they are",
        next=f"kmip-data {request.command} {manifest.name} --archive PATH (a sound copy of {copy.origin})",
    )


def _import(request: _Request) -> RawCopy:
    """Unpack every source, from the given archives or a download, into one copy."""
    manifest = request.manifest
    for path in request.archives:
        for copy in list_copies(request.folder):
            if path.exists() and path.resolve() == copy.path.resolve() and not copy.problems():
                return copy
    inputs = {entry.source.name: entry for entry in _given(request)}
    missing = [source for source in manifest.sources if source.name not in inputs]
    inputs.update((source.name, _download(request, source, missing)) for source in missing)
    chosen = [inputs[source.name] for source in manifest.sources]
    digests = [entry.stored.receipt.sha256 for entry in chosen]
    for copy in list_copies(request.folder):
        known = [source.receipt.sha256 for source in copy.receipt.sources]
        # A folder is known by the digest of its members, wherever these came from before.
        if digests in (known, [copy.content_digest]) and not copy.problems():
            return copy
    with staging(request.folder) as stage:
        members = _unpack(chosen, stage, request)
        copy = store(
            request.folder, stage / "0", members, [entry.stored for entry in chosen], dataset=manifest.name
        )
    request.say(f"unpacked {len(members)} files into {copy.path}")
    return copy


def _unpack(inputs: Sequence[_Input], stage: Path, request: _Request) -> dict[str, str]:
    """Write the members of all inputs below ``stage/0``."""
    members: dict[str, str] = {}
    for number, entry in enumerate(inputs):
        written = write_members(entry.plan, stage / str(number), quiet=request.quiet)
        if twice := sorted(members.keys() & written.keys()):
            raise DamagedInput(
                f"Two sources of {request.manifest.name} hold {twice[0]}.",
                expected="each member in one source",
                left="nothing was kept",
                next=f"kmip-data info {request.manifest.name}",
            )
        for name in written if number else ():
            target = stage / "0" / name
            with writing(target):
                target.parent.mkdir(parents=True, exist_ok=True)
                (stage / str(number) / name).rename(target)
        members.update(written)
    return dict(sorted(members.items()))


def _content(manifest: Manifest, source: Source) -> Content:
    return source.content or manifest.content


def _given(request: _Request) -> list[_Input]:
    """Find out which sources the given archives are."""
    inputs: list[_Input] = []
    for path in request.archives:
        found = _recognise_path(path, request)
        for entry in found:
            if any(entry.source == other.source for other in inputs):
                raise UsageError(
                    f"Two of the given archives are {entry.source.name}.",
                    expected="one --archive a source",
                    found=", ".join(map(str, request.archives)),
                    left="nothing was changed",
                    next="give one of them",
                )
        inputs += found
    return inputs


def _recognise_path(path: Path, request: _Request) -> list[_Input]:
    """Return the sources that ``path`` holds, itself or in an archive inside the folder it is."""
    archive = open_archive(path)
    inputs, errors = [], []
    for source in request.manifest.sources:
        try:
            plan = recognise(archive, _content(request.manifest, source))
        except DamagedInput as error:
            errors.append(error)
        else:
            inputs.append(_input(source, plan))
    if inputs:
        return inputs
    if isinstance(archive, FolderArchive):
        inner = [found for file in _archives_in(path) if (found := _try_path(file, request))]
        if len(inner) > 1:
            raise UsageError(
                f"{path} holds several archives of {request.manifest.name}.",
                expected="one of them",
                found=", ".join(str(found[0].plan.archive.path) for found in inner),
                left="nothing was changed",
                next=f"kmip-data {request.command} {request.manifest.name} "
                f"--archive {inner[0][0].plan.archive.path}",
            )
        if inner:
            request.say(f"using {inner[0][0].plan.archive.path}")
            return inner[0]
    raise errors[0]


def _archives_in(folder: Path) -> list[Path]:
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.stat().st_size)
    return files[:_MAX_INNER]


def _try_path(path: Path, request: _Request) -> list[_Input]:
    try:
        return _recognise_path(path, request)
    except KmipDataError:
        return []


def _input(source: Source, plan: Plan) -> _Input:
    digest, size = fingerprint(plan)
    origin = plan.archive.path.resolve().name
    receipt = Receipt(name=source.name, origin=origin, sha256=digest, bytes=size)
    return _Input(source, plan, StoredSource(receipt=receipt))


def _download(request: _Request, source: Source, missing: Sequence[Source]) -> _Input:
    """Return a source from ``raw/<dataset>/``, downloaded first where it is missing."""
    manifest, target = request.manifest, request.folder / source.name
    content = _content(manifest, source)
    if target.is_file():
        receipt = read_receipt(target)
        if receipt is None:
            request.say(f"{target} has no receipt: it is taken as a local archive")
            return _input(source, recognise(open_archive(target), content))
        if sha256_file(target) == (receipt.sha256, receipt.bytes):
            stored = StoredSource(receipt=receipt, downloaded=True)
            return _Input(source, recognise(open_archive(target), content), stored)
        request.say(f"{target} differs from its receipt and is downloaded again")
    if request.offline:
        raise unavailable(manifest, missing, command=request.command)
    if request.quiet:
        show_licence(manifest)
    require_agreement(manifest, request.home, request.accept_license)
    receipt = fetch_source(
        source,
        target,
        dataset=manifest.name,
        quiet=request.quiet,
        max_bytes=content.max_total_bytes,
        check=lambda path: recognise(open_archive(path), content),
    )
    stored = StoredSource(receipt=receipt, downloaded=True)
    return _Input(source, recognise(open_archive(target), content), stored)


def _obtain_sample(request: _Request, pipeline: Pipeline[Any, Any], limit: int | None) -> RawCopy:
    """Return a generated miniature; the same one when it was generated before."""
    made = {"limit": limit, "seed": SAMPLE_SEED, "pipeline_version": pipeline.version}
    folder = request.home.raw / f"{request.manifest.name}-sample"

    def existing() -> RawCopy | None:
        return next((c for c in list_copies(folder) if c.receipt.sample == made and not c.problems()), None)

    if copy := existing():
        return copy
    with _locked(folder, quiet=request.quiet):
        if copy := existing():
            return copy
        with staging(folder) as stage:
            generated = stage / "generated"
            with writing(generated):
                generated.mkdir()
                pipeline.sample(generated, limit=limit, seed=SAMPLE_SEED)
            members, size = _move_members(
                recognise(FolderArchive(generated), request.manifest.content), stage
            )
            receipt = Receipt(
                name=f"{request.manifest.name}-sample",
                origin="generated sample",
                sha256=content_digest(members),
                bytes=size,
            )
            return store(
                folder,
                stage / "0",
                members,
                [StoredSource(receipt=receipt)],
                dataset=request.manifest.name,
                sample=made,
            )


def _move_members(plan: Plan, stage: Path) -> tuple[dict[str, str], int]:
    """Move generated files to ``stage/0`` and return their digests and total size."""
    members, total = {}, 0
    for name, entry in plan.members.items():
        target = stage / "0" / name
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            (plan.archive.path / entry.name).rename(target)
        members[name], size = sha256_file(target)
        total += size
    return members, total
