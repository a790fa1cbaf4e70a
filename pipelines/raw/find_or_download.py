"""Obtain raw data from a local archive, an existing copy, a download or a sample generator."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

from kmip_data.builds.execution_options import BuildArguments, ExecutionOptions
from kmip_data.builds.home import Home
from kmip_data.errors import (
    SAME_AGAIN,
    Command,
    DamagedInput,
    Setting,
    SourceUnavailable,
    Step,
    UsageError,
)
from kmip_data.files.path_errors import convert_write_errors
from kmip_data.files.small_files import json_digest, sha256_file
from kmip_data.format.card import Receipt
from kmip_data.manifest import PACKAGE_PREFIX, Manifest, Source
from kmip_data.pipelines.base import AnyPipeline, RawCopy
from kmip_data.pipelines.parameters import BuildParams
from kmip_data.pipelines.raw.copies import (
    copy_problems,
    discard_download,
    first_differing_digest,
    has_published_members,
    import_lock,
    list_copies,
    md5_of,
    read_receipt,
    receipt_of_members,
    staging_folder,
    store_copy,
    verified_receipt,
)
from kmip_data.pipelines.raw.extract import SelectedMembers, recognise_dataset, write_members
from kmip_data.pipelines.raw.licenses import require_accepted_license, show_license
from kmip_data.runtime.extras import MODULES, require_extra
from kmip_data.runtime.progress import print_status
from kmip_data.text import count_with_noun

SAMPLE_SEED = 0
MAX_SAMPLE_RECORDS = 1_000_000


@dataclass(frozen=True)
class _SourceMembers:
    """Members of one source, found in a local archive or a download."""

    source: Source
    selected_members: SelectedMembers
    receipt: Receipt
    downloaded: bool = False


def obtain_raw(
    pipeline: AnyPipeline,
    params: BuildParams,
    home: Home,
    options: ExecutionOptions,
    *,
    sample: bool,
) -> RawCopy:
    """Return a folder with verified raw members; import, download or generate them if needed.

    Raises ``SourceUnavailable`` if there is no archive, copy or working mirror; ``DamagedInput`` if
    an archive is damaged or has other data; ``LicenseNotAccepted`` if a download requires
    agreement; ``UsageError`` if several copies exist, none of them complete or downloaded.
    """
    if pipeline.manifest.generated and not options.archives:
        return RawCopy(home.raw, {}, (), sample=sample)
    if sample:
        return _generated_sample(home, pipeline, params.limit, quiet=options.quiet)
    return _RawImport(pipeline.manifest, home, options, "build").run()


def fetch_dataset(
    manifest: Manifest, home: Home, **options: Unpack[BuildArguments]
) -> list[Receipt]:
    """Fetch and verify the raw data, so that a build needs no network.

    In contrast to :func:`obtain_raw`, a partial local copy is not enough: without ``archives``, the
    data are downloaded unless a complete or downloaded copy exists. Errors are the same.
    """
    execution = ExecutionOptions.from_arguments(manifest.name, options)
    return list(_RawImport(manifest, home, execution, "fetch").run().receipts)


def _generated_sample(
    home: Home,
    pipeline: AnyPipeline,
    limit: int | None,
    *,
    quiet: bool,
) -> RawCopy:
    """Generate a miniature of the raw data, unless the same one exists."""
    manifest = pipeline.manifest
    if limit is not None and limit > MAX_SAMPLE_RECORDS:
        raise UsageError(
            f"A sample has at most {MAX_SAMPLE_RECORDS:,} records, not {limit:,}.",
            steps=Setting(limit=100),
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
            pipeline.write_sample(generated, limit=limit, seed=SAMPLE_SEED)
        selected_members = recognise_dataset(generated, manifest.content)
        members = write_members(selected_members, stage / "0")
        receipt = receipt_of_members(
            folder.name, "generated sample", members, selected_members.bytes
        )
        staged = RawCopy(stage / "0", members, (receipt,), sample=True, settings=settings)
        return store_copy(folder, staged)


class _RawImport:
    """Import of a dataset's raw data for the ``command`` ``build`` or ``fetch``.

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
        # A manifest without sources has an implicit one without mirrors.
        self.sources = [
            source if source.content else source.model_copy(update={"content": manifest.content})
            for source in manifest.sources or (Source(name=manifest.name, mirrors=()),)
        ]

    def run(self) -> RawCopy:
        """Return the matching copy, importing it if there is none."""
        if self.manifest.generated:
            raise UsageError(f"{self.manifest.name} is generated: it has no raw files.")
        copy = self._matching_copy()
        if copy is not None:
            return copy
        with import_lock(self.folder, quiet=self.options.quiet):
            # Another process may have imported the data while this one waited for the lock.
            return self._matching_copy() or self._import_sources()

    def _usable_copies(self) -> list[RawCopy]:
        """Return existing copies; copies that differ from the pins only with ``--unpinned``."""
        copies = list_copies(self.folder)
        return [copy for copy in copies if self.options.unpinned or copy.pinned is not False]

    def _matching_copy(self) -> RawCopy | None:
        """Return the existing copy to use, or ``None`` if an archive or a download must be unpacked.

        Raises ``UsageError`` if several copies are equally good, and ``DamagedInput`` if the copy
        is damaged and no download can replace it.
        """
        if self.archives:
            return None
        # 1. Prefer complete copies, then downloaded ones. Use another copy only if there is no
        #    download to unpack.
        copies = self._usable_copies()
        complete_copies = [copy for copy in copies if has_published_members(copy, self.manifest)]
        candidates = complete_copies or copies
        downloaded_copies = [copy for copy in candidates if copy.downloaded]
        candidates = downloaded_copies or candidates
        if not candidates:
            return None
        if not complete_copies and not downloaded_copies:
            downloads_exist = all((self.folder / source.name).is_file() for source in self.sources)
            if self.command == "fetch" or downloads_exist:
                return None

        # 2. Require a unique choice.
        copy = candidates[0]
        if len(candidates) > 1:
            listed = [f"{copy.path} (from {copy.origin})" for copy in candidates]
            raise UsageError(
                f"{len(candidates)} copies of {self.manifest.name} were found, "
                "and none is known to be complete.",
                found=listed,
                steps=self._command("--archive", copy.path),
            )

        # 3. Require an intact copy; a damaged download is unpacked once more.
        damage = copy_problems(copy)
        if not damage:
            self._print_status(f"using {copy.path} (from {copy.origin})")
            return copy
        if copy.downloaded:
            self._print_status(f"{copy.path} is damaged ({damage[0]}) and is replaced")
            return None
        raise DamagedInput(
            f"{copy.path} is damaged: {'; '.join(damage[:5])}.",
            steps=[f"use an intact copy of {copy.origin!r}", self._command("--archive", "PATH")],
        )

    def _import_sources(self) -> RawCopy:
        """Unpack every source, from the given archives or a download, into one copy."""
        show_license(self.manifest)
        # 1. Find the members of every source in the given archives, or download them.
        members_by_source: dict[str, _SourceMembers] = {}
        for path in self.archives:
            for item in self._sources_in_archive(path):
                name = item.source.name
                if name in members_by_source:
                    raise UsageError(
                        f"{name} is given twice: {members_by_source[name].selected_members.archive}, {path}.",
                        steps="use one of these archives",
                    )
                members_by_source[name] = item
        missing = [source for source in self.sources if source.name not in members_by_source]
        if members_by_source and missing:
            names = ", ".join(source.name for source in missing)
            self._print_status(f"not in the given archives, so obtained elsewhere: {names}")
        source_members = [
            members_by_source.get(source.name) or self._download(source, missing)
            for source in self.sources
        ]

        # 2. Reuse a copy of the same files.
        digests = [item.receipt.sha256 for item in source_members]
        downloaded = all(item.downloaded for item in source_members)
        for copy in self._usable_copies():
            is_same = digests in (
                [receipt.sha256 for receipt in copy.receipts],
                [copy.content_digest],  # the receipt of a folder has the digest of its members
            )
            # Unpack a download even if a local copy exists, so that the receipt names the download.
            if is_same and downloaded <= copy.downloaded and not copy_problems(copy):
                return copy

        # 3. Unpack a new copy.
        with staging_folder(self.folder) as stage:
            members, pinned = self._unpack(source_members, stage / "0")
            receipts = tuple(item.receipt for item in source_members)
            copy = store_copy(
                self.folder,
                RawCopy(stage / "0", members, receipts, pinned=pinned, downloaded=downloaded),
            )
        self._print_status(f"unpacked {count_with_noun(len(members), 'file')} into {copy.path}")
        return copy

    def _unpack(
        self, source_members: Sequence[_SourceMembers], destination: Path
    ) -> tuple[dict[str, str], bool | None]:
        """Extract all members to ``destination``; return their digests and ``RawCopy.pinned``."""
        members: dict[str, str] = {}
        pins = []
        for item in source_members:
            for name in item.selected_members.members:
                if name in members:
                    raise DamagedInput(f"Two sources of {self.manifest.name} hold {name}.")
            try:
                written = write_members(
                    item.selected_members, destination, quiet=self.options.quiet
                )
            except DamagedInput as error:
                if item.downloaded:
                    discard_download(self.folder / item.source.name)
                    error.steps = ["repeat the download, which was removed", SAME_AGAIN]
                raise
            pins.append(self._compare_with_pins(item, destination, written))
            members |= written
        all_match: bool | None = None
        if False in pins:
            all_match = False
        elif None not in pins:
            all_match = True
        return dict(sorted(members.items())), all_match

    def _compare_with_pins(
        self, item: _SourceMembers, folder: Path, members: Mapping[str, str]
    ) -> bool | None:
        """Compare the members of a source, in ``folder``, with the digests in the manifest.

        Returns True if they match, and ``None`` if there are no digests, or if they cannot be
        compared because the archive is packed differently. If digests differ, returns False with
        ``--unpinned``, and otherwise raises ``DamagedInput``.
        """
        mirrors = item.source.mirrors
        path = item.selected_members.archive
        digest = item.receipt.sha256
        differing = self._differing_members(folder, members)
        if item.downloaded:
            # The download was compared with the pin of its mirror.
            mirrors = tuple(mirror for mirror in mirrors if mirror.address == item.receipt.origin)
            is_pinned = any(
                mirror.is_pinned and mirror.sha256 in {None, digest} for mirror in mirrors
            )
        else:
            is_single_file = item.source.container == "file"
            if is_single_file:
                [(name, digest)] = members.items()
                path = folder / name
            pinned_mirrors = [mirror for mirror in mirrors if mirror.is_pinned and path.is_file()]
            differences = [
                first_differing_digest(mirror, path, digest) for mirror in pinned_mirrors
            ]
            is_pinned = None in differences
            # The file is certainly wrong only if every mirror has a pin and all of them differ.
            if is_single_file and not is_pinned and len(differences) == len(mirrors):
                differing += filter(None, differences)

        published_digests = {mirror.members_sha256 for mirror in mirrors} - {None}
        members_digest = json_digest(members)
        if members_digest in published_digests:
            is_pinned = True
        elif published_digests and item.downloaded:
            published = str(published_digests.pop())
            differing.append(("SHA-256 of the members", published, members_digest))

        if not differing:
            content = self.manifest.content
            names_with_digest = content.known_sha256.keys() | content.known_md5.keys()
            return True if is_pinned or members.keys() <= names_with_digest else None
        if self.options.unpinned:
            return False
        algorithm, expected, actual = differing[0]
        archives = [word for file in self.archives for word in ("--archive", file)]
        raise DamagedInput(
            f"{item.source.name} is not the published file of {self.manifest.name}: its bytes differ.",
            expected=f"{algorithm} {expected}",
            found=actual,
            steps=[
                "if you want this file",
                Command("kmip-data build {} --unpinned", self.manifest.name, *archives),
            ],
        )

    def _differing_members(
        self, folder: Path, members: Mapping[str, str]
    ) -> list[tuple[str, str, str]]:
        """Return algorithm, published and actual digest of each member that differs."""
        by_sha256 = self.manifest.content.known_sha256
        by_md5 = self.manifest.content.known_md5
        differing = []
        for name, digest in members.items():
            if by_sha256.get(name, digest) != digest:
                differing.append((f"SHA-256 of {name}", by_sha256[name], digest))
            if name in by_md5 and (md5 := md5_of(folder / name)) != by_md5[name]:
                differing.append((f"MD5 of {name}", by_md5[name], md5))
        return differing

    def _sources_in_archive(self, path: Path) -> list[_SourceMembers]:
        """Return the sources that an archive holds; if there are none, raise the first error."""
        source_members = []
        errors = []
        for source in self.sources:
            try:
                source_members.append(_local_source(source, path))
            except (DamagedInput, UsageError) as error:
                errors.append(error)
        if not source_members:
            raise errors[0]
        return source_members

    def _download(self, source: Source, missing: Sequence[Source]) -> _SourceMembers:
        """Return a source from ``raw/<dataset>/`` or a package, downloading it if it is missing."""
        stored = self.folder / source.name
        if stored.is_file() and read_receipt(stored) is None:
            self._print_status(f"{stored} has no receipt: it is treated as a local archive")
            return _local_source(source, stored, any_name=True)

        archive: Path = stored
        receipt = verified_receipt(stored)
        if receipt is None and stored.is_file():
            self._print_status(f"{stored} differs from its receipt and is downloaded again")
        if receipt is None and source.is_packaged:
            archive, receipt = _file_in_python_package(source, self.manifest.name)
        if receipt is None:
            if self.options.offline or not source.mirrors:
                raise self._missing_sources_error(missing)
            require_accepted_license(self.manifest, self.home, self.options.accept_license)
            # Import late: urllib3 opens a socket to detect IPv6.
            from kmip_data.pipelines.raw.download import download_source

            remedy = self._archive_remedy(source)
            receipt = download_source(source, self.folder, remedy=remedy, quiet=self.options.quiet)
        selected_members = _select_members(source, archive, any_name=True)
        return _SourceMembers(source, selected_members, receipt, downloaded=True)

    def _missing_sources_error(self, sources: Sequence[Source]) -> SourceUnavailable:
        """Return the error for missing sources that cannot be downloaded."""
        addresses: list[str] = []
        for source in sources:
            addresses += [f"{source.name}: {mirror.address}" for mirror in source.mirrors]
        reason = "nothing is downloaded offline" if addresses else "they have no address"
        return SourceUnavailable(
            f"The raw data of {self.manifest.name} are missing, and {reason}.",
            expected=addresses,
            steps=self._archive_remedy(sources[0]),
        )

    def _archive_remedy(self, source: Source) -> list[Step]:
        """Return the steps without a download: a local copy of a source, or a sample."""
        content = source.content or self.manifest.content
        words = f"PATH is a zip, a tar or a folder with {content.anchor}"
        steps: list[Step] = [words, self._command("--archive", "PATH"), self._command("--sample")]
        return steps if self.command == "build" else steps[:2]

    def _command(self, *options: object) -> Command:
        return Command("kmip-data", self.command, self.manifest.name, *options)

    def _print_status(self, text: str) -> None:
        print_status(text, quiet=self.options.quiet)


def _local_source(source: Source, archive: Path, *, any_name: bool = False) -> _SourceMembers:
    """Return the members of a source in a local archive, with a receipt of that archive."""
    selected_members = _select_members(source, archive, any_name=any_name)
    return _SourceMembers(source, selected_members, selected_members.receipt(source.name))


def _select_members(source: Source, archive: Path, *, any_name: bool) -> SelectedMembers:
    """Select the members of ``source``; with ``any_name``, a single file may have any name."""
    content = source.content
    assert content is not None
    as_member = ""
    if (source.container == "file" or archive.name == content.anchor) and not archive.is_dir():
        # Do not open the file, even if it is an archive: .pt files are zips.
        as_member = content.anchor if any_name else archive.name
    return recognise_dataset(archive, content, as_member)


def _file_in_python_package(source: Source, dataset: str) -> tuple[Path, Receipt]:
    """Return the file of a source inside an installed Python package, and its receipt.

    The package is not imported. Raises ``MissingExtra`` or ``SourceUnavailable`` if it is not
    installed, and ``SourceUnavailable`` if its version has another file.
    """
    mirror = source.mirrors[0]
    package, _, member = mirror.url.removeprefix(PACKAGE_PREFIX).partition("/")
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
        steps=Command("pip install --force-reinstall", mirror.note or package),
    )
