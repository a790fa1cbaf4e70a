"""Obtain verified raw data: a local archive, an earlier copy, a download or a generated sample."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from kmip_data.builds.home import BuildArguments, BuildOptions, Home
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.files.changes import move
from kmip_data.files.errors import writing
from kmip_data.format.card import Receipt
from kmip_data.manifest import Manifest
from kmip_data.pipelines.archives.extract import recognise, write_members
from kmip_data.pipelines.archives.reader import FolderArchive
from kmip_data.pipelines.base import Params, Pipeline, RawFolder
from kmip_data.pipelines.raw.copies import (
    RawCopy,
    compare_with_pin,
    list_copies,
    local_source,
    locked,
    read_pin,
    staging,
    store,
)
from kmip_data.wording import counted

if TYPE_CHECKING:
    from kmip_data.pipelines.raw.inputs import Input, Request

SAMPLE_SEED = 0
MOST = 1_000_000  #: records of the largest sample


def obtain_raw(
    pipeline: Pipeline[Any, Any], params: Params, home: Home, options: BuildOptions, *, sample: bool
) -> RawFolder:
    """Return a folder with verified raw members; bring them in, or generate a sample, where they are missing.

    Raises ``SourceUnavailable`` where there is neither an archive, nor an earlier copy, nor a mirror;
    ``DamagedInput`` where a given archive is hostile, damaged or not the data; ``LicenseNotAccepted`` where a
    download needs an agreement; ``UsageError`` where several copies are here and none is the complete or
    downloaded one, or an archive is missing; ``OutOfResources`` where the disk is full.
    """
    if sample:
        return _sample(home, pipeline, params.limit, quiet=options.quiet)
    from kmip_data.pipelines.raw.inputs import Request  # not for a sample

    return _obtain(Request(pipeline.manifest, home, options, "build"), whole=False)


def fetch_dataset(manifest: Manifest, home: Home, **options: Unpack[BuildArguments]) -> list[Receipt]:
    """Bring the raw data in and verify them, so that a build needs no network.

    Other than :func:`obtain_raw`, a partial local copy does not count: without ``archives`` the
    complete set or a download must be there, or is downloaded. Same errors.
    """
    from kmip_data.pipelines.raw.inputs import Request

    request = Request(manifest, home, BuildOptions.of(manifest.name, options), "fetch")
    return list(_obtain(request, whole=True).receipts)


def _sample(home: Home, pipeline: Pipeline[Any, Any], limit: int | None, *, quiet: bool) -> RawCopy:
    """Return a generated miniature; the same one when it was generated before.

    Raises ``UsageError`` where so many records are not a miniature, and would fill the disk before anything
    is built.
    """
    if limit is not None and limit > MOST:
        raise UsageError(
            "A sample is a miniature.",
            expected=f"--limit of at most {MOST:,} generated records",
            found=f"{limit:,}",
            next=f"kmip-data build {pipeline.manifest.name} --sample --limit 100",
        )
    manifest = pipeline.manifest
    made = {"limit": limit, "seed": SAMPLE_SEED, "pipeline_version": pipeline.version}
    folder = home.raw / f"{manifest.name}-sample"

    def existing() -> RawCopy | None:
        return next((c for c in list_copies(folder) if c.made == made and not c.problems()), None)

    if copy := existing():
        return copy
    with locked(folder, quiet=quiet):
        if copy := existing():
            return copy
        with staging(folder) as stage:
            generated = stage / "generated"
            with writing(generated):
                generated.mkdir()
                pipeline.sample(generated, limit=limit, seed=SAMPLE_SEED)
            selection = recognise(FolderArchive(generated), manifest.content)
            members = write_members(selection, stage / "0")
            made_here = local_source(folder.name, "generated sample", members, selection.bytes)
            return store(folder, stage / "0", members, [made_here], dataset=manifest.name, sample=made)


def _obtain(request: Request, *, whole: bool) -> RawCopy:
    from kmip_data.pipelines.raw.inputs import not_here
    from kmip_data.pipelines.raw.license import show_license

    if not request.options.quiet:
        show_license(request.manifest)
    if not request.archives:
        if copy := _reuse(request, whole=whole):
            return copy
        needed = [source for source in request.sources if not source.packaged]
        if request.options.offline and needed and not request.folder.exists():
            raise not_here(request, request.sources)
    with locked(request.folder, quiet=request.options.quiet):
        # Another process may have brought them in while this one waited.
        if not request.archives and (copy := _reuse(request, whole=whole)):
            return copy
        return _import(request)


def _reuse(request: Request, *, whole: bool) -> RawCopy | None:
    """Return the one sound copy that is meant, or ``None`` when there is none."""
    manifest, folder = request.manifest, request.folder
    copies = [copy for copy in list_copies(folder) if not copy.sample]
    pin = read_pin(folder)
    best = [copy for copy in copies if pin is not None and copy.content_digest == pin.content_digest]
    best = best or [copy for copy in copies if copy.is_complete(manifest)]
    best = best or [copy for copy in copies if copy.downloaded]
    if not best and (whole or all((folder / source.name).is_file() for source in request.sources)):
        return None
    choice = [copy for copy in best if copy.downloaded] or best or copies
    if not choice:
        return None
    if len(choice) > 1:
        listed = "".join(f"\n    {copy.path} (from {copy.origin})" for copy in choice)
        raise UsageError(
            f"{len(choice)} copies of {manifest.name} are here, and none is known to be the complete one.",
            expected="one copy, or --archive to say which",
            found=listed,
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
        next=f"kmip-data {request.command} {manifest.name} --archive PATH (a sound copy of {copy.origin})",
    )


def _import(request: Request) -> RawCopy:
    """Unpack every source, from the given archives or a download, into one copy."""
    from kmip_data.pipelines.raw.inputs import gather_inputs

    manifest = request.manifest
    for path in request.archives:
        for copy in list_copies(request.folder):
            if path.exists() and path.resolve() == copy.path.resolve() and not copy.problems():
                return copy
    chosen = gather_inputs(request)
    sources = [entry.stored for entry in chosen]
    digests = [source.receipt.sha256 for source in sources]
    for copy in list_copies(request.folder):
        known = [receipt.sha256 for receipt in copy.receipts]
        if all(source.downloaded for source in sources) and not copy.downloaded:
            continue  # unpacked again, so that its receipt tells of the download
        # A folder is known by the digest of its members, wherever these came from before.
        if digests in (known, [copy.content_digest]) and not copy.problems():
            return copy
    with staging(request.folder) as stage:
        members = _unpack(chosen, stage, request)
        if all(source.downloaded for source in sources):
            compare_with_pin(request.folder, members, command=request.command)
        copy = store(request.folder, stage / "0", members, sources, dataset=manifest.name)
    request.say(f"unpacked {counted(len(members), 'file')} into {copy.path}")
    return copy


def _unpack(inputs: Sequence[Input], stage: Path, request: Request) -> dict[str, str]:
    """Write the members of all inputs below ``stage/0``."""
    members: dict[str, str] = {}
    for number, entry in enumerate(inputs):
        try:
            written = write_members(entry.selection, stage / str(number), quiet=request.options.quiet)
        except DamagedInput as error:
            if entry.stored.downloaded:
                from kmip_data.pipelines.download.partial import discard_download

                discard_download(request.folder / entry.source.name)
                error.parts["on disk"] = "nothing: the download was removed, and the next run repeats it"
            raise
        if twice := sorted(members.keys() & written.keys()):
            raise DamagedInput(
                f"Two sources of {request.manifest.name} hold {twice[0]}.",
                expected="each member in one source",
                next=f"kmip-data info {request.manifest.name}",
            )
        for name in written if number else ():
            target = stage / "0" / name
            with writing(target):
                target.parent.mkdir(parents=True, exist_ok=True)
                move(stage / str(number) / name, target)
        members.update(written)
    return dict(sorted(members.items()))
