"""Write, replace, remove and lock files: completely or not at all, never through a link.

**Ours by folder.** A folder that this package makes is missing or empty before, else it is refused,
and holds a marker that says what it is for. In it files are replaced by rename, and only names that
its owner lists are removed: others stay, and are named. Elsewhere no file is replaced unless the
user says ``--force``.

No other module does this. Folders are opened by descriptor, from a root that may be a link (a home,
an ``--output``) down through folders that may not, so a link that appears later has no effect. A
file is written under a temporary name that only its writer uses and has locked, then renamed;
temporary files without a lock are removed.

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
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from kmip_data.errors import OutOfResources, UsageError
from kmip_data.files.folder_marker import MARKER, is_output, read_marker
from kmip_data.files.path_errors import occupied_error, write_errors
from kmip_data.files.reading import readable_json
from kmip_data.runtime.progress import print_status

PARTIAL = ".partial"
LOCK = ".lock"  #: lock of a folder next to which no file can be written; elsewhere its suffix
MESSAGE_SECONDS = 30.0
_NO_FLOCK = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP)
#: ``NAME.<machine>-<random>.partial``
_PARTIAL_NAME = re.compile(r"(.+)\.([0-9a-f]{8})-[0-9a-f]{16}\.partial", re.DOTALL)
_MACHINE = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]
#: Errors of ``unlink`` if no file of ours has the name. After any other error our file remains.
_NO_FILE = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG}
_LONGEST_NAME = 255  #: bytes of the name of a file
_DAY = 86_400  #: seconds
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_CONTINUED = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def begin_folder(folder: Path, content: str) -> None:
    """Make a folder with a marker that says what it is for, such as ``build 0123456789ab``.

    Raises as :func:`refuse_taken_folder`.
    """
    with write_errors(folder):
        refuse_taken_folder(folder, content)
        folder.mkdir(parents=True, exist_ok=True)
        write_marker(folder, content)


def write_marker(folder: Path, content: str) -> None:
    """Write the marker of a folder, if it is missing or has other content."""
    if marker_content(folder) != content:
        write_file(folder / MARKER, f"kmip-data: {content}\n".encode(), root=folder)


def remove_marker(folder: Path, *, root: Path) -> None:
    """Remove the marker of a folder in which nothing else is."""
    if [path.name for path in folder.iterdir()] == [MARKER]:
        remove_file(folder / MARKER, root=root)


def marker_content(folder: Path) -> str | None:
    """Return what a folder is for by its marker, ``None`` where it has none."""
    lines = read_marker(folder)
    return lines[0].strip() if lines else None


def build_marker_content(key: str) -> str:
    """Return what the marker of a build says."""
    return f"build {key}"


def refuse_taken_folder(folder: Path, content: str, remedy: str | None = None) -> None:
    """Raise UsageError unless a folder is missing, empty or begun for this content already.

    ``remedy`` is the next step where its marker says something else.
    """
    if not os.path.lexists(folder):
        return
    if not folder.is_dir():
        raise occupied_error(folder, "a folder", "a file")
    known = marker_content(folder)
    if known is not None and known != content:
        raise occupied_error(folder, content, known, remedy)
    if known is None:
        others = (path.name for path in folder.iterdir() if not _is_from_unmarked_start(path.name))
        names = sorted(itertools.islice(others, 5))  # the folder may have millions of files
        if names:
            raise foreign_files_error(folder, names)


def _is_from_unmarked_start(name: str) -> bool:
    """True if a process that was killed before it wrote the marker leaves a file of this name."""
    return name == LOCK or final_name(name) == MARKER


def foreign_files_error(folder: Path, names: Iterable[str]) -> UsageError:
    """Return the error for files in a folder that this package has not made."""
    return UsageError(
        f"{folder} is not empty, and kmip-data has not made it.",
        expected=f"a new or empty folder, or one with {MARKER}",
        found=", ".join(names),
        next=f"use another folder; or, if it is a sound build or run, kmip-data verify {folder}, which adds the"
        " marker",
    )


def write_file(
    path: Path,
    data: bytes | Iterable[bytes | memoryview],
    *,
    root: Path | None = None,
    mode: int | None = None,
) -> None:
    """Write ``data``, whole or in pieces; a crash at any moment, or another writer, leaves one complete file.

    What lies below ``root``, by default the folder of ``path``, must not be a link. ``mode`` is
    the new file's mode, by default the usual one. Raises ``OutOfResources`` where the disk, a
    quota or a limit on file sizes did not take the bytes, of which nothing is left; ``UsageError``
    where the folder does not exist or may not be written to, or ``path`` is a link or device.
    """
    left = "files that were finished before, and nothing of this one"
    needed = None
    if isinstance(data, bytes):
        needed = len(data)
        data = [data]
    with (
        write_errors(path, left=left, needed=needed),
        _open_below_root(path.parent, root) as folder,
    ):
        _refuse_irregular(path, folder)
        _remove_stale_partials(folder, f"{path.name}.")
        partial = partial_name(path.name)
        try:
            # Inside the block: an interrupt may come as soon as the file exists.
            descriptor = _open_locked_file(partial, folder)
            try:
                for piece in data:
                    write_all(descriptor, piece)
                if mode is not None:
                    os.fchmod(descriptor, mode)
                os.fsync(descriptor)
                # Called as an attribute of os, which fault-injection tests replace.
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
        _fsync_folder(folder)


@contextlib.contextmanager
def open_continued_file(path: Path, partial: str, *, root: Path) -> Iterator[io.FileIO]:
    """Open the file ``partial`` next to ``path``, with what an earlier try left in it.

    It is renamed at the end. An error leaves it for the next try, unless it is empty.

    Hold the folder's lock; refusals as in :func:`write_file`.
    """
    left = "what came so far; the same command resumes there"
    with write_errors(path, left=left), _open_below_root(path.parent, root) as folder:
        _refuse_irregular(path, folder)
        with open(
            open_partial(path.with_name(partial), folder),
            "r+b",
            buffering=0,
        ) as file:
            try:
                yield file
            except BaseException:
                if not os.fstat(file.fileno()).st_size:
                    os.unlink(partial, dir_fd=folder)
                raise
            os.fsync(file.fileno())
            os.replace(partial, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        _fsync_folder(folder)


def open_partial(path: Path, folder: int | None = None) -> int:
    """Open a file to continue, or a new one, in the open ``folder``; return its descriptor.

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
    value: Mapping[str, object],
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


def write_output(path: Path, data: bytes) -> None:
    """Write a file that the user named, as :func:`write_file` does.

    One that exists is replaced and keeps its mode; a link is followed. The marker of a folder of ours
    lists it with its digest.
    """
    mode = None
    if path.is_symlink():
        path = Path(os.path.realpath(path))
    if path.is_file():
        mode = stat.S_IMODE(path.stat().st_mode)
    write_file(path, data, mode=mode)

    lines = read_marker(path.parent)
    if lines and is_output(path.name):
        others = [line for line in lines if not line.endswith(f"  {path.name}")]
        text = "\n".join([*others, f"{hashlib.sha256(data).hexdigest()}  {path.name}\n"])
        write_file(path.parent / MARKER, f"kmip-data: {text}".encode())


def make_folder(path: Path, *, root: Path) -> None:
    """Make the folder ``path``, and those between it and ``root``, where they are missing."""
    parent = root
    for name in path.relative_to(root).parts:
        with _open_below_root(parent, root) as folder, contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=folder)
        parent /= name
    with _open_below_root(path, root):
        pass  # a folder, not a link


def rename_into_place(source: Path, destination: Path) -> None:
    """Rename what this package has just made; a file at ``destination`` is replaced."""
    os.replace(source, destination)  # noqa: PTH105 -- as all here: by functions of os, which fault-injection tests replace


def displace_obstacles(root: Path, names: Iterable[str]) -> None:
    """Make room for files below ``root``: remove links in their place, and rename other things there.

    What a link leads to stays; a folder ``NAME`` becomes ``NAME.moved``.
    """
    for name in map(PurePosixPath, names):
        for relative in (*reversed(name.parents[:-1]), name):
            path = root / relative
            if path.is_symlink():
                print_status(f"removed the link {path} to {path.readlink()}")
                path.unlink()
            elif path.exists() and path.is_dir() == (relative == name):
                aside = path.with_name(f"{path.name}.moved")
                while os.path.lexists(aside):
                    aside = aside.with_name(f"{aside.name}.moved")
                print_status(f"renamed {path} to {aside.name}")
                rename_into_place(path, aside)


def remove_file(path: Path, *, root: Path | None = None) -> None:
    """Remove a file of this package, if it exists.

    ``root`` and refusals as in :func:`write_file`.
    """
    with contextlib.suppress(FileNotFoundError), _open_below_root(path.parent, root) as folder:
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

    What is not a regular file, lies behind a link or elsewhere stays. With ``strict`` the first
    file that cannot be removed raises ``OutOfResources``, and later ones stay.
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
                    left=f"this file, and {MARKER}",
                    next="fix the permissions of the file or its folder (chmod, chattr); then run the same"
                    " command again",
                ) from error
        emptied.update(name.parents[:-1])
    for folder in sorted(emptied, key=lambda folder: -len(folder.parts)):
        remove_empty(root / folder, root=root)


def remove_empty(folder: Path, *, root: Path | None = None) -> None:
    """Remove a folder if nothing but its marker is in it."""
    with contextlib.suppress(OSError, ValueError), _open_below_root(folder.parent, root) as parent:
        remove_marker(folder, root=root or folder.parent)
        os.rmdir(folder.name, dir_fd=parent)


def remove_tree(folder: Path, *, root: Path | None = None) -> None:
    """Remove a folder of temporary files with everything in it; links are neither followed nor removed."""
    with contextlib.suppress(OSError, UsageError), _open_below_root(folder.parent, root) as parent:
        shutil.rmtree(folder.name, dir_fd=parent)


@contextlib.contextmanager
def new_folder(folder: Path, content: str, *, quiet: bool = False) -> Iterator[Path]:
    """Yield a hidden folder with a marker, which is renamed to the new or empty ``folder`` at the end.

    After an error nothing is left of it; the next call removes the remains of a killed process.
    """
    partial = folder.with_name(shortened_name(f".{folder.name}", PARTIAL))
    with write_errors(folder, left="nothing"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with build_lock(folder, quiet=quiet):
            remove_scratch(partial)
            try:
                partial.mkdir()
                write_marker(partial, content)
                yield partial
                rename_into_place(partial, folder)
            finally:
                remove_scratch(partial)


@contextlib.contextmanager
def scratch_folder(folder: Path) -> Iterator[Path]:
    """Yield a new folder for temporary files, which is removed afterwards."""
    folder.mkdir()
    try:
        yield folder
    finally:
        remove_tree(folder)


def remove_scratch(folder: Path) -> None:
    """Remove a hidden folder of :func:`new_folder` with everything in it; another folder of that name stays."""
    if marker_content(folder) is not None:
        remove_tree(folder)
    remove_empty(folder)  # killed before it had its marker


def remove_partials(folder: Path, *, root: Path) -> None:
    """Remove half-written files of writers that no longer run from ``folder``, if it exists."""
    with contextlib.suppress(FileNotFoundError), _open_below_root(folder, root) as handle:
        _remove_stale_partials(handle, "")


def final_name(name: str) -> str | None:
    """Return the final name of a half-written file; ``None`` for other names."""
    match = _PARTIAL_NAME.fullmatch(name)
    return match and match[1]


class FolderInUse(UsageError):
    """Another process holds the lock."""


def refuse_link(path: Path) -> None:
    """Raise UsageError where ``path`` is a symbolic link."""
    if path.is_symlink():
        raise _link_error(path)


def refuse_links(folder: Path) -> None:
    """Raise UsageError where anything below ``folder``, which may be a link itself, is a symbolic link."""
    for parent, folders, names in os.walk(folder):
        for name in (*folders, *names):
            refuse_link(Path(parent, name))


def refuse_links_below(root: Path, folder: Path) -> None:
    """Raise UsageError where ``folder``, or one between it and ``root``, is a symbolic link."""
    with contextlib.suppress(OSError), _open_below_root(folder, root):
        pass


@contextlib.contextmanager
def _open_below_root(folder: Path, root: Path | None) -> Iterator[int]:
    """Open ``folder`` by way of ``root``, below which nothing may be a link."""
    opened = folder if root is None else root
    parts = folder.relative_to(opened).parts
    handle = os.open(opened, _FOLDER)
    try:
        for name in parts:
            opened /= name
            try:
                inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=handle)
            except OSError as error:
                if opened.is_symlink():
                    raise _link_error(opened) from error
                raise
            os.close(handle)
            handle = inner
        yield handle
    finally:
        os.close(handle)


def _open_locked_file(partial: str, folder: int) -> int:
    """Open a new file and hold its lock, which the kernel frees when its writer ends or is killed."""
    while True:
        descriptor = os.open(partial, _NEW, 0o666, dir_fd=folder)
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)  # another writer took it for stale before it was locked


def _fsync_folder(folder: int) -> None:
    try:
        os.fsync(folder)
    except OSError as error:
        # Some file systems cannot sync a folder.
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
            raise


def shortened_name(name: str, suffix: str) -> str:
    """Return ``name`` with a suffix; the digest of a name that leaves no room for it."""
    encoded = os.fsencode(name)
    if len(encoded) + len(suffix) > _LONGEST_NAME:
        name = hashlib.sha256(encoded).hexdigest()
    return name + suffix


def partial_name(name: str) -> str:
    """Return a new name of a half-written file."""
    return shortened_name(name, f".{_MACHINE}-{secrets.token_hex(8)}{PARTIAL}")


def _remove_stale_partials(folder: int, beginning: str) -> None:
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
            raise _link_error(path)
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise UsageError(f"{path} is not a regular file: it is a device, a pipe or a socket.")


def _link_error(path: Path) -> UsageError:
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

    After waiting, look at the folder again. Raises ``FolderInUse`` where another process has it
    and ``wait`` is off; ``UsageError`` or ``OutOfResources`` where the lock file cannot be written.
    """
    with write_errors(lock_path(folder)):
        path, descriptor = _acquire_lock(folder, quiet=quiet, wait=wait)
    try:
        yield
    finally:
        # Removed before it is released: a process that has it open notices, and tries again.
        remove_file(path)
        os.close(descriptor)


def lock_path(folder: Path) -> Path:
    """Return the path of a folder's lock: ``.<name>.lock`` next to it.

    A folder whose parent cannot be written to (the root of a mounted disk) has it inside. It exists
    only while the lock is held, or after its holder was killed.
    """
    parent = folder.parent
    if parent.exists() and not os.access(parent, os.W_OK):
        return folder / LOCK
    return parent / shortened_name(f".{folder.name}", LOCK)


def _acquire_lock(folder: Path, *, quiet: bool, wait: bool) -> tuple[Path, int]:
    """Return the path of the lock file, and its descriptor with the lock."""
    last_message = -math.inf
    while True:
        path = lock_path(folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        refuse_link(path)
        descriptor = open_partial(path)
        if os.fstat(descriptor).st_size:
            os.close(descriptor)
            raise UsageError(f"{path} is not a lock of kmip-data.", next=f"move {path} elsewhere")
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
                print_status(f"waiting for another process that works in {folder}", quiet=quiet)
            time.sleep(0.2)
        except OSError as error:
            if error.errno not in _NO_FLOCK:
                raise
            print_status(
                f"{folder.parent} has no file locks: start no second command on {folder.name}",
                quiet=quiet,
            )
            return path, descriptor
        os.close(descriptor)
