"""Atomic writes, removal and locking of files, never through a symbolic link.

**Ownership by folder.** The package writes only into folders that were missing or empty, and marks
each with a file that states its content. In such a folder, files are replaced by rename, and only
files listed by their owner are removed; all others stay, and are reported. Elsewhere, no file is
replaced without ``--force``.

No other module writes files. Folders are opened by descriptor: the root (a home, an ``--output``)
may be a link, the folders below it may not, so a link created later has no effect. A file is written
under a temporary name that its writer has locked, then renamed. Temporary files without a lock are
removed.

One process at a time writes into a folder. The lock is ``flock``, which the kernel releases with the
process, so a killed builder never blocks the next one. Correctness does not depend on it: every file
is complete when it is renamed, and two builders of one key write the same bytes.
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

from kmip_data.errors import SAME_AGAIN, FolderInUse, OutOfResources, Step, UsageError
from kmip_data.files.folder_marker import (
    MARKER_NAME,
    foreign_files_error,
    is_output,
    marker_with_output,
    read_marker,
)
from kmip_data.files.path_errors import convert_write_errors, occupied_error
from kmip_data.files.small_files import readable_json
from kmip_data.runtime.progress import print_status

PARTIAL_SUFFIX = ".partial"  #: suffix of half-written files
#: suffix of a lock file, or its name inside a folder whose parent is read-only
LOCK_SUFFIX = ".lock"
REPLACED_SUFFIX = ".replaced"  #: suffix of a folder that a new one replaces
WAIT_MESSAGE_SECONDS = 30.0
_NO_FLOCK_ERRNOS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP)
#: ``NAME.<machine>-<random>.partial``
_PARTIAL_NAME = re.compile(r"(.+)\.([0-9a-f]{8})-[0-9a-f]{16}\.partial", re.DOTALL)
_MACHINE = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]
#: Errors of ``unlink`` for a name that is not a regular file; after any other, the file remains.
_NO_FILE_ERRNOS = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG}
_MAX_NAME_BYTES = 255
_DAY_SECONDS = 86_400
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_RESUME_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def create_marked_folder(folder: Path, content: str) -> None:
    """Create a folder with a marker that states its content, such as ``build 0123456789ab``.

    Raises as :func:`refuse_occupied_folder`.
    """
    with convert_write_errors(folder):
        refuse_occupied_folder(folder, content)
        folder.mkdir(parents=True, exist_ok=True)
        write_marker(folder, content)


def write_marker(folder: Path, content: str) -> None:
    """Write the marker of a folder unless it has this content already."""
    if marker_content(folder) != content:
        write_file(folder / MARKER_NAME, f"kmip-data: {content}\n".encode(), root=folder)


def remove_marker(folder: Path, *, root: Path) -> None:
    """Remove the marker of an otherwise empty folder."""
    if [path.name for path in folder.iterdir()] == [MARKER_NAME]:
        remove_file(folder / MARKER_NAME, root=root)


def marker_content(folder: Path) -> str | None:
    """Return the content stated by a folder's marker, or ``None`` without a marker."""
    lines = read_marker(folder)
    return lines[0].strip() if lines else None


def build_marker_content(key: str) -> str:
    """Return the marker content of the build with this key."""
    return f"build {key}"


def refuse_occupied_folder(folder: Path, content: str, remedy: Step | None = None) -> None:
    """Raise ``UsageError`` unless a folder is missing, empty, or marked with the same content.

    ``remedy`` is the next step if the marker states other content.
    """
    if not os.path.lexists(folder):
        return
    if not folder.is_dir():
        raise occupied_error(folder, "a folder", "a file")
    existing_content = marker_content(folder)
    if existing_content is not None and existing_content != content:
        raise occupied_error(folder, content, existing_content, remedy)
    if existing_content is None:
        foreign = (path.name for path in folder.iterdir() if not _precedes_marker(path.name))
        names = sorted(itertools.islice(foreign, 5))  # the folder may have millions of files
        if names:
            raise foreign_files_error(folder, names)


def _precedes_marker(name: str) -> bool:
    """True for files left by a process that was killed before it had written the marker."""
    return name == LOCK_SUFFIX or final_name(name) == MARKER_NAME


def write_file(
    path: Path,
    data: bytes | Iterable[bytes | memoryview],
    *,
    root: Path | None = None,
    mode: int | None = None,
) -> None:
    """Write ``data``, in one or several pieces, atomically: a crash leaves the old file or the new one.

    No folder below ``root``, by default the folder of ``path``, may be a link. ``mode`` sets the
    permissions of the new file. Raises ``OutOfResources`` if the disk, a quota or a limit on file
    sizes is exceeded; nothing is left then. Raises ``UsageError`` if the folder is missing or
    read-only, or if ``path`` is a link or a device.
    """
    left = "files that were finished earlier, and nothing of this one"
    needed = None
    if isinstance(data, bytes):
        needed = len(data)
        data = [data]
    with (
        convert_write_errors(path, left=left, needed=needed),
        _open_below_root(path.parent, root) as folder,
    ):
        _refuse_irregular(path, folder)
        _remove_stale_partials(folder, f"{path.name}.")
        partial = partial_name(path.name)
        try:
            # Inside the block, because an interrupt may come as soon as the file exists.
            descriptor = _open_locked_file(partial, folder)
            try:
                for piece in data:
                    write_all(descriptor, piece)
                if mode is not None:
                    os.fchmod(descriptor, mode)
                os.fsync(descriptor)
                # Called as os.replace, which fault-injection tests patch.
                os.replace(partial, path.name, src_dir_fd=folder, dst_dir_fd=folder)
            finally:
                os.close(descriptor)
        except BaseException as error:
            if not isinstance(error, FileExistsError):  # another writer's file
                with contextlib.suppress(OSError):
                    os.unlink(partial, dir_fd=folder)
            raise
        _fsync_folder(folder)


@contextlib.contextmanager
def open_resumable_file(path: Path, partial: str, *, root: Path) -> Iterator[io.FileIO]:
    """Open the file ``partial`` next to ``path``, with the bytes of an earlier attempt.

    It is renamed to ``path`` at the end. After an error it stays for the next attempt, unless empty.

    The caller must hold the folder's lock. Raises as :func:`write_file`.
    """
    left = "the bytes received so far; the same command resumes there"
    with convert_write_errors(path, left=left), _open_below_root(path.parent, root) as folder:
        _refuse_irregular(path, folder)
        with open(open_partial(path.with_name(partial), folder), "r+b", buffering=0) as file:
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
    """Open an existing or new file for reading and writing, and return its descriptor.

    ``folder`` is the descriptor of its folder. Raises ``UsageError`` for a hard link or a special
    file, ``OSError`` for a symbolic link.
    """
    name = path if folder is None else path.name
    descriptor = os.open(name, _RESUME_FLAGS, 0o644, dir_fd=folder)
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_nlink <= 1:
        return descriptor
    os.close(descriptor)
    raise UsageError(f"{path} is a hard link or a special file.", steps=f"move {path} elsewhere")


def write_json(path: Path, value: Mapping[str, object], *, root: Path | None = None) -> None:
    """Write ``value`` as readable JSON with :func:`write_file`."""
    write_file(path, readable_json(value).encode(), root=root)


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write all of ``data`` to a descriptor, repeating partial writes."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def fsync_path(path: Path) -> None:
    """Flush a file, or the entries of a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_output(path: Path, data: bytes) -> None:
    """Write a file named by the user with :func:`write_file`.

    An existing file is replaced and keeps its permissions; a link is followed. In a marked folder,
    the marker records the digest of default outputs.
    """
    mode = None
    if path.is_symlink():
        path = Path(os.path.realpath(path))
    if path.is_file():
        mode = stat.S_IMODE(path.stat().st_mode)
    write_file(path, data, mode=mode)

    if is_output(path.name) and read_marker(path.parent):
        marker = marker_with_output(path.parent, path.name, hashlib.sha256(data).hexdigest())
        write_file(path.parent / MARKER_NAME, marker.encode())


def make_folder(path: Path, *, root: Path) -> None:
    """Create the folder ``path`` and missing folders between it and ``root``."""
    parent = root
    for name in path.relative_to(root).parts:
        with _open_below_root(parent, root) as folder, contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=folder)
        parent /= name
    with _open_below_root(path, root):
        pass  # raises if a component is a link


def rename_into_place(source: Path, destination: Path) -> None:
    """Rename a file or folder just created by this package; a file at ``destination`` is replaced."""
    os.replace(source, destination)  # noqa: PTH105 -- fault-injection tests patch functions of os


def displace_obstacles(root: Path, names: Iterable[str]) -> None:
    """Make room for files below ``root``: remove links at their paths, and rename obstructing entries.

    The target of a link stays. A folder or pipe ``NAME`` in place of a file becomes ``NAME.moved``.
    """
    for name in map(PurePosixPath, names):
        for relative in (*reversed(name.parents[:-1]), name):
            path = root / relative
            if path.is_symlink():
                print_status(f"removed the link {path} to {path.readlink()}")
                path.unlink()
            elif path.exists() and not (path.is_file() if relative == name else path.is_dir()):
                set_aside(path)


def set_aside(path: Path) -> None:
    """Rename a file or folder ``NAME`` of the user to ``NAME.moved``, and print that."""
    aside = path.with_name(f"{path.name}.moved")
    while os.path.lexists(aside):
        aside = aside.with_name(f"{aside.name}.moved")
    print_status(f"renamed {path} to {aside.name}")
    rename_into_place(path, aside)


def remove_file(path: Path, *, root: Path | None = None) -> None:
    """Remove a file of this package if it exists; ``root`` and errors as in :func:`write_file`."""
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
    """Remove files below ``root``, then their folders and ``folders`` if these are empty.

    Links, special files, and files behind a link or outside ``root`` stay. With ``strict``, the
    first file that cannot be removed raises ``OutOfResources``, and later ones stay.
    """
    candidate_folders = {path for path in map(PurePosixPath, folders) if ".." not in path.parts}
    for name in map(PurePosixPath, names):
        if name.is_absolute() or ".." in name.parts:
            continue
        try:
            remove_file(root / name, root=root)
        except ValueError:  # a link; or NUL in a name
            continue
        except OSError as error:
            if strict and error.errno not in _NO_FILE_ERRNOS:
                raise OutOfResources(
                    f"{root / name} cannot be removed: {error.strerror or error}.",
                    left=f"this file, and {MARKER_NAME}",
                    steps=[
                        "fix the permissions of the file or its folder (chmod, chattr)",
                        SAME_AGAIN,
                    ],
                ) from error
        candidate_folders.update(name.parents[:-1])
    for folder in sorted(candidate_folders, key=lambda folder: -len(folder.parts)):
        remove_empty_folder(root / folder, root=root)


def remove_empty_folder(folder: Path, *, root: Path | None = None) -> None:
    """Remove a folder that holds nothing but its marker, if anything."""
    with contextlib.suppress(OSError, ValueError), _open_below_root(folder.parent, root) as parent:
        remove_marker(folder, root=root or folder.parent)
        os.rmdir(folder.name, dir_fd=parent)


def remove_tree(folder: Path, *, root: Path | None = None) -> None:
    """Remove a folder of temporary files with its contents; refuse a link, and follow none."""
    with contextlib.suppress(OSError, UsageError), _open_below_root(folder.parent, root) as parent:
        shutil.rmtree(folder.name, dir_fd=parent)


@contextlib.contextmanager
def new_folder(
    folder: Path, content: str, *, quiet: bool = False, replace: bool = False
) -> Iterator[Path]:
    """Yield a hidden marked folder, which is renamed to the new or empty ``folder`` at the end.

    After an error it is removed; the next call removes the remains of a killed process. With
    ``replace``, ``folder`` may be a marked folder with content, which is removed at the end.
    """
    partial = folder.with_name(shortened_name(f".{folder.name}", PARTIAL_SUFFIX))
    replaced = folder.with_name(shortened_name(f".{folder.name}", REPLACED_SUFFIX))
    with convert_write_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with folder_lock(folder, quiet=quiet):
            # A process may have been killed between the two renames below.
            if marker_content(replaced) is not None and not folder.exists():
                rename_into_place(replaced, folder)
            # The caller has checked the folder, before waiting for the lock.
            if not replace and folder.is_dir() and any(folder.iterdir()):
                raise UsageError(
                    f"{folder} was written by another process meanwhile.",
                    steps=SAME_AGAIN,
                )
            remove_scratch(partial)
            try:
                partial.mkdir()
                write_marker(partial, content)
                yield partial
                if replace and folder.exists():
                    # The old folder stays complete under its hidden name until the new one is in
                    # its place; nothing is lost if the process is killed in between.
                    remove_scratch(replaced)
                    rename_into_place(folder, replaced)
                rename_into_place(partial, folder)
                remove_scratch(replaced)
            finally:
                if replaced.exists() and not folder.exists():
                    rename_into_place(replaced, folder)
                remove_scratch(partial)


@contextlib.contextmanager
def scratch_folder(folder: Path) -> Iterator[Path]:
    """Create a folder for temporary files, and remove it afterwards."""
    folder.mkdir()
    try:
        yield folder
    finally:
        remove_tree(folder)


def remove_scratch(folder: Path) -> None:
    """Remove a hidden folder of :func:`new_folder` with its contents; without a marker, only if empty."""
    if marker_content(folder) is not None:
        remove_tree(folder)
    remove_empty_folder(folder)  # its process may have been killed before it wrote the marker


def remove_partials(folder: Path, *, root: Path) -> None:
    """Remove half-written files of dead writers from ``folder`` if it exists."""
    with contextlib.suppress(FileNotFoundError), _open_below_root(folder, root) as handle:
        _remove_stale_partials(handle, "")


def final_name(name: str) -> str | None:
    """Return the final name of a half-written file, or ``None`` for other names."""
    match = _PARTIAL_NAME.fullmatch(name)
    return match and match[1]


def refuse_link(path: Path) -> None:
    """Raise ``UsageError`` if ``path`` is a symbolic link."""
    if path.is_symlink():
        raise _link_error(path)


def refuse_links(folder: Path) -> None:
    """Raise ``UsageError`` if anything below ``folder`` is a symbolic link; ``folder`` may be one."""
    for parent, folders, names in os.walk(folder):
        for name in (*folders, *names):
            refuse_link(Path(parent, name))


def refuse_links_below(root: Path, folder: Path) -> None:
    """Raise ``UsageError`` if ``folder``, or a folder between it and ``root``, is a symbolic link."""
    with contextlib.suppress(OSError), _open_below_root(folder, root):
        pass


@contextlib.contextmanager
def _open_below_root(folder: Path, root: Path | None) -> Iterator[int]:
    """Yield a descriptor of ``folder``, opened from ``root`` down without following links."""
    path = folder if root is None else root
    names = folder.relative_to(path).parts
    descriptor = os.open(path, _FOLDER_FLAGS)
    try:
        for name in names:
            path /= name
            try:
                inner = os.open(name, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=descriptor)
            except OSError as error:
                if path.is_symlink():
                    raise _link_error(path) from error
                raise
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def _open_locked_file(partial: str, folder: int) -> int:
    """Create and lock a file; the kernel releases the lock when the writer ends or is killed."""
    while True:
        descriptor = os.open(partial, _NEW_FILE_FLAGS, 0o666, dir_fd=folder)
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)  # another writer removed it as stale before it was locked


def _fsync_folder(folder: int) -> None:
    try:
        os.fsync(folder)
    except OSError as error:
        # Some file systems cannot sync folders.
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
            raise


def shortened_name(name: str, suffix: str) -> str:
    """Return ``name`` with a suffix, replacing a name that would become too long by its digest."""
    encoded = os.fsencode(name)
    if len(encoded) + len(suffix) > _MAX_NAME_BYTES:
        name = hashlib.sha256(encoded).hexdigest()
    return name + suffix


def partial_name(name: str) -> str:
    """Return a unique name for a half-written file."""
    return shortened_name(name, f".{_MACHINE}-{secrets.token_hex(8)}{PARTIAL_SUFFIX}")


def _remove_stale_partials(folder: int, prefix: str) -> None:
    """Remove unlocked half-written files; files of another machine only after a day."""
    for name in os.listdir(folder):
        match = _PARTIAL_NAME.fullmatch(name)
        if match is None or not name.startswith(prefix):
            continue
        with contextlib.suppress(OSError):  # another process writes it, or has removed it
            descriptor = os.open(name, _RESUME_FLAGS & ~os.O_CREAT, dir_fd=folder)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                status = os.fstat(descriptor)
                age = time.time() - status.st_mtime
                is_stale = match[2] == _MACHINE or age > _DAY_SECONDS
                if is_stale and stat.S_ISREG(status.st_mode):
                    # Unlink while holding the lock: its writer may be about to lock it.
                    os.unlink(name, dir_fd=folder)
            finally:
                os.close(descriptor)


def _refuse_irregular(path: Path, folder: int) -> None:
    """Refuse a link, and a device such as ``/dev/null``, pipe or socket, which a rename would replace."""
    with contextlib.suppress(OSError):
        mode = os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            raise _link_error(path)
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise UsageError(
                f"{path} is not a regular file: it is a device, a pipe or a socket.",
                steps=f"another output; of a build or run: move {path} elsewhere",
            )


def _link_error(path: Path) -> UsageError:
    return UsageError(
        f"{path} is a symbolic link, and nothing is written or removed through it.",
        steps=f"replace the link {path} by its target, or move it elsewhere",
    )


@contextlib.contextmanager
def folder_lock(folder: Path, *, quiet: bool = False, wait: bool = True) -> Iterator[None]:
    """Hold the lock of a folder, which need not exist; wait, with a message, if it is taken.

    Another process may have changed the folder while this one waited. Raises ``FolderInUse`` if the
    lock is taken and ``wait`` is false, and ``UsageError`` or ``OutOfResources`` if the lock file
    cannot be written.
    """
    with convert_write_errors(lock_path(folder)):
        path, descriptor = _acquire_lock(folder, quiet=quiet, wait=wait)
    try:
        yield
    finally:
        # Remove the file before releasing the lock: a waiting process notices, and retries.
        remove_file(path)
        os.close(descriptor)


def lock_path(folder: Path) -> Path:
    """Return the path of a folder's lock file: ``.<name>.lock`` next to the folder.

    It is inside the folder if the parent is read-only, as at the root of a mounted disk. The file
    exists only while the lock is held, or after its holder was killed.
    """
    parent = folder.parent
    if parent.exists() and not os.access(parent, os.W_OK):
        return folder / LOCK_SUFFIX
    return parent / shortened_name(f".{folder.name}", LOCK_SUFFIX)


def _acquire_lock(folder: Path, *, quiet: bool, wait: bool) -> tuple[Path, int]:
    """Return the path of the lock file and a descriptor that holds the lock."""
    last_message = -math.inf
    while True:
        path = lock_path(folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        refuse_link(path)
        descriptor = open_partial(path)
        if os.fstat(descriptor).st_size:
            os.close(descriptor)
            raise UsageError(
                f"{path} is not a lock of kmip-data.",
                steps=f"move {path} elsewhere",
            )
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_nlink:
                return path, descriptor
        except BlockingIOError:
            if not wait:
                os.close(descriptor)
                raise FolderInUse(
                    f"{folder} is in use by another process.",
                    steps=["wait until that process has ended", SAME_AGAIN],
                ) from None
            if time.monotonic() - last_message >= WAIT_MESSAGE_SECONDS:
                last_message = time.monotonic()
                print_status(f"waiting for another process that uses {folder}", quiet=quiet)
            time.sleep(0.2)
        except OSError as error:
            if error.errno not in _NO_FLOCK_ERRNOS:
                raise
            print_status(
                f"{folder.parent} has no file locks: do not run another command on {folder.name}",
                quiet=quiet,
            )
            return path, descriptor
        os.close(descriptor)
