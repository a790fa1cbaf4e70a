"""Copies of raw data in ``raw/<dataset>/members-<digest>``, each with a receipt.

Even folders are copied, not linked, so later edits of the original have no effect. The receipt is
written last, and then the folder is renamed into place. Every use of a copy hashes all members
(1.65 GB/s). Downloads are stored next to the copies, with their own receipts.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from pydantic import TypeAdapter

from kmip_data.errors import SAME_AGAIN, DamagedInput, UsageError
from kmip_data.files import atomic_writes
from kmip_data.files.path_errors import convert_write_errors
from kmip_data.files.small_files import json_digest, open_regular_file, read_json, sha256_file
from kmip_data.format.card import Receipt
from kmip_data.manifest import Manifest, Mirror
from kmip_data.pipelines.base import RawCopy
from kmip_data.pipelines.raw.extract import is_safe_path, recognise_dataset, write_members
from kmip_data.text import timestamp

RECEIPT_NAME = "receipt.json"
_DOWNLOAD_RECEIPT_SUFFIX = ".receipt.json"
_COPY_PREFIX = "members-"
_STAGING_NAME = ".unpacking"
_FSYNC_THREADS = 16
_COPY_ADAPTER = TypeAdapter(RawCopy)  #: the receipt of a copy has all fields except ``path``


def _folder_name(members: Mapping[str, str]) -> str:
    return _COPY_PREFIX + json_digest(members)[:12]


def copy_problems(copy: RawCopy) -> list[str]:
    """Hash every member of a copy; describe the differences from the receipt."""
    if copy.path.name != _folder_name(copy.members):
        return [f"{RECEIPT_NAME} does not belong to this folder"]
    differences = []
    for name, sha256 in copy.members.items():
        path = copy.path / name
        try:
            # Do not follow links: they could expose other files.
            with open_regular_file(path, follow=False) as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
                    differences.append(f"{path.name}: other content")
        except OSError as error:
            differences.append(f"{path.name}: {error.strerror or error}")
    return differences


def has_published_members(copy: RawCopy, manifest: Manifest) -> bool:
    """True if a copy has every member with a published digest; False if none is published."""
    known_sha256 = manifest.content.known_sha256
    known_md5 = manifest.content.known_md5
    # Receipts have no MD5; it was compared when the copy was made.
    if known_md5 and not (copy.pinned and known_md5.keys() <= copy.members.keys()):
        return False
    return bool(known_sha256 or known_md5) and known_sha256.items() <= copy.members.items()


def receipt_of_members(name: str, origin: str, members: Mapping[str, str], size: int) -> Receipt:
    """Return the receipt of generated or copied files of ``size`` bytes in total."""
    return Receipt(name=name, origin=origin, sha256=json_digest(members), bytes=size)


def first_differing_digest(mirror: Mirror, path: Path, sha256: str) -> tuple[str, str, str] | None:
    """Compare a file, whose ``sha256`` is known, with the pins of a mirror.

    Returns algorithm, published and actual value of the first digest that differs, or ``None``.
    """
    for algorithm, expected in mirror.pins.items():
        actual = sha256
        if algorithm == "MD5":
            actual = md5_of(path)
        elif algorithm == "git blob":
            actual = git_blob_of(path)
        if expected != actual:
            return algorithm, expected, actual
    return None


def md5_of(path: Path) -> str:
    """Return the MD5 of a file."""
    md5 = hashlib.md5(usedforsecurity=False)
    return sha256_file(path, md5.copy)[0]


def git_blob_of(path: Path) -> str:
    """Return git's name of a file: the SHA-1 of a header and the content."""
    head = f"blob {path.stat().st_size}\0".encode()
    blob = hashlib.sha1(head, usedforsecurity=False)
    return sha256_file(path, blob.copy)[0]


def list_copies(folder: Path) -> list[RawCopy]:
    """Return the copies in ``folder`` that have a valid receipt, sorted by name."""
    copies = []
    for path in sorted(folder.glob(f"{_COPY_PREFIX}*/{RECEIPT_NAME}")):
        with contextlib.suppress(OSError, TypeError, ValueError):
            copy = _COPY_ADAPTER.validate_python({**read_json(path), "path": path.parent})
            if all(map(is_safe_path, copy.members)):
                copies.append(copy)
    return copies


@contextlib.contextmanager
def import_lock(folder: Path, *, quiet: bool) -> Iterator[None]:
    """Create ``folder`` and hold its lock, so that one process imports at a time."""
    with convert_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with atomic_writes.folder_lock(folder, quiet=quiet):
        try:
            yield
        finally:
            atomic_writes.remove_empty_folder(folder)  # empty after an error


@contextlib.contextmanager
def staging_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder inside ``folder``, whose lock the caller holds."""
    atomic_writes.refuse_links(folder)
    atomic_writes.remove_partials(folder, root=folder)
    # Left by a killed import; no import is running, because the caller holds the lock.
    atomic_writes.remove_tree(folder / _STAGING_NAME, root=folder)
    with (
        convert_write_errors(folder),
        atomic_writes.scratch_folder(folder / _STAGING_NAME) as stage,
    ):
        yield stage


def store_copy(folder: Path, staged: RawCopy) -> RawCopy:
    """Write the receipt of ``staged``, a :func:`staging_folder`, and rename it into place.

    An intact copy of the same content is kept and returned; a damaged one is replaced.
    """
    members = staged.members
    if RECEIPT_NAME in members:
        raise DamagedInput(
            f"The data of {folder.name} have a member named {RECEIPT_NAME}, which is reserved."
        )
    # The folder's name is a digest of the members, so equal data are stored once.
    destination = folder / _folder_name(members)
    copy = replace(staged, path=destination)
    receipt = {
        **_COPY_ADAPTER.dump_python(copy, mode="json", exclude={"path"}),
        "time": timestamp(),
    }
    existing = next((copy for copy in list_copies(folder) if copy.path == destination), None)
    with convert_write_errors(destination):
        if existing is not None and not copy_problems(existing):
            needs_new_receipt = (
                copy.settings != existing.settings
                or copy.downloaded > existing.downloaded
                or bool(copy.pinned) > bool(existing.pinned)
            )
            if not needs_new_receipt:
                return existing
            atomic_writes.write_json(destination / RECEIPT_NAME, receipt, root=folder)
            return copy

        # The file system commits concurrent syncs together: 3,000 files in 0.4 s instead of 12 to
        # 18 s.
        folders = {str(parent) for name in members for parent in Path(name).parents}
        paths = [staged.path / name for name in (*members, *folders)]
        with ThreadPoolExecutor(_FSYNC_THREADS) as pool:
            list(pool.map(atomic_writes.fsync_path, paths))
        atomic_writes.write_json(staged.path / RECEIPT_NAME, receipt)
        remove_copy(copy)  # if a damaged one exists
        foreign_files = [path.name for path in destination.rglob("*") if path.is_file()]
        if foreign_files:
            raise UsageError(
                f"{destination} holds more than its members: {', '.join(foreign_files[:5])}.",
                steps=["move your files out of it", SAME_AGAIN],
            )
        atomic_writes.rename_into_place(staged.path, destination)
        atomic_writes.fsync_path(folder)
    return copy


def store_own_files(
    folder: Path,
    write_files: Callable[[Path], tuple[dict[str, str], list[Receipt]]],
    *,
    quiet: bool,
) -> tuple[RawCopy, bool]:
    """Import a user's own files into ``folder``; return the copy, and True if it is new.

    ``write_files`` writes them to a new folder, and returns the members' digests and the receipts.
    """
    existing_paths = {copy.path for copy in list_copies(folder)}
    with import_lock(folder, quiet=quiet), staging_folder(folder) as stage:
        members, receipts = write_files(stage / "0")
        copy = store_copy(folder, RawCopy(stage / "0", members, tuple(receipts)))
    return copy, copy.path not in existing_paths


def unpack_archive(
    archive: Path, manifest: Manifest, destination: Path, *, quiet: bool, as_member: str = ""
) -> tuple[dict[str, str], list[Receipt]]:
    """Extract the members of an archive to ``destination``; return their digests and the receipt."""
    selection = recognise_dataset(archive, manifest.content, as_member)
    return write_members(selection, destination, quiet=quiet), [selection.receipt()]


def remove_copy(copy: RawCopy) -> None:
    """Remove the members and the receipt of a copy; other files in its folder stay."""
    folder = copy.path.name
    names = [f"{folder}/{name}" for name in (RECEIPT_NAME, *copy.members)]
    atomic_writes.remove_files(copy.path.parent, names, folders=[folder])


def receipt_path(path: Path) -> Path:
    """Return the path of the receipt of a download."""
    return path.with_name(f"{path.name}{_DOWNLOAD_RECEIPT_SUFFIX}")


def read_receipt(path: Path) -> Receipt | None:
    """Return the receipt of a download; ``None`` if it is missing or invalid."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        fields = {**read_json(receipt_path(path))}
        fields.pop("time", None)
        return Receipt.model_validate(fields)
    return None


def verified_receipt(path: Path) -> Receipt | None:
    """Return the receipt of a download if the file exists and has the recorded digest."""
    receipt = read_receipt(path) if path.is_file() else None
    return receipt if receipt and sha256_file(path) == (receipt.sha256, receipt.bytes) else None


def discard_download(path: Path) -> None:
    """Remove a damaged download and its receipt."""
    with convert_write_errors(path):
        atomic_writes.remove_file(receipt_path(path))
        atomic_writes.remove_file(path)


def files_of_raw(folder: Path) -> list[str]:
    """Return the files of copies and downloads in ``raw/<dataset>``, receipts after their files."""
    names = []
    for copy in list_copies(folder):
        names += [f"{copy.path.name}/{name}" for name in (*copy.members, RECEIPT_NAME)]
    for path in folder.glob(f"*{_DOWNLOAD_RECEIPT_SUFFIX}"):
        names += [path.name.removesuffix(_DOWNLOAD_RECEIPT_SUFFIX), path.name]
    for path in folder.glob("*.partial.json"):
        names += [path.stem, path.name]
    return names
