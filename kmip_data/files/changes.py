"""Write, replace, remove and lock files: completely, never through a link. No other module does.

**Proof is bytes, not names.** An existing file is replaced or removed only if it has the bytes that
this package wrote (a digest on a sealed card, in a result, in ``push.json`` or a receipt, a text
that can be made again, a picture or page that carries its own digest), or if the journal of an
unfinished build lists it. Every other file is in the way: named, left alone, ``UsageError``.

A folder is reached by handles: from a root that may be a link (a home, an ``--output``) down
through folders that may not, so that a link put in later leads nowhere. A file is written under a
name that its writer alone has and holds the lock of, and renamed in; such files that nobody locks
are removed.

One process at a time writes into a folder. Its lock is ``flock``, which the kernel releases with
the process, so a killed builder never blocks the next one. Nothing relies on it for correctness:
every file is renamed in complete, and two builders of one key write the same bytes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import io
import itertools
import math
import os
import re
import secrets
import shutil
import socket
import stat
import struct
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from kmip_data.errors import OutOfResources, UsageError, writing
from kmip_data.files.reading import read_small, readable_json, sha256_file
from kmip_data.runtime.progress import say

PARTIAL = ".partial"
LOCKS = ".locks"  #: folder of lock files, next to the build folders
BEGUN = ".begun"  #: ends the name of the mark of a scratch folder, next to it
MESSAGE_SECONDS = 30.0
_NO_FLOCK = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP)
#: ``NAME.<machine>-<random>.partial``
_PARTIAL_NAME = re.compile(r"(.+)\.([0-9a-f]{8})-[0-9a-f]{16}\.partial", re.DOTALL)
_MACHINE = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]
#: A name where no file of ours can lie; other errors of ``unlink`` leave a file of ours behind.
_NO_FILE = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG}
_LONGEST_NAME = 255  #: bytes of the name of a file
_DAY = 86_400  #: seconds
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_CONTINUED = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


Proof = bytes | str  #: text of a file, or its SHA-256 (hex)
#: SHA-256 of all other bytes: a comment that ends a page, a text chunk before the last of a PNG.
_SEAL = re.compile(
    rb"(?:<!-- kmip-data .{64} -->\n|\0\0\0.tEXtkmip-data\0.{68}(?P<end>.{12}))\Z", re.DOTALL
)


def is_ours(path: Path, *proofs: Proof) -> bool:
    """True if nothing lies at ``path``, or a regular file that is sealed or has the bytes of a proof."""
    if not os.path.lexists(path):
        return True
    if path.is_symlink() or not path.is_file():
        return False
    digests = set()
    for proof in proofs:
        digests.add(proof if isinstance(proof, str) else hashlib.sha256(proof).hexdigest())
    return sha256_file(path)[0] in digests or _is_sealed(path)


def sealed(data: bytes) -> bytes:
    """Return a PNG or an HTML page with the digest of its bytes: later, it alone proves that they are ours."""
    digest = hashlib.sha256(data).hexdigest().encode()
    if not data.startswith(b"\x89PNG"):
        return data + b"<!-- kmip-data " + digest + b" -->\n"
    text = b"tEXtkmip-data\0" + digest
    chunk = struct.pack(">I", len(text) - 4) + text + struct.pack(">I", zlib.crc32(text))
    return data[:-12] + chunk + data[-12:]


def _is_sealed(path: Path) -> bool:
    """True if a file is a picture or page as :func:`sealed` returned it."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 128))  # longer than a seal
        if _SEAL.search(file.read()) is None:
            return False
    data = path.read_bytes()
    seal = _SEAL.search(data, len(data) - 128)
    if seal is None:
        return False
    without_seal = data[: seal.start()] + (seal["end"] or b"")
    return sealed(without_seal) == data


def has_size(path: Path, size: int) -> bool:
    """True if a regular file of this size lies at ``path``: proof enough of a large one on a sealed list."""
    with contextlib.suppress(OSError, ValueError):
        status = path.lstat()
        return stat.S_ISREG(status.st_mode) and status.st_size == size
    return False


def refuse_others(folder: Path, proofs: Mapping[str, Iterable[Proof]]) -> None:
    """Raise UsageError, which names them, if files below ``folder`` have none of the bytes they may have."""
    others = [name for name, known in proofs.items() if not is_ours(folder / name, *known)]
    if others:
        raise in_the_way(folder, others)


def in_the_way(folder: Path, names: Iterable[str]) -> UsageError:
    """Return the error for files that this package did not write, or that were changed since."""
    return UsageError(
        f"{folder} holds something else.",
        expected="only files that kmip-data wrote, unchanged",
        found=", ".join(itertools.islice(names, 5)),
        next="move what was found elsewhere, or choose another folder or file",
    )


def write_new(path: Path, data: bytes, *known: Proof, root: Path | None = None) -> None:
    """Write ``data`` as :func:`write_file` does.

    Other bytes there than these or the ``known`` are in the way.
    """
    folder = path.parent if root is None else root
    refuse_others(folder, {path.relative_to(folder).as_posix(): (data, *known)})
    if not (path.is_file() and is_ours(path, data)):
        write_file(path, data, root=root)


def write_file(
    path: Path,
    data: bytes | Iterable[bytes | memoryview],
    *,
    root: Path | None = None,
    mode: int | None = None,
) -> None:
    """Write ``data``, also in pieces, so that a crash at any moment or another writer leaves one whole file.

    What lies below ``root``, by default the folder of ``path``, must not be a link. ``mode`` is
    that of the new file, by default the usual one. Raises ``OutOfResources`` where the disk, a
    quota or a limit on file sizes did not take the bytes, of which nothing is left; ``UsageError``
    where the folder does not exist or may not be written to, or ``path`` is a link or device.
    """
    left = "files that were finished before, and nothing of this one"
    needed = None
    if isinstance(data, bytes):
        needed = len(data)
        data = [data]
    with writing(path, left=left, needed=needed), _opened(path.parent, root) as folder:
        _refuse_irregular(path, folder)
        _remove_stale(folder, f"{path.name}.")
        partial = _partial_name(path.name)
        try:
            # Within: an interrupt comes as soon as the file is there.
            descriptor = _new_locked(partial, folder)
            try:
                for piece in data:
                    write_all(descriptor, piece)
                if mode is not None:
                    os.fchmod(descriptor, mode)
                os.fsync(descriptor)
                # By attribute of os: tests of faults wrap it.
                os.replace(
                    partial,
                    path.name,
                    src_dir_fd=folder,
                    dst_dir_fd=folder,
                )
            finally:
                os.close(descriptor)
        except BaseException as error:
            if not isinstance(error, FileExistsError):  # not ours
                with contextlib.suppress(OSError):
                    os.unlink(partial, dir_fd=folder)
            raise
        _sync(folder)


@contextlib.contextmanager
def continued_file(path: Path, partial: str, *, root: Path) -> Iterator[io.FileIO]:
    """Open the file ``partial`` next to ``path``, with what an earlier try left in it.

    It is renamed at the end.

    An error leaves it to the next try. Hold the folder's lock; refusals as in :func:`write_file`.
    """
    left = "what came so far; the same command resumes there"
    with writing(path, left=left), _opened(path.parent, root) as folder:
        _refuse_irregular(path, folder)
        with open(
            open_partial(path.with_name(partial), folder),
            "r+b",
            buffering=0,
        ) as file:
            yield file
            os.fsync(file.fileno())
            os.replace(partial, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        _sync(folder)


def open_partial(path: Path, folder: int | None = None) -> int:
    """Open a file to be continued, new or there, in the open ``folder``, and return its descriptor.

    Raises ``UsageError`` for a hard link or no regular file, ``OSError`` for a symbolic link.
    """
    descriptor = os.open(
        path if folder is None else path.name,
        _CONTINUED,
        0o644,
        dir_fd=folder,
    )
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_nlink <= 1:
        return descriptor
    os.close(descriptor)
    raise UsageError(f"{path} is a hard link or a special file.", next=f"remove {path}")


def write_json(
    path: Path,
    value: Mapping[str, Any],
    *,
    root: Path | None = None,
) -> None:
    """Write ``value`` as readable JSON, as :func:`write_file` does."""
    write_file(path, readable_json(value).encode(), root=root)


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write all of ``data``, in as many calls as the kernel needs."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def fsync_path(path: Path) -> None:
    """Make a file, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_output(path: Path, data: bytes, *, named: bool = True) -> None:
    """Write a file that a user ``named`` as :func:`write_file` does.

    A link is followed, never replaced.

    A file of that name is replaced and keeps its mode, unless it is read-only. One whose name the
    user has not given stays, unless it has these bytes.
    """
    if not named:
        write_new(path, data)
        return
    if path.is_symlink():
        path = Path(os.path.realpath(path))
    mode = None
    if path.is_file():
        mode = stat.S_IMODE(path.stat().st_mode)
        if not mode & 0o222:
            raise UsageError(f"{path} is read-only.", next="another file, or chmod u+w of this one")
    write_file(path, data, mode=mode)


def make_folder(path: Path, *, root: Path) -> None:
    """Make the folder ``path``, and those between it and ``root``, where they are missing."""
    between = [parent for parent in path.parents if parent.is_relative_to(root) and parent != root]
    for missing in (*reversed(between), path):
        with _opened(missing.parent, root) as folder, contextlib.suppress(FileExistsError):
            os.mkdir(missing.name, dir_fd=folder)
    with _opened(path, root):
        pass  # it is a folder, and no link


def move(source: Path, target: Path) -> None:
    """Rename what this package has just made; a file at ``target`` is replaced."""
    os.replace(source, target)  # noqa: PTH105 -- as all here: by functions of os, which tests of faults wrap


def remove_file(path: Path, *, root: Path | None = None) -> None:
    """Remove a file of this package, if it exists.

    ``root`` and refusals as in :func:`write_file`.
    """
    with contextlib.suppress(FileNotFoundError), _opened(path.parent, root) as folder:
        _refuse_irregular(path, folder)
        os.unlink(path.name, dir_fd=folder)


def remove_files(
    root: Path,
    names: Iterable[str],
    *,
    folders: Iterable[str] = (),
    strict: bool = False,
) -> None:
    """Remove these files below ``root``, then ``folders`` and those they lay in, where they are empty.

    What is not a regular file, lies behind a link or elsewhere was not written by this package: it
    stays. With ``strict`` the first file that cannot be removed ends it as ``OutOfResources``;
    those after it stay.
    """
    emptied = {path for path in map(PurePosixPath, folders) if ".." not in path.parts}
    for name in map(PurePosixPath, names):
        if name.is_absolute() or ".." in name.parts:
            continue
        try:
            remove_file(root / name, root=root)
        except ValueError:  # a link; or NUL in a name
            continue
        except OSError as error:
            if strict and error.errno not in _NO_FILE:
                raise OutOfResources(
                    f"{root / name} cannot be removed: {error.strerror or error}.",
                    left="this file, and those that prove what kmip-data wrote",
                    next="mend its permissions or its folder's (chmod, chattr); then the same command again",
                ) from error
        emptied.update(name.parents[:-1])
    for folder in sorted(emptied, key=lambda folder: -len(folder.parts)):
        remove_empty(root / folder, root=root)


def remove_empty(folder: Path, *, root: Path | None = None) -> None:
    """Remove a folder if nothing is in it."""
    with contextlib.suppress(OSError, ValueError), _opened(folder.parent, root) as parent:
        os.rmdir(folder.name, dir_fd=parent)


def begin_scratch(folder: Path) -> Path:
    """Make a folder for files that come and go, and a mark next to it with its number on this disk."""
    folder.mkdir()
    write_file(mark_of(folder), f"{folder.stat().st_ino}\n".encode())
    return folder


def is_scratch(folder: Path) -> bool:
    """True if the mark next to a folder says that this very folder is one of :func:`begin_scratch`."""
    with contextlib.suppress(OSError, ValueError):
        return int(read_small(mark_of(folder), 32)) == folder.lstat().st_ino
    return False


def remove_made(folder: Path, *, root: Path | None = None) -> None:
    """Remove a folder that this process has just made, with all in it, as :func:`remove_file` does."""
    with contextlib.suppress(OSError, UsageError), _opened(folder.parent, root) as parent:
        shutil.rmtree(folder.name, dir_fd=parent)


def remove_scratch(folder: Path, *, root: Path | None = None) -> None:
    """Remove a folder of :func:`begin_scratch` with all in it.

    Any other folder of its name stays.
    """
    if is_scratch(folder):
        remove_made(folder, root=root)
    remove_empty(folder, root=root)  # killed before it had its mark
    with contextlib.suppress(OSError, UsageError), _opened(folder.parent, root) as parent:
        if not os.path.lexists(folder) and read_small(mark_of(folder), 32).strip().isdigit():
            os.unlink(mark_of(folder).name, dir_fd=parent)


@contextlib.contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """Give a folder of :func:`begin_scratch`, which is gone afterwards, or was renamed."""
    try:
        begin_scratch(folder)
        yield folder
    finally:
        remove_scratch(folder)


def mark_of(folder: Path) -> Path:
    """Return the path of the mark of a scratch folder."""
    return folder.with_name(fitting(folder.name, BEGUN))


def remove_partials(folder: Path, *, root: Path) -> None:
    """Remove what writers that are gone left half-written in ``folder``, if it exists."""
    with contextlib.suppress(FileNotFoundError), _opened(folder, root) as handle:
        _remove_stale(handle, "")


def written_name(name: str) -> str | None:
    """Return the name that a half-written file gets in the end; ``None`` for other names."""
    match = _PARTIAL_NAME.fullmatch(name)
    return match and match[1]


class FolderInUse(UsageError):
    """Another process holds the lock."""


def refuse_link(path: Path) -> None:
    """Raise UsageError where ``path`` is a symbolic link."""
    if path.is_symlink():
        raise _is_a_link(path)


def refuse_links(folder: Path) -> None:
    """Raise UsageError where anything below ``folder``, which may be a link itself, is a symbolic link."""
    for parent, folders, names in os.walk(folder):
        for name in (*folders, *names):
            refuse_link(Path(parent, name))


def refuse_links_below(root: Path, folder: Path) -> None:
    """Raise UsageError where ``folder``, or one between it and ``root``, is a symbolic link."""
    with contextlib.suppress(OSError), _opened(folder, root):
        pass


@contextlib.contextmanager
def _opened(folder: Path, root: Path | None) -> Iterator[int]:
    """Open ``folder`` by way of ``root``, below which nothing may be a link."""
    opened = folder if root is None else root
    parts = folder.relative_to(opened).parts
    handle = os.open(opened, _FOLDER)
    try:
        for part in parts:
            opened /= part
            try:
                inner = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=handle)
            except OSError as error:
                if opened.is_symlink():
                    raise _is_a_link(opened) from error
                raise
            os.close(handle)
            handle = inner
        yield handle
    finally:
        os.close(handle)


def _new_locked(partial: str, folder: int) -> int:
    """Open a new file and hold its lock, which the kernel frees when its writer ends or is killed."""
    while True:
        descriptor = os.open(partial, _NEW, 0o666, dir_fd=folder)
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)  # another writer took it for stale before it was locked


def _sync(folder: int) -> None:
    try:
        os.fsync(folder)
    except OSError as error:
        # Some file systems cannot sync a folder.
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
            raise


def fitting(name: str, suffix: str) -> str:
    """Return ``name`` with a suffix; the digest of a name that leaves no room for it."""
    encoded = os.fsencode(name)
    if len(encoded) <= _LONGEST_NAME < len(encoded) + len(suffix):
        name = hashlib.sha256(encoded).hexdigest()
    return name + suffix


def _partial_name(name: str) -> str:
    return fitting(name, f".{_MACHINE}-{secrets.token_hex(8)}{PARTIAL}")


def _remove_stale(folder: int, beginning: str) -> None:
    """Remove partial files that nobody holds the lock of (of another machine: if they are a day old)."""
    for name in os.listdir(folder):
        match = _PARTIAL_NAME.fullmatch(name)
        if match is None or not name.startswith(beginning):
            continue
        with contextlib.suppress(OSError):  # another process writes it, or has removed it
            descriptor = os.open(name, _CONTINUED & ~os.O_CREAT, dir_fd=folder)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                status = os.fstat(descriptor)
                stale = match[2] == _MACHINE or time.time() - status.st_mtime > _DAY
                if stale and stat.S_ISREG(status.st_mode):
                    # While it is locked: its writer may be about to lock it.
                    os.unlink(name, dir_fd=folder)
            finally:
                os.close(descriptor)


def _refuse_irregular(path: Path, folder: int) -> None:
    """Refuse a link, and what a rename would replace: a device (``/dev/null`` too), a pipe or a socket."""
    with contextlib.suppress(OSError):
        mode = os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            raise _is_a_link(path)
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise UsageError(f"{path} is not a regular file: it is a device, a pipe or a socket.")


def _is_a_link(path: Path) -> UsageError:
    return UsageError(
        f"{path} is a symbolic link, and nothing is written or removed through it.",
        next=f"replace the link {path} by what it leads to, or remove it",
    )


@contextlib.contextmanager
def build_lock(
    folder: Path,
    *,
    quiet: bool = False,
    wait: bool = True,
) -> Iterator[None]:
    """Hold the lock of a folder, which need not exist.

    Waits, with a message, while another process has it.

    Whoever waited looks at the folder again. Raises ``FolderInUse`` where another process has it
    and ``wait`` is off; ``UsageError`` or ``OutOfResources`` where the lock file cannot be written.
    """
    with writing(lock_path(folder)):
        path, descriptor = _acquire(folder, quiet=quiet, wait=wait)
    try:
        yield
    finally:
        # Removed before it is free: who has it open sees that and tries again; nothing is left.
        remove_file(path)
        os.close(descriptor)
        with contextlib.suppress(OSError):  # another process has removed the folder
            if path.parent.name == LOCKS and path.parent.lstat().st_mode & stat.S_ISVTX:
                remove_empty(path.parent)  # not empty while others wait or work


def lock_path(folder: Path) -> Path:
    """Return the path of a folder's lock: ``.locks/<name>.lock`` next to it, whose folder is made.

    A folder whose parent cannot be written to (the root of a mounted disk), or where ``.locks`` is
    a link, has it inside. Either is there only while the lock is held, or after its holder was
    killed.
    """
    locks = folder.parent / LOCKS
    with contextlib.suppress(OSError):
        folder.parent.mkdir(parents=True, exist_ok=True)
        while True:
            with contextlib.suppress(FileExistsError):
                locks.mkdir(0o1777)  # with the sticky bit: it tells our folder from the user's
            # Not found where another process removed it, empty, in between.
            with contextlib.suppress(FileNotFoundError):
                if stat.S_ISDIR(locks.lstat().st_mode):
                    return locks / fitting(folder.name, ".lock")
                break
    return folder / ".lock"


def _acquire(folder: Path, *, quiet: bool, wait: bool) -> tuple[Path, int]:
    """Return the path of the lock file, and its descriptor with the lock."""
    last_message = -math.inf
    while True:
        path = lock_path(folder)
        if path.parent == folder:
            folder.mkdir(parents=True, exist_ok=True)
        refuse_link(path)
        try:
            descriptor = open_partial(path)
        except FileNotFoundError:  # with the empty folder of locks
            continue
        if os.fstat(descriptor).st_size:  # a lock of ours is empty
            os.close(descriptor)
            raise in_the_way(path.parent, [path.name])
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_nlink:
                return path, descriptor
        except BlockingIOError:
            if not wait:
                os.close(descriptor)
                raise FolderInUse(
                    f"{folder} is in use by another process.",
                    next="the same command when that process has ended",
                ) from None
            if time.monotonic() - last_message >= MESSAGE_SECONDS:
                last_message = time.monotonic()
                say(f"waiting for another process that works in {folder}", quiet=quiet)
            time.sleep(0.2)
        except OSError as error:
            if error.errno not in _NO_FLOCK:
                raise
            say(
                f"{folder.parent} has no file locks: start no second command on {folder.name}",
                quiet=quiet,
            )
            return path, descriptor
        os.close(descriptor)
