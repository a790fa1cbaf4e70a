"""Obtain a dataset's raw data: a local archive, an existing copy, a download or a generated sample."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

from pydantic import TypeAdapter

from kmip_data.builds.execution_options import BuildArguments, ExecutionOptions
from kmip_data.builds.home import Home
from kmip_data.errors import DamagedInput, LicenseNotAccepted, SourceUnavailable, UsageError
from kmip_data.files.atomic_writes import write_json
from kmip_data.files.path_errors import convert_write_errors
from kmip_data.files.reading import json_digest, read_json, sha256_file
from kmip_data.format.card import Receipt
from kmip_data.manifest import PACKAGE, Manifest, Source
from kmip_data.pipelines.base import AnyPipeline, BuildParams, RawFolder
from kmip_data.pipelines.raw.copies import (
    copy_problems,
    differing_pin,
    discard_download,
    import_lock,
    is_complete,
    list_copies,
    md5_of,
    read_receipt,
    receipt_of_members,
    staging_folder,
    store_copy,
    verified_receipt,
)
from kmip_data.pipelines.raw.extract import Selection, recognise_dataset, write_members
from kmip_data.runtime.extras import MODULES, require_extra
from kmip_data.runtime.progress import print_status
from kmip_data.text import count_with_noun, timestamp

ENVIRONMENT = "KMIP_DATA_ACCEPT_LICENSE"
RECORD_NAME = "licenses.json"
SAMPLE_SEED = 0
MAX_SAMPLE = 1_000_000  #: records of the largest sample
_YES = {"1", "true", "yes", "y"}
_RECORD = TypeAdapter(dict[str, dict[str, object]])


@dataclass(frozen=True)
class _Input:
    """Members of one source in a local archive, or in a download."""

    source: Source
    selection: Selection
    receipt: Receipt
    downloaded: bool = False


def show_license(manifest: Manifest) -> None:
    """Print license and attribution on stderr."""
    terms = manifest.license
    print_status(f"license of {manifest.name}: {terms.notice}{terms.url and f' ({terms.url})'}")


def accepted_licenses(home: Home) -> dict[str, dict[str, object]]:
    """Return the agreements on record, by dataset; empty without a valid record."""
    with contextlib.suppress(OSError, ValueError):
        return _RECORD.validate_python(read_json(home.path / RECORD_NAME))
    return {}


def require_agreement(
    manifest: Manifest,
    home: Home,
    accept: bool | None = None,
) -> None:
    """Require agreement to the license, now or before; it is recorded once.

    ``accept=None`` looks at ``KMIP_DATA_ACCEPT_LICENSE``. Raises ``LicenseNotAccepted`` with the
    terms and the ways to agree.
    """
    if not manifest.license.agreement:
        return
    terms = {"name": manifest.license.name, "url": manifest.license.url}
    earlier = accepted_licenses(home).get(manifest.name, {})
    if terms.items() <= earlier.items():
        return

    agreed = accept
    if accept is None:
        agreed = os.environ.get(ENVIRONMENT, "").strip().lower() in _YES
    if not agreed:
        raise LicenseNotAccepted(
            f"Downloading {manifest.name} needs agreement to: {manifest.license.name}.",
            expected=f"agreement to {manifest.license.url} — {manifest.license.notice}",
            next=f"kmip-data fetch {manifest.name} --accept-license, or {ENVIRONMENT}=1; a copy you have "
            "already needs none: --archive PATH",
        )
    with convert_write_errors(home.path):
        home.path.mkdir(parents=True, exist_ok=True)
    record = accepted_licenses(home)
    entry = {**terms, "how": "flag" if accept else "environment", "time": timestamp()}
    write_json(home.path / RECORD_NAME, {**record, manifest.name: entry})


def obtain_raw(
    pipeline: AnyPipeline,
    params: BuildParams,
    home: Home,
    options: ExecutionOptions,
    *,
    sample: bool,
) -> RawFolder:
    """Return a folder with verified raw members.

    Missing ones are imported or downloaded, or a sample is generated.

    Raises ``SourceUnavailable`` where there is neither an archive, nor an earlier copy, nor a
    mirror; ``DamagedInput`` where an archive is damaged or not the data; ``LicenseNotAccepted``
    where a download asks for agreement; ``UsageError`` where several copies exist and none is the
    complete or downloaded one.
    """
    if pipeline.manifest.generated and not options.archives:
        return RawFolder(home.raw, {}, (), sample=sample)
    if sample:
        return _generated_sample(home, pipeline, params.limit, quiet=options.quiet)
    return _Import(pipeline.manifest, home, options, "build").run()


def fetch_dataset(
    manifest: Manifest, home: Home, **options: Unpack[BuildArguments]
) -> list[Receipt]:
    """Fetch and verify the raw data, so that a build needs no network.

    Unlike in :func:`obtain_raw`, a partial local copy does not suffice: without ``archives``, the
    complete set or a download must exist, or is downloaded. Errors are the same.
    """
    chosen = ExecutionOptions.from_arguments(manifest.name, options)
    return list(_Import(manifest, home, chosen, "fetch").run().receipts)


def _generated_sample(
    home: Home,
    pipeline: AnyPipeline,
    limit: int | None,
    *,
    quiet: bool,
) -> RawFolder:
    """Return a generated miniature; the same one when it was generated before."""
    manifest = pipeline.manifest
    if limit is not None and limit > MAX_SAMPLE:
        raise UsageError(
            f"A sample has at most {MAX_SAMPLE:,} records, not {limit:,}.",
            next=f"kmip-data build {manifest.name} --sample --limit 100",
        )
    settings = {
        "limit": limit,
        "seed": SAMPLE_SEED,
        "pipeline_version": pipeline.version,
    }
    folder = home.raw / f"{manifest.name}-sample"
    for copy in list_copies(folder):
        if copy.settings == settings and not copy_problems(copy):
            return copy
    with import_lock(folder, quiet=quiet), staging_folder(folder) as stage:
        generated = stage / "generated"
        with convert_write_errors(generated):
            generated.mkdir()
            pipeline.sample(generated, limit=limit, seed=SAMPLE_SEED)
        selection = recognise_dataset(generated, manifest.content)
        members = write_members(selection, stage / "0")
        receipt = receipt_of_members(folder.name, "generated sample", members, selection.bytes)
        made = RawFolder(stage / "0", members, (receipt,), sample=True, settings=settings)
        return store_copy(folder, made)


class _Import:
    """Import of a dataset's raw data for ``build`` or ``fetch``.

    ``fetch`` accepts only complete or downloaded copies.
    """

    def __init__(
        self,
        manifest: Manifest,
        home: Home,
        options: ExecutionOptions,
        command: str,
    ) -> None:
        self.manifest = manifest
        self.home = home
        self.options = options
        self.command = command
        self.folder = home.raw / manifest.name
        self.archives = [Path(path) for path in options.archives]
        # Without sources in the manifest, use a single one without mirrors.
        self.sources = [
            source if source.content else source.model_copy(update={"content": manifest.content})
            for source in manifest.sources or (Source(name=manifest.name, mirrors=()),)
        ]

    def run(self) -> RawFolder:
        """Return the matching copy, importing it if there is none."""
        if self.manifest.generated:
            raise UsageError(f"{self.manifest.name} is generated: it has no raw files.")
        copy = self._matching_copy()
        if copy is not None:
            return copy
        with import_lock(self.folder, quiet=self.options.quiet):
            # Another process may have imported them while this one waited.
            return self._matching_copy() or self._import_sources()

    def _usable_copies(self) -> list[RawFolder]:
        """Return existing copies; copies that differ from the manifest only if accepted."""
        accepted = self.options.unpinned
        return [copy for copy in list_copies(self.folder) if accepted or copy.pinned is not False]

    def _matching_copy(self) -> RawFolder | None:
        """Return the existing copy to use, or ``None`` if an archive or a download must be unpacked.

        Raises ``UsageError`` if several copies are equally good, and ``DamagedInput`` if the copy
        is damaged and no download can replace it.
        """
        if self.archives:
            return None
        # 1. Prefer complete copies, and among them downloaded ones. Use any other copy only if
        #    there is no download to unpack.
        copies = self._usable_copies()
        complete_copies = [copy for copy in copies if is_complete(copy, self.manifest)]
        candidates = complete_copies or copies
        downloaded_copies = [copy for copy in candidates if copy.downloaded]
        candidates = downloaded_copies or candidates
        if not candidates:
            return None
        if not complete_copies and not downloaded_copies:
            downloads_exist = all((self.folder / source.name).is_file() for source in self.sources)
            if self.command == "fetch" or downloads_exist:
                return None

        # 2. The choice must be unique.
        copy = candidates[0]
        command = f"kmip-data {self.command} {self.manifest.name} --archive"
        if len(candidates) > 1:
            listed = [f"\n    {copy.path} (from {copy.origin})" for copy in candidates]
            raise UsageError(
                f"{len(candidates)} copies of {self.manifest.name} were found, "
                "and none is known to be complete.",
                found="".join(listed),
                next=f"{command} {copy.path}",
            )

        # 3. It must be sound; a damaged download is made again.
        damage = copy_problems(copy)
        if not damage:
            self._say(f"using {copy.path} (from {copy.origin})")
            return copy
        if copy.downloaded:
            self._say(f"{copy.path} is damaged ({damage[0]}) and is made again")
            return None
        raise DamagedInput(
            f"{copy.path} is damaged: {'; '.join(damage[:5])}.",
            next=f"{command} PATH (a sound copy of {copy.origin})",
        )

    def _import_sources(self) -> RawFolder:
        """Unpack every source, from the given archives or a download, into one copy."""
        show_license(self.manifest)
        # 1. Members of every source: given, else downloaded.
        inputs_by_source: dict[str, _Input] = {}
        for path in self.archives:
            for item in self._sources_in_archive(path):
                name = item.source.name
                if name in inputs_by_source:
                    raise UsageError(
                        f"{name} is given twice: {inputs_by_source[name].selection.archive}, {path}.",
                        next="give --archive one of them",
                    )
                inputs_by_source[name] = item
        missing = [source for source in self.sources if source.name not in inputs_by_source]
        if inputs_by_source and missing:
            names = ", ".join(source.name for source in missing)
            self._say(f"not in the given archives, so looked for elsewhere: {names}")
        inputs = [
            inputs_by_source.get(source.name) or self._download(source, missing)
            for source in self.sources
        ]

        # 2. A copy of the same files, if there is one.
        digests = [item.receipt.sha256 for item in inputs]
        downloaded = all(item.downloaded for item in inputs)
        for copy in self._usable_copies():
            # A folder is identified by the digest of its members, whatever their origin.
            known = [receipt.sha256 for receipt in copy.receipts], [copy.content_digest]
            # Unpack a new download again, so that the receipt names it.
            if digests in known and downloaded <= copy.downloaded and not copy_problems(copy):
                return copy

        # 3. A new one.
        with staging_folder(self.folder) as stage:
            members, pinned = self._unpack(inputs, stage / "0")
            receipts = tuple(item.receipt for item in inputs)
            copy = store_copy(
                self.folder,
                RawFolder(stage / "0", members, receipts, pinned=pinned, downloaded=downloaded),
            )
        self._say(f"unpacked {count_with_noun(len(members), 'file')} into {copy.path}")
        return copy

    def _unpack(
        self, inputs: Sequence[_Input], destination: Path
    ) -> tuple[dict[str, str], bool | None]:
        """Write all members into the new folder ``destination``; return them, and the state of their pins.

        As for :attr:`RawFolder.pinned`: True if all bytes match, False if some differ, else ``None``.
        """
        members: dict[str, str] = {}
        pins = []
        for item in inputs:
            for name in item.selection.members:
                if name in members:
                    raise DamagedInput(f"Two sources of {self.manifest.name} hold {name}.")
            try:
                written = write_members(item.selection, destination, quiet=self.options.quiet)
            except DamagedInput as error:
                if item.downloaded:
                    discard_download(self.folder / item.source.name)
                    error.left = "nothing: the download was removed, and the next run repeats it"
                raise
            pins.append(self._is_pinned(item, destination, written))
            members |= written
        all_match: bool | None = None
        if False in pins:
            all_match = False
        elif None not in pins:
            all_match = True
        return dict(sorted(members.items())), all_match

    def _is_pinned(self, item: _Input, folder: Path, members: Mapping[str, str]) -> bool | None:
        """True if the members of a source, in ``folder``, have the bytes that the manifest pins.

        ``None`` where it pins none, or the archive is packed in another way. Where they differ,
        false is returned if the options accept that; else raises ``DamagedInput``.
        """
        mirrors = item.source.mirrors
        path = item.selection.archive
        digest = item.receipt.sha256
        differing = self._differing_members(folder, members)
        if item.downloaded:
            # Compared with the pin of its mirror when it came.
            mirrors = tuple(mirror for mirror in mirrors if mirror.address == item.receipt.origin)
            is_pinned = any(
                mirror.is_pinned and mirror.sha256 in {None, digest} for mirror in mirrors
            )
        else:
            single = item.source.container == "file"
            if single:
                [(name, digest)] = members.items()
                path = folder / name
            pinned = [mirror for mirror in mirrors if mirror.is_pinned and path.is_file()]
            damage = [differing_pin(mirror, path, digest) for mirror in pinned]
            is_pinned = None in damage
            # A file is known to be wrong only where the published one of each mirror is known.
            if single and not is_pinned and len(damage) == len(mirrors):
                differing += filter(None, damage)

        packed = {mirror.members_sha256 for mirror in mirrors} - {None}
        all_members = json_digest(members)
        if all_members in packed:
            is_pinned = True
        elif packed and item.downloaded:
            differing.append(("SHA-256 of the members", str(packed.pop()), all_members))

        if not differing:
            known = (
                self.manifest.content.known_sha256.keys() | self.manifest.content.known_md5.keys()
            )
            return True if is_pinned or members.keys() <= known else None
        if self.options.unpinned:
            return False
        algorithm, expected, actual = differing[0]
        archive = "" if item.downloaded else " --archive PATH"
        raise DamagedInput(
            f"{item.source.name} is not the published file of {self.manifest.name}: its bytes differ.",
            expected=f"{algorithm} {expected}",
            found=actual,
            next=f"kmip-data build {self.manifest.name}{archive} --unpinned, if it is meant",
        )

    def _differing_members(
        self, folder: Path, members: Mapping[str, str]
    ) -> list[tuple[str, str, str]]:
        """Return algorithm, published and actual digest of the members that differ from a published one."""
        by_sha256 = self.manifest.content.known_sha256
        by_md5 = self.manifest.content.known_md5
        differing = []
        for name, digest in members.items():
            if by_sha256.get(name, digest) != digest:
                differing.append((f"SHA-256 of {name}", by_sha256[name], digest))
            if name in by_md5 and (md5 := md5_of(folder / name)) != by_md5[name]:
                differing.append((f"MD5 of {name}", by_md5[name], md5))
        return differing

    def _sources_in_archive(self, path: Path) -> list[_Input]:
        """Return the sources that a given archive holds; raise its first problem where it holds none."""
        inputs = []
        errors = []
        for source in self.sources:
            try:
                inputs.append(_local_source(source, path))
            except (DamagedInput, UsageError) as error:
                errors.append(error)
        if not inputs:
            raise errors[0]
        return inputs

    def _download(self, source: Source, missing: Sequence[Source]) -> _Input:
        """Return a source from ``raw/<dataset>/`` or a package; download it where it is missing."""
        stored = self.folder / source.name
        if stored.is_file() and read_receipt(stored) is None:
            self._say(f"{stored} has no receipt: it is taken as a local archive")
            return _local_source(source, stored, known=True)

        archive: Path = stored
        receipt = verified_receipt(stored)
        if receipt is None and stored.is_file():
            self._say(f"{stored} differs from its receipt and is downloaded again")
        if receipt is None and source.is_packaged:
            archive, receipt = _packaged_file(source, self.manifest.name)
        if receipt is None:
            if self.options.offline or not source.mirrors:
                raise self._missing_sources_error(missing)
            require_agreement(self.manifest, self.home, self.options.accept_license)
            # Not at the top: importing it opens a socket (urllib3 looks for IPv6).
            from kmip_data.pipelines.raw.download import download_source

            hint = self._archive_hint(source)
            receipt = download_source(source, self.folder, hint=hint, quiet=self.options.quiet)
        selection = _select_members(source, archive, known=True)
        return _Input(source, selection, receipt, downloaded=True)

    def _missing_sources_error(self, sources: Sequence[Source]) -> SourceUnavailable:
        """Return the error for sources that are missing, and cannot or may not be downloaded."""
        addresses: list[str] = []
        for source in sources:
            addresses += [f"{source.name}: {mirror.address}" for mirror in source.mirrors]
        why = "nothing is downloaded offline" if addresses else "they have no address"
        return SourceUnavailable(
            f"The raw data of {self.manifest.name} are not here, and {why}.",
            expected="\n    ".join(addresses),
            next=self._archive_hint(sources[0]),
        )

    def _archive_hint(self, source: Source) -> str:
        """Return the command that uses a local copy of a source."""
        content = source.content or self.manifest.content
        command = f"kmip-data {self.command} {self.manifest.name}"
        sample = f", or {command} --sample" if self.command == "build" else ""
        return f"{command} --archive PATH{sample}   (PATH: a zip, a tar or a folder with {content.anchor})"

    def _say(self, text: str) -> None:
        print_status(text, quiet=self.options.quiet)


def _local_source(source: Source, archive: Path, *, known: bool = False) -> _Input:
    """Return a source in a local archive with a receipt of that archive."""
    selection = _select_members(source, archive, known=known)
    return _Input(source, selection, selection.receipt(source.name))


def _select_members(source: Source, archive: Path, *, known: bool) -> Selection:
    """Return the members of ``source``; a file that is ``known`` to be it may have any name."""
    content = source.content
    assert content is not None
    bare = ""
    if (source.container == "file" or archive.name == content.anchor) and not archive.is_dir():
        # As it is, also where it could be opened: a .pt file is a zip.
        bare = content.anchor if known else archive.name
    return recognise_dataset(archive, content, bare)


def _packaged_file(source: Source, dataset: str) -> tuple[Path, Receipt]:
    """Return the file of a source that a Python package ships, and its receipt.

    Nothing is imported.

    Raises ``MissingExtra`` or ``SourceUnavailable`` where it is not installed, and the
    latter where its version ships another file.
    """
    mirror = source.mirrors[0]
    package, _, member = mirror.url.removeprefix(PACKAGE).partition("/")
    try:
        distribution = importlib.metadata.distribution(package)
        path = Path(str(distribution.locate_file(f"{package}/{member}")))
        digest, size = sha256_file(path)
        origin = f"{package} {distribution.version}, {member}"
        if mirror.sha256 in {None, digest}:
            return path, Receipt(name=source.name, origin=origin, sha256=digest, bytes=size)
        difference = f"{origin} has SHA-256 {digest[:12]}…"
    except (importlib.metadata.PackageNotFoundError, DamagedInput):
        extras = [extra for extra, modules in MODULES.items() if package in modules]
        require_extra(extras[0] if extras else None, dataset)
        difference = f"{package} is not installed, or has no {member}"
    raise SourceUnavailable(
        f"The raw data of {dataset} come with the Python package {package}.",
        expected=f"{source.name} with SHA-256 {(mirror.sha256 or '')[:12]}… ({mirror.note})",
        found=difference,
        next=f"python -m pip install --force-reinstall {mirror.note or package}",
    )
