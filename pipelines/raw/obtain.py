"""Bring in a dataset's raw data: a local archive, an earlier copy, a download or a generated sample."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from kmip_data.builds.home import BuildArguments, BuildOptions, Home
from kmip_data.errors import (
    MODULES,
    DamagedInput,
    LicenseNotAccepted,
    SourceUnavailable,
    UsageError,
    require_extra,
    writing,
)
from kmip_data.files.changes import write_json
from kmip_data.files.reading import read_json, sha256_file
from kmip_data.format.card import Receipt
from kmip_data.manifest import PACKAGE, Content, Manifest, Source
from kmip_data.pipelines.base import Params, Pipeline, RawFolder
from kmip_data.pipelines.raw import copies
from kmip_data.pipelines.raw.archives import Archive, BareFile, FolderArchive, open_archive
from kmip_data.pipelines.raw.copies import (
    RawCopy,
    StoredSource,
    differing_pin,
    list_copies,
    locked,
    staging,
)
from kmip_data.pipelines.raw.extract import Selection, recognise, write_members
from kmip_data.runtime.progress import say
from kmip_data.wording import counted, timestamp

ENVIRONMENT = "KMIP_DATA_ACCEPT_LICENSE"
RECORD_NAME = "licences.json"
SAMPLE_SEED = 0
MOST = 1_000_000  #: records of the largest sample
SHOWN: set[str] = set()  #: datasets whose license this process has printed
_YES = {"1", "true", "yes", "y"}

#: Members of one source in an archive, and their origin, which the receipt of the copy names.
Members = tuple[Selection, StoredSource]


def show_license(manifest: Manifest) -> None:
    """Print license and attribution on stderr."""
    SHOWN.add(manifest.name)
    terms = manifest.license
    say(f"license of {manifest.name}: {terms.notice}{terms.url and f' ({terms.url})'}")


def accepted_licenses(home: Home) -> dict[str, dict[str, Any]]:
    """Return the agreements on record, by dataset; empty without a record."""
    try:
        record = read_json(home.root / RECORD_NAME)
    except (OSError, ValueError):
        return {}
    if not isinstance(record, dict):
        return {}
    return {str(name): entry for name, entry in record.items() if isinstance(entry, dict)}


def require_agreement(
    manifest: Manifest,
    home: Home,
    accept: bool | None = None,
) -> None:
    """Return when the license was agreed to, now or before; an agreement is recorded once.

    ``accept=None`` looks at ``KMIP_DATA_ACCEPT_LICENSE``. Raises ``LicenseNotAccepted``, with the
    terms and the ways to agree, where nobody agreed.
    """
    if not manifest.license.agreement:
        return
    terms = {"name": manifest.license.name, "url": manifest.license.url}
    earlier = accepted_licenses(home).get(manifest.name, {})
    if earlier.get("name") == terms["name"] and earlier.get("url") == terms["url"]:
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
    with writing(home.root):
        home.root.mkdir(parents=True, exist_ok=True)
    record = accepted_licenses(home)
    entry = {**terms, "how": "flag" if accept else "environment", "time": timestamp()}
    write_json(home.root / RECORD_NAME, {**record, manifest.name: entry})


def obtain_raw(
    pipeline: Pipeline[Any, Any],
    params: Params,
    home: Home,
    options: BuildOptions,
    *,
    sample: bool,
) -> RawFolder:
    """Return a folder with verified raw members.

    Where they are missing, they are brought in, or a sample is generated.

    Raises ``SourceUnavailable`` where there is neither an archive, nor an earlier copy, nor a
    mirror; ``DamagedInput`` where an archive is damaged or not the data; ``LicenseNotAccepted``
    where a download asks for agreement; ``UsageError`` where several copies are here and none is
    the complete or downloaded one.
    """
    if pipeline.manifest.generated and not options.archives:
        return RawFolder(home.raw, {}, (), sample=sample)
    if sample:
        return _sample(home, pipeline, params.limit, quiet=options.quiet)
    return _Import(pipeline.manifest, home, options, "build").run(complete=False)


def fetch_dataset(
    manifest: Manifest, home: Home, **options: Unpack[BuildArguments]
) -> list[Receipt]:
    """Fetch and verify the raw data, so that a build needs no network.

    Other than :func:`obtain_raw`, a partial local copy does not count: without ``archives`` the
    complete set or a download must be there, or is downloaded. Same errors.
    """
    chosen = BuildOptions.of(manifest.name, options)
    return list(_Import(manifest, home, chosen, "fetch").run(complete=True).receipts)


def _sample(
    home: Home,
    pipeline: Pipeline[Any, Any],
    limit: int | None,
    *,
    quiet: bool,
) -> RawCopy:
    """Return a generated miniature; the same one when it was generated before."""
    manifest = pipeline.manifest
    if limit is not None and limit > MOST:
        raise UsageError(
            f"A sample of {limit:,} records is no miniature: --limit is at most {MOST:,}.",
            next=f"kmip-data build {manifest.name} --sample --limit 100",
        )
    settings = {
        "limit": limit,
        "seed": SAMPLE_SEED,
        "pipeline_version": pipeline.version,
    }
    folder = home.raw / f"{manifest.name}-sample"

    def existing() -> RawCopy | None:
        for copy in list_copies(folder):
            if copy.made == settings and not copy.problems():
                return copy
        return None

    copy = existing()
    if copy is not None:
        return copy
    with locked(folder, quiet=quiet):
        copy = existing()  # another process may have generated it meanwhile
        if copy is not None:
            return copy
        with staging(folder) as stage:
            generated = stage / "generated"
            with writing(generated):
                generated.mkdir()
                pipeline.sample(generated, limit=limit, seed=SAMPLE_SEED)
            selection = recognise(FolderArchive(generated), manifest.content)
            members = write_members(selection, stage / "0")
            source = copies.local_source(
                folder.name,
                "generated sample",
                members,
                selection.bytes,
            )
            return copies.store(
                folder,
                stage / "0",
                members,
                [source],
                dataset=manifest.name,
                sample=settings,
            )


class _Import:
    """Raw data of one dataset that ``command`` wants."""

    def __init__(
        self,
        manifest: Manifest,
        home: Home,
        options: BuildOptions,
        command: str,
    ) -> None:
        self.manifest = manifest
        self.home = home
        self.options = options
        self.command = command
        self.folder = home.raw / manifest.name
        self.archives = [Path(path) for path in options.archives]
        #: Sources of the manifest; where it has none, a single one that no mirror holds.
        self.sources = manifest.sources or (Source(name=manifest.name, mirrors=()),)

    def run(self, *, complete: bool) -> RawCopy:
        """Return the copy that is meant, imported where there is none.

        ``complete`` as for a fetch.
        """
        if self.manifest.generated:
            raise UsageError(f"{self.manifest.name} is generated: it has no raw files.")
        if not self.options.quiet:
            show_license(self.manifest)
        if not self.archives:
            copy = self._earlier(complete=complete)
            if copy is not None:
                return copy
            self._check_sources()
        with locked(self.folder, quiet=self.options.quiet):
            # Another process may have imported them while this one waited.
            if not self.archives:
                copy = self._earlier(complete=complete)
                if copy is not None:
                    return copy
            return self._import()

    def _check_sources(self) -> None:
        """Raise the errors of an offline import and of packages before anything is written."""
        needed = any(not source.packaged for source in self.sources)
        if self.options.offline and needed and not self.folder.exists():
            raise self._not_here(self.sources)
        for source in self.sources:
            if source.packaged and not (self.folder / source.name).exists():
                _packaged_file(source, self.manifest.name)

    def _earlier(self, *, complete: bool) -> RawCopy | None:
        """Return the one sound copy that is meant, or ``None`` when there is none."""
        # 1. Complete copies, else downloaded ones; any other only if there is no download to
        #    unpack.
        copies_here = [copy for copy in self._copies() if not copy.sample]
        best = [copy for copy in copies_here if copy.is_complete(self.manifest)]
        best = best or [copy for copy in copies_here if copy.downloaded]
        if not best:
            downloads = [(self.folder / source.name).is_file() for source in self.sources]
            if complete or all(downloads):
                return None
        choice = [copy for copy in best if copy.downloaded] or best or copies_here
        if not choice:
            return None

        # 2. Only one may be meant.
        copy = choice[0]
        command = f"kmip-data {self.command} {self.manifest.name} --archive"
        if len(choice) > 1:
            listed = [f"\n    {copy.path} (from {copy.origin})" for copy in choice]
            raise UsageError(
                f"{len(choice)} copies of {self.manifest.name} are here, "
                "and none is known to be complete.",
                found="".join(listed),
                next=f"{command} {copy.path}",
            )

        # 3. It must be sound; a damaged download is made again.
        problems = copy.problems()
        if not problems:
            self._say(f"using {copy.path} (from {copy.origin})")
            return copy
        if copy.downloaded:
            self._say(f"{copy.path} is damaged ({problems[0]}) and is made again")
            return None
        raise DamagedInput(
            f"{copy.path} is damaged: {'; '.join(problems[:5])}.",
            next=f"{command} PATH (a sound copy of {copy.origin})",
        )

    def _import(self) -> RawCopy:
        """Unpack every source, from the given archives or a download, into one copy."""
        # 1. Members of every source: given, else downloaded.
        given: dict[str, Members] = {}
        for path in self.archives:
            for name, members in self._look_into(path).items():
                if name in given:
                    first = given[name][0].archive.path
                    second = members[0].archive.path
                    raise UsageError(
                        f"{name} is given twice: {first}, {second}.",
                        next="give --archive one of them",
                    )
                given[name] = members
        missing = [source for source in self.sources if source.name not in given]
        if given and missing:
            names = ", ".join(source.name for source in missing)
            self._say(f"not in the given archives, so looked for elsewhere: {names}")
        inputs = []
        for source in self.sources:
            members = given.get(source.name) or self._download(source, missing)
            inputs.append(members)

        # 2. A copy of the same files, if there is one.
        stored = [source for _, source in inputs]
        digests = [source.receipt.sha256 for source in stored]
        downloaded = all(source.downloaded for source in stored)
        for copy in self._copies():
            # A folder is known by the digest of its members, wherever these came from before.
            known = [receipt.sha256 for receipt in copy.receipts], [copy.content_digest]
            # What is downloaded now is unpacked again, so that its receipt names the download.
            if digests in known and downloaded <= copy.downloaded and not copy.problems():
                return copy

        # 3. A new one.
        with staging(self.folder) as stage:
            unpacked, stored = self._unpack(inputs, stage / "0")
            copy = copies.store(
                self.folder,
                stage / "0",
                unpacked,
                stored,
                dataset=self.manifest.name,
            )
        self._say(f"unpacked {counted(len(unpacked), 'file')} into {copy.path}")
        return copy

    def _copies(self) -> list[RawCopy]:
        """Return the copies here; those that differ from the manifest only where that is accepted."""
        accepted = self.options.unpinned
        return [copy for copy in list_copies(self.folder) if accepted or not copy.differs]

    def _unpack(
        self, inputs: Sequence[Members], target: Path
    ) -> tuple[dict[str, str], list[StoredSource]]:
        """Write all members into the new folder ``target``; return them, and the sources with pins."""
        members: dict[str, str] = {}
        sources = []
        for source, (selection, stored) in zip(self.sources, inputs, strict=True):
            for name in selection.members:
                if name in members:
                    raise DamagedInput(f"Two sources of {self.manifest.name} hold {name}.")
            try:
                written = write_members(selection, target, quiet=self.options.quiet)
            except DamagedInput as error:
                if stored.downloaded:
                    copies.discard_download(self.folder / source.name)
                    error.parts["on disk"] = (
                        "nothing: the download was removed, and the next run repeats it"
                    )
                raise
            pinned = self._check_pins(source, selection.archive.path, stored, target, written)
            sources.append(stored.model_copy(update={"pinned": pinned}))
            members |= written
        return dict(sorted(members.items())), sources

    def _check_pins(
        self,
        source: Source,
        archive: Path,
        stored: StoredSource,
        folder: Path,
        members: Mapping[str, str],
    ) -> bool | None:
        """True if the members of a source, in ``folder``, have the bytes that the manifest pins.

        ``None`` where it pins none, or the archive is packed in another way. Where they differ,
        false is returned if the options accept that; else raises ``DamagedInput``.
        """
        known = self.manifest.known_sha256
        pins = [mirror for mirror in source.mirrors if mirror.pinned]
        single = source.container == "file"
        for name, digest in members.items():
            differing = None
            if known.get(name, digest) != digest:
                differing = "SHA-256", known[name], digest
            if single and pins:
                of_mirrors = [differing_pin(mirror, folder / name, digest) for mirror in pins]
                differing = differing or (None if None in of_mirrors else of_mirrors[0])
            if differing is None:
                continue
            if self.options.unpinned:
                return False
            kind, expected, actual = differing
            raise DamagedInput(
                f"{name} is not the published file of {self.manifest.name}: its bytes differ.",
                expected=f"{kind} {expected}",
                found=actual,
                next=f"kmip-data build {self.manifest.name} --archive PATH --unpinned, if it is meant",
            )
        if members.keys() <= known.keys() or (single and pins):
            return True
        if pins and archive.is_file():
            digest = stored.receipt.sha256  # of the archive, hashed when it was looked into
            if any(differing_pin(mirror, archive, digest) is None for mirror in pins):
                return True
        return None

    def _look_into(self, path: Path) -> dict[str, Members]:
        """Return the sources that a given archive holds; its first fault where it holds none."""
        archive = open_archive(path)
        sources = {}
        errors = []
        for source in self.sources:
            try:
                sources[source.name] = _local(source, self._select(archive, source))
            except (DamagedInput, UsageError) as error:
                errors.append(error)
        if not sources:
            raise errors[0]
        return sources

    def _select(
        self,
        archive: Archive,
        source: Source,
        *,
        known: bool = False,
    ) -> Selection:
        """Return the members of ``source``; a file that is ``known`` to be it may have any name."""
        content = self._content(source)
        bare = source.container == "file" or archive.path.name == content.anchor
        if bare and not isinstance(archive, FolderArchive):
            # As it is, also where it could be opened: a .pt file is a zip.
            archive = BareFile(archive.path, content.anchor if known else None)
        return recognise(archive, content)

    def _content(self, source: Source) -> Content:
        return source.content or self.manifest.content

    def _download(self, source: Source, missing: Sequence[Source]) -> Members:
        """Return a source from ``raw/<dataset>/`` or a package; download it where it is missing."""
        target = self.folder / source.name
        content = self._content(source)
        if target.is_file() and copies.read_receipt(target) is None:
            self._say(f"{target} has no receipt: it is taken as a local archive")
            return _local(source, self._select(open_archive(target), source, known=True))

        archive: Path = target
        receipt = copies.verified_receipt(target)
        if receipt is None and target.is_file():
            self._say(f"{target} differs from its receipt and is downloaded again")
        if receipt is None and source.packaged:
            archive, receipt = _packaged_file(source, self.manifest.name)
        if receipt is None:
            if self.options.offline:
                raise self._not_here(missing)
            if self.options.quiet:
                show_license(self.manifest)
            require_agreement(self.manifest, self.home, self.options.accept_license)
            # Not at the top: importing it opens a socket (urllib3 looks for IPv6).
            from kmip_data.pipelines.raw.download import fetch_source

            def check(path: Path) -> None:
                if source.container == "archive":
                    recognise(open_archive(path), content)

            receipt = fetch_source(
                source,
                target,
                hint=self._archive_hint(source),
                quiet=self.options.quiet,
                max_bytes=content.max_total_bytes,
                check=check,
            )
        selection = self._select(open_archive(archive), source, known=True)
        return selection, StoredSource(receipt=receipt, downloaded=True)

    def _not_here(self, sources: Sequence[Source]) -> SourceUnavailable:
        """Return the error for sources that are not here while ``offline`` forbids to download them."""
        addresses = []
        for source in sources:
            addresses += [f"\n    {source.name}: {mirror.address}" for mirror in source.mirrors]
        expected = "a local archive"
        if addresses:
            expected += f", or without --offline one of{''.join(addresses)}"
        return SourceUnavailable(
            f"The raw data of {self.manifest.name} are not here, and offline nothing is downloaded.",
            expected=expected,
            next=self._archive_hint(sources[0]),
        )

    def _archive_hint(self, source: Source) -> str:
        """Return the command that uses a local copy of a source."""
        holds = f"a zip, a tar or a folder that holds {self._content(source).anchor}"
        return f"kmip-data {self.command} {self.manifest.name} --archive PATH   (PATH: {holds})"

    def _say(self, text: str) -> None:
        say(text, quiet=self.options.quiet)


def _local(source: Source, selection: Selection) -> Members:
    """Return a source in a local archive with a receipt of that archive."""
    digest, size = selection.fingerprint()
    receipt = Receipt(
        name=source.name,
        origin=selection.archive.path.resolve().name,
        sha256=digest,
        bytes=size,
    )
    return selection, StoredSource(receipt=receipt)


def _packaged_file(source: Source, dataset: str) -> tuple[Path, Receipt]:
    """Return the file of a source that a Python package ships, and its receipt.

    Nothing is imported.

    Raises :class:`MissingExtra` or :class:`SourceUnavailable` where it is not installed, and the
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
        fault = f"{origin} has SHA-256 {digest[:12]}…"
    except (importlib.metadata.PackageNotFoundError, DamagedInput):
        extras = [extra for extra, modules in MODULES.items() if package in modules]
        require_extra(extras[0] if extras else None, dataset)
        fault = f"{package} is not installed, or has no {member}"
    raise SourceUnavailable(
        f"The raw data of {dataset} come with the Python package {package}.",
        expected=f"{source.name} with SHA-256 {(mirror.sha256 or '')[:12]}… ({mirror.note})",
        found=fault,
        next=f"python -m pip install --force-reinstall {mirror.note or package}",
    )
